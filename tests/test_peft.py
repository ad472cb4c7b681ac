"""PEFT's adapters: trained, saved, loaded and merged to the same numbers."""

from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoTokenizer
from tests.heads import HEADS, NO_DROPOUT, VECTORS, batch_of, make_new, tensors_of, without_labels

peft = pytest.importorskip("peft", reason="peft is not installed")

LINEAR = ["carry", "transform", "projection"]
RECURRENT = [f"lstm.weight_{part}{suffix}" for part in ("ih", "hh", "hr") for suffix in ("", "_reverse")]
LSTM = {"target_modules": LINEAR, "target_parameters": RECURRENT}
CHARACTERS = {"target_modules": r".*convolutions\.\d+|.*embedding|.*projection"}
TASKS = {  # of each head, the type of PEFT's tasks, fields of its configuration, and what adapters are for
    "last": ("SEQ_CLS", {"classifier_hidden_size": 9}, LSTM),
    "biattentive": ("SEQ_CLS", {"elmo_at_output": True}, CHARACTERS),
    "tagger": ("TOKEN_CLS", {"encoder_type": "bilstm", "encoder_hidden_size": 7, "tagging_crf": True}, LSTM),
    "roles": ("TOKEN_CLS", {}, {"target_modules": LINEAR}),
    "no answer": ("QUESTION_ANS", {}, {"target_modules": LINEAR}),
    "resolver 2018": (None, {}, {"target_modules": LINEAR}),
}


@pytest.mark.parametrize("name", TASKS)
def test_adapters_and_all_of_a_head_are_trained_and_saved(tmp_path: Path, name: str) -> None:
    """By PEFT's defaults for the task. Loaded into another new head on the same biLM, they predict the same."""
    task, fields, targets = TASKS[name]
    make_new(name).elmo.save_pretrained(tmp_path / "bilm")
    model_class, own_fields = HEADS[name]
    fields = {**own_fields, **VECTORS, **fields, **NO_DROPOUT}
    batch = batch_of(ElmoTokenizer("whitespace"), name, words=True)
    inputs = without_labels(batch)
    config = peft.LoraConfig(task_type=task, r=2, modules_to_save=None if task else ["classifier"], **targets)
    base = model_class.from_pretrained(tmp_path / "bilm", **fields)
    head, expected = {key for key, _ in base.head.named_parameters()}, tensors_of(base(**inputs))
    model = peft.get_peft_model(base, config)
    # A new adapter changes nothing.
    torch.testing.assert_close(tensors_of(model.eval()(**inputs)), expected, atol=1e-6, rtol=0)
    trained = {key: parameter for key, parameter in model.train().named_parameters() if parameter.requires_grad}
    before = {key: value.detach().clone() for key, value in trained.items()}
    optimizer = torch.optim.Adam(trained.values(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    assert not [key for key, value in trained.items() if "lora" in key and torch.equal(value, before[key])]
    changed = {key for key, value in trained.items() if not torch.equal(value, before[key])}
    names = {key.partition(f".{base.head_name}.")[2].replace("modules_to_save.default.", "") for key in changed}
    assert {key for key in head - names if not key.endswith(("scores.bias", "attention.bias"))} == set()
    model.eval().save_pretrained(tmp_path / "adapter")
    torch.manual_seed(7)
    fresh = model_class.from_pretrained(tmp_path / "bilm", **fields)
    loaded = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    expected = tensors_of(model(**inputs))
    torch.testing.assert_close(tensors_of(loaded(**inputs)), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(tensors_of(loaded.merge_and_unload()(**inputs)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_adapters_of_recurrent_weights_with_gradient_checkpointing(reentrant: bool) -> None:
    batch, gradients = batch_of(ElmoTokenizer("whitespace"), "pooled"), []
    for checkpointing in (False, True):
        base = make_new("pooled", **NO_DROPOUT)
        model = peft.get_peft_model(base, peft.LoraConfig(r=2, init_lora_weights=False, **LSTM)).double().train()
        if checkpointing:
            base.gradient_checkpointing_enable({"use_reentrant": reentrant})
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        torch.manual_seed(0)
        for parameter in trained.values():
            torch.nn.init.normal_(parameter)
        model(**batch).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in trained.items()})
    torch.testing.assert_close(*gradients)


def test_a_sampled_softmax_does_not_pass_by_its_adapter() -> None:
    inputs = batch_of(ElmoTokenizer(), "language models")
    config = peft.LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False)
    model = peft.get_peft_model(make_new("language models", freeze_bilm=False, num_sampled=7), config)
    with pytest.raises(ValueError, match="lm_head"):  # it would read the weights of the head, not the adapter's
        model.train()(**inputs)
    adapted = model.eval()(**inputs).loss
    torch.testing.assert_close(adapted, model.merge_and_unload()(**inputs).loss)
