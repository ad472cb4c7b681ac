"""PEFT's adapters on each kind of module: trained, saved, loaded and merged to the same numbers."""

from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoTokenizer
from tests.conftest import SENTENCES
from tests.heads import NO_DROPOUT, batch_of, make_new

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
# Each target with the model without a head, and the README's with the others.
CASES = [("no head", target) for target in TARGETS]
CASES += [(name, "as in the README") for name in ("pooled", "tagger", "language models")]


def make(name: str, **changes: object) -> torch.nn.Module:
    return make_new(name, freeze_bilm=False, **NO_DROPOUT, **changes)


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


@pytest.mark.parametrize(("name", "target"), CASES)
def test_an_adapter_is_trained_saved_and_merged(tmp_path: Path, name: str, target: str) -> None:
    before = outputs(make(name))
    model = peft.get_peft_model(make(name), peft.LoraConfig(r=2, **TARGETS[target])).eval()
    for found, expected in zip(outputs(model), before, strict=True):  # a new adapter changes nothing
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    after = outputs(trained(model))
    assert all((found - expected).abs().max() > 1e-5 for found, expected in zip(after, before, strict=True))
    model.save_pretrained(tmp_path)
    loaded = outputs(peft.PeftModel.from_pretrained(make(name), tmp_path).eval())
    merged = outputs(model.merge_and_unload())
    for expected, *others in zip(after, loaded, merged, strict=True):
        for other in others:
            torch.testing.assert_close(other, expected, atol=1e-5, rtol=1e-5)


def test_the_loss_is_that_of_the_adapted_softmax() -> None:
    inputs = batch_of(ElmoTokenizer(), "language models")
    model = make("language models", num_sampled=7)
    expected = model(**inputs).loss
    model = trained(peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["lm_head"])).eval())
    with pytest.raises(ValueError, match="lm_head"):  # a sampled softmax would read its weights, not the adapter's
        model.train()(**inputs)
    adapted = model.eval()(**inputs).loss
    torch.testing.assert_close(adapted, model.merge_and_unload()(**inputs).loss)
    assert (adapted - expected).abs() > 1e-4
