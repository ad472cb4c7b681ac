"""Questions and passages: rows for training, long passages in pieces, the best span over them, SQuAD's metrics."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

from ..configuration_elmo import IGNORE_INDEX
from ..evaluation import evaluation_mode
from ..modeling_question_answering_elmo import ElmoForQuestionAnswering
from ..optional import import_optional
from ..tokenization_elmo import ElmoTokenizer
from .heads import NOT_FINITE, batches_of, load_head

MAX_LENGTH, STRIDE = 384, 128  # positions of a row, and words that a piece of a passage shares with the next
MAX_ANSWER_WORDS = 17  # as Peters et al. 2018, appendix on question answering
BOUNDARIES = 4  # of a question and a passage

Answers = Mapping[str, Sequence]  # SQuAD's: "text" and "answer_start", of each answer one; empty where there is none


def encode_questions(
    tokenizer: ElmoTokenizer,
    questions: Sequence[str],
    passages: Sequence[str],
    answers: Sequence[Answers] | None = None,
    *,
    allow_no_answer: bool = False,
    max_length: int = MAX_LENGTH,
    stride: int = STRIDE,
    numbers: Sequence[int] | None = None,
    pretokenized: bool = False,
    labeled_only: bool = False,
) -> dict[str, list]:
    """
    Rows for [`ElmoForQuestionAnswering`], as columns for `datasets`: of each question one, or several where its passage
    is long, as in transformers' question-answering examples.

    Args:
        tokenizer: of the model.
        questions: the questions.
        passages: of each question its passage.
        answers: of each question its answers, as SQuAD has them, `{"text": [...], "answer_start": [...]}`, the start in
            characters. The first one is trained on: the words that it touches.
        allow_no_answer: as in the model's configuration. A piece of a passage without the answer is then a row without
            one (position 0), else a row without a label (-100), which adds nothing to a loss.
        labeled_only: leave rows without a label out, for training: Trainer weighs accumulated steps alike, and batches
            in `eval_loss` by their rows, however many have a label. [`squad_metrics`] needs all rows.
        max_length: positions of a row: the question, a piece of the passage, and four boundaries.
        stride: words that a piece shares with the one before.
        numbers: of each question, for the column `piece`; by default 0, 1, ... A `map` in batches, each of which would
            begin at 0, needs them.
        pretokenized: the texts are tokenized already: they are split at whitespace, whatever `word_splitting` is.

    Returns:
        the tokenizer's columns; with `answers` `start_positions` and `end_positions`; and `piece`, for
        [`squad_metrics`]: the number of the question, the position of the piece's first word in its row, the number of
        that word in the passage, and how many words of the passage the row has.

    Raises:
        ValueError: a text has no words, an answer is not in its passage, missing or not as SQuAD has it, or the
            question leaves no more than `stride` words of `max_length`; the message names the question.

    Example:

    ```python
    >>> train = Dataset.from_dict(encode_questions(tokenizer, questions, passages, answers, labeled_only=True))
    >>> def encode(batch, numbers):
    ...     return encode_questions(tokenizer, batch["question"], batch["context"], batch["answers"], numbers=numbers)
    >>> dev = squad.map(encode, batched=True, with_indices=True, remove_columns=squad.column_names)
    >>> metrics = squad_metrics(tokenizer, squad["context"], squad["answers"])
    >>> arguments = TrainingArguments(folder, label_names=["start_positions", "end_positions", "piece"])
    >>> Trainer(model, arguments, DataCollatorWithPadding(tokenizer), train, dev, compute_metrics=metrics)
    ```"""
    for name, texts in (("passages", passages), ("answers", answers)):
        if isinstance(texts, str) or (texts is not None and len(texts) != len(questions)):
            raise ValueError(
                f"{name} must be a list, one for each of {len(questions)} questions, but is {texts!r:.80}."
            )
    if labeled_only and answers is None:
        raise ValueError("labeled_only=True leaves rows without a label out, but there are no answers.")
    numbers = range(len(questions)) if numbers is None else numbers
    words = tokenizer.split_into_words(questions, pretokenized)
    of_passage = _word_offsets(tokenizer, passages, pretokenized)
    offsets = [of_passage[passage] for passage in passages]
    names = [f"question {number} ({text!r:.80})" for number, text in zip(numbers, questions, strict=True)]
    _require_room(names, [len(own) for own in words], [len(places) for places in offsets], max_length, stride)
    encoded = tokenizer(
        words if pretokenized else list(questions),
        tokenizer.split_into_words(passages, pretokenized) if pretokenized else list(passages),
        is_split_into_words=pretokenized,
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
    )
    columns: dict[str, list] = {key: encoded[key] for key in tokenizer.model_input_names}
    of_row, columns["piece"] = encoded["overflow_to_sample_mapping"], []
    for question, encoding in zip(of_row, encoded.encodings, strict=True):
        first, count = encoding.sequence_ids.index(1), encoding.sequence_ids.count(1)
        columns["piece"].append([numbers[question], first, encoding.word_ids[first], count])
    if answers is not None:
        given = zip(answers, names, passages, offsets, strict=True)
        spans = [_answer_words(*one, allow_no_answer) for one in given]
        rows = zip(of_row, columns["piece"], strict=True)
        labels = [_positions(spans[question], piece, allow_no_answer) for question, piece in rows]
        kept = [row for row, (start, _) in enumerate(labels) if start != IGNORE_INDEX or not labeled_only]
        columns = {name: [column[row] for row in kept] for name, column in columns.items()}
        for name, side in (("start_positions", 0), ("end_positions", 1)):
            columns[name] = [labels[row][side] for row in kept]
    return columns


def _word_offsets(tokenizer: ElmoTokenizer, passages: Iterable[str], pretokenized: bool) -> dict[str, np.ndarray]:
    """Of each passage where its words are, `[words, 2]`, in characters."""
    distinct = list(dict.fromkeys(passages))
    if pretokenized:
        places = [[match.span() for match in re.finditer(r"\S+", passage)] for passage in distinct]
    elif distinct:
        places = tokenizer(distinct, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    else:
        places = []
    arrays = (np.array(own, dtype=np.int64).reshape(-1, 2) for own in places)
    return dict(zip(distinct, arrays, strict=True))


def _require_room(names: list[str], questions: list[int], passages: list[int], max_length: int, stride: int) -> None:
    """Refuses texts without words, and questions that leave no room for a piece of their passage (ValueError)."""
    if stride < 0:
        raise ValueError(f"stride is {stride}, but must be 0 or more words.")
    for name, question, passage in zip(names, questions, passages, strict=True):
        for text, words in (("question", question), ("passage", passage)):
            if not words:
                raise ValueError(f"{name}: the {text} has no words; leave it out.")
        room = max_length - BOUNDARIES - question
        if room < passage and room <= stride:
            raise ValueError(
                f"{name} has {question} words, which leave {max(room, 0)} of max_length {max_length} for its passage: "
                f"there must be more than stride, {stride}; raise max_length."
            )


def _answer_words(
    answers: Answers, name: str, passage: str, offsets: np.ndarray, allow_no_answer: bool
) -> tuple[int, int] | None:
    """The first and the last word of the first answer; `None` where there is none."""
    _require_answers(answers, name)
    if not len(answers["text"]):
        if not allow_no_answer:
            raise ValueError(f"{name} has no answer: leave it out, or use allow_no_answer=True, of the model, too.")
        return None
    text, start = answers["text"][0], int(answers["answer_start"][0])
    found = passage[start : start + len(text)] if start >= 0 else ""
    if found != text:
        raise ValueError(
            f"{name}: its answer {text!r:.60} is not at character {start} of its passage of {len(passage)} characters, "
            f"where {found!r:.60} is; answer_start counts characters from 0."
        )
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], start + len(text), side="left")) - 1
    if first > last or not text.strip():
        raise ValueError(f"{name}: its answer {text!r:.60} at character {start} holds no word; leave it out.")
    return first, last


def _require_answers(answers: Answers, name: str) -> None:
    """Refuses answers that are not as SQuAD has them (ValueError)."""
    keys = "text", "answer_start"
    texts, starts = (answers.get(key) if isinstance(answers, Mapping) else None for key in keys)
    if (
        any(isinstance(column, str) or not hasattr(column, "__len__") for column in (texts, starts))
        or len(texts) != len(starts)
        or not all(isinstance(text, str) for text in texts)
        or not all(hasattr(start, "__int__") for start in starts)
    ):
        raise ValueError(
            f"{name}: its answers are {answers!r:.80}, but must be lists of as many texts as starts, as SQuAD has "
            'them: {"text": ["the cat"], "answer_start": [7]}, both empty where there is no answer.'
        )


def _positions(span: tuple[int, int] | None, piece: Sequence[int], allow_no_answer: bool) -> tuple[int, int]:
    """Where the answer is in the row of a piece."""
    _, position, first, words = piece
    if span is not None and first <= span[0] and span[1] < first + words:
        return position + span[0] - first, position + span[1] - first
    return (0, 0) if allow_no_answer else (IGNORE_INDEX, IGNORE_INDEX)


def squad_metrics(
    tokenizer: ElmoTokenizer,
    passages: Sequence[str],
    answers: Sequence[Answers],
    *,
    allow_no_answer: bool = False,
    max_answer_words: int = MAX_ANSWER_WORDS,
    pretokenized: bool = False,
) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    `compute_metrics` of Trainer for answers: exact match and F1 (Rajpurkar et al. 2016), by torchmetrics; of each
    question its best span over all pieces of its passage, against all its answers.

    Trainer hands on the column `piece` if it is named among the labels:
    `TrainingArguments(label_names=["start_positions", "end_positions", "piece"])`. A `map` in batches has to number the
    questions, `encode_questions(..., numbers=indices)` in `map(..., batched=True, with_indices=True)`.

    Args:
        tokenizer, passages, answers, pretokenized: as [`encode_questions`] had them; the numbers in `piece` are indices
            into `passages` and `answers`. Questions that a data set does not have are left out.
        allow_no_answer: as in the model's configuration.
        max_answer_words: no longer span is an answer.

    Returns:
        a function of predictions, to `exact_match` and `f1`, as fractions. It raises a ValueError where the rows of a
        number are not the pieces of its passage.

    Raises:
        ImportError: torchmetrics is not installed.
    """
    import_optional("torchmetrics.functional.text.squad", "squad_metrics", '"hf-elmo[train]"')
    from torchmetrics.functional.text.squad import squad

    offsets = _word_offsets(tokenizer, passages, pretokenized)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        labels = prediction.label_ids
        pieces = labels[-1] if isinstance(labels, tuple) else np.zeros(0)
        if pieces.ndim != 2 or pieces.shape[1] != 4:
            raise ValueError(
                "the labels have no piece: name it, "
                'TrainingArguments(label_names=["start_positions", "end_positions", "piece"]).'
            )
        places = _places(pieces, passages, offsets)
        scores = _span_scores(*prediction.predictions[:2], pieces, places, max_answer_words)
        found, truth = [], []
        for number, (spans, no_answer) in scores.items():
            best = _best(spans, no_answer if allow_no_answer else -np.inf, passages[number], places[number])
            found.append({"id": str(number), "prediction_text": best["answer"]})
            _require_answers(answers[number], f"question {number}")
            texts = list(answers[number]["text"]) or [""]
            truth.append({"id": str(number), "answers": {"text": texts, "answer_start": [0] * len(texts)}})
        return {name: float(value) / 100 for name, value in squad(found, truth).items()}

    return compute


