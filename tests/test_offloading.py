"""accelerate's hooks: weights that are on the disk or elsewhere until a module is called give the plain numbers."""

from pathlib import Path

import accelerate
import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model

from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    embed,
)
from hf_elmo.modeling_pretraining_elmo import neighbor_labels

from .conftest import SENTENCES, TINY

ACCELERATE = tuple(map(int, accelerate.__version__.split(".")[:2]))
CLASSES = [ElmoModel, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoForPreTraining]
PARTS = ["char_encoder", "bilm.forward_layers.0", "bilm.forward_layers.1", "bilm.backward_layers", "scalar_mix"]


def make(model_class: type) -> torch.nn.Module:
    torch.manual_seed(0)
    return model_class(ElmoConfig(**TINY, vocab_size=23)).eval()


def device_map(model_class: type, offloaded: set[int], place: str = "disk") -> dict[str, str]:
    prefix = "" if model_class is ElmoModel else "elmo."
    parts = {f"{prefix}{part}": place if n in offloaded else "cpu" for n, part in enumerate(PARTS)}
    heads = [name for name, _ in make(model_class).named_children() if name not in ("elmo", "char_encoder", "bilm")]
    return parts | {f"{prefix}bilm.dropout": "cpu"} | {name: place for name in heads if name != "scalar_mix"}


WAYS = {
    "cpu_offload": lambda model, folder: cpu_offload(model, execution_device=torch.device("cpu")),
    "disk_offload": lambda model, folder: disk_offload(model, folder, execution_device=torch.device("cpu")),
    "dispatch_model": lambda model, folder: dispatch_model(
        model, device_map(type(model), {0, 2, 3}), main_device="cpu", offload_dir=folder
    ),
    "hooks only": lambda model, folder: dispatch_model(
        model, device_map(type(model), set(), "cpu"), main_device="cpu", force_hooks=True
    ),
    "from_pretrained": lambda model, folder: saved(model, folder, device_map(type(model), {0, 1, 4})),
    "everything on the disk": lambda model, folder: saved(model, folder, {"": "disk"}),
    "auto": lambda model, folder: saved(model, folder, "auto", max_memory={"cpu": 9000}),
}


def saved(model: torch.nn.Module, folder: Path, where: object, **settings: object) -> torch.nn.Module:
    model.save_pretrained(folder / "checkpoint")
    return type(model).from_pretrained(
        folder / "checkpoint", device_map=where, offload_folder=folder / "offloaded", **settings
    )


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("model_class", CLASSES)
@torch.no_grad()
def test_offloaded_weights_give_the_plain_numbers(tmp_path: Path, model_class: type, way) -> None:
    if way in (WAYS["everything on the disk"], WAYS["auto"]) and ACCELERATE < (1, 15):
        pytest.skip("accelerate before 1.15 refuses to put all of a model on the disk")
    inputs = dict(ElmoTokenizer(word_splitting="whitespace")(SENTENCES, padding=True, return_tensors="pt"))
    model = way(make(model_class), tmp_path)
    called = sum("forward" in vars(module) for module in model.modules())
    assert called >= 5  # accelerate has put itself in front of the modules
    if model_class is ElmoForPreTraining:
        word_ids = torch.randint(3, 23, inputs["attention_mask"].shape, generator=torch.Generator().manual_seed(1))
        inputs |= {"labels": neighbor_labels(word_ids, inputs["attention_mask"]), "output_logits": True}
    expected = make(model_class)(**inputs, output_hidden_states=True)
    found = model(**inputs, output_hidden_states=True)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=0)


def test_what_reads_weights_beside_the_model_refuses_offloaded_ones(tmp_path: Path) -> None:
    model = disk_offload(make(ElmoModel), tmp_path, execution_device=torch.device("cpu"))
    with pytest.raises(ValueError, match="offloaded"):
        embed(model, SENTENCES, tokenizer=ElmoTokenizer())


def test_a_sampled_softmax_refuses_an_offloaded_head(tmp_path: Path) -> None:
    model = ElmoForPreTraining(ElmoConfig(**TINY, vocab_size=23, num_sampled=7))
    model = disk_offload(model, tmp_path, execution_device=torch.device("cpu")).train()
    inputs = dict(ElmoTokenizer()(SENTENCES, padding=True, return_tensors="pt"))
    labels = neighbor_labels(torch.full_like(inputs["attention_mask"], 5), inputs["attention_mask"])
    with pytest.raises(ValueError, match=r"sampled softmax reads the weights of lm_head.*offloading"):
        model(**inputs, labels=labels)
