"""Stored layers of a frozen biLM, and word vectors from files."""

import gzip
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from hf_elmo import (
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoTokenizer,
    LayersCollator,
    TaggingCollator,
    add_word_vectors,
    count_words,
    read_word_vectors,
    store_layers,
)
from hf_elmo.tokenization_elmo import CharacterVocabulary
from tests.factories import save_checkpoint, small_model

# Words are letters and an id: of unicode characters, 12 at most, as many as the longest text has positions.
VOCABULARY = CharacterVocabulary(list("abcdef"), ["a", "bc"])
LETTERS = {"char_units": "unicode", "max_word_length": 12, "word_embedding_size": 3}
LETTERS |= {"char_vocab_size": VOCABULARY.size, "word_vocab_size": VOCABULARY.word_size}
HEADS = {
    "letters": (ElmoForSequenceClassification, LETTERS),
    "classifier": (ElmoForSequenceClassification, {"encoder_type": "bilstm", "encoder_hidden_size": 7}),
    "pairs": (ElmoForSequenceClassification, {"classifier_text_pairs": True}),
    "tagger": (ElmoForTokenClassification, {"tagging_crf": True, "word_vectors_vocab_size": 5, "word_vectors_size": 4}),
}
TEXTS = ["a b c d e", "f", "g h", "i j k", "l m", "n o p q", "r", "", "y z a", "b c", "a bc d e f a b c d e"]


def make(head: str, **changes: object) -> torch.nn.Module:
    model_class, settings = HEADS[head]
    return small_model(model_class, **{"num_labels": 3, **settings, **changes})


def data(tokenizer: ElmoTokenizer, head: str) -> datasets.Dataset:
    encoded = tokenizer(TEXTS, TEXTS[:1] + TEXTS[:0:-1] if head == "pairs" else None)
    labels = [number % 3 for number in range(len(TEXTS))]
    if head == "tagger":
        labels = tokenizer.align_labels(encoded, [[i % 3 for i in range(len(text.split()))] for text in TEXTS])
    return datasets.Dataset.from_dict({**encoded, "labels": labels})


@pytest.fixture
def head() -> str:
    return "classifier"


@pytest.fixture
def tokenizer(tokenizer: ElmoTokenizer, head: str) -> ElmoTokenizer:
    if head == "letters":
        tokenizer = ElmoTokenizer("whitespace", 12)
        tokenizer.character_vocab = VOCABULARY
    tokenizer.words = ["a", "b"] if head == "tagger" else None
    return tokenizer


def gradients(head: str, rows: datasets.Dataset, tokenizer: ElmoTokenizer) -> dict[str, torch.Tensor]:
    collate, model = (TaggingCollator if head == "tagger" else LayersCollator)(tokenizer), make(head)
    model(**collate(list(rows))).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(
    ("head", "dtype", "tolerance", "side"),
    [
        ("classifier", "bfloat16", 2**-7, "right"),
        ("pairs", "float32", 1e-5, "left"),
        ("tagger", "float16", 2**-10, "left"),
    ],
)
def test_training_is_the_same_as_on_input_ids(
    tokenizer: ElmoTokenizer, head: str, dtype: str, tolerance: float, side: str
) -> None:
    tokenizer.padding_side = side
    rows = data(tokenizer, head)
    expected = gradients(head, rows, tokenizer)
    stored = store_layers(make(head), rows, dtype).remove_columns("length")
    assert "input_ids" not in stored.column_names
    found = gradients(head, stored, tokenizer)
    assert {"classifier.weight", "elmo.scalar_mix.scalars"} <= found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=tolerance, rtol=tolerance, msg=name)


@pytest.mark.parametrize("head", HEADS)
def test_what_is_stored(tokenizer: ElmoTokenizer, head: str) -> None:
    """The layers of rows in any format and order, in batches of several rows and of one; also without boundaries."""
    model, rows = make(head), data(tokenizer, head).shuffle(seed=1)
    stored = store_layers(model, rows.with_format("torch"), "float32", batch_tokens=8)
    assert stored["length"][:].tolist() == [len(row["input_ids"]) for row in rows]
    for row, own in zip(rows, stored, strict=True):
        expected = model.bilm_layers(torch.tensor([row["input_ids"]]))[0].detach()
        torch.testing.assert_close(torch.from_numpy(own["bilm_layers"]), expected)
        assert np.array_equal(own["labels"], row["labels"])
        assert own["special_tokens_mask"].tolist() == [int(word[1] in (257, 258)) for word in row["input_ids"]]
    if head == "classifier":
        rows = datasets.Dataset.from_dict(dict(tokenizer(TEXTS[:4], add_special_tokens=False)))
        collate, stored = LayersCollator(tokenizer), store_layers(model, rows, "float32").remove_columns("length")
        found = model(**collate(list(stored))).logits
        torch.testing.assert_close(found, model(**collate(list(rows))).logits)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.int64])
