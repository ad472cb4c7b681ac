"""accelerate's hooks: weights that are loaded when a module is called give the same numbers."""

from pathlib import Path

import pytest
import torch
from accelerate import disk_offload

from hf_elmo import ElmoTokenizer
from tests.heads import MODELS, batch_of, make, tensors_of


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
    modules = {name: module for name, module in model.named_modules() if any(True for _ in module.parameters())}
    modules = {name: module for name, module in modules.items() if not isinstance(module, torch.nn.ModuleList)}
    for module_name, module in modules.items():
        module.register_forward_hook(lambda *_, name=module_name: called.add(name))
    model(**batch_of(tokenizer, name))
    # Heads and language models read the biLM's layers, by a method of the ElmoModel, and not its mix.
    assert modules.keys() - called == (set() if model.base_model is model else {"elmo", "elmo.scalar_mix"})
