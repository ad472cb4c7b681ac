"""Inference on the CPU: a layer's directions without gradients, in the way that suits the batch and the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .lstm_cell_elmo import Cell, clip
from .lstm_few_c_elmo import few_projection_layout, few_recurrent_layout, fits, run_few
from .lstm_fused_c_elmo import FEWEST_ROWS, choose_kind, gates_layout, projection_layout, run_layer
from .lstm_packed_elmo import FEW_ROWS, kept, packed_product

if TYPE_CHECKING:
    from .lstm_elmo import LstmWeights

Steps = list[tuple[int, int]]
ChooseCell = Callable[[Tensor, Tensor], Cell]
# Words whose half of the gates is computed at a time where few rows are side by side.
CHUNK_ROWS = 256


def infer_on_cpu(
    steps: Steps,
    inputs: Tensor,
    state: tuple[Tensor, Tensor],
    weights: Sequence[LstmWeights],
    cell_clip: float | None,
    proj_clip: float | None,
    choose_cell: ChooseCell,
) -> tuple[Tensor, Tensor]:
    """`lstm_elmo.bilstm_layer` without gradients, nothing kept but the outputs.

    Args:
        steps: `(start, end)` of each step's words among the packed ones.
        inputs: `[directions, words, input]`, packed.
        state: `h [directions, rows, P]` and `c [directions, rows, C]` before the first step.
        weights: one for each direction, of the same shapes.
        cell_clip, proj_clip: bounds on the absolute value of `c` and of the projected `h`, or `None`.
        choose_cell: gives the cell that is fastest for tensors like these, where PyTorch makes the products.

    Returns:
        outputs `[directions, words, P]`, and `c [directions, rows, C]` after each row's last step, clipped.

    Raises:
        ValueError: a shape or a device does not fit the others.
    """
    _check(inputs, state, weights)
    inputs, hidden = inputs.contiguous(), state[0].contiguous()
    outputs = inputs.new_empty(*inputs.shape[:2], hidden.shape[-1])
    cell = state[1].clone(memory_format=torch.contiguous_format)
    rows, clips = steps[0][1], (cell_clip, proj_clip)
    projected = weights[0].weight_hr is not None
    sizes = inputs.shape[2], hidden.shape[2], cell.shape[2]
    with torch.autocast(inputs.device.type, enabled=False):
        kind = choose_kind(inputs, cell, *sizes) if projected else None
        if kind is not None and rows >= FEWEST_ROWS[kind]:
            _infer_fused(kind, steps, inputs, hidden, cell, weights, clips, outputs)
        elif rows < FEW_ROWS and fits(inputs, cell, *sizes[1:]):
            _infer_few(steps, inputs, hidden, cell, weights, cell_clip, proj_clip, outputs)
        else:
            for direction, own in enumerate(weights):
                state = hidden[direction], cell[direction : direction + 1]
                arguments = inputs[direction], *state, own, *clips, choose_cell, outputs[direction]
                _infer_direction(steps, *arguments)
    return outputs, clip(cell, cell_clip)


def _check(inputs: Tensor, state: tuple[Tensor, Tensor], weights: Sequence[LstmWeights]) -> None:
    """The functions in C see addresses only: what does not fit would be read or written beyond its end."""
    (directions, _, width), (_, rows, size), cells = inputs.shape, state[0].shape, state[1].shape[2]
    expected = {"h": (directions, rows, size), "c": (directions, rows, cells)}
    found = {"h": state[0], "c": state[1]}
    shapes = {"weight_ih": (4 * cells, width), "weight_hh": (4 * cells, size), "bias": (4 * cells,)}
    shapes["weight_hr"] = (size, cells)
    if len(weights) != directions:
        raise ValueError(f"inputs have {directions} directions, but there are weights for {len(weights)}")
    for number, own in enumerate(weights):
        for name, tensor in own._asdict().items():
            if tensor is not None:
                expected[f"{name} of direction {number}"], found[f"{name} of direction {number}"] = shapes[name], tensor
        if own.weight_hr is None and size != cells:
            raise ValueError(f"without weight_hr, h has the size of c, {cells}, not {size}")
    for name, tensor in found.items():
        if tensor.shape != expected[name] or tensor.device != inputs.device:
            raise ValueError(
                f"{name} has the shape {tuple(tensor.shape)} on {tensor.device}; with inputs {tuple(inputs.shape)} on "
                f"{inputs.device} and this state it must have {expected[name]} there"
            )


def _infer_fused(
    kind: str,
    steps: Steps,
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: Sequence[LstmWeights],
    clips: tuple[float | None, float | None],
    outputs: Tensor,
) -> None:
    """`_infer_direction` for all directions, products and cells at the same time, in C."""
    name, dtype = f"fused in C, {kind}", inputs.dtype
    gates = [kept((own.weight_ih, own.weight_hh), dtype, name, partial(gates_layout, kind)) for own in weights]
    projections = [kept((own.weight_hr,), dtype, name, partial(projection_layout, kind)) for own in weights]
    biases = [own.bias.detach().to(dtype) for own in weights]
    sizes = [end - start for start, end in steps]
    run_layer(kind, sizes, inputs, hidden, cell, gates, projections, biases, clips, outputs)


def _infer_few(
    steps: Steps,
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: Sequence[LstmWeights],
    cell_clip: float | None,
    proj_clip: float | None,
    outputs: Tensor,
) -> None:
    """`_infer_direction` for all directions, in C."""
    dtype, hidden, before_clip = inputs.dtype, hidden.to(torch.float32, copy=True), None
    input_halves = [packed_product((own.weight_ih,), dtype, min(CHUNK_ROWS, inputs.shape[1])) for own in weights]
    biases = [own.bias.detach().to(dtype) for own in weights]
    recurrent = [kept((own.weight_hh,), dtype, "few rows in C", few_recurrent_layout) for own in weights]
    projections = None
    if weights[0].weight_hr is not None:
        projections = [kept((own.weight_hr,), dtype, "few rows in C", few_projection_layout) for own in weights]
    for chunk in _chunks(steps):
        words = slice(chunk[0][0], chunk[-1][1])
        gates = [half(x[words], bias) for half, x, bias in zip(input_halves, inputs, biases, strict=True)]
        own, clips = [output[words] for output in outputs], (before_clip, cell_clip, proj_clip)
        sizes = [end - start for start, end in chunk]
        run_few(sizes, gates, hidden, cell, recurrent, projections, clips, own)
        before_clip = cell_clip


def _chunks(steps: Steps) -> Iterator[Steps]:
    """The steps in pieces of about `CHUNK_ROWS` rows."""
    chunk: Steps = []
    for step in steps:
        chunk.append(step)
        if step[1] - chunk[0][0] >= CHUNK_ROWS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _infer_direction(
    steps: Steps,
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: LstmWeights,
    cell_clip: float | None,
    proj_clip: float | None,
    choose_cell: ChooseCell,
    outputs: Tensor,
) -> None:
    """Write `outputs`; `cell [1, rows, C]` becomes that of each row's last step, before its clip."""
    rows, before_clip = steps[0][1], None
    gates_of = (_infer_gates if rows >= FEW_ROWS else _infer_gates_of_few)(rows, inputs, weights)
    project = None if weights.weight_hr is None else packed_product((weights.weight_hr,), inputs.dtype, rows)
    forward_cell, cell_outputs = choose_cell(inputs, cell).forward, inputs.new_empty(cell.shape)
    for start, end in steps:
        if end - start < rows:
            rows = end - start
            hidden, cell, cell_outputs = hidden[:rows], cell[:, :rows], cell_outputs[:, :rows]
        gates = gates_of(start, end, hidden).unsqueeze(0)
        forward_cell(gates, None, cell, before_clip, cell_clip, cell, cell_outputs)
        hidden, before_clip = outputs[start:end], cell_clip
        if project is None:
            hidden.copy_(cell_outputs[0])
        elif proj_clip is None:
            hidden.copy_(project(cell_outputs[0]))
        else:
            torch.clamp(project(cell_outputs[0]), -proj_clip, proj_clip, out=hidden)


