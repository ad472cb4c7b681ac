"""The LSTM's cell in Triton, for CUDA: one kernel a step instead of a dozen; the arithmetic is in float32.

`TRITON_INTERPRET=1` in the environment runs the same kernels on the CPU, which is how they are tested without a GPU.
"""

import os

import torch
from torch import Tensor

from .cell import Cell

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

TYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCK = 256

if triton is not None:

    @triton.jit
    def _tanh(x):
        # From e^-2|x|, which cannot overflow; near zero, where that loses digits, the series.
        square = x * x
        near = x * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
        power = tl.exp(-2 * tl.abs(x))
        far = (1 - power) / (1 + power)
        return tl.where(tl.abs(x) < 0.15, near, tl.where(x < 0, -far, far))

    @triton.jit
    def _clipped(x, bound):
        # Comparisons, not minimum and maximum: NaN propagates.
        return tl.where(x > bound, bound, tl.where(x < -bound, -bound, x))

    @triton.jit
    def _gate(gates, place, number, size, inside):
        return tl.load(gates + place + number * size, mask=inside, other=0.0).to(tl.float32)

    @triton.jit
    def _forward_kernel(
        gates, gates_d, gates_r, recurrent, recurrent_d, recurrent_r, before, before_d, before_r,
        cells, cells_d, cells_r, hidden, hidden_d, hidden_r,
        before_clip, cell_clip, rows, size, ADD: tl.constexpr, KEEP_GATES: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row, direction = tl.program_id(0) % rows, tl.program_id(0) // rows
        k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = k < size
        gate = direction * gates_d + row * gates_r + k
        i = _gate(gates, gate, 0, size, inside)
        f = _gate(gates, gate, 1, size, inside)
        g = _gate(gates, gate, 2, size, inside)
        o = _gate(gates, gate, 3, size, inside)
        if ADD:
            more = direction * recurrent_d + row * recurrent_r + k
            i += _gate(recurrent, more, 0, size, inside)
            f += _gate(recurrent, more, 1, size, inside)
            g += _gate(recurrent, more, 2, size, inside)
            o += _gate(recurrent, more, 3, size, inside)
        if KEEP_GATES:
            tl.store(gates + gate, i.to(gates.dtype.element_ty), mask=inside)
            tl.store(gates + gate + size, f.to(gates.dtype.element_ty), mask=inside)
            tl.store(gates + gate + 2 * size, g.to(gates.dtype.element_ty), mask=inside)
            tl.store(gates + gate + 3 * size, o.to(gates.dtype.element_ty), mask=inside)
        old = before + direction * before_d + row * before_r + k
        previous = _clipped(tl.load(old, mask=inside, other=0.0), before_clip)
        c = tl.sigmoid(f) * previous + tl.sigmoid(i) * _tanh(g)
        tl.store(cells + direction * cells_d + row * cells_r + k, c, mask=inside)
        out = tl.sigmoid(o) * _tanh(_clipped(c, cell_clip))
        tl.store(hidden + direction * hidden_d + row * hidden_r + k, out.to(hidden.dtype.element_ty), mask=inside)

    @triton.jit
    def _backward_kernel(
        gates, gates_d, gates_r, before, before_d, before_r, cells, cells_d, cells_r,
        grad_hidden, grad_hidden_d, grad_hidden_r, grad_cell, grad_cell_d, grad_cell_r,
        grad_gates, grad_gates_d, grad_gates_r, before_clip, cell_clip, rows, size, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row, direction = tl.program_id(0) % rows, tl.program_id(0) // rows
        k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = k < size
        gate = direction * gates_d + row * gates_r + k
        i = tl.sigmoid(_gate(gates, gate, 0, size, inside))
        f = tl.sigmoid(_gate(gates, gate, 1, size, inside))
        g = _tanh(_gate(gates, gate, 2, size, inside))
        o = tl.sigmoid(_gate(gates, gate, 3, size, inside))
        c = tl.load(cells + direction * cells_d + row * cells_r + k, mask=inside, other=0.0)
        t = _tanh(_clipped(c, cell_clip))
        from_h = tl.load(grad_hidden + direction * grad_hidden_d + row * grad_hidden_r + k, mask=inside, other=0.0)
        from_h = from_h.to(tl.float32)
        carried = grad_cell + direction * grad_cell_d + row * grad_cell_r + k
        grad = tl.load(carried, mask=inside, other=0.0) + from_h * o * (1 - t * t)
        grad = tl.where(tl.abs(c) > cell_clip, 0.0, grad)
        old = before + direction * before_d + row * before_r + k
        previous = _clipped(tl.load(old, mask=inside, other=0.0), before_clip)
        to = grad_gates + direction * grad_gates_d + row * grad_gates_r + k
        kind = grad_gates.dtype.element_ty
        tl.store(to, (grad * g * i * (1 - i)).to(kind), mask=inside)
        tl.store(to + size, (grad * previous * f * (1 - f)).to(kind), mask=inside)
        tl.store(to + 2 * size, (grad * i * (1 - g * g)).to(kind), mask=inside)
        tl.store(to + 3 * size, (from_h * t * o * (1 - o)).to(kind), mask=inside)
        tl.store(carried, grad * f, mask=inside)


def supports(gates: Tensor, state: Tensor) -> str | None:
    """Why the kernels cannot work on tensors like these, or `None`."""
    if not gates.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"gates are on {gates.device}, not on a GPU"
    if triton is None:
        return "triton is not installed"
    if gates.dtype not in TYPES or state.dtype != torch.float32:
        return f"gates are {gates.dtype} and cells {state.dtype}"
    return None


def run(gates: Tensor, state: Tensor) -> Cell:
    """The cell in Triton."""
    return Cell(forward_cell, backward_cell)


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
    """As `cell.forward_cell`, with a float32 state."""
    tensors = gates, gates if recurrent is None else recurrent, before, cells, hidden
    constants = {"ADD": recurrent is not None, "KEEP_GATES": keep_gates and recurrent is not None}
    _launch(_forward_kernel, tensors, before_clip, cell_clip, cells, **constants)


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
    """As `cell.backward_cell`, with a float32 state."""
    tensors = gates, before, cells, grad_hidden, grad_cell, grad_gates
    _launch(_backward_kernel, tensors, before_clip, cell_clip, cells)


def _launch(kernel, tensors, before_clip, cell_clip, cells, **constants) -> None:
    directions, rows, size = cells.shape
    slices = [argument for tensor in tensors for argument in (tensor, *tensor.stride()[:2])]
    clips = [float("inf") if bound is None else float(bound) for bound in (before_clip, cell_clip)]
    kernel[(directions * rows, triton.cdiv(size, BLOCK))](*slices, *clips, rows, size, **constants, BLOCK=BLOCK)
