"""What `hf-elmo convert` says of what it is given: small files made here, and nothing is ever half converted."""

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoModel
from hf_elmo.conversion import CONVERTERS, convert, recognize
from hf_elmo_cli import main

from ..allennlp_files import make_arrays, make_options, write_files

MANY_LANGS = ("config.json", "char.dic", "word.dic", "encoder.pkl", "token_embedder.pkl")
BILM_TF = ("options.json", "checkpoint", "model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001")


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}")
    return folder


def zipped(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"{}")
    return path


def tarred(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return path


def checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def character_bert(folder: Path, file: str) -> Path:
    """As its authors published it: a BERT's config.json without a model type, the character CNN in the weights."""
    checkpoint(folder, hidden_size=768)
    key = "bert.embeddings.word_embeddings.char_conv_0.weight"
    if file == "model.safetensors":
        header = json.dumps({key: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
        (folder / file).write_bytes(struct.pack("<Q", len(header)) + header)
    else:
        torch.save({key: torch.zeros(3)}, folder / file)
    return folder


KNOWN: dict[str, tuple[Callable[[Path], object], str]] = {
    "ELMoForManyLangs": (lambda p: touch(p / "x", *MANY_LANGS), "elmoformanylangs"),
    "its zip": (lambda p: zipped(p / "144.zip", *MANY_LANGS), "elmoformanylangs"),
    "its zip, in a folder": (
        lambda p: zipped(p / "en.zip", "en/", *(f"en/{name}" for name in MANY_LANGS)),
        "elmoformanylangs",
    ),
    "SavedModel": (lambda p: touch(p / "x", "saved_model.pb", "variables/variables.index"), "saved-model"),
    "its file": (lambda p: touch(p, "saved_model.pb") / "saved_model.pb", "saved-model"),
    "its variables": (
        lambda p: touch(p, "saved_model.pb", "variables/variables.index") / "variables",
        "saved-model",
    ),
    "SavedModel, tar.gz": (
        lambda p: tarred(p / "3.tar.gz", "./saved_model.pb", "./variables/variables.index"),
        "saved-model",
    ),
    "AllenNLP archive": (
        lambda p: tarred(p / "model.tar.gz", "config.json", "weights.th", "vocabulary/labels.txt"),
        "allennlp-archive",
    ),
    "AllenNLP archive, unpacked": (lambda p: touch(p / "x", "config.json", "weights.th"), "allennlp-archive"),
    "AllenNLP zip": (lambda p: zipped(p / "x.zip", "a/options.json", "a/weights.hdf5"), "repository"),
    "simple_elmo": (lambda p: touch(p / "x", "model.hdf5", "options.json", "vocab.txt"), "repository"),
    "simple_elmo zip": (lambda p: zipped(p / "x.zip", "model.hdf5", "options.json", "vocab.txt"), "repository"),
    "ELMoForManyLangs, in a folder": (
        lambda p: touch(p / "x", *(f"161/{name}" for name in MANY_LANGS)),
        "elmoformanylangs",
    ),
    "simple_elmo, two folders down": (lambda p: touch(p / "x", "a/b/model.hdf5", "a/b/options.json"), "repository"),
}


@pytest.mark.parametrize(("make", "kind"), KNOWN.values(), ids=KNOWN)
def test_what_has_a_converter(make: Callable[[Path], object], kind: str, tmp_path: Path) -> None:
    found = recognize(make(tmp_path))
    assert (found.kind, found.message) == (kind, "")
    assert kind in CONVERTERS


REFUSED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "TF-Hub address": (lambda p: "https://tfhub.dev/google/elmo/3", "tf-hub", "an ELMo of TF-Hub"),
    "Kaggle address": (
        lambda p: "https://www.kaggle.com/models/google/elmo/tensorFlow1/elmo/3",
        "tf-hub",
        "an ELMo of TF-Hub",
    ),
    "TF-Hub handle": (lambda p: "google/elmo/2", "tf-hub", "an ELMo of TF-Hub"),
    "a model that ships": (lambda p: "elmo-mini-en", "shipped", "ships with hf_elmo and needs no conversion"),
    "bilm-tf zip": (lambda p: zipped(p / "x.zip", *BILM_TF), "archive", "a training of bilm-tf: unpack it"),
    "another zip": (lambda p: zipped(p / "x.zip", "b.txt", "a.txt"), "unknown", "a.txt, b.txt"),
    "converted": (lambda p: checkpoint(p / "x", model_type="elmo"), "converted", "converted already"),
    "converted, its config.json": (
        lambda p: checkpoint(p / "x", model_type="elmo") / "config.json",
        "converted",
        "converted already",
    ),
    "CharacterBERT": (
        lambda p: checkpoint(p / "x", model_type="character_bert"),
        "character-bert",
        "a CharacterBERT",
    ),
    "CharacterBERT, torch": (lambda p: character_bert(p / "x", "pytorch_model.bin"), "character-bert", "CharacterBERT"),
    "CharacterBERT, safetensors": (
        lambda p: character_bert(p / "x", "model.safetensors"),
        "character-bert",
        "CharacterBERT",
    ),
    "BERT": (lambda p: checkpoint(p / "x", model_type="bert"), "other-checkpoint", "of model type bert"),
    "a list as config.json": (
        lambda p: touch(p / "x", "config.json") / "config.json" and _write(p / "x" / "config.json", "[1]").parent,
        "unknown",
        "is not a model's configuration",
    ),
    "weights alone": (
        lambda p: _write(p / "weights.hdf5", b"\x89HDF\r\n\x1a\n"),
        "allennlp-weights",
        "holds weights alone",
    ),
    "two models' files": (
        lambda p: touch(p / "x", "a_options.json", "b_options.json", "a.hdf5", "b.hdf5"),
        "ambiguous",
        "name the options and the weights",
    ),
    "two models' files, zip": (
        lambda p: zipped(p / "x.zip", "a_options.json", "b_options.json", "a.hdf5", "b.hdf5"),
        "ambiguous",
        "unpack it, and name the options and the weights",
    ),
    "weights without options": (lambda p: touch(p / "x", "a.hdf5"), "ambiguous", "name the options and the weights"),
    "another folder": (
        lambda p: touch(p / "x", *(f"{letter}.txt" for letter in "gfedcba")),
        "unknown",
        "a.txt, b.txt, c.txt, d.txt, e.txt and 2 more",
    ),
    "empty folder": (lambda p: touch(p / "x", "y/z") / "y/e" and _empty(p / "empty"), "unknown", "but nothing"),
    "another file": (lambda p: _write(p / "x.txt", "text"), "unknown", "no file of a model that is known"),
}


def _write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _empty(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(("make", "kind", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_converted_is_named(
    make: Callable[[Path], object], kind: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = make(tmp_path)
    found = recognize(given)
    assert found.kind == kind
    assert says in found.message
    before = sorted(tmp_path.rglob("*"))
    assert main(["convert", str(given), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error == f"hf-elmo: error: {found.message}\n"
    assert error.count(". ") == 0  # one sentence
    assert str(given).removesuffix("/config.json") in error
    assert sorted(tmp_path.rglob("*")) == before


def test_two_folders_in_a_folder_are_named(tmp_path: Path) -> None:
    names = [f"{number}/{name}" for number in (160, 161) for name in MANY_LANGS]
    found = recognize(touch(tmp_path / "x", *names))
    assert (found.kind, "but 160, 161;" in found.message) == ("unknown", True)


@pytest.mark.parametrize(
    "given", [".", "x", "x/model.ckpt-7", "x/model.ckpt-7.index", "x/model.ckpt-7.data-00000-of-00001"]
)
def test_a_training_of_bilm_tf(given: str, tmp_path: Path) -> None:
    touch(tmp_path / "x", *BILM_TF)
    assert recognize(tmp_path / given).kind == "bilm-tf"


def test_a_folder_of_allennlps_two_files_is_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = make_options()
    files = write_files(tmp_path / "source", options, make_arrays(options))
    assert recognize(tmp_path / "source") == ("repository", "", ())
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "source", "out", "--dtype", "float16"]) == 0
    assert capsys.readouterr().out == "out: every tensor equals its source; its README.md shows how to use it\n"
    expected = ElmoModel.from_pretrained(convert(*files, tmp_path / "by-files", dtype="float16"), dtype="auto")
    written = ElmoModel.from_pretrained("out", dtype="auto").state_dict()
    assert all(torch.equal(written[key], tensor) for key, tensor in expected.state_dict().items())


@pytest.mark.parametrize("name", ["small", "manylangs-pt"])
def test_a_published_models_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert recognize(name) == ("published", "", ())
    touch(tmp_path / name, "saved_model.pb")
    assert recognize(name).kind == "saved-model"  # what is there goes first


def test_a_name_that_no_published_model_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert recognize("manylangs-xx").kind == "missing"
    with pytest.raises(SystemExit) as stopped:
        main(["convert", "manylangs-xx", "out"])
    assert stopped.value.code == 2
    assert "no published model has that name: hf-elmo convert --list shows the names" in capsys.readouterr().err


def test_what_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"  # with a folder: it cannot be meant as a name
    with pytest.raises(FileNotFoundError, match="missing does not exist"):
        raise recognize(missing).error
    assert main(["convert", str(missing), str(tmp_path / "weights.hdf5"), str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == f"hf-elmo: error: {missing} does not exist.\n"
    with pytest.raises(SystemExit) as stopped:
        main(["convert", str(missing), str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert f"{missing} does not exist" in capsys.readouterr().err
