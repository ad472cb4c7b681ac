"""What every model of transformers must do (its common model tests), for every class of this package."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import prune
from torch.utils._pytree import tree_map
from transformers import BatchEncoding, PreTrainedModel

from hf_elmo import (
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    kernels,
    modeling_elmo,
)
from hf_elmo.remote_code import FILES
from tests.conftest import SENTENCES, TINY, random_model

LABELS, WORDS = 3, 31
CLASSES = [ElmoModel, ElmoForSequenceClassification, ElmoForPreTraining]
every_class = pytest.mark.parametrize("model_class", CLASSES, ids=lambda model_class: model_class.__name__)

ENCODER_KEYS = [
    "char_encoder.embedding.weight",
    "char_encoder.convolutions.0.weight",
    "char_encoder.convolutions.0.bias",
    "char_encoder.convolutions.1.weight",
    "char_encoder.convolutions.1.bias",
    "char_encoder.convolutions.2.weight",
    "char_encoder.convolutions.2.bias",
    "char_encoder.highways.0.carry.weight",
    "char_encoder.highways.0.carry.bias",
    "char_encoder.highways.0.transform.weight",
    "char_encoder.highways.0.transform.bias",
    "char_encoder.highways.1.carry.weight",
    "char_encoder.highways.1.carry.bias",
    "char_encoder.highways.1.transform.weight",
    "char_encoder.highways.1.transform.bias",
    "char_encoder.projection.weight",
    "char_encoder.projection.bias",
]
BILM_KEYS = [
    "bilm.forward_layers.0.weight_ih",
    "bilm.forward_layers.0.weight_hh",
    "bilm.forward_layers.0.bias",
    "bilm.forward_layers.0.weight_hr",
    "bilm.forward_layers.1.weight_ih",
    "bilm.forward_layers.1.weight_hh",
    "bilm.forward_layers.1.bias",
    "bilm.forward_layers.1.weight_hr",
    "bilm.backward_layers.0.weight_ih",
    "bilm.backward_layers.0.weight_hh",
    "bilm.backward_layers.0.bias",
    "bilm.backward_layers.0.weight_hr",
    "bilm.backward_layers.1.weight_ih",
    "bilm.backward_layers.1.weight_hh",
    "bilm.backward_layers.1.bias",
    "bilm.backward_layers.1.weight_hr",
]
MODEL_KEYS = [*ENCODER_KEYS, *BILM_KEYS, "scalar_mix.scalars", "scalar_mix.gamma"]
HEAD_KEYS = {
    ElmoModel: [],
    ElmoForSequenceClassification: ["classifier.weight", "classifier.bias"],
    ElmoForPreTraining: ["lm_head.weight", "lm_head.bias"],
}


def config_of(**changes: object) -> ElmoConfig:
    return ElmoConfig(**{**TINY, "num_labels": LABELS, "vocab_size": WORDS, **changes})


def model_of(model_class: type, seed: int = 0, **changes: object) -> PreTrainedModel:
    return random_model(config_of(**changes), model_class, seed)


def base_of(model: PreTrainedModel) -> ElmoModel:
    return getattr(model, "elmo", model)


def keys_of(model_class: type) -> list[str]:
    prefix = "" if model_class is ElmoModel else "elmo."
    return [prefix + key for key in MODEL_KEYS] + HEAD_KEYS[model_class]


def tensors_in(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    values = value.values() if hasattr(value, "values") else value or ()
    return [tensor for part in values for tensor in tensors_in(part)]


def run(model: PreTrainedModel, inputs: dict, **options: object) -> list[Tensor]:
    """Every tensor of a model's output, layers included."""
    with torch.no_grad():
        return tensors_in(model(**inputs, output_hidden_states=True, **options))


def assert_bit_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected) > 0
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def assert_equal_but_for_rounding(found: list[Tensor], expected: list[Tensor]) -> None:
    """Weights in other memory: MKL's products of float32 depend on its alignment.

    A value of these models is a sum of at most 40 products, of a size below 4, through two layers of 21 steps whose
    gates and clips let no error grow: 40 * 4 * 2**-24 = 1e-5.
    """
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def assert_as_if_drawn_again(name: str, found: Tensor, new: Tensor) -> None:
    """Constants are equal, random numbers have about the same spread and the same bounds."""
    assert found.shape == new.shape
    if new.unique().numel() <= 2:
        assert torch.equal(found, new), name
    else:
        assert 0.5 < found.std() / new.std() < 2, name
        assert found.abs().max() < 2 * new.abs().max(), name


