"""ElmoTokenizer in the hands of others: pad and the collators, datasets, copies, files."""

import copy
import json
import pickle
import re
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from datasets.fingerprint import Hasher
from tokenizers import Tokenizer, normalizers
from transformers import AutoTokenizer, DataCollatorForTokenClassification, DataCollatorWithPadding

from hf_elmo import ElmoTokenizer
from hf_elmo.remote_code import FILES
from tests.conftest import SENTENCES

LENGTHS = [len(sentence.split()) + 2 for sentence in SENTENCES]


def as_lists(example: dict) -> dict:
    return dict(example)


def as_arrays(example: dict) -> dict:
    return {key: np.array(value, dtype=np.int16) for key, value in example.items()}


def as_tensors(example: dict) -> dict:
    return {key: torch.tensor(value) for key, value in example.items()}


# -- pad and the collators ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [as_lists, as_arrays, as_tensors])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("tensors", ["pt", "np", None])
def test_pad_gives_what_the_call_gives(tokenizer: ElmoTokenizer, kind, side: str, tensors: str | None) -> None:
    examples = [kind(tokenizer(sentence)) for sentence in SENTENCES]
    padded = tokenizer.pad(examples, padding_side=side, return_tensors=tensors)
    expected = tokenizer(SENTENCES, padding=True, padding_side=side, return_tensors=tensors)
    assert set(padded) == set(expected)
    for key in expected:
        assert type(padded[key]) is type(expected[key])
        assert np.array_equal(np.asarray(padded[key]), np.asarray(expected[key]))


def test_pad_takes_a_batch_and_one_example(tokenizer: ElmoTokenizer) -> None:
    batch, one = tokenizer(SENTENCES), tokenizer(SENTENCES[0])
    assert np.shape(tokenizer.pad(batch)["input_ids"]) == (4, max(LENGTHS), 50)
    padded = tokenizer.pad(one, padding="max_length", max_length=11, return_tensors="pt")
    assert padded["input_ids"].shape == (11, 50)
    assert padded["attention_mask"].tolist() == [1] * LENGTHS[0] + [0] * (11 - LENGTHS[0])


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({"padding": "max_length", "max_length": 31}, 31),
        ({"pad_to_multiple_of": 8}, -(-max(LENGTHS) // 8) * 8),
        ({"padding": "longest"}, max(LENGTHS)),
    ],
    ids=str,
)
def test_pad_to_a_length(tokenizer: ElmoTokenizer, options: dict, length: int) -> None:
    padded = tokenizer.pad([tokenizer(sentence) for sentence in SENTENCES], return_tensors="np", **options)
    assert padded["input_ids"].shape == (4, length, 50)
    assert padded["attention_mask"].sum(1).tolist() == LENGTHS
    assert not padded["input_ids"][padded["attention_mask"] == 0].any()


def test_pad_without_padding_leaves_lengths(tokenizer: ElmoTokenizer) -> None:
    assert [len(ids) for ids in tokenizer.pad(tokenizer(SENTENCES), padding=False)["input_ids"]] == LENGTHS


def test_pad_takes_texts_without_words(tokenizer: ElmoTokenizer) -> None:
    examples = [tokenizer(text, add_special_tokens=False) for text in ("", "a b", "")]
    padded = tokenizer.pad(examples, return_tensors="pt")
    assert padded["input_ids"].shape == (3, 2, 50)
    assert padded["attention_mask"].tolist() == [[0, 0], [1, 1], [0, 0]]


def test_pad_pads_the_other_masks_too(tokenizer: ElmoTokenizer) -> None:
    options = {"return_special_tokens_mask": True, "return_token_type_ids": True}
    padded = tokenizer.pad([tokenizer(text, **options) for text in ("a b", "c")])
    assert padded["special_tokens_mask"] == [[1, 0, 0, 1], [1, 0, 1, 1]]
    assert padded["token_type_ids"] == [[0] * 4] * 2


def test_pad_refuses_what_are_no_words(tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match=r"input_ids .*\[words, 50\]"):
        tokenizer.pad([{"input_ids": [1, 2, 3]}])
    with pytest.raises(ValueError, match="needs input_ids, bilm_layers or word_vector_ids, but was given words"):
        tokenizer.pad([{"words": ["a"]}])


@pytest.mark.parametrize("kind", [as_lists, as_arrays, as_tensors])
def test_data_collator_with_padding(tokenizer: ElmoTokenizer, kind) -> None:
    examples = [kind(tokenizer(sentence)) | {"label": i % 2} for i, sentence in enumerate(SENTENCES)]
    batch = DataCollatorWithPadding(tokenizer)(examples)
    assert batch["input_ids"].shape == (4, max(LENGTHS), 50)
    assert batch["labels"].tolist() == [0, 1, 0, 1]
    assert tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True) == SENTENCES


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


