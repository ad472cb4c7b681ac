"""The cache of what is made from weights: used again while they are the same, and dropped when they are written."""

import copy
import gc
import pickle
from unittest.mock import Mock

import pytest
import torch
from torch.func import functional_call

from hf_elmo import ElmoModel, kernels
from hf_elmo.kernels import clear_cache
from hf_elmo.kernels.tensors import cached_values, get_cached
from tests.factories import small_config

# Writes that are noticed: counted by PyTorch, to other memory, or to a small weight.
CHANGES = {
    "in place": lambda weight: weight.mul_(0.5),
    "of a number": lambda weight: weight.data[2, 44].add_(1),
    "to new data": lambda weight: setattr(weight, "data", weight.data * 0.5),
    "to another type": lambda weight: setattr(weight, "data", weight.data.to(torch.float64)),
}


def total(*weights: torch.Tensor) -> torch.Tensor:
    return sum(weight.detach().double().sum() for weight in weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("which", [0, 1])
def test_a_write_is_noticed(change, which, dtype):
    weights = [torch.randn(67, 45).to(dtype), torch.randn(3, 1021).to(dtype)]
    make = Mock(side_effect=lambda: total(*weights))
    for times in (1, 2):
        for _ in range(2):
            assert get_cached(weights, "sum", make) == total(*weights)
        assert make.call_count == times
        change(weights[which])


def test_one_in_a_hundred_numbers_of_a_large_weight_and_what_was_written_beside_them():
    torch.manual_seed(0)
    weights, make = [torch.randn(1021, 517), torch.randn(517, 1021)], Mock()
    for times in (2, 4):
        for weight in weights:
            get_cached([weight], "sum", make)
        assert make.call_count == times
        weights[0].data.mul_(torch.rand(1021, 517) > 0.01)
        weights[1].data[44, 2] += 1  # not noticed by itself


def test_nan_equals_itself_and_names_are_separate():
    weight, make = torch.full((5, 7), torch.nan), Mock()
    for name in ("one", "another") * 2:
        get_cached([weight], name, make)
    assert make.call_count == 2


def test_lives_as_long_as_the_weight_is_not_copied_and_can_be_cleared():
    def assert_cached(module: torch.nn.Module) -> None:
        weights = module.weight, module.bias
        assert get_cached(weights, "sum", lambda: total(*weights)) == total(*weights)

    gc.collect()
    before, module = len(cached_values()), torch.nn.Linear(31, 17)
    assert_cached(module)
    assert len(cached_values()) == before + 1
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_cached(copied)
    clear_cache(module)
    assert len(cached_values()) == before + 1  # of the last copy
    del module, copied
    gc.collect()
    assert len(cached_values()) == before


def model_of_kernels() -> ElmoModel:
    """Of sizes that kernels compute, with weights of which few numbers are compared."""
    sizes = {"hidden_size": 256, "cell_size": 512, "char_filters": [[1, 32], [2, 480]]}
    return ElmoModel(small_config(**sizes, word_vocab_size=300, word_embedding_size=8, freeze_bilm=False)).eval()


def run(model: ElmoModel, **weights: torch.Tensor) -> torch.Tensor:
    return functional_call(model, weights, (torch.arange(510).view(2, 5, 51) % 261 + 1,)).last_hidden_state


# What is given to each call: a weight without a unit, with one number moved, or after an update.
GIVEN = {
    "ablation": lambda weight, step: weight.index_fill(0, torch.tensor([51 + step]), 0),
    "finite differences": lambda weight, step: weight.flatten().index_fill(0, torch.tensor([9999]), step),
    "meta-learning": lambda weight, step: weight - 0.1 * step * weight.sign(),
}


@pytest.mark.parametrize("change", GIVEN.values(), ids=GIVEN)
@torch.no_grad()
def test_a_functional_call_computes_with_the_weights_it_is_given(change):
    """Each call's weight is freed, so that the next one can have its address."""
    model = model_of_kernels()
    for part in ("highways.0.transform.weight", "projection.weight", "lstm.weight_hh", "lstm.weight_ih_reverse"):
        name, weight = next(named for named in model.named_parameters() if named[0].endswith(part))
        for step in range(6):
            given = {name: change(weight, step).view(weight.shape)}
            found = run(model, **given)
            with kernels.use("off"):
                torch.testing.assert_close(found, run(model, **given), rtol=0, atol=1e-5)
            del given


@torch.no_grad()
def test_nothing_keeps_the_memory_of_weights_that_share_a_storage_or_are_swapped(monkeypatch):
    gc.collect()
    before, model = len(cached_values()), model_of_kernels()
    parts = torch.nn.utils.parameters_to_vector(model.parameters()).split([x.numel() for x in model.parameters()])
    for parameter, part in zip(model.parameters(), parts, strict=True):
        parameter.data = part.view(parameter.shape)
    exact = run(model)
    assert len(cached_values()) == before + 9  # two for each direction of both layers, and the words
    monkeypatch.setattr(torch.__future__, "get_swap_module_params_on_conversion", lambda: True)
    torch.testing.assert_close(run(model.bfloat16()).float(), exact, rtol=0, atol=0.1)
    del model, parts, parameter, part
    gc.collect()
    assert len(cached_values()) == before
