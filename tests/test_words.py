"""The tokenizer's words: their numbers, padding, labels at words, and its checkpoint."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from hf_elmo import ElmoTokenizer
from hf_elmo.tokenization_elmo import VectorWords

WORDS = ["the", "cat", "Rain", "<S>", "naïve"]
TEXTS = ["The cat", "rain Rain the THE naïve dog <S>"]
NUMBERS = [[1, 3, 4, 1], [1, 2, 5, 3, 3, 7, 2, 6, 1]]


@pytest.fixture
def tokenizer(tokenizer: ElmoTokenizer) -> ElmoTokenizer:
    tokenizer.words = WORDS
    return tokenizer


def test_numbers_of_words(tokenizer: ElmoTokenizer) -> None:
    """As it is spelled, else in lower case; "rain" is not "Rain"; a boundary is none of the words."""
    assert tokenizer(TEXTS)["word_vector_ids"] == NUMBERS
    assert tokenizer(TEXTS[0])["word_vector_ids"] == NUMBERS[0]
    assert list(tokenizer(TEXTS[0])) == ["input_ids", "word_vector_ids", "attention_mask"]
    split = tokenizer([text.split() for text in TEXTS], is_split_into_words=True)
    assert split["word_vector_ids"] == NUMBERS


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("how", ["call", "lists", "pad", "pad to lists"])
def test_padding(tokenizer: ElmoTokenizer, side: str, how: str) -> None:
    options = {"padding": True, "padding_side": side}
    if how.startswith("pad"):
        rows = [tokenizer(text) for text in TEXTS]
        found = tokenizer.pad(rows, **options, return_tensors=None if how == "pad to lists" else "pt")
    else:
        found = tokenizer(TEXTS, **options, return_tensors=None if how == "lists" else "pt")
    zeros = [0] * 5
    expected = [NUMBERS[0] + zeros if side == "right" else zeros + NUMBERS[0], NUMBERS[1]]
    assert np.array(found["word_vector_ids"]).tolist() == expected
    assert (np.array(found["input_ids"]).any(2) == (np.array(expected) > 0)).all()
    assert np.array(found["attention_mask"]).tolist() == (np.array(expected) > 0).astype(int).tolist()


def test_truncation_pairs_and_empty_words(tokenizer: ElmoTokenizer) -> None:
    assert tokenizer(TEXTS[1], truncation=True, max_length=4)["word_vector_ids"] == [1, 2, 5, 1]
    assert tokenizer("the cat", "cat")["word_vector_ids"] == [1, 3, 4, 1, 1, 4, 1]
    assert tokenizer(["the", "", "cat"], is_split_into_words=True)["word_vector_ids"] == [1, 3, 2, 4, 1]


def test_without_words_there_are_no_numbers(tokenizer: ElmoTokenizer) -> None:
    tokenizer.words = None
    assert "word_vector_ids" not in tokenizer(TEXTS[0])
    assert tokenizer.model_input_names == ["input_ids", "attention_mask"]


def test_words_come_back_from_a_checkpoint(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    tokenizer.words = [*WORDS, "a\u2028b", "x\x85"]
    tokenizer.save_pretrained(tmp_path)
    for again in (AutoTokenizer.from_pretrained(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert again.words == tokenizer.words
        assert again(TEXTS)["word_vector_ids"] == NUMBERS
    again.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "words.txt").read_bytes() == (tmp_path / "words.txt").read_bytes()
    tokenizer.words = None
    tokenizer.save_pretrained(tmp_path / "none")
    assert AutoTokenizer.from_pretrained(tmp_path / "none").words is None


def test_labels_stand_where_words_do(tokenizer: ElmoTokenizer) -> None:
    words, labels = [["a", "", "New York"], ["b"]], [[4, 5, 6], [7]]
    encoded = tokenizer(words, is_split_into_words=True)
    assert tokenizer.align_labels(encoded, labels) == [[-100, 4, 5, 6, -100], [-100, 7, -100]]
    one = tokenizer(words[0], is_split_into_words=True)
    assert tokenizer.align_labels(one, labels[0]) == [-100, 4, 5, 6, -100]
    left = tokenizer(words, is_split_into_words=True, padding=True, padding_side="left")
    assert tokenizer.align_labels(left, labels)[1] == [-100, -100, -100, 7, -100]
    cut = tokenizer(words, is_split_into_words=True, truncation=True, max_length=4)
    assert tokenizer.align_labels(cut, labels)[0] == [-100, 4, 5, -100]


@pytest.mark.parametrize("side", ["right", "left"])
def test_numbers_of_words_are_padded_alone(tokenizer: ElmoTokenizer, side: str) -> None:
    tokenizer.padding_side = side
    rows = [{"word_vector_ids": [1, 5, 1], "token_type_ids": [0, 0, 0]}, {"word_vector_ids": np.array([1, 4, 3, 2, 1])}]
    rows[1]["token_type_ids"] = [0] * 5
    batch = tokenizer.pad(rows, return_tensors="pt")
    short = [1, 5, 1, 0, 0] if side == "right" else [0, 0, 1, 5, 1]
    assert batch["word_vector_ids"].tolist() == [short, [1, 4, 3, 2, 1]]
    assert batch["attention_mask"].tolist() == [[int(i != 0) for i in short], [1] * 5]
    assert "input_ids" not in batch
    one = tokenizer.pad({"word_vector_ids": [1, 5, 1]}, padding="max_length", max_length=5)
    assert one["word_vector_ids"] == short
    assert one["attention_mask"] == [int(i != 0) for i in short]


def test_a_word_is_of_one_line() -> None:
    with pytest.raises(ValueError, match="words"):
        VectorWords(["a", "b\nc"])
