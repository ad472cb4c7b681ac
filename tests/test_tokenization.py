"""ElmoTokenizer: what a user of transformers may hand it, ask of it, and do with it."""

import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from datasets.fingerprint import Hasher
from tokenizers import Tokenizer
from transformers import AutoTokenizer, TokenizersBackend

from hf_elmo import ElmoTokenizer
from hf_elmo.tokenization_elmo import CharacterVocabulary, words_to_character_ids
from tests.factories import CODE, SENTENCES, whitespace_tokenizer, write_lines

TEXTS = ["one two three", "four", "", "five six seven eight"]
LENGTHS = [5, 3, 2, 6]  # with <S> and </S>
WORDS = ["the", "cat", "Rain", "<S>", "naïve"]  # those that have a vector
PADDED_TO_12 = {"padding": "max_length", "max_length": 9, "pad_to_multiple_of": 4}
IN_PIECES = {"truncation": True, "max_length": 4, "return_overflowing_tokens": True}
every_side = pytest.mark.parametrize("side", ["right", "left"])


def column(texts: list) -> Sequence[str]:
    return datasets.Dataset.from_dict({"text": texts})["text"]


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series, column])
def test_a_list_of_texts_is_each_text_alone(tokenizer, kind: type) -> None:
    alone = [tokenizer(text) for text in TEXTS]
    for encoded in (tokenizer(kind(TEXTS)), tokenizer([text.split() for text in TEXTS], is_split_into_words=True)):
        assert encoded["input_ids"] == [one["input_ids"] for one in alone]
    assert tokenizer(kind(TEXTS), kind(TEXTS))["input_ids"] == tokenizer(TEXTS, TEXTS)["input_ids"]
    assert tokenizer.split_into_words(kind(TEXTS)) == [text.split() for text in TEXTS]
    words = [["New York", "is"], ["big"]]
    arrays, wanted = [kind(sentence) for sentence in words], tokenizer(words, is_split_into_words=True)["input_ids"]
    if kind is not tuple:  # which is a pair
        assert tokenizer(arrays, is_split_into_words=True)["input_ids"] == wanted
    assert tokenizer(arrays[0], is_split_into_words=True)["input_ids"] == wanted[0]
    assert tokenizer.split_into_words(arrays) == words


