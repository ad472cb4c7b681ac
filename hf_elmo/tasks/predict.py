"""Run a fine-tuned model over a file: labels and probabilities of each text or pair, a tag for each word, answers to
questions, or a document's clusters."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from .. import __version__
from ..embedding.corpus import file_source, rows_of, sentence_source
from ..embedding.parts import PartsFolder, create, require_free, require_other_file
from ..embedding.readers import Pair, Row, RowsRead, Survey, survey
from ..evaluation import evaluation_mode
from ..fingerprints import model_fingerprint, tokenizer_fingerprint
from ..modeling_classification_elmo import ElmoForSequenceClassification
from ..modeling_coreference_elmo import ElmoForCoreferenceResolution
from ..modeling_question_answering_elmo import ElmoForQuestionAnswering
from ..modeling_tagging_elmo import ElmoForTokenClassification
from ..modeling_tasks_elmo import ElmoTaskModel
from ..packing_elmo import compact, words_mask
from ..tokenization_elmo import ElmoTokenizer
from .coreference import resolve_one
from .heads import NOT_FINITE, batches_of, load_head
from .question_answering import BOUNDARIES, MAX_LENGTH, STRIDE, answer_all, encode_questions

HEADS = (
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoForQuestionAnswering,
    ElmoForCoreferenceResolution,
)
WINDOW_ROWS = 512  # predicted, sorted by length, and written together: the unit in which finished work is kept
WINDOW_QUESTIONS = 64  # answered together: of a long passage all pieces are in memory


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
    """Run a fine-tuned classifier, tagger, answerer of questions or resolver of coreference over texts, or a file of
    them.

    A text's result does not depend on the others (up to rounding, which may differ with the shape of a batch), and rows
    keep their order. With `output`, memory does not grow with the number of rows, and finished work is kept in the
    folder `OUTPUT.parts` until the end. An interrupted run that is started again resumes from there, to the same
    result.

    Args:
        model: with a head, or the name or folder of one.
        inputs: texts, each a string or a list of words; or the path of a file, as [`embed`] reads it. For a model that
            reads pairs, tuples `(text, pair)`; for one that answers questions, `(question, passage)`, two strings; for
            a tagger of semantic roles, `(text, number)`, the number of the predicate's word, from 0. A text that is
            resolved is a document, one sentence a line (in a file: of `.jsonl` or another format whose texts may have
            line breaks).
        output: the file to write: `.jsonl`, a record for each row, or `.tsv`, a line for each row: the label and its
            probability; of several labels at once each label and its probability, all of them, in the order of
            `id2label`; the numbers of a regression; an answer, whitespace in it made single spaces, and its score. Of
            a tagger a word and its tag a line and a blank line after each row. `None`: return the records.
        tokenizer: by default that of the model's folder.
        device: where to compute; by default a GPU if there is one, for a model the one that it is on.
        batch_tokens: words, boundaries and padding in one batch, unless a single text has more.
        input_format, text_column, encoding, pretokenized, overwrite, restart, progress: as [`embed`] has them.
        text_pair_column: in a file the column or key, or as `text_column` the index, of what is second in a tuple.

    Returns:
        With `output`, a [`Predicted`]. Else a record for each row: of a classifier `label`, `probability` and
        `probabilities` by name (of several labels at once `labels`, those over 0.5, and `probabilities`; of a
        regression `values`); of a tagger `words`, `tags` and the `probabilities` of the tags; of a question what
        [`hf_elmo.answer`] gives; of a resolver `words`, `clusters` and `characters`, as [`hf_elmo.resolve`] has them.

    Raises:
        FileNotFoundError, FileExistsError: no such input; the output exists.
        ValueError: the model has no head, or is a resolver that reads speakers or genres; it reads pairs and
            `text_pair_column` is missing, or the other way around; unknown ending, or clusters in `.tsv`; malformed
            input; `output` is the input; a result is not finite, as of weights that diverged; the interrupted run had
            other settings.
        TypeError: a row is neither text nor words, or no tuple where a model reads pairs.
    """
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens is {batch_tokens}, but must be 1 or more.")
    parts = None if output is None else PartsFolder(Path(output))
    if parts is not None:  # where there are parts, it is looked at again with the folder locked
        require_other_file(inputs, parts.output)
        _check_output(parts.output, overwrite or parts.path.is_dir())
    model, tokenizer = load_head(HEADS, model, tokenizer, device)
    pairs = _reads_pairs(model)
    _require_rows_that_fit(model, pairs, isinstance(inputs, (str, os.PathLike)), text_pair_column)
    if parts is not None and parts.output.suffix == ".tsv":
        _require_lines(model, str(output))
    job = _Job(model, tokenizer, batch_tokens, pretokenized)
    reading = {"file_format": input_format, "text_column": text_column, "encoding": encoding}
    reading |= {} if text_pair_column is None else {"text_pair_column": text_pair_column}
    disable = None if progress is None else not progress
    with evaluation_mode(model), torch.inference_mode():
        if parts is None:
            with (
                TemporaryDirectory(prefix="hf_elmo_") as folder,
                tqdm(unit=" rows", desc="predicting", disable=disable) as bar,
            ):
                is_file = isinstance(inputs, (str, os.PathLike))
                rows = (
                    file_source(inputs, reading, Path(folder)) if is_file else sentence_source(inputs, reading, pairs)
                )
                return [record for window in job.windows(job.checked(rows), bar) for record in window]
        with parts.prepared(restart):
            _check_output(parts.output, overwrite or parts.in_place())  # another run may have written it meanwhile
            return _predict_to_file(job, inputs, reading, parts, overwrite, disable)


def _reads_pairs(model: ElmoTaskModel) -> bool:
    """Whether a row is a text and another one, or a text and the number of its predicate's word."""
    return model.reads_text_pairs or _reads_predicates(model)


