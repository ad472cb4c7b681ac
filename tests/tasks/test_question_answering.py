"""Questions: rows and pieces, the best span over pieces, metrics with Trainer, answers of a model."""

import functools
import tracemalloc
from itertools import combinations_with_replacement

import numpy as np
import pandas
import pytest
import torch
from transformers import EvalPrediction

from hf_elmo import ElmoTokenizer, answer, encode_questions, squad_metrics
from hf_elmo.tasks.question_answering import QuestionAnsweringTask
from tests.factories import save_checkpoint, whitespace_tokenizer
from tests.heads import VECTORS, make

QUESTIONS = ["Who ran?", "What didn't it eat?", "Who ran?"]
PASSAGES = ["The cat's mats (all 10,000) ran  away.", "“It” ate a mouse, and no cheese.", "One dog slept."]
ANSWERS = [
    {"text": ["cat's mats", "The cat's mats"], "answer_start": [4, 0]},
    {"text": ["chees"], "answer_start": [25]},  # a part of a word: the whole word
    {"text": [], "answer_start": []},
]
ONE = QUESTIONS[:1], PASSAGES[:1], ANSWERS[:1]
TOKENIZED = ["Who ran ?", "What did n't it eat ?"], ["The cat 's  mats , ( all 10,000 )\tran .", "It ate no cheese ."]
PIECES = [(False, 384, 128), (False, 16, 3), (True, 384, 128), (True, 13, 0)]
approx = functools.partial(pytest.approx, rel=1e-5)


@pytest.fixture
def words() -> ElmoTokenizer:
    return ElmoTokenizer()


def test_a_row_for_each_question(words) -> None:
    words.words = ["the", "cat"]
    shuffled = (pandas.Series(own, index=[2, 0, 1]) for own in (QUESTIONS, PASSAGES, ANSWERS))
    columns = encode_questions(words, *shuffled, allow_no_answer=True)
    expected = words(QUESTIONS, PASSAGES)
    for key in ("input_ids", "attention_mask", "word_vector_ids"):
        assert columns[key] == expected[key]
    assert columns["piece"] == [[0, 6, 0, 11], [1, 9, 0, 11], [2, 6, 0, 4]]
    tokens = [expected.tokens(row) for row in range(3)]
    starts, ends = columns["start_positions"], columns["end_positions"]
    found = [own[start : end + 1] for own, start, end in zip(tokens, starts, ends, strict=True)]
    assert found == [["cat", "'s", "mats"], ["cheese"], ["<S>"]]
    assert columns.keys() - {"start_positions", "end_positions"} == encode_questions(words, QUESTIONS, PASSAGES).keys()


def test_pieces_share_the_words_of_stride(words) -> None:
    given = {"max_length": 12, "stride": 2}
    columns = encode_questions(words, *ONE, numbers=[70], **given)
    assert columns["piece"] == [[70, 6, 0, 5], [70, 6, 3, 5], [70, 6, 6, 5]]
    assert [len(row) for row in columns["input_ids"]] == [12, 12, 12]
    whole = encode_questions(words, *ONE[:2])["input_ids"][0]
    assert columns["input_ids"][1] == whole[:6] + whole[9:14] + whole[-1:]
    labeled = encode_questions(words, *ONE, numbers=[70], **given, labeled_only=True)
    assert labeled == {name: column[:1] for name, column in columns.items()}
    columns = encode_questions(words, *ONE, allow_no_answer=True, **given)
    assert (columns["start_positions"], columns["end_positions"]) == ([7, 0, 0], [9, 0, 0])