@pytest.mark.parametrize("words", [False, True], ids=["text", "words"])
def test_each_text_of_a_pair_has_its_boundaries(tokenizer, words: bool) -> None:
    first, second = (["a", "b"], ["c"]) if words else ("a b", "c")
    for texts in ((first, second), ([first], [second]), ([(first, second)],)):
        encoded = tokenizer(*texts, is_split_into_words=words, return_token_type_ids=True, return_tensors="np")
        assert encoded.tokens() == ["<S>", "a", "b", "</S>", "<S>", "c", "</S>"]
        assert encoded["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1]]
        assert encoded.sequence_ids() == [None, 0, 0, None, None, 1, None]
        assert tokenizer.convert_ids_to_tokens(encoded["input_ids"][0]) == encoded.tokens()


@pytest.mark.parametrize("truncation", ["only_first", "only_second", "longest_first"])
def test_lists_of_two_are_pairs_where_the_truncation_is_named(tokenizer, truncation: str) -> None:
    found = tokenizer([["a b", "c"], ["d", "e"]], truncation=truncation, padding=True)
    assert found["input_ids"] == tokenizer([("a b", "c"), ("d", "e")], padding=True)["input_ids"]
    words = tokenizer([["New", "York"]], truncation=truncation, is_split_into_words=True)
    assert words.tokens() == ["<S>", "New", "York", "</S>"]


def test_a_string_is_no_list_of_words_and_a_list_of_words_no_text(tokenizer) -> None:
    split = {"is_split_into_words": True}
    cases = (([["New", "York"]], {}), ([["a", "b"]], {"truncation": True}), ([["a"] * 3], {}), ("New York", split))
    for texts, how in cases:
        with pytest.raises(ValueError, match="is_split_into_words"):
            tokenizer(texts, **how)
    with pytest.raises(ValueError, match="texts"):
        tokenizer.split_into_words("New York")


@pytest.mark.parametrize("tensors", ["pt", "np"])
def test_no_texts_and_empty_texts(tokenizer, tensors: str) -> None:
    tokenizer.words = WORDS
    empty = {"input_ids": (0, 0, 50), "attention_mask": (0, 0), "word_vector_ids": (0, 0)}
    assert dict(tokenizer([])) == {name: [] for name in empty}
    encoded = tokenizer([], padding=True, return_tensors=tensors)
    assert {name: tuple(values.shape) for name, values in encoded.items()} == empty
    for text in ("", " ", "\n\t"):
        assert tokenizer(text).tokens() == ["<S>", "</S>"]
        assert tuple(tokenizer(text, return_tensors=tensors, add_special_tokens=False)["input_ids"].shape) == (1, 0, 50)
    three = [tokenizer(text, add_special_tokens=False) for text in ("", "a b", "")]
    padded = tokenizer.pad(three, return_tensors=tensors)
    assert (padded["input_ids"].shape, padded["attention_mask"].tolist()) == ((3, 2, 50), [[0, 0], [1, 1], [0, 0]])


def test_empty_words_keep_their_place_and_have_no_characters(tokenizer) -> None:
    how = {"is_split_into_words": True, "return_offsets_mapping": True, "padding": True}
    encoded = tokenizer([["", "new", "", "b\ud83d", ""], ["x"]], **how)
    assert encoded.word_ids(0) == [None, 0, 1, 2, 3, 4, None]
    assert encoded["offset_mapping"][0] == [(0, 0), (0, 0), (0, 3), (0, 0), (0, 2), (0, 0), (0, 0)]
    empty, x = words_to_character_ids(["", "x"]).tolist()
    assert [encoded["input_ids"][0][place] for place in (1, 3, 5)] == [empty] * 3
    pairs = tokenizer([["x", ""], ["x"]], [["", "x"], [""]], is_split_into_words=True)["input_ids"]
    assert pairs[0][1:3] + pairs[0][5:7] + pairs[1][1:2] + pairs[1][4:5] == [x, empty, empty, x, x, empty]
    pieces = tokenizer(["x", "x", "", "x"], is_split_into_words=True, **IN_PIECES)["input_ids"]
    assert [piece[1:-1] for piece in pieces] == [[x, x], [empty, x]]


def test_lone_surrogates_are_dropped(tokenizer) -> None:
    assert tokenizer("RT \ud83d cut\udca9").tokens() == ["<S>", "RT", "cut", "</S>"]
    text = "a\ud83d \udca9b c\ud83dd é"
    for sources in ((text,), ("x", text), (text, "y")):  # places are those in the text as it is given
        encoded = tokenizer(*sources, return_offsets_mapping=True)
        places = zip(encoded.sequence_ids(), encoded["offset_mapping"], encoded.tokens(), strict=True)
        own = [(sources[k][slice(*span)].replace("\ud83d", ""), word) for k, span, word in places if k is not None]
        assert all(found == word for found, word in own)
    assert tokenizer([("a\ud83d", "b\ud83d")]).tokens() == ["<S>", "a", "</S>", "<S>", "b", "</S>"]
    words, wanted = (tokenizer(["a", word], is_split_into_words=True)["input_ids"] for word in ("\ud83d", ""))
    assert words == wanted
    texts = iter(["RT \ud83d", ["\ud83d", "New York"], ()])
    assert tokenizer.split_into_words(texts, pretokenized=True) == [["RT"], ["", "New York"], []]


@every_side
@pytest.mark.parametrize("tensors", ["pt", "np", None])
@pytest.mark.parametrize(("how", "length"), [({"padding": True}, 6), (PADDED_TO_12, 12)], ids=["longest", "12"])
def test_padding_is_rows_of_zeros(tokenizer, side: str, tensors: str, how: dict, length: int) -> None:
    how = {"return_tensors": tensors, **how}
    made, asked = whitespace_tokenizer(padding_side=side), {"padding_side": side, **how}
    for encoded in (made(TEXTS, **how), tokenizer(TEXTS, **asked), tokenizer.pad(tokenizer(TEXTS), **asked)):
        ids, mask = np.asarray(encoded["input_ids"]), np.asarray(encoded["attention_mask"])
        assert ids.shape == (4, length, 50)
        assert ids.any(2).tolist() == mask.astype(bool).tolist()
        for row, row_mask, text, words in zip(ids, mask, TEXTS, LENGTHS, strict=True):
            real = slice(0, words) if side == "right" else slice(length - words, length)
            assert row[real].tolist() == tokenizer(text)["input_ids"]
            assert row_mask.sum() == row_mask[real].sum() == words
    encoded = tokenizer(TEXTS, return_length=True, **how)
    assert [len(encoding) for encoding in encoded.encodings] == list(encoded["length"]) == [length] * 4


@every_side
@pytest.mark.parametrize("split", [False, True], ids=["text", "words"])
def test_truncation_keeps_the_boundaries_and_is_of_one_call(side: str, split: bool) -> None:
    tokenizer = whitespace_tokenizer(truncation_side=side)
    text = TEXTS[0].split() if split else TEXTS[0]
    encoded = tokenizer(text, truncation=True, max_length=4, is_split_into_words=split)
    words = ["one", "two"] if side == "right" else ["two", "three"]
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == encoded.tokens() == ["<S>", *words, "</S>"]
    assert encoded["attention_mask"] == [1] * 4
    assert len(tokenizer(text, is_split_into_words=split)["input_ids"]) == LENGTHS[0]


@every_side
def test_positions_are_padded_with_their_words(tokenizer, side: str) -> None:
    how = {f"return_{name}": True for name in ("offsets_mapping", "special_tokens_mask", "token_type_ids")}
    encoded = tokenizer(["one two", "x"], padding=True, padding_side=side, return_tensors="pt", **how)
    left = side == "left"
    assert encoded["special_tokens_mask"].tolist() == [[1, 0, 0, 1], [1, 1, 0, 1] if left else [1, 0, 1, 1]]
    assert encoded["offset_mapping"][1].tolist()[2 if left else 1] == [0, 1]
    assert encoded.word_ids(1) == [None, None, 0, None] if left else [None, 0, None, None]
    assert encoded["token_type_ids"].shape == encoded["attention_mask"].shape == (2, 4)
    for ids, mask in zip(encoded["input_ids"], encoded["special_tokens_mask"].tolist(), strict=True):
        assert tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True) == mask


