"""Weights quantized by torchao: what is converted, and that nothing reads past it."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import TorchAoConfig

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from tests.heads import batch_of, make_new


def test_a_checkpoint_is_quantized_as_it_is_loaded(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    """It gives what its rounded weights give, also saved and loaded again; its softmax is not sampled."""
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    inputs, plain = batch_of(tokenizer, "language models"), make_new("language models", num_sampled=7)
    plain.save_pretrained(tmp_path / "plain")
    settings = TorchAoConfig(quantization.Int8WeightOnlyConfig(), modules_to_not_convert=[])
    loaded = ElmoForPreTraining.from_pretrained(tmp_path / "plain", quantization_config=settings)
    before, found = plain(**inputs).loss, loaded(**inputs).loss
    rounded = {name: p for name, p in loaded.named_parameters() if type(p) is not nn.Parameter}
    linears = {f"char_encoder.highways.{layer}.{name}" for layer in range(2) for name in ("carry", "transform")}
    assert {"lm_head.weight", *(f"elmo.{name}.weight" for name in linears | {"char_encoder.projection"})} <= set(
        rounded
    )
    for name, parameter in rounded.items():
        plain.get_parameter(name).data.copy_(parameter.dequantize())
    torch.testing.assert_close(found, plain(**inputs).loss, atol=1e-5, rtol=0)
    assert found != before
    loaded.save_pretrained(tmp_path / "quantized")
    again = ElmoForPreTraining.from_pretrained(tmp_path / "quantized")
    torch.testing.assert_close(again(**inputs).loss, found, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="lm_head"):  # it would read the weights themselves
        loaded.train()(**inputs)
