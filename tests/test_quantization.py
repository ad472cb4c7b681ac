"""Weights quantized by torchao and torch.ao: what is converted, that nothing reads past it, how far it is off."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import TorchAoConfig

from hf_elmo import ElmoTokenizer
from hf_elmo.kernels import record
from tests.conftest import SENTENCES
from tests.heads import MODELS, batch_of, make_new

LINEARS = {f"char_encoder.highways.{layer}.{name}" for layer in range(2) for name in ("carry", "transform")}
LINEARS.add("char_encoder.projection")


def batch() -> dict[str, torch.Tensor]:
    return dict(ElmoTokenizer(word_splitting="whitespace")(SENTENCES, padding=True, return_tensors="pt"))


def quantize_dynamic(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in favor of torchao
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def quantize_torchao(model: nn.Module) -> nn.Module:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return model


QUANTIZERS = {"torch.ao": quantize_dynamic, "torchao": quantize_torchao}


def with_rounded_weights(quantized: nn.Module, plain: nn.Module) -> nn.Module:
    """The plain model with the values that the quantized one stands for."""
    for name, module in quantized.named_modules():
        weight = getattr(module, "weight", None)
        weight = weight() if callable(weight) else weight
        if weight is not None and (weight.is_quantized or hasattr(weight, "__tensor_flatten__")):
            plain.get_submodule(name).weight.data.copy_(weight.dequantize())
    return plain


@torch.no_grad()
def test_quantize_dynamic_converts_each_linear_layer() -> None:
    quantized = quantize_dynamic(make_new("no head"))
    converted = {name for name, module in quantized.named_modules() if "quantized.dynamic" in type(module).__module__}
    assert converted == LINEARS
    # A row of 8-bit weights is off by 1/255 of its range at most, activations of a batch too: a percent of a vector.
    with record() as chosen:
        found = quantized(**batch()).last_hidden_state
    assert "word-cache" not in {name for _, name in chosen}  # which would have read the weights past the layers
    expected = make_new("no head")(**batch()).last_hidden_state
    difference = (found - expected).norm() / expected.norm()
    assert 0 < difference < 0.02


@torch.no_grad()
def test_torchao_gives_what_its_rounded_weights_give() -> None:
    quantized = quantize_torchao(make_new("no head"))
    types = {name.removesuffix(".weight") for name, p in quantized.named_parameters() if type(p) is not nn.Parameter}
    assert types == LINEARS
    expected = with_rounded_weights(quantized, make_new("no head"))(**batch()).last_hidden_state
    torch.testing.assert_close(quantized(**batch()).last_hidden_state, expected, atol=1e-6, rtol=0)
    assert not torch.equal(expected, make_new("no head")(**batch()).last_hidden_state)


@pytest.mark.parametrize("name", ["no head", "crf", "language models"])
@torch.no_grad()
def test_a_checkpoint_is_quantized_as_it_is_loaded(tmp_path: Path, name: str) -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    make_new(name).save_pretrained(tmp_path / "plain")
    model_class = MODELS[name][0]
    settings = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    loaded = model_class.from_pretrained(tmp_path / "plain", quantization_config=settings)
    assert any(type(parameter) is not nn.Parameter for parameter in loaded.parameters())
    found, expected = (
        model(**batch()).to_tuple()[0] for model in (loaded, with_rounded_weights(loaded, make_new(name)))
    )
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    loaded.save_pretrained(tmp_path / "quantized")
    saved = model_class.from_pretrained(tmp_path / "quantized")
    torch.testing.assert_close(saved(**batch()).to_tuple()[0], found, atol=1e-6, rtol=0)


@pytest.mark.parametrize("quantize", QUANTIZERS.values(), ids=QUANTIZERS)
@torch.no_grad()
def test_the_loss_is_that_of_the_quantized_softmax(quantize) -> None:
    quantized, inputs = quantize(make_new("language models")), batch_of(ElmoTokenizer(), "language models")
    output = quantized(**inputs, output_logits=True)
    expected = [
        nn.functional.cross_entropy(logits.flatten(0, 1), inputs["labels"][:, :, n].flatten())
        for n, logits in enumerate((output.forward_logits, output.backward_logits))
    ]
    expected = [loss.item() for loss in expected]
    # Activations are quantized by the range of what is computed together, so a batch without its padding differs.
    bound = 1e-5 if quantize is quantize_torchao else 1e-3
    assert output.forward_loss.item() == pytest.approx(expected[0], abs=bound)
    assert output.backward_loss.item() == pytest.approx(expected[1], abs=bound)
    nll, _ = quantized.word_nll(**inputs)
    predicted = (inputs["labels"][:, :, 0] != -100).sum()
    assert (nll[:, :, 0].sum() / predicted).item() == pytest.approx(expected[0], abs=bound)


@pytest.mark.parametrize("quantize", QUANTIZERS.values(), ids=QUANTIZERS)
def test_a_sampled_softmax_needs_plain_weights(quantize) -> None:
    quantized = quantize(make_new("language models", num_sampled=7))
    with pytest.raises(ValueError, match="lm_head"):
        quantized.train()(**batch_of(ElmoTokenizer(), "language models"))