@pytest.mark.parametrize("tensors", ["pt", "np", None])
@every_side
def test_a_batch_comes_back_as_its_texts(tokenizer, tensors: str | None, side: str) -> None:
    ids = tokenizer(SENTENCES, padding=True, padding_side=side, return_tensors=tensors)["input_ids"]
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == SENTENCES
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == SENTENCES[0]
    decoded = tokenizer.batch_decode(tokenizer(["a b", "c"], padding=True)["input_ids"])
    assert decoded == ["<S> a b </S>", "<S> c </S> <pad>"]
    words = ["a", "<S>", "😀", "</S>", "<pad>", ""]
    ids = tokenizer.convert_tokens_to_ids(words)
    assert tokenizer.convert_ids_to_tokens(ids) == tokenizer.convert_ids_to_tokens(torch.tensor(ids)) == words
    assert tokenizer.convert_ids_to_tokens(ids, skip_special_tokens=True) == ["a", "😀", ""]
    assert tokenizer.convert_ids_to_tokens(tokenizer.convert_tokens_to_ids("word")) == "word"
    assert (tokenizer.decode(ids[0]), tokenizer.decode([])) == ("a", "")


def test_the_vocabulary_is_that_of_the_characters(model) -> None:
    tokenizer, embedding = ElmoTokenizer(), model.get_input_embeddings()
    assert len(tokenizer) == tokenizer.vocab_size == embedding.num_embeddings
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary.values()) == list(range(len(tokenizer)))
    assert [vocabulary[name] for name in ("<pad>", "<S>", "</S>")] == tokenizer.all_special_ids
    names = {number: name for name, number in vocabulary.items()}
    row = tokenizer.convert_tokens_to_ids("aé")
    expected = ["<begin word>", "<0x61>", "<0xC3>", "<0xA9>", "<end word>", "<word padding>"]
    assert [names[number] for number in row[:6]] == expected


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
@every_side
def test_pad_gives_what_the_call_gives(tokenizer, kind: type, side: str) -> None:
    tokenizer.words = WORDS
    examples = [{key: kind(value) for key, value in tokenizer(sentence).items()} for sentence in SENTENCES]
    how = {"padding_side": side, "return_tensors": None if kind is list else "pt"}
    padded, expected = tokenizer.pad(examples, **how), tokenizer(SENTENCES, padding=True, **how)
    assert set(padded) == set(expected) == {"input_ids", "word_vector_ids", "attention_mask"}
    assert np.array_equal(np.asarray(padded["word_vector_ids"]) > 0, np.asarray(padded["attention_mask"]) > 0)
    for key in expected:
        assert type(padded[key]) is type(expected[key])
        assert np.array_equal(np.asarray(padded[key]), np.asarray(expected[key]))
    one = tokenizer.pad(examples[0], padding="max_length", max_length=11)
    assert (np.asarray(one["input_ids"]).shape, sum(one["attention_mask"])) == ((11, 50), 9)


