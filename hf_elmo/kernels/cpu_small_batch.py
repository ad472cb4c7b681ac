"""Inference over a small batch in C, for the CPU: a direction of a layer in one call (`csrc/small_batch.c`)."""

import ctypes
import math
from collections.abc import Iterator, Sequence
from ctypes import POINTER
from functools import partial

import torch
from torch import Tensor

from ..lstm_elmo import LstmCall, LstmWeights, State, clip
from . import native
from .cpu_packed import Product, pack, why_not_packed
from .layout import lay_out
from .packing import last_words, steps_of
from .structs import LANES, SmallBatch
from .tensors import why_not_inference
from .weights import cached

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
MOST_ROWS = 7  # with more, products of many rows are the faster way
# Words whose input half of the gates is computed at a time.
WORDS_AT_ONCE = 256


def supports(call: LstmCall) -> str | None:
    """Why the call cannot be computed so, or `None`."""
    if call.inputs.dtype not in TYPES or call.cell.dtype != torch.float32:
        return f"inputs are {call.inputs.dtype} and cells {call.cell.dtype}"
    if call.batch_sizes[0] > MOST_ROWS:
        return f"a batch of more than {MOST_ROWS} rows"
    size, cells = call.hidden.shape[2], call.cell.shape[2]
    if size % (2 * LANES) or cells % LANES:
        return f"the sizes {size} and {cells} are no multiples of {2 * LANES} and {LANES}"
    return native.reason() or why_not_inference(call, "cpu")


def run(call: LstmCall) -> tuple[Tensor, State]:
    """`lstm_elmo.bilstm_layer` for calls that [`supports`] takes."""
    inputs, dtype = call.inputs.contiguous(), call.inputs.dtype
    hidden = call.hidden.to(torch.float32, copy=True).contiguous()
    cell = call.cell.clone(memory_format=torch.contiguous_format)
    outputs = inputs.new_empty(*inputs.shape[:2], hidden.shape[2])
    biases = [own.bias.detach().to(dtype) for own in call.weights]
    input_halves, weights_hh, weights_hr = _prepared(call.weights, dtype)
    before_clip = None
    for chunk in _chunks(steps_of(call.batch_sizes)):
        part = slice(chunk[0][0], chunk[-1][1])
        gates = [half(x[part], bias) for half, x, bias in zip(input_halves, inputs, biases, strict=True)]
        clips = before_clip, call.cell_clip, call.proj_clip
        sizes = [end - start for start, end in chunk]
        _run_steps(sizes, gates, hidden, cell, weights_hh, weights_hr, clips, [output[part] for output in outputs])
        before_clip = call.cell_clip
    return outputs, (outputs.index_select(1, last_words(call.batch_sizes)), clip(cell, call.cell_clip))


def _prepared(
    directions: Sequence[LstmWeights], dtype: torch.dtype
) -> tuple[list[Product], list[Tensor], list[Tensor | None]]:
    """For each direction `(words, bias) -> gates` without the half that comes from the step before, and the layouts of
    its other weights; cached together, since to look whether many weights have changed takes as long as the steps."""
    packs = why_not_packed(directions[0].weight_ih.new_empty(0, dtype=dtype)) is None
    has_projection = directions[0].weight_hr is not None

    def make(*weights: Tensor) -> tuple[list[Product], list[Tensor], list[Tensor | None]]:
        parts = [weights[n :: len(directions)] for n in range(len(directions))]
        products = [pack(ih) if packs else partial(_product, ih) for ih, *_ in parts]
        projections = [projection_layout(hr) if has_projection else None for *_, hr in parts]
        return products, [recurrent_layout(hh) for _, hh, *_ in parts], projections

    names = ("weight_ih", "weight_hh", "weight_hr")[: 2 + has_projection]
    weights = tuple(getattr(own, name) for name in names for own in directions)
    return cached(weights, dtype, f"small batch, {len(directions)}, {packs}", make)


def _product(weight: Tensor, x: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias)


def _chunks(steps: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """The steps in pieces of about `WORDS_AT_ONCE` words."""
    chunk: list[tuple[int, int]] = []
    for step in steps:
        chunk.append(step)
        if step[1] - chunk[0][0] >= WORDS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def recurrent_layout(weight: Tensor) -> Tensor:
    """`weight_hh [4C, P]` as the functions read it: `LANES` cells' gates side by side, those of 16 bits in pairs."""
    cells = len(weight) // 4
    if weight.dtype == torch.float32:
        return lay_out(weight, cells // LANES, 4, LANES, cells)
    return weight.view(2, 2, -1, LANES, weight.shape[1]).permute(2, 4, 0, 3, 1).contiguous()


def projection_layout(weight: Tensor) -> Tensor:
    """`weight_hr [P, C]` as the functions read it."""
    if weight.dtype == torch.float32:
        return lay_out(weight, len(weight) // (2 * LANES), 2, 2 * LANES, LANES)
    return weight.view(-1, 2, LANES, weight.shape[1]).permute(0, 3, 2, 1).contiguous()


def _run_steps(
    sizes: Sequence[int],
    gates: Sequence[Tensor],
    hidden: Tensor,
    cell: Tensor,
    weights_hh: Sequence[Tensor],
    weights_hr: Sequence[Tensor | None],
    clips: tuple[float | None, float | None, float | None],
    outputs: Sequence[Tensor],
) -> None:
    """Steps of several directions.

    Args:
        sizes: rows of each step, never rising.
        gates: for each direction `[words, 4C]`, the input half, bias included.
        hidden, cell: `[directions, rows, P]` and `[directions, rows, C]` float32, contiguous: the state, overwritten by
            that of each row's last step (the cell before its clip).
        weights_hh, weights_hr: for each direction, laid out by [`recurrent_layout`] and [`projection_layout`].
        clips: on the cell before the first step, on later cells, on the projection.
        outputs: for each direction `[words, P]`, contiguous, written.
    """
    (directions, rows, size), cells = hidden.shape, cell.shape[2]
    cell_outputs, numbers = torch.empty_like(cell), torch.tensor(sizes, device="cpu")
    arrays = [native.pointers(tensors) for tensors in (gates, weights_hh, weights_hr, outputs)]
    name = f"small_batch_{TYPES[outputs[0].dtype]}"
    arguments = SmallBatch(
        *(ctypes.cast(array, ctypes.c_void_p) for array in arrays),
        *(tensor.data_ptr() for tensor in (hidden, cell, cell_outputs, numbers)),
        *(len(sizes), directions, rows, cells, size),
        *(math.inf if bound is None else bound for bound in clips),
        torch.get_num_threads(),
    )
    native.function(name, POINTER(SmallBatch))(ctypes.byref(arguments))
