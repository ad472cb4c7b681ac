"""The tagger of semantic roles: a row for each predicate, layers in turn forward and backward, tags by a scheme."""

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification

from hf_elmo import (
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoTokenizer,
    TaggingCollator,
    store_layers,
)
from hf_elmo.crf_elmo import ElmoCRF, allowed_transitions
from hf_elmo.encoders_elmo import ElmoAlternatingLSTM, ElmoHighwayLSTM
from tests.conftest import SENTENCES, TINY, random_labels, random_model

NAMES = ["O", "B-V", "I-V", "B-ARG0", "I-ARG0"]
ROLES = {
    "encoder_type": "alternating",
    "encoder_num_layers": 3,
    "encoder_hidden_size": 7,
    "tagging_indicator_size": 5,
    "tagging_scheme": "IOB2",
    "id2label": dict(enumerate(NAMES)),
    "label2id": {name: number for number, name in enumerate(NAMES)},
}


def make(**changes: object) -> ElmoForTokenClassification:
    return random_model(ElmoConfig(**{**TINY, **ROLES, **changes}), ElmoForTokenClassification)


def encode(tokenizer: ElmoTokenizer, texts: list[str] = SENTENCES, side: str = "right") -> dict[str, Tensor]:
    """Each text with its second word, or its only one, as the predicate."""
    batch = tokenizer(texts, padding=True, padding_side=side, return_tensors="pt")
    words = batch["attention_mask"].bool() & (batch["input_ids"][:, :, 1] < 257)
    place = words.cumsum(1)
    batch["token_type_ids"] = (words & (place == place.amax(1, keepdim=True).clamp(max=2))).long()
    return batch


def labels_of(batch: dict[str, Tensor]) -> Tensor:
    return random_labels(batch["attention_mask"].bool() & (batch["input_ids"][:, :, 1] < 257))


