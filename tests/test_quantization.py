"""Weights quantized by torchao and torch.ao: what is converted, that nothing reads past it, how far it is off."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import TorchAoConfig

from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    embed,
)
from hf_elmo.kernels import record
from hf_elmo.modeling_pretraining_elmo import neighbor_labels

from .conftest import SENTENCES, TINY

LINEARS = {f"char_encoder.highways.{layer}.{name}" for layer in range(2) for name in ("carry", "transform")}
LINEARS.add("char_encoder.projection")


def make(model_class: type = ElmoModel, **settings: object) -> torch.nn.Module:
    """A model of initial weights: none of its gates is at its limit, where a small error becomes a large one."""
    torch.manual_seed(0)
    return model_class(ElmoConfig(**{**TINY, "vocab_size": 23, **settings})).eval()


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
    quantized = quantize_dynamic(make())
    converted = {name for name, module in quantized.named_modules() if "quantized.dynamic" in type(module).__module__}
    assert converted == LINEARS
    # A row of 8-bit weights is off by 1/255 of its range at most, activations of a batch too: a percent of a vector.
    with record() as chosen:
        found = quantized(**batch()).last_hidden_state
    assert "word-cache" not in {name for _, name in chosen}  # which would have read the weights past the layers
    expected = make()(**batch()).last_hidden_state
    difference = (found - expected).norm() / expected.norm()
    assert 0 < difference < 0.02


@torch.no_grad()
def test_torchao_gives_what_its_rounded_weights_give() -> None:
    quantized = quantize_torchao(make())
    types = {name.removesuffix(".weight") for name, p in quantized.named_parameters() if type(p) is not nn.Parameter}
    assert types == LINEARS
    expected = with_rounded_weights(quantized, make())(**batch()).last_hidden_state
    torch.testing.assert_close(quantized(**batch()).last_hidden_state, expected, atol=1e-6, rtol=0)
    assert not torch.equal(expected, make()(**batch()).last_hidden_state)


@pytest.mark.parametrize(
    "model_class", [ElmoModel, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoForPreTraining]
)
@torch.no_grad()
def test_a_checkpoint_is_quantized_as_it_is_loaded(tmp_path: Path, model_class: type) -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    make(model_class).save_pretrained(tmp_path / "plain")
    settings = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    loaded = model_class.from_pretrained(tmp_path / "plain", quantization_config=settings)
    assert any(type(parameter) is not nn.Parameter for parameter in loaded.parameters())
    found, expected = (
        model(**batch()).to_tuple()[0] for model in (loaded, with_rounded_weights(loaded, make(model_class)))
    )
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    loaded.save_pretrained(tmp_path / "quantized")
    again = model_class.from_pretrained(tmp_path / "quantized")
    torch.testing.assert_close(again(**batch()).to_tuple()[0], found, atol=1e-6, rtol=0)


@pytest.mark.parametrize("quantize", QUANTIZERS.values(), ids=QUANTIZERS)
@torch.no_grad()
def test_the_loss_is_that_of_the_quantized_softmax(quantize) -> None:
    quantized, inputs = quantize(make(ElmoForPreTraining)), batch()
    word_ids = torch.randint(3, 23, inputs["attention_mask"].shape, generator=torch.Generator().manual_seed(1))
    inputs["labels"] = neighbor_labels(word_ids, inputs["attention_mask"])
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
def test_what_reads_the_softmax_weights_is_refused(quantize) -> None:
    quantized = quantize(make(ElmoForPreTraining, num_sampled=7))
    inputs = batch()
    labels = neighbor_labels(torch.full_like(inputs["attention_mask"], 5), inputs["attention_mask"])
    with pytest.raises(ValueError, match=r"sampled softmax reads the weights of lm_head.*num_sampled = vocab_size"):
        quantized.train()(**inputs, labels=labels)
    with pytest.raises(ValueError, match="change_vocabulary reads the weights of lm_head"):
        quantized.change_vocabulary([0, 1, 2])


@pytest.mark.parametrize("quantize", QUANTIZERS.values(), ids=QUANTIZERS)
def test_a_corpus_is_embedded_with_a_quantized_model(tmp_path: Path, quantize) -> None:
    quantized, tokenizer = quantize(make()), ElmoTokenizer(word_splitting="whitespace")
    vectors = embed(quantized, SENTENCES, tokenizer=tokenizer)
    plain = embed(make(), SENTENCES, tokenizer=tokenizer)
    for found, expected in zip(vectors, plain, strict=True):
        assert 0 < np.linalg.norm(found - expected) / np.linalg.norm(expected) < 0.02
    written = embed(quantized, SENTENCES, tmp_path / "out.safetensors", tokenizer=tokenizer)
    assert written.rows == len(SENTENCES)
