"""Learning rates for parts of a model, as Trainer uses them."""

import torch
from transformers import TrainingArguments

from hf_elmo import learning_rates
from tests import heads

TRAINED = {**heads.VECTORS, "freeze_bilm": False}


def part(name: str) -> str:
    if "mix" in name:
        return "mix"
    return "bilm" if name.startswith("elmo.") else "word_vectors" if "word_vectors" in name else "head"


def test_each_parameter_is_in_one_group_with_its_rate_and_decay() -> None:
    """Also where the head is a part of another network."""
    model = torch.nn.ModuleDict({"tagger": heads.make("last", **TRAINED), "more": torch.nn.Linear(2, 2)})
    rates = {"bilm": 1e-4, "mix": 0.01, "word_vectors": 0.1}
    settings = TrainingArguments(weight_decay=0.3, learning_rate=0.5, use_cpu=True)
    optimizer, options = learning_rates(model, settings, **rates)
    assert optimizer is torch.optim.AdamW
    found = {p: (group["lr"], group["weight_decay"]) for group in options["params"] for p in group["params"]}
    assert sum(len(group["params"]) for group in options["params"]) == len(found)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert found.keys() == set(trained.values())
    for name, parameter in trained.items():
        name = name.removeprefix("tagger.")
        decay = 0.3 if parameter.dim() > 1 and part(name) != "mix" else 0.0
        assert found[parameter] == ({**rates, "head": 0.5}[part(name)], decay), name