def _places(pieces: np.ndarray, passages: Sequence[str], offsets: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """Of each number in `pieces` where the words of its passage are; refuses rows that are not its pieces
    (ValueError)."""
    of_number: dict[int, list[tuple[int, int]]] = {}
    for number, _, first, words in pieces.tolist():
        of_number.setdefault(number, []).append((first, first + words))
    places = {}
    for number, own in of_number.items():
        if not 0 <= number < len(passages):
            raise ValueError(f"piece holds the number {number}, but there are {len(passages)} passages: see numbers=.")
        places[number] = offsets[passages[number]]
        own, words = sorted(own), len(places[number])
        joined = all(first < begin <= end for (first, end), (begin, _) in pairwise(own))
        if not joined or own[0][0] != 0 or own[-1][1] != words:
            raise ValueError(
                f"number {number} in piece is of rows with the words {own[:3]} (first, end) of a passage, but "
                f"that of question {number} has {words}: rows of several questions have this number, where "
                "encode_questions in a map of batches was not given numbers= (with_indices=True has them), or some of "
                "its rows are missing."
            )
    return places


def _span_scores(
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    pieces: np.ndarray,
    offsets: Mapping[int, np.ndarray],
    max_answer_words: int,
) -> dict[int, tuple[np.ndarray, float]]:
    """Of each question the scores of spans, `[words, max_answer_words]` by their first word and their length less 1,
    and that of no answer. Of pieces that share words a span has its best score, and no answer its lowest, as a piece
    without the answer says little of the others."""
    scores: dict[int, tuple[np.ndarray, float]] = {}
    for start, end, (number, position, first, words) in zip(start_logits, end_logits, pieces.tolist(), strict=True):
        spans, no_answer = scores.get(number, (None, np.inf))
        if spans is None:
            spans = np.full((len(offsets[number]), max_answer_words), -np.inf)
        here = slice(position, position + words)
        ends = np.concatenate((np.asarray(end[here], np.float64), np.full(max_answer_words - 1, -np.inf)))
        own = np.asarray(start[here], np.float64)[:, None] + np.lib.stride_tricks.sliding_window_view(
            ends, max_answer_words
        )
        spans[first : first + words] = np.maximum(spans[first : first + words], own)
        scores[number] = spans, min(no_answer, float(start[0]) + float(end[0]))
    return scores


def _best(spans: np.ndarray, no_answer: float, passage: str, offsets: np.ndarray) -> dict[str, Any]:
    """The record of the best span, or of no answer if that has a better score (`-inf`: it cannot have)."""
    first, more = np.unravel_index(spans.argmax(), spans.shape)
    best = max(spans[first, more], no_answer)
    total = np.exp(spans - best).sum() + np.exp(no_answer - best)
    record = {"answer": "", "score": float(1 / total), "start": 0, "end": 0}
    if no_answer <= spans[first, more]:
        start, end = int(offsets[first, 0]), int(offsets[first + more, 1])
        record |= {"answer": passage[start:end], "start": start, "end": end}
    return record | {"no_answer_probability": float(np.exp(no_answer - best) / total)}


def answer(
    model: ElmoForQuestionAnswering | str | os.PathLike,
    question: str | Sequence[str],
    passage: str | Sequence[str],
    *,
    tokenizer: ElmoTokenizer | None = None,
    device: str | torch.device | None = None,
    batch_tokens: int = 4096,
    max_length: int = MAX_LENGTH,
    stride: int = STRIDE,
    max_answer_words: int = MAX_ANSWER_WORDS,
    pretokenized: bool = False,
) -> dict[str, Any] | list[dict[str, Any]]:
    """
    Answer a question from a passage, or several.

    Long passages are read in pieces; the answer is the best span of all of them. A result does not depend on the other
    questions (up to rounding, which may differ with the shape of a batch).

    Args:
        model: an [`ElmoForQuestionAnswering`], or the name or folder of one.
        question: one, or a list.
        passage: one, also of several questions; or one for each of them.
        tokenizer: by default that of the model's folder.
        device: where to compute; by default a GPU if there is one, for a model the one that it is on.
        batch_tokens: words, boundaries and padding in one batch, unless a single row has more.
        max_length, stride, pretokenized: as [`encode_questions`] has them.
        max_answer_words: no longer span is an answer.

    Returns:
        of each question a record: `answer`, the words of the passage from the character `start` to `end`, as they are
        written there; its probability `score` among all such spans and no answer; and `no_answer_probability`. Where a
        model with `config.allow_no_answer` finds no answer more likely than any span, `answer` is empty and `score` is
        that probability.

    Raises:
        ValueError: the model answers no questions, an input does not fit, as [`encode_questions`] says, or its scores
            are NaN.

    Example:

    ```python
    >>> answer(model, "Where did he sit?", "He sat on the river bank, as he did each day.")["answer"]
    'on the river bank'
    ```"""
    for name, value in (("batch_tokens", batch_tokens), ("max_answer_words", max_answer_words)):
        if value < 1:
            raise ValueError(f"{name} is {value}, but must be 1 or more.")
    one = isinstance(question, str)
    questions = [question] if one else list(question)
    passages = [passage] * len(questions) if isinstance(passage, str) else list(passage)
    if len(questions) != len(passages):
        raise ValueError(
            f"there are {len(questions)} questions, but {len(passages)} passages: give one of each, or one."
        )
    model, tokenizer = load_head((ElmoForQuestionAnswering,), model, tokenizer, device)
    options = batch_tokens, max_length, stride, max_answer_words, pretokenized
    records = answer_all(model, tokenizer, questions, passages, *options)
    for number, record in enumerate(records):
        if not np.isfinite(record["score"]):
            raise ValueError(f"question {number}: its score would be {record['score']}. {NOT_FINITE}")
    return records[0] if one else records


def answer_all(
    model: ElmoForQuestionAnswering,
    tokenizer: ElmoTokenizer,
    questions: Sequence[str],
    passages: Sequence[str],
    batch_tokens: int,
    max_length: int = MAX_LENGTH,
    stride: int = STRIDE,
    max_answer_words: int = MAX_ANSWER_WORDS,
    pretokenized: bool = False,
) -> list[dict[str, Any]]:
    """The records of [`answer`], whose scores may be NaN."""
    if not questions:
        return []
    columns = encode_questions(
        tokenizer, questions, passages, max_length=max_length, stride=stride, pretokenized=pretokenized
    )
    pieces = np.array(columns.pop("piece"))
    logits = _logits(model, tokenizer, columns, batch_tokens)
    of_passage = _word_offsets(tokenizer, passages, pretokenized)
    offsets = {number: of_passage[text] for number, text in enumerate(passages)}
    scores = _span_scores(*zip(*logits, strict=True), pieces, offsets, max_answer_words)
    allow = model.config.allow_no_answer
    return [
        _best(spans, no_answer if allow else -np.inf, passages[number], offsets[number])
        for number, (spans, no_answer) in sorted(scores.items())
    ]


def _logits(
    model: ElmoForQuestionAnswering, tokenizer: ElmoTokenizer, columns: dict[str, list], batch_tokens: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each row the logits of starts and of ends."""
    lengths = [len(mask) for mask in columns["attention_mask"]]
    found: list[Any] = [None] * len(lengths)
    with evaluation_mode(model), torch.inference_mode():
        for batch in batches_of(model, lengths, batch_tokens):
            rows = {key: [column[row] for row in batch] for key, column in columns.items()}
            output = model(**tokenizer.pad(rows, return_tensors="pt").to(model.device))
            both = zip(output.start_logits.double().cpu(), output.end_logits.double().cpu(), strict=True)
            for row, (start, end) in zip(batch, both, strict=True):
                found[row] = start.numpy(), end.numpy()
    return found
