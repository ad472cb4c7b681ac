"""Weights quantized by torchao and torch.ao: what is converted, that nothing reads past it, how far it is off."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import TorchAoConfig

from hf_elmo import ElmoTokenizer
from tests.heads import MODELS, batch_of, make_new

LINEARS = {f"char_encoder.highways.{layer}.{name}" for layer in range(2) for name in ("carry", "transform")}
LINEARS.add("char_encoder.projection")


def with_rounded_weights(quantized: nn.Module, plain: nn.Module) -> nn.Module:
    """The plain model with the values that the quantized one stands for."""
    for name, parameter in quantized.named_parameters():
        if type(parameter) is not nn.Parameter:
            plain.get_parameter(name).data.copy_(parameter.dequantize())
    return plain


@torch.no_grad()
def test_quantize_dynamic_converts_each_linear_layer() -> None:
    inputs = batch_of(ElmoTokenizer("whitespace"), "no head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in favor of torchao
        quantized = torch.ao.quantization.quantize_dynamic(make_new("no head"), {nn.Linear}, dtype=torch.qint8)
    converted = {name for name, module in quantized.named_modules() if "quantized.dynamic" in type(module).__module__}
    assert converted == LINEARS
    # A row of 8-bit weights is off by 1/255 of its range at most, activations of a batch too: a percent of a vector.
    found, expected = (model(**inputs).last_hidden_state for model in (quantized, make_new("no head")))
    assert 0 < (found - expected).norm() / expected.norm() < 0.02


@pytest.mark.parametrize("name", ["no head", "language models"])
def test_a_checkpoint_is_quantized_as_it_is_loaded(tmp_path: Path, name: str) -> None:
    """It gives what its rounded weights give, the loss included, also after it is saved and loaded again."""
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    inputs = batch_of(ElmoTokenizer("whitespace"), name)
    make_new(name).save_pretrained(tmp_path / "plain")
    settings = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    loaded = MODELS[name][0].from_pretrained(tmp_path / "plain", quantization_config=settings)
    assert any(type(parameter) is not nn.Parameter for parameter in loaded.parameters())
    plain = make_new(name)
    before = plain(**inputs).to_tuple()[0].detach()
    found, expected = (m(**inputs).to_tuple() for m in (loaded, with_rounded_weights(loaded, plain)))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert not torch.equal(found[0], before)
    loaded.save_pretrained(tmp_path / "quantized")
    again = MODELS[name][0].from_pretrained(tmp_path / "quantized")
    torch.testing.assert_close(again(**inputs).to_tuple(), found, atol=1e-6, rtol=0)


def test_a_quantized_softmax_has_its_own_loss_and_is_not_sampled() -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    inputs, model = batch_of(ElmoTokenizer("whitespace"), "language models"), make_new("language models", num_sampled=7)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig(), lambda module, _: module is model.lm_head)
    found, expected = (m(**inputs).loss for m in (model, with_rounded_weights(model, make_new("language models"))))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="lm_head"):  # it would read the weights themselves
        model.train()(**inputs)
