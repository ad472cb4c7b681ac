"""What the tests of the comparisons share."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers.utils import logging

from examples.variants import GLOVE


@pytest.fixture(autouse=True)
def progress_bars() -> Iterator[None]:
    """Scripts turn progress bars off: they are as before after each test."""
    bar, bars = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    yield
    (logging.enable_progress_bar if bar else logging.disable_progress_bar)()
    (disable_progress_bars if bars else enable_progress_bars)()


@pytest.fixture
def folder(model, tokenizer, tmp_path: Path) -> str:
    """A saved random model."""
    model.save_pretrained(tmp_path / "elmo")
    tokenizer.save_pretrained(tmp_path / "elmo")
    return str(tmp_path / "elmo")


@pytest.fixture
def data_with_vectors(tmp_path: Path) -> Callable[[Sequence[str]], Path]:
    """Makes a folder of data with vectors of the given words in it, and nothing else."""

    def make(words: Sequence[str]) -> Path:
        vectors = np.random.default_rng(4).normal(size=(len(words), 50)).round(3).tolist()
        lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(words, vectors, strict=True)]
        (tmp_path / "data" / GLOVE).parent.mkdir(parents=True)
        (tmp_path / "data" / GLOVE).write_bytes(gzip.compress("".join(lines).encode()))
        return tmp_path / "data"

    return make
