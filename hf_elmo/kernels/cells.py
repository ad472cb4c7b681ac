"""One step of the LSTM cell and its gradient in C for the CPU (`csrc/cells.c`).

Tensors have the axes `[rows, size]`. Gates are in the order i, f, g, o, before their activation. Cells are stored
before their clip, because the next step and the gradient of the clip are both computed from the unclipped value.
"""

import math

import torch
from torch import Tensor

from . import native

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}  # of gates; cells are float32
CELLS_PER_THREAD = 8192  # with fewer cells, waking a thread takes more time than the thread saves


def forward_cell(
    gates: Tensor, before: Tensor, before_clip: float | None, cell_clip: float | None, cells: Tensor, hidden: Tensor
) -> None:
    """`cells = sigmoid(f) * clip(before) + sigmoid(i) * tanh(g)`, `hidden = sigmoid(o) * tanh(clip(cells))`, of gates
    `[B, 4C]`. `before`, the cells of the previous step, may be `cells` itself. `cells` and `hidden`, `[B, C]`, are
    written, `hidden` in the type of `gates`. A bound of `None` is no bound."""
    _run("forward", before_clip, cell_clip, gates=gates, before=before, cells=cells, hidden=hidden)


def backward_cell(
    gates: Tensor, before: Tensor, before_clip: float | None, cell_clip: float | None, cells: Tensor, *grads: Tensor
) -> None:
    """The gradient of [`forward_cell`], from the same tensors.

    Args:
        grads: three: `[B, C]`, the gradient of `hidden`, in the type of `gates`; `[B, C]`, the gradient of the clipped
            `cells` that comes from later steps, overwritten by the gradient of the clipped `before`; and `[B, 4C]`,
            written, the gradient of `gates`, in their type.
    """
    of = dict(zip(("hidden", "grad_cell", "grad_gates"), grads, strict=True))
    _run("backward", before_clip, cell_clip, gates=gates, before=before, cells=cells, **of)


def clip_backward_(grad: Tensor, x: Tensor, bound: float | None) -> Tensor:
    """Zero `grad` in place where `|x| > bound`, not where `|x| == bound`, as TensorFlow and AllenNLP do in training."""
    if bound is None:
        return grad
    # The gradient of hardtanh is zero at its bounds, so the bounds here are one unit in the last place larger.
    limits = torch.tensor([bound, math.inf], dtype=x.dtype)
    outside = torch.nextafter(limits[0], limits[1]).item()
    return torch.ops.aten.hardtanh_backward.grad_input(grad, x, -outside, outside, grad_input=grad)


def _run(name: str, before_clip: float | None, cell_clip: float | None, **tensors: Tensor) -> None:
    rows, size = tensors["cells"].shape
    sizes = {"rows": rows, "size": size, "threads": native.threads_for(rows * size, CELLS_PER_THREAD)}
    function = f"cell_{name}_{TYPES[tensors['gates'].dtype]}"
    native.run(function, **tensors, **sizes, before_clip=before_clip, cell_clip=cell_clip)
