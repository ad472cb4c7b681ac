"""One step of the LSTM cell and its gradient: in C for the CPU (`csrc/cells.c`), or in PyTorch.

Tensors have the axes `[rows, size]`. Gates are in the order i, f, g, o, before their activation. Cells are stored
before their clip, because the next step and the gradient of the clip are both computed from the unclipped value.
"""

import math

import torch
from torch import Tensor

from . import native
from .tensors import clip

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
CELLS_PER_THREAD = 8192  # with fewer cells, waking a thread takes more time than the thread saves


def forward_cell(
    gates: Tensor,
    before: Tensor,
    before_clip: float | None,
    cell_clip: float | None,
    cells: Tensor,
    hidden: Tensor,
) -> None:
    """`cells = sigmoid(f) * clip(before) + sigmoid(i) * tanh(g)`, `hidden = sigmoid(o) * tanh(clip(cells))`.

    Args:
        gates: `[B, 4C]`.
        before: `[B, C]`, the cells of the previous step, in the type of the state; may be `cells` itself.
        before_clip: the bound on `before`, or `None`.
        cell_clip: the bound on the new cells, or `None`.
        cells: `[B, C]`, written, in the type of the state.
        hidden: `[B, C]`, written, in the type of `gates`.
    """
    if is_in_c(gates, cells):
        tensors = {"gates": gates, "before": before, "cells": cells, "hidden": hidden}
        _run("forward", before_clip, cell_clip, tensors)
        return
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
    if is_in_c(gates, cells):
        tensors = {"gates": gates, "before": before, "cells": cells, "hidden": grad_hidden}
        _run("backward", before_clip, cell_clip, tensors | {"grad_cell": grad_cell, "grad_gates": grad_gates})
        return
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


def is_in_c(gates: Tensor, cells: Tensor) -> bool:
    """Whether the cell is computed in C for tensors of these types."""
    return gates.dtype in TYPES and cells.dtype == torch.float32 and native.library() is not None


def _run(name: str, before_clip: float | None, cell_clip: float | None, tensors: dict[str, Tensor | None]) -> None:
    rows, size = tensors["cells"].shape
    bounds = {"before_clip": before_clip, "cell_clip": cell_clip}
    threads = native.threads_for(rows * size, CELLS_PER_THREAD)
    function = f"cell_{name}_{TYPES[tensors['gates'].dtype]}"
    native.run(function, **tensors, rows=rows, size=size, threads=threads, **bounds)