def test_datasets_map_and_a_collator(tokenizer: ElmoTokenizer) -> None:
    rows = datasets.Dataset.from_dict({"text": SENTENCES, "label": [0, 1, 1, 0]})
    rows = rows.map(lambda batch: tokenizer(batch["text"]), batched=True, remove_columns="text")
    batch = DataCollatorWithPadding(tokenizer)([rows[i] for i in range(4)])
    assert tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True) == SENTENCES
    tensors = rows.with_format("torch")
    assert torch.equal(
        DataCollatorWithPadding(tokenizer)([tensors[i] for i in range(4)])["input_ids"], batch["input_ids"]
    )


def test_datasets_map_of_words_one_at_a_time(tokenizer: ElmoTokenizer) -> None:
    rows = datasets.Dataset.from_dict({"words": [["New York", ""], ["x"]]})
    rows = rows.map(lambda row: tokenizer(row["words"], is_split_into_words=True))
    assert [len(ids) for ids in rows["input_ids"]] == [4, 3]


@pytest.mark.parametrize("words", [False, True], ids=["texts", "words"])
def test_datasets_map_in_several_processes(tmp_path: Path, tokenizer: ElmoTokenizer, words: bool) -> None:
    texts = [f"{sentence} {number}" for number in range(9) for sentence in SENTENCES]
    column = [text.split() for text in texts] if words else texts
    datasets.Dataset.from_dict({"text": column}).save_to_disk(tmp_path / "rows")
    rows = datasets.load_from_disk(tmp_path / "rows")

    def encode(batch: dict) -> dict:
        return dict(tokenizer(batch["text"], is_split_into_words=words, padding=True, return_tensors="np"))

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
    for options in ({}, {"is_split_into_words": True}):
        expected = tokenizer(SENTENCES[:3] if not options else [["a b", ""], ["c"]], padding=True, **options)
        assert dict(other(SENTENCES[:3] if not options else [["a b", ""], ["c"]], padding=True, **options)) == dict(
            expected
        )


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


def test_saving_twice_writes_the_same_files(tmp_path: Path) -> None:
    ElmoTokenizer(word_splitting="whitespace").save_pretrained(tmp_path / "once")
    again = ElmoTokenizer.from_pretrained(tmp_path / "once")
    again(["a b", "c"], padding="max_length", max_length=9, truncation=True)
    again.save_pretrained(tmp_path / "twice")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        once, twice = (json.loads((tmp_path / folder / name).read_text()) for folder in ("once", "twice"))
        where = {"is_local", "local_files_only"}  # transformers notes how the tokenizer was loaded
        assert {key: once[key] for key in once.keys() - where} == {key: twice[key] for key in twice.keys() - where}


def test_the_files_are_two_and_the_code(tmp_path: Path) -> None:
    files = ElmoTokenizer().save_pretrained(tmp_path)
    expected = {"tokenizer.json", "tokenizer_config.json", *FILES["ElmoTokenizer"]}
    assert {path.name for path in tmp_path.iterdir()} == expected
    assert {Path(file).name for file in files} >= {"tokenizer.json", "tokenizer_config.json"}
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("a b").tokens == ["<S>", "a", "b", "</S>"]


