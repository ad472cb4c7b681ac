"""accelerate's hooks: weights that are loaded when a module is called give the same numbers."""

from pathlib import Path

import accelerate
import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model

from hf_elmo import ElmoModel, ElmoTokenClassificationPipeline, ElmoTokenizer
from tests.conftest import SENTENCES
from tests.heads import MODELS, VECTORS, assert_same_outputs, batch_of, make, tensors_of

ACCELERATE = tuple(map(int, accelerate.__version__.split(".")[:2]))
PARTS = ["char_encoder", "bilm.forward_layers.0", "bilm.forward_layers.1", "bilm.backward_layers", "scalar_mix"]


def device_map(model: torch.nn.Module, offloaded: set[int], place: str = "disk") -> dict[str, str]:
    prefix = "" if isinstance(model, ElmoModel) else "elmo."
    parts = {f"{prefix}{part}": place if n in offloaded else "cpu" for n, part in enumerate(PARTS)}
    heads = [name for name, _ in model.named_children() if name not in ("elmo", "char_encoder", "bilm")]
    rest = [f"{prefix}bilm.{name}" for name, _ in ElmoModel(model.config).bilm.named_children() if "layers" not in name]
    return parts | dict.fromkeys(rest, "cpu") | {name: place for name in heads if name != "scalar_mix"}


WAYS = {
    "cpu_offload": lambda model, folder: cpu_offload(model, execution_device=torch.device("cpu")),
    "disk_offload": lambda model, folder: disk_offload(model, folder, execution_device=torch.device("cpu")),
    "dispatch_model": lambda model, folder: dispatch_model(
        model, device_map(model, {0, 2, 3}), main_device="cpu", offload_dir=folder
    ),
    "hooks only": lambda model, folder: dispatch_model(
        model, device_map(model, set(), "cpu"), main_device="cpu", force_hooks=True
    ),
    "from_pretrained": lambda model, folder: saved(model, folder, device_map(model, {0, 1, 4})),
    "everything on the disk": lambda model, folder: saved(model, folder, {"": "disk"}),
    "auto": lambda model, folder: saved(model, folder, "auto", max_memory={"cpu": 9000}),
}


def saved(model: torch.nn.Module, folder: Path, where: object, **settings: object) -> torch.nn.Module:
    model.save_pretrained(folder / "checkpoint")
    return type(model).from_pretrained(
        folder / "checkpoint", device_map=where, offload_folder=folder / "offloaded", **settings
    )


# Each head in one way, each way with the model without a head and with word vectors and two mixes.
CASES = [(name, "disk_offload") for name in MODELS] + [(name, way) for name in ("no head", "crf") for way in WAYS]


@pytest.mark.parametrize(("name", "way"), dict.fromkeys(CASES))
@torch.no_grad()
def test_offloaded_weights_give_the_same_numbers(tmp_path: Path, tokenizer: ElmoTokenizer, name: str, way: str) -> None:
    if way in ("everything on the disk", "auto") and ACCELERATE < (1, 15):
        pytest.skip("accelerate before 1.15 cannot put all of a model on the disk")
    words = VECTORS if name in ("crf", "resolver 2018") else {}
    batch = batch_of(tokenizer, name, words=bool(words))
    expected = tensors_of(make(name, **words)(**batch))
    model = WAYS[way](make(name, **words), tmp_path)
    assert sum("forward" in vars(module) for module in model.modules()) >= 5  # accelerate replaces `forward`
    assert_same_outputs(tensors_of(model(**batch)), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_probabilities_of_an_offloaded_crf(tmp_path: Path) -> None:
    tags = []
    for model in (make("crf"), saved(make("crf"), tmp_path, device_map(make("crf"), {1}))):
        tag = ElmoTokenClassificationPipeline(model=model, tokenizer=ElmoTokenizer())
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
    model = disk_offload(make("language models", num_sampled=7), tmp_path, execution_device=torch.device("cpu"))
    with pytest.raises(ValueError, match="lm_head"):
        model.train()(**batch_of(tokenizer, "language models"))
