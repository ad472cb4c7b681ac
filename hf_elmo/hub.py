"""Uploading a checkpoint to the Hub."""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi, ModelCard
from huggingface_hub.utils import filter_repo_objects

from .configuration_elmo import VERSION, ElmoConfig
from .model_cards import make_card
from .remote_code import add_remote_code
from .shipped import load_tokenizer, located
from .utils import require_tokenizer

WEIGHTS = ["model*.safetensors", "model.safetensors.index.json"]
TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "character_vocab.json", "words.txt", "vocab.txt"]
OTHERS = ["config.json", "*_elmo.py", "softmax_vocab.txt", "conversion.json", "README.md", "LICENSE*", "*.png", "*.svg"]
OTHERS += ["modules.json", "sentence_bert_config.json"]
PATTERNS = WEIGHTS + TOKENIZER + OTHERS  # an optimizer's state, training arguments and other files are left out


@dataclass(frozen=True)
class Upload:
    """What [`push`] has uploaded, or would upload.

    Args:
        files: the size in bytes of each file, by its name in the repository.
        left_out: other files and folders of the checkpoint's folder.
        url: of the commit; `None` for a dry run.
    """

    files: dict[str, int]
    left_out: tuple[str, ...]
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
    conversion record.

    The folder is not changed. Where it holds no code or no model card, the upload gets the code of this version and a
    card made from the configuration. Weights and tokenizer files of an earlier upload that this one does not replace
    are deleted from the repository, because transformers would load them.

    Args:
        folder: of the checkpoint, or the name of the model that ships.
        repository: `"owner/name"`; it is created unless it exists.
        private: create a private repository.
        revision: the branch to commit to, created unless it exists; by default `main`.
        dry_run: make no request; return what would be uploaded.

    Raises:
        FileNotFoundError: a file of the checkpoint is missing.
        ValueError: the tokenizer does not belong to the model.
        PermissionError: `private` is set, and the repository exists and is public.
        huggingface_hub.errors.HfHubHTTPError: the Hub refuses a request.
    """
    folder = Path(located(folder))
    require_tokenizer(ElmoConfig.from_pretrained(folder), load_tokenizer(folder))
    names = sorted(path.name for path in folder.iterdir())
    chosen = list(filter_repo_objects(names, allow_patterns=PATTERNS))
    with TemporaryDirectory() as staging:
        for name in chosen:
            shutil.copyfile(folder / name, Path(staging, name))
        if not any(folder.glob("*_elmo.py")):
            add_remote_code(staging)
        _write_card(Path(staging), repository)
        files = {path.name: path.stat().st_size for path in sorted(Path(staging).iterdir())}
        left_out = tuple(name for name in names if name not in files)
        url = None if dry_run else _upload(staging, repository, private, revision)
    return Upload(files, left_out, url)


def _write_card(staging: Path, repository: str) -> None:
    """Names the repository in the card's examples, which name the folder."""
    file = staging / "README.md"
    if file.is_file():
        card = ModelCard.load(file)
    else:
        settings = json.loads((staging / "tokenizer_config.json").read_text(encoding="utf-8"))
        config = ElmoConfig.from_pretrained(staging)
        card = make_card(repository.split("/")[-1], config=config, word_splitting=settings.get("word_splitting"))
    title = re.match(r"\s*# (.+)", card.text)
    content = card.content.replace(f'"{title[1].strip()}"', f'"{repository}"') if title else card.content
    file.write_text(content, encoding="utf-8")


def _upload(staging: str, repository: str, private: bool, revision: str | None) -> str:
    api = HfApi(library_name="hf_elmo", library_version=VERSION)
    api.create_repo(repository, private=private or None, exist_ok=True)
    if private and not api.repo_info(repository).private:
        raise PermissionError(f"private is set, but {repository} exists and is public.")
    if revision is not None:
        api.create_branch(repository, branch=revision, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repository,
        folder_path=staging,
        revision=revision,
        delete_patterns=WEIGHTS + TOKENIZER,
        commit_message=f"Upload with hf_elmo {VERSION}",
    )
    return commit.commit_url


__all__ = ["Upload", "push"]
