"""Run a fine-tuned model over texts or a file: labels of texts or pairs, tags of words, answers, or clusters."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow

from ..checkpoints.loading import Device, load_head
from ..modeling_heads_elmo import ElmoTaskModel
from ..reading.files import local_path, require_apart
from ..reading.rows import Pair, Row, Rows
from ..tokenization_elmo import ElmoTokenizer
from ..utils.jobs import Job, cut, progress_bar, run
from .classification import ClassificationTask
from .coreference import CoreferenceTask
from .question_answering import QuestionAnsweringTask
from .tagging import TaggingTask
from .task import Record, Task

# By the names of classes, because those of remote code have the same names.
TASKS: dict[str, type[Task]] = {
    "ElmoForSequenceClassification": ClassificationTask,
    "ElmoForTokenClassification": TaggingTask,
    "ElmoForQuestionAnswering": QuestionAnsweringTask,
    "ElmoForCoreferenceResolution": CoreferenceTask,
}


@dataclass(frozen=True)
class Predicted:
    """What [`predict`] wrote: the file and its number of rows."""

    path: Path
    rows: int


def predict(
    model: ElmoTaskModel | str | os.PathLike,
    inputs: str | os.PathLike | Iterable[str | list[str] | Pair],
    output: str | os.PathLike | None = None,
    *,
    tokenizer: ElmoTokenizer | None = None,
    device: Device = None,
    batch_tokens: int = 4096,
    input_format: str | None = None,
    text_column: str | int | None = None,
    text_pair_column: str | int | None = None,
    encoding: str = "utf-8",
    pretokenized: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: bool | Literal["lines"] | None = None,
    workers: int = 1,
    speakers_column: str | None = None,
    genre_column: str | None = None,
) -> list[dict[str, Any]] | Predicted:
    """Run a fine-tuned classifier, tagger, question-answering model or coreference model over texts, or a file of them.

    The result of a text does not depend on the other texts (up to rounding), and rows keep their order. A blank text,
    or a pair with one, gets no label, number, tag, answer or cluster. With `output`, memory does not grow with the
    number of rows, and an interrupted run that is started again resumes from the folder `OUTPUT.parts`.

    Args:
        model: a model with a head, or its name or folder.
        inputs: texts, each a string or a list of words; or the path of a file, as for [`embed`]. Pairs
            `(text, pair)` for a model that reads pairs; `(question, passage)`, two strings, for question answering;
            `(text, index of the predicate's word)` for semantic roles. For coreference, a text has a sentence a line.
        output: the file to write. `.jsonl` has a record for each row. `.tsv` has a line for each row: the label, or
            several, each with its probability; the values of a regression; an answer and its score; for a tagger a
            line for each word and its tag, and a blank line; nothing of coreference. With `None`, records are returned.
        tokenizer: by default the tokenizer of the model's folder.
        device: by default, a loaded model is put on a GPU if there is one, and a model object stays where it is.
        batch_tokens: the most words, boundaries and padding in a batch; a longer text is a batch of its own.
        input_format, text_column, encoding, pretokenized, overwrite, restart, progress, workers: as for [`embed`].
        text_pair_column: the column or key of the second element of a pair in a file.
        speakers_column, genre_column: for coreference ([`resolve`]), the columns or keys of a document's speakers, a
            list or a text with a line for each, and of its genre's number.

    Returns:
        With `output`, a [`Predicted`]. Otherwise a record for each row: for a classifier `label`, `probability` and
        `probabilities` by name (all `None` for a blank text); with several labels at once, the `labels` with a
        probability above 0.5, and `probabilities`; for a regression, `values`; for a tagger, `words`, `tags` and the
        `probabilities` of the tags; for questions as in [`answer`]; for coreference, the fields of a [`Resolved`].

    Raises:
        FileNotFoundError, FileExistsError: the input does not exist, or the output exists.
        ValueError: the model has no head; a row is not what it reads, such as a pair for a model of single texts;
            `output` has another ending, or is the input or an address; the scores are NaN; the tokenizer belongs to
            another model; the interrupted run had other settings.
        TypeError: a row is missing (`None`, NaN), or is neither text nor a list of words.
    """
    model, tokenizer = load_head(model, tokenizer, device)
    # Also of a model of a subclass, or of a class of remote code.
    task_class = next(TASKS[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in TASKS)
    task = task_class(model, tokenizer, batch_tokens, pretokenized)
    columns = () if text_pair_column is None else (text_pair_column,)
    if speakers_column is not None or genre_column is not None:
        columns = speakers_column, genre_column
    pairs = len(task.types) == 2 or text_pair_column is not None
    rows = Rows(inputs, input_format, text_column, encoding, columns=columns, pairs=pairs)
    rows.report(tokenizer, pretokenized)
    if output is None:
        checked = list(_checked(task, rows))
        records: list[Record] = []
        with progress_bar(len(checked), progress, "predicting") as bar:
            for part in cut(checked, lambda row: 1, task.rows_at_once):
                records += task.run(part)
                bar.update(len(part))
        return records
    output = local_path(output)
    if output.suffix.lower() not in task.endings:
        raise ValueError(f"output {str(output)!r} must end in {' or '.join(task.endings)} for this model")
    require_apart(output, {"the input": rows.places}, overwrite)
    total = sum(1 for _ in _checked(task, rows))  # a row that the model does not read raises here
    how = {"overwrite": overwrite, "restart": restart, "workers": workers}
    with progress_bar(total, progress, "predicting") as bar:
        return Predicted(output, run(_Prediction(task, output), _checked(task, rows), output, bar, **how))


def _checked(task: Task, rows: Iterable[Row | Pair]) -> Iterator[Any]:
    for number, row in enumerate(rows):
        try:
            yield task.read(row)
        except ValueError as error:
            raise ValueError(f"row {number} (from 0): {error}") from None


class _Prediction(Job):
    def __init__(self, task: Task, output: Path) -> None:
        settings = {"batch_tokens": task.batch_tokens, "pretokenized": task.pretokenized}
        super().__init__(task.model, task.tokenizer, words=task.tokenizer.words, **settings)
        self.task = task
        self.to_lines = task.write if output.suffix.lower() == ".tsv" else to_json

    def cut(self, rows: Iterable[Any]) -> Iterator[list[Any]]:
        return cut(rows, lambda row: 1, self.task.rows_at_once)

    def compute(self, rows: list[Any], first: int, folder: Path) -> pyarrow.RecordBatch:
        return pyarrow.record_batch({"lines": [*map(self.to_lines, self.task.run(rows))]})

    def write(self, draft: Path, shards: Iterator[pyarrow.RecordBatch], rows: int) -> None:
        with open(draft, "wb") as file:
            for shard in shards:
                file.writelines(line.encode() for line in shard["lines"].to_pylist())


def to_json(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
