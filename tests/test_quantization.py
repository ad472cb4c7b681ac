"""Weights quantized by torchao and torch.ao: what is converted, that nothing reads past it, how far it is off."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import TorchAoConfig

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from tests.heads import batch_of, make_new

LINEARS = {f"char_encoder.highways.{layer}.{name}" for layer in range(2) for name in ("carry", "transform")}
LINEARS.add("char_encoder.projection")


@torch.no_grad()
def test_quantize_dynamic_converts_each_linear_layer(tokenizer: ElmoTokenizer) -> None:
    inputs = batch_of(tokenizer, "no head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in favor of torchao
        quantized = torch.ao.quantization.quantize_dynamic(make_new("no head"), {nn.Linear}, dtype=torch.qint8)
    converted = {name for name, module in quantized.named_modules() if "quantized.dynamic" in type(module).__module__}
    assert converted == LINEARS
    # A row of 8-bit weights is off by 1/255 of its range at most, activations of a batch too: a percent of a vector.
    found, expected = (model(**inputs).last_hidden_state for model in (quantized, make_new("no head")))
    assert 0 < (found - expected).norm() / expected.norm() < 0.02


def test_a_checkpoint_is_quantized_as_it_is_loaded(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    """It gives what its rounded weights give, also saved and loaded again; its softmax is not sampled."""
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    inputs, plain = batch_of(tokenizer, "language models"), make_new("language models", num_sampled=7)
    plain.save_pretrained(tmp_path / "plain")
    settings = TorchAoConfig(quantization.Int8WeightOnlyConfig(), modules_to_not_convert=[])
    loaded = ElmoForPreTraining.from_pretrained(tmp_path / "plain", quantization_config=settings)
    before, found = plain(**inputs).loss, loaded(**inputs).loss
    rounded = {name: p for name, p in loaded.named_parameters() if type(p) is not nn.Parameter}
    assert "lm_head.weight" in rounded
    for name, parameter in rounded.items():
        plain.get_parameter(name).data.copy_(parameter.dequantize())
    torch.testing.assert_close(found, plain(**inputs).loss, atol=1e-5, rtol=0)
    assert found != before
    loaded.save_pretrained(tmp_path / "quantized")
    again = ElmoForPreTraining.from_pretrained(tmp_path / "quantized")
    torch.testing.assert_close(again(**inputs).loss, found, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="lm_head"):  # it would read the weights themselves
        loaded.train()(**inputs)
