"""What every model of transformers must do: files, copies, calls, gradients, and modules that users change."""

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from transformers import PreTrainedModel

from hf_elmo import ElmoConfig, ElmoModel
from hf_elmo.modeling_pretraining_elmo import neighbor_labels
from tests import heads
from tests.factories import TINY
from tests.heads import MODELS, NO_DROPOUT, batch_of, gradients_of, loss_of, make, tensors_of, without_labels

every_class = pytest.mark.parametrize("name", ["no head", "pooled", "language models"])
STATE = torch.zeros(2, 1, 4, 11), torch.zeros(2, 1, 4, 19)  # of one direction
VECTORS = torch.zeros(4, 21, 11)
WRONG_INPUTS = {
    "nothing": ([], {}, "input_ids"),
    "ids and vectors": (["input_ids"], {"inputs_embeds": VECTORS}, "inputs_embeds"),
    "vectors without boundaries": ([], {"inputs_embeds": VECTORS}, "special_tokens_mask is missing|2 texts"),
    "other characters": ([], {"input_ids": torch.zeros(4, 21, 40).long()}, "input_ids"),
    "a short mask": (["input_ids"], {"attention_mask": torch.ones(4, 2)}, "attention_mask"),
    "the state of one direction": (
        ["input_ids"],
        {"state": STATE},
        "state",
    ),
}
TRAINED = {"freeze_bilm": False, "hidden_dropout": 0.3, "encoder_recurrent_dropout": 0.2}
WITHOUT_ELMO = {**heads.VECTORS, "use_elmo": False, **NO_DROPOUT}
CHECKPOINTED = [(name, TRAINED, how) for name in ("no head", "pooled", "language models", "roles") for how in (0, 1)]
CHECKPOINTED += [("crf", WITHOUT_ELMO, 0), ("resolver", WITHOUT_ELMO, 0), ("pooled", NO_DROPOUT, 0)]
CHECKPOINTED += [("roles", {**NO_DROPOUT, "layer_weights": 0}, 1)]
COMPILED = [5, 3], [9, 2, 6], [4] * 5, [21, 1, 6, 8], [1, 2]  # the lengths of the rows


@torch.no_grad()
def run(model: PreTrainedModel, inputs: dict) -> dict[str, Tensor]:
    """Every tensor of the output, layers included."""
    output = model(**inputs, output_hidden_states=True)
    return tensors_of(output) | {f"layer {n}": layer for n, layer in enumerate(output.hidden_states)}


@pytest.mark.parametrize("part", range(3))
def test_missing_weights_are_initialized_and_the_others_loaded(tmp_path, part: int) -> None:
    model = make("pooled")
    weights, new = model.state_dict(), type(model)(model.config).state_dict()
    missing = set(sorted(weights)[part::3])
    model.save_pretrained(tmp_path)
    save_file({key: weights[key] for key in weights.keys() - missing}, tmp_path / "model.safetensors", {"format": "pt"})
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == missing
    for key, value in loaded.state_dict().items():
        if key not in missing or new[key].unique().numel() <= 2:  # constants
            assert torch.equal(value, weights[key] if key not in missing else new[key]), key
        else:
            assert 0.5 < value.std() / new[key].std() < 2, key


def test_the_first_weights_of_a_new_model() -> None:
    torch.manual_seed(0)
    model = ElmoModel(ElmoConfig(**TINY, num_scalar_mixes=2))
    encoder, layer = model.char_encoder, model.bilm.layers[1].lstm.weights(1)
    assert not encoder.embedding.weight[0].any()
    assert encoder.embedding.weight.abs().max() <= 1.0
    assert (encoder.highways[1].carry.bias == -2).all()
    assert not encoder.highways[1].transform.bias.any()
    assert layer.bias.tolist() == [0.0] * 19 + [1.0] * 19 + [0.0] * 38
    assert not model.scalar_mix.scalars.any()
    assert model.further_mixes[0].gamma.tolist() == [1.0]
    # TensorFlow has the weights of words and of the state in one matrix, whose size Glorot's bound depends on.
    both = 6 / (2 * 11 + 4 * 19)
    for weight, square in ((layer.weight_ih, both), (layer.weight_hh, both), (layer.weight_hr, 6 / (11 + 19))):
        assert 0.9 * square**0.5 < weight.abs().max() <= square**0.5


@pytest.mark.parametrize("name", ["language models", *heads.NETWORKS])
def test_a_bilm_gets_a_head_and_loses_it(tmp_path, name: str) -> None:
    bilm, (model_class, fields) = make("no head"), MODELS[name]
    bilm.save_pretrained(tmp_path / "bilm")
    model, report = model_class.from_pretrained(tmp_path / "bilm", **fields, output_loading_info=True)
    assert report["missing_keys"] == {key for key in model.state_dict() if not key.startswith("elmo.")}
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    model.save_pretrained(tmp_path / "headed")
    loaded, report = ElmoModel.from_pretrained(tmp_path / "headed", output_loading_info=True)
    assert not report["missing_keys"]
    torch.testing.assert_close(loaded.state_dict(), bilm.state_dict(), atol=0, rtol=0)


@every_class
def test_the_embedding_of_characters_is_not_resized(name: str) -> None:
    model = make(name)
    embedding = model.get_input_embeddings()
    assert model.resize_token_embeddings(300) is embedding
    assert (embedding.num_embeddings, model.config.char_vocab_size) == (262, 262)


