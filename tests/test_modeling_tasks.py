"""What heads share: word vectors beside ELMo, ELMo off, stored layers in place of input_ids, lambda, errors."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from hf_elmo import (
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
)
from tests.conftest import SENTENCES, TINY, random_model

WORDS = ["the", "cat", "rain", "on"]
ROWS = len(WORDS) + 3
VECTORS = {"word_vectors_vocab_size": ROWS, "word_vectors_size": 6}
SECOND = ["A mat .", "the", "the dog ran far away", "no rain at all fell ."]
HEADS = {
    "pooled": (ElmoForSequenceClassification, {}),
    "layer norm": (ElmoForSequenceClassification, {"scalar_mix_layer_norm": True, "classifier_pooling": "max"}),
    "pairs": (ElmoForSequenceClassification, {"classifier_text_pairs": True}),
    "last": (ElmoForSequenceClassification, {"classifier_pooling": "last", "encoder_type": "bilstm"}),
    "esim": (
        ElmoForSequenceClassification,
        {"encoder_type": "esim", "elmo_at_output": True, "classifier_text_pairs": True},
    ),
    "tagger": (ElmoForTokenClassification, {}),
    "crf": (ElmoForTokenClassification, {"encoder_type": "bilstm", "tagging_crf": True, "elmo_at_output": True}),
}


def make(head: str, **changes: object) -> torch.nn.Module:
    model_class, settings = HEADS[head]
    size = {"encoder_hidden_size": 7} if "encoder_type" in settings else {}
    config = ElmoConfig(**{**TINY, "num_labels": 3, **size, **settings, **changes})
    return random_model(config, model_class)


@pytest.fixture
def tokenizer(tokenizer: ElmoTokenizer) -> ElmoTokenizer:
    tokenizer.words = WORDS
    return tokenizer


def encode(tokenizer: ElmoTokenizer, head: str, side: str = "right") -> dict[str, Tensor]:
    texts = (SENTENCES, SECOND) if "classifier_text_pairs" in HEADS[head][1] else (SENTENCES,)
    return dict(tokenizer(*texts, padding=True, padding_side=side, return_tensors="pt"))


def labels_for(model: torch.nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    if isinstance(model, ElmoForSequenceClassification):
        return torch.tensor([2, 0, 1, 1])
    words = inputs["word_vector_ids"] > 1
    return (torch.arange(words.numel()).view(words.shape) % 3).masked_fill(~words, -100)


# -- word vectors ------------------------------------------------------------------------------------------------------


def test_word_vectors_stand_beside_elmo(tokenizer: ElmoTokenizer) -> None:
    model = make("tagger", **VECTORS)
    inputs = encode(tokenizer, "tagger")
    elmo = model.elmo(inputs["input_ids"]).last_hidden_state
    vectors = torch.cat((model.word_vectors.weight[inputs["word_vector_ids"]], elmo), dim=2)
    expected = vectors @ model.classifier.weight.T + model.classifier.bias
    words = inputs["word_vector_ids"] > 1
    torch.testing.assert_close(model(**inputs).logits[words], expected[words])
    assert model.classifier.in_features == 6 + 22
    assert not model.word_vectors.weight[:2].any()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_elmo_can_be_switched_off(tokenizer: ElmoTokenizer, head: str, side: str) -> None:
    """The same head on word vectors alone: no biLM in it, padding on either side, with input_ids or without."""
    model = make(head, **VECTORS, use_elmo=False)
    assert not [name for name, _ in model.named_parameters() if "bilm" in name or "char" in name or "mix" in name]
    inputs = encode(tokenizer, head, side)
    found = model(**inputs).logits
    without = {key: value for key, value in inputs.items() if key != "input_ids"}
    assert torch.equal(model(**without).logits, found)
    alone = {key: value[3:] for key, value in inputs.items()}
    torch.testing.assert_close(model(**alone).logits[0], found[3])
    model.train()(**inputs, labels=labels_for(model, inputs)).loss.backward()
    assert model.word_vectors.weight.grad[3:].abs().sum() > 0


def test_boundaries_and_padding_have_no_vector(tokenizer: ElmoTokenizer) -> None:
    model = make("pooled", **VECTORS, classifier_pooling="max")
    inputs = encode(tokenizer, "pooled")
    expected = model(**inputs).logits
    with torch.no_grad():
        model.word_vectors.weight[:2] = 100.0
    ids = inputs["word_vector_ids"]
    assert not model.read_words(**inputs).vectors[ids == 1][:, :6].any()
    assert torch.equal(model(**inputs).logits, expected)


@pytest.mark.parametrize("frozen", [True, False])
def test_word_vectors_are_frozen_or_trained(tmp_path: Path, frozen: bool) -> None:
    model = make("pooled", **VECTORS, freeze_word_vectors=frozen)
    assert model.word_vectors.weight.requires_grad is not frozen
    model.save_pretrained(tmp_path)
    assert type(model).from_pretrained(tmp_path).word_vectors.weight.requires_grad is not frozen
    model.unfreeze_bilm()
    assert model.word_vectors.weight.requires_grad is not frozen


def test_pretrained_vectors(tokenizer: ElmoTokenizer) -> None:
    model, vectors = make("pooled", **VECTORS), np.random.default_rng(0).random((4, 6)).astype(np.float32)
    model.set_word_vectors(vectors)
    weight = model.word_vectors.weight.detach().numpy()
    np.testing.assert_array_equal(weight[3:], vectors)
    np.testing.assert_allclose(weight[2], vectors.mean(0), rtol=1e-6)
    with pytest.raises(ValueError, match=r"\[4, 5\], but the model has \[4, 6\]"):
        model.set_word_vectors(vectors[:, :5])
    with pytest.raises(ValueError, match="no word vectors: make it with word_vectors_vocab_size"):
        make("pooled").set_word_vectors(vectors)


@pytest.mark.parametrize("use_elmo", [True, False])
@pytest.mark.parametrize("head", ["pooled", "crf"])
def test_a_checkpoint_with_words(tmp_path: Path, tokenizer: ElmoTokenizer, head: str, use_elmo: bool) -> None:
    model, inputs = make(head, **VECTORS, use_elmo=use_elmo), encode(tokenizer, head)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    auto = AutoModelForTokenClassification if head == "crf" else AutoModelForSequenceClassification
    again = auto.from_pretrained(tmp_path)
    assert torch.equal(again.word_vectors.weight, model.word_vectors.weight)
    inputs = dict(ElmoTokenizer.from_pretrained(tmp_path)(SENTENCES, padding=True, return_tensors="pt"))
    torch.testing.assert_close(again(**inputs).logits, model(**inputs).logits)


def test_a_new_embedding_on_a_bilm(tmp_path: Path, caplog) -> None:
    """Row 0 and the boundaries' are zero, the others within Ma and Hovy's bound; without ELMo nothing is left over."""
    random_model(ElmoConfig(**TINY)).save_pretrained(tmp_path)
    for use_elmo in (True, False):
        caplog.clear()
        model = ElmoForSequenceClassification.from_pretrained(tmp_path, **VECTORS, use_elmo=use_elmo)
        weight = model.word_vectors.weight.detach()
        assert not weight[:2].any()
        assert 0.5 < weight[2:].abs().max() <= (3 / 6) ** 0.5
        assert "UNEXPECTED" not in caplog.text


def test_word_vectors_that_do_not_fit(tokenizer: ElmoTokenizer) -> None:
    model, inputs = make("pooled", **VECTORS), encode(tokenizer, "pooled")
    ids = inputs.pop("word_vector_ids")
    with pytest.raises(ValueError, match=r"word_vector_ids are missing.*tokenizer\.words"):
        model(**inputs)
    with pytest.raises(ValueError, match=r"word_vector_ids has the shape \[4, 2\]"):
        model(**inputs, word_vector_ids=ids[:, :2])
    with pytest.raises(ValueError, match=f"word_vector_ids holds {ROWS}, but word_vectors_vocab_size is {ROWS}"):
        model(**inputs, word_vector_ids=ids + (ids == 4) * 3)
    vectors = torch.ones(len(WORDS), 6)
    vectors[2, 1] = float("nan")
    with pytest.raises(ValueError, match=r"vectors\[2\] holds a number that is not finite"):
        model.set_word_vectors(vectors)


# -- stored layers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("words", [True, False], ids=["word vectors", "ELMo alone"])
def test_stored_layers_give_what_input_ids_give(tokenizer: ElmoTokenizer, head: str, side: str, words: bool) -> None:
    model, inputs = make(head, **(VECTORS if words else {})).double(), encode(tokenizer, head, side)
    if not words:
        ids = inputs.pop("word_vector_ids")
        if "classifier_text_pairs" in HEADS[head][1]:
            inputs["special_tokens_mask"] = (ids == 1).long()
    expected = model(**inputs).logits
    stored = {key: value for key, value in inputs.items() if key != "input_ids"}
    stored["bilm_layers"] = model.bilm_layers(inputs["input_ids"], inputs["attention_mask"]).detach()
    words_in = inputs["input_ids"].shape[1]
    assert stored["bilm_layers"].shape == (4, words_in, 3, 22)
    words_read = []
    model.elmo.bilm.register_forward_pre_hook(lambda _, arguments: words_read.append(arguments[0].shape[1]))
    torch.testing.assert_close(model(**stored).logits, expected)
    torch.testing.assert_close(model(**stored).logits, expected)
    assert words_read in ([], [1])  # <S> once, where special_tokens_mask says that rows begin with it


@pytest.mark.parametrize("head", HEADS)
def test_gradients_from_stored_layers(tokenizer: ElmoTokenizer, head: str) -> None:
    model = make(head, **VECTORS, encoder_dropout=0.0, classifier_dropout=0.0, scalar_mix_l2=0.1).double().train()
    inputs = encode(tokenizer, head)
    layers = model.bilm_layers(inputs["input_ids"], inputs["attention_mask"]).detach()
    stored = {"bilm_layers": layers, **{key: value for key, value in inputs.items() if key != "input_ids"}}
    gradients = []
    for given in (inputs, stored):
        model.zero_grad()
        model(**given, labels=labels_for(model, inputs)).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


def test_stored_layers_that_do_not_fit(tokenizer: ElmoTokenizer) -> None:
    model, inputs = make("pooled"), encode(tokenizer, "pooled")
    layers = model.bilm_layers(inputs["input_ids"], inputs["attention_mask"]).detach()
    with pytest.raises(ValueError, match="stand in place of input_ids"):
        model(input_ids=inputs["input_ids"], bilm_layers=layers)
    with pytest.raises(ValueError, match=r"\[4, 21, 2, 22\], but must be \[batch, words, 3, 22\]"):
        model(bilm_layers=layers[:, :, :2])
    with pytest.raises(ValueError, match=r"bilm_layers are torch.uint16, but must be floating point"):
        model(bilm_layers=layers.to(torch.bfloat16).view(torch.uint16))
    with pytest.raises(ValueError, match=r"attention_mask has the shape \[4, 3\]"):
        model(bilm_layers=layers, attention_mask=inputs["attention_mask"][:, :3])


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("given", ["special_tokens_mask", "word_vector_ids"])
def test_stored_texts_and_pairs_are_not_taken_for_each_other(tokenizer: ElmoTokenizer, head: str, given: str) -> None:
    model = make(head, **(VECTORS if given == "word_vector_ids" else {}))
    wanted = 2 if model.reads_text_pairs else 1
    for texts in ((SENTENCES,), (SENTENCES, SECOND)):
        encoded = tokenizer(*texts, padding=True, return_tensors="pt", return_special_tokens_mask=True)
        stored = {key: encoded[key] for key in ("attention_mask", given)}
        output = model.elmo(encoded["input_ids"], output_hidden_states=True)
        stored["bilm_layers"] = torch.stack(output.hidden_states, dim=2)
        if len(texts) == wanted:
            assert model(**stored).logits.isfinite().all()
        else:
            said = f"row 0 of the boundaries holds {len(texts)} texts, but this model reads {wanted}"
            with pytest.raises(ValueError, match=said):
                model(**stored)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_stored_layers_are_of_a_frozen_bilm(tokenizer: ElmoTokenizer, training: bool) -> None:
    model, inputs = make("pooled"), encode(tokenizer, "pooled")
    layers = model.bilm_layers(inputs["input_ids"], inputs["attention_mask"]).detach()
    model.unfreeze_bilm()
    with pytest.raises(ValueError, match=r"freeze_bilm is False: use input_ids, or freeze_bilm\(\)"):
        model.train(training)(bilm_layers=layers)
    model.freeze_bilm()
    assert model.train(training)(bilm_layers=layers).logits.shape == (4, 3)


def test_nothing_to_read() -> None:
    with pytest.raises(ValueError, match="give one of the two"):
        make("pooled")()
    with pytest.raises(ValueError, match="word_vector_ids are missing"):
        make("pooled", **VECTORS, use_elmo=False)()


# -- the mixes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["pooled", "esim"])
def test_lambda_is_on_the_weights_of_all_mixes_in_training(tokenizer: ElmoTokenizer, head: str) -> None:
    off = {"encoder_dropout": 0.0, "classifier_dropout": 0.0}
    model, plain = make(head, scalar_mix_l2=0.3, **off), make(head, **off)
    scalars = [value for name, value in model.named_parameters() if name.endswith("scalars")]
    assert len(scalars) == (2 if head == "esim" else 1)
    for number, value in enumerate(scalars):
        torch.nn.init.constant_(value, number + 1.0)
    plain.load_state_dict(model.state_dict())
    inputs = encode(tokenizer, head)
    given = {**inputs, "labels": labels_for(model, inputs)}
    torch.testing.assert_close(model(**given).loss, plain(**given).loss)
    penalty = 0.3 * sum(3 * (number + 1.0) ** 2 for number in range(len(scalars)))
    torch.testing.assert_close(model.train()(**given).loss, plain.train()(**given).loss + penalty)


@pytest.mark.parametrize("head", ["pooled", "crf"])
def test_a_loss_on_the_logits_alone_is_warned_of(tokenizer: ElmoTokenizer, caplog, head: str) -> None:
    transformers.utils.logging.warning_once.cache_clear()
    model, plain, inputs = make(head, scalar_mix_l2=0.1), make("pooled"), encode(tokenizer, head)
    model.eval()(**inputs)
    model.train()(**inputs, labels=labels_for(model, inputs))
    plain.train()(**inputs).logits.sum().backward()  # a loss of one's own, which leaves nothing out
    with torch.no_grad():
        model(**inputs)
    assert "labels" not in caplog.text
    model(**inputs)
    model(**inputs)
    assert caplog.text.count("a loss on its logits alone") == 1
    assert ("does not train the CRF (tagging_crf) and has no lambda (scalar_mix_l2)" in caplog.text) == (head == "crf")


@pytest.mark.parametrize("changes", [{}, {"scalar_mix_layer_norm": True}], ids=["plain", "layer norm"])
@pytest.mark.parametrize("head", HEADS)
def test_gradients_reach_the_layers_that_were_given_back(tokenizer: ElmoTokenizer, head: str, changes: dict) -> None:
    model, inputs = make(head, freeze_bilm=False, **changes), encode(tokenizer, head)
    output = model(**inputs, output_hidden_states=True)
    for layer in output.hidden_states:
        layer.retain_grad()
    output.logits.square().sum().backward()
    for layer in output.hidden_states:
        assert layer.grad.abs().sum() > 0
    torch.testing.assert_close(output.logits, model(**inputs).logits, atol=1e-6, rtol=1e-5)


def test_a_fixed_mix_at_the_output(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    make("last", elmo_at_output=True).save_pretrained(tmp_path)
    model = ElmoForSequenceClassification.from_pretrained(tmp_path, layer_weights=1)
    assert not [name for name, _ in model.named_parameters() if "mix" in name]
    read = model.read_words(**{key: encode(tokenizer, "last")[key] for key in ("input_ids", "attention_mask")})
    torch.testing.assert_close(read.elmo_at_output, read.vectors)


# -- fields without effect --------------------------------------------------------------------------------------------

OF_TAGGERS = {"tagging_crf": True, "tagging_scheme": "IOB2", "tagging_indicator_size": 4}
OF_ENCODERS = {"encoder_hidden_size": 7, "encoder_num_layers": 2, "encoder_dropout": 0.3}


@pytest.mark.parametrize(
    ("head", "field", "value"),
    [
        *(("last", field, value) for field, value in OF_TAGGERS.items()),
        *(("pooled", field, value) for field, value in OF_ENCODERS.items()),
        *(("tagger", field, value) for field, value in OF_ENCODERS.items()),
        *((head, "num_scalar_mixes", 2) for head in ("pooled", "tagger")),
        *((head, "allow_no_answer", True) for head in ("pooled", "tagger")),
        ("tagger", "classifier_hidden_size", 9),
        ("tagger", "classifier_pooling", "max"),
    ],
)
def test_a_field_without_effect_is_refused(head: str, field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"ElmoConfig: {field} is {value!r}, but .*the default"):
        make(head, **{field: value})


OF_CLASSIFIERS = {"classifier_pooling": "max", "classifier_hidden_size": 9}
OF_ANSWERS = {"allow_no_answer": True}
OF_RESOLVERS = {
    "coreference_max_width": 3,
    "coreference_spans_per_word": 0.9,
    "coreference_max_antecedents": 3,
    "coreference_refinements": 0,
    "coreference_hidden_size": 11,
    "coreference_feature_size": 3,
    "coreference_speakers": True,
    "coreference_num_genres": 2,
}


@pytest.mark.parametrize(
    ("model_class", "others"),
    [
        (ElmoForSequenceClassification, {**OF_TAGGERS, **OF_ANSWERS, **OF_RESOLVERS}),
        (ElmoForTokenClassification, {**OF_CLASSIFIERS, **OF_ANSWERS, **OF_RESOLVERS}),
        (ElmoForQuestionAnswering, {**OF_CLASSIFIERS, **OF_TAGGERS, **OF_RESOLVERS}),
        (ElmoForCoreferenceResolution, {**OF_CLASSIFIERS, **OF_TAGGERS, **OF_ANSWERS}),
    ],
)
def test_the_fields_of_other_heads_are_refused(model_class: type, others: dict[str, object]) -> None:
    for field, value in {**others, "word_vectors_size": 9}.items():
        with pytest.raises(ValueError, match=f"ElmoConfig: {field} is {value!r}, but .*the default"):
            model_class(ElmoConfig(**TINY, **{field: value}))


@pytest.mark.parametrize("head", HEADS)
def test_without_elmo_the_fields_of_its_mixes_may_stay(head: str) -> None:
    fields = {"scalar_mix_l2": 0.1, "scalar_mix_layer_norm": True, "freeze_bilm": False, "encoder_dropout": 0.0}
    for use_elmo in (True, False):
        assert make(head, **VECTORS, **fields, use_elmo=use_elmo).config.scalar_mix_l2 == 0.1


# -- ELMo as a layer of another network, and mixes of another number ---------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mixes", [1, 2])
def test_vectors_without_boundaries(tokenizer: ElmoTokenizer, side: str, mixes: int) -> None:
    model = random_model(ElmoConfig(**TINY, num_scalar_mixes=mixes))
    torch.nn.init.normal_(model.scalar_mix.scalars)
    texts = [*SENTENCES, ""]
    inputs = tokenizer(texts, padding=True, padding_side=side, return_tensors="pt")
    found, mask = model.word_representations(**inputs)
    lengths = [len(words) for words in tokenizer.split_into_words(texts)]
    assert len(found) == mixes
    assert mask.sum(1).tolist() == lengths
    assert found[0].shape == (5, max(lengths), 22)
    for row, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        output = model(**tokenizer(text, return_tensors="pt"))
        for mix, expected in zip(found, output.scalar_mixes or [output.last_hidden_state], strict=True):
            torch.testing.assert_close(mix[row, :length], expected[0, 1:-1])
            assert not mix[row, length:].any()


def test_a_layer_of_another_network_learns(tokenizer: ElmoTokenizer) -> None:
    class Own(torch.nn.Module):
        def __init__(self, elmo: ElmoModel) -> None:
            super().__init__()
            self.elmo, self.output = elmo, torch.nn.Linear(44, 2)

        def forward(self, **inputs: Tensor) -> Tensor:
            (first, second), mask = self.elmo.word_representations(**inputs)
            return self.output(torch.cat((first, second), dim=2))[mask]

    own = Own(random_model(ElmoConfig(**TINY, num_scalar_mixes=2))).train()
    own(**tokenizer(SENTENCES, padding=True, return_tensors="pt")).square().sum().backward()
    with_gradient = {name for name, parameter in own.named_parameters() if parameter.grad is not None}
    assert with_gradient == {"elmo.scalar_mix.scalars", "elmo.scalar_mix.gamma", "output.weight", "output.bias"}
    own.elmo.unfreeze_bilm()
    own(**tokenizer(SENTENCES, padding=True, return_tensors="pt")).square().sum().backward()
    assert all(parameter.grad is not None for parameter in own.parameters())


def test_mixes_of_another_number_than_the_checkpoints_are_new(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    model, inputs = random_model(ElmoConfig(**TINY)), tokenizer(SENTENCES, padding=True, return_tensors="pt")
    torch.nn.init.normal_(model.scalar_mix.scalars)
    model.save_pretrained(tmp_path)
    two, report = ElmoModel.from_pretrained(tmp_path, num_scalar_mixes=2, output_loading_info=True)
    assert torch.equal(two.scalar_mix.scalars, torch.zeros(2, 3))
    assert torch.equal(two.scalar_mix.gamma, torch.ones(2))
    assert {place[0] for place in report["mismatched_keys"]} == {"scalar_mix.scalars", "scalar_mix.gamma"}
    layers = [model(**inputs, output_hidden_states=True).hidden_states for model in (model, two)]
    torch.testing.assert_close(*layers)
    with pytest.raises(RuntimeError, match=r"char_encoder.projection.bias \[11\], not \[10\]"):
        ElmoModel.from_pretrained(tmp_path, hidden_size=20)
    other = ElmoModel.from_pretrained(tmp_path, hidden_size=20, ignore_mismatched_sizes=True)
    assert other.config.hidden_size == 20


# -- the file format ---------------------------------------------------------------------------------------------------

WEIGHTS = ("weight", "bias")
LSTM = [f"{name}_l0{way}" for way in ("", "_reverse") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
BILSTM = {f"encoder.bilstm.lstm.{name}" for name in LSTM}
CLASSIFIER = {"classifier.weight", "classifier.bias"}
MIX = {"output_mix.scalars", "output_mix.gamma"}
KEYS = {
    "pooled": set(),
    "last": BILSTM,
    "esim": {
        *BILSTM,
        *MIX,
        *(f"interaction.composition.lstm.{name}" for name in LSTM),
        "interaction.projection.weight",
        "interaction.projection.bias",
    },
    "crf": {*BILSTM, *MIX, "crf.transitions", "crf.start", "crf.end"},
}


@pytest.mark.parametrize("head", KEYS)
def test_the_names_of_parameters(head: str) -> None:
    keys = set(make(head, **VECTORS).state_dict())
    assert {key for key in keys if not key.startswith("elmo.")} == KEYS[head] | CLASSIFIER | {"word_vectors.weight"}
    assert set(make(head, **VECTORS, use_elmo=False).state_dict()) == (
        KEYS[head] - MIX | CLASSIFIER | {"word_vectors.weight"}
    )


def test_the_names_of_the_biattentive_networks_parameters() -> None:
    config = ElmoConfig(**TINY, encoder_type="biattentive", encoder_hidden_size=7)
    keys = set(ElmoForSequenceClassification(config).state_dict())
    pairs = [f"{layer}.{name}" for layer in ("encoder.feedforward", "interaction.attention.score") for name in WEIGHTS]
    pairs += [f"maxouts.{number}.linear.{name}" for number in (0, 1) for name in WEIGHTS]
    integrator = {f"interaction.integrator.lstm.{name}" for name in LSTM}
    assert {key for key in keys if not key.startswith("elmo.")} == BILSTM | CLASSIFIER | integrator | set(pairs)


# -- types -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("how", ["autocast", "bfloat16", "float16"])
def test_half_precision(tokenizer: ElmoTokenizer, head: str, how: str) -> None:
    """Logits differ by the rounding of the layers; losses and gradients are finite."""
    model, inputs = make(head, **VECTORS), encode(tokenizer, head)
    expected, labels = model(**inputs).logits.detach(), labels_for(model, inputs)
    model = model if how == "autocast" else model.to(getattr(torch, how))
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        output = model(**inputs, labels=labels)
    # Sixteen roundings (CNN, highways, projections, gates and outputs of two layers, the head) of 2**-8, or 2**-11.
    error = (output.logits.float() - expected).norm() / expected.norm()
    assert 0 < error < 16 * (2**-11 if how == "float16" else 2**-8)
    if how != "float16":
        output.loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_special_tokens_mask_says_which_vectors_of_words_are_left_out(tokenizer: ElmoTokenizer) -> None:
    model = random_model(ElmoConfig(**TINY))
    inputs = tokenizer(["a b c", "d"], padding=True, return_tensors="pt")
    special = torch.tensor([[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]])
    (found,), mask = model.word_representations(**inputs, special_tokens_mask=special)
    hidden = model(**inputs).last_hidden_state
    assert mask.tolist() == [[True, True, True], [True, False, False]]
    torch.testing.assert_close(found[0], hidden[0, [0, 2, 3]])
    torch.testing.assert_close(found[1, 0], hidden[1, 1])