def labels_for(model_class: type, inputs: dict) -> dict[str, Tensor]:
    batch, words = inputs["attention_mask"].shape
    if model_class is ElmoForSequenceClassification:
        return {"labels": torch.arange(batch) % LABELS}
    if model_class is ElmoForPreTraining:
        return {"labels": torch.arange(batch * words * 2).view(batch, words, 2) % WORDS}
    return {}


def loss_of(model: PreTrainedModel, inputs: dict) -> Tensor:
    """The model's own loss, or for the model without a head a number that every output takes part in."""
    output = model(**inputs, **labels_for(type(model), inputs))
    if not isinstance(model, ElmoModel):
        return output.loss
    return output.last_hidden_state.square().sum() + output.pooler_output.sum()


def gradients_of(model: PreTrainedModel, inputs: dict, seed: int = 0) -> dict[str, Tensor]:
    model.zero_grad()
    torch.manual_seed(seed)
    loss_of(model, inputs).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture
def inputs(tokenizer: ElmoTokenizer) -> BatchEncoding:
    return tokenizer(SENTENCES, padding=True, return_tensors="pt")


# -- the file format ---------------------------------------------------------------------------------------------------


@every_class
def test_the_keys_of_a_checkpoint(tmp_path: Path, model_class: type) -> None:
    model = model_of(model_class)
    model.save_pretrained(tmp_path)
    assert sorted(model.state_dict()) == sorted(keys_of(model_class))
    assert sorted(load_file(tmp_path / "model.safetensors")) == sorted(keys_of(model_class))
    code = FILES[model_class.__name__]  # tests/test_remote_code.py runs it
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", *code}


def test_the_shapes_of_a_checkpoint() -> None:
    shapes = {key: list(value.shape) for key, value in model_of(ElmoModel).state_dict().items()}
    assert shapes["char_encoder.embedding.weight"] == [262, 5]
    assert shapes["char_encoder.convolutions.2.weight"] == [25, 5, 3]
    assert shapes["char_encoder.highways.1.carry.weight"] == [37, 37]
    assert shapes["char_encoder.projection.weight"] == [11, 37]
    assert shapes["bilm.forward_layers.0.weight_ih"] == [76, 11]
    assert shapes["bilm.backward_layers.1.weight_hh"] == [76, 11]
    assert shapes["bilm.backward_layers.1.bias"] == [76]
    assert shapes["bilm.backward_layers.1.weight_hr"] == [11, 19]
    assert shapes["scalar_mix.scalars"] == [1, 3]
    assert shapes["scalar_mix.gamma"] == [1]


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"num_highway_layers": 0}, "highways"),
        ({"hidden_size": 74}, "char_encoder.projection"),
        ({"cell_size": 11}, "weight_hr"),
        ({"layer_weights": -1}, "scalar_mix"),
        ({"num_hidden_layers": 1}, "_layers.1."),
    ],
    ids=str,
)
def test_what_a_model_does_without_has_no_keys(changes: dict, absent: str) -> None:
    keys = list(model_of(ElmoModel, **changes).state_dict())
    assert keys == [key for key in MODEL_KEYS if absent not in key]


def test_the_hidden_layer_of_a_classifier_has_keys() -> None:
    keys = set(model_of(ElmoForSequenceClassification, classifier_hidden_size=9).state_dict())
    assert keys - set(keys_of(ElmoForSequenceClassification)) == {"dense.weight", "dense.bias"}


# -- saving and loading ------------------------------------------------------------------------------------------------


@every_class
def test_a_saved_model_comes_back(tmp_path: Path, inputs: dict, model_class: type) -> None:
    model = model_of(model_class)
    model.save_pretrained(tmp_path)
    again, report = model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert not again.training
    assert {key: value.dtype for key, value in again.state_dict().items()} == dict.fromkeys(
        model.state_dict(), torch.float32
    )
    assert_bit_equal(tensors_in(again.state_dict()), tensors_in(model.state_dict()))
    assert_equal_but_for_rounding(run(again, inputs), run(model, inputs))


