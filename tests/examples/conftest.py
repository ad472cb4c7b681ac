"""Small models and data for the scripts."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers.utils import logging

from examples.comparison import GLOVE
from tests.language_models import small_language_model, small_tokenizer

WORDS = ["(", ".", "anna", "met", "bob", "in", "rome", "he", "sang", "well", "team", "wins", "what", "who"]


def write(path: Path, text: str) -> None:
    """A file, compressed if its name ends in `.gz`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture(autouse=True)
def progress_bars() -> Iterator[None]:
    """Scripts turn progress bars off: restores them after each test."""
    bar, bars = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    yield
    (logging.enable_progress_bar if bar else logging.disable_progress_bar)()
    (disable_progress_bars if bars else enable_progress_bars)()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A saved random model with its language models."""
    tokenizer = small_tokenizer(tmp_path)
    small_language_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data with word vectors."""
    vectors = np.random.default_rng(4).normal(size=(len(WORDS), 50)).round(3).tolist()
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(WORDS, vectors, strict=True)]
    write(tmp_path / "data" / GLOVE, "".join(lines))
    return tmp_path / "data"
