"""Question answering: rows for training, long passages in pieces, the best span over all pieces, SQuAD's metrics."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

from ..configuration_elmo import IGNORE_INDEX
from ..modeling_question_answering_elmo import ElmoForQuestionAnswering
from ..tokenization_elmo import ElmoTokenizer, drop_surrogates, require_list
from ..utils.evaluation import evaluation_mode
from ..utils.extras import extra_needed
from .heads import in_batches, load_head, require_no_nan, tokens_of_batch

MAX_LENGTH, STRIDE = 384, 128  # positions of a row, and words that a piece of a passage shares with the next
MAX_ANSWER_WORDS = 17  # as Peters et al. 2018, appendix on question answering

NO_ANSWER = {"answer": "", "score": 1.0, "start": 0, "end": 0, "no_answer_probability": 1.0}

Answers = Mapping[str, Sequence]  # as in SQuAD: "text" and "answer_start" of each answer; empty if there is none


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
    Rows for [`ElmoForQuestionAnswering`], as columns for `datasets`. A question has one row, or several if its passage
    is long, as in transformers' question-answering examples; or none if the question or the passage is blank.

    Args:
        tokenizer: the model's.
        passages: the passage of each question.
        answers: the answers to each question, as in SQuAD: `{"text": [...], "answer_start": [...]}`, with the start in
            characters. The label consists of all words that overlap the first answer.
        allow_no_answer: as in the model's configuration. The label of a piece of a passage without the answer is
            position 0 ("no answer") if true, otherwise -100, which has no loss.
        max_length: positions of a row: the question, a piece of the passage, and four boundaries.
        stride: the number of words that a piece shares with the piece before.
        numbers: the number of each question, for the column `piece`; by default 0, 1, ... A `map` in batches must
            pass them, because otherwise each batch would begin at 0.
        pretokenized: whether the texts are tokenized already, so that they are split only at whitespace.
        labeled_only: leave out rows without a label, for training and `eval_loss`, because Trainer weights batches by
            all their rows. [`squad_metrics`] needs all rows.

    Returns:
        the tokenizer's columns; if there are `answers`, also `start_positions` and `end_positions`; and `piece` for
        [`squad_metrics`]: the number of the question, the position of the piece's first word in its row, the index of
        this word in the passage, and the number of words of the piece.

    Raises:
        ValueError: the text of an answer is not at its `answer_start`.

    Example:

    ```python
    >>> def encode(batch, numbers):
    ...     return encode_questions(tokenizer, batch["question"], batch["context"], batch["answers"], numbers=numbers)
    >>> dev = squad.map(encode, batched=True, with_indices=True, remove_columns=squad.column_names)
    >>> metrics = squad_metrics(tokenizer, squad["context"], squad["answers"])
    >>> arguments = TrainingArguments(folder, label_names=["start_positions", "end_positions", "piece"])
    ```"""
    require_list(questions, "questions")
    require_list(passages, "passages")
    numbers = range(len(questions)) if numbers is None else numbers
    texts = [tokenizer.split_into_words(own, True) if pretokenized else list(own) for own in (questions, passages)]
    encoded = tokenizer(
        *texts,
        is_split_into_words=pretokenized,
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
    )
    rows = [row for row, encoding in enumerate(encoded.encodings) if {0, 1} <= set(encoding.sequence_ids)]
    columns: dict[str, list] = {key: [encoded[key][row] for row in rows] for key in tokenizer.model_input_names}
    question_of_row, columns["piece"] = [encoded["overflow_to_sample_mapping"][row] for row in rows], []
    for question, row in zip(question_of_row, rows, strict=True):
        encoding = encoded.encodings[row]
        first, count = encoding.sequence_ids.index(1), encoding.sequence_ids.count(1)
        columns["piece"].append([numbers[question], first, encoding.word_ids[first], count])
    if answers is not None:
        offsets = _word_offsets(tokenizer, passages, pretokenized)
        spans = [_answer_words(*each) for each in zip(numbers, answers, passages, offsets, strict=True)]
        pieces = zip(question_of_row, columns["piece"], strict=True)
        labels = [_positions(spans[question], piece, allow_no_answer) for question, piece in pieces]
        kept = [row for row, (start, _) in enumerate(labels) if start != IGNORE_INDEX or not labeled_only]
        columns = {name: [column[row] for row in kept] for name, column in columns.items()}
        for side, name in enumerate(("start_positions", "end_positions")):
            columns[name] = [labels[row][side] for row in kept]
    return columns


