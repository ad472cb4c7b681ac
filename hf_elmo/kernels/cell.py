"""One step of the LSTM's cell and its gradient, in PyTorch operations: every device and floating type.

A backend of the operation "cell" gives a pair of functions (`Cell`) with the signatures of `forward_cell` and
`backward_cell` here.
Tensors have the axes `[directions, rows, size]`; they may be slices along the rows. Gates are in the order i, f, g, o,
before their activation; cells are before their clip: what the next step reads, and the gradient of the clip, both
follow from that exactly.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..lstm_elmo import clip
from .registry import choose


class Cell(NamedTuple):
    """A backend: `forward_cell` and `backward_cell`, or two functions that do the same faster."""

    forward: Callable[..., None]
    backward: Callable[..., None]


def clip_backward_(grad: Tensor, x: Tensor, bound: float | None) -> Tensor:
    """Zero `grad` in place where `|x| > bound`; at the bound itself it passes, as in the gradient of `torch.clamp`."""
    if bound is None:
        return grad
    # hardtanh's gradient is also zero at its bounds: with bounds one ulp larger it is clamp's.
    limits = torch.tensor([bound, math.inf], dtype=x.dtype)
    outside = torch.nextafter(limits[0], limits[1]).item()
    return torch.ops.aten.hardtanh_backward.grad_input(grad, x, -outside, outside, grad_input=grad)


def forward_cell(
    gates: Tensor,
    recurrent: Tensor | None,
    before: Tensor,
    before_clip: float | None,
    cell_clip: float | None,
    cells: Tensor,
    hidden: Tensor,
    keep_gates: bool = True,
) -> None:
    """`cells = sigmoid(f) * clip(before) + sigmoid(i) * tanh(g)`, `hidden = sigmoid(o) * tanh(clip(cells))`.

    Args:
        gates: `[D, B, 4C]`, the input half; the sum of both halves afterwards, if `keep_gates` (else it may stay the
            input half, which spares a GPU the writing).
        recurrent: `[D, B, 4C]`, the half that comes from the step before; `None` if `gates` are the sum already.
        before: `[D, B, C]`, the cells of the step before, in the type of the state; may be `cells` itself.
        before_clip: the bound on `before`, or `None`.
        cell_clip: the bound on the new cells, or `None`.
        cells: `[D, B, C]`, written, in the type of the state.
        hidden: `[D, B, C]`, written, in the type of `gates`.
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
    """The gradient of `forward_cell`, from the same tensors.

    Args:
        grad_hidden: `[D, B, C]`, the gradient of `hidden`.
        grad_cell: `[D, B, C]`, that of the clipped `cells` by all later steps; then that of the clipped `before`.
        grad_gates: `[D, B, 4C]`, written, in the type of `gates`.
    """
    sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
    i, f, g, o = _activate(gates, cells.dtype)
    tanh_c = clip(cells, cell_clip).tanh_() if cell_clip is not None else cells.tanh()
    grad_hidden = grad_hidden.to(cells.dtype)
    grad_cell += tanh_backward(grad_hidden * o, tanh_c)
    clip_backward_(grad_cell, cells, cell_clip)
    grads = grad_gates.chunk(4, dim=-1)
    grads[0].copy_(sigmoid_backward(grad_cell * g, i))
    grads[1].copy_(sigmoid_backward(grad_cell * clip(before, before_clip), f))
    grads[2].copy_(tanh_backward(grad_cell * i, g))
    grads[3].copy_(sigmoid_backward(grad_hidden * tanh_c, o))
    grad_cell *= f


def _activate(gates: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """i, f, g, o after their activation, computed in `dtype`."""
    activated = gates.to(dtype, copy=True)
    i, f, g, o = activated.chunk(4, dim=-1)
    activated[..., : 2 * i.shape[-1]].sigmoid_()
    g.tanh_()
    o.sigmoid_()
    return i, f, g, o


TORCH_CELL = Cell(forward_cell, backward_cell)


def choose_cell(gates: Tensor, state: Tensor) -> Cell:
    """The fastest cell for gates and a state of these types on this device."""
    backend = choose("cell", gates, state)
    return TORCH_CELL if backend is None else backend.run(gates, state)
