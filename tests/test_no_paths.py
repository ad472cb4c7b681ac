"""What is written for others says nothing of the machine: no path in a configuration, a tokenizer or a record."""

import os
from pathlib import Path

from transformers import AutoModel, AutoTokenizer

from hf_elmo import pretrain
from hf_elmo.conversion import convert

from .allennlp_files import write_files
from .factories import TINY, small_checkpoint, write_lines
from .manylangs_files import make_settings, write_model


def require_no_path(folder: Path, parent: Path) -> None:
    files = [file for file in folder.iterdir() if file.is_file()]
    assert {"config.json", "tokenizer_config.json", "tokenizer.json"} <= {file.name for file in files}
    for name in map(str, (parent, Path.home(), Path(__file__).parent.parent, os.getcwd())):
        assert len(name) > 3, "the test would prove too little"
        assert [file.name for file in files if name.encode() in file.read_bytes()] == []


def test_of_a_conversion_and_of_what_is_saved_again(tmp_path: Path) -> None:
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


def test_of_a_training(tmp_path: Path) -> None:
    text, held_out = write_lines(tmp_path / "text", ["A word is a word ."] * 60), write_lines(tmp_path / "other", ["A"])
    settings = {"max_steps": 2, "batch_size": 2, "window": 5, "report_to": []}
    pretrain(tmp_path / "new", text, config=TINY, held_out=held_out, **settings)
    pretrain(tmp_path / "adapted", text, init=small_checkpoint(tmp_path / "base"), **settings)
    for name in ("new", "adapted"):
        require_no_path(tmp_path / name, tmp_path)
