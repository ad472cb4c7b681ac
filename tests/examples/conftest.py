"""Small models and data for the scripts."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import datasets
import pytest
from transformers.utils import logging

from tests.factories import save_checkpoint
from tests.language_models import small_language_model, small_tokenizer

WORDS = ["(", ".", "anna", "met", "bob", "in", "rome", "he", "sang", "well", "team", "wins", "what", "who"]


def write(path: Path, text: str) -> None:
    """A file, compressed if its name ends in `.gz`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture(autouse=True)
def progress_bars() -> Iterator[None]:
    """Scripts turn progress bars off: turns them on again after each test."""
    yield
    logging.enable_progress_bar()
    datasets.enable_progress_bars()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A saved random model with its language models."""
    tokenizer = small_tokenizer(tmp_path)
    return str(save_checkpoint(tmp_path / "model", small_language_model(tokenizer), tokenizer))
