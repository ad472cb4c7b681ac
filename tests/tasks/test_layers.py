"""Layers stored once: the file, its types, and training from it as on input_ids."""

import copy
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoTokenizer,
    TaggingCollator,
    store_layers,
)
from hf_elmo.character_vocab_elmo import CharacterVocabulary
from tests.conftest import TINY, random_model

HEADS = {
    "classifier": (ElmoForSequenceClassification, {"encoder_type": "bilstm", "encoder_hidden_size": 7}),
    "pairs": (ElmoForSequenceClassification, {"classifier_text_pairs": True}),
    "tagger": (ElmoForTokenClassification, {"tagging_crf": True, "word_vectors_vocab_size": 5, "word_vectors_size": 4}),
}
TEXTS = ["a b c d e", "f", "g h", "i j k", "l m", "n o p q", "r", "", "y z a", "b c"]


def make(head: str, **changes: object) -> torch.nn.Module:
    model_class, settings = HEADS[head]
    config = ElmoConfig(**{**TINY, "num_labels": 3, **settings, **changes})
    return random_model(config, model_class)


def data(tokenizer: ElmoTokenizer, head: str) -> datasets.Dataset:
    rows = []
    for number, text in enumerate(TEXTS):
        encoded = tokenizer(text, TEXTS[-number]) if head == "pairs" else tokenizer(text)
        labels = number % 3
        if head == "tagger":
            labels = tokenizer.align_labels(encoded, [i % 3 for i in range(len(text.split()))])
        rows.append({**encoded, "labels": labels})
    return datasets.Dataset.from_list(rows)


@pytest.fixture
def head() -> str:
    return "classifier"


@pytest.fixture
def tokenizer(tokenizer: ElmoTokenizer, head: str) -> ElmoTokenizer:
    if head == "tagger":
        tokenizer.words = ["a", "b"]
    return tokenizer


def weights_after_training(folder: Path, model, rows, tokenizer, sampling: str = "random") -> dict[str, torch.Tensor]:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=3,
        learning_rate=0.05,
        optim="sgd",
        seed=5,
        train_sampling_strategy=sampling,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    collator = (TaggingCollator if model.config.tagging_crf else DataCollatorWithPadding)(tokenizer)
    Trainer(model, arguments, collator, rows).train()
    return model.state_dict()


# A layer's numbers are rounded by 2**-11 (float16) or 2**-8 (bfloat16) of their size; over the 8 steps of rate 0.05 the
# weights then differ by a small multiple of that.
@pytest.mark.parametrize(
    ("head", "dtype", "tolerance"),
    [
        ("classifier", "float32", 1e-5),
        ("classifier", "float16", 2**-11),
        ("classifier", "bfloat16", 2**-8),
        ("pairs", "float16", 2**-11),
        ("tagger", "float16", 2**-11),
    ],
)
def test_training_is_the_same_as_on_input_ids(tmp_path, tokenizer, head: str, dtype: str, tolerance: float) -> None:
    rows = data(tokenizer, head)
    expected = weights_after_training(tmp_path, make(head), rows, tokenizer)
    stored = store_layers(make(head), rows, dtype)
    model = make(head)
    start = {name: weight.clone() for name, weight in model.state_dict().items()}
    words_read = []
    model.elmo.bilm.register_forward_pre_hook(lambda _, arguments: words_read.append(arguments[0].shape[1]))
    found = weights_after_training(tmp_path, model, stored, tokenizer)
    assert words_read == [1]  # <S>, once, to compare it with what is stored
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=tolerance, rtol=tolerance, msg=name)
    assert not torch.equal(start["classifier.weight"], found["classifier.weight"])


@pytest.mark.parametrize("head", ["classifier", "tagger"])
def test_batches_of_like_length(tmp_path: Path, tokenizer: ElmoTokenizer, head: str) -> None:
    model, lengths = make(head), []
    model.register_forward_pre_hook(lambda *given: lengths.append(given[2]["attention_mask"].sum(1)), with_kwargs=True)
    weights_after_training(tmp_path, model, store_layers(model, data(tokenizer, head)), tokenizer, "group_by_length")
    assert sum(len(batch) for batch in lengths) == 2 * len(TEXTS)
    # Of so few rows the sampler sorts those of each batch: it has their lengths.
    assert all(batch.tolist() == sorted(batch.tolist(), reverse=True) for batch in lengths)


