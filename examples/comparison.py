"""Shared by the comparisons with and without ELMo: options, the rows of a table, training, the report over seeds.

The rows of a table are the same network, trained in the same way: by default one reads GloVe's vectors alone, which
ignore capitals, the other reads them and ELMo. The biLM is frozen unless noted, and its layers are computed once.
"""

import argparse
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from scipy import stats
from transformers import AutoTokenizer, EarlyStoppingCallback, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

import hf_elmo
from examples.data import glove
from hf_elmo.checkpoints.loading import NAME, locate
from hf_elmo.modeling_elmo import ElmoScalarMix
from hf_elmo.modeling_heads_elmo import ElmoTaskModel

# Metrics and their headings.
ACCURACY = {"accuracy": "accuracy", "macro_f1": "macro F1"}
F1 = {"f1": "F1", "precision": "precision", "recall": "recall"}


@dataclass(frozen=True)
class Run:
    """One training: `metrics` on the test part (fractions), seconds of training, the number of trained parameters."""

    metrics: dict[str, float]
    seconds: float
    parameters: int


Rows = dict[str, Callable[[int], Run]]  # for each row of a table a function of the seed that trains and tests it
Results = dict[str, list[Run]]  # the runs of each row, one for each seed


@dataclass(frozen=True)
class Variant:
    """One row of a comparison: its fields of the configuration, learning rates of parts of the model, and the initial
    scale gamma of its mixes."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    gamma: float = 1.0


ALONE, ELMO = Variant({"use_elmo": False}), Variant(rates={"mix": 1e-2})
CHARACTERS = Variant({"layer_weights": 0})  # layer 0 reads the characters of a word, without context
BILM_TRAINED = Variant({"freeze_bilm": False}, {"mix": 1e-2, "bilm": 5e-4})
GLOVE_ROWS = {"GloVe": ALONE, "GloVe + ELMo": ELMO}
DROPOUT = {"encoder_dropout": 0.3, "classifier_dropout": 0.3}  # of several heads


def options(description: str, train: int | None = None) -> argparse.ArgumentParser:
    """The options of all comparisons; `train` is the default number of rows that train, where that is an option."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read files of this folder [download the data]")
    parser.add_argument("--model", type=locate, default=NAME, help=f"folder or name of an ELMo [{NAME}]")
    parser.add_argument("--out", type=Path, default=Path("outputs/layers"), help="folder for layers [outputs/layers]")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each row [5]")
    parser.add_argument("--quick", action="store_true", help="two seeds and little data, to try the script")
    if train:
        parser.add_argument("--train", type=int, default=train, metavar="N", help=f"rows that train [{train}]")
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> Namespace:
    """Parses a command line; `--quick` means two seeds. From here on the libraries report errors only."""
    args = parser.parse_args(arguments)
    if args.quick:
        args.seeds = 2
    disable_progress_bars()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return args


def hold_out(train: Sequence) -> dict[str, list]:
    """The rows that train, and every tenth of them as `dev`."""
    return {"train": [row for number, row in enumerate(train) if number % 10], "dev": list(train[::10])}


def sizes(parts: Mapping[str, Sequence]) -> str:
    """The number of rows of each part: `2,000 train, 400 dev, 1,287 test`."""
    return ", ".join(f"{len(rows):,} {part}" for part, rows in parts.items())


