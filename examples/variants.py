"""One head without ELMo, with it and with parts of it: the rows of a comparison."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import set_seed

import hf_elmo
from examples.comparison import Results, Run, fine_tune, gain, table, took
from hf_elmo.scalar_mix_elmo import ElmoScalarMix

GLOVE = Path("glove", "glove.6B.50d.60k.txt.gz")  # below the data folder


@dataclass(frozen=True)
class Variant:
    """Fields of the configuration that a row has of its own, learning rates of its parts, where the scale gamma of its
    mixes starts, and whether its last model is saved."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    gamma: float = 1.0
    saved: bool = False


VARIANTS = {
    "": Variant({"use_elmo": False}),
    " + characters": Variant({"layer_weights": 0}),  # layer 0 sees the characters of a word and nothing beside it
    " + ELMo": Variant(rates={"mix": 1e-2}, saved=True),
    " + ELMo, biLM trained": Variant({"freeze_bilm": False}, {"mix": 1e-2, "bilm": 5e-4}),
}


def rows_of_table(
    auto_class: type,
    fields: Mapping[str, Any],
    tokenizer: hf_elmo.ElmoTokenizer,
    vectors: np.ndarray | None,
    encoded: Mapping[str, Dataset],
    variants: Mapping[str, Variant],
    args: Namespace,
    saved: Path,
    *,
    quick_epochs: int = 1,
    **training: Any,
) -> dict[str, Callable[[int], Run]]:
    """
    For each variant of a head a function of the seed, which trains and tests it.

    Args:
        auto_class: of the head.
        fields: of the configuration, of all variants.
        tokenizer: with the words of the word vectors, if there are any.
        vectors: pretrained ones, which are trained further; `None` for vectors that are learned.
        encoded: the tokenizer's rows of train, dev and test, with labels. The frozen biLM's layers are computed here,
            once for all variants and seeds, where the rows do not hold them already.
        args: the options of all comparisons.
        saved: where the last model of the variant that is saved goes, a folder that the Auto classes load.
        quick_epochs: of training where `args` say quick.
        training: what [`fine_tune`] takes.
    """
    if args.quick:
        training["num_train_epochs"] = quick_epochs
    size, own = 50 if vectors is None else vectors.shape[1], {}
    if tokenizer.words is not None:
        own = {"word_vectors_vocab_size": len(tokenizer.words) + 3, "word_vectors_size": size}
    make = partial(auto_class.from_pretrained, args.model, dtype="float32", **fields, **own)
    folder = args.out / "layers"
    stored = {
        part: rows if "bilm_layers" in rows.column_names else hf_elmo.store_layers(make(), rows, folder=folder)
        for part, rows in encoded.items()
    }
    alone = {part: rows.remove_columns("bilm_layers") for part, rows in stored.items()}

    def run(variant: Variant, seed: int) -> Run:
        set_seed(seed)
        model = make(**variant.fields)
        for mix in (part for part in model.modules() if isinstance(part, ElmoScalarMix) and part.fixed is None):
            torch.nn.init.constant_(mix.gamma, variant.gamma)
        if vectors is not None:
            model.set_word_vectors(vectors)
        data = alone if not model.config.use_elmo else stored if model.config.freeze_bilm else encoded
        result = fine_tune(model, data, tokenizer, seed, rates=variant.rates, **training)
        if variant.saved:
            model.save_pretrained(saved)
            tokenizer.save_pretrained(saved)
        return result

    return {name: partial(run, variant) for name, variant in variants.items()}


def report(results: Results, metrics: Mapping[str, str], start: tuple[float, float]) -> None:
    """Prints the table of a data set, what each row has over those above it by the first of `metrics`, and the time
    since `start` (`clock()`)."""
    print(table(results, metrics), end="\n\n")
    for without, with_ in combinations(results, 2):
        print(f"- {gain(results, without, with_, next(iter(metrics)))}")
    print(f"- {took(start)}\n", flush=True)
