"""The LSTM's cell in C, for the CPU: one pass over the gates in place of a dozen (`csrc/cells.c`)."""

import math
from ctypes import c_float, c_int, c_long, c_void_p

import torch
from torch import Tensor

from . import native
from .cell import Cell

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
# Below so many numbers to a thread, waking another one costs more than it does.
CELLS_PER_THREAD = 8192


def supports(gates: Tensor, state: Tensor) -> str | None:
    """Why the functions cannot work on tensors like these, or `None`."""
    if gates.device.type != "cpu":
        return f"gates are on {gates.device}, not on the CPU"
    if gates.dtype not in TYPES or state.dtype != torch.float32:
        return f"gates are {gates.dtype} and cells {state.dtype}"
    return native.reason()


def run(gates: Tensor, state: Tensor) -> Cell:
    """The cell in C."""
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
    """As `cell.forward_cell`, for float32 and bfloat16 on the CPU with a float32 state."""
    # Only a sum that is computed here is written back.
    name, recurrent = ("infer", gates) if recurrent is None else ("forward", recurrent)
    _call(name, (gates, recurrent, before, cells, hidden), before_clip, cell_clip, cells)


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
    """As `cell.backward_cell`, for float32 and bfloat16 on the CPU with a float32 state."""
    tensors = gates, before, cells, grad_hidden, grad_cell, grad_gates
    _call("backward", tensors, before_clip, cell_clip, cells)


def _call(
    name: str, tensors: tuple[Tensor, ...], before_clip: float | None, cell_clip: float | None, cells: Tensor
) -> None:
    types = [c_void_p, c_long] * len(tensors) + [c_float, c_float, c_long, c_long, c_long, c_int]
    function = native.function(f"cell_{name}_{TYPES[tensors[0].dtype]}", *types)
    pointers = [number for tensor in tensors for number in (tensor.data_ptr(), tensor.stride(0))]
    clips = [math.inf if bound is None else bound for bound in (before_clip, cell_clip)]
    threads = max(1, min(torch.get_num_threads(), cells.numel() // CELLS_PER_THREAD))
    function(*pointers, *clips, *cells.shape, threads)
