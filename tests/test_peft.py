"""PEFT's adapters: trained, saved, loaded and merged to the same numbers."""

from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoTokenizer
from tests.heads import (
    HEADS,
    NO_DROPOUT,
    VECTORS,
    assert_same_outputs,
    batch_of,
    make_new,
    tensors_of,
    without_labels,
)

peft = pytest.importorskip("peft", reason="peft is not installed")

LINEAR = ["carry", "transform", "projection"]
CASES = {
    "tagger": {"target_modules": LINEAR, "target_parameters": ["weight_ih", "weight_hh", "weight_hr"]},
    "pooled": {"target_modules": r".*convolutions\.\d+|.*embedding|.*out_proj"},
}


def make(name: str, **changes: object) -> torch.nn.Module:
    return make_new(name, freeze_bilm=False, **NO_DROPOUT, **changes)


def results(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return [x for x in model(**inputs).to_tuple()[:2] if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("name", CASES)
def test_an_adapter_is_trained_saved_and_merged(tmp_path: Path, name: str) -> None:
    inputs = without_labels(batch_of(ElmoTokenizer("whitespace"), name))
    before = results(make(name), inputs)
    model = peft.get_peft_model(make(name), peft.LoraConfig(r=2, **CASES[name])).eval()
    torch.testing.assert_close(results(model, inputs), before, atol=1e-6, rtol=0)  # a new adapter changes nothing
    optimizer = torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        sum(x.square().mean() for x in results(model, inputs)).backward()
        optimizer.step()
    assert not [
        name for name, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())
    ]
    after = results(model, inputs)
    assert all((found - expected).abs().max() > 1e-5 for found, expected in zip(after, before, strict=True))
    model.save_pretrained(tmp_path)
    for other in (peft.PeftModel.from_pretrained(make(name), tmp_path).eval(), model.merge_and_unload()):
        torch.testing.assert_close(results(other, inputs), after, atol=1e-5, rtol=1e-5)


TASKS = {  # of each head, the type of PEFT's tasks, and fields of its configuration
    "last": ("SEQ_CLS", {"classifier_hidden_size": 9}),
    "biattentive": ("SEQ_CLS", {"elmo_at_output": True}),
    "tagger": ("TOKEN_CLS", {"encoder_type": "bilstm", "encoder_hidden_size": 7, "tagging_crf": True}),
    "roles": ("TOKEN_CLS", {}),
    "no answer": ("QUESTION_ANS", {}),
    "resolver 2018": (None, {}),
}


@pytest.mark.parametrize("name", TASKS)
def test_all_of_a_head_is_trained_and_saved(tmp_path: Path, name: str) -> None:
    """By PEFT's defaults for the task. Loaded into another new head on the same biLM, it predicts the same."""
    task, fields = TASKS[name]
    make_new(name).elmo.save_pretrained(tmp_path / "bilm")
    model_class, own_fields = HEADS[name]
    fields = {**own_fields, **VECTORS, **fields, **NO_DROPOUT}
    batch = batch_of(ElmoTokenizer("whitespace"), name, words=True)
    modules = None if task else ["classifier"]
    config = peft.LoraConfig(task_type=task, r=2, target_modules=LINEAR, modules_to_save=modules)
    base = model_class.from_pretrained(tmp_path / "bilm", **fields)
    head = {key for key, _ in base.head.named_parameters()}
    model = peft.get_peft_model(base, config).train()
    optimizer = torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.05)
    before = {key: value.clone() for key, value in model.named_parameters()}
    for _ in range(3):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    changed = {key for key, value in model.named_parameters() if not torch.equal(value, before[key])}
    names = {key.partition(f".{base.head_name}.")[2].replace("modules_to_save.default.", "") for key in changed}
    assert {key for key in head - names if not key.endswith(("scores.bias", "attention.bias"))} == set()
    model.eval().save_pretrained(tmp_path / "adapter")
    torch.manual_seed(7)
    fresh = model_class.from_pretrained(tmp_path / "bilm", **fields)
    loaded = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    inputs = without_labels(batch)
    expected = tensors_of(model(**inputs))
    assert_same_outputs(tensors_of(loaded(**inputs)), expected, atol=1e-6, rtol=1e-5)
    assert_same_outputs(tensors_of(loaded.merge_and_unload()(**inputs)), expected, atol=1e-5, rtol=1e-5)


def test_a_sampled_softmax_does_not_pass_by_its_adapter() -> None:
    inputs = batch_of(ElmoTokenizer(), "language models")
    model = peft.get_peft_model(
        make("language models", num_sampled=7),
        peft.LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False),
    )
    with pytest.raises(ValueError, match="lm_head"):  # it would read the weights of the head, not the adapter's
        model.train()(**inputs)
    adapted = model.eval()(**inputs).loss
    torch.testing.assert_close(adapted, model.merge_and_unload()(**inputs).loss)
