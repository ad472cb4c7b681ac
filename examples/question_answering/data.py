"""The questions of the comparison, in SQuAD's format, and their rows."""

import gzip
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset

import hf_elmo

TRAIN = "squad/squad_v1.1/squad_train_du_test_part.json.gz", "squad/squadshifts/new_wiki_v1.0.json.gz"
TEST = ("squad/squad_v1.1/squad_dev_part1.json.gz",)
PIECES = {"max_length": 256, "stride": 64}


class Question(NamedTuple):
    """A question, its passage, and its answers as SQuAD has them."""

    text: str
    passage: str
    answers: dict[str, list]


def read(data: Path, files: Sequence[str], limit: int) -> list[Question]:
    """At most `limit` questions of files in SQuAD's format, evenly spread over them."""
    questions = []
    for name in files:
        with gzip.open(data / name, "rt", encoding="utf-8") as file:
            passages = [passage for article in json.load(file)["data"] for passage in article["paragraphs"]]
        for passage in passages:
            for asked in passage["qas"]:
                answers = {key: [one[key] for one in asked["answers"]] for key in ("text", "answer_start")}
                questions.append(Question(asked["question"].strip(), passage["context"], answers))
    return [questions[i * len(questions) // limit] for i in range(limit)] if limit < len(questions) else questions


def parts_of(train: list[Question], test: list[Question]) -> dict[str, list[Question]]:
    """The parts by their names; train and dev have no passage in common."""
    number = {passage: i for i, passage in enumerate(dict.fromkeys(question.passage for question in train))}
    held_out = [number[question.passage] % 10 == 0 for question in train]
    return {
        "train": [question for question, out in zip(train, held_out, strict=True) if not out],
        "dev": [question for question, out in zip(train, held_out, strict=True) if out],
        "test": test,
    }


def encode(rows: dict[str, list], tokenizer: hf_elmo.ElmoTokenizer, labeled_only: bool) -> dict[str, list]:
    """The model's rows for a batch of questions."""
    texts = (rows[name] for name in ("text", "passage", "answers"))
    return hf_elmo.encode_questions(tokenizer, *texts, numbers=rows["number"], labeled_only=labeled_only, **PIECES)


def datasets_of(parts: dict[str, list[Question]], tokenizer: hf_elmo.ElmoTokenizer) -> dict[str, Dataset]:
    """The rows of each part; questions are numbered over all parts. Each row of "train" contains its answer."""
    encoded, start = {}, 0
    for part, questions in parts.items():
        columns: dict[str, Any] = {key: [getattr(one, key) for one in questions] for key in Question._fields}
        columns["number"] = list(range(start, start + len(questions)))
        encoded[part] = Dataset.from_dict(columns).map(
            partial(encode, tokenizer=tokenizer, labeled_only=part == "train"),
            batched=True,
            batch_size=100,
            remove_columns=list(columns),
        )
        start += len(questions)
    return encoded
