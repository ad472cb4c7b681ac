"""Run a fine-tuned model over a file: labels and probabilities of each text, or a tag for each word."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import AutoConfig

from .. import __version__
from ..embedding.corpus import (
    file_source,
    model_fingerprint,
    require_tokenizer,
    rows_of,
    sentence_source,
    tokenizer_fingerprint,
)
from ..embedding.parts import PartsFolder, create, require_free
from ..embedding.readers import Row, RowsRead, Survey, survey
from ..evaluation import evaluation_mode
from ..modeling_classification_elmo import ElmoForSequenceClassification
from ..modeling_tagging_elmo import ElmoForTokenClassification
from ..modeling_tasks_elmo import ElmoTaskModel
from ..packing_elmo import compact, words_mask
from ..shipped import named, tokenizer_of
from ..tokenization_elmo import ElmoTokenizer

HEADS = ElmoForSequenceClassification, ElmoForTokenClassification
WINDOW_ROWS = 512  # predicted, sorted by length, and written together: the unit in which finished work is kept


@dataclass(frozen=True)
class Predicted:
    """What [`predict`] wrote: the file and its number of rows."""

    path: Path
    rows: int


def predict(
    model: ElmoTaskModel | str | os.PathLike,
    inputs: str | os.PathLike | Iterable[str | list[str]],
    output: str | os.PathLike | None = None,
    *,
    tokenizer: ElmoTokenizer | None = None,
    device: str | torch.device | None = None,
    batch_tokens: int = 4096,
    input_format: str | None = None,
    text_column: str | int | None = None,
    encoding: str = "utf-8",
    pretokenized: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: bool | None = None,
) -> list[dict[str, Any]] | Predicted:
    """Run a fine-tuned classifier or tagger over texts, or a file of them.

    A text's result does not depend on the others (up to rounding, which may differ with the shape of a batch), and rows
    keep their order. With `output`, memory does not grow with the number of rows, and finished work is kept in the
    folder `OUTPUT.parts` until the end. An interrupted run that is started again resumes from there, to the same
    result.

    Args:
        model: with a head, or the name or folder of one.
        inputs: texts, each a string or a list of words; or the path of a file, as [`embed`] reads it.
        output: the file to write: `.jsonl`, a record for each row, or `.tsv`, the label and its probability a line, of
            a tagger a word and its tag a line and a blank line after each row. `None`: return the records.
        tokenizer: by default that of the model's folder.
        device: where to compute; by default a GPU if there is one, for a model the one that it is on.
        batch_tokens: words, boundaries and padding in one batch, unless a single text has more.
        input_format, text_column, encoding, pretokenized, overwrite, restart, progress: as [`embed`] has them.

    Returns:
        With `output`, a [`Predicted`]. Else a record for each row: of a classifier `label`, `probability` and
        `probabilities` by name (of several labels at once `labels`, those over 0.5, and `probabilities`; of a
        regression `values`); of a tagger `words`, `tags` and the `probabilities` of the tags.

    Raises:
        FileNotFoundError, FileExistsError: no such input; the output exists.
        ValueError: the model has no head or reads pairs of texts; unknown ending; malformed input; the interrupted run
            had other settings.
    """
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens is {batch_tokens}, but must be 1 or more.")
    parts = None if output is None else PartsFolder(Path(output))
    if parts is not None:  # where there are parts, it is looked at again with the folder locked
        _check_output(parts.output, overwrite or parts.path.is_dir())
    model, tokenizer = load_head(HEADS, model, tokenizer, device)
    if model.reads_text_pairs:
        raise ValueError("the model reads pairs of texts (classifier_text_pairs), but a row holds one.")
    job = _Job(model, tokenizer, batch_tokens, pretokenized)
    reading = {"file_format": input_format, "text_column": text_column, "encoding": encoding}
    disable = None if progress is None else not progress
    with evaluation_mode(model), torch.inference_mode():
        if parts is None:
            with (
                TemporaryDirectory(prefix="hf_elmo_") as folder,
                tqdm(unit=" rows", desc="predicting", disable=disable) as bar,
            ):
                is_file = isinstance(inputs, (str, os.PathLike))
                rows = file_source(inputs, reading, Path(folder)) if is_file else sentence_source(inputs, reading)
                return [record for window in job.windows(iter(rows), bar) for record in window]
        with parts.prepared(restart):
            _check_output(parts.output, overwrite or parts.in_place())  # another run may have written it meanwhile
            return _predict_to_file(job, inputs, reading, parts, overwrite, disable)


def _check_output(output: Path, overwrite: bool) -> None:
    if output.suffix not in (".jsonl", ".tsv"):
        raise ValueError(f"output {str(output)!r} has an unknown ending; take .jsonl or .tsv")
    require_free(output, overwrite)


def load_head(
    heads: Sequence[type[ElmoTaskModel]],
    model: ElmoTaskModel | str | os.PathLike,
    tokenizer: ElmoTokenizer | None,
    device: str | torch.device | None,
) -> tuple[ElmoTaskModel, ElmoTokenizer]:
    """A model of one of the classes `heads`, or the one of a name or folder, and its tokenizer.

    Raises:
        ValueError: the model is of another class, or the tokenizer of another model.
    """
    by_name = {head.__name__: head for head in heads}
    if isinstance(model, (str, os.PathLike)):
        with named(model) as place:
            found = AutoConfig.from_pretrained(place).architectures or ["no class"]
            if found[0] not in by_name:
                raise ValueError(
                    f"model {str(model)!r} is of {found[0]}, but a fine-tuned head is needed: {', '.join(by_name)}."
                )
            model = by_name[found[0]].from_pretrained(place)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if type(model).__name__ not in by_name:
        raise ValueError(f"model is of {type(model).__name__}, but a fine-tuned head is needed: {', '.join(by_name)}.")
    if tokenizer is None:
        tokenizer = tokenizer_of(model)
    require_tokenizer(model.config, tokenizer)
    return model if device is None else model.to(device), tokenizer


def batches_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """The indices of rows of these lengths in batches of like length, each of at most `batch_tokens` with its padding,
    or a single row."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[number] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    yield batch


