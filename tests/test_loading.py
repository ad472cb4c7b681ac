"""Checkpoints: loading, the model that ships, fingerprints, and that no file names a path of the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import hf_elmo
from hf_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer, pretrain
from hf_elmo.checkpoints import loading
from hf_elmo.checkpoints.fingerprints import model_fingerprint, tokenizer_fingerprint
from hf_elmo.conversion import convert

from .allennlp_files import write_files
from .factories import TINY, save_checkpoint, small_checkpoint, small_model, whitespace_tokenizer, write_lines
from .manylangs_files import make_settings, write_model


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
    batch = tokenizer(["He sat on the river bank."], return_tensors="pt")
    with torch.no_grad():
        vectors = [AutoModel.from_pretrained(hf_elmo.path())(**batch).last_hidden_state for _ in range(2)]
        assert torch.equal(*vectors)
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


def test_fingerprints_change_with_what_decides_a_vector(model: ElmoModel, tmp_path: Path) -> None:
    before = model_fingerprint(model)
    save_checkpoint(tmp_path / "elmo", model)
    tagger = ElmoForTokenClassification.from_pretrained(tmp_path / "elmo", hidden_dropout=0.5, num_labels=3)
    tagger.config.transformers_version, tagger.config.id2label = "5.0.0", {0: "A", 1: "B", 2: "C"}
    assert model_fingerprint(tagger.elmo) == before  # neither paths, versions nor heads decide one
    assert model_fingerprint(tagger) != before
    half = ElmoModel.from_pretrained(tmp_path / "elmo", dtype="bfloat16")
    assert model_fingerprint(half) == model_fingerprint(model, torch.bfloat16) != before
    model.config.cell_clip += 1
    found = [before, model_fingerprint(model)]
    model.bilm.forward_layers[0].bias.data[0] += 1
    assert model_fingerprint(model) not in found
    assert len(set(found)) == 2
    tokenizer = whitespace_tokenizer()
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["a text", "b"], padding=True, truncation=True, max_length=3)
    assert tokenizer_fingerprint(tokenizer) == before
    assert before not in map(tokenizer_fingerprint, (ElmoTokenizer(), whitespace_tokenizer(max_word_length=9)))


def require_no_path(folder: Path, parent: Path) -> None:
    files = [file for file in folder.iterdir() if file.is_file()]
    assert {"config.json", "tokenizer_config.json", "tokenizer.json"} <= {file.name for file in files}
    for name in map(str, (parent, Path.home(), Path(__file__).parent.parent, os.getcwd())):
        assert len(name) > 3, "the test would prove too little"
        assert [file.name for file in files if name.encode() in file.read_bytes()] == []


def test_no_path_in_a_conversion_and_in_what_is_saved_again(tmp_path: Path) -> None:
    source = write_files(tmp_path / "source")
    folder = convert(*source, tmp_path / "allennlp")
    require_no_path(folder, tmp_path)
    for auto in (AutoModel, AutoTokenizer):
        auto.from_pretrained(folder, cache_dir=tmp_path / "cache").save_pretrained(tmp_path / "second")
    require_no_path(tmp_path / "second", tmp_path)
    write_lines(source[0].parent / "vocab.txt", ["<S>", "</S>", "<UNK>", "word"])
    require_no_path(convert(source[0].parent, tmp_path / "repository"), tmp_path)
    manylangs = write_model(tmp_path / "manylangs-source", make_settings(), [["A", "word"]])
    require_no_path(convert(manylangs, tmp_path / "manylangs"), tmp_path)


def test_no_path_in_a_training(tmp_path: Path) -> None:
    text, held_out = write_lines(tmp_path / "text", ["A word is a word ."] * 60), write_lines(tmp_path / "other", ["A"])
    settings = {"max_steps": 2, "batch_size": 2, "window": 5, "report_to": []}
    pretrain(tmp_path / "new", text, config=TINY, held_out=held_out, **settings)
    pretrain(tmp_path / "adapted", text, init=small_checkpoint(tmp_path / "base"), **settings)
    for name in ("new", "adapted"):
        require_no_path(tmp_path / name, tmp_path)
