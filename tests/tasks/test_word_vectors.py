"""Files of word vectors, each format written by the test; GloVe's own where it is at hand; words of texts."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from hf_elmo import ElmoTokenizer, count_words, read_word_vectors

WORDS = ["the", "naïve", "a\u2028b", "Rain"]
VECTORS = np.array([[1, 2.5, -3e-2], [0, 0, 1], [4, 5, 6], [7, 8, 9]], dtype=np.float32)


def text(header: bool, ending: str = "\n") -> bytes:
    rows = [f"{word} {' '.join(map(str, vector))}{ending}" for word, vector in zip(WORDS, VECTORS, strict=True)]
    return ("4 3\n" * header + "".join(rows)).encode()


def binary(separator: bytes) -> bytes:
    rows = [word.encode() + b" " + vector.tobytes() for word, vector in zip(WORDS, VECTORS, strict=True)]
    return b"4 3\n" + separator.join(rows) + separator


FILES = {
    "glove.txt": text(header=False),
    "glove.txt.gz": gzip.compress(text(header=False), mtime=0),
    "word2vec.txt": text(header=True),
    "fasttext.vec": text(header=True, ending=" \n"),
    "windows.txt": text(header=False, ending="\r\n"),
    "word2vec.bin": binary(b"\n"),
    "google.bin.gz": gzip.compress(binary(b""), mtime=0),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    words, vectors = read_word_vectors(tmp_path / name)
    assert words == WORDS
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS)


@pytest.mark.parametrize("name", ["glove.txt", "word2vec.bin"])
def test_some_words_only(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    words, vectors = read_word_vectors(tmp_path / name, words=["Rain", "THE", "rain"])
    assert words == ["the", "Rain"]
    np.testing.assert_array_equal(vectors, VECTORS[[0, 3]])
    assert read_word_vectors(tmp_path / name, limit=2)[0] == WORDS[:2]
    with pytest.raises(ValueError, match="no vector of the wanted words"):
        read_word_vectors(tmp_path / name, words=["dog"])
    with pytest.raises(ValueError, match="limit is 0"):
        read_word_vectors(tmp_path / name, limit=0)
    with pytest.raises(ValueError, match="words are the string 'the': put it into a list"):
        read_word_vectors(tmp_path / name, words="the")


def test_words_with_spaces_and_words_that_come_twice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the 1 2\n. . 3 4\nthe 5 6\n 7 8\n")
    words, vectors = read_word_vectors(tmp_path / "a.txt")
    assert words == ["the", ". ."]
    assert vectors.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"the 1 2\ncat 3\n", "line 2: not a word and 2 numbers"),
        ("a.txt", b"the 1 2\ncat 3 x\n", "line 2: not a word and 2 numbers"),
        ("a.txt", b"the 1 2\ncat nan 2\n", "'cat' holds a number that is not finite"),
        ("a.txt", b"the\n", "line 1"),
        ("a.vec", b"3 2\nthe 1 2\ncat 3 4\n", "has 2 vectors, but its first line says 3"),
        ("a.bin", binary(b"")[:-1], "ends in vector 4 of 4"),
        ("a.bin", b"the 1 2\n", "does not begin with the number and the size"),
        ("a.bin", b"3" + binary(b"\n")[1:], "has more than the 3 vectors of 3 numbers that its first line says"),
        ("a.bin", binary(b"") + b"\n\n", "has more than the 4 vectors"),
        ("a.bin", b"2 1\nNew York \1\1\1\1\nthe \2\2\2\2\n", "has more than the 2 vectors .*a word holds a space"),
        ("vectors", binary(b"\n"), "not utf-8 .*binary format is read where the name ends in .bin or .bin.gz"),
        ("a.txt.gz", gzip.compress(binary(b""), mtime=0), "not utf-8 .*ends in .bin or .bin.gz"),
        ("a.model", b"1 2\nthe " + bytes(8), "line 2: not a word and 2 numbers, .*ends in .bin or .bin.gz"),
        ("a.txt", b"the\t1\t2\n", r"line 1: not a word and its numbers, with one space between, but 'the\\t1"),
        ("a.txt", b"the  1 2\n", "line 1: not a word and its numbers, with one space between, but 'the  1"),
        ("a.txt", b"the 1 2\ncat\t1\t2\n", "line 2: not a word and 2 numbers, with one space between"),
        ("a.txt", b"\xff 1 2\n", "line 1: not utf-8 .*; convert the text to utf-8"),
        ("a.txt.gz", gzip.compress(text(False), mtime=0)[:-9], "not a whole gzip file"),
    ],
)
def test_a_file_that_is_not_whole(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_word_vectors(tmp_path / name)


def test_glove(shared: Path) -> None:
    words, vectors = read_word_vectors(shared / "data" / "glove" / "glove.6B.50d.5k.txt.gz", words=["The", "bank"])
    assert sorted(words) == ["bank", "the"]
    assert vectors.shape == (2, 50)


def test_words_of_texts() -> None:
    tokenizer = ElmoTokenizer()
    texts = ["The cat, the dog.", ["the", "Cat", "New York", ""]]
    assert count_words(tokenizer, texts) == ["the", ",", ".", "Cat", "New York", "The", "cat", "dog"]
    assert count_words(tokenizer, texts, min_count=2, lowercase=True) == ["the", "cat"]
    assert count_words(tokenizer, texts, limit=1) == ["the"]
    with pytest.raises(ValueError, match="no word occurs 9 times"):
        count_words(tokenizer, texts, min_count=9)
    with pytest.raises(ValueError, match="limit is -1"):
        count_words(tokenizer, texts, limit=-1)


def test_the_limit_counts_vectors_of_the_file_not_those_that_are_kept(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_bytes(FILES["glove.txt"])
    assert read_word_vectors(tmp_path / "glove.txt", words=["the", "Rain"], limit=3)[0] == ["the"]
