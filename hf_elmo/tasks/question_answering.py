"""Question answering: rows for training, long passages in pieces, the best span over all pieces, SQuAD's metrics."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from transformers import BatchEncoding, EvalPrediction

from ..checkpoints.loading import Device, load_head
from ..configuration_elmo import IGNORE_INDEX
from ..modeling_question_answering_elmo import ElmoForQuestionAnswering
from ..text_elmo import as_list
from ..tokenization_elmo import ElmoTokenizer
from ..utils.extras import extra_needed
from .task import Metrics, Piece, Record, Task

MAX_LENGTH = 384  # positions of a row
STRIDE = 128  # words that a piece of a passage shares with the next
MAX_ANSWER_WORDS = 17  # as Peters et al. 2018, appendix on question answering
BIDAF_ANSWER_WORDS = 1000  # longer answers are not worth the memory: it is linear in this number, too

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
    """Rows for [`ElmoForQuestionAnswering`], as columns for `datasets`. A question has one row, or several if its
    passage is long, as in transformers' examples; or none if the question or the passage is blank.

    Args:
        tokenizer, passages: the model's tokenizer, and the passage of each question.
        answers: the answers to each question, as in SQuAD: `{"text": [...], "answer_start": [...]}`, with the start in
            characters. The label consists of all words that overlap the first answer.
        allow_no_answer: as in the model's configuration: a piece without the answer has label 0, else -100 (no loss).
        max_length: positions of a row: the question, a piece of the passage, and four boundaries. Rows are longer if
            the question is so long that a piece would have no more than `stride` words.
        stride, pretokenized: the words that a piece shares with the one before; whether whitespace separates words.
        numbers: of the questions, for `piece`; by default 0, 1, ... A `map` must pass them: each batch begins at 0.
        labeled_only: leave out rows without a label, which Trainer's loss would count; [`squad_metrics`] needs them.

    Returns:
        the tokenizer's columns; if there are `answers`, also `start_positions` and `end_positions`; and `piece` for
        [`squad_metrics`]: the number of the question, the position of the piece's first word in its row, the index of
        this word in the passage, and the number of words of the piece.

    Raises:
        ValueError: the text of an answer is not at its `answer_start`.
    """
    questions = as_list(questions, "questions")
    passages = as_list(passages, "passages")
    answers = None if answers is None else as_list(answers, "answers")
    numbers = range(len(questions)) if numbers is None else as_list(numbers, "numbers")
    names = [*tokenizer.model_input_names, "piece"]
    if answers is not None:
        names += ["start_positions", "end_positions"]
        offsets = _word_offsets(tokenizer, passages, pretokenized)
        spans = [_answer_words(*each) for each in zip(numbers, answers, passages, offsets, strict=True)]
    texts = [tokenizer.split_into_words(own, True) if pretokenized else list(own) for own in (questions, passages)]
    encoded = tokenizer(*texts, is_split_into_words=pretokenized)
    rows: list[dict[str, Any]] = []
    for row, encoding in enumerate(encoded.encodings):
        if not {0, 1} <= set(encoding.sequence_ids):  # a text is blank
            continue
        whole = {name: encoded[name][row] for name in tokenizer.model_input_names}
        first = encoding.sequence_ids.index(1)
        words = encoding.sequence_ids.count(1)
        room = max_length - first - 1  # for words of the passage
        room = room if room > stride else stride + max_length
        for begin in range(0, max(1, words - stride), room - stride):
            piece = [numbers[row], first, begin, min(room, words - begin)]
            inside = slice(first + begin, first + begin + piece[3])
            values = {name: own[:first] + own[inside] + own[-1:] for name, own in whole.items()} | {"piece": piece}
            if answers is not None:
                label = (0, 0) if allow_no_answer else (IGNORE_INDEX, IGNORE_INDEX)
                if spans[row] is not None and begin <= spans[row][0] and spans[row][1] < begin + piece[3]:
                    label = (spans[row][0] + first - begin, spans[row][1] + first - begin)
                if labeled_only and label[0] == IGNORE_INDEX:
                    continue
                values |= {"start_positions": label[0], "end_positions": label[1]}
            rows.append(values)
    return {name: [values[name] for values in rows] for name in names}


def _word_offsets(tokenizer: ElmoTokenizer, passages: Sequence[str], pretokenized: bool) -> list[np.ndarray]:
    """The start and end of the words of each passage, `[words, 2]`, in characters."""
    distinct = list(dict.fromkeys(passages))  # SQuAD asks several questions of a passage
    if pretokenized or not distinct:
        words = r"[\ud800-\udfff]*[^\s\ud800-\udfff]\S*"  # not of lone surrogates alone, which are dropped
        offsets = [[match.span() for match in re.finditer(words, passage)] for passage in distinct]
    else:
        offsets = tokenizer(distinct, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    of_passage = {text: np.array(own, np.int64).reshape(-1, 2) for text, own in zip(distinct, offsets, strict=True)}
    return [of_passage[passage] for passage in passages]


def _answer_words(number: int, answers: Answers, passage: str, offsets: np.ndarray) -> tuple[int, int] | None:
    """The first and the last word of the first answer; `None` without an answer."""
    if not len(answers["text"]):
        return None
    text = answers["text"][0]
    start = int(answers["answer_start"][0])
    end = start + len(text)
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    if start < 0 or passage[start:end] != text or first > last:
        raise ValueError(f"answers of question {number}: {text!r:.60} does not begin at 'answer_start' ({start}).")
    return first, last


def squad_metrics(
    tokenizer: ElmoTokenizer,
    passages: Sequence[str],
    answers: Sequence[Answers],
    *,
    allow_no_answer: bool = False,
    max_answer_words: int = MAX_ANSWER_WORDS,
    pretokenized: bool = False,
) -> Metrics:
    """`compute_metrics` of Trainer for answers: exact match and F1 (Rajpurkar et al. 2016), by torchmetrics. The best
    span over all pieces of a passage is compared with all answers to the question. Trainer passes on the column `piece`
    if its arguments have `label_names=["start_positions", "end_positions", "piece"]`.

    Args:
        tokenizer, passages, answers, allow_no_answer, pretokenized: as for [`encode_questions`]; the numbers in `piece`
            are indices into `passages` and `answers`. Questions without rows in a data set are not counted.
        max_answer_words: the maximum number of words in an answer.

    Returns:
        a function from predictions to `exact_match` and `f1`, as fractions; ValueError if a piece has no row.
    """
    with extra_needed("train"):
        from torchmetrics.functional.text.squad import squad

    passages = as_list(passages, "passages")
    answers = as_list(answers, "answers")
    offsets = _word_offsets(tokenizer, passages, pretokenized)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        starts, ends, *_ = prediction.predictions
        pieces = prediction.label_ids[-1]
        predicted = []
        truth = []
        for number in np.unique(pieces[:, 0]).tolist():
            rows = np.flatnonzero(pieces[:, 0] == number)
            first, end = np.array(sorted((start, start + words) for start, words in pieces[rows, 2:])).T
            is_joined = (first[:-1] < first[1:]).all() and (first[1:] <= end[:-1]).all()
            if not is_joined or first[0] != 0 or end[-1] != len(offsets[number]):
                why = "rows are missing, or several questions have this number: pass numbers to encode_questions"
                raise ValueError(f"piece: the rows of question {number} are not all pieces of its passage: {why}")
            logits = zip(pieces[rows].tolist(), starts[rows], ends[rows], strict=True)
            best = _best(logits, passages[number], offsets[number], allow_no_answer, max_answer_words)
            predicted.append({"id": str(number), "prediction_text": best["answer"]})
            truth.append({"id": str(number), "answers": {"text": list(answers[number]["text"]) or [""]}})
        return {name: float(value) / 100 for name, value in squad(predicted, truth).items()}

    return compute


def _best(logits: Iterable[tuple], passage: str, offsets: np.ndarray, allow_no_answer: bool, max_words: int) -> Record:
    """The record of the best answer to a question, from the logits of starts and ends of each piece of its passage. The
    score of a span is the maximum over pieces, that of no answer the minimum, as other pieces may have the answer."""
    spans = np.full((len(offsets), max_words), -np.inf)  # by first word, and by length minus 1
    no_answer = np.inf
    for (_, position, first, words), start, end in logits:
        inside = slice(position, position + words)
        ends = np.concatenate((np.asarray(end[inside], np.float64), np.full(max_words - 1, -np.inf)))
        ends = np.lib.stride_tricks.sliding_window_view(ends, max_words)
        scores = np.asarray(start[inside], np.float64)[:, None] + ends
        spans[first : first + words] = np.maximum(spans[first : first + words], scores)
        no_answer = min(no_answer, float(start[0]) + float(end[0]))
    no_answer = no_answer if allow_no_answer else -np.inf
    first, more = np.unravel_index(spans.argmax(), spans.shape)
    best = max(spans[first, more], no_answer)
    total = np.exp(spans - best).sum() + np.exp(no_answer - best)
    record = {"answer": "", "score": float(1 / total), "start": 0, "end": 0}
    if no_answer <= spans[first, more]:
        begin = int(offsets[first, 0])
        end = int(offsets[first + more, 1])
        record |= {"answer": passage[begin:end], "start": begin, "end": end}
    return record | {"no_answer_probability": float(np.exp(no_answer - best) / total)}


def answer(
    model: ElmoForQuestionAnswering | str | os.PathLike,
    question: str | Sequence[str],
    passage: str | Sequence[str],
    *,
    tokenizer: ElmoTokenizer | None = None,
    device: Device = None,
    batch_tokens: int = 4096,
    max_length: int | None = None,
    stride: int = STRIDE,
    max_answer_words: int | None = None,
    pretokenized: bool = False,
) -> dict[str, Any] | list[dict[str, Any]]:
    """Answer one question, or several, each from a passage. Long passages are read in pieces; the answer is the best
    span of all pieces. A result does not depend on the other questions (up to rounding).

    Args:
        model, tokenizer, device, batch_tokens: as for [`predict`].
        question, passage: one question or a list; one passage for all questions, or a list with one for each.
        max_length, stride, pretokenized, max_answer_words: as for [`encode_questions`] and [`squad_metrics`]. By
            default, a model of `encoder_type="bidaf"` reads whole passages and gives answers of up to 1,000 words.

    Returns:
        a record for each question: `answer`, the text of the passage from the character `start` to `end`; `score`, the
        probability of the answer among all spans of up to `max_answer_words` words and "no answer"; and
        `no_answer_probability`, the probability of "no answer". If this is higher than that of each span, `answer` is
        empty, and `score` is `no_answer_probability`. It is 1 if the question or the passage is blank.

    Raises:
        ValueError: the scores are NaN, the model has another head, or the tokenizer belongs to another model.
    """
    questions = [question] if isinstance(question, str) else as_list(question, "question")
    passages = [passage] * len(questions) if isinstance(passage, str) else as_list(passage, "passage")
    model, tokenizer = load_head(model, tokenizer, device, ElmoForQuestionAnswering)
    how = {"max_length": max_length, "stride": stride, "max_answer_words": max_answer_words}
    task = QuestionAnsweringTask(model, tokenizer, batch_tokens, pretokenized, **how)
    records = task.run(list(zip(questions, passages, strict=True)))
    return records[0] if isinstance(question, str) else records


class QuestionAnsweringTask(Task):
    """The answer to a question from a passage, which is read in several pieces if it is long."""

    rows_at_once = 64  # because all pieces of their passages are in memory
    reads = "pairs of a question and a passage, both strings"
    types = str, str

    def __init__(self, *args: Any, max_answer_words: int | None = None, **lengths: Any) -> None:
        super().__init__(*args)
        is_bidaf = self.model.config.encoder_type == "bidaf"  # whose memory is linear in the length of a passage
        self.max_answer_words = max_answer_words or (BIDAF_ANSWER_WORDS if is_bidaf else MAX_ANSWER_WORDS)
        self.lengths = lengths | {"max_length": lengths.get("max_length") or (sys.maxsize if is_bidaf else MAX_LENGTH)}

    def encode(self, rows: Sequence[Any]) -> list[Piece]:
        if not rows:
            return []
        texts = zip(*rows, strict=True)
        columns = encode_questions(self.tokenizer, *texts, pretokenized=self.pretokenized, **self.lengths)
        pieces = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        return [Piece(piece["piece"][0], len(piece["attention_mask"]), piece) for piece in pieces]

    def collate(self, pieces: Sequence[Any]) -> BatchEncoding:
        inputs = [{name: piece[name] for name in self.tokenizer.model_input_names} for piece in pieces]
        return self.tokenizer.pad(inputs, return_tensors="pt")

    def decode(self, pieces: Sequence[Any], inputs: BatchEncoding, output: Any) -> Iterator[Any]:
        starts, ends = (part.double().cpu().numpy() for part in (output.start_logits, output.end_logits))
        return zip([piece["piece"] for piece in pieces], starts, ends, strict=True)

    def join(self, row: Any, results: list[Any]) -> Record:
        if not results:
            return {"answer": "", "score": 1.0, "start": 0, "end": 0, "no_answer_probability": 1.0}
        (offsets,) = _word_offsets(self.tokenizer, [row[1]], self.pretokenized)
        words = min(self.max_answer_words, len(offsets))
        return _best(results, row[1], offsets, self.model.config.allow_no_answer, words)

    @staticmethod
    def write(record: Record) -> str:
        return f"{' '.join(record['answer'].split())}\t{record['score']:.6f}\n"
