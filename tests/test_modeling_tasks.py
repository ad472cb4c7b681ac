"""What all heads have in common: inputs, word vectors, stored layers, batches, losses, checkpoints, dtypes."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn

import hf_elmo
from hf_elmo import ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
from hf_elmo.modeling_heads_elmo import ElmoInputs
from tests import heads
from tests.factories import SENTENCES, small_config, small_model
from tests.heads import HEADS, NETWORKS, NO_DROPOUT, VECTORS, batch_of, gradients_of, make, tensors_of, without_labels

EACH_BY_ITSELF = [*NETWORKS, "language models"]
with_word_vectors = pytest.mark.parametrize(("head", "words"), [*((head, True) for head in NETWORKS), ("crf", False)])
WRONG_LABELS = [
    ("tagger", (slice(None), 0), {"labels": 1}),  # at <S>
    ("resolver", (0, -1), {"labels": [2, 15, 0]}),  # outside of the document
    ("resolver", (0, -1), {"labels": [4, 3, 1]}),  # reversed
    ("resolver", (0, -1), {"labels": [5, 6, 1]}),  # in two sentences
    ("answers", 0, {"start_positions": 2, "end_positions": 7}),  # in the question
    ("answers", 0, {"start_positions": 7, "end_positions": 12}),  # at </S>
    ("answers", 1, {"start_positions": 5, "end_positions": 5}),  # after the passage
    ("answers", 2, {"start_positions": 0, "end_positions": 0}),  # no answer
]
# The first field is named.
CONTRADICTIONS = [("pooled", {"use_elmo": False}), ("tagger", {"encoder_type": "esim"})]
CONTRADICTIONS += [("pooled", {"encoder_type": encoder}) for encoder in ("esim", "decomposable", "alternating")]
CONTRADICTIONS += [("pooled", {"classifier_pooling": "last", **VECTORS}), ("tagger", heads.TWICE)]
CONTRADICTIONS += [("bidaf", {"allow_no_answer": True})]
DROPOUTS = {"hidden_dropout": ["no head", "language models", "pooled"]}
DROPOUTS |= {"classifier_dropout": ["pooled", "answers", "resolver 2018"]}
DROPOUTS |= {"encoder_dropout": ["last", "biattentive", "answers"], "encoder_recurrent_dropout": ["roles", "highway"]}


@pytest.mark.parametrize(("head", "changes"), CONTRADICTIONS, ids=str)
def test_fields_that_a_head_cannot_have(head: str, changes: dict) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(changes))} is "):
        make(head, **changes)


@pytest.mark.parametrize("head", NETWORKS)
def test_the_signature_shows_all_arguments(tokenizer, head: str) -> None:
    """Trainer drops the columns of a data set that are not in it."""
    model, batch = make(head), batch_of(tokenizer, head)
    names = list(inspect.signature(model.forward).parameters)
    assert names[:3] == ["input_ids", "attention_mask", "inputs_embeds"]
    assert {"bilm_layers", "length", "num_items_in_batch", *batch} <= set(names)
    others = {name: value for name, value in batch.items() if name not in ("input_ids", "attention_mask")}
    output = model(batch["input_ids"], batch["attention_mask"], **others, head_mask=None, output_attentions=False)
    torch.testing.assert_close(output, model(**batch))
    with pytest.raises(TypeError, match="output_hiden_states"):
        model(**batch, output_hiden_states=True)


@with_word_vectors
def test_replicas_of_data_parallel(tokenizer, head: str, words: bool) -> None:
    """The modules of a replica have tensors in place of parameters: they have no parameters, no dtype, no device."""
    model, batch = make(head, **(VECTORS if words else {})), batch_of(tokenizer, head, words=words)
    replicas = {module: module._replicate_for_data_parallel() for module in model.modules()}
    for module, replica in replicas.items():
        for name, child in module.named_children():
            setattr(replica, name, replicas[child])
        for name, parameter in module._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.view_as(parameter))
    layers = heads.stored(model, batch)
    embeds = {name: value for name, value in layers.items() if name != "bilm_layers"}
    embeds["inputs_embeds"] = model.elmo.char_encoder(batch["input_ids"]).detach()
    for inputs in (batch, layers, embeds):
        torch.testing.assert_close(replicas[model](**inputs), model(**inputs))


@pytest.mark.parametrize("head", EACH_BY_ITSELF)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_alone_or_in_a_batch(tokenizer, head: str, side: str) -> None:
    model = make(head).double()
    batch = batch_of(tokenizer, head, side)
    together = tensors_of(model(**without_labels(batch)))
    for row, mask in enumerate(batch["attention_mask"].bool()):
        single = batch_of(tokenizer, head, side, slice(row, row + 1))
        for name, alone in tensors_of(model(**without_labels(single))).items():
            found = together[name][row]
            if head in ("crf", "roles", "highway", "language models"):  # it is for each position
                found = found[mask]
            found = found[tuple(slice(size) for size in alone.shape[1:])]
            torch.testing.assert_close(found, alone[0], msg=name)


@pytest.mark.parametrize("head", EACH_BY_ITSELF)
def test_parts_of_a_batch_add_up_to_the_whole(tokenizer, head: str) -> None:
    model = make(head, **NO_DROPOUT, scalar_mix_l2=0.1)
    part = model.head if head in HEADS else model.lm_head
    mixes = [value for name, value in part.named_parameters() if "scalars" in name]
    for index, scalars in enumerate(mixes):
        torch.nn.init.constant_(scalars, index + 1.0)
    whole = batch_of(tokenizer, head)
    without_penalty = model(**whole).loss
    items = (next(iter(heads.labels_of(whole).values())) != -100).sum()  # as Trainer counts
    parts = [{name: value[rows] for name, value in whole.items()} for rows in (slice(0, 1), slice(1, 4))]
    model.train()
    losses = [model(**part, num_items_in_batch=items).loss for part in parts]
    torch.testing.assert_close(sum(losses), model(**whole).loss)
    penalty = 0.1 * sum(3 * (index + 1.0) ** 2 for index in range(len(mixes)))
    torch.testing.assert_close(sum(losses) - without_penalty, torch.tensor(penalty), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", [*NETWORKS, "language models"])
@pytest.mark.parametrize("count", [{}, {"num_items_in_batch": torch.tensor(0)}], ids=["alone", "as Trainer counts"])
def test_steps_without_any_label_have_a_finite_loss(tokenizer, head: str, count: dict) -> None:
    """0 / 0 would turn all weights into NaN."""
    model, batch = make(head, scalar_mix_l2=0.1).train(), batch_of(tokenizer, head)
    nothing = {name: torch.full_like(labels, -100) for name, labels in heads.labels_of(batch).items()}
    batch |= {**nothing, **count}
    assert model(**batch).loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients_of(model, batch).values())


def two_texts(tokenizer: ElmoTokenizer, head: str, texts: list[str]) -> dict[str, torch.Tensor]:
    """What a head reads, with labels, of two texts or pairs; a document has one sentence."""
    names, (model_class, fields) = batch_of(tokenizer, head).keys(), HEADS[head]
    is_pair = model_class is heads.READER or "classifier_text_pairs" in fields
    inputs = dict(tokenizer(texts, *[texts[::-1]] * is_pair, padding=True, return_tensors="pt"))
    zeros, places = torch.zeros_like(inputs["attention_mask"]), heads.word_positions(inputs)
    labels = {heads.TAGGER: zeros.masked_fill(~places, -100), heads.RESOLVER: zeros.new_zeros(2, 0, 3)}
    inputs |= {"labels": labels.get(model_class, zeros[:, 0]), "token_type_ids": zeros, "speaker_ids": zeros}
    inputs |= {"genre_ids": zeros[:, 0]} | dict.fromkeys(("start_positions", "end_positions"), zeros[:, 0] - 100)
    return {name: inputs[name] for name in names}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("texts", [["", "a word"], ["", ""], ["a", "word"]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["padded", "packed"])
def test_texts_without_words_or_with_one(tokenizer, head: str, texts: list[str], dtype) -> None:
    """Each parameter that is trained gets a gradient, on which DistributedDataParallel waits."""
    model, inputs = make(head, freeze_bilm=False).to(dtype), two_texts(tokenizer, head, texts)
    assert all(value.isfinite().all() for value in tensors_of(model(**inputs)).values())
    gradients = gradients_of(model.train(), inputs)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {name for name, gradient in gradients.items() if gradient.isfinite().all()}


@with_word_vectors
def test_stored_layers_give_what_input_ids_give(tokenizer, head: str, words: bool) -> None:
    model = make(head, **(VECTORS if words else {}), **NO_DROPOUT, scalar_mix_l2=0.1).double()
    batch = batch_of(tokenizer, head, "left" if words else "right", words=words)
    layers = heads.stored(model, batch)
    assert layers["bilm_layers"].shape == (*batch["attention_mask"].shape, 3, 22)
    torch.testing.assert_close(model(**layers), model(**batch))
    torch.testing.assert_close(*(gradients_of(model.train(), given) for given in (layers, batch)))


def test_stored_layers_are_floats_of_a_frozen_bilm_with_a_mask_of_their_shape(tokenizer) -> None:
    model = make("pooled")
    layers = heads.stored(model, batch_of(tokenizer, "pooled"))["bilm_layers"]
    with pytest.raises(ValueError, match="bilm_layers"):  # the bits of bfloat16, which are not numbers
        model(bilm_layers=layers.to(torch.bfloat16).view(torch.uint16))
    with pytest.raises(RuntimeError, match="shape"):
        model(bilm_layers=layers, attention_mask=torch.ones(len(layers), layers.shape[1] - 1))
    model.freeze_bilm(False)
    with pytest.raises(ValueError, match="freeze_bilm"):
        model(bilm_layers=layers)


@pytest.mark.parametrize("head", ["pooled", "pairs", "esim", "tagger", "crf", "answers"])
@pytest.mark.parametrize("given", ["input_ids", "special_tokens_mask", "word_vector_ids"])
def test_texts_and_pairs_are_not_mistaken_for_each_other(tokenizer, head: str, given: str) -> None:
    model = make(head, **(VECTORS if given == "word_vector_ids" else {}))
    tokenizer.words = heads.WORDS
    for texts in ((SENTENCES,), (SENTENCES, heads.SECOND)):
        encoded = tokenizer(*texts, padding=True, return_tensors="pt", return_special_tokens_mask=True)
        inputs = {name: encoded[name] for name in ("attention_mask", given)}
        if given != "input_ids":
            inputs["bilm_layers"] = torch.stack(model.elmo(encoded["input_ids"], output_hidden_states=True)[2], dim=2)
        if len(texts) == (2 if model.reads_text_pairs else 1):
            model(**inputs)
        else:
            with pytest.raises(ValueError, match="classifier_text_pairs"):
                model(**inputs)


@pytest.mark.parametrize(("head", "place", "labels"), WRONG_LABELS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_labels_that_are_not_of_words(tokenizer, head: str, place: tuple, labels: dict, side: str) -> None:
    batch = batch_of(tokenizer, head, side)
    for name, value in labels.items():
        batch[name] = batch[name].clone()
        batch[name][place] = torch.tensor(value)
    with pytest.raises(ValueError, match=next(iter(labels))):
        make(head)(**batch)


@pytest.mark.parametrize("head", NETWORKS)
def test_elmo_can_be_switched_off(tokenizer, head: str) -> None:
    model, batch = make(head, **VECTORS, use_elmo=False, **NO_DROPOUT), batch_of(tokenizer, head, "left", words=True)
    assert not [name for name, _ in model.named_parameters() if "bilm" in name or "char_" in name or "mix" in name]
    others = {name: value for name, value in batch.items() if name != "input_ids"}
    torch.testing.assert_close(tensors_of(model(**others)), tensors_of(model(**batch)))
    model.train()(**others).loss.backward()
    assert model.head.word_vectors.weight.grad[3:].abs().sum() > 0


def test_pretrained_word_vectors(tmp_path) -> None:
    model, vectors = make("pooled", **VECTORS), torch.rand(4, 6)
    model.set_word_vectors(vectors.numpy())
    assert torch.equal(model.classifier.word_vectors.weight[3:], vectors)
    torch.testing.assert_close(model.classifier.word_vectors.weight[2], vectors.mean(0))
    model.save_pretrained(tmp_path)
    for frozen in (True, False):
        loaded = ElmoForSequenceClassification.from_pretrained(tmp_path, freeze_word_vectors=frozen)
        assert loaded.classifier.word_vectors.weight.requires_grad is not frozen
        loaded.freeze_bilm(False)
        assert loaded.classifier.word_vectors.weight.requires_grad is not frozen


def test_new_word_vectors_on_a_bilm(tmp_path, caplog) -> None:
    small_model().save_pretrained(tmp_path)
    for use_elmo in (True, False):
        model = ElmoForSequenceClassification.from_pretrained(tmp_path, **VECTORS, use_elmo=use_elmo)
        weight = model.classifier.word_vectors.weight.detach()
        assert not weight[:2].any()
        assert 0.5 < weight[2:].abs().max() <= (3 / 6) ** 0.5
        assert "UNEXPECTED" not in caplog.text


def test_modules_of_a_users_head_begin_as_in_pytorch(tmp_path) -> None:
    class Own(ElmoForSequenceClassification):
        def __init__(self, config: hf_elmo.ElmoConfig) -> None:
            super().__init__(config)
            self.classifier.gru = nn.GRU(3, 400)
            self.classifier.norm = nn.LayerNorm(5)
            self.classifier.own_embedding = nn.Embedding(400, 3)
            self.post_init()

    small_model().save_pretrained(tmp_path)
    for head in (Own.from_pretrained(tmp_path).classifier, Own(small_config()).classifier):
        assert head.gru.weight_hh_l0.std().item() == pytest.approx((1 / 400 / 3) ** 0.5, rel=0.05)  # uniform
        assert head.own_embedding.weight.std().item() == pytest.approx(1, rel=0.1)
        assert head.norm.weight.eq(1).all()


def test_fixed_mixes_over_a_checkpoint_with_learned_ones(tmp_path, inputs) -> None:
    make("last").save_pretrained(tmp_path)
    how = {"layer_weights": 1, "output_loading_info": True}
    model, report = ElmoForSequenceClassification.from_pretrained(tmp_path, **how)
    assert not any(report.values())
    read = model.read_words(ElmoInputs(**inputs, output_hidden_states=True))
    ((vectors, _, output_mix),) = model.classifier.embed(read)
    torch.testing.assert_close(vectors, read.texts[0].align(read.hidden_states[1]))
    torch.testing.assert_close(output_mix, vectors)


@pytest.mark.parametrize("head", ["no head", *EACH_BY_ITSELF])
@pytest.mark.parametrize("how", ["autocast", "bfloat16", "float16"])
def test_half_precision(tokenizer, head: str, how: str) -> None:
    """Scores differ by the rounding of the layers; the loss is computed in float32; the same weights have gradients."""
    model, batch = make(head, **VECTORS, **NO_DROPOUT), batch_of(tokenizer, head, words=True)
    name, expected = next(iter(tensors_of(model(**batch)).items()))
    trained = gradients_of(model, batch).keys()
    model.zero_grad()
    model = model if how == "autocast" else model.to(getattr(torch, how))
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        output = model(**batch)
    loss = output.last_hidden_state.float().sum() if head == "no head" else output.loss
    assert loss.isfinite()
    assert loss.dtype == torch.float32
    if not isinstance(model, heads.RESOLVER):  # it may keep other spans
        here = expected > -1e30
        # Roundings (CNN, highways, projections, gates and outputs of two layers, the head) of 2**-8 or 2**-11.
        error = (output[name].float() - expected)[here].norm() / expected[here].norm()
        assert 0 < error < 24 * (2**-11 if how == "float16" else 2**-8)
    if how != "float16":
        loss.backward()
        grads = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
        assert grads.keys() == trained
        assert all(grad.isfinite().all() for grad in grads.values())


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mixes", [1, 2])
def test_representations_of_words_without_boundaries(tokenizer, side: str, mixes: int) -> None:
    model = small_model(num_scalar_mixes=mixes)
    torch.nn.init.normal_(model.scalar_mix.scalars)
    texts = [*SENTENCES, ""]
    found, mask = model.word_representations(**tokenizer(texts, padding=True, padding_side=side, return_tensors="pt"))
    lengths = [len(words) for words in tokenizer.split_into_words(texts)]
    assert (len(found), mask.sum(1).tolist()) == (mixes, lengths)
    for row, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        output = model(**tokenizer(text, return_tensors="pt"))
        for mix, expected in zip(found, output.scalar_mixes or [output.last_hidden_state], strict=True):
            torch.testing.assert_close(mix[row, :length], expected[0, 1:-1])
            assert not mix[row, length:].any()


def test_more_mixes_than_the_checkpoint_has_are_new(tmp_path, inputs) -> None:
    model = small_model()
    torch.nn.init.normal_(model.scalar_mix.scalars)
    model.save_pretrained(tmp_path)
    two, report = ElmoModel.from_pretrained(tmp_path, num_scalar_mixes=2, output_loading_info=True)
    assert torch.equal(two.scalar_mix.scalars, model.scalar_mix.scalars)
    assert torch.equal(two.further_mixes[0].scalars, torch.zeros(3))
    assert torch.equal(two.further_mixes[0].gamma, torch.ones(1))
    assert report["missing_keys"] == {"further_mixes.0.scalars", "further_mixes.0.gamma"}
    two.save_pretrained(tmp_path / "two")
    _, report = ElmoModel.from_pretrained(tmp_path / "two", num_scalar_mixes=1, output_loading_info=True)
    assert not report["missing_keys"] | report["unexpected_keys"]
    torch.testing.assert_close(*(each(**inputs, output_hidden_states=True).hidden_states for each in (model, two)))


@pytest.mark.parametrize(("name", "field"), [(name, field) for field in DROPOUTS for name in DROPOUTS[field]])
def test_dropout_acts_in_training_only(tokenizer, name: str, field: str) -> None:
    batch = batch_of(tokenizer, name)
    off = dict.fromkeys([*NO_DROPOUT, "hidden_dropout", "encoder_recurrent_dropout"], 0.0)
    expected = make(name, **off, freeze_bilm=False).train()(**batch, output_hidden_states=True)
    model = make(name, **{**off, field: 0.5}, freeze_bilm=False)
    torch.testing.assert_close(tensors_of(model(**batch)), tensors_of(model(**batch)), atol=0, rtol=0)
    torch.testing.assert_close(model(**batch, output_hidden_states=True)[0], expected[0], atol=1e-5, rtol=1e-5)
    assert not torch.equal(model.train()(**batch, output_hidden_states=True)[0], expected[0])
    if (name, field) == ("pooled", "hidden_dropout"):  # nor in training, where the biLM is frozen
        model.freeze_bilm()
        losses = [model(**batch).loss, model.train()(**batch).loss, model.eval()(**batch).loss]
        assert losses[0] == losses[1] == losses[2]


def test_the_first_weights_of_heads(tmp_path) -> None:
    small_model().save_pretrained(tmp_path)
    names = ("last", "roles", "answers", "resolver 2018")
    new = {name: HEADS[name][0].from_pretrained(tmp_path, **HEADS[name][1]) for name in names}
    lstm, layer = new["last"].classifier.encoder.bilstm.lstm, new["roles"].classifier.encoder.bilstm.layers[1]
    for ending in ("_l0", "_l0_reverse"):  # 1 for the forget gate
        bias = getattr(lstm, f"bias_ih{ending}") + getattr(lstm, f"bias_hh{ending}")
        assert bias.tolist() == [0.0] * 7 + [1.0] * 7 + [0.0] * 14
    for weight in (*layer.weight_ih.split(7), *layer.weight_hh.split(7)):  # orthonormal, gate by gate
        torch.testing.assert_close(weight @ weight.T, torch.eye(7))
    assert layer.bias.view(6, 7).sum(1).tolist() == [0, 7, 0, 0, 0, 0]
    for parameter in new["answers"].qa_outputs.flow.similarity.parameters():
        assert 0 < parameter.abs().max() <= (6 / (3 * len(parameter) + 1)) ** 0.5
    resolver = new["resolver 2018"].classifier
    for feature in (resolver.span_vectors.width, resolver.pair_scorer.distance, resolver.pair_scorer.genre):  # Glorot's
        bound = np.sqrt(6 / sum(feature.weight.shape))
        assert 0.5 * bound < feature.weight.abs().max() <= bound
