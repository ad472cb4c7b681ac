"""A word's characters, against a definition written here, and the boundaries."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hf_elmo import ElmoTokenizer
from hf_elmo.tokenization_elmo import character_ids_to_word, words_to_character_ids

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260

# Lone surrogates, NUL, combining marks, noncharacters: every code point there is.
ANY_WORD = st.text(st.characters(codec=None), max_size=80)


def utf8(word: str) -> list[int]:
    """UTF-8 by hand; a lone surrogate has none."""
    data: list[int] = []
    for character in word:
        point = ord(character)
        if 0xD800 <= point <= 0xDFFF:
            continue
        if point < 0x80:
            data += [point]
        elif point < 0x800:
            data += [0xC0 | point >> 6, 0x80 | point & 0x3F]
        elif point < 0x10000:
            data += [0xE0 | point >> 12, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F]
        else:
            data += [0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F]
    return data


def expected_ids(word: str, length: int = 50) -> list[int]:
    """Begin of word, at most 48 bytes, end of word, padding to 50; all raised by one."""
    row = [BEGIN_WORD, *utf8(word)[: length - 2], END_WORD]
    row += [PADDING] * (length - len(row))
    return [character + 1 for character in row]


def boundary_ids(character: int, length: int = 50) -> list[int]:
    return [number + 1 for number in [BEGIN_WORD, character, END_WORD] + [PADDING] * (length - 3)]


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY_WORD, max_size=9))
@example([""])
@example(["\0", "a\0b"])
@example(["\ud800", "a\udfffb", "\ud83d\ude00"])
@example(["x" * 47, "x" * 48, "x" * 49, "x" * 10_000])
@example(["é" * 24, "é" * 5000, "x" + "é" * 24, "日" * 17, "😀" * 13])
@example(["<S>", "</S>", "<UNK>", "<pad>"])
def test_any_string_is_numbered_as_defined(words: list[str]) -> None:
    ids = words_to_character_ids(words)
    assert ids.dtype == np.int64
    assert ids.shape == (len(words), 50)
    assert ids.tolist() == [expected_ids(word) for word in words]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=6), st.integers(3, 61))
@example(["a", "", "\ufdd1"], 50)
def test_the_tokenizer_spells_words_already_split_the_same_way(words: list[str], length: int) -> None:
    tokenizer = ElmoTokenizer(max_word_length=length)
    rows = [expected_ids(word, length) for word in words]
    rows = [boundary_ids(BEGIN_SENTENCE, length), *rows, boundary_ids(END_SENTENCE, length)]
    assert tokenizer(words, is_split_into_words=True)["input_ids"] == rows


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=12))
def test_a_word_comes_back_from_its_characters(word: str) -> None:
    assert character_ids_to_word(words_to_character_ids([word])[0].tolist()) == word


def test_a_word_cut_inside_a_character_shows_it() -> None:
    row = words_to_character_ids(["x" + "é" * 30])[0].tolist()
    assert character_ids_to_word(row) == "x" + "é" * 23 + "\N{REPLACEMENT CHARACTER}"


def test_sentence_boundaries_are_words_of_one_character(tokenizer: ElmoTokenizer) -> None:
    first, _, last = tokenizer("x")["input_ids"]
    assert first == boundary_ids(BEGIN_SENTENCE) == [259, 257, 260] + [261] * 47
    assert last == boundary_ids(END_SENTENCE) == [259, 258, 260] + [261] * 47


@pytest.mark.parametrize("word", ["<S>", "</S>", "<UNK>", "<pad>", "a<S>b", "<s>"])
@pytest.mark.parametrize("splitting", ["whitespace", "already split"])
def test_a_word_that_looks_like_a_boundary_stays_a_word(tokenizer: ElmoTokenizer, word: str, splitting: str) -> None:
    if splitting == "whitespace":
        ids = tokenizer(f"x {word} y")["input_ids"]
    else:
        ids = tokenizer(["x", word, "y"], is_split_into_words=True)["input_ids"]
    assert ids[2] == expected_ids(word)
    assert len(ids) == 5


@pytest.mark.parametrize(("word", "character"), [("<S>", BEGIN_SENTENCE), ("</S>", END_SENTENCE)])
@pytest.mark.parametrize("splitting", ["whitespace", "already split"])
def test_boundaries_in_the_text_are_read_where_asked_for(
    tokenizer: ElmoTokenizer, word: str, character: int, splitting: str
) -> None:
    text = f"x {word} y" if splitting == "whitespace" else ["x", word, "y"]
    ids = tokenizer(text, is_split_into_words=splitting != "whitespace", split_special_tokens=False)["input_ids"]
    assert ids[2] == boundary_ids(character)
    assert tokenizer(text, is_split_into_words=splitting != "whitespace")["input_ids"][2] == expected_ids(word)


def test_special_ids_are_those_of_the_configuration(tokenizer: ElmoTokenizer, config) -> None:
    assert tokenizer.pad_token_id == config.pad_token_id == 0
    assert tokenizer.bos_token_id == config.bos_token_id == BEGIN_SENTENCE + 1
    assert tokenizer.eos_token_id == config.eos_token_id == END_SENTENCE + 1
    assert tokenizer.all_special_ids == [0, 257, 258]
