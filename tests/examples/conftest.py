"""Small models and data for the scripts."""

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path

import datasets
import numpy as np
import pytest
from transformers.utils import logging

from examples import data
from tests.language_models import small_language_model, small_tokenizer

WORDS = ["(", ".", "anna", "met", "bob", "in", "rome", "he", "sang", "well", "team", "wins", "what", "who"]


def write(path: Path, text: str) -> None:
    """A file, compressed if its name ends in `.gz`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture(autouse=True)
def progress_bars() -> Iterator[None]:
    """Scripts turn progress bars off: restores them after each test."""
    bar, bars = logging.is_progress_bar_enabled(), datasets.are_progress_bars_disabled()
    yield
    (logging.enable_progress_bar if bar else logging.disable_progress_bar)()
    (datasets.disable_progress_bars if bars else datasets.enable_progress_bars)()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A saved random model with its language models."""
    tokenizer = small_tokenizer(tmp_path)
    small_language_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder stands for the Hub: there `load_dataset` finds data sets by their names, before it asks the
    Hub. Downloads are files in it, of which the word vectors exist."""
    vectors = np.random.default_rng(4).normal(size=(len(WORDS), 50)).round(3).tolist()
    text = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, vectors, strict=True))
    with zipfile.ZipFile(tmp_path / "glove.zip", "w") as archive:
        archive.writestr("glove.6B.50d.txt", text)
    monkeypatch.chdir(tmp_path)
    files = {
        "GLOVE": "glove.zip",
        "UNER": "{}.iob2",
        "PROPBANK": "propbank.tar.gz",
        "EWT": "{}.conllu",
        "NSMC": "{}.txt",
    }
    for name, path in files.items():
        monkeypatch.setattr(data, name, str(tmp_path / path))
    for name in ("HF_DATASETS_CACHE", "DOWNLOADED_DATASETS_PATH", "EXTRACTED_DATASETS_PATH"):
        monkeypatch.setattr(datasets.config, name, tmp_path / "cache")
    return tmp_path
