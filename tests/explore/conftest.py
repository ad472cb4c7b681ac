"""Two checkpoints to look into, without and with softmax and vocabulary."""

from pathlib import Path

import pytest

from hf_elmo import ElmoForPreTraining
from tests.factories import save_checkpoint, small_checkpoint, small_model, whitespace_tokenizer, write_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_checkpoint(tmp_path / "model")


@pytest.fixture
def language_model(tmp_path: Path) -> Path:
    file = write_lines(tmp_path / "vocab.txt", ["<S>", "</S>", "<UNK>", "the", "bank", "<b>river</b>", "of"])
    model, tokenizer = small_model(ElmoForPreTraining, vocab_size=7), whitespace_tokenizer(vocab_file=str(file))
    return save_checkpoint(tmp_path / "lm", model, tokenizer)
