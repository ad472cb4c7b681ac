"""Fixtures of the tests of embedding."""

import pytest

from hf_elmo import ElmoModel, ElmoTokenizer, embed
from hf_elmo.embedding.engine import CorpusEncoder

from ..factories import save_checkpoint
from .helpers import Stopped, initial_model


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return initial_model(num_hidden_layers=3)


@pytest.fixture(scope="module")
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, model: ElmoModel) -> str:
    """A folder with the model, and a tokenizer that splits text at whitespace."""
    return str(save_checkpoint(tmp_path_factory.mktemp("embedding") / "checkpoint", model))


@pytest.fixture
def stop_after(monkeypatch):
    """A function that makes the engine fail after so many windows."""
    encode = CorpusEncoder.encode

    def arrange(windows: int, error: BaseException = Stopped) -> list[int]:
        calls = []

        def failing(self, rows, indices=None):
            calls.append(len(rows.words))
            if len(calls) > windows:
                raise error
            encode(self, rows, indices)

        monkeypatch.setattr(CorpusEncoder, "encode", failing)
        return calls

    return arrange


@pytest.fixture
def stopped_after(stop_after):
    """A function that embeds so many windows, then stops. It returns a list of the rows of windows computed later."""

    def run(windows: int, *arguments, **options) -> list[int]:
        stop_after(windows)
        with pytest.raises(Stopped):
            embed(*arguments, **options)
        return stop_after(1000)

    return run
