"""PEFT's adapters: trained, saved, loaded and merged to the same numbers."""

from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoTokenizer
from tests.heads import NO_DROPOUT, batch_of, make_new, without_labels

peft = pytest.importorskip("peft", reason="peft is not installed")

LINEAR = ["carry", "transform", "projection"]
CASES = {
    "tagger": {"target_modules": LINEAR, "target_parameters": ["weight_ih", "weight_hh", "weight_hr"]},
    "pooled": {"target_modules": r".*convolutions\.\d+|.*embedding|classifier"},
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
