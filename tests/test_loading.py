"""Loading a model by its name, and the model that ships."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hf_elmo
from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from hf_elmo.checkpoints import loading

from .factories import save_checkpoint, small_model


@pytest.mark.parametrize("language_model", [False, True])
def test_a_folder(tmp_path: Path, language_model: bool) -> None:
    save_checkpoint(tmp_path, small_model(ElmoForPreTraining, vocab_size=9), ElmoTokenizer("lm1b"))
    model, tokenizer = hf_elmo.load_model(tmp_path, language_model=language_model)
    assert isinstance(model, ElmoForPreTraining if language_model else ElmoModel)
    assert not model.training
    assert tokenizer.word_splitting == "lm1b"


def test_the_default_is_the_model_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = hf_elmo.load_model(language_model=True)
    assert model.dtype == torch.float32
    assert len(tokenizer.vocabulary) == model.config.vocab_size
    monkeypatch.chdir(tmp_path)
    assert loading.locate("elmo-compact-en") == str(loading.FOLDER)
    Path("elmo-compact-en").mkdir()  # a folder of that name comes first
    assert loading.locate("elmo-compact-en") == "elmo-compact-en"


@pytest.mark.slow
def test_it_loads_without_network(tmp_path: Path) -> None:
    code = "import socket; socket.socket.connect = None; import hf_elmo; hf_elmo.load_model()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=240)


def test_what_is_no_whole_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    small_model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="vocab_size"):
        hf_elmo.load_model(tmp_path, language_model=True)
    hf_elmo.load_model(tmp_path)
    assert "word_splitting" in caplog.text  # there is no tokenizer
    with pytest.raises(OSError):
        hf_elmo.load_model(tmp_path / "nowhere")