def with_glove(args: Namespace, texts: Iterable[str | list[str]]) -> tuple[hf_elmo.ElmoTokenizer, np.ndarray]:
    """The tokenizer of `--model` with the words of texts that are among GloVe's 60,000 most frequent ones, and their
    vectors."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    words = hf_elmo.count_words(tokenizer, list(texts))
    tokenizer.words, vectors = hf_elmo.read_word_vectors(glove(args.data), words, limit=60_000)
    return tokenizer, vectors


def rows_of_table(
    auto_class: type,
    fields: Mapping[str, Any],
    tokenizer: hf_elmo.ElmoTokenizer,
    vectors: np.ndarray | None,
    encoded: Mapping[str, Dataset],
    args: Namespace,
    *,
    variants: Mapping[str, Variant] = GLOVE_ROWS,
    **training: Any,
) -> Rows:
    """
    For each variant of a head a function of the seed, which trains and tests it.

    Args:
        fields: fields of the configuration, shared by all variants.
        tokenizer: with the words of the word vectors, if there are any.
        vectors: pretrained word vectors, which are trained further; `None` for vectors that are learned.
        encoded: rows of train, dev and test with labels.
        training: arguments of [`fine_tune`].
    """
    if args.quick:
        training["num_train_epochs"] = 1
    words = {"word_vectors_size": 50 if vectors is None else vectors.shape[1]}
    words = {} if tokenizer.words is None else words | {"word_vectors_vocab_size": len(tokenizer.words) + 3}
    make = partial(auto_class.from_pretrained, args.model, dtype="float32", **fields, **words)
    stored = {part: hf_elmo.store_layers(make(), rows, folder=args.out) for part, rows in encoded.items()}
    alone = {part: rows.remove_columns("bilm_layers") for part, rows in stored.items()}

    def run(variant: Variant, seed: int) -> Run:
        set_seed(seed)
        model = make(**variant.fields)
        for mix in (part for part in model.modules() if isinstance(part, ElmoScalarMix) and part.fixed is None):
            torch.nn.init.constant_(mix.gamma, variant.gamma)
        if vectors is not None:
            model.set_word_vectors(vectors)
        data = alone if not model.config.use_elmo else stored if model.config.freeze_bilm else encoded
        return fine_tune(model, data, tokenizer, seed, rates=variant.rates, **training)

    return {name: partial(run, variant) for name, variant in variants.items()}


def fine_tune(
    model: ElmoTaskModel,
    parts: Mapping[str, Dataset],
    tokenizer: hf_elmo.ElmoTokenizer,
    seed: int,
    *,
    rates: Mapping[str, float],
    metrics: Callable | None = None,
    best: str = "accuracy",
    collator: type = hf_elmo.LayersCollator,
    further_metrics: Callable[[ElmoTaskModel], Mapping[str, float]] = lambda model: {},
    **settings: Any,
) -> Run:
    """Trains `model` on `parts["train"]`, keeps the epoch whose metric `best` is best on `parts["dev"]` (without that
    part the last one; after three epochs without improvement it stops), and tests once on `parts["test"]`. `rates` are
    those of [`hf_elmo.optimizer_cls_and_kwargs`], `settings` those of `TrainingArguments`."""
    choice = {"eval_strategy": "epoch", "save_strategy": "best", "load_best_model_at_end": True}
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            seed=seed,
            metric_for_best_model=best,
            save_only_model=True,
            save_total_limit=1,
            per_device_eval_batch_size=64,
            dataloader_pin_memory=False,  # there may be no accelerator
            report_to=[],
            disable_tqdm=True,
            **(choice if "dev" in parts else {"save_strategy": "no"}),
            **{"train_sampling_strategy": "group_by_length", **settings},
        )
        trainer = Trainer(
            model,
            arguments,
            collator(tokenizer, model),
            parts["train"],
            parts.get("dev"),
            compute_metrics=metrics or hf_elmo.classification_metrics(),
            callbacks=[EarlyStoppingCallback(3)] if "dev" in parts else None,
            optimizer_cls_and_kwargs=hf_elmo.optimizer_cls_and_kwargs(model, arguments, **rates),
        )
        trainer.remove_callback(PrinterCallback)
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
    scores = trainer.predict(parts["test"]).metrics
    scores = {key.removeprefix("test_"): value for key, value in scores.items()} | further_metrics(model)
    return Run(scores, seconds, sum(p.numel() for p in model.parameters() if p.requires_grad))


def percent(runs: Sequence[Run], metric: str) -> np.ndarray:
    """A metric of each run."""
    return 100 * np.array([run.metrics[metric] for run in runs])


def table(results: Results, metrics: Mapping[str, str]) -> str:
    """Markdown: for each row the mean and standard deviation of the metrics over the seeds, in percent (by their
    headings), the seconds of a training, and the trained parameters."""
    headings = [*metrics.values(), "seconds a run", "trained parameters"]
    lines = [f"| | {' | '.join(headings)} |", "|---|" + "---|" * len(headings)]
    for name, runs in results.items():
        scores = [f"{x.mean():.2f} ± {x.std(ddof=1):.2f}" for x in (percent(runs, metric) for metric in metrics)]
        seconds = np.mean([run.seconds for run in runs])
        lines.append(f"| {name} | {' | '.join(scores)} | {seconds:.1f} | {runs[0].parameters:,} |")
    return "\n".join(lines)


def gain(results: Results, without: str, with_: str, metric: str = "accuracy") -> str:
    """The difference of two rows in percentage points, with the 95 % interval of the mean difference over seeds
    (paired t). If the interval does not contain 0, the gain is more than noise of the seeds."""
    difference = percent(results[with_], metric) - percent(results[without], metric)
    low, high = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
    return f"{with_} over {without}: {difference.mean():+.2f} points ({low:+.2f} to {high:+.2f})"


def compare(
    rows: Rows, metrics: Mapping[str, str], args: Namespace, pairs: Iterable[tuple[str, str]] | None = None
) -> Results:
    """Runs all rows with each seed; prints progress on standard error, then the table, and the gains of `pairs` of rows
    (by default all pairs) by the first of `metrics`."""
    results: Results = {name: [] for name in rows}
    for seed in range(1, args.seeds + 1):
        for name, run in rows.items():
            results[name].append(run(seed))
            scores = "  ".join(f"{label} {results[name][-1].metrics[key]:.4f}" for key, label in metrics.items())
            print(f"seed {seed}  {name}  {scores}", file=sys.stderr, flush=True)
    print(table(results, metrics), end="\n\n")
    for without, with_ in pairs or combinations(results, 2):
        print(f"- {gain(results, without, with_, next(iter(metrics)))}")
    print(flush=True)
    return results