def _reads_predicates(model: ElmoTaskModel) -> bool:
    return isinstance(model, ElmoForTokenClassification) and model.config.tagging_indicator_size is not None


def _require_rows_that_fit(
    model: ElmoTaskModel, pairs: bool, is_file: bool, text_pair_column: str | int | None
) -> None:
    """Refuses a model that rows cannot give what it reads (ValueError)."""
    for field in ("coreference_speakers", "coreference_num_genres"):
        if isinstance(model, ElmoForCoreferenceResolution) and getattr(model.config, field):
            raise ValueError(
                f"the model reads more than a text ({field}), which a row does not hold: resolve the documents in "
                "Python, with hf_elmo.resolve."
            )
    if text_pair_column is not None and not is_file:
        raise ValueError(
            f"text_pair_column={text_pair_column!r} belongs to an input file; for a model that reads pairs give tuples "
            "(text, pair)."
        )
    if text_pair_column is not None and not pairs:
        raise ValueError(
            f"text_pair_column={text_pair_column!r} names a second text (--text-pair-column), but the model reads one "
            "text a row: leave it out."
        )
    if pairs and is_file and text_pair_column is None:
        if isinstance(model, ElmoForQuestionAnswering):
            what, column = "answers questions", "the passages"
        elif model.reads_text_pairs:
            what, column = "reads pairs of texts (classifier_text_pairs)", "the second texts"
        else:
            what, column = "tags about a word (tagging_indicator_size)", "the numbers (from 0) of the predicates' words"
        raise ValueError(
            f"the model {what}, but a row holds one text: name the column of {column} with text_pair_column "
            "(--text-pair-column)."
        )


def _require_lines(model: ElmoTaskModel, output: str) -> None:
    """Refuses a model whose results no lines of `.tsv` can hold (ValueError)."""
    if isinstance(model, ElmoForCoreferenceResolution):
        raise ValueError(f"output {output!r} has a line for a row, but clusters are lists: take .jsonl.")
    for name in model.config.id2label.values():
        if {*"\t\n\r"} & set(name):
            raise ValueError(f"the label {name!r} holds what separates columns or lines in {output!r}: take .jsonl.")


def _check_output(output: Path, overwrite: bool) -> None:
    if output.suffix not in (".jsonl", ".tsv"):
        raise ValueError(f"output {str(output)!r} has an unknown ending; take .jsonl or .tsv")
    require_free(output, overwrite)


@dataclass(frozen=True)
class _Words:
    """A row that is split: its number, its words, and its second text's words or the number of its predicate's word."""

    number: int
    words: list[str]
    pair: list[str] | int | None = None

    @property
    def positions(self) -> int:
        """Of its words and their boundaries."""
        return len(self.words) + 2 + (len(self.pair) + 2 if isinstance(self.pair, list) else 0)