@pytest.mark.parametrize("batch_tokens", [1, 8, 4096])
@pytest.mark.parametrize("head", HEADS)
def test_what_is_stored(tokenizer: ElmoTokenizer, head: str, batch_tokens: int) -> None:
    model, rows = make(head), data(tokenizer, head)
    stored = store_layers(model, rows, "float32", batch_size=3, batch_tokens=batch_tokens)
    assert "input_ids" not in stored.column_names
    assert stored["length"][:].tolist() == [len(row["input_ids"]) for row in rows]
    for row, own in zip(rows, stored, strict=True):
        expected = model.bilm_layers(torch.tensor([row["input_ids"]]))[0].detach()
        assert own["bilm_layers"].dtype == np.float32
        torch.testing.assert_close(torch.from_numpy(own["bilm_layers"]), expected)
        assert np.array_equal(own["labels"], row["labels"])
        assert own["special_tokens_mask"].tolist() == [int(word[1] in (257, 258)) for word in row["input_ids"]]


@pytest.mark.parametrize("form", ["torch", "numpy", "pandas"])
def test_rows_of_any_format_and_order_are_stored(tokenizer: ElmoTokenizer, head: str, form: str) -> None:
    model, rows = make(head), data(tokenizer, head).shuffle(seed=1)
    expected, found = (store_layers(model, some, "float32") for some in (rows, rows.with_format(form)))
    assert found.column_names == expected.column_names
    for one, other in zip(expected, found, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in expected.column_names)