@pytest.mark.parametrize("words", [False, True], ids=["texts", "words"])
def test_datasets_finds_again_what_it_mapped(tmp_path, words: bool) -> None:
    vocabulary = write_lines(tmp_path / "vocab.txt", ["<S>", "</S>", "<UNK>", "the"])
    tokenizer = ElmoTokenizer(vocab_file=str(vocabulary), embeds_words=words)
    datasets.Dataset.from_dict({"text": [["a", "b c"]] if words else ["a b"]}).save_to_disk(tmp_path / "rows")
    rows = datasets.load_from_disk(tmp_path / "rows")
    before = Hasher.hash(tokenizer)
    mapped = []
    for _ in range(2):
        mapped.append(rows.map(lambda row: tokenizer(row["text"], is_split_into_words=words)))
        tokenizer.save_pretrained(tmp_path / "checkpoint")
    assert Hasher.hash(tokenizer) == before
    assert mapped[0].cache_files == mapped[1].cache_files != []
    tokenizer.vocabulary = [*tokenizer.vocabulary, "a"]  # with another id
    assert Hasher.hash(tokenizer) != before


def test_labels_stand_where_words_do(tokenizer) -> None:
    words, labels = [["a", "", "New York"], ["b"]], [np.array([4, 5, 6]), np.array([7])]

    def aligned(labels: list, texts: list = words, **how: object) -> list:
        return tokenizer.align_labels(tokenizer(texts, is_split_into_words=True, **how), labels)

    columns = [pd.Series(own, index=range(2, 2 - len(own), -1)) for own in labels]
    for given in (labels, list(map(torch.tensor, labels)), pd.Series(labels, index=[1, 0]), columns):
        assert aligned(given) == [[-100, 4, 5, 6, -100], [-100, 7, -100]]
    assert aligned(["O", "O", "B-LOC"], words[0]) == [-100, "O", "O", "B-LOC", -100]
    assert aligned(labels, padding=True, padding_side="left")[1] == [-100, -100, -100, 7, -100]
    assert aligned(labels, truncation=True, max_length=4)[0] == [-100, 4, 5, -100]
    pieces = [[-100, 4, 5, -100], [-100, 6, -100], [-100, 7, -100]]
    assert aligned(labels, **IN_PIECES) == pieces
    assert aligned(labels[0], words[0], **IN_PIECES) == pieces[:2]
    assert aligned(labels, **IN_PIECES, stride=1, padding=True)[1] == [-100, 5, 6, -100]
    for how in ({}, IN_PIECES):
        for wrong in (labels[:1], [[4, 5], [7]], [[4, 5, 6, 6], [7]]):
            with pytest.raises(ValueError, match="labels"):
                aligned(wrong, **how)
    with pytest.raises(ValueError, match="labels"):  # of a pair
        tokenizer.align_labels(tokenizer(["a b"], ["x y"]), [[1, 2]])