@dataclass
class _Job:
    model: ElmoTaskModel
    tokenizer: ElmoTokenizer
    batch_tokens: int
    pretokenized: bool

    def checked(self, rows: Iterable[Row | Pair]) -> Iterator[Row | Pair]:
        """The same rows; where they are pairs, one that the model cannot read raises before anything is computed."""
        stream, first = iter(rows), 0
        while texts := list(islice(stream, WINDOW_ROWS)):
            if isinstance(self.model, ElmoForQuestionAnswering):
                self._require_questions(texts, first)
            elif _reads_pairs(self.model):
                self._split(texts, first)
            yield from texts
            first += len(texts)

    def windows(self, rows: Iterator[Row | Pair], bar: tqdm, first: int = 0) -> Iterator[list[dict[str, Any]]]:
        """The records of rows, a window at a time; `first` is the number of the first row."""
        while texts := list(islice(rows, WINDOW_ROWS)):
            if isinstance(self.model, ElmoForCoreferenceResolution):
                yield [self._clusters(number, text, bar) for number, text in enumerate(texts, start=first)]
            elif isinstance(self.model, ElmoForQuestionAnswering):
                yield _finite(self._answers(texts, bar), first)
            else:
                yield _finite(self._by_length(self._split(texts, first), bar), first)
            first += len(texts)

    def _by_length(self, rows: list[_Words], bar: tqdm) -> list[dict[str, Any]]:
        records: list[dict[str, Any] | None] = [None] * len(rows)
        for batch in batches_of(self.model, [row.positions for row in rows], self.batch_tokens):
            for number, record in zip(batch, self._records([rows[i] for i in batch]), strict=True):
                records[number] = record
            bar.update(len(batch))
        return records

    def _split(self, texts: Sequence[Row | Pair], first: int) -> list[_Words]:
        """The words of rows, and what is second in a pair, checked."""
        if not _reads_pairs(self.model):
            words = self.tokenizer.split_into_words(texts, self.pretokenized)
            return [_Words(number, own) for number, own in enumerate(words, start=first)]
        texts, pairs = zip(*texts, strict=True)
        words = self.tokenizer.split_into_words(texts, self.pretokenized)
        numbers = range(first, first + len(texts))
        if _reads_predicates(self.model):
            pairs = [_predicate(*one) for one in zip(numbers, words, pairs, strict=True)]
            return [_Words(*one) for one in zip(numbers, words, pairs, strict=True)]
        for number, pair in zip(numbers, pairs, strict=True):
            if isinstance(pair, int):
                raise ValueError(f"{_named(number)}: its second text is the number {pair}; choose another column.")
        pairs = self.tokenizer.split_into_words(pairs, self.pretokenized)
        return [_Words(*one) for one in zip(numbers, words, pairs, strict=True)]

    def _records(self, rows: list[_Words]) -> list[dict[str, Any]]:
        words = [row.words for row in rows]
        pairs = [row.pair for row in rows] if self.model.reads_text_pairs else None
        inputs = self.tokenizer(words, pairs, is_split_into_words=True, padding=True, return_tensors="pt").to(
            self.model.device
        )
        if not isinstance(self.model, ElmoForTokenClassification):
            return [self._label(row) for row in self.model(**inputs).logits.double()]
        is_word = words_mask(self.model.config, inputs["attention_mask"].bool(), inputs["input_ids"])
        for row, number in zip(rows, is_word.sum(1).tolist(), strict=True):
            if number != len(row.words):
                raise ValueError(
                    f"{_named(row.number)}, {' '.join(row.words)!r:.80}, has {len(row.words)} words, but {number} "
                    "tags: words such as </S> are read as boundaries, unless the tokenizer has "
                    "split_special_tokens=True."
                )
        if _reads_predicates(self.model):
            marks = [int(place == row.pair) for row in rows for place in range(len(row.words))]
            inputs["token_type_ids"] = torch.zeros_like(inputs["attention_mask"])
            inputs["token_type_ids"][is_word] = torch.tensor(marks, device=self.model.device)
        return self._tags(words, is_word, self.model(**inputs))

    def _require_questions(self, texts: Sequence[Pair], first: int) -> None:
        for number, (question, passage) in enumerate(texts, start=first):
            if not isinstance(question, str) or not isinstance(passage, str):
                raise ValueError(
                    f"{_named(number)}: a question and a passage must be strings, as an answer is a place among the "
                    f"passage's characters, but they are {question!r:.40} and {passage!r:.40}."
                )
        columns = (self.tokenizer.split_into_words(own, self.pretokenized) for own in zip(*texts, strict=True))
        for number, words in enumerate(zip(*columns, strict=True), start=first):
            if all(words) and len(words[0]) < MAX_LENGTH - BOUNDARIES - STRIDE:
                continue
            one = ([text] for text in texts[number - first])
            try:  # it knows exactly, and takes ten times as long
                encode_questions(self.tokenizer, *one, numbers=[number], pretokenized=self.pretokenized)
            except ValueError as error:
                raise ValueError(f"{error} The number is the row's, counted from 0.") from error

    def _answers(self, texts: Sequence[Pair], bar: tqdm) -> list[dict[str, Any]]:
        records = []
        for start in range(0, len(texts), WINDOW_QUESTIONS):
            questions, passages = zip(*texts[start : start + WINDOW_QUESTIONS], strict=True)
            options = {"batch_tokens": self.batch_tokens, "pretokenized": self.pretokenized}
            records += answer_all(self.model, self.tokenizer, questions, passages, **options)
            bar.update(len(questions))
        return records

    def _clusters(self, number: int, text: Row, bar: tqdm) -> dict[str, Any]:
        document = text if isinstance(text, str) else [text]
        if isinstance(text, str) and self.pretokenized:
            document = self.tokenizer.split_into_words(text.split("\n"), pretokenized=True)
        try:
            found = resolve_one(self.model, self.tokenizer, document)
        except ValueError as error:
            raise ValueError(f"{_named(number)}: {error}") from error
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

    def _tags(self, words: list[list[str]], is_word: Tensor, output: Any) -> list[dict[str, Any]]:
        scores, inside = compact(output.logits, is_word)
        crf = self.model.crf
        probabilities = scores.double().softmax(2) if crf is None else crf(scores, inside, marginals=True)
        tags = probabilities.argmax(2) if crf is None else compact(output.tags, is_word)[0]
        chosen = probabilities.gather(2, tags.clamp(min=0)[:, :, None])[:, :, 0].tolist()
        records = []
        for row, own, values in zip(words, tags.tolist(), chosen, strict=True):
            names = [self.model.config.id2label[tag] for tag in own[: len(row)]]
            records.append({"words": row, "tags": names, "probabilities": values[: len(row)]})
        return records