def test_a_long_text_is_computed_alone(tokenizer: ElmoTokenizer, head: str, monkeypatch) -> None:
    """The others of its batch would be padded to its length: 20 GB for 12,000 words among 63 short texts."""
    model, computed = make(head), []
    rows = datasets.Dataset.from_dict({**tokenizer([*TEXTS, "a " * 98, *TEXTS])})

    def layers(input_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        computed.append(mask.numel())
        return own(input_ids, mask)

    own = model.bilm_layers
    monkeypatch.setattr(model, "bilm_layers", layers)
    lengths = store_layers(model, rows, batch_tokens=20)["length"][:].tolist()
    assert max(computed) == lengths[len(TEXTS)] == 100
    assert sorted(computed)[-2] <= 20
    assert sum(computed) < 1.2 * sum(lengths)


def test_texts_without_boundaries(tokenizer: ElmoTokenizer, head: str) -> None:
    model = make(head).eval()
    rows = datasets.Dataset.from_dict(dict(tokenizer(TEXTS[:4], add_special_tokens=False)))
    collate = DataCollatorWithPadding(tokenizer)
    expected = model(**collate(list(rows))).logits
    stored = collate(list(store_layers(model, rows, "float32")))
    stored.pop("length")
    torch.testing.assert_close(model(**stored).logits, expected)


def test_the_file_is_found_again_for_the_same_weights_only(tmp_path: Path, tokenizer: ElmoTokenizer, head: str) -> None:
    model, rows = make(head), data(tokenizer, head)
    first = store_layers(model, rows, folder=tmp_path)
    (file,) = tmp_path.glob("layers-*.arrow")
    assert [Path(entry["filename"]) for entry in first.cache_files] == [file]
    written = file.stat().st_mtime_ns
    model.elmo.scalar_mix.scalars.data += 1.0  # no part of the layers
    store_layers(model, rows, folder=tmp_path)
    assert list(tmp_path.glob("*.arrow")) == [file]
    assert file.stat().st_mtime_ns == written
    store_layers(model, rows, "bfloat16", folder=tmp_path)
    model.elmo.bilm.forward_layers[0].bias.data += 1.0
    other = store_layers(model, rows, folder=tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 3
    assert not np.array_equal(other[0]["bilm_layers"], first[0]["bilm_layers"])


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_stored_layers_that_are_nan_are_refused(tokenizer: ElmoTokenizer, layer: int) -> None:
    model, rows = make("classifier"), data(tokenizer, "classifier").remove_columns("labels")
    batch = DataCollatorWithPadding(tokenizer)(list(store_layers(model, rows, "float32")))
    batch["bilm_layers"][:, :, layer] = torch.nan
    with pytest.raises(ValueError, match=rf"another biLM: layer {layer} of <S> differs by nan"):
        model(**batch)


def test_layers_of_a_bilm_with_other_lstms_are_refused(tokenizer: ElmoTokenizer) -> None:
    """Also where they changed after the model had taken layers of its own."""
    model, rows = make("classifier"), data(tokenizer, "classifier").remove_columns("labels")
    stored = DataCollatorWithPadding(tokenizer)(list(store_layers(model, rows, "float32")))
    model(**stored)
    with torch.no_grad():
        for parameter in model.elmo.bilm.parameters():
            parameter *= 1.5
    with pytest.raises(ValueError, match=r"bilm_layers are of another biLM: layer [12] of <S>"):
        model(**stored)
    copied = copy.deepcopy(model)
    own = DataCollatorWithPadding(tokenizer)(list(store_layers(copied, rows, "float32")))
    model(**own), copied(**own)
    with pytest.raises(ValueError, match="another biLM"):
        copied(**stored)
    model.train()
    with torch.inference_mode():
        model(**own)
    assert model.elmo.training


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_layers_of_another_bilm_of_the_same_shape_are_refused(tokenizer: ElmoTokenizer, head: str, dtype: str) -> None:
    model, other, collate = make(head), make(head), DataCollatorWithPadding(tokenizer)
    with torch.no_grad():
        for parameter in other.elmo.parameters():
            parameter += torch.randn_like(parameter)
    rows = data(tokenizer, head).remove_columns("labels")
    for side in ("left", "right"):
        tokenizer.padding_side = side
        own, others = (collate(list(store_layers(one, rows, dtype))) for one in (model, other))
        assert model.to(torch.bfloat16)(**own).logits.isfinite().all()
        assert model.float()(**own).logits.isfinite().all()
        with pytest.raises(ValueError, match=r"bilm_layers are of another biLM.*\(store_layers\)"):
            model(**others)


def test_what_cannot_be_stored(tokenizer: ElmoTokenizer, head: str) -> None:
    model, rows = make(head), data(tokenizer, head)
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        store_layers(model, rows, "int8")
    with pytest.raises(ValueError, match="batch_tokens is 0, but must be 1 or more"):
        store_layers(model, rows, batch_tokens=0)
    with pytest.raises(ValueError, match="no input_ids: tokenize it first"):
        store_layers(model, rows.remove_columns("input_ids"))
    with pytest.raises(ValueError, match="the data set has no rows"):
        store_layers(model, rows.select([]))
    with pytest.raises(ValueError, match="ElmoForPreTraining has no layers"):
        store_layers(ElmoForPreTraining(ElmoConfig(**TINY, vocab_size=9)), rows)
    with torch.no_grad():
        model.elmo.char_encoder.projection.bias += 1e6
    with pytest.raises(ValueError, match="use dtype='bfloat16'"):
        store_layers(model, rows)
    model.unfreeze_bilm()
    with pytest.raises(ValueError, match="freeze_bilm is False"):
        store_layers(model, rows)


def test_weights_that_are_unfrozen_one_by_one_are_no_frozen_bilm(tokenizer: ElmoTokenizer, head: str) -> None:
    model, rows = make(head), data(tokenizer, head)
    batch = DataCollatorWithPadding(tokenizer)(list(store_layers(model, rows).select(range(2))))
    model.elmo.bilm.forward_layers[1].bias.requires_grad_(True)
    for call in (lambda: store_layers(model, rows), lambda: model(**batch)):
        with pytest.raises(ValueError, match=r"forward_layers\.1\.bias is trained \(requires_grad\): use input_ids"):
            call()
    model.freeze_bilm()
    assert model(**batch).loss.isfinite()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("keys", [["input_ids"], ["input_ids", "attention_mask"]], ids=" and ".join)
def test_padding_is_not_stored_as_words(tokenizer: ElmoTokenizer, head: str, side: str, keys: list[str]) -> None:
    encoded = tokenizer(["a b c", "d"], padding=True, padding_side=side)
    rows = datasets.Dataset.from_dict({key: encoded[key] for key in keys})
    with pytest.raises(ValueError, match=r"row 1 of the data set holds padding.*tokenize without padding"):
        store_layers(make(head), rows, batch_size=1)


def test_words_that_the_attention_mask_leaves_out_are_not_stored(tokenizer: ElmoTokenizer, head: str) -> None:
    encoded = {**tokenizer(["a b c"]), "attention_mask": [[1, 1, 1, 0, 0]]}
    with pytest.raises(ValueError, match="row 0 of the data set holds padding"):
        store_layers(make(head), datasets.Dataset.from_dict(encoded))


def test_rows_that_end_with_the_id_of_the_word(tmp_path: Path) -> None:
    """The second text has as many positions as a word has characters: cut there, its numbers would divide."""
    CharacterVocabulary(list("abcdef"), ["a", "bc"]).save(tmp_path / "vocabulary.json")
    tokenizer = ElmoTokenizer("whitespace", 12, character_vocab_file=str(tmp_path / "vocabulary.json"))
    sizes = {"char_vocab_size": tokenizer.character_vocab.size, "word_vocab_size": tokenizer.character_vocab.word_size}
    model = make("classifier", char_units="unicode", max_word_length=12, word_embedding_size=3, **sizes)
    texts = ["a bc d", " ".join("abcdefabcd")]  # 12 positions with the boundaries
    encoded = tokenizer(texts)
    stored = store_layers(model, datasets.Dataset.from_dict({"input_ids": encoded["input_ids"]}), "float32")
    for text, layers in zip(texts, stored["bilm_layers"], strict=True):
        one = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            expected = model.bilm_layers(one["input_ids"], one["attention_mask"])[0]
        # Sums of at most 40 products below 4, of rows in another batch: 40 * 4 * 2**-24.
        np.testing.assert_allclose(layers, expected, rtol=0, atol=1e-5)
    batch = DataCollatorWithPadding(tokenizer)(list(stored))  # known as the biLM's own by the word <S>
    expected = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    torch.testing.assert_close(model(**batch).logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [{"cell_clip": 0.1}, {"proj_clip": 0.1}, {"use_skip_connections": False}, {"char_activation": "tanh"}],
    ids=str,
)
def test_the_file_is_of_what_computes_the_layers_beside_the_weights(
    tmp_path: Path, tokenizer: ElmoTokenizer, head: str, changes: dict
) -> None:
    model, other, rows = make(head), make(head, **changes), data(tokenizer, head)
    other.load_state_dict(model.state_dict())
    first, second = (store_layers(one, rows, folder=tmp_path) for one in (model, other))
    assert len(list(tmp_path.glob("*.arrow"))) == 2
    assert not np.array_equal(first[0]["bilm_layers"], second[0]["bilm_layers"])


def test_a_configuration_that_says_the_bilm_is_trained_is_believed(tokenizer: ElmoTokenizer, head: str) -> None:
    model, rows = make(head), data(tokenizer, head)
    model.config.freeze_bilm = False  # the next one who loads it trains all
    with pytest.raises(ValueError, match="freeze_bilm is False"):
        store_layers(model, rows)


def test_layers_that_are_nan_are_not_said_to_be_too_large(tokenizer: ElmoTokenizer, head: str) -> None:
    model, rows = make(head), data(tokenizer, head)
    with torch.no_grad():
        model.elmo.bilm.forward_layers[1].bias.fill_(torch.nan)
    assert np.isnan(store_layers(model, rows, "float16")[0]["bilm_layers"]).any()
