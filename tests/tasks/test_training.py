"""What classifiers use with Trainer: metrics of classes, and learning rates for parts of a model."""

import numpy as np
import pytest
import torch
from transformers import EvalPrediction, TrainingArguments

from hf_elmo import classification_metrics, optimizer_cls_and_kwargs
from tests import heads


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
    logits, labels = np.array(logits, np.float32), np.array(labels)
    chosen = logits.argmax(1) if logits.shape[1] == 3 else (logits > 0).astype(np.int64)
    for predictions in (logits, chosen):  # Trainer's `preprocess_logits_for_metrics` may have chosen the labels
        found = classification_metrics()(EvalPrediction(predictions, labels))
        assert found == pytest.approx({"accuracy": accuracy, "macro_f1": macro_f1})


def test_each_parameter_is_in_one_group_with_its_rate_and_decay() -> None:
    """Also where the head is a part of another network."""
    tagger = heads.make("last", **heads.VECTORS, freeze_bilm=False)
    model = torch.nn.ModuleDict({"tagger": tagger, "more": torch.nn.Linear(2, 2)})
    settings = TrainingArguments(weight_decay=0.3, learning_rate=0.5, use_cpu=True)
    optimizer, options = optimizer_cls_and_kwargs(model, settings, bilm=1e-4, mix=0.01, word_vectors=0.1)
    assert optimizer is torch.optim.AdamW
    found = {p: (group["lr"], group["weight_decay"]) for group in options["params"] for p in group["params"]}
    assert sum(len(group["params"]) for group in options["params"]) == len(found)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert found.keys() == set(trained.values())
    rates = {"mix": 0.01, ".elmo.": 1e-4, "word_vectors": 0.1, "": 0.5}  # the first that is a part of the name
    for name, parameter in trained.items():
        rate = next(rate for part, rate in rates.items() if part in name)
        assert found[parameter] == (rate, 0.3 if parameter.dim() > 1 and "mix" not in name else 0.0), name
