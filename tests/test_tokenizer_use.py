"""ElmoTokenizer in the hands of others: pad and the collators, datasets, copies, files."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from datasets.fingerprint import Hasher
from tokenizers import Tokenizer, normalizers
from transformers import AutoTokenizer, DataCollatorForTokenClassification, DataCollatorWithPadding

from hf_elmo import ElmoTokenizer
from hf_elmo.hub import FILES
from tests.conftest import SENTENCES

LENGTHS = [len(sentence.split()) + 2 for sentence in SENTENCES]


# -- pad and the collators ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, partial(np.array, dtype=np.int16), torch.tensor], ids=["list", "np", "pt"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_pad_gives_what_the_call_gives(tokenizer: ElmoTokenizer, kind: Callable, side: str) -> None:
    examples = [{key: kind(value) for key, value in tokenizer(sentence).items()} for sentence in SENTENCES]
    tensors = None if kind is list else "pt"
    padded = tokenizer.pad(examples, padding_side=side, return_tensors=tensors)
    expected = tokenizer(SENTENCES, padding=True, padding_side=side, return_tensors=tensors)
    assert set(padded) == set(expected)
    for key in expected:
        assert type(padded[key]) is type(expected[key])
        assert np.array_equal(np.asarray(padded[key]), np.asarray(expected[key]))


def test_pad_takes_one_example_and_texts_without_words(tokenizer: ElmoTokenizer) -> None:
    padded = tokenizer.pad(tokenizer("a"), padding="max_length", max_length=5, return_tensors="pt")
    assert padded["input_ids"].shape == (5, 50)
    assert padded["attention_mask"].tolist() == [1, 1, 1, 0, 0]
    examples = [tokenizer(text, add_special_tokens=False) for text in ("", "a b", "")]
    padded = tokenizer.pad(examples, return_tensors="pt")
    assert padded["input_ids"].shape == (3, 2, 50)
    assert padded["attention_mask"].tolist() == [[0, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("side", ["right", "left"])
def test_data_collator_for_token_classification(side: str) -> None:
    tokenizer = ElmoTokenizer(word_splitting="whitespace", padding_side=side)
    examples = []
    for words in (["New York", "is", "big"], ["yes"]):
        encoded = tokenizer(words, is_split_into_words=True)
        labels = [-100 if word is None else word for word in encoded.word_ids()]
        examples.append({**encoded, "labels": labels})
    batch = DataCollatorForTokenClassification(tokenizer)(examples)
    short = [-100, 0, -100]
    assert batch["labels"].tolist() == [
        [-100, 0, 1, 2, -100],
        [*short, -100, -100] if side == "right" else [-100, -100, *short],
    ]
    assert batch["input_ids"].shape == (2, 5, 50)
    assert batch["attention_mask"].sum(1).tolist() == [5, 3]


# -- datasets ----------------------------------------------------------------------------------------------------------


def test_datasets_map_in_several_processes(tokenizer: ElmoTokenizer) -> None:
    texts = [f"{sentence} {number}" for number in range(9) for sentence in SENTENCES]
    rows = datasets.Dataset.from_dict({"text": texts})

    def encode(batch: dict) -> dict:
        return dict(tokenizer(batch["text"], padding=True, return_tensors="np"))

    mapped = rows.map(encode, batched=True, batch_size=7, num_proc=2, remove_columns="text")
    padded = DataCollatorWithPadding(tokenizer)([mapped[i] for i in range(len(texts))])
    assert torch.equal(padded["input_ids"], tokenizer(texts, padding=True, return_tensors="pt")["input_ids"])
    assert padded["attention_mask"].sum(1).tolist() == [len(text.split()) + 2 for text in texts]


@pytest.mark.parametrize("words", [False, True], ids=["texts", "words"])
def test_datasets_finds_again_what_it_mapped(tmp_path: Path, words: bool) -> None:
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n", encoding="utf-8")
    tokenizer = ElmoTokenizer(vocab_file=str(tmp_path / "vocab.txt"))
    datasets.Dataset.from_dict({"text": [["a", "b c"]] if words else ["a b"]}).save_to_disk(tmp_path / "rows")
    rows = datasets.load_from_disk(tmp_path / "rows")
    before = Hasher.hash(tokenizer)
    mapped = [rows.map(lambda row: tokenizer(row["text"], is_split_into_words=words)) for _ in range(2)]
    assert Hasher.hash(tokenizer) == before
    assert mapped[0].cache_files == mapped[1].cache_files != []


# -- copies and files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda it: pickle.loads(pickle.dumps(it))])
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_a_copy_is_the_same(duplicate, used: bool) -> None:
    tokenizer = ElmoTokenizer(max_word_length=23, padding_side="left")
    if used:
        tokenizer(["a", "b c"], is_split_into_words=True, truncation=True, max_length=3)
    other = duplicate(tokenizer)
    for texts, is_split in ((SENTENCES, False), ([["a b", ""], ["c"]], True)):
        calls = [each(texts, padding=True, is_split_into_words=is_split) for each in (tokenizer, other)]
        assert dict(calls[0]) == dict(calls[1])


SETTINGS = {
    "as it comes": {},
    "whitespace": {"word_splitting": "whitespace"},
    "short words": {"max_word_length": 12},
    "left": {"padding_side": "left", "truncation_side": "left"},
    "boundaries in the text": {"split_special_tokens": False, "word_splitting": "whitespace"},
    "a longest text": {"model_max_length": 4},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("loader", [ElmoTokenizer, AutoTokenizer])
def test_a_tokenizer_comes_back_from_its_files(tmp_path: Path, settings: dict, loader: type) -> None:
    tokenizer = ElmoTokenizer(**settings)
    texts = ["<S> It isn't extraordinarily long. </S>", "Short"]
    call = {"padding": True, "truncation": "model_max_length" in settings}
    expected = tokenizer(texts, **call)
    tokenizer.save_pretrained(tmp_path)
    again = loader.from_pretrained(tmp_path)
    assert type(again) is ElmoTokenizer
    assert dict(again(texts, **call)) == dict(expected)
    assert all(getattr(again, name) == value for name, value in settings.items())


def test_the_files_are_two_and_the_code(tmp_path: Path) -> None:
    files = ElmoTokenizer().save_pretrained(tmp_path)
    expected = {"tokenizer.json", "tokenizer_config.json", *FILES["ElmoTokenizer"]}
    assert {path.name for path in tmp_path.iterdir()} == expected
    assert {Path(file).name for file in files} >= {"tokenizer.json", "tokenizer_config.json"}
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("a b").tokens == ["<S>", "a", "b", "</S>"]


def test_the_length_is_that_of_the_embedding(model):
    tokenizer = ElmoTokenizer()
    assert len(tokenizer) == tokenizer.vocab_size == model.get_input_embeddings().num_embeddings
    embedding = model.get_input_embeddings()
    assert model.resize_token_embeddings(len(tokenizer)) is embedding


@pytest.mark.parametrize("truncation", ["only_first", "only_second"])
def test_lists_of_two_are_pairs_where_one_of_the_two_is_to_be_cut(truncation):
    tokenizer = ElmoTokenizer()
    found = tokenizer([["a b", "c"], ["d", "e"]], truncation=truncation, padding=True)
    assert found["input_ids"] == tokenizer([("a b", "c"), ("d", "e")], padding=True)["input_ids"]
    for other in ({}, {"truncation": True}, {"truncation": "longest_first"}):
        with pytest.raises(ValueError, match="is_split_into_words"):
            tokenizer([["New", "York"]], **other)
    with pytest.raises(ValueError, match="is_split_into_words"):
        tokenizer([["a", "b", "c"]], truncation=truncation)
    words = tokenizer([["New", "York"]], truncation=truncation, is_split_into_words=True)
    assert words.tokens() == ["<S>", "New", "York", "</S>"]


@pytest.mark.parametrize("loaded_as", [None, "whitespace", "lm1b"])
@pytest.mark.parametrize("saved_as", ["lm1b", "whitespace"])
def test_a_normalizer_of_ones_own_is_kept(tmp_path: Path, saved_as: str, loaded_as: str | None) -> None:
    tokenizer = ElmoTokenizer(saved_as)
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save_pretrained(tmp_path)
    for loader in (ElmoTokenizer, AutoTokenizer):
        again = loader.from_pretrained(tmp_path, **({"word_splitting": loaded_as} if loaded_as else {}))
        apart = (loaded_as or saved_as) == "lm1b"
        assert again.split_into_words(["Big CITY!"]) == [["big", "city", "!"] if apart else ["big", "city!"]]


def test_the_vocabulary_is_that_of_the_characters():
    tokenizer = ElmoTokenizer()
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary.values()) == list(range(len(tokenizer)))
    assert {name: vocabulary[name] for name in ("<pad>", "<S>", "</S>")} == {
        "<pad>": tokenizer.pad_token_id,
        "<S>": tokenizer.bos_token_id,
        "</S>": tokenizer.eos_token_id,
    }
    names = {number: name for name, number in vocabulary.items()}
    row = tokenizer.convert_tokens_to_ids("aé")
    expected = ["<begin word>", "<0x61>", "<0xC3>", "<0xA9>", "<end word>", "<word padding>"]
    assert [names[number] for number in row[:6]] == expected
    assert tokenizer.vocab == vocabulary
    assert tokenizer.get_added_vocab() == {"<pad>": 0, "<S>": 257, "</S>": 258}
    assert ElmoTokenizer(bos_token="[B]").get_vocab()["[B]"] == 257


def test_labels_of_one_text_may_be_names_and_those_of_several_arrays() -> None:
    tokenizer = ElmoTokenizer("whitespace")
    words = [["Ada", "sleeps"], ["No"]]
    assert tokenizer.align_labels(tokenizer(words[0], is_split_into_words=True), ["B-PER", "O"]) == [
        -100,
        "B-PER",
        "O",
        -100,
    ]
    labels = [np.array([1, 0]), np.array([2])]
    found = tokenizer.align_labels(tokenizer(words, is_split_into_words=True), labels)
    assert found == [[-100, 1, 0, -100], [-100, 2, -100]]
    with pytest.raises(ValueError, match="labels"):
        tokenizer.align_labels(tokenizer(words, is_split_into_words=True), labels[:1])


def test_labels_of_the_pieces_of_long_texts() -> None:
    tokenizer = ElmoTokenizer("whitespace")
    in_pieces = {"truncation": True, "max_length": 4, "return_overflowing_tokens": True}
    texts, labels = ["a b c d e", "f"], [[1, 2, 3, 4, 5], [6]]
    expected = [[-100, 1, 2, -100], [-100, 3, 4, -100], [-100, 5, -100], [-100, 6, -100]]
    assert tokenizer.align_labels(tokenizer(texts, **in_pieces), labels) == expected
    assert tokenizer.align_labels(tokenizer(texts[0], **in_pieces), labels[0]) == expected[:3]
    with_stride = tokenizer(texts, **in_pieces, stride=1, padding=True)
    assert tokenizer.align_labels(with_stride, labels)[1] == [-100, 2, 3, -100]
    for wrong in ([[1, 2, 3, 4], [6]], [[1, 2, 3, 4, 5, 5], [6]]):
        with pytest.raises(ValueError, match="labels of text 0"):
            tokenizer.align_labels(tokenizer(texts, **in_pieces), wrong)


def test_other_names_of_boundaries_and_padding_have_the_same_ids(tmp_path: Path) -> None:
    ElmoTokenizer().save_pretrained(tmp_path)
    expected = ElmoTokenizer()(["a b", "c"], padding=True)["input_ids"]
    made, loaded = ElmoTokenizer(pad_token="[PAD]"), ElmoTokenizer.from_pretrained(tmp_path, bos_token="[B]")
    changed = ElmoTokenizer()
    changed.pad_token = changed.eos_token
    for tokenizer in (made, loaded, changed):
        assert tokenizer(["a b", "c"], padding=True)["input_ids"] == expected
        assert tokenizer.convert_tokens_to_ids("</S>") == expected[1][2]
    assert made(["a b", "c"], padding=True).tokens(1) == ["<S>", "c", "</S>", "[PAD]"]


def test_the_way_to_split_is_chosen_when_the_tokenizer_is_made() -> None:
    with pytest.raises(AttributeError, match="word_splitting"):
        ElmoTokenizer().word_splitting = "whitespace"


def test_labels_of_a_pair_are_refused() -> None:
    tokenizer = ElmoTokenizer("whitespace")
    with pytest.raises(ValueError, match="labels"):
        tokenizer.align_labels(tokenizer(["a b"], ["x y"]), [[1, 2]])