def test_a_model_of_the_kernels_comes_back_bit_equal(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    """Their products are summed in an order of their own, wherever the weights lie."""
    model = random_model(ElmoConfig(hidden_size=128, cell_size=128, char_filters=[[1, 32], [3, 64]]))
    inputs = tokenizer(SENTENCES * 8, padding=True, return_tensors="pt")
    model.save_pretrained(tmp_path)
    again = ElmoModel.from_pretrained(tmp_path)
    with kernels.record() as ran:
        found, expected = run(again, inputs), run(model, inputs)
    if not {("lstm", "fused"), ("word-vectors", "word-cache")} <= set(ran):
        pytest.skip(f"only {ran} run on this machine")
    assert_bit_equal(found, expected)


@every_class
def test_it_comes_back_through_a_device_map_and_a_state_dict(tmp_path: Path, inputs: dict, model_class: type) -> None:
    model = model_of(model_class)
    model.save_pretrained(tmp_path, max_shard_size="9KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    expected = run(model, inputs)
    mapped = model_class.from_pretrained(tmp_path, device_map="cpu")
    assert_bit_equal(tensors_in(mapped.state_dict()), tensors_in(model.state_dict()))
    assert_equal_but_for_rounding(run(mapped, inputs), expected)
    again = model_of(model_class, seed=1)
    again.load_state_dict(model.state_dict())
    assert_bit_equal(run(again, inputs), expected)


@every_class
def test_copies_and_pickles_are_bit_equal(inputs: dict, model_class: type) -> None:
    model = model_of(model_class)
    expected = run(model, inputs)
    assert_bit_equal(run(copy.deepcopy(model), inputs), expected)
    assert_bit_equal(run(pickle.loads(pickle.dumps(model)), inputs), expected)


@every_class
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_loading_in_each_type(tmp_path: Path, inputs: dict, model_class: type, dtype: torch.dtype) -> None:
    model = model_class(config_of()).eval()
    model.save_pretrained(tmp_path)
    again = model_class.from_pretrained(tmp_path, dtype=dtype)
    assert {parameter.dtype for parameter in again.parameters()} == {dtype}
    expected, found = model(**inputs), again(**inputs)
    for name in ("last_hidden_state", "pooler_output", "logits", "forward_logits"):
        if name in expected:
            assert found[name].dtype == dtype
            torch.testing.assert_close(found[name].float(), expected[name], atol=0.02, rtol=0.02)


@every_class
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_saved_in_half_stays_in_half(tmp_path: Path, model_class: type, dtype: torch.dtype) -> None:
    model_of(model_class).to(dtype).save_pretrained(tmp_path)
    assert model_class.from_pretrained(tmp_path).dtype == dtype


@every_class
@pytest.mark.parametrize("part", range(3))
def test_missing_weights_are_initialized_and_the_others_loaded(tmp_path: Path, model_class: type, part: int) -> None:
    model = model_of(model_class)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    missing = set(keys_of(model_class)[part::3])
    save_file({key: weights[key] for key in weights.keys() - missing}, tmp_path / "model.safetensors", {"format": "pt"})
    again, report = model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == missing
    new = model_class(config_of()).state_dict()
    for key, value in again.state_dict().items():
        if key in missing:
            assert_as_if_drawn_again(key, value, new[key])
        else:
            assert torch.equal(value, weights[key])


@every_class
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_all_weights_missing_are_initialized_as_in_a_new_model(model_class: type, activation: str) -> None:
    mixes = 1 if model_class is ElmoForSequenceClassification else 2
    config = config_of(char_activation=activation, classifier_hidden_size=9, num_scalar_mixes=mixes)
    new = model_class(copy.deepcopy(config)).state_dict()
    loaded = model_class.from_pretrained(None, config=config, state_dict={}).state_dict()
    assert loaded.keys() == new.keys()
    for key, value in loaded.items():
        assert_as_if_drawn_again(key, value, new[key])


def test_the_first_weights_of_a_new_model() -> None:
    model = ElmoModel(config_of(num_scalar_mixes=2))
    encoder, layer = model.char_encoder, model.bilm.backward_layers[1]
    assert not encoder.embedding.weight[0].any()
    assert encoder.embedding.weight.abs().max() <= 1.0
    assert (encoder.highways[1].carry.bias == -2).all()
    assert not encoder.highways[1].transform.bias.any()
    assert layer.bias.tolist() == [0.0] * 19 + [1.0] * 19 + [0.0] * 38
    assert not model.scalar_mix.scalars.any()
    assert model.scalar_mix.gamma.tolist() == [1.0, 1.0]
    assert not torch.equal(model.bilm.forward_layers[1].weight_hh, layer.weight_hh)


@pytest.mark.parametrize("model_class", CLASSES[1:], ids=lambda model_class: model_class.__name__)
def test_a_base_model_becomes_one_with_a_head_and_back(tmp_path: Path, inputs: dict, model_class: type) -> None:
    base = model_of(ElmoModel)
    base.save_pretrained(tmp_path / "base")
    headed, report = model_class.from_pretrained(
        tmp_path / "base", num_labels=LABELS, vocab_size=WORDS, output_loading_info=True
    )
    assert report["missing_keys"] == set(HEAD_KEYS[model_class])
    assert_equal_but_for_rounding(run(headed.elmo, inputs), run(base, inputs))
    headed.save_pretrained(tmp_path / "headed")
    again, report = ElmoModel.from_pretrained(tmp_path / "headed", output_loading_info=True)
    assert not report["missing_keys"]
    assert_bit_equal(tensors_in(again.state_dict()), tensors_in(base.state_dict()))
    assert_equal_but_for_rounding(run(again, inputs), run(base, inputs))


def test_a_fixed_mix_takes_a_checkpoint_with_a_learned_one(tmp_path: Path, inputs: dict) -> None:
    model = model_of(ElmoModel)
    model.save_pretrained(tmp_path)
    fixed, report = ElmoModel.from_pretrained(tmp_path, layer_weights=-1, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        expected = model(**inputs, output_hidden_states=True).hidden_states[-1]
        assert_equal_but_for_rounding([fixed(**inputs).last_hidden_state], [expected])


def test_a_head_of_another_size_is_refused_unless_asked_for(tmp_path: Path, inputs: dict) -> None:
    model = model_of(ElmoForSequenceClassification)
    model.save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        ElmoForSequenceClassification.from_pretrained(tmp_path, num_labels=7)
    again = ElmoForSequenceClassification.from_pretrained(tmp_path, num_labels=7, ignore_mismatched_sizes=True)
    assert again(**inputs).logits.shape == (4, 7)
    assert_bit_equal(tensors_in(again.elmo.state_dict()), tensors_in(model.elmo.state_dict()))


@every_class
def test_a_model_is_built_on_the_meta_device(model_class: type) -> None:
    with torch.device("meta"):
        model = model_class(config_of())
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert not list(model.buffers())


@every_class
def test_no_two_parameters_share_storage(model_class: type) -> None:
    parameters = list(model_of(model_class).parameters())
    assert len({parameter.untyped_storage().data_ptr() for parameter in parameters}) == len(parameters)
    assert not model_of(model_class).all_tied_weights_keys


# -- embeddings --------------------------------------------------------------------------------------------------------


@every_class
def test_the_input_embeddings_are_the_characters(inputs: dict, model_class: type) -> None:
    model = model_of(model_class)
    assert model.get_input_embeddings() is base_of(model).char_encoder.embedding
    before = run(model, inputs)
    new = torch.nn.Embedding(262, 5, padding_idx=0)
    model.set_input_embeddings(new)
    assert model.get_input_embeddings() is base_of(model).char_encoder.embedding is new
    assert not torch.equal(run(model, inputs)[0], before[0])


def test_the_output_embeddings_are_the_words() -> None:
    model = model_of(ElmoForPreTraining)
    assert model.get_output_embeddings() is model.lm_head
    assert model_of(ElmoModel).get_output_embeddings() is None


@every_class
def test_characters_cannot_be_added(model_class: type) -> None:
    model = model_of(model_class)
    before = {key: value.shape for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="new_num_tokens is 300"):
        model.resize_token_embeddings(300)
    assert model.resize_token_embeddings() is model.resize_token_embeddings(262) is model.get_input_embeddings()
    assert {key: value.shape for key, value in model.state_dict().items()} == before
    assert (model.config.vocab_size, model.config.char_vocab_size) == (WORDS, 262)


# -- calls -------------------------------------------------------------------------------------------------------------


@every_class
def test_the_same_call_twice_is_bit_equal(inputs: dict, model_class: type) -> None:
    model = model_of(model_class, hidden_dropout=0.5)
    first = run(model, inputs)
    run(model, {key: value[:2] for key, value in inputs.items()})
    assert_bit_equal(run(model, inputs), first)


@every_class
def test_input_ids_come_first(model_class: type) -> None:
    names = list(inspect.signature(model_class.forward).parameters)
    assert names[1:4] == ["input_ids", "attention_mask", "inputs_embeds"]
    assert model_class.main_input_name == "input_ids"


@every_class
def test_the_layers_come_when_asked_for(inputs: dict, model_class: type) -> None:
    model = model_of(model_class, num_hidden_layers=3)
    assert model(**inputs).hidden_states is None
    layers = model(**inputs, output_hidden_states=True).hidden_states
    assert [layer.shape for layer in layers] == [(4, inputs["input_ids"].shape[1], 22)] * 4
    assert torch.equal(*layers[0].chunk(2, dim=2))
    model.config.output_hidden_states = True
    assert_bit_equal(list(model(**inputs).hidden_states), list(layers))
    assert model(**inputs, output_hidden_states=False).hidden_states is None


@every_class
def test_gradients_reach_the_layers_that_were_given_back(inputs: dict, model_class: type) -> None:
    model = model_of(model_class, freeze_bilm=False)
    output = model(**inputs, output_hidden_states=True)
    output.hidden_states[0].retain_grad()
    output.hidden_states[-1].retain_grad()
    output[0].square().sum().backward()
    assert output.hidden_states[-1].grad.abs().sum() > 0
    if model_class is not ElmoForPreTraining:  # a language model reads the top layer only
        assert output.hidden_states[0].grad.abs().sum() > 0


@every_class
def test_a_tuple_is_the_output_in_order(inputs: dict, model_class: type) -> None:
    model = model_of(model_class)
    output = model(**inputs, output_hidden_states=True)
    as_tuple = model(**inputs, output_hidden_states=True, return_dict=False)
    assert isinstance(as_tuple, tuple)
    assert_bit_equal(tensors_in(as_tuple), tensors_in(output.to_tuple()))
    assert list(output) == [field.name for field in dataclasses.fields(output) if output.get(field.name) is not None]
    model.config.return_dict = False
    assert isinstance(model(**inputs), tuple)


@every_class
def test_word_vectors_in_place_of_characters(inputs: dict, model_class: type) -> None:
    model = model_of(model_class)
    model = model.double()
    vectors = base_of(model).char_encoder(inputs["input_ids"])
    without = {"inputs_embeds": vectors, "attention_mask": inputs["attention_mask"]}
    for found, expected in zip(run(model, without), run(model, inputs), strict=True):
        torch.testing.assert_close(found, expected)


@every_class
def test_dummy_inputs_run(model_class: type) -> None:
    model = model_of(model_class, max_word_length=9)
    assert model.dummy_inputs["input_ids"].shape == (2, 3, 9)
    assert all(tensor.isfinite().all() for tensor in run(model, model.dummy_inputs))


@every_class
def test_the_mask_is_read_from_the_ids_where_it_is_not_given(inputs: dict, model_class: type) -> None:
    model = model_of(model_class)
    assert_bit_equal(run(model, {"input_ids": inputs["input_ids"]}), run(model, inputs))


@every_class
@pytest.mark.parametrize(("rows", "words"), [(0, 7), (3, 0), (0, 0)])
def test_an_empty_batch_is_an_empty_output(inputs: dict, model_class: type, rows: int, words: int) -> None:
    ids = inputs["input_ids"][:rows, :words]
    output = model_of(model_class)(ids, output_hidden_states=True)
    assert output.hidden_states[1].shape == (rows, words, 22)
    if model_class is ElmoForSequenceClassification:
        assert output.logits.shape == (rows, LABELS)


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
@pytest.mark.parametrize(("rows", "words"), [(0, 7), (3, 0)])
def test_an_empty_batch_is_classified(inputs: dict, pooling: str, rows: int, words: int) -> None:
    model = model_of(ElmoForSequenceClassification, classifier_pooling=pooling)
    expected = model.classifier.bias.expand(rows, LABELS)
    assert torch.equal(model(inputs["input_ids"][:rows, :words]).logits, expected)


# -- training ----------------------------------------------------------------------------------------------------------


@every_class
def test_gradients_reach_every_parameter(inputs: dict, model_class: type) -> None:
    model = model_of(model_class, freeze_bilm=False, classifier_dropout=0.0).train()
    with_gradient = {name for name, gradient in gradients_of(model, inputs).items() if gradient.abs().sum() > 0}
    not_read = {"elmo.scalar_mix.scalars", "elmo.scalar_mix.gamma"} if model_class is ElmoForPreTraining else set()
    assert with_gradient == set(keys_of(model_class)) - not_read
    assert {name for name, p in model.named_parameters() if p.requires_grad} == with_gradient


@every_class
def test_the_row_of_padding_does_not_learn(inputs: dict, model_class: type) -> None:
    model = model_of(model_class, freeze_bilm=False)
    gradients = gradients_of(model, inputs)
    embedding = next(value for name, value in gradients.items() if name.endswith("embedding.weight"))
    assert not embedding[0].any()
    assert embedding[261].any()


@every_class
@pytest.mark.parametrize("reentrant", [False, True], ids=["not reentrant", "reentrant"])
def test_checkpointing_gives_the_same_gradients(inputs: dict, monkeypatch, model_class: type, reentrant: bool) -> None:
    model = model_of(model_class, freeze_bilm=False, hidden_dropout=0.3, num_sampled=WORDS).double().train()
    expected = gradients_of(model, inputs)
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": reentrant})
    assert all(layer.gradient_checkpointing for layer in base_of(model).bilm.forward_layers)
    calls, layer = [], modeling_elmo.bilstm_layer
    monkeypatch.setattr(modeling_elmo, "bilstm_layer", lambda *given: calls.append(1) or layer(*given))
    found = gradients_of(model, inputs)
    assert len(calls) == 2 * model.config.num_hidden_layers
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], msg=name)


@pytest.mark.parametrize(
    ("model_class", "encoder_type"),
    [
        (ElmoForSequenceClassification, "biattentive"),
        (ElmoForTokenClassification, "bilstm"),
        (ElmoForQuestionAnswering, "attention_flow"),
        (ElmoForCoreferenceResolution, "bilstm"),
    ],
)
def test_checkpointing_of_a_head_without_elmo_changes_nothing(model_class: type, encoder_type: str) -> None:
    fields = {"use_elmo": False, "word_vectors_vocab_size": 7, "word_vectors_size": 4, "encoder_type": encoder_type}
    if model_class is ElmoForCoreferenceResolution:
        fields |= {"coreference_hidden_size": 8, "coreference_spans_per_word": 1.0}
    model = random_model(ElmoConfig(**TINY, **fields), model_class)
    tokenizer = ElmoTokenizer()
    tokenizer.words = ["the", "cat", "sat", "on"]
    inputs = tokenizer(
        ["the cat sat on"], ["the cat"] if encoder_type == "attention_flow" else None, return_tensors="pt"
    )
    expected = model(**inputs)[0]
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    assert torch.equal(model(**inputs)[0], expected)
    model.train()(**inputs)[-1].sum().backward()
    assert model.word_vectors.weight.grad.any()
    getattr(model, "activation_checkpointing_disable", model.gradient_checkpointing_disable)()
    assert not model.gradient_checkpointing


@every_class
def test_a_step_makes_the_loss_smaller(inputs: dict, model_class: type) -> None:
    model = model_of(model_class, freeze_bilm=False, classifier_dropout=0.0).train()
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    before = loss_of(model, inputs)
    before.backward()
    optimizer.step()
    assert loss_of(model, inputs) < before


@every_class
def test_dropout_of_the_bilm_acts_in_training_only(inputs: dict, model_class: type) -> None:
    model = model_of(model_class, hidden_dropout=0.4, freeze_bilm=False)
    plain = model_of(model_class, hidden_dropout=0.0, freeze_bilm=False)
    assert_bit_equal(run(model.eval(), inputs), run(plain, inputs))
    layers = model.train()(**inputs, output_hidden_states=True).hidden_states
    assert not torch.equal(layers[1], model(**inputs, output_hidden_states=True).hidden_states[1])


# -- layers are modules ------------------------------------------------------------------------------------------------

LAYERS = [f"bilm.{side}_layers.{number}" for side in ("forward", "backward") for number in (0, 1)]


@pytest.fixture(params=[False, True], ids=["without gradients", "with gradients"])
def unfrozen(request: pytest.FixtureRequest, tokenizer: ElmoTokenizer) -> Iterator[tuple[ElmoModel, dict]]:
    """A model and inputs, its kernels on, at inference and where each parameter has a gradient."""
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.set_grad_enabled(request.param), kernels.use("on"):
        yield model_of(ElmoModel, freeze_bilm=False), inputs


def layers_of(model: ElmoModel, inputs: dict) -> list[Tensor]:
    return tensors_in(model(**inputs, output_hidden_states=True).hidden_states)


def test_a_hook_on_each_layer_of_both_directions_sees_its_outputs(unfrozen: tuple) -> None:
    model, inputs = unfrozen
    plain, seen = layers_of(model, inputs), {}
    for name in LAYERS:
        model.get_submodule(name).register_forward_hook(
            lambda module, given, output, name=name: seen.setdefault(name, []).append((given[0], output[0]))
        )
    assert_equal_but_for_rounding(layers_of(model, inputs), plain)
    assert seen.keys() == set(LAYERS)
    words, size = int(inputs["attention_mask"].sum()), model.config.projection_size
    for name in LAYERS:
        ((given, output),) = seen[name]
        assert output.shape == (1, words, size)
        number, half = int(name[-1]), slice(0, size) if "forward" in name else slice(size, None)
        output = output + given if number else output  # the sum goes up the stack
        expected = plain[number + 1][inputs["attention_mask"].bool()][:, half]
        # Packed words are in an order of their own: the same rows.
        found, expected = (part[part[:, 0].argsort()] for part in (output[0], expected))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_what_a_hook_returns_goes_up_its_own_direction(unfrozen: tuple, name: str) -> None:
    model, inputs = unfrozen
    plain, size = layers_of(model, inputs), model.config.projection_size
    model.get_submodule(name).register_forward_hook(lambda module, given, output: (output[0] / 2, output[1]))
    found = layers_of(model, inputs)
    own, other = slice(0, size), slice(size, None)
    own, other = (own, other) if "forward" in name else (other, own)
    for number in range(3):
        near = torch.allclose(found[number][..., own], plain[number][..., own], atol=1e-5)
        assert near == (number <= int(name[-1])), number
        torch.testing.assert_close(found[number][..., other], plain[number][..., other], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_a_forward_of_a_layers_own_is_called(unfrozen: tuple, name: str) -> None:
    model, inputs = unfrozen
    plain, layer, calls = layers_of(model, inputs), model.get_submodule(name), []
    forward = layer.forward

    def doubled(*given: object) -> tuple[Tensor, tuple]:
        calls.append(len(given[0]))
        output, state = forward(*given)
        return 2 * output, state

    layer.forward = doubled
    assert not torch.allclose(layers_of(model, inputs)[-1], plain[-1], atol=1e-3)
    assert calls == [1]  # one direction
    del layer.forward
    assert_equal_but_for_rounding(layers_of(model, inputs), plain)


@pytest.mark.parametrize("weight", ["weight_ih", "weight_hh", "weight_hr"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_pruned_layer_computes_with_what_is_left(unfrozen: tuple, name: str, weight: str) -> None:
    model, inputs = unfrozen
    plain, expected = layers_of(model, inputs), copy.deepcopy(model)
    layer, left = model.get_submodule(name), expected.get_submodule(name).get_parameter(weight)
    prune.l1_unstructured(layer, weight, amount=0.5)
    left.data.mul_(layer.get_buffer(f"{weight}_mask"))
    assert (left == 0).sum() == left.numel() // 2
    for factor in (1.0, 1.5):  # a pruned weight is made anew when the layer is called
        layer.get_parameter(f"{weight}_orig").data.mul_(factor)
        left.data.mul_(factor)
        found = layers_of(model, inputs)
        assert_equal_but_for_rounding(found, layers_of(expected, inputs))
        assert not torch.allclose(found[-1], plain[-1], atol=1e-3)


def test_hooks_of_all_modules_see_layers_and_convolutions(unfrozen: tuple) -> None:
    model, inputs = unfrozen
    plain = layers_of(model, inputs)
    names, seen = {module: name for name, module in model.named_modules()}, []
    hook = register_module_forward_hook(lambda module, given, output: seen.append(names[module]))
    try:
        found = layers_of(model, inputs)
    finally:
        hook.remove()
    assert [seen.count(name) for name in LAYERS] == [1, 1, 1, 1]
    assert {f"char_encoder.convolutions.{number}" for number in range(3)} <= set(seen)
    assert_equal_but_for_rounding(found, plain)
    seen.clear()
    layers_of(model, inputs)
    assert not seen


# -- wrong inputs ------------------------------------------------------------------------------------------------------


def wrong_inputs(inputs: dict) -> dict[str, tuple[dict, str]]:
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    vectors, state = torch.zeros(4, ids.shape[1], 11), (torch.zeros(2, 2, 4, 11), torch.zeros(2, 2, 4, 19))
    return {
        "nothing": ({}, "input_ids or inputs_embeds"),
        "ids and vectors": ({"input_ids": ids, "inputs_embeds": vectors}, "input_ids or inputs_embeds"),
        "one sentence": ({"input_ids": ids[0]}, r"input_ids has the shape \[21, 50\].*batch of one"),
        "other characters": ({"input_ids": ids[:, :, :40]}, r"input_ids has the shape \[4, 21, 40\].*50"),
        "words, not characters": ({"input_ids": ids[:, :, 0]}, r"input_ids has the shape \[4, 21\]"),
        "fractions": ({"input_ids": ids.float()}, "input_ids are torch.float32.*integers"),
        "vectors of both directions": ({"inputs_embeds": vectors.repeat(1, 1, 2)}, r"\[4, 21, 22\].*11\]"),
        "short mask": ({"input_ids": ids, "attention_mask": mask[:, :2]}, r"attention_mask has the shape \[4, 2\]"),
        "mask of characters": (
            {"input_ids": ids, "attention_mask": ids},
            r"attention_mask has the shape \[4, 21, 50\]",
        ),
        "mask to be added": (
            {"input_ids": ids, "attention_mask": (1.0 - mask) * torch.finfo(torch.float32).min},
            "attention_mask holds -3.40282e[+]38, .* but must hold 1 and 0, as the tokenizer makes it",
        ),
        "mask to be added, no padding": (
            {"input_ids": ids, "attention_mask": torch.zeros(mask.shape)},
            "attention_mask holds nothing but 0.0, as one to be added to scores does",
        ),
        "other boundaries": (
            {"input_ids": ids, "special_tokens_mask": mask[:3]},
            r"special_tokens_mask has the shape \[3, 21\]",
        ),
        "state of other rows": (
            {"input_ids": ids[:3], "state": state},
            r"state has the shapes.*\[2, 2, 4, 11\].*\[2, 2, 3, 11\]",
        ),
        "half a state": ({"input_ids": ids, "state": state[:1]}, "state has the shapes"),
        "state of one direction": ({"input_ids": ids, "state": tuple(s[:, :1] for s in state)}, "state has the shapes"),
    }


@pytest.mark.parametrize(
    "case", wrong_inputs({"input_ids": torch.zeros(4, 21, 50), "attention_mask": torch.ones(4, 21)})
)
def test_wrong_inputs_are_refused_by_name(inputs: dict, case: str) -> None:
    arguments, message = wrong_inputs(inputs)[case]
    for model_class in CLASSES[: 1 if case == "other boundaries" else None]:
        with pytest.raises(ValueError, match=message):
            model_of(model_class)(**arguments)


def test_a_language_model_needs_a_vocabulary() -> None:
    with pytest.raises(ValueError, match="vocab_size is None"):
        ElmoForPreTraining(config_of(vocab_size=None))


def test_an_output_that_was_rebuilt_does_not_pretend_to_have_no_state() -> None:
    model = random_model(ElmoConfig(**TINY, num_scalar_mixes=2)).eval()
    output = model(**model.dummy_inputs)
    rebuilt = tree_map(lambda x: x, output)  # as DDP and accelerate's hooks do
    assert torch.equal(rebuilt.last_hidden_state, output.last_hidden_state)
    assert len(output.scalar_mixes) == len(output.state) == 2
    for name in ("state", "scalar_mixes"):
        with pytest.raises(AttributeError, match=f"has no {name}. A wrapper that rebuilds outputs"):
            getattr(rebuilt, name)
    with pytest.raises(AttributeError, match=r"has no attentions\.$"):
        output.attentions  # noqa: B018
    model.forward = lambda *_, **__: rebuilt
    with pytest.raises(AttributeError, match="has no scalar_mixes"):  # not one mix of two
        model.word_representations(**model.dummy_inputs)


def test_the_first_weights_of_an_lstm_are_within_glorots_bounds() -> None:
    """TensorFlow has the weights of words and of the state in one matrix, whose sizes count."""
    torch.manual_seed(0)
    layer, (size, cell) = ElmoModel(config_of()).bilm.forward_layers[0], (TINY["hidden_size"] // 2, TINY["cell_size"])
    both = 6 / (2 * size + 4 * cell)
    for weight, square in ((layer.weight_ih, both), (layer.weight_hh, both), (layer.weight_hr, 6 / (size + cell))):
        assert 0.9 * square**0.5 < weight.abs().max() <= square**0.5
