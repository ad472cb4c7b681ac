"""ElmoTokenizer: what a user of transformers may hand it, ask of it, and do with it."""

import inspect
import json
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import AddedToken
from transformers import AutoTokenizer, BatchEncoding

from hf_elmo import ElmoTokenizer
from hf_elmo.character_vocab_elmo import CharacterVocabulary
from hf_elmo.tokenization_elmo import words_to_character_ids
from tests.conftest import SENTENCES
from tests.forks import exit_code

TEXTS = ["one two three", "four", "", "five six seven eight"]
LENGTHS = [5, 3, 2, 6]  # with <S> and </S>


def words_of(ids: list[list[int]], tokenizer: ElmoTokenizer) -> list[str]:
    return tokenizer.convert_ids_to_tokens(ids)


# -- text, lists of texts, words already split, pairs ------------------------------------------------------------------


def test_a_text_is_its_words_between_boundaries(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer("one two")
    assert list(encoded) == ["input_ids", "attention_mask"]
    assert encoded["attention_mask"] == [1, 1, 1, 1]
    assert encoded["input_ids"][1:3] == words_to_character_ids(["one", "two"]).tolist()
    assert encoded.tokens() == ["<S>", "one", "two", "</S>"]


@pytest.mark.parametrize("container", [list, tuple])
def test_a_list_of_texts_is_each_text_alone(tokenizer: ElmoTokenizer, container: type) -> None:
    encoded = tokenizer(container(TEXTS))
    alone = [tokenizer(text) for text in TEXTS]
    assert encoded["input_ids"] == [one["input_ids"] for one in alone]
    assert encoded["attention_mask"] == [one["attention_mask"] for one in alone]
    assert [len(ids) for ids in encoded["input_ids"]] == LENGTHS


def test_words_already_split_are_the_same_as_their_text(tokenizer: ElmoTokenizer) -> None:
    split = [text.split() for text in TEXTS]
    assert tokenizer(split, is_split_into_words=True)["input_ids"] == tokenizer(TEXTS)["input_ids"]
    assert tokenizer(split[0], is_split_into_words=True)["input_ids"] == tokenizer(TEXTS[0])["input_ids"]


PAIRS = {
    "two texts": (("a b", "c"), {}),
    "lists of texts": ((["a b"], ["c"]), {}),
    "tuples": (([("a b", "c")],), {}),
    "words": ((["a", "b"], ["c"]), {"is_split_into_words": True}),
    "lists of words": (([["a", "b"]], [["c"]]), {"is_split_into_words": True}),
    "tuples of words": (([(["a", "b"], ["c"])],), {"is_split_into_words": True}),
}


@pytest.mark.parametrize(("arguments", "options"), PAIRS.values(), ids=PAIRS)
def test_each_text_of_a_pair_has_its_boundaries(tokenizer: ElmoTokenizer, arguments: tuple, options: dict) -> None:
    encoded = tokenizer(*arguments, **options, return_token_type_ids=True, return_tensors="np")
    assert encoded.tokens() == ["<S>", "a", "b", "</S>", "<S>", "c", "</S>"]
    assert encoded["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    assert encoded.sequence_ids() == [None, 0, 0, None, None, 1, None]
    assert words_of(encoded["input_ids"][0], tokenizer) == encoded.tokens()


@pytest.mark.parametrize("split", [False, True], ids=["text", "words"])
def test_a_pair_with_an_empty_second_text_is_the_same_alone_and_in_a_batch(
    tokenizer: ElmoTokenizer, split: bool
) -> None:
    first, second = (["a"], []) if split else ("a", "")
    alone = tokenizer(first, second, is_split_into_words=split)
    assert tokenizer([first], [second], is_split_into_words=split)["input_ids"] == [alone["input_ids"]]
    assert alone.tokens() == ["<S>", "a", "</S>", "<S>", "</S>"]


def test_without_special_tokens_there_are_words_only(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer(TEXTS, add_special_tokens=False)
    assert [words_of(ids, tokenizer) for ids in encoded["input_ids"]] == [text.split() for text in TEXTS]
    assert tokenizer(["a", "b c"], is_split_into_words=True, add_special_tokens=False).tokens() == ["a", "b c"]


# -- empty, odd and wrong input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensors", ["pt", "np"])
def test_no_texts_are_an_empty_batch(tokenizer: ElmoTokenizer, tensors: str) -> None:
    assert dict(tokenizer([])) == {"input_ids": [], "attention_mask": []}
    encoded = tokenizer([], padding=True, return_tensors=tensors)
    assert tuple(encoded["input_ids"].shape) == (0, 0, 50)
    assert tuple(encoded["attention_mask"].shape) == (0, 0)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_text_is_two_boundaries(tokenizer: ElmoTokenizer, text: str) -> None:
    assert tokenizer(text).tokens() == ["<S>", "</S>"]
    assert tuple(tokenizer(text, return_tensors="pt")["input_ids"].shape) == (1, 2, 50)
    assert tuple(tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"].shape) == (1, 0, 50)


def test_empty_words_keep_their_place(tokenizer: ElmoTokenizer) -> None:
    words = ["", "a", "", "b", ""]
    encoded = tokenizer(words, is_split_into_words=True)
    assert encoded.word_ids() == [None, 0, 1, 2, 3, 4, None]
    assert encoded["input_ids"][1:-1] == words_to_character_ids(words).tolist()


def test_empty_words_keep_their_place_in_batches_pairs_and_pieces(tokenizer: ElmoTokenizer) -> None:
    empty, x = words_to_character_ids(["", "x"]).tolist()
    pairs = tokenizer([["x", ""], ["x"]], [["", "x"], [""]], is_split_into_words=True)["input_ids"]
    assert [pairs[0][i] for i in (1, 2, 5, 6)] == [x, empty, empty, x]
    assert [pairs[1][i] for i in (1, 4)] == [x, empty]
    pieces = tokenizer(
        ["x", "x", "", "x"], is_split_into_words=True, truncation=True, max_length=4, return_overflowing_tokens=True
    )["input_ids"]
    assert [piece[1:-1] for piece in pieces] == [[x, x], [empty, x]]


def test_an_empty_word_is_not_the_character_that_carries_it(tokenizer: ElmoTokenizer) -> None:
    words = ["\N{VARIATION SELECTOR-17}", "", "\ufdd0", "\ufdd1", "\ufffe"]
    ids = tokenizer(words, is_split_into_words=True)["input_ids"]
    assert ids[1:-1] == words_to_character_ids(words).tolist()


def test_nul_is_a_character_like_any_other(tokenizer: ElmoTokenizer) -> None:
    words = ["a\0b", "\0", "\0\0"]
    expected = words_to_character_ids(words).tolist()
    assert tokenizer(words, is_split_into_words=True)["input_ids"][1:-1] == expected
    assert tokenizer(" ".join(words))["input_ids"][1:-1] == expected


@pytest.mark.parametrize("splitting", ["lm1b", "whitespace"])
def test_lone_surrogates_are_dropped_and_offsets_stay(splitting: str) -> None:
    tokenizer = ElmoTokenizer(word_splitting=splitting)
    encoded = tokenizer("a\ud800b cd", return_offsets_mapping=True)
    assert encoded["input_ids"][1:-1] == words_to_character_ids(["ab", "cd"]).tolist()
    assert encoded["offset_mapping"] == [(0, 0), (0, 3), (4, 6), (0, 0)]
    assert encoded.char_to_token(4) == 2


def test_where_each_character_is_a_word_a_lone_surrogate_is_none() -> None:
    tokenizer = ElmoTokenizer(word_splitting="characters")
    encoded = tokenizer(["a\ud800b c\udfff", "\ud800", "d"], return_offsets_mapping=True)
    assert tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True) == ["a b c", "", "d"]
    assert encoded["offset_mapping"][0] == [(0, 0), (0, 1), (2, 3), (4, 5), (0, 0)]
    assert tokenizer.split_into_words(["a\ud800b", ["New\ud800 York", "\udfff"]]) == [["a", "b"], ["New York", ""]]
    words = tokenizer(["New\ud800 York", "\udfff"], is_split_into_words=True)
    assert tokenizer.decode(words["input_ids"], skip_special_tokens=True) == "New York "


def test_a_word_of_lone_surrogates_stays_as_an_empty_one(tokenizer: ElmoTokenizer) -> None:
    words = ["a", "\ud800", "b\udc00", ""]
    encoded = tokenizer(words, is_split_into_words=True)
    assert encoded.word_ids() == [None, 0, 1, 2, 3, None]
    assert encoded["input_ids"][1:-1] == words_to_character_ids(words).tolist()


def test_lone_surrogates_in_one_text_leave_the_others_alone(tokenizer: ElmoTokenizer) -> None:
    ids = tokenizer(["x\udfff y", "😀 ok"], ["second", "\ud83d"])["input_ids"]
    assert ids[1][1:3] == words_to_character_ids(["😀", "ok"]).tolist()
    assert ids[0][1:3] == words_to_character_ids(["x", "y"]).tolist()


WRONG = {
    "a number": (5, {}, "int, 5"),
    "bytes": (b"text", {}, "bytes, b'text'"),
    "a list of numbers": ([1, 2], {}, "one is 1"),
    "a text that is missing": (["a", None], {}, "one is None"),
    "words without saying so": ([["a", "b"]], {}, "is_split_into_words=True"),
    "words of different sentences without saying so": ([["a", "b"], ["c"]], {}, "is_split_into_words=True"),
    "three texts": ([("a", "b", "c")], {}, "pair of strings"),
    "a text as words": ("a b", {"is_split_into_words": True}, "'a b'"),
    "a number among words": (["a", 1], {"is_split_into_words": True}, "one is 1"),
    "a missing word": ([["a"], ["b", None]], {"is_split_into_words": True}, "one is None"),
    "texts among sentences of words": ([["a"], "b"], {"is_split_into_words": True}, "one is 'b'"),
    "a dict": ({"text": ["a"]}, {}, "dict, {'text'"),
    "a dict as words": (
        {"text": ["a"]},
        {"is_split_into_words": True},
        r"but is dict, {.*is_split_into_words=True",
    ),
    "a number as words": (5, {"is_split_into_words": True}, r"but is int, 5 \(is_split_into_words=True"),
    "an array of no dimension": (np.array("a"), {}, "ndarray of 0"),
    "an array of two": (np.array([["a"]]), {"is_split_into_words": True}, "ndarray of 2"),
    "a table": (pd.DataFrame({"text": ["a"]}), {}, "DataFrame of 2"),
    "NaN in a Series": (pd.Series(["a", None]), {}, r"one is nan \(number 1\)"),
    "None in an array": (np.array(["a", "b", None]), {}, r"one is None \(number 2\)"),
    "None in an array of words": (np.array(["a", None]), {"is_split_into_words": True}, r"one is None \(number 1\)"),
    "too deep": ([[["a"]]], {"is_split_into_words": True}, r"\['a'\]"),
}


@pytest.mark.parametrize(("text", "options", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_text_is_refused(tokenizer: ElmoTokenizer, text: object, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenizer(text, **options)


@pytest.mark.parametrize("kind", [np.array, pd.Series, lambda texts: np.array(texts, dtype=object)])
def test_arrays_are_as_good_as_lists(tokenizer: ElmoTokenizer, kind) -> None:
    assert tokenizer(kind(TEXTS))["input_ids"] == tokenizer(TEXTS)["input_ids"]
    assert tokenizer(kind(TEXTS), kind(TEXTS))["input_ids"] == tokenizer(TEXTS, TEXTS)["input_ids"]
    assert tokenizer.split_into_words(kind(TEXTS)) == tokenizer.split_into_words(TEXTS)
    assert tokenizer(list(kind(TEXTS)))["input_ids"] == tokenizer(TEXTS)["input_ids"]
    assert tokenizer(np.str_("a b"))["input_ids"] == tokenizer("a b")["input_ids"]
    words = [["New York", "is"], ["big"]]
    arrays = [kind(sentence) for sentence in words]
    wanted = tokenizer(words, is_split_into_words=True)["input_ids"]
    assert tokenizer(arrays, is_split_into_words=True)["input_ids"] == wanted
    assert tokenizer(arrays[0], is_split_into_words=True)["input_ids"] == wanted[0]
    assert tokenizer.split_into_words(arrays) == words


@pytest.mark.parametrize("texts", [np.array("a"), np.array([["a"]]), pd.DataFrame({"t": ["a"]}), {"t": "a"}, [np.nan]])
def test_what_is_no_list_is_not_split(tokenizer: ElmoTokenizer, texts: object) -> None:
    with pytest.raises(ValueError, match=r"ndarray of [02]|DataFrame of 2|is a dict|one is nan \(number 0\)"):
        tokenizer.split_into_words(texts)


def test_as_many_first_as_second_texts_are_needed(tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match="batch length"):
        tokenizer(["a", "b"], ["c"])


# -- padding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("tensors", ["pt", "np", None])
@pytest.mark.parametrize("where", ["tokenizer", "call"])
def test_padding_is_rows_of_zeros(side: str, tensors: str | None, where: str) -> None:
    made, called = ({"padding_side": side}, {}) if where == "tokenizer" else ({}, {"padding_side": side})
    tokenizer = ElmoTokenizer(word_splitting="whitespace", **made)
    encoded = tokenizer(TEXTS, padding=True, return_tensors=tensors, **called)
    ids, mask = np.asarray(encoded["input_ids"]), np.asarray(encoded["attention_mask"])
    assert ids.shape == (4, 6, 50)
    for row, row_mask, text, length in zip(ids, mask, TEXTS, LENGTHS, strict=True):
        real = slice(0, length) if side == "right" else slice(6 - length, 6)
        assert row[real].tolist() == tokenizer(text)["input_ids"]
        assert row_mask.sum() == row_mask[real].sum() == length
        assert row.any(1).tolist() == row_mask.astype(bool).tolist()


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({"padding": "longest"}, 6),
        ({"padding": "max_length", "max_length": 9}, 9),
        ({"padding": True, "pad_to_multiple_of": 8}, 8),
        ({"padding": "max_length", "max_length": 9, "pad_to_multiple_of": 4}, 12),
        ({"padding": "max_length", "max_length": 4, "truncation": True}, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("tensors", ["pt", "np", None])
def test_every_way_to_pad(tokenizer: ElmoTokenizer, options: dict, length: int, tensors: str | None) -> None:
    encoded = tokenizer(TEXTS, return_tensors=tensors, return_length=True, **options)
    assert np.asarray(encoded["input_ids"]).shape == (4, length, 50)
    assert np.asarray(encoded["attention_mask"]).shape == (4, length)
    assert [len(encoding) for encoding in encoded.encodings] == [length] * 4
    assert np.asarray(encoded["length"]).tolist() == [length] * 4


@pytest.mark.parametrize("padding", [False, "do_not_pad"])
def test_texts_of_different_lengths_make_no_tensor_without_padding(tokenizer: ElmoTokenizer, padding) -> None:
    assert [len(ids) for ids in tokenizer(TEXTS, padding=padding)["input_ids"]] == LENGTHS
    with pytest.raises(ValueError, match="padding=True"):
        tokenizer(TEXTS, padding=padding, return_tensors="pt")


@pytest.mark.parametrize("tensors", ["pt", "np"])
def test_a_text_alone_becomes_a_batch_of_one_tensor(tokenizer: ElmoTokenizer, tensors: str) -> None:
    encoded = tokenizer("one two", return_tensors=tensors)
    kind = torch.Tensor if tensors == "pt" else np.ndarray
    assert all(isinstance(value, kind) for value in encoded.values())
    assert all(str(value.dtype).endswith("int64") for value in encoded.values())
    assert tuple(encoded["input_ids"].shape) == (1, 4, 50)


def test_tensors_of_both_kinds_and_lists_are_equal(tokenizer: ElmoTokenizer) -> None:
    pt, array, lists = (tokenizer(SENTENCES, padding=True, return_tensors=kind) for kind in ("pt", "np", None))
    for key in ("input_ids", "attention_mask"):
        assert pt[key].tolist() == array[key].tolist() == lists[key]


def test_the_mask_may_be_left_out(tokenizer: ElmoTokenizer) -> None:
    assert list(tokenizer("a", return_attention_mask=False)) == ["input_ids"]


# -- truncation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "words"), [("right", ["one", "two"]), ("left", ["two", "three"])])
@pytest.mark.parametrize("split", [False, True], ids=["text", "words"])
def test_truncation_keeps_the_boundaries(side: str, words: list[str], split: bool) -> None:
    tokenizer = ElmoTokenizer(word_splitting="whitespace", truncation_side=side)
    text = TEXTS[0].split() if split else TEXTS[0]
    encoded = tokenizer(text, truncation=True, max_length=4, is_split_into_words=split)
    assert words_of(encoded["input_ids"], tokenizer) == encoded.tokens() == ["<S>", *words, "</S>"]
    assert encoded["attention_mask"] == [1] * 4


@pytest.mark.parametrize("split", [False, True], ids=["text", "words"])
def test_truncation_to_less_than_the_boundaries_is_refused(tokenizer: ElmoTokenizer, split: bool) -> None:
    text = TEXTS[0].split() if split else TEXTS[0]
    how = {"truncation": True, "is_split_into_words": split}
    assert tokenizer(text, max_length=2, **how).tokens() == ["<S>", "</S>"]
    assert len(tokenizer(text, max_length=1, add_special_tokens=False, **how).tokens()) == 1
    for length in (0, 1):
        with pytest.raises(ValueError, match=f"max_length is {length}, but the boundaries of sentences alone are 2"):
            tokenizer(text, max_length=length, **how)
    with pytest.raises(ValueError, match="max_length is 3, but the boundaries of sentences alone are 4"):
        tokenizer(text, text, max_length=3, **how)


def test_the_last_calls_truncation_is_not_the_next_calls(tokenizer: ElmoTokenizer) -> None:
    tokenizer(TEXTS, truncation=True, max_length=3, padding=True)
    assert [len(ids) for ids in tokenizer(TEXTS)["input_ids"]] == LENGTHS
    tokenizer([TEXTS[0].split()], truncation=True, max_length=3, is_split_into_words=True)
    assert len(tokenizer(TEXTS[0].split(), is_split_into_words=True)["input_ids"]) == LENGTHS[0]


@pytest.mark.parametrize("split", [False, True], ids=["text", "words"])
def test_what_is_cut_off_overflows_with_a_stride(tokenizer: ElmoTokenizer, split: bool) -> None:
    texts = ["a b c d e", "f", "g h i"]
    encoded = tokenizer(
        [text.split() for text in texts] if split else texts,
        is_split_into_words=split,
        truncation=True,
        max_length=5,
        stride=1,
        return_overflowing_tokens=True,
        padding=True,
        return_tensors="np",
    )
    expected = ["a b c", "c d e", "f", "g h i"]
    assert encoded["overflow_to_sample_mapping"].tolist() == [0, 0, 1, 2]
    assert tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True) == expected
    assert encoded["attention_mask"].sum(1).tolist() == [5, 5, 3, 5]


def test_one_text_that_overflows_is_a_batch(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer("a b c", truncation=True, max_length=4, return_overflowing_tokens=True)
    assert encoded["overflow_to_sample_mapping"] == [0, 0]
    assert tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True) == ["a b", "c"]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("only_second", ["<S>", "q", "r", "</S>", "<S>", "a", "b", "</S>"]),
        ("only_first", ["<S>", "q", "</S>", "<S>", "a", "b", "c", "</S>"]),
        ("longest_first", ["<S>", "q", "r", "</S>", "<S>", "a", "b", "</S>"]),
    ],
)
def test_pairs_are_cut_where_asked(tokenizer: ElmoTokenizer, strategy: str, expected: list[str]) -> None:
    encoded = tokenizer("q r", "a b c", truncation=strategy, max_length=8)
    assert encoded.tokens() == words_of(encoded["input_ids"], tokenizer) == expected


def test_long_answers_overflow_beside_their_question(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer(
        "q r", "a b c d", truncation="only_second", max_length=9, stride=2, return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )  # fmt: skip
    texts = tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True)
    assert texts == ["q r a b c", "q r b c d"]
    assert encoded["offset_mapping"][1][5:8] == [(2, 3), (4, 5), (6, 7)]


# -- where words stand -------------------------------------------------------------------------------------------------


def test_positions_lead_from_text_to_words_and_back(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer("Ünï  😀 x", return_offsets_mapping=True)
    assert encoded["offset_mapping"] == [(0, 0), (0, 3), (5, 6), (7, 8), (0, 0)]
    assert [encoded.char_to_token(place) for place in (0, 2, 3, 5, 7)] == [1, 1, None, 2, 3]
    assert tuple(encoded.token_to_chars(2)) == (5, 6)
    assert encoded.word_ids() == [None, 0, 1, 2, None]
    assert tuple(encoded.word_to_tokens(2)) == (3, 4)
    assert encoded.token_to_word(1) == 0


@pytest.mark.parametrize("side", ["right", "left"])
def test_positions_are_padded_with_their_words(tokenizer: ElmoTokenizer, side: str) -> None:
    encoded = tokenizer(
        ["one two", "x"],
        padding=True,
        padding_side=side,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_token_type_ids=True,
        return_tensors="pt",
    )
    left = side == "left"
    assert encoded["special_tokens_mask"].tolist() == [[1, 0, 0, 1], [1, 1, 0, 1] if left else [1, 0, 1, 1]]
    assert encoded["offset_mapping"][1].tolist()[2 if left else 1] == [0, 1]
    assert encoded.word_ids(1) == [None, None, 0, None] if left else [None, 0, None, None]
    assert encoded["token_type_ids"].shape == encoded["attention_mask"].shape == (2, 4)


def test_a_mask_of_boundaries_from_the_ids_alone(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer(["one two", "x"], padding=True, return_special_tokens_mask=True)
    for ids, mask in zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True):
        assert tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True) == mask
    assert tokenizer.get_special_tokens_mask([[0] * 50] * 2, [[0] * 50]) == [1, 0, 0, 1, 1, 0, 1]
    assert tokenizer.num_special_tokens_to_add() == 2
    assert tokenizer.num_special_tokens_to_add(pair=True) == 4


# -- back to words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensors", ["pt", "np", None])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_comes_back_as_its_texts(tokenizer: ElmoTokenizer, tensors: str | None, side: str) -> None:
    ids = tokenizer(SENTENCES, padding=True, padding_side=side, return_tensors=tensors)["input_ids"]
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == SENTENCES
    assert tokenizer.decode(ids, skip_special_tokens=True) == SENTENCES
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == SENTENCES[0]


def test_boundaries_and_padding_show_unless_skipped(tokenizer: ElmoTokenizer) -> None:
    ids = tokenizer(["a b", "c"], padding=True)["input_ids"]
    assert tokenizer.batch_decode(ids) == ["<S> a b </S>", "<S> c </S> <pad>"]
    assert tokenizer.batch_decode(tokenizer(["a b", "c"])["input_ids"]) == ["<S> a b </S>", "<S> c </S>"]
    assert tokenizer.decode([]) == ""


def test_words_to_ids_and_back(tokenizer: ElmoTokenizer) -> None:
    words = ["a", "<S>", "😀", "</S>", "<pad>", ""]
    ids = tokenizer.convert_tokens_to_ids(words)
    assert tokenizer.convert_ids_to_tokens(ids) == words
    assert tokenizer.convert_ids_to_tokens(ids, skip_special_tokens=True) == ["a", "😀", ""]
    assert tokenizer.convert_ids_to_tokens(tokenizer.convert_tokens_to_ids("word")) == "word"
    assert tokenizer.convert_ids_to_tokens(torch.tensor(ids)) == words
    assert tokenizer.decode(ids[0]) == "a"


def test_one_character_is_no_word(tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match="98 is one character"):
        tokenizer.convert_ids_to_tokens(98)


def test_tokenize_and_encode_are_the_call(tokenizer: ElmoTokenizer) -> None:
    assert tokenizer.tokenize("one two") == ["one", "two"]
    assert tokenizer.tokenize("one two", add_special_tokens=True) == ["<S>", "one", "two", "</S>"]
    assert tokenizer.encode("one two") == tokenizer("one two")["input_ids"]
    assert isinstance(tokenizer("one"), BatchEncoding)


def test_many_threads_get_what_one_gets(tokenizer: ElmoTokenizer) -> None:
    texts = [" ".join(f"w{i}" for i in range(n % 11 + 1)) for n in range(60)]

    def cut(length: int) -> list:
        words = [text.split() for text in texts]
        truncated = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="np")
        return [truncated["input_ids"].shape, tokenizer(words, is_split_into_words=True)["attention_mask"]]

    lengths = [4 + i % 5 for i in range(40)]
    expected = {length: cut(length) for length in set(lengths)}
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(cut, lengths)) == [expected[length] for length in lengths]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("parallelism", [None, "true", "false"])
def test_a_child_tokenizes_whatever_was_asked_of_the_backends_threads(
    tokenizer: ElmoTokenizer, monkeypatch: pytest.MonkeyPatch, parallelism: str | None
) -> None:
    if parallelism is None:
        monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    else:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallelism)
    texts = ["a b"] * 300
    assert len(tokenizer.split_into_words(texts)) == 300  # by several threads, where there are several processors
    child = os.fork()
    if not child:
        signal.alarm(30)
        try:
            os._exit(len(ElmoTokenizer().split_into_words(texts)) % 256)
        finally:
            os._exit(1)
    assert exit_code(child) == 300 % 256


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_tokenizes_although_a_thread_did_at_the_fork(tokenizer: ElmoTokenizer) -> None:
    stop, words = threading.Event(), ["some", "words"] * 50

    def work() -> None:
        while not stop.is_set():
            tokenizer(words, is_split_into_words=True, truncation=True, max_length=7)
            ElmoTokenizer()(words, is_split_into_words=True)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(int(os.environ.get("ELMO_FORKS", 25))):
            time.sleep(0.003)
            child = os.fork()
            if not child:
                signal.alarm(30)  # ends a child that hangs
                try:
                    tokenizer("a b")
                    tokenizer(["a", "b"], is_split_into_words=True)
                    os._exit(len(ElmoTokenizer()(["a"], is_split_into_words=True)["input_ids"]))
                finally:
                    os._exit(1)
            assert exit_code(child) == 3
    finally:
        stop.set()
        thread.join()


# -- arguments ---------------------------------------------------------------------------------------------------------

FILES = {"words_file": "words.txt", "character_vocab_file": "character_vocab.json"}


def written(folder: Path, files: set[str]) -> dict[str, str]:
    """The arguments that name files, each file written to a folder of its own."""
    folder.mkdir()
    (folder / FILES["words_file"]).write_text("the\ncat\n", encoding="utf-8")
    CharacterVocabulary(["t", "h", "e", "ü"], ["the", "hü"]).save(folder / FILES["character_vocab_file"])
    return {name: str(folder / FILES[name]) for name in files}


def test_a_byte_order_mark_is_no_letter_of_the_first_word(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("the\ncat\n", encoding="utf-8-sig")
    assert ElmoTokenizer(words_file=str(tmp_path / "words.txt")).words == ["the", "cat"]


def test_saving_leaves_no_file_of_an_earlier_tokenizer(tmp_path: Path) -> None:
    arguments = written(tmp_path / "made", set(FILES))
    (tmp_path / "made" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    ElmoTokenizer(vocab_file=str(tmp_path / "made" / "vocab.txt"), **arguments).save_pretrained(tmp_path / "out")
    assert ElmoTokenizer.from_pretrained(tmp_path / "out").vocabulary == ["<S>", "</S>", "<UNK>"]
    ElmoTokenizer().save_pretrained(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()}.isdisjoint({"vocab.txt", *FILES.values()})
    assert ElmoTokenizer.from_pretrained(tmp_path / "out").vocabulary is None


@pytest.mark.parametrize("files", [set(), {"words_file"}, {"character_vocab_file"}, set(FILES)], ids=sorted)
@pytest.mark.parametrize("loader", [ElmoTokenizer, AutoTokenizer], ids=lambda loader: loader.__name__)
def test_what_the_tokenizer_was_made_with_is_told_and_no_folder_is_saved(
    tmp_path: Path, loader: type, files: set[str]
) -> None:
    arguments = {"word_splitting": "whitespace", "max_word_length": 12, "split_special_tokens": False}
    arguments |= written(tmp_path / "made", files)
    tokenizer = ElmoTokenizer(**arguments)
    tokenizer.save_pretrained(tmp_path / "first")
    again = loader.from_pretrained(tmp_path / "first")
    parameters = inspect.signature(ElmoTokenizer.__init__).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
    assert {*arguments, "bos_token", *FILES} <= defaults.keys()
    assert defaults.keys() <= again.init_kwargs.keys()
    for name, default in defaults.items():
        given = str(tmp_path / "first" / FILES[name]) if name in files else arguments.get(name, default)
        found = again.init_kwargs[name]
        assert (str(found) if isinstance(found, AddedToken) else found) == given, name
    again.save_pretrained(tmp_path / "second")
    saved = (tmp_path / "second" / "tokenizer_config.json").read_text(encoding="utf-8")
    assert json.loads(saved)["max_word_length"] == 12
    for folder in ("made", "first"):
        assert str(tmp_path / folder) not in saved
    shutil.rmtree(tmp_path / "made")
    shutil.rmtree(tmp_path / "first")
    third = loader.from_pretrained(tmp_path / "second")
    assert third.words == (["the", "cat"] if "words_file" in files else None)
    assert dict(third("the hü dog")) == dict(tokenizer("the hü dog"))


@pytest.mark.parametrize("name", ["word_spliting", "max_word_len", "words_files"])
def test_a_misspelled_argument_is_warned_of(tmp_path: Path, caplog, name: str) -> None:
    ElmoTokenizer().save_pretrained(tmp_path)
    ElmoTokenizer.from_pretrained(tmp_path, model_max_length=9, chat_template="x", some_other_librarys="y")
    assert not caplog.text
    ElmoTokenizer.from_pretrained(tmp_path, **{name: 7})
    assert f"ElmoTokenizer has no argument {name} (7 has no effect); did you mean" in caplog.text


@pytest.mark.parametrize("name", ["do_lower_case", "lowercase", "strip_accents"])
def test_letters_stay_as_they_are_and_it_is_said(tmp_path: Path, caplog, name: str) -> None:
    ElmoTokenizer().save_pretrained(tmp_path)
    ElmoTokenizer.from_pretrained(tmp_path, **{name: False})
    assert not caplog.text
    ElmoTokenizer.from_pretrained(tmp_path, **{name: True})
    assert f"{name}=True has no effect: ELMo reads the characters as they are." in caplog.text


@pytest.mark.parametrize("tensors", ["pt", "np", None])
@pytest.mark.parametrize(
    "options", [{"padding": True, "pad_to_multiple_of": 3}, {"padding": "max_length", "max_length": 4}], ids=str
)
def test_the_longest_text_may_have_the_length_already(
    tokenizer: ElmoTokenizer, options: dict, tensors: str | None
) -> None:
    encoded = tokenizer(TEXTS, return_tensors=tensors, **options)
    assert np.asarray(encoded["input_ids"]).shape == (4, 6, 50)


def test_words_of_a_vocabulary_may_hold_whitespace(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>", "3\u00a0000", "a\u2028b", "c\u0085", "\u3000"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    assert ElmoTokenizer(vocab_file=str(tmp_path / "vocab.txt")).vocabulary == words


def test_lone_surrogates_are_dropped_before_a_word_is_cut() -> None:
    vocabulary = CharacterVocabulary(list("abcd"))
    assert vocabulary.spell(["a\ud800bcd"], 5).tolist() == vocabulary.spell(["abc"], 5).tolist()
