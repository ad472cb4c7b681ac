"""Learning rates for parts of a model, as Trainer uses them, and the weights of the layers in a task."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DataCollatorWithPadding, EvalPrediction, Trainer, TrainingArguments

from hf_elmo import (
    ElmoForSequenceClassification,
    ElmoModel,
    ElmoTokenizer,
    classification_metrics,
    layer_weights,
    learning_rates,
    plot_layer_weights,
)
from tests.factories import SENTENCES, small_config, small_model

FIELDS = {
    "encoder_type": "bilstm",
    "encoder_hidden_size": 7,
    "elmo_at_output": True,
    "word_vectors_vocab_size": 5,
    "word_vectors_size": 4,
    "freeze_bilm": False,
}


def make(**changes: object) -> ElmoForSequenceClassification:
    return small_model(ElmoForSequenceClassification, **{**FIELDS, **changes})


def part(name: str) -> str:
    if "mix" in name:
        return "mix"
    return "bilm" if name.startswith("elmo.") else "word_vectors" if name.startswith("word_vectors") else "head"


def test_trainer_uses_the_rates(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    model, tokenizer.words = make(), ["a", "The"]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    rows = [{**tokenizer(text), "label": number % 2} for number, text in enumerate(SENTENCES)]
    settings = TrainingArguments(tmp_path, optim="sgd", max_steps=1, learning_rate=0.5, report_to=[], use_cpu=True)
    chosen = learning_rates(model, settings, bilm=0.0, word_vectors=0.0)
    Trainer(model, settings, DataCollatorWithPadding(tokenizer), rows, optimizer_cls_and_kwargs=chosen).train()
    moved = {part(name) for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == {"mix", "head"}


def test_each_parameter_is_in_one_group_with_its_rate_and_decay() -> None:
    """Also where the head is a part of another network."""
    model = torch.nn.ModuleDict({"tagger": make(), "more": torch.nn.Linear(2, 2)})
    rates = {"bilm": 1e-4, "mix": 0.01, "word_vectors": 0.1}
    settings = TrainingArguments(weight_decay=0.3, learning_rate=0.5, use_cpu=True)
    optimizer, options = learning_rates(model, settings, **rates)
    assert optimizer is torch.optim.AdamW
    found = {p: (group["lr"], group["weight_decay"]) for group in options["params"] for p in group["params"]}
    assert sum(len(group["params"]) for group in options["params"]) == len(found) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        name = name.removeprefix("tagger.")
        decay = 0.3 if parameter.dim() > 1 and part(name) != "mix" else 0.0
        assert found[parameter] == ({**rates, "head": 0.5}[part(name)], decay), name


@pytest.mark.parametrize(
    ("logits", "labels", "accuracy", "macro_f1"),
    [
        ([[2, 1, 0], [0, 1, 0], [0, 3, 1], [0, 0, 1]], [0, 1, 2, 2], 3 / 4, (1 + 2 / 3 + 2 / 3) / 3),
        ([[1], [-1], [1], [-2]], [1, 0, 0, 0], 3 / 4, (2 / 3 + 4 / 5) / 2),
        ([[1, -1], [1, 1], [-1, 1]], [[1, 0], [0, 1], [0, 1]], 2 / 3, (2 / 3 + 1) / 2),
    ],
    ids=["one of three", "a sigmoid", "several at once"],
)
def test_metrics_of_classes(logits: list, labels: list, accuracy: float, macro_f1: float) -> None:
    found = classification_metrics()(EvalPrediction(np.array(logits, np.float32), np.array(labels)))
    assert found == pytest.approx({"accuracy": accuracy, "macro_f1": macro_f1})


def test_bars_are_the_layer_weights(tmp_path: Path) -> None:
    model = make()
    model.elmo.scalar_mix.scalars.data[0, 1], model.output_mix.gamma.data[0] = 1.0, 2.5
    found = layer_weights(model)
    assert list(found) == ["input", "output"]
    assert found["input"][0] == pytest.approx(torch.softmax(torch.tensor([0.0, 1.0, 0.0]), 0).tolist())
    assert found["output"] == (pytest.approx([1 / 3] * 3), 2.5)
    axes = plot_layer_weights(model, path=tmp_path / "weights.png", title="a task")
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(found["input"][0] + found["output"][0])
    names = [label.get_text() for label in axes.get_legend().get_texts()]
    assert names == ["input (gamma 1.00)", "output (gamma 2.50)"]
    assert (tmp_path / "weights.png").read_bytes()[:4] == b"\x89PNG"
    assert not any(axes.get_legend().get_window_extent().overlaps(part.get_window_extent()) for part in axes.patches)


def test_layer_weights_of_several_mixes_of_fixed_ones_and_of_adapters() -> None:
    assert list(layer_weights(ElmoModel(small_config(num_scalar_mixes=2)))) == ["input 1", "input 2"]
    assert layer_weights(ElmoModel(small_config(layer_weights=-1))) == {"input": ([0.0, 0.0, 1.0], 1.0)}
    model = make()
    torch.nn.init.constant_(model.output_mix.gamma, 2.0)
    model.output_mix = torch.nn.ModuleDict({"default": model.output_mix})  # as PEFT's modules_to_save
    assert {place: gamma for place, (_, gamma) in layer_weights(model).items()} == {"input": 1.0, "output": 2.0}
