"""What the tests of embedding share."""

import numpy as np
import torch

from hf_elmo import ElmoModel

from ..factories import SENTENCES, small_config

ROWS = [SENTENCES[0], "", "Don't panic!", *SENTENCES[1:], "   ", "Don't panic!", "word " * 17 + "end"]


class Stopped(Exception):
    """An error in place of any that ends a run."""


def initial_model(seed: int = 0, **options) -> ElmoModel:
    """A model with its initial weights, so that values stay near 1, where float32 can tell 1e-6 apart."""
    torch.manual_seed(seed)
    model = ElmoModel(small_config(**options)).eval()
    if model.config.layer_weights is None:
        with torch.no_grad():
            model.scalar_mix.scalars.normal_()
            model.scalar_mix.gamma.fill_(1.3)
    return model


def expected(model, tokenizer, row, layers="mix", pooling="none") -> np.ndarray:
    """The vectors of one row straight from the model: one sentence, one pass."""
    words = {"text": row, "is_split_into_words": isinstance(row, list)}
    with torch.no_grad():
        output = model(**tokenizer(**words, return_tensors="pt"), output_hidden_states=True)
    every = torch.cat(output.hidden_states)
    values = {"mix": output.last_hidden_state[0], "sum": every.sum(0), "all": every}.get(layers)
    values = (every[layers] if values is None else values)[..., 1:-1, :]
    if pooling == "none":
        return values.numpy()
    if values.shape[-2] == 0:
        return values.sum(-2).numpy()
    return (values.mean(-2) if pooling == "mean" else values.amax(-2)).numpy()


def close(found, wanted, tolerance=1e-6) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def read(path) -> list[np.ndarray]:
    with np.load(path) as file:
        return [file[name] for name in file]
