"""What every model of transformers must do, for the model without a head, a classifier and the language models."""

import copy
import dataclasses
import inspect
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import prune
from torch.utils._pytree import tree_map
from transformers import PreTrainedModel

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from hf_elmo.hub import FILES
from hf_elmo.modeling_elmo import SENTENCE_TRANSFORMERS
from tests.factories import SENTENCES, TINY
from tests.heads import MODELS, NO_DROPOUT, VECTORS, assert_same_outputs, batch_of, make, make_new, tensors_of

CLASSES = ["no head", "pooled", "language models"]
every_class = pytest.mark.parametrize("name", CLASSES)

WEIGHT_AND_BIAS = [
    *(f"char_encoder.convolutions.{number}" for number in range(3)),
    *(f"char_encoder.highways.{number}.{part}" for number in range(2) for part in ("carry", "transform")),
    "char_encoder.projection",
]
KEYS = {
    "char_encoder.embedding.weight",
    *(f"{layer}.{part}" for layer in WEIGHT_AND_BIAS for part in ("weight", "bias")),
    *(
        f"bilm.{direction}_layers.{number}.{part}"
        for direction in ("forward", "backward")
        for number in range(2)
        for part in ("weight_ih", "weight_hh", "bias", "weight_hr")
    ),
    "scalar_mix.scalars",
    "scalar_mix.gamma",
}
HEAD_KEYS = {
    "no head": set(),
    "pooled": {"classifier.weight", "classifier.bias"},
    "language models": {"lm_head.weight", "lm_head.bias"},
}
# Weights at another place in memory: MKL's products of float32 depend on its alignment. A value of these models is a
# sum of at most 40 products, of a size below 4, through two layers whose gates let no error grow: 40 * 4 * 2**-24.
ROUNDING = {"atol": 1e-5, "rtol": 0}


def keys_of(name: str) -> set[str]:
    prefix = "" if name == "no head" else "elmo."
    return {prefix + key for key in KEYS} | HEAD_KEYS[name]


def base_of(model: PreTrainedModel) -> ElmoModel:
    return getattr(model, "elmo", model)


@torch.no_grad()
def run(model: PreTrainedModel, inputs: dict) -> dict[str, Tensor]:
    """Every tensor of the output, layers included."""
    output = model(**inputs, output_hidden_states=True)
    return tensors_of(output) | {f"layer {n}": layer for n, layer in enumerate(output.hidden_states)}


def is_drawn_like(weight: Tensor, new: Tensor) -> bool:
    """Constants are equal, random numbers have about the same spread and bounds."""
    if new.unique().numel() <= 2:
        return torch.equal(weight, new)
    return 0.5 < weight.std() / new.std() < 2 and weight.abs().max() < 2 * new.abs().max()


@pytest.fixture
def inputs(tokenizer: ElmoTokenizer) -> dict[str, Tensor]:
    return dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))


# -- the file format ---------------------------------------------------------------------------------------------------


@every_class
def test_the_keys_of_a_checkpoint(tmp_path: Path, name: str) -> None:
    model = make(name)
    model.save_pretrained(tmp_path)
    assert set(model.state_dict()) == set(load_file(tmp_path / "model.safetensors")) == keys_of(name)
    others = FILES[type(model).__name__] | set(SENTENCE_TRANSFORMERS if name != "pooled" else ())
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"} | others


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
def test_a_part_that_a_model_does_not_have_has_no_keys(changes: dict, absent: str) -> None:
    assert set(make("no head", **changes).state_dict()) == {key for key in KEYS if absent not in key}


# -- saving and loading ------------------------------------------------------------------------------------------------


@every_class
@pytest.mark.parametrize(
    ("saving", "loading"), [({}, {}), ({"max_shard_size": "9KB"}, {"device_map": "cpu"})], ids=["whole", "sharded"]
)
def test_a_saved_model_is_loaded(tmp_path: Path, inputs: dict, name: str, saving: dict, loading: dict) -> None:
    model = make(name)
    model.save_pretrained(tmp_path, **saving)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == bool(saving)
    loaded, report = type(model).from_pretrained(tmp_path, **loading, output_loading_info=True)
    assert not any(report.values())
    assert not loaded.training
    assert_same_outputs(loaded.state_dict(), model.state_dict(), atol=0, rtol=0)
    assert_same_outputs(run(loaded, inputs), run(model, inputs), **ROUNDING)