def test_numbers_of_words(tokenizer, tmp_path) -> None:
    texts = ["The cat", "rain Rain the THE naïve dog <S>"]
    numbers = [[1, 3, 4, 1], [1, 2, 5, 3, 3, 7, 2, 6, 1]]
    assert "word_vector_ids" not in tokenizer("a")
    tokenizer.words = np.array(WORDS)
    assert set(tokenizer("a")) == {"input_ids", "word_vector_ids", "attention_mask"}
    for one in (tokenizer, pickle.loads(pickle.dumps(tokenizer))):
        assert one(texts)["word_vector_ids"] == numbers
        assert one([text.split() for text in texts], is_split_into_words=True)["word_vector_ids"] == numbers
    assert tokenizer(texts[1], truncation=True, max_length=4)["word_vector_ids"] == [1, 2, 5, 1]
    assert tokenizer("the cat", "cat")["word_vector_ids"] == [1, 3, 4, 1, 1, 4, 1]
    assert tokenizer(["the", "", "cat"], is_split_into_words=True)["word_vector_ids"] == [1, 3, 2, 4, 1]
    # As beside stored layers; with `input_ids`, they are padded together.
    alone = tokenizer.pad([{"word_vector_ids": ids} for ids in numbers], padding_side="left", return_tensors="pt")
    assert alone["word_vector_ids"].tolist() == [[0] * 5 + numbers[0], numbers[1]]
    assert "input_ids" not in alone
    file = write_lines(tmp_path / "words.txt", ["\ufeffthe\r", "cat\r"])  # as editors on Windows write it
    assert ElmoTokenizer(words_file=str(file)).words == ["the", "cat"]
    with pytest.raises(ValueError, match="words"):
        tokenizer.words = ["a", "b\nc"]


