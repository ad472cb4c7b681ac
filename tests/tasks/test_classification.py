"""The metrics of classifiers."""

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_elmo import classification_metrics


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
