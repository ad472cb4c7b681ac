"""The published models that are converted by name, which published.toml describes, and the download of their files."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from huggingface_hub import ModelCard, cached_assets_path, get_hf_file_metadata
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import WeakFileLock

from hf_elmo.model_cards import published_card

# How a page of HTML begins, and none of the files: a network that asks for a login serves its page as every file.
PAGE = re.compile(rb"\s*<[!?h]", re.IGNORECASE)


def _read() -> Iterator[tuple[str, SimpleNamespace]]:
    for family in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["family"]:
        for own in family["models"]:
            model = family | own
            model |= {field: model[field].format(**model) for field in ("name", "about", "page")}
            yield model["name"], SimpleNamespace(**model | {"files": [file.format(**model) for file in model["files"]]})


PUBLISHED = dict(_read())  # each model by its name, with the values of published.toml as attributes


def all_names() -> dict[str, str]:
    """The names that `hf-elmo convert` takes, each with a description of the model."""
    return {name: published.about for name, published in PUBLISHED.items()}


def page(name: str) -> ModelCard:
    return published_card(PUBLISHED[name].page, **vars(PUBLISHED[name]))


def download(name: str, cache_dir: str | Path | None = None) -> list[Path]:
    """The files of a published model, downloaded unless they are in the folder `cache_dir/name`, by default in the
    assets of huggingface_hub's cache. An interrupted download resumes. ConnectionError if no host serves a file."""
    model = PUBLISHED[name]
    folder = cached_assets_path("hf_elmo", "conversion", name) if cache_dir is None else Path(cache_dir, name)
    folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(folder / ".lock"):
        return [_download(name, model.hosts, path, folder / path.rpartition("/")[2]) for path in model.files]


def _download(name: str, hosts: list[str], path: str, target: Path) -> Path:
    if target.exists():
        return target
    message = f"{target.name} could not be downloaded:\n"
    partial = target.with_name(f"{target.name}.partial")
    for host in hosts:
        try:
            with partial.open("ab") as file:
                done = file.tell()  # of a partial file that is complete, the host would refuse to send the rest
                size = get_hf_file_metadata(host + path, token=False).size if done else None
                headers = {"Accept-Encoding": "identity"}
                http_get(host + path, file, resume_size=done, expected_size=size, headers=headers)
            with partial.open("rb") as file:
                begin = file.read(1000)
            if PAGE.match(begin):
                partial.unlink()
                raise ValueError(f"the answer begins with {begin[:60]!r}, unlike such a file")
            return partial.replace(target)
        except Exception as error:  # raised by the Hub's client, its HTTP library, or the connection
            message += f"  {host}{path}: {error}\n"
    raise ConnectionError(f"{message}If you have the model's files, run: hf-elmo convert --model {name} FILES OUT")
