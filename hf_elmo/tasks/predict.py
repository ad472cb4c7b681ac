"""Run a fine-tuned model over texts or a file: labels of texts or pairs, tags of words, answers, or clusters."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from .. import __version__
from ..checkpoints.fingerprints import model_fingerprint, tokenizer_fingerprint
from ..embedding.corpus import RowSurvey, rows_of
from ..embedding.store import ShardStore, require_free
from ..modeling_coreference_elmo import ElmoForCoreferenceResolution
from ..modeling_elmo import compact, words_mask
from ..modeling_heads_elmo import ElmoTaskModel
from ..modeling_question_answering_elmo import ElmoForQuestionAnswering
from ..modeling_tagging_elmo import ElmoForTokenClassification
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import evaluation_mode
from ..utils.text import Pair, Row
from .coreference import resolve
from .heads import in_batches, load_head, require_no_nan, tokens_of_batch
from .question_answering import answer

WINDOW_ROWS = 512  # sorted by length, predicted and written together; an interrupted run keeps whole windows
NO_TAGS = {"words": [], "tags": [], "probabilities": []}
WINDOW_QUESTIONS = 64  # the same of questions, because all pieces of their passages are in memory


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
    if ending not in (None, *LINES):
        raise ValueError(f"output {os.fspath(output)!r} must end in {' or '.join(LINES)}")
    model, tokenizer = load_head(model, tokenizer, device)
    if ending == ".tsv" and isinstance(model, ElmoForCoreferenceResolution):
        raise ValueError(f"output {os.fspath(output)!r} must end in .jsonl for a coreference model")
    predictor = _Predictor(model, tokenizer, batch_tokens, pretokenized)
    columns = {"text_column": text_column, "text_pair_column": text_pair_column}
    reading = {"file_format": input_format, "encoding": encoding, **columns}
    disable = None if progress is None else not progress
    with evaluation_mode(model), torch.inference_mode(), TemporaryDirectory() as folder:
        if output is None:
            rows = rows_of(inputs, reading, Path(folder), predictor.reads_pairs)
            with tqdm(unit=" rows", desc="predicting", disable=disable) as bar:
                return [record for part in predictor.windows(predictor.checked(rows), bar) for record in part]
        require_free(Path(output), inputs, overwrite)
        rows = rows_of(inputs, reading, Path(folder), predictor.reads_pairs)
        return _write(predictor, rows, Path(output), overwrite, restart, disable)


def _write(
    predictor: _Predictor, rows: Iterable[Row | Pair], path: Path, overwrite: bool, restart: bool, disable: bool | None
) -> Predicted:
    survey, read, write_line = RowSurvey(predictor.checked(rows)), RowSurvey(), LINES[path.suffix.lower()]
    manifest = {
        "hf_elmo": __version__,
        "torch": torch.__version__,
        "model": model_fingerprint(predictor.model),
        "tokenizer": tokenizer_fingerprint(predictor.tokenizer),
        "words": predictor.tokenizer.words,
        "device": predictor.model.device.type,
        "batch_tokens": predictor.batch_tokens,
        "pretokenized": predictor.pretokenized,
        "rows": survey.rows,
        "rows_sha256": survey.sha256,
    }
    store = ShardStore(path.with_name(path.name + ".parts"), path.suffix)
    with store.opened(manifest, restart=restart):
        require_free(path, None, overwrite)  # another run may have written it meanwhile
        done = len(store.names())
        first = min(done * predictor.window, survey.rows)
        with tqdm(total=survey.rows, initial=first, unit=" rows", desc="predicting", disable=disable) as bar:
            rows = read.count(predictor.checked(rows))
            deque(islice(rows, first), maxlen=0)  # read, but predicted by the interrupted run
            for index, records in enumerate(predictor.windows(rows, bar), start=done):
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


class _Predictor:
    """Computes the records of rows, with a model in evaluation mode."""

    def __init__(self, model: ElmoTaskModel, tokenizer: ElmoTokenizer, batch_tokens: int, pretokenized: bool) -> None:
        self.model, self.tokenizer, self.batch_tokens, self.pretokenized = model, tokenizer, batch_tokens, pretokenized
        self.answers = isinstance(model, ElmoForQuestionAnswering)
        self.reads_predicates = getattr(model, "indicator", None) is not None  # a row is a text and a word's index
        self.reads_pairs = model.reads_text_pairs or self.reads_predicates
        self.window = WINDOW_QUESTIONS if self.answers else WINDOW_ROWS

    def checked(self, rows: Iterable[Row | Pair]) -> Iterator[Row | Pair]:
        """The same rows, with whole numbers for indices; ValueError for a row that the model does not read."""
        kind = "pairs of texts" if self.reads_pairs else "single texts"
        kind = "pairs of a question and a passage, both strings" if self.answers else kind
        kind = "pairs of a text and the index of its predicate's word" if self.reads_predicates else kind
        for number, row in enumerate(rows):
            parts = row if isinstance(row, tuple) else (row,)
            if self.reads_predicates and isinstance(parts[-1], str) and parts[-1].isdecimal():
                parts = row = parts[0], int(parts[-1])
            fits = len(parts) == 1 + self.reads_pairs and isinstance(parts[-1], int) == self.reads_predicates
            if not fits or (self.answers and not all(isinstance(part, str) for part in parts)):
                raise ValueError(f"row {number} (from 0): the model reads {kind}, got {row!r:.60}")
            if self.reads_predicates:
                (words,) = self.tokenizer.split_into_words(parts[:1], self.pretokenized)
                if not 0 <= parts[1] < len(words):
                    raise ValueError(f"row {number} (from 0): of {len(words)} words there is no word {parts[1]}")
            yield row

    def windows(self, rows: Iterable[Row | Pair], bar: tqdm) -> Iterator[list[dict[str, Any]]]:
        """The records of rows, one window after another."""
        rows = iter(rows)
        while window := list(islice(rows, self.window)):
            if isinstance(self.model, ElmoForCoreferenceResolution):
                documents = [text if isinstance(text, str) else [text] for text in window]
                if self.pretokenized:
                    lines = (own.split("\n") if isinstance(own, str) else own for own in documents)
                    documents = [self.tokenizer.split_into_words(own, pretokenized=True) for own in lines]
                yield list(map(asdict, resolve(self.model, documents, tokenizer=self.tokenizer)))
            elif self.answers:
                how = {"batch_tokens": self.batch_tokens, "pretokenized": self.pretokenized}
                yield answer(self.model, *zip(*window, strict=True), tokenizer=self.tokenizer, **how)
            else:
                yield self._by_length(window)
            bar.update(len(window))

    def _by_length(self, rows: Sequence[Row | Pair]) -> list[dict[str, Any]]:
        texts, *pairs = zip(*rows, strict=True) if self.reads_pairs else [rows]
        predicates = pairs.pop() if self.reads_predicates else None
        words = [self.tokenizer.split_into_words(own, self.pretokenized) for own in (texts, *pairs)]
        kept = [row for row in range(len(rows)) if all(own[row] for own in words)]

        def records(batch: list[int]) -> list[dict[str, Any]]:
            chosen = [kept[index] for index in batch]
            own = [[texts[row] for row in chosen] for texts in words]
            inputs = self.tokenizer(*own, is_split_into_words=True, padding=True, return_tensors="pt")
            inputs = inputs.to(self.model.device)
            if not isinstance(self.model, ElmoForTokenClassification):
                return [self._label(row) for row in self.model(**inputs).logits.double()]
            is_word = words_mask(self.model.config, inputs["attention_mask"].bool(), inputs["input_ids"])
            if predicates is not None:
                inputs["token_type_ids"] = torch.zeros_like(inputs["attention_mask"])
                for row, types, mask in zip(chosen, inputs["token_type_ids"], is_word, strict=True):
                    types[mask.nonzero()[predicates[row]]] = 1
            return self._tags(own[0], is_word, self.model(**inputs))

        lengths = [sum(len(own[row]) + 2 for own in words) for row in kept]
        found = in_batches(lengths, tokens_of_batch(self.model, self.batch_tokens), records)
        of_row = dict(zip(kept, found, strict=True))
        blank = NO_TAGS if isinstance(self.model, ElmoForTokenClassification) else self._label(None)
        return [of_row.get(row) or deepcopy(blank) for row in range(len(rows))]

    def _label(self, logits: Tensor | None) -> dict[str, Any]:
        """The record of a text; a blank text has no logits, no label, and `None` for each number."""
        config = self.model.config
        is_multi_label = config.problem_type == "multi_label_classification"
        scores = [None] * config.num_labels
        if logits is not None:
            require_no_nan(logits)
            scores = (logits.sigmoid() if is_multi_label else logits.softmax(0)).tolist()
        if config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1):
            return {"values": scores if logits is None else logits.tolist()}
        probabilities = {config.id2label[index]: score for index, score in enumerate(scores)}
        if is_multi_label:
            labels = [name for name, probability in probabilities.items() if (probability or 0) > 0.5]
            return {"labels": labels, "probabilities": probabilities}
        label = None if logits is None else max(probabilities, key=probabilities.__getitem__)
        return {"label": label, "probability": probabilities.get(label), "probabilities": probabilities}

    def _tags(self, words: list[list[str]], is_word: Tensor, output: Any) -> list[dict[str, Any]]:
        scores, inside = compact(output.logits, is_word)
        require_no_nan(scores[inside])
        crf = self.model.crf
        probabilities = scores.double().softmax(2) if crf is None else crf(scores, inside, marginals=True)
        tags = probabilities.argmax(2) if crf is None else compact(output.tags, is_word)[0]
        chosen = probabilities.gather(2, tags.clamp(min=0)[:, :, None])[:, :, 0]
        records = []
        for row, mask, labels, values in zip(words, inside, tags, chosen, strict=True):
            names = [self.model.config.id2label[label] for label in labels[mask].tolist()]
            records.append({"words": row, "tags": names, "probabilities": values[mask].tolist()})
        return records


def _tsv_lines(record: dict[str, Any]) -> str:
    """The lines of a record; a label or number that is `None` is an empty column, a tab in a word a space."""
    if "tags" in record:
        words = (re.sub(r"[\t\r\n]", " ", word) for word in record["words"])
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, record["tags"], strict=True)) + "\n"
    if "answer" in record:
        return f"{' '.join(record['answer'].split())}\t{record['score']:.6f}\n"
    if "values" in record:
        return "\t".join("" if value is None else str(value) for value in record["values"]) + "\n"
    columns = record["probabilities"].items() if "labels" in record else [(record["label"], record["probability"])]
    return "\t".join(f"{name or ''}\t" + ("" if value is None else f"{value:.6f}") for name, value in columns) + "\n"


# The ending of an output, and the lines of a record.
LINES = {".jsonl": lambda record: json.dumps(record, ensure_ascii=False) + "\n", ".tsv": _tsv_lines}
