"""Stored layers of a frozen biLM."""

import datasets
import numpy as np
import pytest
import torch

from hf_elmo import ElmoTokenizer, LayersCollator, TaggingCollator, store_layers
from hf_elmo.tokenization_elmo import CharacterVocabulary
from tests import heads

# Words are letters and an id: of unicode characters, 12 at most, as many as the longest text has positions.
VOCABULARY = CharacterVocabulary(list("abcdef"), ["a", "bc"])
LETTERS = {"char_units": "unicode", "max_word_length": 12, "word_embedding_size": 3}
LETTERS |= {"char_vocab_size": VOCABULARY.size, "word_vocab_size": 6}
FIELDS = {"letters": LETTERS, "tagger": {"tagging_crf": True, "word_vectors_vocab_size": 5, "word_vectors_size": 4}}
TEXTS = ["a b c d e", "f", "g h", "i j k", "l m", "n o p q", "r", "", "y z a", "b c", "a bc d e f a b c d e"]


def made(head: str = "last", **changes: object) -> tuple[torch.nn.Module, ElmoTokenizer, datasets.Dataset]:
    """A model, its tokenizer and rows for it."""
    model = heads.make({"letters": "pooled"}.get(head, head), **FIELDS.get(head, {}), **changes)
    tokenizer = ElmoTokenizer("whitespace", model.config.max_word_length)
    tokenizer.character_vocab = VOCABULARY if head == "letters" else None
    tokenizer.words = ["a", "b"] if head == "tagger" else None
    encoded = tokenizer(TEXTS, TEXTS[:1] + TEXTS[:0:-1] if head == "pairs" else None)
    labels = [number % 3 for number in range(len(TEXTS))]
    if head == "tagger":
        labels = tokenizer.align_labels(encoded, [[i % 3 for i in range(len(text.split()))] for text in TEXTS])
    return model, tokenizer, datasets.Dataset.from_dict({**encoded, "labels": labels})


@pytest.mark.parametrize("head", ["letters", "last", "pairs", "tagger"])
def test_what_is_stored(head: str) -> None:
    model, tokenizer, rows = made(head)
    rows = rows.shuffle(seed=1)
    stored = store_layers(model, rows.with_format("torch"), "float32", batch_tokens=8)
    assert stored["length"][:].tolist() == [len(row["input_ids"]) for row in rows]
    for row, own in zip(rows, stored, strict=True):
        batch = {name: torch.tensor([row[name]]) for name in ("input_ids", "attention_mask")}
        for name, expected in heads.stored(model, batch).items():
            torch.testing.assert_close(torch.from_numpy(own[name]), expected[0])
        assert np.array_equal(own["labels"], row["labels"])
    if head == "last":
        rows = datasets.Dataset.from_dict(dict(tokenizer(TEXTS[:4], add_special_tokens=False)))
        collate = LayersCollator(tokenizer, model)
        stored = store_layers(model, rows, "float32").remove_columns("length")
        found = model(**collate(list(stored))).logits
        torch.testing.assert_close(found, model(**collate(list(rows))).logits)


def test_the_file_is_reused_for_the_same_weights_only(tmp_path) -> None:
    model, _, rows = made()
    first = store_layers(model, rows, folder=tmp_path)
    (file,) = tmp_path.glob("layers-*.arrow")
    written = file.stat().st_mtime_ns
    model.head.scalar_mix.scalars.data += 1.0  # has no effect on the layers
    store_layers(model, rows, folder=tmp_path)
    assert list(tmp_path.glob("*.arrow")) == [file]
    assert file.stat().st_mtime_ns == written
    store_layers(model, rows, "bfloat16", folder=tmp_path)
    model.elmo.bilm.layers[0].lstm.bias.data += 1.0
    other = store_layers(model, rows, folder=tmp_path)
    assert not np.array_equal(other[0]["bilm_layers"], first[0]["bilm_layers"])
    assert len(list(tmp_path.glob("*.arrow"))) == 3


def test_a_carried_state_has_a_file_of_its_own(tmp_path) -> None:
    for carried in (False, True):
        model, tokenizer, rows = made("pairs", carry_state=carried)
        collate = LayersCollator(tokenizer, model)
        stored = collate(list(store_layers(model, rows, "float32", tmp_path)))
        torch.testing.assert_close(model(**stored).logits, model(**collate(list(rows))).logits)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("head", "dtype"), [("last", "float16"), ("pairs", "bfloat16"), ("tagger", "float16")])
def test_batches_have_the_loss_of_input_ids_and_only_layers_of_this_bilm(head: str, dtype: str, side: str) -> None:
    (model, tokenizer, rows), (other, *_) = made(head), made(head)
    with torch.no_grad():
        for parameter in other.elmo.parameters():
            parameter += torch.randn_like(parameter)
    tokenizer.padding_side = side
    collator = TaggingCollator if head == "tagger" else LayersCollator
    collate = collator(tokenizer, model)
    stored = collate(list(store_layers(model, rows, dtype)))
    eps = torch.finfo(getattr(torch, dtype)).eps
    torch.testing.assert_close(model(**stored).loss, model(**collate(list(rows))).loss, atol=eps, rtol=eps)
    with pytest.raises(ValueError, match="another biLM"):
        collate(list(store_layers(other, rows, dtype)))
    assert "input_ids" in collator(tokenizer, made(head, freeze_bilm=False)[0])(list(rows))


def test_what_cannot_be_stored() -> None:
    model, tokenizer, rows = made()
    for side in ("left", "right"):
        padded = tokenizer(["a b c", "d"], padding=True, padding_side=side)
        with pytest.raises(ValueError, match="row 1"):
            store_layers(model, datasets.Dataset.from_dict({"input_ids": padded["input_ids"]}))
    with torch.no_grad():
        model.elmo.char_encoder.projection.bias += 1e6
    with pytest.raises(ValueError, match="float16"):
        store_layers(model, rows)
    model.elmo.bilm.layers[1].lstm.bias.requires_grad_(True)
    with pytest.raises(ValueError, match="trained"):
        store_layers(model, rows)


def test_parts_of_a_data_set() -> None:
    model, _, rows = made()
    parts = store_layers(model, datasets.DatasetDict(train=rows, dev=rows.select([]), test=rows.select([0, 2])))
    assert [parts[name].num_rows for name in ("train", "dev", "test")] == [len(rows), 0, 2]
    assert (parts["dev"].features, parts["dev"].format) == (parts["train"].features, parts["train"].format)
