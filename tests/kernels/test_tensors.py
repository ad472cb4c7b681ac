"""The cache of what is made from weights: used again while they are the same, and dropped when they are written."""

import copy
import gc
import pickle

import pytest
import torch

from hf_elmo import ElmoModel
from hf_elmo.kernels import clear_cache
from hf_elmo.kernels.tensors import cached_values, get_cached


class Maker:
    """Makes a sum of weights, and counts how often."""

    times = 0

    def of(self, *weights: torch.Tensor, name: str = "sum") -> torch.Tensor:
        return get_cached(weights, name, lambda: self.make(weights))

    def make(self, weights: tuple[torch.Tensor, ...]) -> torch.Tensor:
        self.times += 1
        return sum(weight.detach().double().sum() for weight in weights)


maker = pytest.fixture(lambda: Maker())
# Writes that are noticed: counted by PyTorch, of the whole weight, or to a small weight.
CHANGES = {
    "in place": lambda weight: weight.mul_(0.5),
    "through data": lambda weight: weight.data.mul_(0.5),
    "of a number": lambda weight: weight.data[2, 44].add_(1),
    "to an average": lambda weight: weight.data.lerp_(torch.randn(weight.shape).to(weight), 0.01),
    "to new data": lambda weight: setattr(weight, "data", weight.data * 0.5),
    "to another type": lambda weight: setattr(weight, "data", weight.data.to(torch.float64)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("which", [0, 1])
def test_a_write_is_noticed(maker, change, which, dtype):
    weights = [torch.randn(67, 45).to(dtype), torch.randn(3, 1021).to(dtype)]
    maker.of(*weights)
    assert maker.of(*weights) == maker.make(weights)
    assert maker.times == 2  # one of them is the line above
    change(weights[which])
    assert maker.of(*weights) == maker.make(weights)
    assert maker.times == 4


def test_nan_equals_itself_and_names_are_separate(maker):
    weight = torch.full((5, 7), torch.nan)
    for _ in range(2):
        maker.of(weight)
        maker.of(weight, name="another")
    assert maker.times == 2


def test_lives_as_long_as_the_weight_is_not_copied_and_can_be_cleared(maker):
    gc.collect()
    before, module = len(cached_values()), torch.nn.Linear(31, 17)
    maker.of(module.weight, module.bias)
    assert len(cached_values()) == before + 1
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert maker.of(copied.weight, copied.bias) == maker.of(module.weight, module.bias)
    clear_cache(module)
    assert len(cached_values()) == before + 1  # of the last copy
    assert maker.of(module.weight, module.bias) == maker.make((module.weight, module.bias))
    del module, copied
    gc.collect()
    assert len(cached_values()) == before


def test_a_model_in_use_follows_its_training(model: ElmoModel, tokenizer):
    """Inference, a step of an optimizer, inference, other weights, inference: as a model that has never run."""
    batch = tokenizer(["the cat sat"] * 9, return_tensors="pt")
    other = copy.deepcopy(model).state_dict()

    @torch.no_grad()
    def vectors(of: ElmoModel) -> torch.Tensor:
        return of.eval()(**batch).last_hidden_state

    before = vectors(model)
    model.freeze_bilm(False)
    optimizer = torch.optim.AdamW(model.train().parameters(), 0.1)
    model(**batch).last_hidden_state.square().sum().backward()
    optimizer.step()
    assert not torch.allclose(vectors(model), before, atol=1e-3)
    assert torch.equal(vectors(model), vectors(copy.deepcopy(model)))
    model.load_state_dict(other)
    assert torch.equal(vectors(model), before)
    assert vectors(model.double()).dtype == torch.float64
