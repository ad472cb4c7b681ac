"""Loading a model by its name, and the model that ships."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import hf_elmo
from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, loading

from .conftest import TINY, random_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random_model(ElmoConfig(**TINY, vocab_size=9), ElmoForPreTraining).save_pretrained(tmp_path / "elmo")
    ElmoTokenizer(word_splitting="lm1b").save_pretrained(tmp_path / "elmo")
    return tmp_path / "elmo"


@pytest.mark.parametrize("language_model", [False, True])
def test_a_folder(folder: Path, language_model: bool) -> None:
    model, tokenizer = hf_elmo.load_model(folder, language_model=language_model)
    assert isinstance(model, ElmoForPreTraining if language_model else ElmoModel)
    assert not model.training
    assert tokenizer.word_splitting == "lm1b"


def test_the_default_is_the_model_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = hf_elmo.load_default(language_model=True)
    assert model.dtype == torch.float32
    assert len(tokenizer.vocabulary) == model.config.vocab_size
    monkeypatch.chdir(tmp_path)
    assert loading.locate("elmo-compact-en") == str(loading.FOLDER)
    Path("elmo-compact-en").mkdir()  # a folder of that name comes first
    assert loading.locate("elmo-compact-en") == "elmo-compact-en"


def test_the_model_that_ships_by_the_auto_classes() -> None:
    folder = hf_elmo.path("elmo-compact-en")
    model, tokenizer = AutoModel.from_pretrained(folder, trust_remote_code=True), AutoTokenizer.from_pretrained(folder)
    default = hf_elmo.load_default()[0]
    batch = tokenizer(["He sat on the river bank."], return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(model(**batch).last_hidden_state, default(**batch).last_hidden_state)


@pytest.mark.parametrize(("trusted", "error"), [(False, "ValueError"), (True, "OSError")])
def test_without_hf_elmo_nothing_loads_it(trusted: bool, error: str) -> None:
    load = f"from_pretrained({hf_elmo.path()!r}, trust_remote_code={trusted})"
    command = [sys.executable, "-c", f"from transformers import AutoTokenizer; AutoTokenizer.{load}"]
    assert f"\n{error}: " in subprocess.run(command, capture_output=True, text=True, timeout=120).stderr


def test_a_checkpoint_without_softmax_is_no_language_model(tmp_path: Path) -> None:
    random_model(ElmoConfig(**TINY)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="vocab_size"):
        hf_elmo.load_model(tmp_path, language_model=True)


def test_a_checkpoint_without_tokenizer_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    random_model(ElmoConfig(**TINY)).save_pretrained(tmp_path)
    hf_elmo.load_model(tmp_path)
    assert "word_splitting" in caplog.text


def test_a_name_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        hf_elmo.load_model(tmp_path / "nowhere")


def test_it_loads_without_network(tmp_path: Path) -> None:
    code = "import socket; socket.socket.connect = None; import hf_elmo; hf_elmo.load_default()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)