@dataclass
class _Job:
    model: ElmoTaskModel
    tokenizer: ElmoTokenizer
    batch_tokens: int
    pretokenized: bool

    def windows(self, rows: Iterator, bar: tqdm) -> Iterator[list[dict[str, Any]]]:
        """The records of rows, a window at a time."""
        while texts := list(islice(rows, WINDOW_ROWS)):
            words = self.tokenizer.split_into_words(texts, self.pretokenized)
            records: list[dict[str, Any] | None] = [None] * len(words)
            for batch in batches_by_length([len(row) + 2 for row in words], self.batch_tokens):
                for number, record in zip(batch, self._records([words[i] for i in batch]), strict=True):
                    records[number] = record
                bar.update(len(batch))
            yield records

    def _records(self, words: list[list[str]]) -> list[dict[str, Any]]:
        inputs = self.tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt").to(
            self.model.device
        )
        output = self.model(**inputs)
        if isinstance(self.model, ElmoForTokenClassification):
            return self._tags(words, inputs, output)
        return [self._label(row) for row in output.logits.double()]

    def _label(self, logits: Tensor) -> dict[str, Any]:
        config = self.model.config
        if config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1):
            return {"values": logits.tolist()}
        several = config.problem_type == "multi_label_classification"
        probabilities = (logits.sigmoid() if several else logits.softmax(0)).tolist()
        named_ones = {config.id2label[number]: value for number, value in enumerate(probabilities)}
        if several:
            return {"labels": [name for name, p in named_ones.items() if p > 0.5], "probabilities": named_ones}
        label = max(named_ones, key=named_ones.__getitem__)
        return {"label": label, "probability": named_ones[label], "probabilities": named_ones}

    def _tags(self, words: list[list[str]], inputs: Any, output: Any) -> list[dict[str, Any]]:
        is_word = words_mask(self.model.config, inputs["attention_mask"].bool(), inputs["input_ids"])
        scores, inside = compact(output.logits, is_word)
        crf = self.model.crf
        probabilities = scores.double().softmax(2) if crf is None else crf.marginals(scores, inside)
        tags = probabilities.argmax(2) if crf is None else compact(output.tags, is_word)[0]
        chosen = probabilities.gather(2, tags.clamp(min=0)[:, :, None])[:, :, 0].tolist()
        records = []
        for row, own, values, number in zip(words, tags.tolist(), chosen, inside.sum(1).tolist(), strict=True):
            if number != len(row):
                raise ValueError(
                    f"the row {' '.join(row)!r} has {len(row)} words, but {number} tags: words such as </S> are read "
                    "as boundaries, unless the tokenizer has split_special_tokens=True."
                )
            names = [self.model.config.id2label[tag] for tag in own[: len(row)]]
            records.append({"words": row, "tags": names, "probabilities": values[: len(row)]})
        return records


