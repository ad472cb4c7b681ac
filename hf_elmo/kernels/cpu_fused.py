"""Inference over many rows in C, on AVX-512 vectors: products and cells at the same time (`csrc/fused.c`)."""

import ctypes
import math
from collections.abc import Sequence
from ctypes import POINTER, c_long
from functools import partial

import torch
from torch import Tensor

from ..lstm_elmo import LstmCall, State
from . import native
from .packing import last_words
from .structs import FUSED_COLUMNS as COLUMNS
from .structs import FUSED_DEPTH as DEPTH
from .structs import FUSED_ROWS as ROWS
from .structs import Layer
from .tensors import why_not_inference
from .weights import cached

GROUP_ROWS = 512  # side by side at most: each weight that is read serves them all, and their cells need memory
# With fewer rows, reading both halves of the gates' weights takes too long.
FEWEST_ROWS = {"f32": 8, "bf16": 3, "bf16_tiles": 3, "split_tiles": 8}
KINDS = {torch.float32: "f32", torch.bfloat16: "bf16"}


def supports(call: LstmCall) -> str | None:
    """Why the call cannot be computed so, or `None`."""
    kind = KINDS.get(call.inputs.dtype)
    if kind is None:
        return f"inputs are {call.inputs.dtype}, not float32 or bfloat16"
    return why_not_kind(kind, call)


def run(call: LstmCall) -> tuple[Tensor, State]:
    """`lstm_elmo.bilstm_layer` for calls that [`supports`] takes."""
    return run_kind(KINDS[call.inputs.dtype], call)


def why_not_kind(kind: str, call: LstmCall) -> str | None:
    """Why this kind of product does not do for the call, or `None`."""
    if native.library() is None:
        return native.reason()
    if not hasattr(native.library(), f"layer_{kind}"):
        return f"this processor has no instructions for products of the kind {kind}"
    if call.weights[0].weight_hr is None:
        return "the LSTM has no projection"
    (_, _, width), size, cells = call.inputs.shape, call.hidden.shape[2], call.cell.shape[2]
    if width % DEPTH or size % COLUMNS or cells % DEPTH:
        return f"the sizes {width}, {size} and {cells} are no multiples of {DEPTH}, {COLUMNS} and {DEPTH}"
    if call.cell.dtype != torch.float32:
        return f"cells are {call.cell.dtype}, not float32"
    if call.batch_sizes[0] < FEWEST_ROWS[kind]:
        return f"a batch of fewer than {FEWEST_ROWS[kind]} rows"
    return why_not_inference(call, "cpu")


def run_kind(kind: str, call: LstmCall) -> tuple[Tensor, State]:
    """[`run`] with products of the kind named; as many threads as PyTorch uses."""
    name, dtype = f"fused, {kind}", call.inputs.dtype
    gates = [cached((own.weight_ih, own.weight_hh), dtype, name, partial(gates_layout, kind)) for own in call.weights]
    projections = [cached((own.weight_hr,), dtype, name, partial(projection_layout, kind)) for own in call.weights]
    biases = [own.bias.detach().to(dtype).float().contiguous() for own in call.weights]
    inputs, cell = call.inputs.contiguous(), call.cell.clone(memory_format=torch.contiguous_format)
    outputs = inputs.new_empty(*inputs.shape[:2], call.hidden.shape[2])
    hidden, clips = call.hidden.float().contiguous(), (call.cell_clip, call.proj_clip)
    _run_layer(kind, call.batch_sizes, inputs, hidden, cell, gates, projections, biases, clips, outputs)
    return outputs, (outputs.index_select(1, last_words(call.batch_sizes)), cell)


def gates_layout(kind: str, weight_ih: Tensor, weight_hh: Tensor) -> Tensor:
    """`weight_ih` and `weight_hh` `[4C, ...]` side by side as the functions read them."""
    weight = torch.cat((weight_ih, weight_hh), dim=1)
    return _layout(kind, weight.view(4, -1, COLUMNS // 4, weight.shape[1]).transpose(0, 1))


def projection_layout(kind: str, weight_hr: Tensor) -> Tensor:
    """`weight_hr [P, C]` as the functions read it."""
    return _layout(kind, weight_hr.view(-1, 4, COLUMNS // 4, weight_hr.shape[1]))


def _layout(kind: str, blocks: Tensor) -> Tensor:
    """From `[blocks, 4, 16, K]`."""
    if kind == "f32":
        return blocks.unflatten(3, (-1, DEPTH)).permute(0, 3, 4, 1, 2).contiguous()
    parts = blocks.bfloat16()
    parts = torch.stack((parts, (blocks - parts).bfloat16())) if kind == "split_tiles" else parts[None]
    parts = parts.unflatten(4, (-1, DEPTH // 2, 2))  # [parts, blocks, 4, 16, K / DEPTH, pairs, 2]
    return parts.permute((1, 4, 0, 5, 2, 3, 6) if kind == "bf16" else (1, 4, 0, 2, 5, 3, 6)).contiguous()


def _run_layer(
    kind: str,
    sizes: Sequence[int],
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: Sequence[Tensor],
    weights_hr: Sequence[Tensor],
    biases: Sequence[Tensor],
    clips: tuple[float | None, float | None],
    outputs: Tensor,
) -> None:
    """Writes `outputs [directions, words, P]`; `cell [directions, rows, C]` becomes that of each row's last step."""
    (directions, rows, size), cells, threads = hidden.shape, cell.shape[2], torch.get_num_threads()
    numbers = torch.tensor(sizes, device="cpu")
    together = threads // math.gcd(threads, directions)  # so many groups of each direction keep all threads at work
    groups = math.ceil(rows / GROUP_ROWS / together) * together
    group = math.ceil(rows / groups / ROWS) * ROWS
    scratch_bytes = native.function(f"scratch_{kind}", *[c_long] * 4, returns=c_long)
    each = math.ceil(scratch_bytes(group, inputs.shape[2], size, cells) / 64) * 64  # a whole number of cache lines
    scratch = torch.empty(threads, each, dtype=torch.uint8, device="cpu")
    arrays = [native.pointers(x) for x in (inputs, weights, weights_hr, biases, outputs)]
    layer = Layer(
        *(ctypes.cast(array, ctypes.c_void_p) for array in arrays),
        *(x.data_ptr() for x in (hidden, cell, numbers, scratch)),
        *(each, len(sizes), directions, rows, group, inputs.shape[2], size, cells),
        *(math.inf if bound is None else bound for bound in clips),
        threads,
    )
    native.function(f"layer_{kind}", POINTER(Layer))(ctypes.byref(layer))
