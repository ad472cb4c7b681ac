"""Regression: the records of predicted numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from transformers import BatchEncoding

from .task import Record, Task, require_no_nan


class RegressionTask(Task):
    """Numbers for each text."""

    def decode(self, pieces: Sequence[Any], inputs: BatchEncoding, output: Any) -> Iterable[list[float]]:
        require_no_nan(output.logits)
        return output.logits.tolist()

    def join(self, row: Any, results: list[list[float]]) -> Record:
        names = self.model.config.id2label.values()
        return {"values": dict(zip(names, results[0] if results else [None] * len(names), strict=True))}

    @staticmethod
    def write(record: Record) -> str:
        """A line: the numbers, separated by tabs."""
        return "\t".join("" if value is None else str(value) for value in record["values"].values()) + "\n"
