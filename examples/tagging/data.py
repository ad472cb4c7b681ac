"""The data sets of the comparison of taggers, in columns as CoNLL has them."""

from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset

import hf_elmo

Sentences = list[tuple[list[str], list[str]]]  # the words of each, and their tags


@dataclass(frozen=True)
class Task:
    """The files of train, dev and test (if dev has no file, it is the last tenth of train), the columns of the words
    and of the tags, and whether the words are English."""

    files: tuple[str, str | None, str]
    word: int
    tag: int
    english: bool = True


WNUT17 = ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
TASKS = {
    "chunking": Task(("chunking/conll2000/train.txt.gz", None, "chunking/conll2000/test.txt"), 0, 2),
    "uner_ewt": Task(tuple(f"ner/uner_ewt/en_ewt-ud-{part}.iob2.gz" for part in ("train.mapped", "dev", "test")), 1, 2),
    "wnut17": Task(tuple(f"ner/wnut17/{part}.gz" for part in WNUT17), 0, 1),
    "conll2002": Task(tuple(f"ner/conll2002/esp.{part}.gz" for part in ("train", "testa", "testb")), 0, 2, False),
}


def read(data: Path, task: Task, train: int, quick: bool) -> dict[str, Sentences]:
    """Train (its first `train` sentences), dev and test."""
    parts = [
        [(row["words"], row["tags"]) for row in hf_elmo.read_conll(data / file, task.word, task.tag)]
        for file in filter(None, task.files)
    ]
    if len(parts) == 2:
        tenth = len(parts[0]) // 10
        parts[:1] = parts[0][:-tenth], parts[0][-tenth:]
    limits = (300, 100, 100) if quick else (train, 400, None)
    return {name: part[:limit] for name, part, limit in zip(("train", "dev", "test"), parts, limits, strict=True)}


def encode(tokenizer: hf_elmo.ElmoTokenizer, sentences: Sentences, label2id: dict[str, int]) -> Dataset:
    """A row for each sentence, with a label for each word."""
    words, tags = zip(*sentences, strict=True)
    encoded = tokenizer(list(words), is_split_into_words=True)
    labels = tokenizer.align_labels(encoded, [[label2id[tag] for tag in row] for row in tags])
    return Dataset.from_dict({**encoded, "labels": labels})
