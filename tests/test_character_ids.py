"""A word's characters, against a definition written here, and the boundaries."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hf_elmo import ElmoConfig, ElmoTokenizer
from hf_elmo.tokenization_elmo import words_to_character_ids
from hf_elmo.utils.spelling import BEGIN, END, PADDING, Speller

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, WORD_PADDING = 256, 257, 258, 259, 260


def expected_ids(word: str, length: int = 50) -> list[int]:
    """Begin of word, at most 48 bytes, end of word, padding to 50; all raised by one."""
    return boundary_ids(*word.encode("utf-8", "ignore")[: length - 2], length=length)


def boundary_ids(*characters: int, length: int = 50) -> list[int]:
    row = [BEGIN_WORD, *characters, END_WORD]
    return [character + 1 for character in row + [WORD_PADDING] * (length - len(row))]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(codec=None), max_size=80), max_size=6), st.integers(3, 61))
@example(["", "\0", "a\0b", "\ufdd1"], 50)
@example(["\ud800", "a\udfffb", "\ud83d\ude00"], 50)
@example(["x" * 47, "x" * 48, "x" * 49, "x" * 10_000], 50)
@example(["é" * 24, "é" * 5000, "x" + "é" * 24, "日" * 17, "😀" * 13], 50)
@example(["<S>", "</S>", "<UNK>", "<pad>"], 50)
def test_any_string_is_numbered_as_defined(words: list[str], length: int) -> None:
    ids, expected = words_to_character_ids(words, length), [expected_ids(word, length) for word in words]
    assert (ids.dtype, ids.shape, ids.tolist()) == (np.int64, (len(words), length), expected)
    if words:
        rows = ElmoTokenizer(max_word_length=length)(words, is_split_into_words=True)["input_ids"]
        begin, end = (boundary_ids(character, length=length) for character in (BEGIN_SENTENCE, END_SENTENCE))
        assert rows == [begin, *expected, end]


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=12))
def test_a_word_comes_back_from_its_characters(word: str) -> None:
    read = ElmoTokenizer().convert_ids_to_tokens
    assert read(words_to_character_ids([word])) == [word]
    cut = words_to_character_ids(["x" + "é" * 30])  # inside a character
    assert read(cut) == ["x" + "é" * 23 + "\N{REPLACEMENT CHARACTER}"]


def test_sentence_boundaries_are_words_of_one_character(tokenizer: ElmoTokenizer) -> None:
    begin, end = tokenizer("")["input_ids"]
    assert begin == boundary_ids(BEGIN_SENTENCE) == [259, 257, 260] + [261] * 47
    assert end == boundary_ids(END_SENTENCE) == [259, 258, 260] + [261] * 47
    for one in (tokenizer, ElmoConfig()):
        assert (one.pad_token_id, one.bos_token_id, one.eos_token_id) == (0, 257, 258)


def test_a_word_that_looks_like_a_boundary_is_one_only_where_asked_for(tokenizer: ElmoTokenizer) -> None:
    words = ["<S>", "</S>", "<UNK>", "<pad>", "a<S>b", "<s>"]
    assert tokenizer(" ".join(words))["input_ids"][1:-1] == [expected_ids(word) for word in words]
    for text, how in ("x <S> </S>", {}), (["x", "<S>", "</S>"], {"is_split_into_words": True}):
        ids = tokenizer(text, split_special_tokens=False, **how)["input_ids"]
        assert ids[2:4] == [boundary_ids(BEGIN_SENTENCE), boundary_ids(END_SENTENCE)]


@pytest.mark.parametrize(("length", "boundary_words"), [(50, False), (7, True)])
def test_each_distinct_token_is_spelled_once_as_the_tokenizer_does(length: int, boundary_words: bool) -> None:
    tokens = [BEGIN, "the", "cat", "", "the", "<pad>", "<S>", "</S>", END, PADDING, BEGIN, "naïve", "cat", END]
    tokenizer = ElmoTokenizer(max_word_length=length)
    begin, end = tokenizer("")["input_ids"]
    special = {BEGIN: begin, END: end, PADDING: [0] * length}
    how = {"is_split_into_words": True, "add_special_tokens": False, "split_special_tokens": not boundary_words}
    expected = [special[t] if t in special else tokenizer([t], **how)["input_ids"][0] for t in tokens]
    speller = Speller(tokenizer, boundary_words)
    assert speller.characters(tokens).tolist() == expected
    ids, rows = speller.distinct(tokens)
    assert len(ids) == len(set(tokens))
    assert ids[rows].tolist() == expected