def _infer_gates(rows: int, inputs: Tensor, weights: LstmWeights) -> Callable[[int, int, Tensor], Tensor]:
    """`(start, end, hidden) -> gates`: word and recurrent state side by side, both halves in one product."""
    product = packed_product((weights.weight_ih, weights.weight_hh), inputs.dtype, rows)
    bias, size = weights.bias.detach().to(inputs.dtype), inputs.shape[1]
    both = inputs.new_empty(rows, size + weights.weight_hh.shape[1])

    def gates_of(start: int, end: int, hidden: Tensor) -> Tensor:
        now = both[: end - start]
        now[:, :size] = inputs[start:end]
        now[:, size:] = hidden
        return product(now, bias)

    return gates_of


def _infer_gates_of_few(rows: int, inputs: Tensor, weights: LstmWeights) -> Callable[[int, int, Tensor], Tensor]:
    """As `_infer_gates` for few rows, where reading weights takes the time: input halves of many words at once."""
    input_half = packed_product((weights.weight_ih,), inputs.dtype, min(CHUNK_ROWS, len(inputs)))
    recurrent_half = packed_product((weights.weight_hh,), inputs.dtype, rows)
    bias = weights.bias.detach().to(inputs.dtype)
    first, gates = 0, inputs[:0]

    def gates_of(start: int, end: int, hidden: Tensor) -> Tensor:
        nonlocal first, gates
        if end > first + len(gates):
            first, gates = start, input_half(inputs[start : start + CHUNK_ROWS], bias)
        return recurrent_half(hidden, gates[start - first : end - first])

    return gates_of
