"""Pretrained word vectors in the formats of GloVe, word2vec and fastText, and the words of a corpus."""

import gzip
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..lines import read_lines
from ..tokenization_elmo import ElmoTokenizer

_BINARY = " Word2vec's binary format is read where the name ends in .bin or .bin.gz: if it is that, rename the file."


def read_word_vectors(
    path: str | os.PathLike, words: Iterable[str] | None = None, limit: int | None = None
) -> tuple[list[str], np.ndarray]:
    """
    Word vectors from a file: GloVe's text, word2vec's and fastText's text (`.vec`, with a first line `words size`), or
    word2vec's binary, which is read where the name ends in `.bin`; each also with `.gz`. In text, one space separates.

    A word that is in the file twice has its first vector. (gensim reads the same files; it would be a large dependency
    for a small format.)

    Args:
        path: the file.
        words: keep only the vectors of these words, as they are spelled or in lower case, as the tokenizer looks them
            up; all by default.
        limit: read so many vectors from the beginning, the most frequent words; all by default.

    Returns:
        the words, and `[words, size]` float32.

    Raises:
        ValueError: the file is not of these formats, is cut off, has more than it says, or holds a number that is not
            finite; `limit` is under 1, or `words` is a string.

    Example:

    ```python
    >>> words, vectors = read_word_vectors("glove.6B.50d.txt")
    >>> tokenizer.words = words
    >>> fields = {"word_vectors_vocab_size": len(words) + 3, "word_vectors_size": vectors.shape[1]}
    >>> model = ElmoForSequenceClassification.from_pretrained(folder, **fields)
    >>> model.set_word_vectors(vectors)
    ```"""
    if isinstance(words, str):
        raise ValueError(f"words are the string {words!r:.40}: put it into a list.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, but must be 1 or more, or None for all vectors.")
    path = Path(path)
    binary = path.name.lower().removesuffix(".gz").endswith(".bin")
    wanted = None if words is None else {form for word in words for form in (word, word.lower())}
    kept: dict[str, np.ndarray] = {}
    for number, (word, vector) in enumerate((_read_binary if binary else _read_text)(path)):
        if number == limit:
            break
        if word and word not in kept and (wanted is None or word in wanted) and not {"\n", "\r"} & set(word):
            if not np.isfinite(vector).all():
                raise ValueError(f"{path}: the vector of {word!r} holds a number that is not finite; fetch it again.")
            kept[word] = vector
    if not kept:
        raise ValueError(f"{path} has no vector of the wanted words: check the file and the words.")
    return list(kept), np.stack(list(kept.values()))


def _read_text(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    size = expected = None
    number = read = 0
    for number, line in enumerate(_text_lines(path), start=1):
        parts = line.rstrip(" \r\n").split(" ")
        if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            expected, size = map(int, parts)
            continue
        size = size or len(parts) - 1  # the first word has no space in it; GloVe's later ones may
        try:
            vector = np.array(parts[-size:], dtype=np.float32)
        except ValueError:
            vector = np.zeros(0, np.float32)
        if size < 1 or len(vector) != size or len(parts) < size + 1:
            wanted = f"{size} numbers" if read or expected is not None else "its numbers"
            raise ValueError(
                f"{path}, line {number}: not a word and {wanted}, with one space between, but {line[:60]!r}."
                f"{_BINARY if chr(0) in line else ''}"
            )
        read += 1
        yield " ".join(parts[:-size]), vector
    if expected is not None and read != expected:
        raise ValueError(
            f"{path} has {read} vectors, but its first line says {expected}: it is cut off; fetch it again."
        )


def _text_lines(path: Path) -> Iterator[str]:
    try:
        yield from read_lines(path, newline="\n")
    except ValueError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        reason = str(error).rpartition("; convert")[0]
        raise ValueError(f"{reason}; convert the text to utf-8.{_BINARY}") from error


def _read_binary(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb") as file:
        header = file.readline(100).split()
        if len(header) != 2 or not all(part.isdigit() for part in header):
            raise ValueError(f"{path} does not begin with the number and the size of its vectors, as word2vec's do.")
        count, size = map(int, header)
        for number in range(count):
            word = _read_word(file)
            data = file.read(4 * size)
            if len(data) < 4 * size:
                raise ValueError(f"{path} ends in vector {number + 1} of {count}: it is cut off; fetch it again.")
            yield word.decode("utf-8", "replace"), np.frombuffer(data, dtype="<f4").astype(np.float32)
        if file.read(2) not in (b"", b"\n"):
            raise ValueError(
                f"{path} has more than the {count} vectors of {size} numbers that its first line says: the line is "
                "wrong, or a word holds a space, so that the numbers after it are not where they should be. Write it "
                "again, with the words' spaces replaced, or take the text format."
            )


def _read_word(file: BinaryIO) -> bytes:
    """The bytes up to a space; some writers put a line break before each word."""
    word = bytearray()
    while (byte := file.read(1)) not in (b" ", b""):
        word += byte
    return bytes(word).lstrip(b"\n")


def count_words(
    tokenizer: ElmoTokenizer,
    texts: Iterable[str | Sequence[str]],
    min_count: int = 1,
    limit: int | None = None,
    lowercase: bool = False,
) -> list[str]:
    """
    The words of texts by decreasing frequency, for vectors that are learned: `tokenizer.words` takes them.

    Args:
        tokenizer: splits the texts.
        texts: each a string, or a list of words.
        min_count: leave rarer words out. With 1, no training text has an unknown word, whose vector is then untrained.
        limit: keep so many words; all by default.
        lowercase: count words in lower case; capitals are then no difference.

    Raises:
        ValueError: no word is left, or `limit` is less than 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, but must be 1 or more, or None for all words.")
    counts = Counter(
        word.lower() if lowercase else word for words in tokenizer.split_into_words(texts) for word in words if word
    )
    ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
    if not ranked:
        raise ValueError(f"no word occurs {min_count} times or more: give more text, or lower min_count.")
    return [word for _, word in ranked[:limit]]
