"""The tokenizer's words: their numbers, padding, labels at words, and its checkpoint."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_elmo import ElmoTokenizer
from hf_elmo.words_elmo import WordIds

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
    assert tokenizer("ca\ud800t the")["word_vector_ids"] == [1, 4, 3, 1]


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


@pytest.mark.parametrize("prefix", ["", "my-"])
def test_words_that_were_taken_away_do_not_come_back_from_the_same_folder(
    tokenizer: ElmoTokenizer, tmp_path: Path, prefix: str
) -> None:
    tokenizer.words = WORDS
    tokenizer.save_pretrained(tmp_path, filename_prefix=prefix[:-1])
    assert (tmp_path / f"{prefix}words.txt").is_file()
    vocabulary = tmp_path / f"{prefix}character_vocab.json"  # of another tokenizer that was there
    vocabulary.write_text("{}")
    tokenizer.words = None
    saved = tokenizer.save_pretrained(tmp_path, filename_prefix=prefix[:-1])
    assert not (tmp_path / f"{prefix}words.txt").exists()
    assert not vocabulary.exists()
    assert all(Path(path).exists() for path in saved)
    if not prefix:
        again = AutoTokenizer.from_pretrained(tmp_path)
        assert again.words is None
        assert again(TEXTS).keys() == {"input_ids", "attention_mask"}


@pytest.mark.parametrize(("words", "said"), [(["a", "b", "a"], "'a' twice"), ([""], "''"), (["a\nb"], r"'a\\nb'")])
def test_words_that_cannot_be_listed(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WordIds(words)


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


@pytest.mark.parametrize("labels", [[[4, 5], [7]], [[4, 5, 6, 6], [7]]])
def test_a_text_with_other_words_than_labels(tokenizer: ElmoTokenizer, labels: list) -> None:
    encoded = tokenizer([["a", "b", "c"], ["b"]], is_split_into_words=True)
    with pytest.raises(ValueError, match=f"text 0 has 3 words, but {len(labels[0])} labels"):
        tokenizer.align_labels(encoded, labels)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint16])
def test_stored_layers_are_padded_in_place_of_input_ids(tokenizer: ElmoTokenizer, side: str, dtype: type) -> None:
    rng = np.random.default_rng(1)
    rows = [{"bilm_layers": rng.random((n, 3, 4)).astype(dtype), "word_vector_ids": [5] * n} for n in (2, 5)]
    rows[0]["bilm_layers"][0, 0, 0] = 1.0 if dtype is not np.uint16 else 0x3F80  # 1.0 in bfloat16
    tokenizer.padding_side = side
    batch = tokenizer.pad(rows, return_tensors="pt")
    first = 0 if side == "right" else 3
    assert batch["bilm_layers"].shape == (2, 5, 3, 4)
    expected = {np.float16: torch.float16, np.float32: torch.float32, np.uint16: torch.bfloat16}[dtype]
    assert batch["bilm_layers"].dtype == expected
    assert batch["bilm_layers"][0, first, 0, 0] == 1.0
    assert batch["attention_mask"][0].tolist() == ([1, 1, 0, 0, 0] if side == "right" else [0, 0, 0, 1, 1])
    assert (batch["bilm_layers"][0][batch["attention_mask"][0] == 0] == 0).all()
    assert batch["word_vector_ids"][0].tolist() == [5 * i for i in batch["attention_mask"][0].tolist()]


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


def test_padding_needs_words(tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match="pad needs input_ids, bilm_layers or word_vector_ids, but was given labels"):
        tokenizer.pad([{"labels": 1}], return_tensors="pt")


@pytest.mark.parametrize("layers", [[[[-1, 2]]], [[[1, 65536]]], [[1.0, 2.0]], [[["a"]]]], ids=str)
def test_what_are_no_stored_layers(tokenizer: ElmoTokenizer, layers: list) -> None:
    with pytest.raises(ValueError, match="bilm_layers of one text are"):
        tokenizer.pad([{"bilm_layers": layers}], return_tensors="pt")


def test_stored_layers_may_be_widened(tokenizer: ElmoTokenizer) -> None:
    """As data sets do: int64 of uint16, float64 of Python's floats."""
    for layers, dtype in (([[[0x3F80]]], torch.bfloat16), ([[[1.0]]], torch.float64)):
        found = tokenizer.pad([{"bilm_layers": layers}], return_tensors="pt")["bilm_layers"]
        assert found.dtype == dtype
        assert found.tolist() == [[[[1.0]]]]


@pytest.mark.parametrize("word", ["a\rb", "a\nb", "\r"])
def test_a_word_is_of_one_line(word: str) -> None:
    with pytest.raises(ValueError, match="a word must be of one line"):
        WordIds([word])