def random_weights(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def plain_highway(layer: ElmoHighwayLSTM, words: Tensor) -> Tensor:
    """`[words, input]` to `[words, hidden]` of one text, as the paper writes it."""
    size, h = layer.hidden_size, words.new_zeros(layer.hidden_size)
    c, outputs = h, []
    into = layer.weight_ih.view(6, size, -1)
    bias, across = layer.bias.view(6, size), layer.weight_hh.view(5, size, size)
    for x in words:
        i, f, g, o, r = (into[gate] @ x + across[gate] @ h + bias[gate] for gate in range(5))
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
        r = torch.sigmoid(r)
        h = r * (torch.sigmoid(o) * torch.tanh(c)) + (1 - r) * (into[5] @ x + bias[5])
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_layers_read_in_turn_forward_and_backward(layers: int) -> None:
    torch.manual_seed(1)
    encoder = random_weights(ElmoAlternatingLSTM(4, 6, layers, 0.0, 0.0).double())
    vectors, lengths = torch.randn(3, 5, 4, dtype=torch.float64), [2, 5, 0]
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    found = encoder(vectors, mask)
    assert not found[~mask].any()
    for row, length in enumerate(lengths[:2]):
        words = vectors[row, :length]
        for number, layer in enumerate(encoder.layers):
            words = plain_highway(layer, words.flip(0)).flip(0) if number % 2 else plain_highway(layer, words)
        torch.testing.assert_close(found[row, :length], words)


def test_recurrent_dropout_is_the_same_at_all_words() -> None:
    torch.manual_seed(1)
    layer = random_weights(ElmoHighwayLSTM(4, 50, 0.5))
    words, sizes = torch.randn(12, 4), [3, 3, 3, 3]
    dropped = (layer(words, sizes) == 0).view(4, 3, 50)
    assert 0.3 < dropped.float().mean() < 0.7
    assert torch.equal(dropped[0], dropped[-1])
    assert not torch.equal(dropped[0, 0], dropped[0, 1])
    assert not (layer.eval()(words, sizes) == 0).any()


def test_the_logits_of_a_text(tokenizer: ElmoTokenizer) -> None:
    model, text = make(layer_weights=-1).double(), "the cat sat"
    batch = encode(tokenizer, [text])
    words = model.elmo(batch["input_ids"]).last_hidden_state[0, 1:-1]
    assert batch["token_type_ids"].tolist() == [[0, 0, 1, 0, 0]]
    words = torch.cat((words, model.indicator.weight[[0, 1, 0]]), dim=1)
    for number, layer in enumerate(model.encoder.bilstm.layers):
        words = plain_highway(layer, words.flip(0)).flip(0) if number % 2 else plain_highway(layer, words)
    expected = words @ model.classifier.weight.T + model.classifier.bias
    output = model(**batch, labels=torch.tensor([[-100, 3, 1, 0, -100]]))
    torch.testing.assert_close(output.logits[0, 1:-1], expected)
    nll = -expected.log_softmax(1)[[0, 1, 2], [3, 1, 0]].mean()
    torch.testing.assert_close(output.loss, nll)


def test_without_a_crf_the_most_probable_sequence_of_the_scheme() -> None:
    """By enumeration of all sequences."""
    torch.manual_seed(2)
    starts, follows, ends = allowed = allowed_transitions(NAMES, "IOB2")
    decoder = ElmoCRF(len(NAMES), allowed, learned=False)
    assert not list(decoder.parameters())
    emissions, mask = torch.randn(8, 4, len(NAMES)), torch.ones(8, 4, dtype=torch.bool)
    sequences = [
        labels
        for labels in product(range(len(NAMES)), repeat=4)
        if starts[labels[0]] and ends[labels[-1]] and all(follows[a][b] for a, b in pairwise(labels))
    ]
    found = decoder.decode(emissions, mask)
    for row, tags in zip(emissions, found.tolist(), strict=True):
        assert tuple(tags) == max(sequences, key=lambda labels: row[range(4), list(labels)].sum().item())
    assert not torch.equal(found, emissions.argmax(2))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_alone_or_in_a_batch(tokenizer: ElmoTokenizer, side: str) -> None:
    model = make().double()
    batch = encode(tokenizer, side=side)
    together = model(**batch)
    for row, text in enumerate(SENTENCES):
        alone = model(**encode(tokenizer, [text]))
        here = batch["attention_mask"][row].bool()
        torch.testing.assert_close(together.logits[row, here], alone.logits[0])
        assert torch.equal(together.tags[row, here], alone.tags[0])


def test_the_predicate_makes_a_difference(tokenizer: ElmoTokenizer) -> None:
    model, batch = make(), encode(tokenizer, ["the cat sat down"])
    first = model(**batch).logits
    batch["token_type_ids"] = batch["token_type_ids"].roll(1, dims=1)
    assert not torch.allclose(model(**batch).logits[:, 1:-1], first[:, 1:-1])


def test_parts_of_a_batch_add_up_to_the_whole(tokenizer: ElmoTokenizer) -> None:
    model = make(encoder_dropout=0.0, classifier_dropout=0.0).train()
    batch = encode(tokenizer)
    labels = labels_of(batch)
    whole = model(**batch, labels=labels)
    assert whole.tags is None  # while training
    parts = [
        model(
            **{k: v[rows] for k, v in batch.items()}, labels=labels[rows], num_items_in_batch=(labels >= 0).sum()
        ).loss
        for rows in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(sum(parts), whole.loss)
    whole.loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("reentrant", [False, True], ids=["not reentrant", "reentrant"])
def test_checkpointing_runs_each_layer_again_to_the_same_gradients(
    tokenizer: ElmoTokenizer, monkeypatch: pytest.MonkeyPatch, reentrant: bool
) -> None:
    model, batch = make(encoder_recurrent_dropout=0.3, encoder_dropout=0.2).double().train(), encode(tokenizer)
    batch["labels"] = labels_of(batch)

    def gradients() -> dict[str, Tensor]:
        model.zero_grad()
        torch.manual_seed(1)
        model(**batch).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected = gradients()
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)({"use_reentrant": reentrant})
    calls, dropout = [], nn.functional.dropout
    monkeypatch.setattr(nn.functional, "dropout", lambda x, *given: calls.append(x.shape[1:]) or dropout(x, *given))
    found = gradients()
    assert calls.count((ROLES["encoder_hidden_size"],)) == 2 * ROLES["encoder_num_layers"]  # the recurrent one
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=name)


