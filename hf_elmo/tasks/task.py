"""What the tasks have in common: a fine-tuned model that is run over rows, in batches of rows of similar length."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from transformers import BatchEncoding, EvalPrediction

from ..modeling_heads_elmo import ElmoTaskModel
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import batches, evaluation_mode

Record = dict[str, Any]
Metrics = Callable[[EvalPrediction], dict[str, float]]  # `compute_metrics` of Trainer


class Piece(NamedTuple):
    """What a model reads at once: a row, or a part of a long one."""

    row: int  # the index of the row
    positions: int  # the length, boundaries included
    inputs: Any  # what `Task.collate` takes


class Task:
    """Runs a fine-tuned model over rows: the base class of all tasks, each of which is a file of this folder.

    [`predict`] calls the steps in this order: `read` checks a row; `encode` makes the pieces of some rows, none of a
    blank row; `collate` makes a batch of pieces of similar length; `decode` makes a result for each piece from the
    output of the model; `join` makes the record of a row from those of its pieces; `write` makes lines of a record.
    """

    rows_at_once = 512  # sorted by length, predicted and written together; an interrupted run keeps what it wrote
    reads = "single texts"  # what a row is, for error messages
    types: ClassVar[tuple] = (str | list,)  # of the parts of a row
    reads_one = False  # whether a batch is one piece
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".tsv")  # of the files that `predict` can write
    decode: Callable[[Sequence[Any], BatchEncoding, Any], Iterable[Any]]  # of the pieces, the batch and the output
    join: Callable[[Any, list[Any]], Record]  # of a row, which is blank if it has no results, and its results
    write: Callable[[Record], str]  # for files `.tsv`

    def __init__(
        self, model: ElmoTaskModel, tokenizer: ElmoTokenizer, batch_tokens: int = 4096, pretokenized: bool = False
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.pretokenized = pretokenized
        spans_batch = model.config.use_elmo and model.config.scalar_mix_layer_norm  # it would read the other rows, too
        self.batch_tokens = 0 if spans_batch or self.reads_one else batch_tokens

    def read(self, row: Any) -> Any:
        """The row as `encode` takes it; raises ValueError if the model does not read such a row."""
        parts = row if isinstance(row, tuple) else (row,)
        if len(parts) != len(self.types) or not all(map(isinstance, parts, self.types)):
            raise ValueError(f"the model reads {self.reads}, got {row!r:.60}")
        return row

    def encode(self, rows: Sequence[Any]) -> list[Piece]:
        """The words of each text, or of both texts of a pair."""
        sides = list(zip(*rows, strict=True)) if len(self.types) == 2 else [rows]
        words = zip(*(self.tokenizer.split_into_words(side, self.pretokenized) for side in sides), strict=True)
        return [Piece(row, sum(len(own) + 2 for own in texts), texts) for row, texts in enumerate(words) if all(texts)]

    def collate(self, pieces: Sequence[Any]) -> BatchEncoding:
        texts = map(list, zip(*pieces, strict=True))
        return self.tokenizer(*texts, is_split_into_words=True, padding=True, return_tensors="pt")

    def run(self, rows: Sequence[Any]) -> list[Record]:
        """The records of rows, which are as `read` returns them. Raises ValueError if an output is NaN."""
        pieces = self.encode(rows)
        results = [[] for _ in rows]
        with evaluation_mode(self.model), torch.inference_mode():
            for batch in batches([piece.positions for piece in pieces], self.batch_tokens):
                own = [pieces[index].inputs for index in batch]
                inputs = self.collate(own).to(self.model.device)
                output = self.model(**inputs)
                if any(isinstance(part, Tensor) and part.isnan().any() for part in output.values()):
                    raise ValueError("scores are NaN: the weights are NaN, or too large for their dtype (try float32).")
                for index, result in zip(batch, self.decode(own, inputs, output), strict=True):
                    results[pieces[index].row].append(result)
        return [self.join(*each) for each in zip(rows, results, strict=True)]


def precision_recall_f1(precision: float, recall: float, prefix: str = "") -> dict[str, float]:
    """Precision, recall and their harmonic mean F1; their names begin with `prefix`."""
    f1 = ratio(2 * precision * recall, precision + recall)
    return {f"{prefix}precision": precision, f"{prefix}recall": recall, f"{prefix}f1": f1}


def ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