def _finite(records: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """The records, whose numbers must be some (ValueError): JSON has no others, and a label would mean nothing."""
    for number, record in enumerate(records, start=first):
        for field, value in record.items():
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            if wrong := [one for one in inner if isinstance(one, float) and not math.isfinite(one)]:
                raise ValueError(f"{_named(number)}: {field} would be {wrong[0]}. {NOT_FINITE}")
    return records


def _named(number: int) -> str:
    return f"row {number} (counted from 0)"


def _predicate(number: int, words: list[str], pair: Row | int) -> int:
    """The number of a predicate's word, which a file may have as text."""
    place = int(pair) if isinstance(pair, str) and pair.strip().isdecimal() else pair
    if not isinstance(place, int) or not 0 <= place < len(words):
        raise ValueError(
            f"{_named(number)}: its predicate is {pair!r:.40}, but must be the number of one of its {len(words)} "
            "words, counted from 0."
        )
    return place


def _predict_to_file(
    job: _Job, inputs: Any, reading: dict[str, Any], parts: PartsFolder, overwrite: bool, disable: bool | None
) -> Predicted:
    rows = rows_of(inputs, reading, parts, _reads_pairs(job.model))
    known = survey(job.checked(rows))  # a malformed row raises here, not after hours
    manifest = _manifest(job, parts.output, known)
    if (result := parts.left_over(manifest)) is not None:
        return Predicted(parts.output, result["rows"])
    _check_output(parts.output, overwrite)
    parts.agree(manifest)
    parts.verify()
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
        first = done * WINDOW_ROWS
        for number, records in enumerate(job.windows(stream, bar, first), start=done):
            lines = [_line(row, record, parts.output.suffix) for row, record in enumerate(records, start=first)]
            first += len(records)
            parts.add_lines(number, lines, {"rows_sha256": read.survey.sha256})
    if read.survey != known:
        parts.clear()
        raise ValueError("the input changed while it was read, so nothing is written; run it again")
    parts.verify(contents=False)
    with create(parts.draft, "b") as file:
        for part in parts.line_files():
            with open(part, "rb") as one:
                shutil.copyfileobj(one, file)
    parts.put_in_place(rows=known.rows)
    return Predicted(parts.output, known.rows)


def _counted(rows: Iterable[Row | Pair], read: RowsRead) -> Iterator[Row | Pair]:
    for row in rows:
        read.add(row)
        yield row


def _line(number: int, record: dict[str, Any], ending: str) -> str:
    if ending == ".jsonl":
        return json.dumps(record, ensure_ascii=False) + "\n"
    if "tags" in record:
        for word in record["words"]:
            if word != " ".join(word.split()):
                raise ValueError(
                    f"{_named(number)}: the word {word!r} holds whitespace, which separates columns in .tsv: use "
                    ".jsonl."
                )
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(record["words"], record["tags"], strict=True)) + "\n"
    if "answer" in record:
        return f"{' '.join(record['answer'].split())}\t{record['score']:.6f}\n"
    if "label" in record:
        return f"{record['label']}\t{record['probability']:.6f}\n"
    if "labels" in record:
        return "\t".join(f"{name}\t{value:.6f}" for name, value in record["probabilities"].items()) + "\n"
    return "\t".join(map(str, record["values"])) + "\n"


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
