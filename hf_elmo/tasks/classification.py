"""Classifiers of texts and of pairs of texts: metrics, and the records of predictions."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from transformers import BatchEncoding, EvalPrediction

from ..configuration_elmo import IGNORE_INDEX
from ..utils.extras import extra_needed
from .task import Metrics, Record, Task


def classification_metrics() -> Metrics:
    """`compute_metrics` of Trainer for classifiers: accuracy and macro F1.

    With several labels at once (`problem_type="multi_label_classification"`) a label is predicted if its logit is
    above 0, and accuracy is the share of texts whose labels are all predicted correctly. Texts with a label of -100 are
    left out. Numbers of a regression raise ValueError, unless they are only zeros and ones, as labels are.
    """
    with extra_needed("train"):
        from sklearn.metrics import accuracy_score, f1_score

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        is_known = (prediction.label_ids != IGNORE_INDEX).reshape(len(prediction.label_ids), -1).all(1)
        predicted = prediction.predictions[is_known]
        labels = prediction.label_ids[is_known]
        if predicted.dtype.kind == "f":  # else `preprocess_logits_for_metrics` has chosen the labels
            is_one_of_several = labels.size < predicted.size
            if not is_one_of_several and not np.isin(labels, (0, 1)).all():
                raise ValueError("labels are no classes, but numbers: use metrics of regression, or the loss.")
            predicted = predicted.argmax(1) if is_one_of_several else predicted > 0
        macro_f1 = f1_score(labels, predicted, average="macro", zero_division=0)
        return {"accuracy": float(accuracy_score(labels, predicted)), "macro_f1": float(macro_f1)}

    return compute


class ClassificationTask(Task):
    """A label, several labels or numbers for each text or pair of texts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        config = self.model.config
        if config.classifier_text_pairs:
            self.reads = "pairs of texts"
            self.types = (str | list, str | list)
        self.problem = config.problem_type or ("regression" if config.num_labels == 1 else None)

    def decode(self, pieces: Sequence[Any], inputs: BatchEncoding, output: Any) -> Iterator[Record]:
        scores = output.logits.double()
        if self.problem != "regression":
            scores = scores.sigmoid() if self.problem == "multi_label_classification" else scores.softmax(1)
        return map(self._record, scores.tolist())

    def join(self, row: Any, results: list[Record]) -> Record:
        return results[0] if results else self._record([None] * self.model.config.num_labels)

    def _record(self, scores: list[float | None]) -> Record:
        if self.problem == "regression":
            return {"values": scores}
        probabilities = {self.model.config.id2label[index]: score for index, score in enumerate(scores)}
        if self.problem == "multi_label_classification":
            labels = [name for name, probability in probabilities.items() if (probability or 0) > 0.5]
            return {"labels": labels, "probabilities": probabilities}
        label = None if scores[0] is None else max(probabilities, key=probabilities.__getitem__)
        return {"label": label, "probability": probabilities.get(label), "probabilities": probabilities}

    @staticmethod
    def write(record: Record) -> str:
        if "values" in record:
            return "\t".join("" if value is None else str(value) for value in record["values"]) + "\n"
        columns = record["probabilities"] if "labels" in record else {record["label"]: record["probability"]}
        cells = (f"{'' if name is None else name}\t{'' if p is None else f'{p:.6f}'}" for name, p in columns.items())
        return "\t".join(cells) + "\n"