def test_an_answer_is_the_label_of_the_pieces_that_have_all_its_words(words) -> None:
    offsets = words(PASSAGES[0], return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
    for first, last in combinations_with_replacement(range(11), 2):
        start, end = offsets[first][0], offsets[last][1]
        answers = [{"text": [PASSAGES[0][start:end]], "answer_start": [start]}]
        columns = encode_questions(words, *ONE[:2], answers, max_length=12, stride=2)
        places = [(6 + first - begin, 6 + last - begin) for begin in (0, 3, 6)]  # pieces of five words
        expected = [(a, b) if a >= 6 and b < 11 else (-100, -100) for a, b in places]
        assert [*zip(columns["start_positions"], columns["end_positions"], strict=True)] == expected


def test_a_question_that_leaves_a_passage_no_room_makes_longer_rows(words) -> None:
    long, passages = " ".join(["which"] * 260), [PASSAGES[0], " ".join(PASSAGES[1:2] * 70)]
    columns = encode_questions(words, [QUESTIONS[0], long], passages)
    assert columns["piece"] == [[0, 6, 0, 11], [1, 263, 0, 512], [1, 263, 384, 386]]
    whole, rows = words([long], passages[1:])["input_ids"][0], columns["input_ids"]
    assert rows[1:] == [whole[: 263 + 512] + whole[-1:], whole[:263] + whole[263 + 384 :]]
    alone, both = (answer(make("answers"), own, passages[0], tokenizer=words) for own in (long, [QUESTIONS[0], long]))
    assert (alone["answer"], alone["score"]) == (both[1]["answer"], approx(both[1]["score"]))


def test_a_question_without_words_or_with_a_blank_passage_has_no_row_and_no_answer(words) -> None:
    questions, passages = [*QUESTIONS, "Who?", " "], [*PASSAGES, "\n", "He."]
    answers = [*ANSWERS, *[{"text": [], "answer_start": []}] * 2]
    expected = encode_questions(words, QUESTIONS, PASSAGES, ANSWERS)
    assert encode_questions(words, questions, passages, answers) == expected
    found = answer(make("answers"), questions[::-1], passages[::-1], tokenizer=words)
    nothing = {"answer": "", "score": 1.0, "start": 0, "end": 0, "no_answer_probability": 1.0}
    assert found[:2] == [nothing, nothing] == answer(make("answers"), questions[3:], passages[3:], tokenizer=words)
    assert all(record["answer"] for record in found[2:])


def test_tokenized_text(words) -> None:
    answers = [{"text": ["10,000 )\tran"], "answer_start": [25]}, {"text": ["It"], "answer_start": [0]}]
    columns = encode_questions(words, *TOKENIZED, answers, pretokenized=True)
    split = [[text.split() for text in texts] for texts in TOKENIZED]
    assert columns["input_ids"] == words(*split, is_split_into_words=True)["input_ids"]
    assert (columns["start_positions"], columns["end_positions"]) == ([13, 9], [15, 9])
    assert encode_questions(whitespace_tokenizer(), *TOKENIZED, answers) == columns
    found = answer(make("answers"), *TOKENIZED, tokenizer=words, pretokenized=True, max_answer_words=3)
    assert found == answer(make("answers"), *TOKENIZED, tokenizer=whitespace_tokenizer(), max_answer_words=3)
    for record, passage in zip(found, TOKENIZED[1], strict=True):
        assert passage[record["start"] : record["end"]] == record["answer"]


def test_an_answer_that_is_not_at_its_place_is_refused(words) -> None:
    for text, start in (("cat", 5), ("away.", -5), ("  ", 31)):
        with pytest.raises(ValueError, match="question 7"):
            encode_questions(words, *ONE[:2], [{"text": [text], "answer_start": [start]}], numbers=[7])


def test_bidaf_reads_whole_passages_and_gives_long_answers(words) -> None:
    model, passage = make("bidaf"), " ".join(PASSAGES[0].split() * 40)
    limits = {"max_length": 999, "max_answer_words": 440}
    found = answer(model, QUESTIONS[0], passage, tokenizer=words)
    assert found == answer(model, QUESTIONS[0], passage, tokenizer=words, **limits)
    task = QuestionAnsweringTask(model, words, 1, False)
    logits = np.zeros(3001)
    tracemalloc.start()
    task.join(("a", "a " * 3000), [([0, 1, 0, 3000], logits, logits)])  # not all 9,000,000 spans
    assert tracemalloc.get_traced_memory()[1] < 2 * 8 * 3000**2
    tracemalloc.stop()


def best_by_loops(model, tokenizer, question: str, passage: str, longest: int, **given) -> dict[tuple[int, int], float]:
    """The scores of all spans by their characters, of no answer at (0, 0): each piece by itself."""
    how = {"truncation": "only_second", "return_overflowing_tokens": True, "return_offsets_mapping": True}
    encoded, scores, nothing = tokenizer([question], [passage], **how, **given), {}, []
    for row, encoding in enumerate(encoded.encodings):
        output = model(**{key: torch.tensor([encoded[key][row]]) for key in tokenizer.model_input_names})
        start, end = output.start_logits[0].double().detach(), output.end_logits[0].double().detach()
        places = [place for place, number in enumerate(encoding.sequence_ids) if number == 1]
        for a in places:
            for b in range(a, min(a + longest, places[-1] + 1)):
                key = encoding.offsets[a][0], encoding.offsets[b][1]
                scores[key] = max(scores.get(key, -1e9), float(start[a] + end[b]))
        nothing.append(float(start[0] + end[0]))
    return scores | ({(0, 0): min(nothing)} if model.config.allow_no_answer else {})


@pytest.mark.parametrize(("no_answer", "max_length", "stride"), PIECES)
def test_answers_are_the_best_spans_over_pieces(words, no_answer: bool, max_length: int, stride: int) -> None:
    words.words = ["the", "cat", "mouse", "dog"]
    model, empty = make("answers", allow_no_answer=no_answer, **VECTORS), 0
    passages = [" ".join([PASSAGES[0], PASSAGES[1]] * 2), PASSAGES[1], PASSAGES[2]]
    given = {"max_length": max_length, "stride": stride}
    for shift in (-4.0, 4.0) if no_answer else (0.0,):
        if no_answer:
            model.qa_outputs.span.no_answer.bias.data.fill_(shift)
        found = answer(model, QUESTIONS, passages, tokenizer=words, max_answer_words=4, batch_tokens=30, **given)
        for record, question, passage in zip(found, QUESTIONS, passages, strict=True):
            scores = best_by_loops(model, words, question, passage, 4, **given)
            total = np.logaddexp.reduce(list(scores.values()))
            (start, end), score = max(scores.items(), key=lambda item: item[1])
            nothing = np.exp(scores[0, 0] - total) if no_answer else 0.0
            chances = {"score": approx(np.exp(score - total)), "no_answer_probability": approx(nothing)}
            assert record == {"start": start, "end": end, "answer": passage[start:end], **chances}
            empty += record["answer"] == ""
    assert 0 < empty < 6 if no_answer else empty == 0


def test_one_question_and_several(words, tmp_path) -> None:
    model = make("answers", scalar_mix_layer_norm=True)
    several = answer(model, QUESTIONS[:2], PASSAGES[0], tokenizer=words)
    for surrogate in ("\ud83d", "\ud83d "):  # is dropped, but counts in the places of characters
        passage = surrogate + PASSAGES[0]
        for pretokenized in (False, True):
            how = {"tokenizer": words, "pretokenized": pretokenized}
            without, one = (answer(model, QUESTIONS[1], text, **how) for text in (PASSAGES[0], passage))
            assert (one["answer"].lstrip(surrogate), one["score"]) == (without["answer"], without["score"])
            assert one["answer"] == passage[one["start"] : one["end"]]
    one = answer(model, QUESTIONS[1], PASSAGES[0], tokenizer=words)
    assert one == several[1]
    assert answer(model, [], [], tokenizer=words) == []
    save_checkpoint(tmp_path, model, words)
    assert answer(tmp_path, QUESTIONS[1], PASSAGES[0])["answer"] == one["answer"]


def prediction(columns: dict, spans: list[tuple[int, int] | None]) -> EvalPrediction:
    """Logits that have a span in each row, `None` for no answer; shorter rows padded as Trainer does it."""
    length = max(len(mask) for mask in columns["attention_mask"])
    logits = np.full((2, len(spans), length), -5.0)
    for row, span in enumerate(spans):
        logits[:, row, len(columns["attention_mask"][row]) :] = -100
        for side, place in enumerate((0, 0) if span is None else span):
            logits[side, row, place] = 5.0
    labels = tuple(np.array(columns[name]) for name in ("start_positions", "end_positions", "piece"))
    return EvalPrediction(tuple(logits), labels)


def test_metrics_are_those_of_squad(words) -> None:
    columns = encode_questions(words, QUESTIONS, PASSAGES, ANSWERS, allow_no_answer=True)
    passages, answers = (pandas.Series(own, index=[2, 0, 1]) for own in (PASSAGES, ANSWERS))
    metrics = squad_metrics(words, passages, answers, allow_no_answer=True)
    found = metrics(prediction(columns, [(7, 9), (17, 17), None]))
    assert found == {"exact_match": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)}
    # "The cat's mats" is another answer to the first question; for the second, "no cheese" is found, but "chees" right.
    found = metrics(prediction(columns, [(6, 9), (16, 17), (6, 7)]))
    assert found == {"exact_match": pytest.approx(1 / 3), "f1": pytest.approx(1 / 3)}
    forced = squad_metrics(words, PASSAGES, ANSWERS)  # no answer is not looked at
    assert forced(prediction(columns, [(7, 9), None, None]))["exact_match"] == pytest.approx(1 / 3)


def test_metrics_join_pieces_of_numbered_rows(words) -> None:
    """Each batch of a map would number its questions from 0; Trainer's metrics would join their pieces."""
    numbers, given = [0, 2], {"max_length": 12, "stride": 2, "allow_no_answer": True}
    texts = [[rows[i] for i in numbers] for rows in (QUESTIONS, PASSAGES, ANSWERS)]
    columns = encode_questions(words, *texts, numbers=numbers, **given)
    metrics = squad_metrics(words, PASSAGES, ANSWERS, allow_no_answer=True)
    assert [piece[0] for piece in columns["piece"]] == [0, 0, 0, 2]
    assert metrics(prediction(columns, [(7, 9), None, None, None])) == {"exact_match": 1.0, "f1": 1.0}
    assert metrics(prediction(columns, [None, None, None, None])) == {"exact_match": 0.5, "f1": 0.5}
    parts = [encode_questions(words, [QUESTIONS[i]], [PASSAGES[i]], [ANSWERS[i]]) for i in (0, 1)]
    joined = {name: parts[0][name] + parts[1][name] for name in parts[0]}
    with pytest.raises(ValueError, match="piece"):
        metrics(prediction(joined, [(7, 9), (17, 17)]))
