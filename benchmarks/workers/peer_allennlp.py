"""AllenNLP's ELMo behind the calls of `protocol.py`, in an environment that has AllenNLP 2.10.1."""

# ruff: noqa: E402, the imports are timed
import os
import sys
import time

START = time.perf_counter()

import torch

sys.path.insert(0, os.environ["PEERS"])
from allennlp_elmo import fill_in_removed_names

fill_in_removed_names()  # AllenNLP imports names that newer libraries no longer have
from allennlp.modules.elmo import Elmo, _ElmoBiLm, batch_to_ids

IMPORTED = time.perf_counter()

from pathlib import Path
from typing import Any

import numpy as np
from protocol import median_of, seconds_of, serve, times_of

STATE = {}


def load(folder: str, threads: int) -> dict:
    """Read `options.json` and `weights.hdf5`."""
    torch.set_num_threads(threads)
    files = str(Path(folder, "options.json")), str(Path(folder, "weights.hdf5"))
    start = time.perf_counter()
    STATE.update(files=files, bilm=_ElmoBiLm(*files).eval())
    return {"import_seconds": IMPORTED - START, "load_seconds": time.perf_counter() - start}


def _layers(batch: list[list[str]]) -> np.ndarray:
    """`[layers, sentences, words with boundaries, 2P]`."""
    with torch.inference_mode():
        return torch.stack(STATE["bilm"](batch_to_ids(batch))["activations"]).numpy()


def embed(batches: list[list[str]]) -> dict:
    """Text in, arrays of every layer out, a batch at a time."""
    _layers([batches[0][0].split()])
    return {"seconds": seconds_of(lambda: [_layers([line.split() for line in batch]) for batch in batches])}


def latency(sentence: str, seconds: float) -> list[float]:
    """The times of one sentence, text in, arrays out."""
    return times_of(lambda: _layers([sentence.split()]), seconds)


def finetuning(sentences: list[str], unfrozen: bool, seconds: float) -> dict:
    """One step of a classifier on the mean of the mixed layers: forward, backward, AdamW."""
    elmo = Elmo(*STATE["files"], num_output_representations=1, dropout=0.5, requires_grad=unfrozen)
    head = torch.nn.Linear(elmo.get_output_dim(), 2)
    parameters = [*elmo.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameter for parameter in parameters if parameter.requires_grad)
    ids = batch_to_ids([sentence.split() for sentence in sentences])
    labels = torch.arange(len(sentences)) % 2

    def step() -> None:
        optimizer.zero_grad()
        output = elmo(ids)
        mask = output["mask"].unsqueeze(-1)
        mean = (output["elmo_representations"][0] * mask).sum(1) / mask.sum(1)
        torch.nn.functional.cross_entropy(head(mean), labels).backward()
        optimizer.step()

    return {"seconds": median_of(step, seconds, least=2)}


def head_step(sentences: list[str], head: str, bilm: str, seconds: float) -> dict:
    """One step of `BasicClassifier` or `CrfTagger` over `ElmoTokenEmbedder`, from ids: forward, backward, AdamW."""
    model = _head(head, trained=bilm == "trained").train()
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    words = [sentence.split() for sentence in sentences]
    ids = batch_to_ids(words)
    # BasicClassifier needs ids of words, too.
    arguments = {"tokens": {"elmo": {"elmo_tokens": ids}, "words": {"tokens": ids[:, :, 0].contiguous()}}}
    if head == "classifier":
        arguments["label"] = torch.arange(len(words)) % 2
    else:
        arguments["tags"] = (torch.arange(ids.shape[1]) % 9).repeat(len(words), 1)
        arguments["metadata"] = [{"words": row} for row in words]

    def step() -> None:
        optimizer.zero_grad()
        model(**arguments)["loss"].backward()
        optimizer.step()

    return {"seconds": median_of(step, seconds, least=2)}


def _head(head: str, trained: bool) -> Any:
    from allennlp.data import Vocabulary
    from allennlp.models import BasicClassifier
    from allennlp.modules.seq2seq_encoders import PytorchSeq2SeqWrapper
    from allennlp.modules.seq2vec_encoders import PytorchSeq2VecWrapper
    from allennlp.modules.text_field_embedders import BasicTextFieldEmbedder
    from allennlp.modules.token_embedders import ElmoTokenEmbedder, EmptyEmbedder
    from torch.nn import LSTM
    from transformers.utils import import_utils

    import_utils._LazyModule.AdamW = torch.optim.AdamW  # allennlp_models imports it from transformers
    options, weights = STATE["files"]
    elmo = ElmoTokenEmbedder(options, weights, dropout=0.5, requires_grad=trained)
    embedder, size = BasicTextFieldEmbedder({"elmo": elmo, "words": EmptyEmbedder()}), elmo.get_output_dim()
    vocabulary = Vocabulary()
    if head == "classifier":
        lstm = LSTM(size, 200, bidirectional=True, batch_first=True)
        return BasicClassifier(vocabulary, embedder, PytorchSeq2VecWrapper(lstm), dropout=0.5, num_labels=2)
    from allennlp_models.tagging import CrfTagger

    for number in range(9):
        vocabulary.add_token_to_namespace(f"label{number}", "labels")
    lstm = LSTM(size, 200, num_layers=2, bidirectional=True, batch_first=True, dropout=0.5)
    return CrfTagger(vocabulary, embedder, PytorchSeq2SeqWrapper(lstm), dropout=0.5)


def bilm_step(windows: list[list[str]], seconds: float) -> dict:
    """The biLM alone, forward and backward, without softmax and optimizer. AllenNLP adds two boundaries a window."""
    bilm, ids = _ElmoBiLm(*STATE["files"], requires_grad=True).train(), batch_to_ids(windows)

    def step() -> None:
        bilm.zero_grad()
        sum(layer.sum() for layer in bilm(ids)["activations"]).backward()

    return {"seconds": median_of(step, seconds, least=2)}


if __name__ == "__main__":
    serve(globals())
