"""The comparison of question answering with and without ELMo: what it reads, prints and saves."""

import gzip
import json
from pathlib import Path

import pytest
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import hf_elmo
from examples.question_answering import data as squad
from examples.question_answering import run as question_answering

PASSAGE = "Anna met Bob in Rome {}, and he sang well."


@pytest.fixture
def data(data_with_vectors) -> Path:
    folder = data_with_vectors(["anna", "met", "bob", "in", "rome", ",", "and", "he", "sang", "well", ".", "who", "?"])
    for name in (*squad.TRAIN, *squad.TEST):
        paragraphs = []
        for i in range(20):
            answers = [{"text": "Bob", "answer_start": 9}, {"text": "in Rome", "answer_start": 13}]
            asked = [{"id": f"{i}{word}", "question": f" Who {word}? ", "answers": answers} for word in ("met", "sang")]
            paragraphs.append({"context": PASSAGE.format(f"{name} {i}"), "qas": asked})
        articles = {
            "data": [{"title": "a", "paragraphs": paragraphs[:7]}, {"title": "b", "paragraphs": paragraphs[7:]}]
        }
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(gzip.compress(json.dumps(articles).encode()))
    return folder


def test_questions_are_spread_evenly(data: Path) -> None:
    everything = squad.read(data, squad.TRAIN, 1000)
    assert len(everything) == 80
    answers = {"text": ["Bob", "in Rome"], "answer_start": [9, 13]}
    assert everything[1] == ("Who sang?", PASSAGE.format(f"{squad.TRAIN[0]} 0"), answers)
    assert squad.read(data, squad.TRAIN, 3) == [everything[0], everything[26], everything[53]]


def test_train_and_dev_share_no_passage(data: Path) -> None:
    parts = squad.parts_of(squad.read(data, squad.TRAIN, 80), squad.read(data, squad.TEST, 5))
    assert {part: len(questions) for part, questions in parts.items()} == {"train": 72, "dev": 8, "test": 5}
    passages = [{question.passage for question in parts[part]} for part in ("train", "dev")]
    assert not passages[0] & passages[1]


def test_rows_are_numbered_through_and_train_on_pieces_with_the_answer(data: Path, monkeypatch) -> None:
    monkeypatch.setattr(squad, "PIECES", {"max_length": 16, "stride": 2})
    parts = squad.parts_of(squad.read(data, squad.TRAIN, 80), squad.read(data, squad.TEST, 5))
    encoded = squad.datasets_of(parts, hf_elmo.ElmoTokenizer())
    numbers = {part: [piece[0] for piece in rows["piece"]] for part, rows in encoded.items()}
    assert numbers["train"] == list(range(72))  # "Bob" is in the first piece only
    assert sorted(set(numbers["dev"])) == list(range(72, 80))
    assert sorted(set(numbers["test"])) == list(range(80, 85))
    assert [start >= 0 for start in encoded["test"]["start_positions"]] == [True, False, False] * 5


def test_answers_with_and_without_elmo(folder: str, data: Path, tmp_path: Path, capsys) -> None:
    question_answering.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick"])
    first, _, header, _, *lines = capsys.readouterr().out.splitlines()
    assert first == "72 train, 8 dev, 40 test questions"
    assert header == "| | F1 | exact match | seconds a run | trained parameters |"
    rows = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("|")]
    assert rows == ["GloVe", "GloVe + ELMo"]
    assert any(line.startswith("- GloVe + ELMo over GloVe: ") for line in lines)
    saved = tmp_path / "out" / "model"
    model, tokenizer = AutoModelForQuestionAnswering.from_pretrained(saved), AutoTokenizer.from_pretrained(saved)
    found = hf_elmo.answer(model, "Who sang?", PASSAGE.format("once"), tokenizer=tokenizer)
    assert found["answer"]
    assert found["answer"] in PASSAGE.format("once")


def test_quick_on_real_data(shared: Path, tmp_path: Path, capsys) -> None:
    question_answering.main([str(shared / "data"), "--out", str(tmp_path), "--quick"])
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("| GloVe")]) == 2