def test_rows_of_layers_are_padded(tokenizer: ElmoTokenizer, side: str, dtype: type) -> None:
    """Also the bits of bfloat16 values, and the same in a wider type."""
    tokenizer.padding_side = side
    one, expected = (1.0, torch.float32) if dtype == np.float32 else (0x3F80, torch.bfloat16)
    rows = [{"bilm_layers": np.full((n, 3, 4), one, dtype), "word_vector_ids": [5] * n, "label": n} for n in (2, 5)]
    batch = LayersCollator(tokenizer, pad_to_multiple_of=4)(rows)
    mask = [1, 1, 0, 0, 0, 0, 0, 0] if side == "right" else [0, 0, 0, 0, 0, 0, 1, 1]
    assert batch["bilm_layers"].dtype == expected
    assert batch["bilm_layers"].shape == (2, 8, 3, 4)
    assert batch["bilm_layers"][0, :, 0, 0].tolist() == batch["attention_mask"][0].tolist() == mask
    assert batch["word_vector_ids"][0].tolist() == [5 * i for i in mask]
    assert batch["labels"].tolist() == [2, 5]


def test_the_file_is_reused_for_the_same_weights_only(tmp_path: Path, tokenizer: ElmoTokenizer, head: str) -> None:
    model, rows = make(head), data(tokenizer, head)
    first = store_layers(model, rows, folder=tmp_path)
    (file,) = tmp_path.glob("layers-*.arrow")
    written = file.stat().st_mtime_ns
    model.elmo.scalar_mix.scalars.data += 1.0  # has no effect on the layers
    store_layers(model, rows, folder=tmp_path)
    assert list(tmp_path.glob("*.arrow")) == [file]
    assert file.stat().st_mtime_ns == written
    store_layers(model, rows, "bfloat16", folder=tmp_path)
    model.elmo.bilm.forward_layers[0].bias.data += 1.0
    other = store_layers(model, rows, folder=tmp_path)
    assert not np.array_equal(other[0]["bilm_layers"], first[0]["bilm_layers"])
    clipped = make(head, cell_clip=0.1)
    clipped.load_state_dict(model.state_dict())
    store_layers(clipped, rows, folder=tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 4


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("head", "dtype"), [("classifier", "float16"), ("pairs", "bfloat16"), ("tagger", "float16")])
def test_layers_of_another_bilm_are_refused(tokenizer: ElmoTokenizer, head: str, dtype: str, side: str) -> None:
    collate, rows = LayersCollator(tokenizer), data(tokenizer, head).remove_columns("labels")
    model, other = make(head), make(head)
    with torch.no_grad():
        for parameter in other.elmo.parameters():
            parameter += torch.randn_like(parameter)
    tokenizer.padding_side = side
    own, others = (collate(list(store_layers(one, rows, dtype))) for one in (model, other))
    with pytest.raises(ValueError, match="bilm_layers"):
        model(**others)
    assert model(**own).logits.isfinite().all()


def test_what_cannot_be_stored(tokenizer: ElmoTokenizer, head: str) -> None:
    model, rows = make(head), data(tokenizer, head)
    for side in ("left", "right"):
        padded = tokenizer(["a b c", "d"], padding=True, padding_side=side)
        with pytest.raises(ValueError, match="row 1"):
            store_layers(model, datasets.Dataset.from_dict({"input_ids": padded["input_ids"]}))
    with torch.no_grad():
        model.elmo.char_encoder.projection.bias += 1e6
    with pytest.raises(ValueError, match="float16"):
        store_layers(model, rows)
    model.elmo.bilm.forward_layers[1].bias.requires_grad_(True)
    with pytest.raises(ValueError, match="trained"):
        store_layers(model, rows)


@pytest.mark.parametrize("collator", [DataCollatorForTokenClassification, DataCollatorWithPadding])
def test_parts_of_a_data_set_and_collators_of_transformers(tokenizer: ElmoTokenizer, head: str, collator: type) -> None:
    rows = data(tokenizer, head)
    parts = store_layers(make(head), datasets.DatasetDict(train=rows, test=rows.select([0, 2])))
    assert parts["train"]["length"][:].tolist() == [len(row["input_ids"]) for row in rows]
    assert parts["test"]["length"][:].tolist() == [7, 4]
    with pytest.raises(ValueError, match="TaggingCollator"):
        collator(tokenizer)(list(parts["train"]))


WORDS = ["the", "naïve", "a\u2028b", "Rain"]
VECTORS = np.array([[1, 2.5, -3e-2], [0, 0, 1], [4, 5, 6], [7, 8, 9]], dtype=np.float32)