def _word_offsets(tokenizer: ElmoTokenizer, passages: Sequence[str], pretokenized: bool) -> list[np.ndarray]:
    """The start and end of the words of each passage, `[words, 2]`, in characters."""
    distinct = list(dict.fromkeys(passages))
    if pretokenized or not distinct:
        offsets = [[match.span() for match in re.finditer(r"\S+", passage)] for passage in distinct]
    else:
        offsets = tokenizer(distinct, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    arrays = [np.array(word_spans, dtype=np.int64).reshape(-1, 2) for word_spans in offsets]
    of_passage = dict(zip(distinct, arrays, strict=True))
    return [of_passage[passage] for passage in passages]


def _answer_words(number: int, answers: Answers, passage: str, offsets: np.ndarray) -> tuple[int, int] | None:
    """The first and the last word of the first answer; `None` without an answer."""
    if not len(answers["text"]):
        return None
    text, start = answers["text"][0], int(answers["answer_start"][0])
    end = start + len(text)
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    if start < 0 or passage[start:end] != text or first > last:
        raise ValueError(
            f"answers of question {number}: {text!r:.60} is not at character {start} of the passage ('answer_start')."
        )
    return first, last


def _positions(span: tuple[int, int] | None, piece: Sequence[int], allow_no_answer: bool) -> tuple[int, int]:
    """The label of a piece: the positions of the first and the last word of the answer in the row."""
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
    `compute_metrics` of Trainer for answers: exact match and F1 (Rajpurkar et al. 2016), by torchmetrics. The best span
    over all pieces of a passage is compared with all answers to the question. Trainer passes on the column `piece` if
    `label_names` of its arguments has it, as in the example of [`encode_questions`].

    Args:
        tokenizer, passages, answers, pretokenized: as for [`encode_questions`]; the numbers in `piece` are indices into
            `passages` and `answers`. Questions without rows in a data set are not counted.
        allow_no_answer: as in the model's configuration.
        max_answer_words: the maximum number of words in an answer.

    Returns:
        a function from predictions to `exact_match` and `f1`, as fractions. It raises a ValueError if the rows of a
        question are not all pieces of its passage.
    """
    with extra_needed():
        from torchmetrics.functional.text.squad import squad

    require_list(passages, "passages")
    offsets = _word_offsets(tokenizer, passages, pretokenized)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        pieces = prediction.label_ids[-1]
        for number in np.unique(pieces[:, 0]):
            first, words = pieces[pieces[:, 0] == number][:, 2:].T
            order, end = np.argsort(first), first + words
            joined = (np.diff(first[order]) > 0) & (first[order][1:] <= end[order][:-1])
            if not joined.all() or first.min() != 0 or end.max() != len(offsets[number]):
                raise ValueError(
                    f"piece: the rows of question {number} are not all pieces of its passage. Rows are missing, or "
                    "several questions have this number: pass numbers to encode_questions."
                )
        start, end, *_ = prediction.predictions
        scores = _span_scores(start, end, pieces, offsets, max_answer_words)
        predicted, truth = [], []
        for number, (spans, no_answer) in scores.items():
            best = _best(spans, no_answer if allow_no_answer else -np.inf, passages[number], offsets[number])
            predicted.append({"id": str(number), "prediction_text": best["answer"]})
            texts = list(answers[number]["text"]) or [""]
            truth.append({"id": str(number), "answers": {"text": texts, "answer_start": [0] * len(texts)}})
        return {name: float(value) / 100 for name, value in squad(predicted, truth).items()}

    return compute


def _span_scores(
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    pieces: np.ndarray,
    offsets: Sequence[np.ndarray],
    max_answer_words: int,
) -> dict[int, tuple[np.ndarray, float]]:
    """For each question, the scores of its spans `[words, max_answer_words]`, by first word and by length minus 1, the
    maximum over pieces; and the score of no answer, the minimum over pieces, as other pieces may have the answer."""
    scores: dict[int, tuple[np.ndarray, float]] = {}
    for start, end, (number, position, first, words) in zip(start_logits, end_logits, pieces.tolist(), strict=True):
        spans, no_answer = scores.get(number, (None, np.inf))
        if spans is None:
            spans = np.full((len(offsets[number]), max_answer_words), -np.inf)
        passage = slice(position, position + words)
        ends = np.concatenate((np.asarray(end[passage], np.float64), np.full(max_answer_words - 1, -np.inf)))
        ends = np.lib.stride_tricks.sliding_window_view(ends, max_answer_words)
        of_piece = np.asarray(start[passage], np.float64)[:, None] + ends
        spans[first : first + words] = np.maximum(spans[first : first + words], of_piece)
        scores[number] = spans, min(no_answer, float(start[0]) + float(end[0]))
    return scores


def _best(spans: np.ndarray, no_answer: float, passage: str, offsets: np.ndarray) -> dict[str, Any]:
    """The record of the best span, or of no answer if its score `no_answer` is higher (`-inf`: not allowed)."""
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
    Answer one question, or several, each from a passage. Long passages are read in pieces; the answer is the best span
    of all pieces. A result does not depend on the other questions (up to rounding).

    Args:
        model: an [`ElmoForQuestionAnswering`], or its name or folder.
        question: one question, or a list.
        passage: one passage for all questions, or a list with a passage for each question.
        tokenizer, device, batch_tokens: as for [`predict`].
        max_length, stride, pretokenized: as for [`encode_questions`].
        max_answer_words: the maximum number of words in an answer.

    Returns:
        a record for each question: `answer`, the text of the passage from the character `start` to `end`; `score`, the
        probability of the answer among all spans of up to `max_answer_words` words and "no answer"; and
        `no_answer_probability`, the probability of "no answer". If this is higher than that of each span, `answer` is
        empty, and `score` is `no_answer_probability`. It is 1 if the question or the passage is blank.

    Raises:
        ValueError: the scores are NaN, the model has another head, or the tokenizer belongs to another model.
    """
    questions = [question] if isinstance(question, str) else list(question)
    passages = list(map(drop_surrogates, [passage] * len(questions) if isinstance(passage, str) else passage))
    model, tokenizer = load_head(model, tokenizer, device, ElmoForQuestionAnswering)
    if not questions:
        return []
    columns = encode_questions(
        tokenizer, questions, passages, max_length=max_length, stride=stride, pretokenized=pretokenized
    )
    pieces = np.array(columns.pop("piece"))
    records = [dict(NO_ANSWER) for _ in questions]
    if len(pieces):

        def logits(batch: list[int]) -> Iterable[tuple[np.ndarray, np.ndarray]]:
            rows = {key: [column[row] for row in batch] for key, column in columns.items()}
            output = model(**tokenizer.pad(rows, return_tensors="pt").to(model.device))
            require_no_nan(output.start_logits, output.end_logits)
            return zip(*(part.double().cpu().numpy() for part in (output.start_logits, output.end_logits)), strict=True)

        lengths = list(map(len, columns["attention_mask"]))
        with evaluation_mode(model), torch.inference_mode():
            starts, ends = zip(*in_batches(lengths, tokens_of_batch(model, batch_tokens), logits), strict=True)
        offsets = _word_offsets(tokenizer, passages, pretokenized)
        for number, (spans, no_answer) in _span_scores(starts, ends, pieces, offsets, max_answer_words).items():
            no_answer = no_answer if model.config.allow_no_answer else -np.inf
            records[number] = _best(spans, no_answer, passages[number], offsets[number])
    return records[0] if isinstance(question, str) else records
