"""accelerate's hooks: weights that are loaded when a module is called give the same numbers."""

from pathlib import Path

import pytest
import torch
from accelerate import cpu_offload, disk_offload

from hf_elmo import ElmoForTokenClassification, ElmoTokenClassificationPipeline, ElmoTokenizer
from tests.factories import SENTENCES
from tests.heads import MODELS, assert_same_outputs, batch_of, make, tensors_of

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["no head", "language models", "resolver 2018"])
@torch.no_grad()
def test_offloaded_weights_give_the_same_numbers(tmp_path: Path, tokenizer: ElmoTokenizer, name: str) -> None:
    batch = batch_of(tokenizer, name)
    expected = tensors_of(make(name)(**batch))
    model = make(name)
    if name == "no head":
        cpu_offload(model, execution_device=CPU)
    else:
        disk_offload(model, tmp_path, execution_device=CPU)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert_same_outputs(tensors_of(model(**batch)), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_pipeline_on_a_model_of_which_parts_are_on_the_disk(tmp_path: Path) -> None:
    model = make("crf")
    model.save_pretrained(tmp_path / "checkpoint")
    places = {f"elmo.{name}": "disk" if name == "bilm" else "cpu" for name, _ in model.elmo.named_children()}
    places |= {name: "disk" for name, _ in model.named_children() if name != "elmo"}
    offloaded = ElmoForTokenClassification.from_pretrained(
        tmp_path / "checkpoint", device_map=places, offload_folder=tmp_path / "offloaded"
    )
    assert offloaded.classifier.weight.is_meta
    tags = []
    for each in (model, offloaded):
        tag = ElmoTokenClassificationPipeline(model=each, tokenizer=ElmoTokenizer())
        tags.append([one for found in tag(SENTENCES, ignore_labels=[]) for one in found])
    for expected, found in zip(*tags, strict=True):
        assert found["entity"] == expected["entity"]
        assert found["score"] == pytest.approx(expected["score"], abs=1e-5)  # other kernels compute it


# Language models read the layers of the biLM and not their mix, by a method of the ElmoModel.
NEVER_CALLED = {"language models": {"elmo", "elmo.scalar_mix"}}


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
    assert modules.keys() - called == NEVER_CALLED.get(name, set())


def test_a_sampled_softmax_needs_the_weights_of_its_head(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    model = disk_offload(make("language models", num_sampled=7), tmp_path, execution_device=CPU)
    with pytest.raises(ValueError, match="lm_head"):
        model.train()(**batch_of(tokenizer, "language models"))