def text(header: bool, ending: str = "\n") -> bytes:
    rows = [f"{word} {' '.join(map(str, vector))}{ending}" for word, vector in zip(WORDS, VECTORS, strict=True)]
    return ("4 3\n" * header + "".join(rows)).encode()


def binary(separator: bytes) -> bytes:
    rows = [word.encode() + b" " + vector.tobytes() for word, vector in zip(WORDS, VECTORS, strict=True)]
    return b"4 3\n" + separator.join(rows) + separator


FILES = {
    "glove.txt": text(header=False),
    "glove.txt.gz": gzip.compress(text(header=False), mtime=0),
    "word2vec.txt": text(header=True),
    "fasttext.vec": text(header=True, ending=" \n"),
    "windows.txt": text(header=False, ending="\r\n"),
    "word2vec.bin": binary(b"\n"),
    "google.bin.gz": gzip.compress(binary(b""), mtime=0),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    words, vectors = read_word_vectors(tmp_path / name)
    assert (words, vectors.dtype) == (WORDS, np.float32)
    np.testing.assert_array_equal(vectors, VECTORS)
    words, vectors = read_word_vectors(tmp_path / name, words=["Rain", "THE", "rain"])
    assert words == ["the", "Rain"]
    np.testing.assert_array_equal(vectors, VECTORS[[0, 3]])
    assert read_word_vectors(tmp_path / name, words=["the", "Rain"], limit=3)[0] == ["the"]  # 3 vectors of the file
    with pytest.raises(ValueError, match="no vectors"):
        read_word_vectors(tmp_path / name, words=["snow"])
    with pytest.raises(ValueError, match="words must be a list"):
        read_word_vectors(tmp_path / name, words="the")


def test_words_with_spaces_and_words_that_occur_twice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\ufeffthe 1 2\n. . 3 4\nthe 5 6\n 7 8\n\xa0 9 1\na\rb 0 1\n", encoding="utf-8")
    words, vectors = read_word_vectors(tmp_path / "a.txt")
    assert words == ["the", ". .", "\xa0"]
    assert vectors.tolist() == [[1, 2], [3, 4], [9, 1]]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.txt", b"the 1 2\ncat 3\n", r"a\.txt, line 2"),
        ("a.txt", b"the 1 2\n\ncat 3 4\n", r"a\.txt, line 2"),
        ("a.txt", b"the 1 2\nna\xefve 3 4\n", r"a\.txt, line 2"),
        ("a.vec", b"3 2\nthe 1 2\ncat 3 4\n", "says 3"),
        ("a.bin", binary(b"")[:-1], "smaller"),
        ("a.bin", b"3" + binary(b"\n")[1:], "more"),
        ("a.bin", b"2 1\nNew York \1\1\1\1\nthe \2\2\2\2\n", "space"),
        ("vectors", binary(b"\n"), "vectors, line"),
        ("a.txt", b"", "no vectors"),
    ],
)
def test_a_damaged_file_is_not_read(tmp_path: Path, name: str, content: bytes, named: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=named):
        read_word_vectors(tmp_path / name)


def test_word_vectors_in_one_call(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    (tmp_path / "vectors.txt").write_bytes(FILES["glove.txt"])
    model = make("classifier").half()
    for source in (model, tmp_path / "saved"):
        found = add_word_vectors(source, tokenizer, tmp_path / "vectors.txt", ["The rain"], freeze_word_vectors=True)
        assert tokenizer.words == ["the"]
        assert found.dtype == torch.float16
        np.testing.assert_array_equal(found.word_vectors.weight[3].detach().numpy(), VECTORS[0].astype(np.float16))
        assert not found.word_vectors.weight.requires_grad
        assert torch.equal(found.elmo.bilm.forward_layers[0].bias, model.elmo.bilm.forward_layers[0].bias)
        assert found(**tokenizer("The rain", return_tensors="pt")).logits.shape == (1, 3)
        save_checkpoint(tmp_path / "saved", found, tokenizer)
    alone = add_word_vectors(model, tokenizer, tmp_path / "vectors.txt", use_elmo=False)
    assert tokenizer.words == WORDS
    assert not hasattr(alone, "elmo")


def test_words_of_texts() -> None:
    tokenizer = ElmoTokenizer()
    texts = ["The cat, the dog.", ["the", "Cat", "New York", ""]]
    assert count_words(tokenizer, texts) == ["the", ",", ".", "Cat", "New York", "The", "cat", "dog"]
    assert count_words(tokenizer, texts, min_count=2, lowercase=True) == ["the", "cat"]
    assert count_words(tokenizer, texts, limit=1) == ["the"]
