"""One step of the LSTM cell and its gradient: in C for the CPU, or in PyTorch operations.

Tensors have the axes `[rows, size]`. Gates are in the order i, f, g, o, before their activation. Cells are stored
before their clip, because the next step and the gradient of the clip are both computed from the unclipped value.
"""

import ctypes
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from . import native
from .registry import choose, register
from .tensors import clip

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
CELLS_PER_THREAD = 8192  # with fewer cells, waking a thread takes more time than the thread saves


class Cell(NamedTuple):
    """Two functions with the signatures of [`forward_cell`] and [`backward_cell`]."""

    forward: Callable[..., None]
    backward: Callable[..., None]


def choose_cell(gates: Tensor, state: Tensor) -> Cell:
    """The fastest implementation of the cell that supports gates and a state of these types."""
    backend = choose("cell", gates, state)
    return TORCH_CELL if backend is None else backend.run(gates, state)


def forward_cell(
    gates: Tensor,
    recurrent: Tensor | None,
    before: Tensor,
    before_clip: float | None,
    cell_clip: float | None,
    cells: Tensor,
    hidden: Tensor,
) -> None:
    """`cells = sigmoid(f) * clip(before) + sigmoid(i) * tanh(g)`, `hidden = sigmoid(o) * tanh(clip(cells))`.

    Args:
        gates: `[B, 4C]`, the input's contribution to the gates; overwritten by the sum of both contributions.
        recurrent: `[B, 4C]`, the contribution of the previous hidden state; `None` if `gates` already holds the sum.
        before: `[B, C]`, the cells of the previous step, in the type of the state; may be `cells` itself.
        before_clip: the bound on `before`, or `None`.
        cell_clip: the bound on the new cells, or `None`.
        cells: `[B, C]`, written, in the type of the state.
        hidden: `[B, C]`, written, in the type of `gates`.
    """
    if recurrent is not None:
        gates += recurrent
    i, f, g, o = _activate(gates, cells.dtype)
    torch.mul(f, clip(before, before_clip), out=cells)
    cells.addcmul_(i, g)
    hidden.copy_(clip(cells, cell_clip).tanh().mul_(o))


def backward_cell(
    gates: Tensor,
    before: Tensor,
    before_clip: float | None,
    cell_clip: float | None,
    cells: Tensor,
    grad_hidden: Tensor,
    grad_cell: Tensor,
    grad_gates: Tensor,
) -> None:
    """The gradient of [`forward_cell`], from the same tensors.

    Args:
        grad_hidden: `[B, C]`, the gradient of `hidden`.
        grad_cell: `[B, C]`, the gradient of the clipped `cells` that comes from later steps; overwritten by the
            gradient of the clipped `before`.
        grad_gates: `[B, 4C]`, written, in the type of `gates`.
    """
    sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
    i, f, g, o = _activate(gates, cells.dtype)
    tanh_c = clip(cells, cell_clip).tanh()
    grad_hidden = grad_hidden.to(cells.dtype)
    grad_cell += tanh_backward(grad_hidden * o, tanh_c)
    clip_backward_(grad_cell, cells, cell_clip)
    grads = grad_gates.chunk(4, dim=-1)
    grads[0].copy_(sigmoid_backward(grad_cell * g, i))
    grads[1].copy_(sigmoid_backward(grad_cell * clip(before, before_clip), f))
    grads[2].copy_(tanh_backward(grad_cell * i, g))
    grads[3].copy_(sigmoid_backward(grad_hidden * tanh_c, o))
    grad_cell *= f


def clip_backward_(grad: Tensor, x: Tensor, bound: float | None) -> Tensor:
    """Zero `grad` in place where `|x| > bound`, not where `|x| == bound`, as TensorFlow and AllenNLP do in training."""
    if bound is None:
        return grad
    # The gradient of hardtanh is zero at its bounds, so the bounds here are one unit in the last place larger.
    limits = torch.tensor([bound, math.inf], dtype=x.dtype)
    outside = torch.nextafter(limits[0], limits[1]).item()
    return torch.ops.aten.hardtanh_backward.grad_input(grad, x, -outside, outside, grad_input=grad)


def _activate(gates: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """i, f, g, o after their activation, computed in `dtype`."""
    i, f, g, o = gates.to(dtype).chunk(4, dim=-1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


TORCH_CELL = Cell(forward_cell, backward_cell)


# -- in C (csrc/cells.c): one pass over the gates ----------------------------------------------------------------------


def _forward_in_c(gates, recurrent, before, before_clip, cell_clip, cells, hidden) -> None:
    _call("forward", (gates, recurrent, before, cells, hidden, None, None), before_clip, cell_clip)


def _backward_in_c(gates, before, before_clip, cell_clip, cells, grad_hidden, grad_cell, grad_gates) -> None:
    _call("backward", (gates, None, before, cells, grad_hidden, grad_cell, grad_gates), before_clip, cell_clip)


def _call(name: str, tensors: tuple[Tensor | None, ...], before_clip: float | None, cell_clip: float | None) -> None:
    gates, cells = tensors[0], tensors[3]
    function = getattr(native.library(), f"cell_{name}_{TYPES[gates.dtype]}")
    clips = [math.inf if bound is None else bound for bound in (before_clip, cell_clip)]
    threads = native.threads_for(cells.numel(), CELLS_PER_THREAD)
    pointers = (None if tensor is None else tensor.data_ptr() for tensor in tensors)
    function(ctypes.byref(native.Cells(*pointers, *cells.shape, *clips, threads)))


C_CELL = Cell(_forward_in_c, _backward_in_c)


def _supports(gates: Tensor, state: Tensor) -> str | None:
    if not gates.is_cpu:
        return f"gates are on {gates.device}, not on the CPU"
    if gates.dtype not in TYPES or state.dtype != torch.float32:
        return f"gates are {gates.dtype} and cells {state.dtype}"
    return native.reason()


register("cell", "cell-c", 10, _supports, lambda gates, state: C_CELL)
