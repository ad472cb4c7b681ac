"""`hf-elmo convert` and `hf-elmo export`."""

import hashlib
from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.conversion import checkpoint, load
from hf_elmo_cli import main

from ..allennlp_files import make_arrays, make_options, write_files


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, Path]:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_there_and_back(source: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, back = tmp_path / "model", tmp_path / "back"
    assert run("convert", *source, out, "--dtype", "bfloat16", "--word-splitting", "whitespace") == 0
    assert capsys.readouterr().out == f"{out}: every tensor equals its source; its README.md shows how to use it\n"
    model = ElmoModel.from_pretrained(out, dtype="auto")
    assert model.dtype == torch.bfloat16
    assert ElmoTokenizer.from_pretrained(out).word_splitting == "whitespace"
    assert run("export", out, back) == 0
    assert capsys.readouterr().out == f"{back}: every tensor equals the model's\n"
    again = load(back / "options.json", back / "weights.hdf5", "bfloat16").state_dict()
    assert all(torch.equal(again[key], tensor) for key, tensor in model.state_dict().items())


@pytest.mark.usefixtures("any_sizes")
def test_published_model(source: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(checkpoint, "download_published", lambda *a: asked.append(a) or source)
    for number, name in enumerate((["pubmed"], ["--model", "pubmed"])):
        assert run("convert", *name, tmp_path / f"model{number}", "--cache-dir", "kept") == 0
        assert ElmoModel.from_pretrained(tmp_path / f"model{number}").config.cell_size == 11
    assert asked == [("pubmed", "kept")] * 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--cache-dir", "kept"], "--cache-dir goes with a download, but files are given"),
        (["--model", "pubmed", "--cache-dir", "kept"], "--cache-dir goes with a download, but files are given"),
        (["--elmo-options", "options.json"], "--elmo-options goes with a model.tar.gz"),
        (["--use", "a"], "--use goes with a model.tar.gz"),
        (["--model", "pubmed", "--use", "a"], "--use goes with a model.tar.gz"),
        (["--model", "pubmed", "--elmo-options", "options.json"], "--elmo-options goes with a model.tar.gz"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_without_effect_are_refused(
    source: tuple[Path, Path], tmp_path: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("convert", *source, tmp_path / "model", *options)
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "paths", [["a", "b"], ["--model", "small", "a", "b", "c", "d"]], ids=["two files", "model and files"]
)
def test_wrong_number_of_paths(paths: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("convert", *paths)
    assert stopped.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_errors_are_one_line_and_a_status(
    source: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source[1].write_bytes(b"<html>")
    assert run("convert", *source, tmp_path / "model") == 1
    assert capsys.readouterr().err.startswith(f"hf-elmo: error: {source[1]} is not an HDF5 file")
    assert not (tmp_path / "model").exists()


def test_digest_of_the_weights(source: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", *source, tmp_path / "model", "--sha256", "0" * 64) == 1
    assert "has the SHA-256" in capsys.readouterr().err
    digest = hashlib.sha256(source[1].read_bytes()).hexdigest()
    assert run("convert", *source, tmp_path / "model", "--sha256", digest) == 0
