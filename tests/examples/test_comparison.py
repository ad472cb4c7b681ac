"""What all comparisons share: training with a held-out part, the rows of one head, tables, gains and charts."""

from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments, set_seed

from examples import comparison, variants
from examples.comparison import (
    Run,
    TrainerByLength,
    bar_chart,
    classification_metrics,
    compare,
    fine_tune,
    gain,
    table,
)
from examples.variants import Variant, rows_of_table
from hf_elmo import ElmoForSequenceClassification


def runs(*accuracies: float) -> list[Run]:
    return [Run({"accuracy": accuracy}, 2.0 * i, 1234) for i, accuracy in enumerate(accuracies)]


def test_all_rows_run_with_each_seed(capsys) -> None:
    asked = []

    def run(seed: int, name: str) -> Run:
        asked.append((name, seed))
        return runs(seed / 10)[0]

    results = compare({name: partial(run, name=name) for name in "ab"}, seeds=2)
    assert asked == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert results == {name: [runs(0.1)[0], runs(0.2)[0]] for name in "ab"}
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[3] == "seed 2  b  accuracy 0.2000"


def test_the_table_has_means_and_deviations() -> None:
    lines = table({"a": runs(0.5, 0.6, 0.7), "b": runs(0.25, 0.25, 0.25)}, {"accuracy": "accuracy"}).splitlines()
    assert lines == [
        "| | accuracy | seconds a run | trained parameters |",
        "|---|---|---|---|",
        "| a | 60.00 ± 10.00 | 2.0 | 1,234 |",
        "| b | 25.00 ± 0.00 | 2.0 | 1,234 |",
    ]


def test_a_gain_is_paired() -> None:
    """Differences of 1, 2, 3, 4, 5 points: 3 on average, with the standard error sqrt(2.5 / 5) and t(4) = 2.776."""
    results = {"a": runs(0.1, 0.5, 0.2, 0.6, 0.3), "b": runs(0.11, 0.52, 0.23, 0.64, 0.35)}
    assert gain(results, "a", "b") == "b over a: +3.00 points (+1.04 to +4.96)"


@pytest.mark.parametrize(
    "logits", [np.array([[2.0, 1], [0, 1], [5, 0], [0, 3]]), np.array([[-1.0], [2], [-3], [0.1]])], ids=["two", "one"]
)
def test_metrics(logits: np.ndarray) -> None:
    found = classification_metrics(EvalPrediction(logits, np.array([0, 1, 1, 1])))  # found: 0, 1, 0, 1
    assert found == {"accuracy": 0.75, "macro_f1": pytest.approx((2 / 3 + 0.8) / 2)}


def test_the_chart_begins_where_it_says(tmp_path: Path, monkeypatch) -> None:
    drawn = []
    monkeypatch.setattr(comparison.Figure, "savefig", lambda figure, path, dpi: drawn.append(figure))
    bar_chart({"a": runs(0.5, 0.7), "a + ELMo": runs(0.8, 0.9)}, "accuracy", "accuracy", tmp_path / "x.png", start=25)
    axes = drawn[0].axes[0]
    assert [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches] == [(25, pytest.approx(60)), (25, 85)]
    assert axes.get_xlim()[0] == 25


