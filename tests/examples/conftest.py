"""Small models and data for the scripts."""

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path

import datasets
import pytest
from transformers.utils import logging

from examples import data
from tests.factories import save_checkpoint
from tests.language_models import small_language_model, small_tokenizer

WORDS = ["(", ".", "anna", "met", "bob", "in", "rome", "he", "sang", "well", "team", "wins", "what", "who"]
DOWNLOADS = {"GLOVE": "glove.zip", "UNER": "{}.iob2", "PROPBANK": "propbank.tgz", "EWT": "{}.conllu", "NSMC": "{}.txt"}


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


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder stands for the Hub, where `load_dataset` finds data sets by name, and has the downloads."""
    lines = (f"{word} {f'{number / 10} ' * 49}1\n" for number, word in enumerate(WORDS))
    with zipfile.ZipFile(tmp_path / "glove.zip", "w") as archive:
        archive.writestr("glove.6B.50d.txt", "".join(lines))
    monkeypatch.chdir(tmp_path)
    for name, path in DOWNLOADS.items():
        monkeypatch.setattr(data, name, str(tmp_path / path))
    for name in ("HF_DATASETS_CACHE", "DOWNLOADED_DATASETS_PATH", "EXTRACTED_DATASETS_PATH"):
        monkeypatch.setattr(datasets.config, name, tmp_path / "cache")
