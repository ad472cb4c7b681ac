"""The files of a checkpoint, its code (for `trust_remote_code=True`) among them, and its upload to the Hub."""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi, ModelCard
from huggingface_hub.utils import filter_repo_objects
from transformers.dynamic_module_utils import custom_object_save

from .. import names
from ..configuration_elmo import VERSION, ElmoConfig
from ..model_cards import make_card
from ..utils.spelling import require_tokenizer
from .loading import load_tokenizer, locate

WEIGHTS = ["model.safetensors", "model-?????-of-?????.safetensors", "model.safetensors.index.json"]
TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "character_vocab.json", "words.txt", "vocab.txt"]
OTHERS = ["config.json", "*_elmo.py", "softmax_vocab.txt", "conversion.json", "README.md", "LICENSE*", "*.png", "*.svg"]
OTHERS += ["modules.json", "sentence_bert_config.json"]


@dataclass(frozen=True)
class Upload:
    """What [`push`] has uploaded or, in a dry run, would upload."""

    files: dict[str, int]  # the size in bytes of each file, by the file's name in the repository
    left_out: tuple[str, ...]  # files and folders of the checkpoint's folder that are not uploaded
    url: str | None = None  # the address of the commit; None for a dry run


def push(
    folder: str | os.PathLike,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    dry_run: bool = False,
) -> Upload:
    """Upload a checkpoint to the Hub in one commit: model, tokenizer, code for `trust_remote_code=True`, model card and
    conversion record. The folder is not changed; code or a model card that it lacks is made for the upload. Weights and
    tokenizer files of an earlier upload that are not replaced are deleted, because transformers would load them.

    Args:
        folder: the folder of the checkpoint, or the name of the model that ships with hf_elmo.
        repository: `"owner/name"`; it is created if it does not exist.
        private: create a private repository.
        revision: the branch to commit to, which is created if it does not exist; by default `main`.
        dry_run: make no request; return what would be uploaded.

    Raises:
        FileNotFoundError: a file of the checkpoint is missing.
        ValueError: the tokenizer does not belong to the model.
        PermissionError: `private` is set, but the repository exists and is public.
        huggingface_hub.errors.HfHubHTTPError: the Hub refuses a request.
    """
    folder = Path(locate(folder))
    names = sorted(path.name for path in folder.iterdir())
    needed = (["config.json"], ["tokenizer_config.json"], WEIGHTS)
    if missing := [one[0] for one in needed if not list(filter_repo_objects(names, allow_patterns=one))]:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}: it is no checkpoint, but holds {names}.")
    config = ElmoConfig.from_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    require_tokenizer(config, tokenizer)
    with TemporaryDirectory() as staging:
        for name in filter_repo_objects(names, allow_patterns=WEIGHTS + TOKENIZER + OTHERS):
            shutil.copyfile(folder / name, Path(staging, name))
        if not any(folder.glob("*_elmo.py")):
            add_remote_code(staging)
        file = Path(staging, "README.md")
        fields = {"config": config, "word_splitting": tokenizer.word_splitting}
        card = ModelCard.load(file) if file.is_file() else make_card(repository.split("/")[-1], **fields)
        # The repository's name in its examples, in place of the folder's name.
        title = re.match(r"\s*# (.+)", card.text)
        content = card.content.replace(f'"{title[1].strip()}"', f'"{repository}"') if title else card.content
        file.write_text(content, encoding="utf-8")
        files = {path.name: path.stat().st_size for path in sorted(Path(staging).iterdir())}
        left_out = tuple(name for name in names if name not in files)
        if dry_run:
            return Upload(files, left_out)
        api = HfApi(library_name="hf_elmo", library_version=VERSION)
        api.create_repo(repository, private=private or None, exist_ok=True)
        if private and not api.repo_info(repository).private:
            raise PermissionError(f"private is set, but {repository} exists and is public: choose another name.")
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        what = {"repo_id": repository, "folder_path": staging, "delete_patterns": WEIGHTS + TOKENIZER}
        commit = api.upload_folder(**what, revision=revision, commit_message=f"Upload with hf_elmo {VERSION}")
    return Upload(files, left_out, commit.commit_url)


def add_remote_code(folder: str | Path, *class_names: str) -> None:
    """Write the code of hf_elmo into a checkpoint that has no code or older code: a folder with `config.json`,
    `tokenizer_config.json` or both. With `class_names`, such as `"ElmoForSequenceClassification"`, a checkpoint of a
    biLM also gets the code of these classes, so that they can be fine-tuned where hf_elmo is not installed.

    Raises:
        AttributeError: a class, or the architecture that `config.json` names, is not a class of hf_elmo.
    """
    folder = Path(folder)
    if (file := folder / "config.json").is_file():
        config = json.loads(file.read_text(encoding="utf-8"))
        kinds = [getattr(names, name) for name in (*config.get("architectures", ()), *class_names)]
        config["hf_elmo_version"] = VERSION
        for kind in kinds:
            config["custom_pipelines"] = config.get("custom_pipelines", {}) | kind.custom_pipelines
        _write(file, config, ElmoConfig, names.ElmoModel, *kinds)
    if (file := folder / "tokenizer_config.json").is_file():
        _write(file, json.loads(file.read_text(encoding="utf-8")), names.ElmoTokenizer)


def _write(file: Path, settings: dict, *kinds: type) -> None:
    """Writes settings with the `auto_map` of classes, and their source files beside them."""
    settings["auto_map"] = {}
    for kind in kinds:
        custom_object_save(kind.__new__(kind), file.parent, settings)  # of an object, only the class is read
    file.write_text(json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