@pytest.mark.parametrize("held_out", [True, False])
def test_training_keeps_the_best_epoch_on_the_held_out_part(config, tokenizer, held_out: bool) -> None:
    texts = [f"{'abcd'[i % 4]} {i}" for i in range(40)]
    rows = Dataset.from_dict({**tokenizer(texts), "labels": [i % 4 for i in range(40)]})
    parts = {"train": rows, "test": rows.select(range(8)), **({"dev": rows} if held_out else {})}
    set_seed(3)
    config.id2label = dict(enumerate("ABCD"))
    model = ElmoForSequenceClassification(config)
    seen = []

    def measure(prediction: EvalPrediction) -> dict[str, float]:
        seen.append(model.classifier.weight.detach().clone())
        return {"accuracy": (0.3, 0.9, 0.1, 0.2, 0.5)[len(seen) - 1]}

    settings = {"num_train_epochs": 4, "per_device_train_batch_size": 8, "learning_rate": 0.1}
    run = fine_tune(model, parts, tokenizer, 1, metrics=measure, patience=2, **settings)
    assert len(seen) == (5 if held_out else 1)  # four epochs, of which the last two are no better, and the test
    if held_out:
        assert not torch.equal(seen[1], seen[3])
        assert torch.equal(seen[1], seen[4])
    assert run.metrics["accuracy"] == (0.5 if held_out else 0.3)
    assert run.parameters == sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def test_lengths_are_a_list_and_batches_those_of_trainer(config, tokenizer, tmp_path: Path) -> None:
    rows = Dataset.from_dict(dict(tokenizer(["a " * (i * 7 % 31) for i in range(40)])))
    rows = rows.add_column("length", [len(row) for row in rows["input_ids"]])
    how = {"per_device_train_batch_size": 2, "train_sampling_strategy": "group_by_length", "report_to": []}
    samplers = []
    for made in (Trainer, TrainerByLength):
        trainer = made(ElmoForSequenceClassification(config), TrainingArguments(tmp_path, **how), None, rows)
        samplers.append((trainer._get_train_sampler(), trainer._get_eval_sampler(rows)))
    for own, other in zip(*samplers, strict=True):
        assert other.lengths == rows["length"][:]
        assert type(other.lengths) is list
        orders = []
        for sampler in (own, other):
            set_seed(1)
            orders.append(list(sampler))
        assert orders[0] == orders[1]
        assert sorted(orders[0]) == list(range(40))


def test_training_stops_when_nothing_is_gained(config, tokenizer) -> None:
    rows = Dataset.from_dict({**tokenizer(["a b", "c"]), "labels": [0, 1]})
    scores = iter((0.5, 0.4, 0.5, 0.9, 0.7))
    settings = {"num_train_epochs": 9, "per_device_train_batch_size": 2, "learning_rate": 0.1}
    fine_tune(
        ElmoForSequenceClassification(config),
        {"train": rows, "dev": rows, "test": rows},
        tokenizer,
        1,
        metrics=lambda _: {"accuracy": next(scores)},
        patience=2,
        **settings,
    )
    assert list(scores) == [0.7]  # three epochs, the last two no better than the first, and the test


def test_each_table_says_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "clock", lambda: (200.0, 130.0))
    assert comparison.took((75.0, 100.0)).startswith("2 min 5 s on ")
    assert comparison.took((75.0, 100.0)).endswith(" threads, 0 min 30 s of CPU time")


def test_a_row_starts_where_it_says_and_is_saved_if_it_says_so(folder, tokenizer, tmp_path: Path, monkeypatch) -> None:
    texts = Dataset.from_dict({**tokenizer(["a b", "c"]), "labels": [0, 1]})
    starts = []

    def train(model, *_, **__) -> Run:
        starts.append(model.elmo.scalar_mix.gamma.item())
        return runs(0.5)[0]

    monkeypatch.setattr(variants, "fine_tune", train)
    rows = rows_of_table(
        ElmoForSequenceClassification,
        {},
        tokenizer,
        None,
        {"train": texts, "test": texts},
        {"alone": Variant(), "small": Variant(gamma=0.1, saved=True)},
        Namespace(model=folder, quick=False, out=tmp_path),
        tmp_path / "model",
    )
    rows["alone"](1)
    assert not (tmp_path / "model").exists()
    rows["small"](1)
    saved = ElmoForSequenceClassification.from_pretrained(tmp_path / "model")
    assert starts == [1.0, pytest.approx(0.1)]
    assert saved.elmo.scalar_mix.gamma.item() == pytest.approx(0.1)
