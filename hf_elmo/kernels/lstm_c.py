"""LSTM layers without gradients in C (`csrc/layer.c`): products and cells at the same time, with PyTorch's threads.

"fused" is for many rows, on AMX tiles if there are any, "small-batch" for few. Both read the same copy of the weights,
laid out in blocks, and without tiles their results have the same bits. "int8" is "small-batch" with the gates' products
in 8 bits. Those of the projection keep their type, as vectors depend more on them.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from . import native
from .lstm_onednn import why_not_training
from .native import FUSED_COLUMNS, FUSED_DEPTH, FUSED_ROWS, LANES
from .tensors import LstmCall, LstmWeights, State, get_cached, tensors_of, why_not_cached

MOST_BYTE_ROWS = 3  # with weights in 8 bits, which save the reading of bytes, not operations
WORDS_AT_ONCE = 256  # of few rows: the input half of the gates is computed for about this many words together
TAIL_STEPS = 10  # of few rows after steps of many, so that the second way gains more than it costs


class Kind(NamedTuple):
    """A kind of product of `csrc/layer.c`."""

    name: str
    inputs: torch.dtype
    weights: torch.dtype
    group_rows: int  # the most in a group, whose weights are read once: operands of more rows do not stay in the cache
    # From the width of the inputs, the most rows for which "small-batch" is faster. Only "fused" reads the input's
    # weights in each step; each row costs "small-batch" a write and a read of its gates. So it is for more rows the
    # more bytes these weights have; for three beside tiles, on which 16 rows take the time of one. (NOTES.md)
    few: Callable[[int], int]


F32 = Kind("f32", torch.float32, torch.float32, 128, lambda width: min(16, width // 32))
HALF = Kind("half", torch.float32, torch.bfloat16, 128, lambda width: 3)  # where no instructions multiply bfloat16
BF16 = Kind("bf16", torch.bfloat16, torch.bfloat16, 512, lambda width: max(3, width // 64))
TILES = Kind("bf16_tiles", torch.bfloat16, torch.bfloat16, 512, lambda width: 3)


def why_not_fused(call: LstmCall) -> str | None:
    """Why "fused" does not compute the call, or `None` if it does."""
    if (reason := _why_not(call) or _why_never_fused(call)) is not None:
        return reason
    most = _kind_of(call).few(call.inputs.shape[2])
    return f"a batch of no more than {most} rows" if call.batch_sizes[0] <= most else None


def why_not_small_batch(call: LstmCall) -> str | None:
    """Why "small-batch" does not compute the call, or `None` if it does."""
    if (reason := _why_not(call)) is not None:
        return reason
    most = FUSED_ROWS if _why_never_fused(call) else _kind_of(call).few(call.inputs.shape[2])
    return f"a batch of more than {most} rows" if call.batch_sizes[0] > most else None


def why_not_int8(call: LstmCall) -> str | None:
    """Why "int8" does not compute the call, or `None` if it does."""
    if call.batch_sizes[0] > MOST_BYTE_ROWS:
        return f"a batch of more than {MOST_BYTE_ROWS} rows"
    return why_not_small_batch(call)


def _why_not(call: LstmCall) -> str | None:
    """Why C cannot compute the call, or `None` if it can."""
    if (reason := why_not_training(call)) is not None:
        return reason
    width, size, cells = (tensor.shape[2] for tensor in (call.inputs, call.hidden, call.cell))
    if width % FUSED_DEPTH or size % FUSED_COLUMNS or cells % FUSED_DEPTH:
        return f"sizes {width}, {size}, {cells} are not multiples of {FUSED_DEPTH}, {FUSED_COLUMNS}, {FUSED_DEPTH}"
    return why_not_cached(tensors_of(call.weights))


def _why_never_fused(call: LstmCall) -> str | None:
    """Why "fused" is not faster than others for any number of rows."""
    if call.weights[0].weight_hr is None:
        return "the LSTM has no projection"
    if torch.get_num_threads() > 1 and not native.library().has_threads():
        return f"threads of the kernels: {native.NO_THREADS}"
    return None


def _kind_of(call: LstmCall, few: bool = False) -> Kind:
    if call.inputs.dtype == torch.bfloat16:
        if not hasattr(native.library(), "layer_bf16"):
            return HALF
        return BF16 if few or not _has_tiles() else TILES
    halves = all(tensor.dtype == torch.bfloat16 for tensor in tensors_of(call.weights))
    return HALF if halves else F32


@functools.cache
def _has_tiles() -> bool:
    """Whether the processor has AMX tiles, and the operating system permits them (arch_prctl)."""
    return hasattr(native.library(), "request_tiles") and bool(native.library().request_tiles())


def run_fused(call: LstmCall) -> tuple[Tensor, State]:
    """The result of `modeling_elmo.lstm_directions`. The last steps are computed as those of a small batch if they have
    as few rows and are many: one long sentence among short ones."""
    kind = _kind_of(call)
    most = kind.few(call.inputs.shape[2])
    many = sum(rows > most for rows in call.batch_sizes)  # of these steps
    if not many or len(call.batch_sizes) - many < TAIL_STEPS or kind is TILES:  # whose sums have other bits
        many = len(call.batch_sizes)
    return _run(call, kind, many)


def run_small_batch(call: LstmCall, in_bytes: bool = False) -> tuple[Tensor, State]:
    """The result of `modeling_elmo.lstm_directions`; `in_bytes`, with the numbers of the gates' products in 8 bits."""
    return _run(call, _kind_of(call, few=True), 0, in_bytes)


