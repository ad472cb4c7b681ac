"""Weights that accelerate loads when a module is called, and weights that torchao rounds."""

from pathlib import Path

import pytest
import torch
from accelerate import disk_offload
from transformers import TorchAoConfig

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from tests.heads import MODELS, batch_of, make, make_new, tensors_of


@torch.no_grad()
def test_offloaded_weights_give_the_same_numbers(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    batch, model = batch_of(tokenizer, "language models"), make("language models", num_sampled=7, settled_start=True)
    torch.nn.init.normal_(model.elmo.bilm.initial_cell)
    expected = tensors_of(model(**batch))
    disk_offload(model, tmp_path, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in model.parameters())
    torch.testing.assert_close(tensors_of(model(**batch)), expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="lm_head"):  # a sampled softmax needs the weights themselves
        model.train()(**batch)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_each_module_that_has_parameters_is_called(tokenizer: ElmoTokenizer, name: str) -> None:
    """So that the hooks of offloading, sharding and pruning run."""
    model, called = make(name), set()
    modules = {name: module for name, module in model.named_modules() if [*module.parameters()]}
    modules = {name: module for name, module in modules.items() if not isinstance(module, torch.nn.ModuleList)}
    for module_name, module in modules.items():
        module.register_forward_hook(lambda *_, name=module_name: called.add(name))
    model(**batch_of(tokenizer, name))
    # Heads and language models read the biLM's layers, by a method of the ElmoModel, and not its mix.
    assert modules.keys() - called == (set() if model.base_model is model else {"elmo", "elmo.scalar_mix"})


def test_a_checkpoint_is_quantized_as_it_is_loaded(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    """It gives what its rounded weights give, also saved and loaded again; its softmax is not sampled."""
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    inputs, plain = batch_of(tokenizer, "language models"), make_new("language models", num_sampled=7)
    plain.save_pretrained(tmp_path / "plain")
    settings = TorchAoConfig(quantization.Int8WeightOnlyConfig(), modules_to_not_convert=[])
    loaded = ElmoForPreTraining.from_pretrained(tmp_path / "plain", quantization_config=settings)
    before, found = plain(**inputs).loss, loaded(**inputs).loss
    rounded = {name: p for name, p in loaded.named_parameters() if type(p) is not torch.nn.Parameter}
    linears = ["projection", *(f"highways.{layer}.{name}" for layer in range(2) for name in ("carry", "transform"))]
    assert {"lm_head.weight", *(f"elmo.char_encoder.{name}.weight" for name in linears)} <= set(rounded)
    for name, parameter in rounded.items():
        plain.get_parameter(name).data.copy_(parameter.dequantize())
    torch.testing.assert_close(found, plain(**inputs).loss, atol=1e-5, rtol=0)
    assert found != before
    loaded.save_pretrained(tmp_path / "quantized")
    again = ElmoForPreTraining.from_pretrained(tmp_path / "quantized")
    torch.testing.assert_close(again(**inputs).loss, found, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="lm_head"):  # it would read the weights themselves
        loaded.train()(**inputs)
