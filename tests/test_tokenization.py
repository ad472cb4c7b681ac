"""ElmoTokenizer: what a user of transformers may hand it, ask of it, and do with it."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from datasets.fingerprint import Hasher
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BatchEncoding

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.hub import FILES as CODE
from hf_elmo.tokenization_elmo import CharacterVocabulary, VectorWords, words_to_character_ids
from tests.factories import SENTENCES, whitespace_tokenizer, write_lines

TEXTS = ["one two three", "four", "", "five six seven eight"]
LENGTHS = [5, 3, 2, 6]  # with <S> and </S>
every_side = pytest.mark.parametrize("side", ["right", "left"])


# -- text, lists of texts, words already split, pairs ------------------------------------------------------------------


def test_a_text_is_its_words_between_boundaries(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer("one two")
    assert isinstance(encoded, BatchEncoding)
    assert list(encoded) == ["input_ids", "attention_mask"]
    assert encoded["attention_mask"] == [1, 1, 1, 1]
    assert encoded["input_ids"][1:3] == words_to_character_ids(["one", "two"]).tolist()
    assert encoded.tokens() == ["<S>", "one", "two", "</S>"] == tokenizer.tokenize("one two", add_special_tokens=True)
    assert tokenizer.tokenize("one two") == ["one", "two"]
    assert tokenizer.encode("one two") == encoded["input_ids"]


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series])
def test_a_list_of_texts_is_each_text_alone(tokenizer: ElmoTokenizer, kind: type) -> None:
    alone = [tokenizer(text) for text in TEXTS]
    for encoded in (tokenizer(kind(TEXTS)), tokenizer([text.split() for text in TEXTS], is_split_into_words=True)):
        for name in ("input_ids", "attention_mask"):
            assert encoded[name] == [one[name] for one in alone]
        assert [len(ids) for ids in encoded["input_ids"]] == LENGTHS
    assert tokenizer(kind(TEXTS), kind(TEXTS))["input_ids"] == tokenizer(TEXTS, TEXTS)["input_ids"]
    assert tokenizer.split_into_words(kind(TEXTS)) == [text.split() for text in TEXTS]
    words = [["New York", "is"], ["big"]]
    arrays, wanted = [kind(sentence) for sentence in words], tokenizer(words, is_split_into_words=True)["input_ids"]
    if kind is not tuple:  # which is a pair
        assert tokenizer(arrays, is_split_into_words=True)["input_ids"] == wanted
    assert tokenizer(arrays[0], is_split_into_words=True)["input_ids"] == wanted[0]
    assert tokenizer.split_into_words(arrays) == words


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
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"][0]) == encoded.tokens()


@pytest.mark.parametrize("truncation", ["only_first", "only_second"])
def test_lists_of_two_are_pairs_where_one_of_the_two_is_to_be_cut(tokenizer: ElmoTokenizer, truncation: str) -> None:
    found = tokenizer([["a b", "c"], ["d", "e"]], truncation=truncation, padding=True)
    assert found["input_ids"] == tokenizer([("a b", "c"), ("d", "e")], padding=True)["input_ids"]
    for texts, how in (([["New", "York"]], {}), ([["a", "b"]], {"truncation": True}), ([["a", "b", "c"]], {})):
        with pytest.raises(ValueError, match="is_split_into_words"):
            tokenizer(texts, **how)
    words = tokenizer([["New", "York"]], truncation=truncation, is_split_into_words=True)
    assert words.tokens() == ["<S>", "New", "York", "</S>"]


def test_a_string_is_no_list_of_words_and_a_list_of_words_no_text(tokenizer: ElmoTokenizer) -> None:
    for text, is_split in (([["New", "York"]], False), ("New York", True)):
        with pytest.raises(ValueError, match="text"):
            tokenizer(text, is_split_into_words=is_split)
    with pytest.raises(ValueError, match="texts"):
        tokenizer.split_into_words("New York")
    with pytest.raises(TypeError):
        tokenizer(["a", None], is_split_into_words=True)


@pytest.mark.parametrize("tensors", ["pt", "np"])
def test_no_texts_and_empty_texts(tokenizer: ElmoTokenizer, tensors: str) -> None:
    assert dict(tokenizer([])) == {"input_ids": [], "attention_mask": []}
    encoded = tokenizer([], padding=True, return_tensors=tensors)
    assert tuple(encoded["input_ids"].shape) == (0, 0, 50)
    assert tuple(encoded["attention_mask"].shape) == (0, 0)
    for text in ("", " ", "\n\t"):
        assert tokenizer(text).tokens() == ["<S>", "</S>"]
        assert tuple(tokenizer(text, return_tensors=tensors, add_special_tokens=False)["input_ids"].shape) == (1, 0, 50)


def test_empty_words_keep_their_place(tokenizer: ElmoTokenizer) -> None:
    words = ["", "a", "", "b", ""]
    encoded = tokenizer(words, is_split_into_words=True)
    assert encoded.word_ids() == [None, 0, 1, 2, 3, 4, None]
    assert encoded["input_ids"][1:-1] == words_to_character_ids(words).tolist()
    empty, x = words_to_character_ids(["", "x"]).tolist()
    pairs = tokenizer([["x", ""], ["x"]], [["", "x"], [""]], is_split_into_words=True)["input_ids"]
    assert [pairs[0][i] for i in (1, 2, 5, 6)] == [x, empty, empty, x]
    assert [pairs[1][i] for i in (1, 4)] == [x, empty]
    pieces = tokenizer(
        ["x", "x", "", "x"], is_split_into_words=True, truncation=True, max_length=4, return_overflowing_tokens=True
    )["input_ids"]
    assert [piece[1:-1] for piece in pieces] == [[x, x], [empty, x]]


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


# -- padding and truncation --------------------------------------------------------------------------------------------


@every_side
@pytest.mark.parametrize("tensors", ["pt", "np", None])
def test_padding_is_rows_of_zeros(side: str, tensors: str | None) -> None:
    made, asked = whitespace_tokenizer(padding_side=side), whitespace_tokenizer()
    for encoded in (
        made(TEXTS, padding=True, return_tensors=tensors),
        asked(TEXTS, padding=True, return_tensors=tensors, padding_side=side),
    ):
        ids, mask = np.asarray(encoded["input_ids"]), np.asarray(encoded["attention_mask"])
        assert ids.shape == (4, 6, 50)
        for row, row_mask, text, length in zip(ids, mask, TEXTS, LENGTHS, strict=True):
            real = slice(0, length) if side == "right" else slice(6 - length, 6)
            assert row[real].tolist() == made(text)["input_ids"]
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


def test_what_is_cut_off_overflows_with_a_stride(tokenizer: ElmoTokenizer) -> None:
    pieces = {"truncation": True, "max_length": 5, "stride": 1, "return_overflowing_tokens": True}
    encoded = tokenizer(["a b c d e", "f", "g h i"], **pieces, padding=True, return_tensors="np")
    expected = ["a b c", "c d e", "f", "g h i"]
    assert encoded["overflow_to_sample_mapping"].tolist() == [0, 0, 1, 2]
    assert tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True) == expected
    assert encoded["attention_mask"].sum(1).tolist() == [5, 5, 3, 5]


# -- where words stand -------------------------------------------------------------------------------------------------


@every_side
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
    for ids, mask in zip(encoded["input_ids"], encoded["special_tokens_mask"].tolist(), strict=True):
        assert tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True) == mask


def test_boundaries_are_counted_and_left_out(tokenizer: ElmoTokenizer) -> None:
    assert tokenizer.get_special_tokens_mask([[0] * 50] * 2, [[0] * 50]) == [1, 0, 0, 1, 1, 0, 1]
    assert tokenizer("a b", add_special_tokens=False).tokens() == ["a", "b"]
    assert [tokenizer.num_special_tokens_to_add(pair) for pair in (False, True)] == [2, 4]


# -- back to words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensors", ["pt", "np", None])
@every_side
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
    assert tokenizer.convert_ids_to_tokens(ids) == tokenizer.convert_ids_to_tokens(torch.tensor(ids)) == words
    assert tokenizer.convert_ids_to_tokens(ids, skip_special_tokens=True) == ["a", "😀", ""]
    assert tokenizer.convert_ids_to_tokens(tokenizer.convert_tokens_to_ids("word")) == "word"
    assert tokenizer.decode(ids[0]) == "a"


def test_the_vocabulary_is_that_of_the_characters(model: ElmoModel) -> None:
    tokenizer, embedding = ElmoTokenizer(), model.get_input_embeddings()
    assert len(tokenizer) == tokenizer.vocab_size == embedding.num_embeddings
    assert model.resize_token_embeddings(len(tokenizer)) is embedding
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary.values()) == list(range(len(tokenizer)))
    assert [vocabulary[name] for name in ("<pad>", "<S>", "</S>")] == tokenizer.all_special_ids
    names = {number: name for name, number in vocabulary.items()}
    row = tokenizer.convert_tokens_to_ids("aé")
    expected = ["<begin word>", "<0x61>", "<0xC3>", "<0xA9>", "<end word>", "<word padding>"]
    assert [names[number] for number in row[:6]] == expected
    assert tokenizer.vocab == vocabulary
    assert tokenizer.get_added_vocab() == {"<pad>": 0, "<S>": 257, "</S>": 258}
    assert ElmoTokenizer(bos_token="[B]").get_vocab()["[B]"] == 257


# -- pad and the collators ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
@every_side
def test_pad_gives_what_the_call_gives(tokenizer: ElmoTokenizer, kind: type, side: str) -> None:
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


@pytest.mark.parametrize("words", [False, True], ids=["texts", "words"])
def test_datasets_finds_again_what_it_mapped(tmp_path: Path, words: bool) -> None:
    tokenizer = ElmoTokenizer(vocab_file=str(write_lines(tmp_path / "vocab.txt", ["<S>", "</S>", "<UNK>", "the"])))
    datasets.Dataset.from_dict({"text": [["a", "b c"]] if words else ["a b"]}).save_to_disk(tmp_path / "rows")
    rows = datasets.load_from_disk(tmp_path / "rows")
    before = Hasher.hash(tokenizer)
    mapped = [rows.map(lambda row: tokenizer(row["text"], is_split_into_words=words)) for _ in range(2)]
    assert Hasher.hash(tokenizer) == before
    assert mapped[0].cache_files == mapped[1].cache_files != []


# -- labels of words ---------------------------------------------------------------------------------------------------


def test_labels_stand_where_words_do(tokenizer: ElmoTokenizer) -> None:
    words, labels = [["a", "", "New York"], ["b"]], [np.array([4, 5, 6]), np.array([7])]

    def aligned(labels: list, texts: list = words, **how: object) -> list:
        return tokenizer.align_labels(tokenizer(texts, is_split_into_words=True, **how), labels)

    assert aligned(labels) == [[-100, 4, 5, 6, -100], [-100, 7, -100]]
    assert aligned(["O", "O", "B-LOC"], words[0]) == [-100, "O", "O", "B-LOC", -100]
    assert aligned(labels, padding=True, padding_side="left")[1] == [-100, -100, -100, 7, -100]
    assert aligned(labels, truncation=True, max_length=4)[0] == [-100, 4, 5, -100]
    for wrong in (labels[:1], [[4, 5], [7]], [[4, 5, 6, 6], [7]]):
        with pytest.raises(ValueError, match="labels"):
            aligned(wrong)
    with pytest.raises(ValueError, match="labels"):  # of a pair
        tokenizer.align_labels(tokenizer(["a b"], ["x y"]), [[1, 2]])


def test_labels_of_the_pieces_of_long_texts(tokenizer: ElmoTokenizer) -> None:
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


# -- words that have a vector beside ELMo ------------------------------------------------------------------------------

WORDS = ["the", "cat", "Rain", "<S>", "naïve"]
NUMBERED = ["The cat", "rain Rain the THE naïve dog <S>"]
NUMBERS = [[1, 3, 4, 1], [1, 2, 5, 3, 3, 7, 2, 6, 1]]


@pytest.fixture
def with_words(tokenizer: ElmoTokenizer) -> ElmoTokenizer:
    assert "word_vector_ids" not in tokenizer("a")
    tokenizer.words = WORDS
    return tokenizer


def test_numbers_of_words(with_words: ElmoTokenizer) -> None:
    """As it is spelled, else in lower case; "rain" is not "Rain"; a boundary is none of the words."""
    assert with_words(NUMBERED)["word_vector_ids"] == NUMBERS
    assert with_words([text.split() for text in NUMBERED], is_split_into_words=True)["word_vector_ids"] == NUMBERS
    assert list(with_words("a")) == ["input_ids", "word_vector_ids", "attention_mask"]
    assert with_words(NUMBERED[1], truncation=True, max_length=4)["word_vector_ids"] == [1, 2, 5, 1]
    assert with_words("the cat", "cat")["word_vector_ids"] == [1, 3, 4, 1, 1, 4, 1]
    assert with_words(["the", "", "cat"], is_split_into_words=True)["word_vector_ids"] == [1, 3, 2, 4, 1]


@every_side
@pytest.mark.parametrize("tensors", [None, "pt"])
def test_numbers_of_words_are_padded(with_words: ElmoTokenizer, side: str, tensors: str | None) -> None:
    zeros = [0] * 5
    expected = [NUMBERS[0] + zeros if side == "right" else zeros + NUMBERS[0], NUMBERS[1]]
    rows, how = [with_words(text) for text in NUMBERED], {"padding_side": side, "return_tensors": tensors}
    for found in (with_words(NUMBERED, padding=True, **how), with_words.pad(rows, **how)):
        assert np.array(found["word_vector_ids"]).tolist() == expected
        assert (np.array(found["input_ids"]).any(2) == (np.array(expected) > 0)).all()
        assert np.array(found["attention_mask"]).tolist() == (np.array(expected) > 0).astype(int).tolist()
    alone = with_words.pad([{"word_vector_ids": row["word_vector_ids"]} for row in rows], **how)  # beside stored layers
    assert np.array(alone["word_vector_ids"]).tolist() == expected
    assert "input_ids" not in alone


def test_words_come_back_from_a_checkpoint(with_words: ElmoTokenizer, tmp_path: Path) -> None:
    with_words.words = [*WORDS, "a\u2028b", "x\x85"]
    with_words.save_pretrained(tmp_path)
    for again in (AutoTokenizer.from_pretrained(tmp_path), pickle.loads(pickle.dumps(with_words))):
        assert again.words == with_words.words
        assert again(NUMBERED)["word_vector_ids"] == NUMBERS
    with_words.words = None
    with_words.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).words is None
    write_lines(tmp_path / "marked.txt", ["\ufeffthe", "cat"])  # a byte order mark is no letter of the first word
    assert ElmoTokenizer(words_file=str(tmp_path / "marked.txt")).words == ["the", "cat"]
    with pytest.raises(ValueError, match="words"):
        VectorWords(["a", "b\nc"])


# -- copies and files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_is_the_same(duplicate) -> None:
    tokenizer = ElmoTokenizer(max_word_length=23, padding_side="left")
    for other in (duplicate(tokenizer), duplicate(tokenizer)):  # the second is of one that was used
        for texts, is_split in ((SENTENCES, False), ([["a b", ""], ["c"]], True)):
            calls = [each(texts, padding=True, is_split_into_words=is_split) for each in (tokenizer, other)]
            assert dict(calls[0]) == dict(calls[1])
        tokenizer(["a", "b c"], is_split_into_words=True, truncation=True, max_length=3)


SETTINGS = {
    "as it comes": {},
    "whitespace": {"word_splitting": "whitespace"},
    "short words": {"max_word_length": 12},
    "left": {"padding_side": "left", "truncation_side": "left"},
    "boundaries in the text": {"split_special_tokens": False, "word_splitting": "whitespace"},
    "a longest text": {"model_max_length": 4},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_tokenizer_comes_back_from_its_files(tmp_path: Path, settings: dict) -> None:
    tokenizer, texts = ElmoTokenizer(**settings), ["<S> It isn't extraordinarily long. </S>", "Short"]
    call = {"padding": True, "truncation": "model_max_length" in settings}
    expected = tokenizer(texts, **call)
    files = {Path(file).name for file in tokenizer.save_pretrained(tmp_path)}
    assert {path.name for path in tmp_path.iterdir()} == {
        "tokenizer.json",
        "tokenizer_config.json",
        *CODE["ElmoTokenizer"],
    }
    assert files >= {"tokenizer.json", "tokenizer_config.json"}
    for loader in (ElmoTokenizer, AutoTokenizer):
        again = loader.from_pretrained(tmp_path)
        assert type(again) is ElmoTokenizer
        assert dict(again(texts, **call)) == dict(expected)
        assert all(getattr(again, name) == value for name, value in settings.items())
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("a b").tokens == ["<S>", "a", "b", "</S>"]


FILES = {"words_file": "words.txt", "character_vocab_file": "character_vocab.json", "vocab_file": "vocab.txt"}


def write_files(folder: Path) -> dict[str, str]:
    """The arguments that name files, each file written to a folder."""
    write_lines(folder / "words.txt", ["the", "cat"])
    write_lines(folder / "vocab.txt", ["<S>", "</S>", "<UNK>", "3\u00a0000", "a\u2028b", "c\u0085", "\u3000"])
    CharacterVocabulary(["t", "h", "e", "ü"], ["the", "hü"]).save(folder / "character_vocab.json")
    return {argument: str(folder / name) for argument, name in FILES.items()}


@pytest.mark.parametrize("loader", [ElmoTokenizer, AutoTokenizer], ids=lambda loader: loader.__name__)
def test_files_are_copied_and_no_folder_of_the_machine_is_saved(tmp_path: Path, loader: type) -> None:
    """What the tokenizer was made with is told by `init_kwargs`; words of a vocabulary may hold whitespace."""
    arguments = {"word_splitting": "whitespace", "max_word_length": 12, "split_special_tokens": False}
    tokenizer = ElmoTokenizer(**arguments, **write_files(tmp_path / "made"))
    assert tokenizer.vocabulary[3:] == ["3\u00a0000", "a\u2028b", "c\u0085", "\u3000"]
    tokenizer.save_pretrained(tmp_path / "first")
    again = loader.from_pretrained(tmp_path / "first")
    files = {name: str(tmp_path / "first" / file) for name, file in FILES.items()}
    assert {**arguments, **files}.items() <= again.init_kwargs.items()
    again.save_pretrained(tmp_path / "first")  # onto its own files
    again.save_pretrained(tmp_path / "second")
    saved = (tmp_path / "second" / "tokenizer_config.json").read_text(encoding="utf-8")
    assert json.loads(saved)["max_word_length"] == 12
    assert str(tmp_path) not in saved
    shutil.rmtree(tmp_path / "made")
    shutil.rmtree(tmp_path / "first")
    third = loader.from_pretrained(tmp_path / "second")
    assert (third.words, third.character_vocab.embedded_words) == (["the", "cat"], ["the", "hü"])
    assert third.vocabulary == tokenizer.vocabulary
    assert dict(third("the hü dog")) == dict(tokenizer("the hü dog"))
    ElmoTokenizer().save_pretrained(tmp_path / "second")  # removes the files of the one before
    assert {path.name for path in (tmp_path / "second").iterdir()}.isdisjoint({"words.txt", "character_vocab.json"})


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


def test_added_tokens_are_read_as_one_word(tmp_path: Path) -> None:
    tokenizer = ElmoTokenizer()
    tokenizer.add_tokens(["New York"])
    tokenizer.save_pretrained(tmp_path)
    loaded = ElmoTokenizer.from_pretrained(tmp_path)
    assert loaded.tokenize("in New York") == ["in", "New York"]
    assert len(loaded) == 262
