"""ElmoTokenizer: what a user of transformers may hand it, ask of it, and do with it."""

import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import AddedToken
from transformers import AutoTokenizer, BatchEncoding

from hf_elmo import ElmoTokenizer
from hf_elmo.tokenization_elmo import CharacterVocabulary, words_to_character_ids
from tests.conftest import SENTENCES

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


def test_empty_words_have_no_characters(tokenizer: ElmoTokenizer) -> None:
    how = {"is_split_into_words": True, "return_offsets_mapping": True, "padding": True}
    encoded = tokenizer([["new", "", "b"], ["x"]], **how)
    assert encoded.tokens(0) == ["<S>", "new", "", "b", "</S>"]
    assert encoded["offset_mapping"][0] == [(0, 0), (0, 3), (0, 0), (0, 1), (0, 0)]
    assert encoded.word_to_chars(0, 1) == encoded.token_to_chars(0, 2) == (0, 0)


def test_lone_surrogates_are_dropped(tokenizer: ElmoTokenizer) -> None:
    assert tokenizer("RT \ud83d cut\udca9").tokens() == ["<S>", "RT", "cut", "</S>"]
    assert tokenizer([("a\ud83d", "b\ud83d")]).tokens() == ["<S>", "a", "</S>", "<S>", "b", "</S>"]
    assert tokenizer(["a", "\ud83d"], is_split_into_words=True).tokens() == ["<S>", "a", "", "</S>"]
    assert tokenizer.split_into_words(["RT \ud83d", ["\ud83d", "b"]], pretokenized=True) == [["RT"], ["", "b"]]


def test_empty_words_keep_their_place_in_batches_pairs_and_pieces(tokenizer: ElmoTokenizer) -> None:
    empty, x = words_to_character_ids(["", "x"]).tolist()
    pairs = tokenizer([["x", ""], ["x"]], [["", "x"], [""]], is_split_into_words=True)["input_ids"]
    assert [pairs[0][i] for i in (1, 2, 5, 6)] == [x, empty, empty, x]
    assert [pairs[1][i] for i in (1, 4)] == [x, empty]
    pieces = tokenizer(
        ["x", "x", "", "x"], is_split_into_words=True, truncation=True, max_length=4, return_overflowing_tokens=True
    )["input_ids"]
    assert [piece[1:-1] for piece in pieces] == [[x, x], [empty, x]]


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
def test_every_way_to_pad(tokenizer: ElmoTokenizer, options: dict, length: int) -> None:
    encoded = tokenizer(TEXTS, return_tensors="np", return_length=True, **options)
    assert encoded["input_ids"].shape == (4, length, 50)
    assert encoded["attention_mask"].shape == (4, length)
    assert [len(encoding) for encoding in encoded.encodings] == encoded["length"].tolist() == [length] * 4
    if not options.pop("truncation", False):
        assert np.array_equal(tokenizer.pad(tokenizer(TEXTS), **options)["input_ids"], encoded["input_ids"])


@pytest.mark.parametrize("padding", [False, "do_not_pad"])
def test_texts_of_different_lengths_make_no_tensor_without_padding(tokenizer: ElmoTokenizer, padding) -> None:
    assert [len(ids) for ids in tokenizer(TEXTS, padding=padding)["input_ids"]] == LENGTHS
    with pytest.raises(ValueError, match="padding=True"):
        tokenizer(TEXTS, padding=padding, return_tensors="pt")


# -- truncation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "words"), [("right", ["one", "two"]), ("left", ["two", "three"])])
@pytest.mark.parametrize("split", [False, True], ids=["text", "words"])
def test_truncation_keeps_the_boundaries(side: str, words: list[str], split: bool) -> None:
    tokenizer = ElmoTokenizer(word_splitting="whitespace", truncation_side=side)
    text = TEXTS[0].split() if split else TEXTS[0]
    encoded = tokenizer(text, truncation=True, max_length=4, is_split_into_words=split)
    assert words_of(encoded["input_ids"], tokenizer) == encoded.tokens() == ["<S>", *words, "</S>"]
    assert encoded["attention_mask"] == [1] * 4


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


def test_tokenize_and_encode_are_the_call(tokenizer: ElmoTokenizer) -> None:
    assert tokenizer.tokenize("one two") == ["one", "two"]
    assert tokenizer.tokenize("one two", add_special_tokens=True) == ["<S>", "one", "two", "</S>"]
    assert tokenizer.encode("one two") == tokenizer("one two")["input_ids"]
    assert isinstance(tokenizer("one"), BatchEncoding)


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


@pytest.mark.parametrize("files", [set(), {"words_file"}, set(FILES)], ids=sorted)
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


def test_words_of_a_vocabulary_may_hold_whitespace(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>", "3\u00a0000", "a\u2028b", "c\u0085", "\u3000"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    assert ElmoTokenizer(vocab_file=str(tmp_path / "vocab.txt")).vocabulary == words


def test_a_string_is_no_list_of_words_and_a_list_of_words_no_text(tokenizer: ElmoTokenizer) -> None:
    for text, is_split in (([["New", "York"]], False), ("New York", True)):
        with pytest.raises(ValueError, match="text"):
            tokenizer(text, is_split_into_words=is_split)
    with pytest.raises(ValueError, match="texts"):
        tokenizer.split_into_words("New York")
    for words in (["a", None], ["a", 1]):
        with pytest.raises(TypeError):
            tokenizer(words, is_split_into_words=True)


def test_saving_copies_the_files_of_the_tokenizer_and_removes_those_of_an_earlier_one(tmp_path: Path) -> None:
    arguments = written(tmp_path / "made", set(FILES))
    (tmp_path / "made" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    ElmoTokenizer(vocab_file=str(tmp_path / "made" / "vocab.txt"), **arguments).save_pretrained(tmp_path / "out")
    again = ElmoTokenizer.from_pretrained(tmp_path / "out")
    again.save_pretrained(tmp_path / "out")  # onto its own files
    again = ElmoTokenizer.from_pretrained(tmp_path / "out")
    assert again.vocabulary == ["<S>", "</S>", "<UNK>"]
    assert (again.words, again.character_vocab.embedded_words) == (["the", "cat"], ["the", "hü"])
    ElmoTokenizer().save_pretrained(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()}.isdisjoint(FILES.values())