def _run(call: LstmCall, kind: Kind, many: int, in_bytes: bool = False) -> tuple[Tensor, State]:
    """Computes the first `many` steps as those of many rows, the others as those of few."""
    inputs = call.inputs.to(kind.inputs).contiguous()
    hidden = call.hidden.to(kind.inputs, copy=True).contiguous()
    cell = call.cell.clone(memory_format=torch.contiguous_format)
    outputs = inputs.new_empty(*inputs.shape[:2], hidden.shape[2])
    gates = [_gates_layout(kind, weights, in_bytes) for weights in call.weights]
    threads = torch.get_num_threads()
    fields = {"inputs": list(inputs), "outputs": list(outputs), "weights": [layout for layout, _ in gates]}
    fields |= {"scales": [scales for _, scales in gates] if in_bytes else None}
    fields |= {"weight_hr": [_projection_layout(kind, weights.weight_hr) for weights in call.weights]}
    fields |= {"biases": [own.bias.detach().to(kind.inputs).float().contiguous() for own in call.weights]}
    rows = call.batch_sizes[0]
    step = threads // math.gcd(threads, len(inputs))  # all threads work if the number of groups is a multiple
    groups = math.ceil(rows / kind.group_rows / step) * step
    words = min(inputs.shape[1], max(rows, WORDS_AT_ONCE))
    fields |= {"hidden": hidden, "cell": cell, "cell_outputs": torch.empty_like(cell, dtype=kind.inputs)}
    fields |= {"sizes": torch.tensor(call.batch_sizes, dtype=torch.int64, device="cpu"), "many": many}
    fields |= {"barriers": torch.zeros(len(inputs), 64, dtype=torch.uint8, device="cpu")}
    fields |= {"directions": len(inputs), "rows": rows, "steps": len(call.batch_sizes), "threads": threads}
    fields |= {"input": inputs.shape[2], "size": hidden.shape[2], "cells": cell.shape[2]}
    fields |= {"group": FUSED_ROWS * math.ceil(rows / groups / FUSED_ROWS)}
    fields |= {"words": FUSED_ROWS * math.ceil(words / FUSED_ROWS)}
    fields |= {"cell_clip": call.cell_clip, "proj_clip": call.proj_clip}
    lines = math.ceil(native.run(f"layer_scratch_{kind.name}", **fields) / 64)  # of the cache
    scratch = torch.empty(threads, 64 * lines, dtype=torch.uint8, device="cpu")
    native.run(f"layer_{kind.name}", **fields, scratch=scratch, scratch_bytes=64 * lines)
    return outputs.to(call.inputs.dtype), (hidden.to(call.inputs.dtype), cell)


def _gates_layout(kind: Kind, weights: LstmWeights, in_bytes: bool) -> tuple[Tensor, Tensor | None]:
    """`weight_ih` and `weight_hh` `[4C, ...]` side by side: the four gates of `LANES` cells in a block. With `in_bytes`
    integers from -127 to 127, of which four are laid out as one number, and a scale for each of the `4C` rows."""

    def make() -> tuple[Tensor, Tensor | None]:
        scales = None
        halves = [_in_kind(kind, half) for half in weights[:2]]
        if in_bytes:
            exact = [half.detach().float() for half in weights[:2]]
            scales = torch.cat(exact, dim=1).abs().amax(1).clamp_min(1e-30) / 127
            halves = [(half / scales[:, None]).round().to(torch.int8).view(torch.float32) for half in exact]
        blocks = [half.unflatten(0, (4, -1, LANES)).permute(1, 0, 3, 2) for half in halves]
        return torch.cat(blocks, dim=2).contiguous(), scales  # in one pass, which reads each weight once

    return get_cached((weights.weight_ih, weights.weight_hh), "int8" if in_bytes else kind.weights, make)


def _projection_layout(kind: Kind, weight: Tensor | None) -> Tensor | None:
    make = lambda: _in_kind(kind, weight).unflatten(0, (-1, 4, LANES)).mT.contiguous()  # noqa: E731
    return weight if weight is None else get_cached((weight,), kind.weights, make)


def _in_kind(kind: Kind, weight: Tensor) -> Tensor:
    """`weight [rows, K]` in the type of `csrc/layer.c`; a pair of bfloat16 numbers is laid out as one number."""
    weight = weight.detach().to(kind.weights)
    return (weight.clone() if weight.storage_offset() % 2 else weight).view(torch.float32)
