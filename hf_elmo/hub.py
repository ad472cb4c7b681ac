"""A checkpoint's folder on the Hub: all that loading it elsewhere needs is uploaded, and nothing else."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import validate_repo_id
from transformers.dynamic_module_utils import get_relative_import_files
from yaml import YAMLError

import hf_elmo

from .configuration_elmo import ElmoConfig
from .model_cards import make_card
from .remote_code import FILES, add_remote_code
from .shipped import load_checkpoint, load_tokenizer, located, named
from .spelling import require_tokenizer

# Of a folder. Its code files are those that the `auto_map`s name, and what they import.
WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
TOKENIZER += ("character_vocab.json", "words.txt", "vocab.txt")
TEXTS = ("config.json", *TOKENIZER, "softmax_vocab.txt", "conversion.json", "README.md", "LICENSE*")
PICTURES = ("*.png", "*.svg", "*.jpg")  # of the card
TOKEN = re.compile(rb"\bhf_[A-Za-z0-9]{30,}")


@dataclass(frozen=True)
class Upload:
    """What [`push`] has uploaded, or would upload.

    Args:
        files: the bytes of each file, by its name in the repository.
        made: which of them are not in the folder, or not as they are uploaded: made for the Hub.
        left_out: what else is in the folder; folders end in "/".
        deleted: files of an earlier checkpoint that were in the repository.
        url: of the commit; `None` of a dry run.
    """

    files: dict[str, int]
    made: tuple[str, ...]
    left_out: tuple[str, ...]
    deleted: tuple[str, ...] = ()
    url: str | None = None


def push(
    folder: str | os.PathLike,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    dry_run: bool = False,
) -> Upload:
    """
    Upload a checkpoint to the Hub in one commit: model, tokenizer, code for `trust_remote_code=True`, model card and
    conversion record. All else in the folder stays at home, such as the optimizer and the arguments of a training.

    The folder must load. It is left as it is; what it lacks of the code is completed in the upload, and a card is made
    from its configuration where it has none. Code of an earlier version that is whole goes along as it is. Weights and
    tokenizer files that an earlier checkpoint left in the repository are deleted in the same commit, for transformers
    would find them.

    Args:
        folder: of the checkpoint, or the name of a model that ships.
        repository: `"owner/name"`; it is created unless it exists.
        private: that only its owner sees it. One that exists must be private already.
        revision: the branch to commit to, created unless it exists; by default `main`.
        dry_run: upload nothing, make no request; only say what would be uploaded.

    Returns:
        an [`Upload`]: the files, and where they are.

    Raises:
        FileNotFoundError, ValueError: the folder is no checkpoint, does not load, or holds an access token in a file
            that would be uploaded; or `repository` is no name of one.
        PermissionError: the Hub refuses the token or there is none; or a repository that must be private is public.
        ConnectionError: the Hub cannot be reached, an upload was interrupted, or the Hub answers with an error.
    """
    folder = Path(located(folder))
    validate_repo_id(repository)
    if "/" not in repository:
        raise ValueError(f"repository is {repository!r}, but must have an owner: owner/{repository}.")
    with TemporaryDirectory() as made:
        files = collect(folder, repository, Path(made))
        names = {path.name for path in folder.iterdir()}
        left_out = sorted(f"{name}/" if (folder / name).is_dir() else name for name in names - files.keys())
        upload = Upload(
            files={name: path.stat().st_size for name, path in sorted(files.items())},
            made=tuple(sorted(path.name for path in Path(made).iterdir())),
            left_out=tuple(left_out),
        )
        return upload if dry_run else _commit(files, upload, repository, private, revision)


def collect(folder: Path, repository: str, made: Path) -> dict[str, Path]:
    """
    The files to upload, by their names in the repository.

    Args:
        folder: of the checkpoint.
        repository: the name that the card's examples get.
        made: an empty folder for files that the checkpoint lacks, or that are changed for the Hub.

    Raises:
        FileNotFoundError, ValueError: as [`push`].
    """
    _require_whole(folder)
    if not _has_code(folder):
        _complete_code(folder, made)
    _card_for(folder, repository, made)
    chosen = {path.name: path for path in folder.iterdir() if path.is_file() and _is_wanted(path.name)}
    chosen |= {name: folder / name for name in _code_files(folder)} if _has_code(folder) else {}
    chosen |= {path.name: path for path in made.iterdir()}
    for name, path in chosen.items():
        if not _matches(name, (*WEIGHTS, *PICTURES)) and TOKEN.search(path.read_bytes()):
            raise ValueError(f"{path} holds an access token of the Hub (hf_...): remove it, and make a new one.")
    return chosen


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_wanted(name: str) -> bool:
    return _matches(name, (*WEIGHTS, *TEXTS, *PICTURES))


def _read(file: Path) -> dict:
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{file} is no JSON ({error}): save or copy the checkpoint again.") from error


def _require_whole(folder: Path) -> None:
    """The folder loads here: all of its weights, and its own tokenizer."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} does not exist: give the folder of a checkpoint, or the name of a model that ships."
        )
    with named(folder):
        found = _read(folder / "config.json").get("architectures") or ["no class"]
    if found[0] not in FILES:
        raise ValueError(f"{folder} is a checkpoint of {found[0]}, but hf_elmo has {', '.join(FILES)}.")
    if missing := [name for name in ("tokenizer.json", "tokenizer_config.json") if not (folder / name).is_file()]:
        raise ValueError(
            f"{folder} has no {missing[0]}, so its text would be read otherwise elsewhere: save its tokenizer into it."
        )
    tokenizer = load_tokenizer(folder)
    model = load_checkpoint(getattr(hf_elmo, found[0]), folder)
    try:
        require_tokenizer(model.config, tokenizer)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    if not any(_matches(path.name, WEIGHTS) for path in folder.iterdir()):
        raise ValueError(
            f"{folder} has its weights in another format than safetensors, which would be left out: load it, and save "
            "it again with save_pretrained."
        )


