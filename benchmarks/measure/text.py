"""The text of the measurements: sentences of WikiText, in batches."""

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

Batch = list[str]
ROOT = Path(__file__).resolve().parent.parent.parent
WIKITEXT = Path("data", "lm", "other", "wikitext-2", "test.txt")


def shared_folder() -> Path:
    """Where the peers' scripts and the data are: `$ELMO_SHARED`, by default beside the project."""
    return Path(os.environ.get("ELMO_SHARED", ROOT / ".." / "shared")).resolve()


def cut_sentences(lines: Iterable[str]) -> list[str]:
    """The sentences of tokenized paragraphs, split after each " . "; headings (`= Title =`) are skipped."""
    paragraphs = (line.strip() for line in lines)
    sentences: list[str] = []
    for paragraph in paragraphs:
        if paragraph and not paragraph.startswith("="):
            pieces = f"{paragraph} ".replace(" . ", " .\n").splitlines()
            sentences += [piece.strip() for piece in pieces if piece.strip()]
    return sentences


def read_sentences(path: Path) -> list[str]:
    """The sentences of a file of paragraphs."""
    with path.open(encoding="utf-8") as lines:
        return cut_sentences(lines)


def first_lines(folder: Path, number: int) -> list[str]:
    """The first lines with words in the `.txt` files below a folder, in the order of their names."""
    files = sorted(folder.rglob("*.txt"))
    lines = (line.strip() for file in files for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
    return list(islice((line for line in lines if line), number))


def repeat_to(items: Sequence[str], number: int) -> list[str]:
    """`number` items: the first ones, or all of them repeated."""
    if not items:
        raise ValueError("there is no text to repeat: give a file with words in it.")
    return [items[place % len(items)] for place in range(number)]


def count_words(sentences: Iterable[str]) -> int:
    """Words, separated by whitespace."""
    return sum(len(sentence.split()) for sentence in sentences)


def running_text(sentences: Iterable[str], number: int) -> str:
    """The first `number` words of a text, as one sentence."""
    return " ".join(islice((word for sentence in sentences for word in sentence.split()), number))


def make_batches(sentences: Sequence[str], batch_size: int, by_length: bool) -> list[Batch]:
    """Batches of sentences as they come, or sorted by their number of words."""
    ordered = sorted(sentences, key=lambda sentence: len(sentence.split())) if by_length else sentences
    return [list(ordered[start : start + batch_size]) for start in range(0, len(ordered), batch_size)]


def spread(batches: Sequence[Batch], words: int) -> list[Batch]:
    """A sample of the batches: evenly spaced ones with about `words` words together, at least one."""
    mean = sum(map(count_words, batches)) / len(batches)
    number = min(len(batches), max(1, round(words / mean)))
    return [batches[int((place + 0.5) * len(batches) / number)] for place in range(number)]


def word_windows(sentences: Iterable[str], rows: int, words: int) -> list[list[str]]:
    """`rows` windows of running text, each of `words` words."""
    text = running_text(sentences, rows * words).split()
    return [text[start : start + words] for start in range(0, len(text), words)]
