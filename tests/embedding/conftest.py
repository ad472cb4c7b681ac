"""Fixtures of the tests of embedding."""

import pytest
import torch

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.embedding.engine import CorpusEncoder

from .helpers import Stopped, initial_model


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small lose more by waiting for threads than they win."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return initial_model(num_hidden_layers=3)


@pytest.fixture(scope="module")
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, model: ElmoModel) -> str:
    """A folder with the model, and a tokenizer that splits text at whitespace."""
    folder = tmp_path_factory.mktemp("embedding") / "checkpoint"
    model.save_pretrained(folder)
    ElmoTokenizer("whitespace").save_pretrained(folder)
    return str(folder)


@pytest.fixture
def stop_after(monkeypatch):
    """A function that makes the engine fail after so many windows."""
    encode = CorpusEncoder.encode

    def arrange(windows: int) -> list[int]:
        calls = []

        def failing(self, rows, window):
            calls.append(len(rows))
            if len(calls) > windows:
                raise Stopped
            encode(self, rows, window)

        monkeypatch.setattr(CorpusEncoder, "encode", failing)
        return calls

    return arrange