def test_the_language_models_vocabulary_travels_with_the_tokenizer(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>", "the", "naïve", "#!"]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    ElmoTokenizer(vocab_file=str(tmp_path / "words.txt")).save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "vocab.txt").read_bytes() == (tmp_path / "words.txt").read_bytes()
    assert again.vocabulary == words
    assert again("the naïve")["input_ids"] == ElmoTokenizer()("the naïve")["input_ids"]
    assert ElmoTokenizer().vocabulary is None


def test_saving_into_its_own_folder_keeps_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    ElmoTokenizer(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    ElmoTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert ElmoTokenizer.from_pretrained(tmp_path).vocabulary == ["<S>", "</S>", "<UNK>"]


def test_a_vocabulary_that_is_anothers_is_renamed_and_never_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for words in ("first", "second"):
        (tmp_path / "vocab.txt").write_text(f"<S>\n</S>\n<UNK>\n{words}\n")
        ElmoTokenizer().save_pretrained(tmp_path)
        assert ElmoTokenizer.from_pretrained(tmp_path).vocabulary is None
    assert "vocab.txt is not of the tokenizer that is saved beside it, and is vocab.txt.1 now" in caplog.text
    assert [(tmp_path / f"vocab.txt.{n}").read_text().split()[-1] for n in (1, 2)] == ["first", "second"]
    ElmoTokenizer().save_pretrained(tmp_path)
    assert not (tmp_path / "vocab.txt.3").exists()


def test_a_token_to_add_is_refused_and_a_known_one_is_not(tmp_path):
    tokenizer = ElmoTokenizer()
    for add in (tokenizer.add_tokens, lambda new: tokenizer.add_special_tokens({"extra_special_tokens": new})):
        with pytest.raises(ValueError, match="'<e1>' cannot be added: ELMo spells each word"):
            add(["<e1>"])
    assert tokenizer.add_tokens(["<S>", "<pad>"]) == 0
    assert tokenizer.tokenize("a <e1>") == ElmoTokenizer().tokenize("a <e1>")
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="cannot be added"):
        ElmoTokenizer.from_pretrained(tmp_path).add_tokens("<e1>")


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


@pytest.mark.parametrize("saved_as", ["lm1b", "whitespace"])
def test_a_normalizer_that_was_taken_away_or_added_stays_so(tmp_path: Path, saved_as: str) -> None:
    tokenizer, other = ElmoTokenizer(saved_as), ElmoTokenizer("whitespace" if saved_as == "lm1b" else "lm1b")
    tokenizer.backend_tokenizer.normalizer = other.backend_tokenizer.normalizer
    tokenizer.save_pretrained(tmp_path)
    again = ElmoTokenizer.from_pretrained(tmp_path)
    assert again.split_into_words(["a“b"]) == tokenizer.split_into_words(["a“b"])
    assert again.split_into_words(["a“b"]) != ElmoTokenizer(saved_as).split_into_words(["a“b"])


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


@pytest.mark.parametrize(
    ("name", "value"),
    [("pad_token", "[PAD]"), ("pad_token", "</S>"), ("bos_token", None), ("eos_token", "<UNK>"), ("pad_token_id", 258)],
)
def test_boundaries_and_padding_stay_what_they_are(name, value):
    tokenizer = ElmoTokenizer()
    kept = getattr(tokenizer, name)
    expected = tokenizer(["a b", "c"], padding=True)["input_ids"]
    with pytest.raises(ValueError, match=rf"{name} cannot become '{re.escape(str(value))}': it stays"):
        setattr(tokenizer, name, value)
    with pytest.raises(ValueError, match="cannot"):
        tokenizer.add_special_tokens({"cls_token": "<S>", name: value})
    assert tokenizer.cls_token is None
    setattr(tokenizer, name, kept)
    assert tokenizer(["a b", "c"], padding=True)["input_ids"] == expected


def test_another_mark_for_padding_is_chosen_when_the_tokenizer_is_made(tmp_path):
    ElmoTokenizer().save_pretrained(tmp_path)
    for tokenizer in (ElmoTokenizer(pad_token="[PAD]"), ElmoTokenizer.from_pretrained(tmp_path, pad_token="[PAD]")):
        found = tokenizer(["a b", "c"], padding=True)
        assert found["input_ids"] == ElmoTokenizer()(["a b", "c"], padding=True)["input_ids"]
        assert found.tokens(1) == ["<S>", "c", "</S>", "[PAD]"]
    for tokens in ({"pad_token": "</S>"}, {"bos_token": None}, {"eos_token": "<S>"}):
        with pytest.raises(ValueError, match=r"bos_token, eos_token, pad_token are .* must be three strings"):
            ElmoTokenizer.from_pretrained(tmp_path, **tokens)


def test_other_special_tokens_are_known_words_or_refused():
    tokenizer = ElmoTokenizer()
    tokenizer.cls_token, tokenizer.sep_token = "<S>", "</S>"
    assert (tokenizer.cls_token, tokenizer.sep_token) == ("<S>", "</S>")
    for name, value in (("mask_token", "[MASK]"), ("extra_special_tokens", ["<e1>"])):
        with pytest.raises(ValueError, match="cannot be added"):
            setattr(tokenizer, name, value)
    assert tokenizer.mask_token is None


def test_there_is_nothing_to_train():
    with pytest.raises(ValueError, match="learns nothing from a text"):
        ElmoTokenizer().train_new_from_iterator([["a text"]], 100)


def test_the_way_to_split_stays() -> None:
    """It belongs to the backend: another one would be saved, and take effect at the next load only."""
    tokenizer = ElmoTokenizer("lm1b")
    with pytest.raises(ValueError, match="word_splitting cannot become 'whitespace': it stays 'lm1b'"):
        tokenizer.word_splitting = "whitespace"
    tokenizer.word_splitting = "lm1b"
    assert tokenizer.split_into_words(["don't"]) == [["don", "'t"]]


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
    with pytest.raises(ValueError, match="2 texts are encoded, but there are labels of 1"):
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
        with pytest.raises(ValueError, match=f"text 0 has 5 words, but {len(wrong[0])} labels"):
            tokenizer.align_labels(tokenizer(texts, **in_pieces), wrong)


@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_labels_of_a_pair_are_refused(add_special_tokens: bool) -> None:
    tokenizer = ElmoTokenizer("whitespace")
    encoded = tokenizer(["a b"], ["x y"], add_special_tokens=add_special_tokens)
    with pytest.raises(ValueError, match="text 0 is a pair, but labels are those of one text"):
        tokenizer.align_labels(encoded, [[1, 2]])


@pytest.mark.parametrize("name", ["add_bos_token", "add_eos_token"])
def test_boundaries_are_left_out_by_a_call_alone(name: str, caplog) -> None:
    assert ElmoTokenizer(**{name: False})("a").tokens() == ["<S>", "a", "</S>"]
    assert f"{name}=False has no effect: the biLM was trained on sentences between boundaries" in caplog.text
    tokenizer = ElmoTokenizer("whitespace", **{name: True})
    with pytest.raises(ValueError, match=f"{name} cannot become False.*add_special_tokens=False"):
        setattr(tokenizer, name, False)
    assert tokenizer("a").tokens() == ["<S>", "a", "</S>"]
    assert tokenizer("a", add_special_tokens=False).tokens() == ["a"]
