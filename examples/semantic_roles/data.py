"""PropBank's annotation of the English Web Treebank: a row for each predicate."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset

import hf_elmo

FOLDER = Path("srl", "propbank_ewt")  # below the data folder
FIRST_PREDICATE = 8  # the column of the first predicate's spans; words are in the fourth


class Predicate(NamedTuple):
    """The words of a sentence, where its predicate is, and the tags of its roles, in IOB2."""

    words: list[str]
    place: int
    tags: list[str]


def read(data: Path, train: int, quick: bool) -> dict[str, list[Predicate]]:
    """Train (the predicates of its first `train` sentences), dev and test."""
    limits = {"train": 60, "dev": 20, "test": 20} if quick else {"train": train, "dev": 200, "test": None}
    return {
        part: [predicate for sentence in _sentences(data / FOLDER, part, limit) for predicate in sentence]
        for part, limit in limits.items()
    }


def _sentences(folder: Path, part: str, limit: int | None) -> Iterator[list[Predicate]]:
    """The predicates of each sentence that has some."""
    with gzip.open(folder / f"{part}.gold_conll.gz", "rt", encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    for block in blocks[:limit]:
        rows = [line.split() for line in block.splitlines() if line and not line.startswith("#")]
        if rows and len(rows[0]) > FIRST_PREDICATE:
            words, *columns = zip(*(row[3:4] + row[FIRST_PREDICATE:] for row in rows), strict=True)
            tags = [tags_of(column) for column in columns]
            yield [Predicate(list(words), own.index("B-V"), own) for own in tags]


def tags_of(spans: tuple[str, ...]) -> list[str]:
    """Spans in brackets, such as `(ARG0*`, `*`, `*)`, as tags in IOB2."""
    tags, role = [], None
    for span in spans:
        opened = re.match(r"\(([^*()]+)", span)
        role = opened[1] if opened else role
        tags.append("O" if role is None else f"{'B' if opened else 'I'}-{role}")
        if span.endswith(")"):
            role = None
    return tags


def encode(tokenizer: hf_elmo.ElmoTokenizer, predicates: list[Predicate], label2id: dict[str, int]) -> Dataset:
    """A row for each predicate: its sentence, 1 in `token_type_ids` at the predicate, and a label for each word."""
    words = [predicate.words for predicate in predicates]
    encoded = tokenizer(words, is_split_into_words=True)
    labels = [[label2id[tag] for tag in predicate.tags] for predicate in predicates]
    marks = [[int(n == predicate.place) for n in range(len(predicate.words))] for predicate in predicates]
    marks = [[max(mark, 0) for mark in row] for row in tokenizer.align_labels(encoded, marks)]  # boundaries: 0
    labels = tokenizer.align_labels(encoded, labels)
    return Dataset.from_dict({**encoded, "token_type_ids": marks, "labels": labels})
