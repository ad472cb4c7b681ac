"""The text of the measurements: sentences of WikiText, in batches."""

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

Batch = list[str]
ROOT = Path(__file__).resolve().parents[2]
WIKITEXT = Path("data", "lm", "other", "wikitext-2", "test.txt")


def shared_folder() -> Path:
    """The folder with the peers' scripts and the data: `$ELMO_SHARED`, by default beside the project."""
    return Path(os.environ.get("ELMO_SHARED", ROOT / ".." / "shared")).resolve()


def cut_sentences(lines: Iterable[str]) -> list[str]:
    """The sentences of tokenized paragraphs, split after each " . "; headings (`= Title =`) are skipped."""
    sentences: list[str] = []
    for paragraph in map(str.strip, lines):
        if paragraph and not paragraph.startswith("="):
            pieces = f"{paragraph} ".replace(" . ", " .\n").splitlines()
            sentences += [piece.strip() for piece in pieces if piece.strip()]
    return sentences


def first_lines(folder: Path, count: int) -> list[str]:
    """The first nonempty lines of the `.txt` files below a folder, in the order of the files' names."""
    files = sorted(folder.rglob("*.txt"))
    lines = (line.strip() for file in files for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
    return list(islice(filter(None, lines), count))


def repeat_to(items: Sequence[str], count: int) -> list[str]:
    """`count` items: the first ones, or all of them repeated."""
    return [items[place % len(items)] for place in range(count)]


def count_words(sentences: Iterable[str]) -> int:
    """Words, separated by whitespace."""
    return sum(len(sentence.split()) for sentence in sentences)


def running_text(sentences: Iterable[str], count: int) -> str:
    """The first `count` words of a text, as one sentence."""
    return " ".join(islice((word for sentence in sentences for word in sentence.split()), count))


def make_batches(sentences: Sequence[str], batch_size: int, by_length: bool) -> list[Batch]:
    """Batches of sentences in their order, or sorted by their number of words."""
    ordered = sorted(sentences, key=lambda sentence: len(sentence.split())) if by_length else sentences
    return [list(ordered[start : start + batch_size]) for start in range(0, len(ordered), batch_size)]


def spread(batches: Sequence[Batch], words: int) -> list[Batch]:
    """A sample of the batches: evenly spaced ones with about `words` words together, at least one."""
    mean = sum(map(count_words, batches)) / len(batches)
    count = min(len(batches), max(1, round(words / mean)))
    return [batches[int((place + 0.5) * len(batches) / count)] for place in range(count)]


def word_windows(sentences: Iterable[str], rows: int, words: int) -> list[list[str]]:
    """`rows` windows of running text, each of `words` words."""
    text = running_text(sentences, rows * words).split()
    return [text[start : start + words] for start in range(0, len(text), words)]