@every_class
def test_copies_and_pickles_are_equal_to_the_bit(inputs: dict, name: str) -> None:
    model, state = make(name), make(name, seed=1)
    state.load_state_dict(model.state_dict())
    expected = run(model, inputs)
    for other in (state, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_same_outputs(run(other, inputs), expected, atol=0, rtol=0)


@every_class
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(tmp_path: Path, inputs: dict, name: str, dtype: torch.dtype) -> None:
    model = make_new(name)
    model.save_pretrained(tmp_path / "whole")
    half = type(model).from_pretrained(tmp_path / "whole", dtype=dtype)
    expected, found = run(model, inputs), run(half, inputs)
    assert {value.dtype for value in found.values()} == {dtype}
    whole = {key: value.float() for key, value in found.items()}
    assert_same_outputs(whole, expected, atol=0.02, rtol=0.02)
    half.save_pretrained(tmp_path / "half")
    assert type(model).from_pretrained(tmp_path / "half").dtype == dtype


@pytest.mark.parametrize("part", range(3))
def test_missing_weights_are_initialized_and_the_others_loaded(tmp_path: Path, part: int) -> None:
    model = make("pooled")
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    missing = set(sorted(weights)[part::3])
    save_file({key: weights[key] for key in weights.keys() - missing}, tmp_path / "model.safetensors", {"format": "pt"})
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == missing
    new = type(model)(model.config).state_dict()
    for key, value in loaded.state_dict().items():
        assert is_drawn_like(value, new[key]) if key in missing else torch.equal(value, weights[key]), key


def test_the_first_weights_of_a_new_model() -> None:
    torch.manual_seed(0)
    model = ElmoModel(ElmoConfig(**TINY, num_scalar_mixes=2))
    encoder, layer = model.char_encoder, model.bilm.backward_layers[1]
    assert not encoder.embedding.weight[0].any()
    assert encoder.embedding.weight.abs().max() <= 1.0
    assert (encoder.highways[1].carry.bias == -2).all()
    assert not encoder.highways[1].transform.bias.any()
    assert layer.bias.tolist() == [0.0] * 19 + [1.0] * 19 + [0.0] * 38
    assert not model.scalar_mix.scalars.any()
    assert model.scalar_mix.gamma.tolist() == [1.0, 1.0]
    # TensorFlow has the weights of words and of the state in one matrix, whose size Glorot's bound depends on.
    both = 6 / (2 * 11 + 4 * 19)
    for weight, square in ((layer.weight_ih, both), (layer.weight_hh, both), (layer.weight_hr, 6 / (11 + 19))):
        assert 0.9 * square**0.5 < weight.abs().max() <= square**0.5


@pytest.mark.parametrize("name", CLASSES[1:])
def test_a_base_model_gets_a_head_and_loses_it(tmp_path: Path, inputs: dict, name: str) -> None:
    base, (model_class, fields) = make("no head"), MODELS[name]
    base.save_pretrained(tmp_path / "base")
    headed, report = model_class.from_pretrained(tmp_path / "base", **fields, output_loading_info=True)
    assert report["missing_keys"] == HEAD_KEYS[name]
    headed.save_pretrained(tmp_path / "headed")
    loaded, report = ElmoModel.from_pretrained(tmp_path / "headed", output_loading_info=True)
    assert not report["missing_keys"]
    assert_same_outputs(loaded.state_dict(), base.state_dict(), atol=0, rtol=0)
    for model in (headed.elmo, loaded):
        assert_same_outputs(run(model, inputs), run(base, inputs), **ROUNDING)


def test_a_fixed_mix_over_a_checkpoint_with_a_learned_one(tmp_path: Path, inputs: dict) -> None:
    model = make("no head")
    model.save_pretrained(tmp_path)
    fixed, report = ElmoModel.from_pretrained(tmp_path, layer_weights=-1, output_loading_info=True)
    assert not any(report.values())
    expected = run(model, inputs)["layer 2"]
    torch.testing.assert_close(run(fixed, inputs)["last_hidden_state"], expected, **ROUNDING)


@every_class
def test_parameters_are_separate_and_on_the_meta_device_if_asked_for(name: str) -> None:
    model = make(name)
    assert not model.all_tied_weights_keys
    assert len({p.untyped_storage().data_ptr() for p in model.parameters()}) == len(list(model.parameters()))
    with torch.device("meta"):
        model = type(model)(model.config)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert not list(model.buffers())


# -- embeddings --------------------------------------------------------------------------------------------------------


@every_class
def test_the_input_embeddings_are_the_characters(inputs: dict, name: str) -> None:
    model = make(name)
    before, embedding = run(model, inputs), model.get_input_embeddings()
    assert embedding is base_of(model).char_encoder.embedding
    assert model.resize_token_embeddings(300) is embedding
    assert (embedding.num_embeddings, model.config.char_vocab_size) == (262, 262)
    new = nn.Embedding(262, 5, padding_idx=0)
    model.set_input_embeddings(new)
    assert model.get_input_embeddings() is base_of(model).char_encoder.embedding is new
    assert not torch.equal(run(model, inputs)["layer 0"], before["layer 0"])
    assert model.get_output_embeddings() is (model.lm_head if name == "language models" else None)


# -- calls -------------------------------------------------------------------------------------------------------------


@every_class
def test_the_order_of_arguments_and_dummy_inputs(name: str) -> None:
    model = make(name, max_word_length=9)
    assert list(inspect.signature(model.forward).parameters)[:3] == ["input_ids", "attention_mask", "inputs_embeds"]
    assert model.main_input_name == "input_ids"
    assert model.dummy_inputs["input_ids"].shape == (2, 3, 9)
    assert all(tensor.isfinite().all() for tensor in run(model, model.dummy_inputs).values())


@every_class
def test_hidden_states_are_returned_when_asked_for(inputs: dict, name: str) -> None:
    model = make(name, num_hidden_layers=3)
    assert model(**inputs).hidden_states is None
    layers = model(**inputs, output_hidden_states=True).hidden_states
    assert [layer.shape for layer in layers] == [(4, inputs["input_ids"].shape[1], 22)] * 4
    model.config.output_hidden_states = True
    assert torch.equal(torch.stack(model(**inputs).hidden_states), torch.stack(layers))
    assert model(**inputs, output_hidden_states=False).hidden_states is None


@every_class
def test_gradients_of_hidden_states(inputs: dict, name: str) -> None:
    output = make(name, freeze_bilm=False)(**inputs, output_hidden_states=True)
    read = output.hidden_states[-1:] if name == "language models" else output.hidden_states
    for layer in read:
        layer.retain_grad()
    output[0].square().sum().backward()
    assert all(layer.grad.abs().sum() > 0 for layer in read)


@every_class
def test_a_tuple_has_the_fields_in_order(inputs: dict, name: str) -> None:
    model = make(name)
    output = model(**inputs, output_hidden_states=True)
    assert list(output) == [field.name for field in dataclasses.fields(output) if output.get(field.name) is not None]
    as_tuple = model(**inputs, output_hidden_states=True, return_dict=False)
    assert isinstance(as_tuple, tuple)
    torch.testing.assert_close(as_tuple, output.to_tuple(), atol=0, rtol=0)
    model.config.return_dict = False
    assert isinstance(model(**inputs), tuple)


@every_class
def test_word_vectors_in_place_of_characters_and_a_mask_that_is_not_given(inputs: dict, name: str) -> None:
    model = make(name).double()
    vectors, expected = base_of(model).char_encoder(inputs["input_ids"]), run(model, inputs)
    given = {"inputs_embeds": vectors, "attention_mask": inputs["attention_mask"]}
    assert_same_outputs(run(model, given), expected)
    assert_same_outputs(run(model, {"input_ids": inputs["input_ids"]}), expected, atol=0, rtol=0)


@pytest.mark.parametrize("changes", [{}, {"classifier_pooling": "max"}, {"classifier_pooling": "last"}], ids=str)
@pytest.mark.parametrize(("rows", "words"), [(0, 7), (3, 0), (0, 0)])
def test_an_empty_batch(inputs: dict, changes: dict, rows: int, words: int) -> None:
    for name in CLASSES:
        model = make(name, **changes)
        output = model(inputs["input_ids"][:rows, :words], output_hidden_states=True)
        assert output.hidden_states[1].shape == (rows, words, 22)
        if name == "pooled":
            assert torch.equal(output.logits, model.classifier.bias.expand(rows, 3))


def test_the_state_and_all_mixes_are_kept_by_a_wrapper_that_rebuilds_outputs(inputs: dict) -> None:
    model = make("no head", num_scalar_mixes=2)
    output = model(**inputs, use_cache=True)
    rebuilt = tree_map(lambda x: x, output)  # as DDP and the hooks of accelerate do
    assert len(rebuilt.scalar_mixes) == len(rebuilt.state) == 2
    torch.testing.assert_close(rebuilt.to_tuple(), output.to_tuple())
    assert model(**inputs).state is None


STATE = torch.zeros(2, 2, 4, 11), torch.zeros(2, 2, 4, 19)
WRONG_INPUTS = {
    "nothing": ([], {}, "input_ids"),
    "ids and vectors": (["input_ids"], {"inputs_embeds": torch.zeros(4, 21, 11)}, "inputs_embeds"),
    "other characters": ([], {"input_ids": torch.zeros(4, 21, 40).long()}, "input_ids"),
    "words, not characters": ([], {"input_ids": torch.zeros(4, 21).long()}, "input_ids"),
    "vectors of both directions": ([], {"inputs_embeds": torch.zeros(4, 21, 22)}, "inputs_embeds"),
    "a short mask": (["input_ids"], {"attention_mask": torch.ones(4, 2)}, "attention_mask"),
    "the state of fewer rows": (["input_ids"], {"state": tuple(x[:, :, :1] for x in STATE)}, "state"),
    "the state of one direction": (["input_ids"], {"state": tuple(x[:, :1] for x in STATE)}, "state"),
}


@pytest.mark.parametrize(("names", "others", "argument"), WRONG_INPUTS.values(), ids=WRONG_INPUTS)
def test_inputs_that_would_be_misread(inputs: dict, names: list[str], others: dict, argument: str) -> None:
    for name in ("no head", "language models"):
        with pytest.raises(ValueError, match=argument):
            make(name)(**{name: inputs[name] for name in names}, **others)


def test_language_models_need_a_vocabulary() -> None:
    with pytest.raises(ValueError, match="vocab_size"):
        ElmoForPreTraining(ElmoConfig(**TINY))


# -- training ----------------------------------------------------------------------------------------------------------


def loss_of(model: PreTrainedModel, batch: dict) -> Tensor:
    """The loss of the model, or for the model without a head a number that depends on every output."""
    if not isinstance(model, ElmoModel):
        return model(**batch).loss
    output = model(**batch, use_cache=True)
    parts = [output.last_hidden_state, output.pooler_output, *output.state]
    return sum(part.square().sum() for part in parts)


def gradients_of(model: PreTrainedModel, batch: dict) -> tuple[dict[str, Tensor], int]:
    """The gradients of the parameters, and the bytes that were kept for the backward pass."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.zero_grad()
    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_of(model, batch)
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}, sum(kept.values())


@every_class
def test_gradients_reach_every_parameter_but_the_padding_character(tokenizer: ElmoTokenizer, name: str) -> None:
    model, batch = make(name, freeze_bilm=False, **NO_DROPOUT).train(), batch_of(tokenizer, name)
    gradients, _ = gradients_of(model, batch)
    with_gradient = {name for name, gradient in gradients.items() if gradient.any()}
    not_read = {"elmo.scalar_mix.scalars", "elmo.scalar_mix.gamma"} if name == "language models" else set()
    assert with_gradient == keys_of(name) - not_read
    assert {name for name, p in model.named_parameters() if p.requires_grad} == with_gradient
    assert not model.get_input_embeddings().weight.grad[0].any()


def checkpointed(model: PreTrainedModel, **how: object) -> PreTrainedModel:
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable(how)
    return model


@pytest.mark.parametrize("name", [*CLASSES, "roles"])
@pytest.mark.parametrize("reentrant", [False, True], ids=["not reentrant", "reentrant"])
def test_gradient_checkpointing(tokenizer: ElmoTokenizer, name: str, reentrant: bool) -> None:
    model = make(name, freeze_bilm=False, hidden_dropout=0.3, encoder_recurrent_dropout=0.2).double().train()
    batch = batch_of(tokenizer, name)
    expected, memory = gradients_of(model, batch)
    found, smaller_memory = gradients_of(checkpointed(model, use_reentrant=reentrant), batch)
    assert_same_outputs(found, expected)
    assert smaller_memory < 0.7 * memory


@pytest.mark.parametrize("name", ["biattentive", "crf", "answers", "resolver"])
def test_gradient_checkpointing_of_a_head_without_elmo(tokenizer: ElmoTokenizer, name: str) -> None:
    model, batch = make(name, **VECTORS, use_elmo=False, **NO_DROPOUT).train(), batch_of(tokenizer, name, words=True)
    expected, _ = gradients_of(model, batch)
    assert_same_outputs(gradients_of(checkpointed(model), batch)[0], expected)


@every_class
def test_dropout_of_the_bilm_acts_in_training_only(inputs: dict, name: str) -> None:
    model = make(name, hidden_dropout=0.4, freeze_bilm=False)
    expected = run(make(name, hidden_dropout=0.0), inputs)
    assert_same_outputs(run(model, inputs), expected)
    assert not torch.equal(run(model.train(), inputs)["layer 1"], expected["layer 1"])


# -- modules may be changed --------------------------------------------------------------------------------------------

LAYERS = [f"bilm.{direction}_layers.{number}" for direction in ("forward", "backward") for number in (0, 1)]
with_and_without_gradients = pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])


@with_and_without_gradients
@pytest.mark.parametrize("name", LAYERS)
def test_weights_that_a_hook_of_a_layer_returns(inputs: dict, name: str, trained: bool) -> None:
    """They are used in the direction of the layer, from the layer on."""
    model = make("no head", freeze_bilm=not trained).double()
    plain = model(**inputs, output_hidden_states=True).hidden_states
    model.get_submodule(name).register_forward_hook(lambda _, __, weights: weights._replace(bias=weights.bias / 2))
    changed = model(**inputs, output_hidden_states=True).hidden_states
    expected = make("no head").double()
    expected.get_submodule(name).bias.data /= 2
    torch.testing.assert_close(changed, expected(**inputs, output_hidden_states=True).hidden_states)
    halves = slice(0, 11), slice(11, None)
    mine, other = halves if "forward" in name else halves[::-1]
    for number, (before, after) in enumerate(zip(plain, changed, strict=True)):
        torch.testing.assert_close(after[..., other], before[..., other])
        assert torch.allclose(after[..., mine], before[..., mine]) == (number <= int(name[-1]))


@with_and_without_gradients
@pytest.mark.parametrize("weight", ["weight_ih", "weight_hh", "weight_hr"])
def test_a_pruned_layer(inputs: dict, weight: str, trained: bool) -> None:
    model = make("no head", freeze_bilm=not trained)
    plain, expected = run(model, inputs)["layer 2"], copy.deepcopy(model)
    layer, left = model.get_submodule(LAYERS[3]), expected.get_submodule(LAYERS[3]).get_parameter(weight)
    prune.l1_unstructured(layer, weight, amount=0.5)
    left.data.mul_(layer.get_buffer(f"{weight}_mask"))
    for factor in (1.0, 1.5):  # a pruned weight is computed when the layer is called
        layer.get_parameter(f"{weight}_orig").data.mul_(factor)
        left.data.mul_(factor)
        found = run(model, inputs)["layer 2"]
        torch.testing.assert_close(found, run(expected, inputs)["layer 2"], **ROUNDING)
        assert not torch.allclose(found, plain, atol=1e-3)


@with_and_without_gradients
def test_hooks_of_all_modules(inputs: dict, trained: bool) -> None:
    model = make("no head", freeze_bilm=not trained)
    plain, names, seen = run(model, inputs), {module: name for name, module in model.named_modules()}, []
    hook = register_module_forward_hook(lambda module, given, output: seen.append(names[module]))
    try:
        found = run(model, inputs)
    finally:
        hook.remove()
    assert [seen.count(name) for name in LAYERS] == [1, 1, 1, 1]
    assert {f"char_encoder.convolutions.{number}" for number in range(3)} <= set(seen)
    assert_same_outputs(found, plain, **ROUNDING)
