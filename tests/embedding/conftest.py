"""What the tests of embedding share."""

import numpy as np
import pytest
import torch

from hf_elmo import ElmoModel, ElmoTokenizer, embed
from hf_elmo.embedding.engine import CorpusEncoder
from tests.factories import SENTENCES, save_checkpoint
from tests.heads import make_new

ROWS = [SENTENCES[0], "", "Don't panic!", *SENTENCES[1:], "   ", "Don't panic!", "word " * 17 + "end"]


def initial_model(seed: int = 0, **options) -> ElmoModel:
    """A model with its initial weights, so that values stay near 1, where float32 can tell 1e-6 apart."""
    model = make_new("no head", seed, **options)
    model.scalar_mix.scalars.data.normal_()
    model.scalar_mix.gamma.data.fill_(1.3)
    return model


def expected(model, tokenizer, row, layers="mix", pooling="none") -> np.ndarray:
    """The vectors of one row straight from the model: one sentence, one pass."""
    words = {"text": row, "is_split_into_words": isinstance(row, list)}
    with torch.no_grad():
        output = model(**tokenizer(**words, return_tensors="pt"), output_hidden_states=True)
    every = torch.cat(output.hidden_states)
    values = {"mix": output.last_hidden_state[0], "sum": every.sum(0), "all": every}[layers][..., 1:-1, :]
    if pooling == "none":
        return values.numpy()
    if values.shape[-2] == 0:
        return values.sum(-2).numpy()
    return (values.mean(-2) if pooling == "mean" else values.amax(-2)).numpy()


def close(found, wanted, tolerance=1e-6) -> None:
    torch.testing.assert_close(list(found), list(wanted), rtol=0, atol=tolerance, check_dtype=False)


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return initial_model(num_hidden_layers=3)


@pytest.fixture(scope="module")
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, model: ElmoModel) -> str:
    """A folder with the model, and a tokenizer that splits text at whitespace."""
    return str(save_checkpoint(tmp_path_factory.mktemp("embedding") / "checkpoint", model))


@pytest.fixture
def stop_after(monkeypatch):
    """A function that makes the engine fail after so many shards."""
    encode = CorpusEncoder.encode

    def arrange(shards: int, error: BaseException = MemoryError) -> list[int]:
        calls = []

        def failing(self, rows, indices=None):
            calls.append(len(rows.words))
            if len(calls) > shards:
                raise error
            encode(self, rows, indices)

        monkeypatch.setattr(CorpusEncoder, "encode", failing)
        return calls

    return arrange


@pytest.fixture
def stopped_after(stop_after):
    """A function that embeds so many shards, then stops. It returns a list of the rows of shards computed later."""

    def run(shards: int, *arguments, **options) -> list[int]:
        stop_after(shards)
        with pytest.raises(MemoryError):
            embed(*arguments, **options)
        return stop_after(1000)

    return run