def test_a_checkpoint(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    model, batch = make(), encode(tokenizer)
    model.save_pretrained(tmp_path)
    again = AutoModelForTokenClassification.from_pretrained(tmp_path)
    torch.testing.assert_close(again(**batch).logits, model(**batch).logits)
    assert torch.equal(again(**batch).tags, model(**batch).tags)


def test_initial_weights_are_orthonormal_gate_by_gate(tmp_path: Path) -> None:
    random_model(ElmoConfig(**TINY)).save_pretrained(tmp_path)
    layer = ElmoForTokenClassification.from_pretrained(tmp_path, **ROLES).encoder.bilstm.layers[1]
    for weight in (*layer.weight_ih.split(7), *layer.weight_hh.split(7)):
        torch.testing.assert_close(weight @ weight.T, torch.eye(7))
    assert layer.bias.view(6, 7).sum(1).tolist() == [0, 7, 0, 0, 0, 0]


def test_bfloat16(tokenizer: ElmoTokenizer) -> None:
    model, batch = make(), encode(tokenizer)
    expected = model(**batch).logits
    found = model.bfloat16()(**batch, labels=labels_of(batch))
    assert found.logits.dtype == torch.bfloat16
    # 3 layers and the biLM round sums of numbers around 1 to 8 bits
    torch.testing.assert_close(found.logits.float(), expected, atol=0.1, rtol=0.1)
    found.loss.backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("training", [True, False])
def test_autocast_is_near(tokenizer: ElmoTokenizer, dtype: torch.dtype, training: bool) -> None:
    model, batch = make(encoder_dropout=0.0, classifier_dropout=0.0).train(training), encode(tokenizer)
    batch["labels"] = labels_of(batch)

    def run(dtype: torch.dtype | None) -> tuple[Tensor, Tensor, Tensor]:
        model.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            output = model(**batch)
        output.loss.backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
        return output.loss, output.logits[batch["attention_mask"].bool()].float(), torch.cat(gradients)

    # Sixteen roundings, as in the tests of other heads.
    for found, expected in zip(run(dtype), run(None), strict=True):
        assert 0 < (found - expected).norm() / expected.norm() < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("words", [torch.ones(300, 1), torch.ones(300, 1, dtype=torch.bfloat16)], ids=lambda x: x.dtype)
def test_autocast_adds_cells_up_in_float32(monkeypatch: pytest.MonkeyPatch, words: Tensor) -> None:
    """All gates are 1, so that the cell counts words; bfloat16, which a layer below gives, counts to 256."""
    layer, tanh, read = ElmoHighwayLSTM(1, 1, 0.0), Tensor.tanh, []
    for parameter in layer.parameters():
        nn.init.constant_(parameter, 99.0)
    monkeypatch.setattr(Tensor, "tanh", lambda x: read.append(x) or tanh(x))
    with torch.autocast("cpu", torch.bfloat16):
        layer(words, [1] * 300)
    assert read[-1].item() == 300  # the cell, of which the output is made


def test_stored_layers_of_predicates(tokenizer: ElmoTokenizer) -> None:
    model = make()
    rows = [{key: value[0].tolist() for key, value in encode(tokenizer, [text]).items()} for text in SENTENCES]
    rows = [{**row, "labels": np.where(np.array(row["token_type_ids"]), 1, -100).tolist()} for row in rows]
    data = Dataset.from_list(rows)
    expected = model(**TaggingCollator(tokenizer)([*data]))
    batch = TaggingCollator(tokenizer)([*store_layers(model, data, dtype="float32")])
    batch.pop("length")
    assert "input_ids" not in batch
    found = model(**batch)
    torch.testing.assert_close(found.logits, expected.logits)
    torch.testing.assert_close(found.loss, expected.loss)


def test_predicates_that_are_missing_or_no_words(tokenizer: ElmoTokenizer) -> None:
    model, batch = make(), encode(tokenizer)
    given = batch.pop("token_type_ids")
    with pytest.raises(ValueError, match="token_type_ids are missing"):
        model(**batch)
    wrong = given.clone()
    wrong[1, 0] = 1
    with pytest.raises(ValueError, match="1 in row 1 at position 0, where a boundary or padding is"):
        model(**batch, token_type_ids=wrong)
    with pytest.raises(ValueError, match="in row 0 at position 2, where a word is: only words take 1"):
        model(**batch, token_type_ids=given * 2)
    wrong = given.clone()
    wrong[2] = 0
    with pytest.raises(ValueError, match="token_type_ids has no 1 in row 2"):
        model(**batch, token_type_ids=wrong)
    with pytest.raises(ValueError, match=r"token_type_ids has the shape \[4, 3\]"):
        model(**batch, token_type_ids=given[:, :3])
    with pytest.raises(ValueError, match="make it with tagging_indicator_size"):
        make(tagging_indicator_size=None)(**batch, token_type_ids=given)
    assert make(tagging_indicator_size=None)(**batch, token_type_ids=given * 0).logits.isfinite().all()
    nothing = encode(tokenizer, ["", "a word"])
    assert model(**nothing, labels=labels_of(nothing)).loss.isfinite()


def test_classifiers_do_not_take_it() -> None:
    with pytest.raises(ValueError, match="encoder_type is 'alternating'"):
        ElmoForSequenceClassification(ElmoConfig(**TINY, encoder_type="alternating"))
