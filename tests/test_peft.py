"""PEFT's adapters on each kind of module: trained, saved, loaded and merged to the same numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch

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

peft = pytest.importorskip("peft", reason="peft is not installed")

LSTM = ["weight_ih", "weight_hh", "weight_hr"]
TARGETS = {
    "linear layers": {"target_modules": ["carry", "transform", "projection"]},
    "all-linear": {"target_modules": "all-linear"},
    "convolutions": {"target_modules": r".*convolutions\.\d+"},
    "embedding": {"target_modules": ["embedding"]},
    "one weight of the LSTM": {"target_modules": [], "target_parameters": ["weight_ih"]},
    "all weights of the LSTM": {"target_modules": [], "target_parameters": LSTM},
    "as in the README": {"target_modules": ["carry", "transform", "projection"], "target_parameters": LSTM},
    "DoRA": {"target_modules": ["carry", "transform"], "use_dora": True},
}
CLASSES = [ElmoModel, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoForPreTraining]


def make(model_class: type = ElmoModel, **settings: object) -> torch.nn.Module:
    torch.manual_seed(0)
    settings = {"vocab_size": 23, "freeze_bilm": False, "classifier_dropout": 0.0, **settings}
    return model_class(ElmoConfig(**TINY, **settings)).eval()


def batch() -> dict[str, torch.Tensor]:
    return dict(ElmoTokenizer(word_splitting="whitespace")(SENTENCES, padding=True, return_tensors="pt"))


def outputs(model: torch.nn.Module) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return tuple(x for x in model(**batch()).to_tuple()[:2] if isinstance(x, torch.Tensor))


def trained(model: torch.nn.Module, steps: int = 3) -> torch.nn.Module:
    """The model after a few steps; in the last one every trainable parameter has a gradient."""
    optimizer = torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        sum(x.square().mean() for x in model(**batch()).to_tuple()[:2] if isinstance(x, torch.Tensor)).backward()
        optimizer.step()
    without = [name for name, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert not without
    return model


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("model_class", CLASSES)
def test_an_adapter_is_trained_saved_and_merged(tmp_path: Path, model_class: type, targets: dict) -> None:
    before = outputs(make(model_class))
    model = peft.get_peft_model(make(model_class), peft.LoraConfig(r=2, **targets)).eval()
    for found, expected in zip(outputs(model), before, strict=True):  # a new adapter changes nothing
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    after = outputs(trained(model))
    assert all((found - expected).abs().max() > 1e-5 for found, expected in zip(after, before, strict=True))
    model.save_pretrained(tmp_path)
    loaded = outputs(peft.PeftModel.from_pretrained(make(model_class), tmp_path).eval())
    merged = outputs(model.merge_and_unload())
    for expected, *others in zip(after, loaded, merged, strict=True):
        for other in others:
            torch.testing.assert_close(other, expected, atol=1e-5, rtol=1e-5)


def test_the_loss_is_that_of_the_adapted_softmax() -> None:
    model = peft.get_peft_model(make(ElmoForPreTraining), peft.LoraConfig(r=2, target_modules=["lm_head"])).eval()
    trained(model)
    inputs = batch()
    inputs["labels"] = neighbor_labels(torch.full_like(inputs["attention_mask"], 5), inputs["attention_mask"])
    with torch.no_grad():
        found = model(**inputs)
        expected = model.merge_and_unload()(**inputs)
    assert found.loss.item() == pytest.approx(expected.loss.item(), abs=1e-5)
    assert found.loss.item() != pytest.approx(make(ElmoForPreTraining)(**inputs).loss.item(), abs=1e-3)


def test_a_sampled_softmax_does_not_read_past_an_adapter() -> None:
    model = make(ElmoForPreTraining, num_sampled=7)
    model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["lm_head"])).train()
    inputs = batch()
    labels = neighbor_labels(torch.full_like(inputs["attention_mask"], 5), inputs["attention_mask"])
    with pytest.raises(ValueError, match="num_sampled = vocab_size"):
        model(**inputs, labels=labels)


def test_a_corpus_is_embedded_with_an_adapter() -> None:
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    model = trained(peft.get_peft_model(make(), peft.LoraConfig(r=2, **TARGETS["as in the README"])).eval())
    found = embed(model, SENTENCES, tokenizer=tokenizer)
    expected = embed(model.merge_and_unload(), SENTENCES, tokenizer=tokenizer)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_targets_in_the_readme_are_those_tested_here() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    assert 'target_modules=["carry", "transform", "projection"]' in readme
    assert 'target_parameters=["weight_ih", "weight_hh", "weight_hr"]' in readme
