"""Run a fine-tuned model over texts or a file: labels of texts or pairs, tags of words, answers, or clusters."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tqdm.auto import tqdm

from .. import __version__
from ..checkpoints.fingerprints import model_fingerprint, tokenizer_fingerprint
from ..embedding.corpus import RowSurvey
from ..embedding.jobs import require_free
from ..embedding.store import ShardStore
from ..modeling_classification_elmo import ElmoForSequenceClassification
from ..modeling_coreference_elmo import ElmoForCoreferenceResolution
from ..modeling_heads_elmo import ElmoTaskModel
from ..modeling_question_answering_elmo import ElmoForQuestionAnswering
from ..modeling_tagging_elmo import ElmoForTokenClassification
from ..tokenization_elmo import ElmoTokenizer
from ..utils.text import Pair, Row, rows_of
from .classification import ClassificationTask
from .coreference import CoreferenceTask
from .question_answering import QuestionAnsweringTask
from .tagging import TaggingTask
from .task import Record, Task, load_head

# The task of each class of models; the classes of remote code have the same names.
TASKS: dict[type, type[Task]] = {
    ElmoForSequenceClassification: ClassificationTask,
    ElmoForTokenClassification: TaggingTask,
    ElmoForQuestionAnswering: QuestionAnsweringTask,
    ElmoForCoreferenceResolution: CoreferenceTask,
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
    device: str | torch.device | None = None,
    batch_tokens: int = 4096,
    input_format: str | None = None,
    text_column: str | int | None = None,
    text_pair_column: str | int | None = None,
    encoding: str = "utf-8",
    pretokenized: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: bool | None = None,
) -> list[dict[str, Any]] | Predicted:
    """Run a fine-tuned classifier, tagger, question-answering model or coreference model over texts, or a file of them.

    The result of a text does not depend on the other texts (up to rounding), and rows keep their order. A blank text,
    or a pair with one, gets no label, number, tag, answer or cluster. With `output`, memory does not grow with the
    number of rows, and an interrupted run that is started again resumes from the folder `OUTPUT.parts`.

    Args:
        model: a model with a head, or its name or folder.
        inputs: texts, each a string or a list of words; or the path of a file, as for [`embed`]. Pairs
            `(text, pair)` for a model that reads pairs; `(question, passage)`, two strings, for question answering;
            `(text, index)`, with the index of the predicate's word, for a tagger of semantic roles. A text for
            coreference is a document with one sentence per line.
        output: the file to write. `.jsonl` has a record for each row. `.tsv` has a line for each row: the label and its
            probability; with several labels at once each label and its probability; the values of a regression; an
            answer and its score. For a tagger it has a line for each word with its tag, and a blank line after each
            row. Coreference needs `.jsonl`. With `None`, records are returned.
        tokenizer: by default the tokenizer of the model's folder.
        device: by default, a loaded model is put on a GPU if there is one, and a model object stays where it is.
        batch_tokens: the most words, boundaries and padding in a batch; a longer text is a batch of its own.
        input_format, text_column, encoding, pretokenized, overwrite, restart, progress: as for [`embed`].
        text_pair_column: the column or key of the second element of a pair in a file.

    Returns:
        With `output`, a [`Predicted`]. Otherwise a record for each row: for a classifier `label`, `probability` and
        `probabilities` by name (all `None` for a blank text); with several labels at once, the `labels` with a
        probability above 0.5, and `probabilities`; for a regression, `values`; for a tagger, `words`, `tags` and the
        `probabilities` of the tags; for questions as in [`answer`]; for coreference, the fields of a [`Resolved`].

    Raises:
        FileNotFoundError, FileExistsError: the input does not exist, or the output exists.
        ValueError: the model has no head; a row is not what it reads, such as a pair for a model of single texts;
            `output` has another ending, or is the input, which also must not change; the scores are NaN; the tokenizer
            belongs to another model; the interrupted run had other settings or rows.
        TypeError: a row is missing (`None`, NaN), or is neither text nor a list of words.
    """
    ending = None if output is None else Path(output).suffix.lower()
    if ending not in (None, ".jsonl", ".tsv"):
        raise ValueError(f"output {os.fspath(output)!r} must end in .jsonl or .tsv")
    model, tokenizer = load_head(model, tokenizer, device)
    task = task_of(model)(model, tokenizer, batch_tokens, pretokenized)
    if ending not in (None, *task.endings):
        raise ValueError(f"output {os.fspath(output)!r} must end in {' or '.join(task.endings)} for this model")
    columns = {"text_column": text_column, "text_pair_column": text_pair_column}
    reading = {"file_format": input_format, "encoding": encoding, **columns}
    disable = None if progress is None else not progress
    if output is not None:
        require_free(Path(output), inputs, overwrite)
    with TemporaryDirectory() as folder:
        rows = rows_of(inputs, reading, Path(folder), task.reads_pairs)
        if output is not None:
            return _write(task, rows, Path(output), overwrite, restart, disable)
        with tqdm(unit=" rows", desc="predicting", disable=disable) as bar:
            return [record for part in _windows(task, _checked(task, rows), bar) for record in part]


def task_of(model: ElmoTaskModel) -> type[Task]:
    """The task of a model; also of one of a subclass, or of a class of remote code."""
    names = {kind.__name__ for kind in type(model).__mro__}
    return next(task for head, task in TASKS.items() if head.__name__ in names)


def _checked(task: Task, rows: Iterable[Row | Pair]) -> Iterator[Any]:
    """The rows as the task encodes them."""
    for number, row in enumerate(rows):
        try:
            yield task.read(row)
        except ValueError as error:
            raise ValueError(f"row {number} (from 0): {error}") from None


def _windows(task: Task, rows: Iterable[Any], bar: tqdm) -> Iterator[list[Record]]:
    """The records of rows, some rows at once."""
    rows = iter(rows)
    while window := list(islice(rows, task.rows_at_once)):
        yield task.run(window)
        bar.update(len(window))


def _write(
    task: Task, rows: Iterable[Row | Pair], path: Path, overwrite: bool, restart: bool, disable: bool | None
) -> Predicted:
    survey, read = RowSurvey(_checked(task, rows)), RowSurvey()
    write_line = task.write if path.suffix.lower() == ".tsv" else to_json
    manifest = {
        "hf_elmo": __version__,
        "torch": torch.__version__,
        "model": model_fingerprint(task.model),
        "tokenizer": tokenizer_fingerprint(task.tokenizer),
        "words": task.tokenizer.words,
        "device": task.model.device.type,
        "batch_tokens": task.batch_tokens,
        "pretokenized": task.pretokenized,
        "rows": survey.rows,
        "rows_sha256": survey.sha256,
    }
    store = ShardStore(path.with_name(path.name + ".parts"), path.suffix)
    with store.opened(manifest, restart=restart):
        require_free(path, None, overwrite)  # another run may have written it meanwhile
        done = len(store.names())
        first = min(done * task.rows_at_once, survey.rows)
        with tqdm(total=survey.rows, initial=first, unit=" rows", desc="predicting", disable=disable) as bar:
            rows = read.count(_checked(task, rows))
            deque(islice(rows, first), maxlen=0)  # read, but predicted by the interrupted run
            for index, records in enumerate(_windows(task, rows, bar), start=done):
                store.write(f"{index:06d}", list(map(write_line, records)))
        if read.sha256 != survey.sha256:
            store.remove(store.names())
            raise ValueError("the input changed during the run, so nothing was written: run it again")

        def join(draft: Path) -> None:
            with open(draft, "wb") as file:
                for name in store.names():
                    file.write(Path(store.path, name).read_bytes())

        store.become(path, join)
    return Predicted(path, survey.rows)


def to_json(record: Record) -> str:
    """A record's line in a file `.jsonl`."""
    return json.dumps(record, ensure_ascii=False) + "\n"