@every_side
def test_a_tokenizer_comes_back_from_its_files(tmp_path, side: str) -> None:
    settings = {"padding_side": side, "truncation_side": side, "model_max_length": 4, "max_word_length": 12}
    settings |= {"split_special_tokens": side == "right"}
    tokenizer, texts = ElmoTokenizer(**settings), ["<S> It isn't extraordinarily “long”. </S>", "Short"]
    call = {"padding": True, "truncation": side == "left"}
    expected = tokenizer(texts, **call)
    saved = {Path(file).name for file in tokenizer.save_pretrained(tmp_path)}
    assert saved >= {"tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in tmp_path.iterdir()} == saved | {*CODE["ElmoTokenizer"]}
    for loader in (ElmoTokenizer, AutoTokenizer):
        again = loader.from_pretrained(tmp_path)
        assert type(again) is ElmoTokenizer
        assert dict(again(texts, **call)) == dict(expected)
        assert all(getattr(again, name) == value for name, value in settings.items())
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert backend.padding is backend.truncation is None
    assert backend.encode("Mr. Smith isn't “here”").tokens == tokenizer("Mr. Smith isn't “here”").tokens()


@pytest.mark.parametrize("loader", [ElmoTokenizer, AutoTokenizer], ids=lambda loader: loader.__name__)
def test_files_are_copied_and_no_folder_of_the_machine_is_saved(tmp_path, loader: type) -> None:
    words = ["<S>", "</S>", "<UNK>", "3\u00a0000", "a\u2028b", "c\u0085", "\u3000"]
    made, first, second = (tmp_path / name for name in ("made", "first", "second"))
    write_lines(made / "words.txt", words)
    write_lines(made / "vocab.txt", words)
    CharacterVocabulary(["t", "h", "e", "ü"], ["the", "hü"]).save(made / "character_vocab.json")
    files = {"words_file": "words.txt", "character_vocab_file": "character_vocab.json", "vocab_file": "vocab.txt"}
    arguments = {"word_splitting": "whitespace", "max_word_length": 12, "split_special_tokens": False}
    tokenizer = ElmoTokenizer(**arguments, **{name: str(made / file) for name, file in files.items()})
    tokenizer.save_pretrained(first)
    again = loader.from_pretrained(first)
    again.save_pretrained(first)  # onto its own files
    again.save_pretrained(second)
    saved = (second / "tokenizer_config.json").read_text(encoding="utf-8")
    assert json.loads(saved).items() >= arguments.items()
    assert str(tmp_path) not in saved
    shutil.rmtree(made)
    shutil.rmtree(first)
    third = loader.from_pretrained(second)
    assert third.words == third.vocabulary == words
    assert third.character_vocab.embedded_words == ["the", "hü"]
    assert dict(third("the hü dog")) == dict(tokenizer("the hü dog"))
    ElmoTokenizer().save_pretrained(second)  # removes the files of the one before
    assert {path.name for path in second.iterdir()}.isdisjoint({"words.txt", "character_vocab.json"})


def test_other_names_of_special_tokens_have_the_same_ids_and_added_ones_are_words(tmp_path) -> None:
    ElmoTokenizer().save_pretrained(tmp_path)
    expected = ElmoTokenizer()(["a b", "c"], padding=True)["input_ids"]
    made, loaded = ElmoTokenizer(pad_token="[PAD]"), ElmoTokenizer.from_pretrained(tmp_path, bos_token="[B]")
    changed = ElmoTokenizer()
    changed.pad_token = changed.eos_token
    for tokenizer in (made, loaded, changed):
        assert tokenizer(["a b", "c"], padding=True)["input_ids"] == expected
        assert tokenizer.convert_tokens_to_ids("</S>") == expected[1][2]
    assert made(["a b", "c"], padding=True).tokens(1) == ["<S>", "c", "</S>", "[PAD]"]
    changed.add_tokens(["New York"])
    changed.save_pretrained(tmp_path)
    again = ElmoTokenizer.from_pretrained(tmp_path)
    assert (again.tokenize("in New York"), len(again)) == (["in", "New York"], 262)


def test_a_tokenizer_saved_while_it_encodes_words_splits_text(tmp_path, monkeypatch) -> None:
    tokenizer, encode = ElmoTokenizer(), TokenizersBackend._encode_plus

    def save_and_encode(*arguments: object, **options: object) -> object:
        tokenizer.save_pretrained(tmp_path)
        return encode(*arguments, **options)

    monkeypatch.setattr(TokenizersBackend, "_encode_plus", save_and_encode)
    tokenizer([["New York", "!"]], is_split_into_words=True)
    assert ElmoTokenizer.from_pretrained(tmp_path).split_into_words(["Don't!"]) == [["Don", "'t", "!"]]


def test_a_null_word_ends_each_text(tmp_path) -> None:
    ElmoTokenizer("whitespace", null_word="@@NULL@@").save_pretrained(tmp_path)
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path)
    encoded = tokenizer(["a", "a @@NULL@@"], ["b", "c"], padding=True, return_special_tokens_mask=True)
    assert encoded.tokens(0) == ["<S>", "a", "@@NULL@@", "</S>", "<S>", "b", "@@NULL@@", "</S>", "<pad>"]
    assert encoded["special_tokens_mask"] == [[1, 0, 0, 1, 1, 0, 0, 1, 1], [1, 0, 0, 0, 1, 1, 0, 0, 1]]
    assert encoded["input_ids"][0][2] == encoded["input_ids"][1][2] == tokenizer.convert_tokens_to_ids("@@NULL@@")


def test_characters_of_words_are_not_cut_and_each_case_can_be_looked_up(tmp_path) -> None:
    for case, ids in {"any": [3, 4, 2], "cased": [3, 2, 2], "lower": [2, 4, 2]}.items():
        tokenizer = ElmoTokenizer("whitespace", word_case=case, word_characters=True)
        tokenizer.words = ["A", "b"]
        tokenizer.save_pretrained(tmp_path)
        encoded = ElmoTokenizer.from_pretrained(tmp_path)(["A B " + "日" * 60, ""], padding=True, return_tensors="np")
        assert encoded["word_vector_ids"][0].tolist() == [1, *ids, 1]
        assert encoded["word_characters"].shape == (2, 5, 60)
        assert encoded["word_characters"][0, :, 0].tolist() == [0, ord("A"), ord("B"), ord("日"), 0]
        assert not encoded["word_characters"][1].any()
    spelled = ElmoTokenizer("whitespace", word_characters="bytes")(["é" + "a" * 60], return_tensors="np")
    assert spelled["word_characters"][0].tolist() == [[0] * 64, [259, 0xC4, 0xAA, *[ord("b")] * 60, 260], [0] * 64]
