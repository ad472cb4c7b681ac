"""Two checkpoints to look into."""

from pathlib import Path

import pytest

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from tests.conftest import TINY, random_model

VOCABULARY = ["<S>", "</S>", "<UNK>", "the", "bank", "<b>river</b>", "of"]


@pytest.fixture
def folder(model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path) -> Path:
    """A checkpoint without softmax."""
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def language_model(tmp_path: Path) -> Path:
    """A checkpoint with softmax and vocabulary."""
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    config = ElmoConfig(**TINY, vocab_size=len(VOCABULARY))
    random_model(config, ElmoForPreTraining).save_pretrained(tmp_path / "lm")
    ElmoTokenizer("whitespace", vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "lm")
    return tmp_path / "lm"
