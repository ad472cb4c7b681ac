"""Run a fine-tuned model over a file: labels and probabilities of each text, a tag for each word, or a document's
clusters."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from .. import __version__
from ..embedding.corpus import (
    file_source,
    model_fingerprint,
    rows_of,
    sentence_source,
    tokenizer_fingerprint,
)
from ..embedding.parts import PartsFolder, create, require_free
from ..embedding.readers import Row, RowsRead, Survey, survey
from ..evaluation import evaluation_mode
from ..modeling_classification_elmo import ElmoForSequenceClassification
from ..modeling_coreference_elmo import ElmoForCoreferenceResolution
from ..modeling_tagging_elmo import ElmoForTokenClassification
from ..modeling_tasks_elmo import ElmoTaskModel
from ..packing_elmo import compact, words_mask
from ..tokenization_elmo import ElmoTokenizer
from .coreference import resolve_one
from .heads import batches_by_length, load_head

HEADS = ElmoForSequenceClassification, ElmoForTokenClassification, ElmoForCoreferenceResolution
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
    """Run a fine-tuned classifier, tagger or resolver of coreference over texts, or a file of them.

    A text's result does not depend on the others (up to rounding, which may differ with the shape of a batch), and rows
    keep their order. With `output`, memory does not grow with the number of rows, and finished work is kept in the
    folder `OUTPUT.parts` until the end. An interrupted run that is started again resumes from there, to the same
    result.

    Args:
        model: with a head, or the name or folder of one.
        inputs: texts, each a string or a list of words; or the path of a file, as [`embed`] reads it. A text that is
            resolved is a document, one sentence a line (in a file: of `.jsonl` or another format whose texts may have
            line breaks).
        output: the file to write: `.jsonl`, a record for each row, or `.tsv`, the label and its probability a line, of
            a tagger a word and its tag a line and a blank line after each row. `None`: return the records.
        tokenizer: by default that of the model's folder.
        device: where to compute; by default a GPU if there is one, for a model the one that it is on.
        batch_tokens: words, boundaries and padding in one batch, unless a single text has more.
        input_format, text_column, encoding, pretokenized, overwrite, restart, progress: as [`embed`] has them.

    Returns:
        With `output`, a [`Predicted`]. Else a record for each row: of a classifier `label`, `probability` and
        `probabilities` by name (of several labels at once `labels`, those over 0.5, and `probabilities`; of a
        regression `values`); of a tagger `words`, `tags` and the `probabilities` of the tags; of a resolver `words`,
        `clusters` and `characters`, as [`hf_elmo.resolve`] has them.

    Raises:
        FileNotFoundError, FileExistsError: no such input; the output exists.
        ValueError: the model has no head, reads pairs of texts or labels that are about a word of the row; unknown
            ending, or clusters in `.tsv`; malformed input; the interrupted run had other settings.
    """
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens is {batch_tokens}, but must be 1 or more.")
    parts = None if output is None else PartsFolder(Path(output))
    if parts is not None:  # where there are parts, it is looked at again with the folder locked
        _check_output(parts.output, overwrite or parts.path.is_dir())
    model, tokenizer = load_head(HEADS, model, tokenizer, device)
    if model.reads_text_pairs:
        raise ValueError("the model reads pairs of texts (classifier_text_pairs), but a row holds one.")
    if model.config.tagging_indicator_size is not None and isinstance(model, ElmoForTokenClassification):
        raise ValueError("the model's labels are about a word (tagging_indicator_size), but a row does not name one.")
    if parts is not None and parts.output.suffix == ".tsv" and isinstance(model, ElmoForCoreferenceResolution):
        raise ValueError(f"output {str(output)!r} has a line for a row, but clusters are lists: take .jsonl.")
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


@dataclass
class _Job:
    model: ElmoTaskModel
    tokenizer: ElmoTokenizer
    batch_tokens: int
    pretokenized: bool

    def windows(self, rows: Iterator, bar: tqdm) -> Iterator[list[dict[str, Any]]]:
        """The records of rows, a window at a time."""
        while texts := list(islice(rows, WINDOW_ROWS)):
            if isinstance(self.model, ElmoForCoreferenceResolution):
                yield [self._clusters(text, bar) for text in texts]
                continue
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

    def _clusters(self, text: str | list[str], bar: tqdm) -> dict[str, Any]:
        document = text if isinstance(text, str) else [text]
        if isinstance(text, str) and self.pretokenized:
            document = [line.split() for line in text.split("\n")]
        found = resolve_one(self.model, self.tokenizer, document)
        bar.update()
        return asdict(found)

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
