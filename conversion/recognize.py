"""What was given to be converted, told by the names of its files; of weights no more than the beginning is read."""

import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from .archives import inner_folder
from .published import all_names

SUPPORTED = (
    "supported are AllenNLP's options.json with weights.hdf5 and its model.tar.gz, a folder or zip of simple_elmo or "
    "ELMoForManyLangs, a TensorFlow checkpoint of bilm-tf, and TF-Hub's SavedModel"
)
SHIPPED = files("hf_elmo") / "checkpoints"  # `shipped.CHECKPOINTS`, of a module that imports this one
TF_HUB = re.compile(r"(tfhub\.dev|kaggle\.com)/.*elmo|^google/elmo(/|$)")
CHECKPOINT_FILE = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")  # of TensorFlow
OPTIONS, WEIGHTS = "*options*.json", "*.hdf5"  # AllenNLP's two files
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
BEGINNING = 1 << 20  # bytes of a file of weights in which the names of its tensors are looked for
NAMES_SHOWN = 5


class Recognized(NamedTuple):
    """
    What a path is.

    Attributes:
        kind: `"allennlp"` (its options file), `"bilm-tf"`, `"published"` (a published model's name) and the keys of
            `CONVERTERS` can be converted; `"missing"` is a path that does not exist; anything else cannot be converted.
        message: a sentence that says what it is and what to do with it, where it cannot be converted.
        files: of a `"saved-model"` its folder, if not given.
    """

    kind: str
    message: str = ""
    files: tuple[Path, ...] = ()

    @property
    def error(self) -> Exception:
        """The message as an exception, FileNotFoundError or ValueError."""
        return (FileNotFoundError if self.kind == "missing" else ValueError)(self.message)


class Kind(NamedTuple):
    """A format that is known by its files: what it is, and the test of their names."""

    what: str
    matches: Callable[[set[str]], bool]


# The first that matches. The names are those of a folder's files, or of all files in an archive, without their folders.
FORMATS = {
    "elmoformanylangs": Kind("a model of ELMoForManyLangs", {"encoder.pkl", "token_embedder.pkl"}.issubset),
    "saved-model": Kind("a TensorFlow SavedModel, as TF-Hub's ELMo is", {"saved_model.pb"}.issubset),
    "allennlp-archive": Kind("a task's model of AllenNLP", {"weights.th", "config.json"}.issubset),
    "bilm-tf": Kind("a training of bilm-tf", lambda names: any(name.endswith(".index") for name in names)),
    "repository": Kind("AllenNLP's files, or simple_elmo's", lambda names: bool(_matching(names, WEIGHTS))),
}


def recognize(path: str | Path) -> Recognized:
    """
    What a path is: a format that can be converted, or one of which is known why it cannot.

    Args:
        path: a file, a folder, the prefix of a TensorFlow checkpoint's files, where there is none of that name the name
            of a published model, or what a user takes for one of these: an address of TF-Hub, another name.
    """
    given, path = str(path), Path(path)
    if path.is_dir():
        return _folder(inner_folder(path))
    if path.is_file():
        return _file(path)
    if Path(f"{path}.index").is_file():
        return Recognized("bilm-tf")
    if TF_HUB.search(given):
        return Recognized("tf-hub", f"{given} is an ELMo of TF-Hub: download its archive there, and give that.")
    if given in all_names():
        return Recognized("published")
    if path.name == given and (SHIPPED / given / "config.json").is_file():
        return Recognized("shipped", f"{given} ships with hf_elmo and needs no conversion: load it by its name.")
    if path.name == given and not path.suffix:
        where = "hf-elmo convert --list shows the names"
        return Recognized("missing", f"{given} does not exist, and no published model has that name: {where}.")
    return Recognized("missing", f"{given} does not exist.")


def _folder(path: Path) -> Recognized:
    names = {file.name for file in path.iterdir()}
    if path.name == "variables" and (path.parent / "saved_model.pb").is_file():
        return Recognized("saved-model", files=(path.parent,))
    kind = _kind(names)
    if kind == "bilm-tf":
        return Recognized(kind)
    if kind == "repository" and not _is_one_model(names):
        return Recognized("ambiguous", f"{path} holds {_listed(names)}: name the options and the weights, two files.")
    if kind is not None:
        return Recognized(kind)
    if "config.json" in names:
        return _checkpoint(path)
    return Recognized("unknown", f"{path} holds no model that is known, but {_listed(names)}; {SUPPORTED}.")


def _file(path: Path) -> Recognized:
    if CHECKPOINT_FILE.search(path.name):
        return Recognized("bilm-tf")
    if path.suffix == ".json":
        return _checkpoint(path.parent) if path.name == "config.json" else Recognized("allennlp")
    if _beginning(path).startswith(HDF5_SIGNATURE):
        return Recognized("allennlp-weights", f"{path} holds weights alone: give their options.json before them.")
    if path.name == "saved_model.pb":
        return Recognized("saved-model", files=(path.parent,))
    names = _archived(path)
    if names is None:
        return Recognized("unknown", f"{path} is no file of a model that is known; {SUPPORTED}.")
    kind = _kind(names)
    if kind == "bilm-tf":
        return Recognized("archive", f"{path} is an archive of {FORMATS[kind].what}: unpack it, and give the folder.")
    if kind == "repository" and not _is_one_model(names):
        what = f"an archive of {_listed(names)}"
        return Recognized("ambiguous", f"{path} is {what}: unpack it, and name the options and the weights, two files.")
    if kind is not None:
        return Recognized(kind)
    return Recognized(
        "unknown", f"{path} is an archive of no model that is known, but of {_listed(names)}; {SUPPORTED}."
    )


def _kind(names: set[str]) -> str | None:
    return next((name for name, kind in FORMATS.items() if kind.matches(names)), None)


def _is_one_model(names: set[str]) -> bool:
    return len(_matching(names, OPTIONS)) == len(_matching(names, WEIGHTS)) == 1


def _matching(names: set[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def _checkpoint(path: Path) -> Recognized:
    """A folder with a config.json: of transformers, ours included, or of CharacterBERT."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        model_type = config.get("model_type")
    except (ValueError, AttributeError):
        return Recognized("unknown", f"{path / 'config.json'} is not a model's configuration; {SUPPORTED}.")
    if model_type == "elmo":
        return Recognized("converted", f"{path} is converted already: AutoModel.from_pretrained loads it as it is.")
    weights = (path / name for name in ("pytorch_model.bin", "model.safetensors"))
    if "character" in str(model_type) or any(b"char_conv_0" in _beginning(file) for file in weights):
        what = "a CharacterBERT, a transformer behind ELMo's character CNN and no ELMo"
        return Recognized("character-bert", f"{path} is {what}: it is not converted; {SUPPORTED}.")
    what = f"of model type {model_type}" if model_type else "that names no model type"
    return Recognized("other-checkpoint", f"{path} is a checkpoint {what} and no ELMo; {SUPPORTED}.")


def _beginning(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(BEGINNING)


def _archived(path: Path) -> set[str] | None:
    """The names of the files in a zip or tar archive, without their folders; None where it is neither."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return {name.rpartition("/")[2] for name in archive.namelist()} - {""}
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            return {member.name.rpartition("/")[2] for member in archive if member.isfile()}
    return None


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    rest = f" and {len(shown) - NAMES_SHOWN} more" if len(shown) > NAMES_SHOWN else ""
    return (", ".join(shown[:NAMES_SHOWN]) + rest) or "nothing"
