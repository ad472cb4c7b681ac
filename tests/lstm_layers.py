"""Layers of the recurrence for tests: random ones, the reference, and comparisons."""

from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from hf_elmo import kernels
from hf_elmo.modeling_elmo import LstmCall, LstmWeights, bilstm_layer

CELL = 11
BATCHES = {"one word": [1], "one step": [3], "one row": [1] * 4, "rows ending": [6, 6, 4, 3, 3, 1], "window": [4] * 3}
CLIPS = {"no clip": (None, None), "both clips": (0.5, 0.4), "cell clip": (0.5, None), "projection clip": (None, 0.3)}


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
    return flat(bilstm_layer(call.inputs, (call.hidden, call.cell), *call[3:]))


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


def flat(result):
    """Outputs and both parts of the state."""
    outputs, state = result
    return [outputs, *state]