@pytest.mark.parametrize("name", ["no head", "pooled", "language models", "pairs", "answers", "decomposable"])
def test_hidden_states_are_returned_when_asked_for(tokenizer, name: str) -> None:
    model = make(name, num_hidden_layers=3, freeze_bilm=False)
    inputs = without_labels(batch_of(tokenizer, name))
    assert model(**inputs).hidden_states is None
    output = model(**inputs, output_hidden_states=True)
    assert [layer.shape for layer in output.hidden_states] == [(*inputs["attention_mask"].shape, 22)] * 4
    model.config.output_hidden_states = True
    assert model(**inputs, output_hidden_states=False).hidden_states is None
    read = output.hidden_states[-1:] if name == "language models" else output.hidden_states
    for layer in read:
        layer.retain_grad()
    output[0].square().sum().backward()
    assert all(layer.grad.abs().sum() > 0 for layer in read)


@every_class
def test_word_vectors_in_place_of_characters_and_a_mask_that_is_not_given(inputs, name: str) -> None:
    model = make(name).double()
    vectors, expected = model.base_model.char_encoder(inputs["input_ids"]), run(model, inputs)
    given = {"inputs_embeds": vectors, "attention_mask": inputs["attention_mask"]}
    torch.testing.assert_close(run(model, given), expected)
    torch.testing.assert_close(run(model, {"input_ids": inputs["input_ids"]}), expected, atol=0, rtol=0)


@pytest.mark.parametrize(("names", "others", "argument"), WRONG_INPUTS.values(), ids=WRONG_INPUTS)
def test_inputs_that_would_be_misread(inputs, names: list[str], others: dict, argument: str) -> None:
    for name in ("esim", "resolver") if "missing" in argument else ("no head", "language models"):
        with pytest.raises(ValueError, match=argument):
            make(name)(**{name: inputs[name] for name in names}, **others)


def memory_of(model: PreTrainedModel, batch: dict) -> int:
    """The bytes that are kept for the backward pass."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(model, batch)
    return sum(kept.values())


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter_but_the_padding_character(tokenizer, name: str) -> None:
    seed = 2 if name in heads.HEADS else 0  # with others, some ReLU is 0 for every word
    model, batch = make(name, seed, freeze_bilm=False, **NO_DROPOUT).train(), batch_of(tokenizer, name)
    gradients = gradients_of(model, batch)
    not_read = {"elmo.scalar_mix.scalars", "elmo.scalar_mix.gamma"} if model.base_model is not model else set()
    assert {name for name, p in model.named_parameters() if p.requires_grad} == set(model.state_dict()) - not_read
    without = set(model.state_dict()) - {name for name, gradient in gradients.items() if gradient.any()}
    # A softmax over words does not change with a bias.
    assert {name for name in without if not name.endswith(("scores.bias", "attention.bias"))} == not_read
    assert not model.get_input_embeddings().weight.grad[0].any()


@pytest.mark.parametrize("name", MODELS)
def test_the_default_device_is_none_of_a_call(tokenizer, name: str) -> None:
    model, batch = make(name, freeze_bilm=False, **NO_DROPOUT).double(), batch_of(tokenizer, name)
    expected = gradients_of(model.train(), batch), tensors_of(model.eval()(**batch))
    with torch.device("meta"):
        found = gradients_of(model.train(), batch), tensors_of(model.eval()(**batch))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("name", "fields", "reentrant"), CHECKPOINTED)
def test_gradient_checkpointing(tokenizer, name: str, fields: dict, reentrant: int) -> None:
    model = make(name, **fields).double().train()
    batch = batch_of(tokenizer, name, words=not model.config.use_elmo)
    expected, memory = gradients_of(model, batch), memory_of(model, batch)
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": bool(reentrant)})
    torch.testing.assert_close(gradients_of(model, batch), expected)
    assert memory_of(model, batch) < (0.7 if "freeze_bilm" in fields else 1) * memory + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["last", "language models"])
def test_two_lengths_are_compiled_and_no_more(tokenizer, request, name: str) -> None:
    torch.compiler.reset()
    request.addfinalizer(torch.compiler.reset)
    model, backend = make(name, freeze_bilm=False), CompileCounter()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    compiled, counts = torch.compile(model, backend=backend), []
    for number, lengths in enumerate(COMPILED):
        sentences = [[f"{row}word{place % 4}" for place in range(length)] for row, length in enumerate(lengths)]
        how = {"padding_side": "left" if number % 2 else "right", "padding": True, "return_tensors": "pt"}
        batch, found = dict(tokenizer(sentences, is_split_into_words=True, **how)), []
        mask = batch["attention_mask"]
        if name == "language models":
            batch["labels"] = neighbor_labels(torch.arange(mask.numel()).view_as(mask) % 31, mask)
        else:
            batch |= {"labels": torch.arange(len(mask)) % 3, "output_hidden_states": True}
        for each in (model, compiled):
            output = each(**batch)
            tensors = [*output.to_tuple()[:2], *(output.hidden_states or ())]
            found.append([*tensors, *torch.autograd.grad(output.loss, parameters, allow_unused=True)])
        torch.testing.assert_close(*found, atol=1e-6, rtol=1e-6)
        counts.append(backend.frame_count)
    assert counts[0] > 0
    assert counts[1:] == [counts[1]] * (len(COMPILED) - 1)
