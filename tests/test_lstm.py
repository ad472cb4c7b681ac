"""The recurrence with gradients against plain PyTorch; and random calls and comparisons for all tests of it."""

from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from hf_elmo import kernels
from hf_elmo.modeling_elmo import LstmCall, LstmWeights, bilstm_layer

CELL = 11
BATCHES = {"one word": [1], "one step": [3], "one row": [1] * 4, "rows ending": [6, 6, 4, 3, 3, 1], "window": [4] * 3}
CLIPS = {"no clip": (None, None), "both clips": (0.5, 0.4), "cell clip": (0.5, None), "projection clip": (None, 0.3)}
ENDING = BATCHES["rows ending"]


def random_call(batch_sizes, clips=(0.5, 0.4), dtype=torch.float32, directions=2, projected=True, sizes=(7, 5, CELL)):
    """An `LstmCall` of numbers that are large enough for clips to take part. `sizes`: input, P and C."""
    torch.manual_seed(0)
    width, size, cell = sizes
    size = size if projected else cell
    rows, state_dtype = batch_sizes[0], torch.promote_types(dtype, torch.float32)
    inputs = torch.randn(directions, sum(batch_sizes), width, dtype=dtype)
    hidden, cells = 0.5 * torch.randn(directions, rows, size, dtype=dtype), torch.randn(directions, rows, cell)
    parts = [(0.8 * width**-0.5, (4 * cell, width)), (0.9 * size**-0.5, (4 * cell, size)), (0.3, (4 * cell,))]
    parts += [(1.6 * cell**-0.5, (size, cell))] * projected
    weights = [[scale * torch.randn(shape, dtype=dtype) for scale, shape in parts] for _ in range(directions)]
    weights = [LstmWeights(*own, *[None] * (not projected)) for own in weights]
    return LstmCall(inputs, hidden, cells.to(state_dtype), batch_sizes, weights, *clips)


@contextmanager
def record():
    """A list that collects (operation, backend) for each choice in the block, except choices of plain PyTorch."""
    chosen: list[tuple[str, str]] = []
    with kernels.watch(lambda operation, backend, _: chosen.append((operation, backend.name)) if backend else None):
        yield chosen


def compute(call):
    """The outputs and both parts of the state by `bilstm_layer`."""
    outputs, state = bilstm_layer(call.inputs, (call.hidden, call.cell), *call[3:])
    return [outputs, *state]


def reference(call):
    """In plain PyTorch, which tests/test_modeling_numbers.py compares with a textbook ELMo."""
    with kernels.use("off"):
        return compute(call)


def everything(function, call):
    """What `compute` or `reference` gives, and the gradients of all tensors of a call for a random loss over that."""
    call = tree_map_only(Tensor, lambda x: x.detach().clone().requires_grad_(), call)
    leaves = [leaf for leaf in tree_leaves(call) if isinstance(leaf, Tensor)]
    results, generator = function(call), torch.Generator().manual_seed(1)
    loss = sum((x.double() * torch.randn(x.shape, generator=generator, dtype=torch.float64)).sum() for x in results)
    return [x.detach() for x in results] + list(torch.autograd.grad(loss, leaves))


def assert_near(found, expected, tolerance):
    """Each tensor of one type, and within `tolerance` of the largest expected value."""
    assert [x.dtype for x in found] == [x.dtype for x in expected]
    for x, y in zip(found, expected, strict=True):
        assert (x - y).abs().max() <= tolerance * y.abs().max()


@pytest.fixture(params=["off", "onednn-training"])
def way(request) -> str:
    """Plain PyTorch, and the backend for training."""
    with kernels.use(request.param):
        yield request.param


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "unprojected"])
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
def test_equals_plain_pytorch(batch_sizes, projected, clips):
    for directions in (2, 1):
        call = random_call(batch_sizes, clips, directions=directions, projected=projected)
        with kernels.use("onednn-training"), record() as ran:
            found = everything(compute, call)
        assert ran == [("lstm", "onednn-training")]
        assert_near(found, everything(reference, call), 3e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "weights"])
def test_other_types_of_products_and_float32_state(way, dtype, autocast):
    """Without clips: a value that rounding puts on the other side of a clip changes a gradient altogether."""
    call = exact = random_call(ENDING, (None, None))
    if not autocast or dtype == torch.float64:
        weights = [LstmWeights(*(x.to(dtype) for x in own)) for own in exact.weights]
        call = exact._replace(inputs=exact.inputs.to(dtype), hidden=exact.hidden.to(dtype), weights=weights)
    with torch.autocast("cpu", torch.bfloat16 if dtype == torch.float64 else dtype, enabled=autocast):
        found = everything(compute, call)
    assert [x.dtype for x in found[:3]] == [dtype, dtype, torch.promote_types(dtype, torch.float32)]
    tolerance = 3e-6 if dtype == torch.float64 else 4e-2
    assert_near([x.float() for x in found], everything(reference, exact), tolerance)


def test_gradient_passes_at_the_clip_and_not_beyond(way):
    """A full forget gate and an empty input gate carry a cell that stands exactly at the bound. Without kernels the
    gradient there is that of `torch.clamp`: 1, and 0 from PyTorch 2.14 on."""
    saturated = torch.tensor([-200.0, 200.0, 0.0, 0.0]).repeat_interleave(CELL)
    weights = [LstmWeights(torch.zeros(4 * CELL, 7), torch.zeros(4 * CELL, CELL), saturated, None)]
    c = torch.linspace(-1, 1, CELL).reshape(1, 1, CELL).requires_grad_()
    bound = c[0, 0, -2].item()
    at_bound = torch.tensor(bound, requires_grad=True)
    at_bound.clamp(-bound, bound).backward()
    passed = at_bound.grad.item() if way == "off" else 1.0
    _, (_, last) = bilstm_layer(torch.zeros(1, 2, 7), (torch.zeros(1, 1, CELL), c), [1, 1], weights, bound)
    last.sum().backward()
    assert c.grad.flatten().tolist() == [0.0, passed, *[1.0] * (CELL - 4), passed, 0.0]


def test_backward_twice(way):
    call = random_call(ENDING)
    call.inputs.requires_grad_()
    total = compute(call)[0].sum()
    assert torch.equal(*(torch.autograd.grad(total, call.inputs, retain_graph=True)[0] for _ in range(2)))
