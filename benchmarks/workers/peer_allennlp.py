"""AllenNLP's ELMo behind the calls of `protocol.py`, in an environment that has AllenNLP 2.10.1."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import seconds_of, serve

sys.path.insert(0, os.environ["PEERS"])
from allennlp_elmo import fill_in_removed_names

fill_in_removed_names()  # AllenNLP imports names that newer libraries no longer have
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids  # noqa: E402

STATE: dict[str, Any] = {}


def load(folder: str, threads: int) -> None:
    """Read `options.json` and `weights.hdf5`."""
    torch.set_num_threads(threads)
    files = str(Path(folder, "options.json")), str(Path(folder, "weights.hdf5"))
    STATE.update(files=files, bilm=_ElmoBiLm(*files).eval())


def _layers(batch: list[list[str]]) -> np.ndarray:
    """`[layers, sentences, words with boundaries, 2P]`."""
    with torch.inference_mode():
        return torch.stack(STATE["bilm"](batch_to_ids(batch))["activations"]).numpy()


def embed(batches: list[list[str]]) -> float:
    """Text in, arrays of every layer out, a batch at a time."""
    return seconds_of(lambda: [_layers([line.split() for line in batch]) for batch in batches])


def latency(sentence: str) -> float:
    """One sentence, text in, arrays out."""
    return seconds_of(lambda: _layers([sentence.split()]))


def pretraining(windows: list[list[str]], vocabulary: str) -> float:
    """The biLM alone, forward and backward, without softmax and optimizer. AllenNLP adds two boundaries a window."""
    bilm, ids = _ElmoBiLm(*STATE["files"], requires_grad=True).train(), batch_to_ids(windows)

    def step() -> None:
        bilm.zero_grad()
        sum(layer.sum() for layer in bilm(ids)["activations"]).backward()

    return seconds_of(step)


if __name__ == "__main__":
    serve(globals())