def _predict_to_file(
    job: _Job, inputs: Any, reading: dict[str, Any], parts: PartsFolder, overwrite: bool, disable: bool | None
) -> Predicted:
    rows = rows_of(inputs, reading, parts)
    known = survey(rows)  # a malformed row raises here, not after hours
    manifest = _manifest(job, parts.output, known)
    if (result := parts.left_over(manifest)) is not None:
        return Predicted(parts.output, result["rows"])
    _check_output(parts.output, overwrite)
    parts.agree(manifest)
    done, before, read = parts.finished(), parts.last_state(), RowsRead()
    stream = _counted(rows, read)
    for _ in islice(stream, done * WINDOW_ROWS):
        pass
    if done and read.survey.sha256 != before["rows_sha256"]:
        raise ValueError(
            f"{parts.path} has results of other rows: the input was another while the interrupted run read it. Start "
            "over with restart=True (--restart)"
        )
    initial = min(done * WINDOW_ROWS, known.rows)
    with tqdm(total=known.rows, initial=initial, unit=" rows", desc="predicting", disable=disable) as bar:
        for number, records in enumerate(job.windows(stream, bar), start=done):
            lines = [_line(record, parts.output.suffix) for record in records]
            parts.add_lines(number, lines, {"rows_sha256": read.survey.sha256})
    if read.survey != known:
        parts.clear()
        raise ValueError("the input changed while it was read, so nothing is written; run it again")
    with create(parts.draft, "b") as file:
        for part in parts.line_files():
            with open(part, "rb") as one:
                shutil.copyfileobj(one, file)
    parts.put_in_place(rows=known.rows)
    return Predicted(parts.output, known.rows)


def _counted(rows: Iterable[Row], read: RowsRead) -> Iterator[Row]:
    for row in rows:
        read.add(row)
        yield row


def _line(record: dict[str, Any], ending: str) -> str:
    if ending == ".jsonl":
        return json.dumps(record, ensure_ascii=False) + "\n"
    if "tags" in record:
        for word in record["words"]:
            if word != " ".join(word.split()):
                raise ValueError(f"the word {word!r} holds whitespace, which separates columns in .tsv: use .jsonl.")
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(record["words"], record["tags"], strict=True)) + "\n"
    if "label" in record:
        return f"{record['label']}\t{record['probability']:.6f}\n"
    return "\t".join(record["labels"] if "labels" in record else map(str, record["values"])) + "\n"


def _manifest(job: _Job, output: Path, known: Survey) -> dict[str, Any]:
    """Everything that the records depend on: a run resumes only where all of it is the same."""
    return {
        "hf_elmo": __version__,
        "torch": torch.__version__,
        "model": model_fingerprint(job.model),
        "tokenizer": tokenizer_fingerprint(job.tokenizer),
        "words": hashlib.sha256(json.dumps(job.tokenizer.words).encode()).hexdigest(),
        "device": job.model.device.type,
        "batch_tokens": job.batch_tokens,
        "pretokenized": job.pretokenized,
        "format": output.suffix,
        "rows": known.rows,
        "rows_sha256": known.sha256,
    }
