"""LSTM layers without gradients in C (`csrc/layer.c`): products and cells at the same time, with PyTorch's threads.

"fused" is for many rows, "small-batch" for few, and both read the same copy of the weights, laid out in blocks. A kind
of product is named by its types: "f32"; "half", bfloat16 weights that multiply float32 numbers, where there are no
instructions for bfloat16; "bf16"; and on AMX tiles "bf16_tiles". "int8" is "small-batch" with the gates' products in 8
bits. Those of the projection keep their type, as vectors depend more on them.
"""

import functools
import math

import torch
from torch import Tensor

from . import native
from .lstm_onednn import why_not_packed
from .native import FUSED_COLUMNS, FUSED_DEPTH, FUSED_ROWS, LANES
from .tensors import LstmCall, LstmWeights, State, get_cached, last_words, why_not_cached

# The most rows in a group, whose weights are read once: the operands of more rows do not stay in the cache.
GROUP_ROWS = {"f32": 128, "half": 128, "bf16": 512, "bf16_tiles": 512}
MOST_BYTE_ROWS = 3  # with weights in 8 bits, which save the reading of bytes, not operations
WORDS_AT_ONCE = 256  # of few rows: the input half of the gates is computed for about this many words together


def why_not_fused_tiles(call: LstmCall) -> str | None:
    """Why "fused-tiles" does not compute the call, or `None` if it does."""
    if native.library() is not None and not _has_tiles():
        return "this processor has no AMX tiles, or the operating system does not permit them (arch_prctl)"
    return _why_not("many", "bf16_tiles", call) if call.inputs.dtype == torch.bfloat16 else "inputs are not bfloat16"


def why_not_fused(call: LstmCall) -> str | None:
    """Why "fused" does not compute the call, or `None` if it does."""
    return _why_not("many", _kind_of(call), call)


def why_not_small_batch(call: LstmCall) -> str | None:
    """Why "small-batch" does not compute the call, or `None` if it does."""
    return _why_not("few", _kind_of(call, few=True), call)


def why_not_int8(call: LstmCall) -> str | None:
    """Why "int8" does not compute the call, or `None` if it does."""
    if call.batch_sizes[0] > MOST_BYTE_ROWS:
        return f"a batch of more than {MOST_BYTE_ROWS} rows"
    return why_not_small_batch(call)