def _auto_maps(folder: Path) -> list[str]:
    """The classes that the folder's `auto_map`s name, as `module.Class`."""
    found = [_read(folder / name).get("auto_map", {}) for name in ("config.json", "tokenizer_config.json")]
    named = [one for auto_map in found for value in auto_map.values() for one in _as_list(value) if one]
    return [one.rpartition("--")[2] for one in named]


def _as_list(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def _code_files(folder: Path) -> set[str]:
    """The code that the `auto_map`s name, with all that it imports.

    Raises:
        FileNotFoundError: a file of it is missing.
    """
    names = {f"{reference.partition('.')[0]}.py" for reference in _auto_maps(folder)}
    imported = {Path(file).name for name in names for file in get_relative_import_files(folder / name)}
    return names | imported


def _has_code(folder: Path) -> bool:
    classes = {"AutoConfig", "AutoModel"}
    if not classes <= _read(folder / "config.json").get("auto_map", {}).keys():
        return False
    if "AutoTokenizer" not in _read(folder / "tokenizer_config.json").get("auto_map", {}):
        return False
    try:
        return all((folder / name).is_file() for name in _code_files(folder))
    except FileNotFoundError:
        return False


def _complete_code(folder: Path, made: Path) -> None:
    """The code of this version, of all files: parts of two versions need not fit."""
    for name in ("config.json", "tokenizer_config.json"):
        shutil.copyfile(folder / name, made / name)
    models = FILES.keys() - {"ElmoConfig", "ElmoTokenizer"}
    add_remote_code(made, *(models & {reference.partition(".")[2] for reference in _auto_maps(folder)}))


def _card_for(folder: Path, repository: str, made: Path) -> None:
    """The folder's card, or a new one from its configuration, with the repository's name in its examples."""
    file = folder / "README.md"
    try:
        card = ModelCard(file.read_text(encoding="utf-8")) if file.is_file() else None
    except (ValueError, YAMLError) as error:
        raise ValueError(f"{file} is no model card: {' '.join(str(error).split())}") from error
    if card is None:
        splitting = _read(folder / "tokenizer_config.json").get("word_splitting")
        config = ElmoConfig.from_pretrained(folder)
        card = make_card(repository.rpartition("/")[2], config=config, word_splitting=splitting)
        card.save(made / file.name)
    title = re.match(r"\s*# (.+)", card.text)
    quoted = f'"{title[1].strip()}"' if title else None
    if quoted and quoted in card.content:
        (made / "README.md").write_text(card.content.replace(quoted, f'"{repository}"'), encoding="utf-8")


def _commit(files: dict[str, Path], upload: Upload, repository: str, private: bool, revision: str | None) -> Upload:
    api = HfApi(library_name="hf_elmo", library_version=hf_elmo.__version__)
    with _explained(repository):
        repository = api.create_repo(repository, private=private or None, exist_ok=True).repo_id
        if private and not api.repo_info(repository).private:
            raise PermissionError(
                f"{repository} exists and is public: make it private in its settings, or choose another name."
            )
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        there = api.list_repo_files(repository, revision=revision)
        old = sorted(name for name in there if _matches(name, (*WEIGHTS, *TOKENIZER)) and name not in files)
        commit = api.create_commit(
            repository,
            [CommitOperationAdd(name, path) for name, path in sorted(files.items())]
            + [CommitOperationDelete(name) for name in old],
            commit_message=f"Upload with hf_elmo {hf_elmo.__version__}",
            revision=revision,
        )
    return Upload(upload.files, upload.made, upload.left_out, tuple(old), commit.commit_url)


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """For a block of requests: what huggingface_hub, httpx and xet raise becomes one line with its remedy."""
    try:
        yield
    except PermissionError:
        raise
    except Exception as error:
        chain = [error]
        while cause := chain[-1].__cause__:
            chain.append(cause)
        if isinstance(error, ValueError) and not isinstance(error, HfHubHTTPError):  # a card that the Hub refuses
            raise ValueError(" ".join(str(error).split())) from error
        answer = next((one for one in chain if isinstance(one, HfHubHTTPError)), None)
        if answer is not None:
            raise _refusal(answer, repository) from error
        reason = " ".join(f"{type(chain[-1]).__name__}: {chain[-1]}".split())[:300]
        if "/xet-write-token/" in reason and "404" in reason:
            raise ConnectionError(
                f"the Hub has no xet storage for {repository}, to which huggingface_hub uploads where hf_xet is "
                "installed: set HF_HUB_DISABLE_XET=1, and run the same command again."
            ) from error
        raise ConnectionError(
            f"the upload to {repository} was interrupted ({reason}); run the same command again: large files that "
            "have arrived are not sent again."
        ) from error


def _refusal(answer: HfHubHTTPError, repository: str) -> OSError:
    status = answer.response.status_code
    said = answer.server_message or answer.response.headers.get("X-Error-Message") or answer.response.reason_phrase
    said = " ".join(f"{status} {said}".split())[:300]
    if status == 401:
        return PermissionError(
            f"the Hub refused the token for {repository}, or there is none ({said}): log in with hf auth login, or "
            "set HF_TOKEN to a token that may write."
        )
    if status == 403:
        return PermissionError(
            f"the token may not write to {repository} ({said}): use one with write access, or a name of your own."
        )
    return ConnectionError(f"the Hub did not take the upload to {repository} ({said}).")


__all__ = ["Upload", "push"]
