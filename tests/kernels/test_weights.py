"""What is derived from weights is cached while they do not change, however they are written to."""

import copy
import gc
import os
import pickle
import threading

import numpy as np
import pytest
import torch

from hf_elmo.kernels import constant_weights, native, weights
from hf_elmo.kernels.weights import cached
from tests.forks import exit_code


class Maker:
    """Makes a sum of weights, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        self.times += 1
        return sum(tensor.double().sum() for tensor in tensors)

    def of(self, *tensors: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return cached(tensors, dtype, "sum", self)


@pytest.fixture(params=["hash", "copy"], autouse=True)
def fingerprints(request, monkeypatch) -> None:
    """Fingerprints in C, and the copies that take their place where nothing can be compiled."""
    if request.param == "copy":
        monkeypatch.setattr(native._library, "loaded", None)
        monkeypatch.setattr(native._library, "reason", "not for this test")
    elif native.library() is None:
        pytest.skip(native.reason())


WRITES = {
    "in place": lambda x: x.detach().mul_(0.5),
    "data": lambda x: x.data.mul_(0.5),
    "clamp of data": lambda x: x.data.clamp_(-0.1, 0.1),
    "new data": lambda x: setattr(x, "data", x.data * 0.5),
    "one number of data": lambda x: x.data.view(-1)[1234].add_(1),
    "the last number": lambda x: x.data.view(-1)[-1].add_(1),
    "one per cent": lambda x: x.data.view(-1)[::100].zero_(),
    "a NumPy view": lambda x: np.add(x.detach().numpy()[2], 1, out=x.detach().numpy()[2]),
    "two numbers change places": lambda x: x.data.view(-1).index_copy_(
        0, torch.tensor([7, 2000]), x.data.view(-1)[[2000, 7]]
    ),
    "rows change places": lambda x: x.data.copy_(x.data.flip(0)),
    "a sign": lambda x: x.data.view(-1)[5].neg_(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("which", [0, 1])
def test_a_write_is_noticed(write, which):
    make, both = Maker(), [torch.randn(67, 45), torch.randn(3, 1021)]
    make.of(*both)
    make.of(*both)
    assert make.times == 1
    before = both[which].clone()
    write(both[which])
    assert not torch.equal(before, both[which])
    make.of(*both)
    assert make.times == 2
    make.of(*both)
    assert make.times == 2


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2**18 + 7,), (1025, 1031)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_any_size_and_type(shape, dtype):
    make, weight = Maker(), torch.ones(shape, dtype=dtype)
    make.of(weight)
    weight.data.view(-1)[-1] = 3
    assert make.of(weight) == weight.float().double().sum()
    make.of(weight)
    assert make.times == 2


def test_views_that_are_not_contiguous():
    make, base = Maker(), torch.randn(40, 30)
    for view in (base.t(), base[:, ::2], base[3:]):
        make.times = 0
        make.of(view)
        view.data[1, 1] += 1
        make.of(view)
        make.of(view)
        assert make.times == 2


def test_nan_equals_itself():
    make, weight = Maker(), torch.full((5, 7), torch.nan)
    make.of(weight)
    make.of(weight)
    assert make.times == 1


def test_inference_tensors_follow_writes_too():
    make = Maker()
    with torch.inference_mode():
        weight = torch.randn(50, 40)
        make.of(weight)
        weight[3, 4] += 1
        make.of(weight)
        make.of(weight)
    assert make.times == 2


def test_each_type_and_name_is_made_for_itself():
    make, weight = Maker(), torch.tensor([1.0, 1 + 2**-9])
    assert make.of(weight) == 2 + 2**-9
    assert make.of(weight, dtype=torch.bfloat16) == 2
    assert cached((weight,), torch.float32, "another", lambda tensor: "made") == "made"
    assert make.times == 2


# Changes of many numbers at once, in tensors of several pieces: they must not cancel in a lane of the hash.
REGULAR_WRITES = {
    "negated": lambda x: x.neg_(),
    "doubled": lambda x: x.mul_(2),
    "halved": lambda x: x.mul_(0.5),
    "times four": lambda x: x.mul_(4),
    "a row negated": lambda x: x[100].neg_(),
    "64 columns negated": lambda x: x[:, 64:128].neg_(),
    "every other number negated": lambda x: x[:, ::2].neg_(),
    "one added to the bits": lambda x: x.view({2: torch.int16, 4: torch.int32}[x.itemsize]).add_(1),
    "halves change places": lambda x: x.copy_(x.roll(len(x) // 2, 0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("write", REGULAR_WRITES.values(), ids=REGULAR_WRITES)
def test_a_regular_write_to_a_large_weight_is_noticed(write, dtype):
    make, weight = Maker(), torch.randn(1024, 1024).to(dtype)
    make.of(weight)
    write(weight.data)
    assert make.of(weight) == weight.double().sum()
    assert make.times == 2


def test_lives_as_long_as_the_weight_and_stays_out_of_copies():
    gc.collect()  # weights of models that are gone already
    before, make = len(weights._made), Maker()
    module = torch.nn.Linear(31, 17)
    make.of(module.weight, module.bias)
    assert len(weights._made) == before + 1
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert make.of(copied.weight, copied.bias) == make.of(module.weight, module.bias)
    assert make.times == 3
    assert set(module.state_dict()) == {"weight", "bias"}
    del module, copied
    gc.collect()
    assert len(weights._made) == before


def test_constant_weights_are_looked_at_once(monkeypatch):
    looked, look = [], weights._is_same
    monkeypatch.setattr(weights, "_is_same", lambda *arguments: looked.append(1) or look(*arguments))
    make, weight = Maker(), torch.randn(20, 30)
    make.of(weight)
    weight.data[0, 0] += 1
    looked.clear()
    with constant_weights():
        for _ in range(5):
            assert make.of(weight) == weight.double().sum()  # what was written before the block is noticed
    assert make.times == 2
    assert len(looked) == 2  # the old entry, and the new one once
    weight.data[0, 0] += 1
    assert make.of(weight) == weight.double().sum()
    assert make.times == 3


def test_threads_may_look_at_the_same_time():
    make, tensors = Maker(), [torch.randn(100, 90) for _ in range(3)]
    expected = [tensor.double().sum() for tensor in tensors]
    wrong = []

    def work() -> None:
        for turn in range(60):
            if make.of(tensors[turn % 3]) != expected[turn % 3]:
                wrong.append(turn)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_does_not_inherit_a_lock_that_is_held():
    with weights._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if weights._lock.acquire(timeout=5) else 1)
    assert exit_code(child) == 0


def test_constant_weights_beside_others_are_made_for_themselves():
    make, first = Maker(), torch.ones(3, 5)
    ones, zeros = torch.ones(4), torch.zeros(4)
    with constant_weights():
        assert [make.of(first, other) for other in (ones, ones, zeros, zeros, ones)] == [19, 19, 15, 15, 19]


def test_the_same_bytes_in_another_order_are_noticed():
    make, weight = Maker(), torch.randn(31, 31)
    make.of(weight)
    weight.data = weight.data.t()  # the same memory
    make.of(weight)
    assert make.times == 2
    weight.data = weight.data.t().view(torch.int32)
    make.of(weight)
    assert make.times == 3


def test_a_write_while_it_is_made_is_noticed():
    weight = torch.ones(5, 7)

    def slow(tensor):
        total = tensor.double().sum()
        if total == 35:
            weight.data[0, 0] = 3  # as another thread may
        return total

    assert cached((weight,), torch.float32, "sum", slow) == 35
    assert cached((weight,), torch.float32, "sum", slow) == 37