def _why_not(how: str, kind: str | None, call: LstmCall) -> str | None:
    if kind is None:
        return f"inputs are {call.inputs.dtype}, not float32 or bfloat16"
    if native.library() is None:
        return native.reason()
    if not hasattr(native.library(), f"layer_{how}_{kind}"):
        return f"this processor has no instructions for products of the kind {kind}"
    width, size, cells = call.inputs.shape[2], call.hidden.shape[2], call.cell.shape[2]
    if width % FUSED_DEPTH or size % FUSED_COLUMNS or cells % FUSED_DEPTH:
        return f"sizes {width}, {size}, {cells} are not multiples of {FUSED_DEPTH}, {FUSED_COLUMNS}, {FUSED_DEPTH}"
    if call.cell.dtype != torch.float32:
        return f"cells are {call.cell.dtype}, not float32"
    rows, not_many = call.batch_sizes[0], None
    if any(weights.weight_hr is None for weights in call.weights):
        not_many = "the LSTM has no projection"
    elif torch.get_num_threads() > 1 and not native.library().has_threads():
        not_many = f"threads of the kernels: {native.NO_THREADS}"
    elif kind == "half" and rows * width >= 1 << 16 and not why_not_packed(call.inputs):
        not_many = "for so many rows, oneDNN's copy of the weights in float32 is faster"
    # Only "fused" reads the input's weights in each step; each row costs "small-batch" a write and a read of its gates.
    # So "small-batch" is for more rows the more bytes these weights have; for three beside tiles, on which 16 rows take
    # the time of one. (NOTES.md)
    most = {"f32": min(12, width // 32), "bf16": max(3, width // 64)}.get(kind, 3)
    most = FUSED_ROWS if not_many else 3 if call.inputs.dtype == torch.bfloat16 and _has_tiles() else most
    if how == "few" and rows > most:
        return f"a batch of more than {most} rows"
    if how == "many" and (not_many or rows <= most):
        return not_many or f"a batch of no more than {most} rows"
    return why_not_cached(tensor for weights in call.weights for tensor in weights)


def _kind_of(call: LstmCall, few: bool = False) -> str | None:
    """The kind of product for the types of a call; a library without the instructions may lack it."""
    if call.inputs.dtype == torch.bfloat16:
        return "half" if few and not hasattr(native.library(), "layer_few_bf16") else "bf16"
    halves = all(tensor is None or tensor.dtype == torch.bfloat16 for weights in call.weights for tensor in weights)
    return {True: "half", False: "f32"}[halves] if call.inputs.dtype == torch.float32 else None


@functools.cache
def _has_tiles() -> bool:
    return hasattr(native.library(), "request_tiles") and bool(native.library().request_tiles())


def _run(how: str, call: LstmCall, tiles: bool = False, in_bytes: bool = False) -> tuple[Tensor, State]:
    """The result of `modeling_elmo.bilstm_layer`."""
    kind = "bf16_tiles" if tiles else _kind_of(call, few=how == "few")
    dtype = torch.bfloat16 if "bf16" in kind else torch.float32
    inputs = call.inputs.to(dtype).contiguous()
    hidden = call.hidden.to(dtype, copy=True).contiguous()
    cell = call.cell.clone(memory_format=torch.contiguous_format)
    (directions, rows, size), words, threads = hidden.shape, inputs.shape[1], torch.get_num_threads()
    outputs = inputs.new_empty(directions, words, size)
    if how == "many":
        step = threads // math.gcd(threads, directions)  # all threads work if `groups` is a multiple of `step`
        group = math.ceil(rows / (math.ceil(rows / GROUP_ROWS[kind] / step) * step))
    else:
        group = min(words, max(rows, WORDS_AT_ONCE))
    gates = [_gates_layout(kind, weights, in_bytes) for weights in call.weights]
    arrays = {
        "inputs": list(inputs),
        "weights": [layout for layout, _ in gates],
        "scales": [scales for _, scales in gates] if in_bytes else None,
        "weight_hr": [_projection_layout(kind, weights.weight_hr) for weights in call.weights],
        "biases": [weights.bias.detach().to(dtype).float().contiguous() for weights in call.weights],
        "outputs": list(outputs),
        "sizes": torch.tensor(call.batch_sizes, dtype=torch.int64, device="cpu"),
    }
    arrays |= {"hidden": hidden, "cell": cell, "cell_outputs": torch.empty_like(cell, dtype=dtype)}
    sizes = {"directions": directions, "rows": rows, "input": inputs.shape[2], "size": size, "cells": cell.shape[2]}
    sizes |= {"steps": len(call.batch_sizes), "group": math.ceil(group / FUSED_ROWS) * FUSED_ROWS, "threads": threads}
    fields = arrays | sizes | {"cell_clip": call.cell_clip, "proj_clip": call.proj_clip}
    scratch_bytes = math.ceil(native.run(f"layer_{how}_scratch_{kind}", **fields) / 64) * 64  # whole cache lines
    scratch = torch.empty(threads, scratch_bytes, dtype=torch.uint8, device="cpu")
    native.run(f"layer_{how}_{kind}", **fields, scratch=scratch, scratch_bytes=scratch_bytes)
    outputs = outputs.to(call.inputs.dtype)
    return outputs, (outputs.index_select(1, last_words(call.batch_sizes)), cell)


run_fused_tiles, run_fused = functools.partial(_run, "many", tiles=True), functools.partial(_run, "many")
run_int8, run_small_batch = functools.partial(_run, "few", in_bytes=True), functools.partial(_run, "few")


def _gates_layout(kind: str, weights: LstmWeights, in_bytes: bool) -> tuple[Tensor, Tensor | None]:
    """`weight_ih` and `weight_hh` `[4C, ...]` side by side: the four gates of `LANES` cells in a block. With `in_bytes`
    integers from -127 to 127, of which four are laid out as one number, and a scale for each of the `4C` rows."""

    def make() -> tuple[Tensor, Tensor | None]:
        weight, scales = torch.cat((weights.weight_ih, weights.weight_hh), dim=1), None
        if in_bytes:
            scales = weight.detach().float().abs().amax(1).clamp_min(1e-30) / 127
            rows = (weight.detach().float() / scales[:, None]).round().to(torch.int8).view(torch.float32)
        else:
            rows = _laid_out(kind, weight)
        return rows.unflatten(0, (4, -1, LANES)).permute(1, 0, 3, 2).contiguous(), scales

    return get_cached((weights.weight_ih, weights.weight_hh), "int8" if in_bytes else kind == "f32", make)


def _projection_layout(kind: str, weight: Tensor | None) -> Tensor | None:
    def make() -> Tensor:
        return _laid_out(kind, weight).unflatten(0, (-1, 4, LANES)).mT.contiguous()

    return weight if weight is None else get_cached((weight,), kind == "f32", make)


def _laid_out(kind: str, weight: Tensor) -> Tensor:
    """`weight [rows, K]` in the type of `csrc/layer.c`; a pair of bfloat16 numbers is laid out as one number."""
    dtype = torch.float32 if kind == "f32" else torch.bfloat16
    return weight.detach().to(dtype, copy=True).view(torch.float32)  # a weight may begin within a pair
