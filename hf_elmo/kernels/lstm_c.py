"""LSTM layers without gradients in C: many rows on AVX-512 vectors or AMX tiles, and small batches.

"fused" (`csrc/fused.c`) computes products and cells at the same time, with PyTorch's number of threads. "fused-tiles"
is the same on AMX tiles, for bfloat16, and for float32 if `torch.set_float32_matmul_precision("high")` allows it: each
float32 number is then replaced by the sum of two bfloat16 numbers, and each product by the sum of three products.
"small-batch" (`csrc/small_batch.c`) runs all directions of a layer in one call for about `WORDS_AT_ONCE` words.
"""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import native
from .lstm_onednn import Product, product_of, run_packed, why_not_packed
from .native import FUSED_COLUMNS, FUSED_DEPTH, FUSED_ROWS, LANES, Layer, SmallBatch
from .registry import enabled, register, watch
from .tensors import clip, get_cached, last_words, steps_of, why_not_inference

if TYPE_CHECKING:
    from ..modeling_elmo import LstmCall, LstmWeights, State

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
TILE_TYPES = {torch.float32: "split_tiles", torch.bfloat16: "bf16_tiles"}

# -- many rows ---------------------------------------------------------------------------------------------------------

GROUP_ROWS = 512  # the most rows in a group: weights are read once for a group, but the cells of its rows need memory
# With fewer rows, reading the weights of both halves of the gates in each step takes too long.
FEWEST_ROWS = {"f32": 8, "bf16": 3, "bf16_tiles": 3, "split_tiles": 8}
MEASURED = (32, 2, 128, 1024)  # rows, steps, P and C of the layer that is measured
SLOWER = 1.25  # "packed" is used if "fused" takes this many times as long; a smaller difference may be noise


def _supports_fused(call: LstmCall) -> str | None:
    return _why_not_fused(TYPES.get(call.inputs.dtype), call)


def _supports_fused_tiles(call: LstmCall) -> str | None:
    kind = TILE_TYPES.get(call.inputs.dtype)
    if native.library() is not None and not _has_tiles():
        return "this processor has no AMX tiles, or the operating system does not permit them (arch_prctl)"
    if kind == "split_tiles" and _has_exact_products():
        return 'float32 products are exact: torch.set_float32_matmul_precision("high") allows faster ones'
    return _why_not_fused(kind, call)


@functools.cache
def _has_tiles() -> bool:
    return hasattr(native.library(), "request_tiles") and bool(native.library().request_tiles())


def _has_exact_products() -> bool:
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # PyTorch's newer settings for each library are in use, and they differ
        return torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee")  # type: ignore[attr-defined]


def _why_not_fused(kind: str | None, call: LstmCall) -> str | None:
    if kind is None:
        return f"inputs are {call.inputs.dtype}, not float32 or bfloat16"
    if native.library() is None:
        return native.reason()
    if not hasattr(native.library(), f"layer_{kind}"):
        return f"this processor has no instructions for products of the kind {kind}"
    if torch.get_num_threads() > 1 and not native.library().has_threads():
        return f"threads of the kernels: {native.NO_THREADS}"
    if call.batch_sizes[0] < FEWEST_ROWS[kind]:
        return f"a batch of fewer than {FEWEST_ROWS[kind]} rows"
    if call.weights[0].weight_hr is None:
        return "the LSTM has no projection"
    width, size, cells = call.inputs.shape[2], call.hidden.shape[2], call.cell.shape[2]
    if width % FUSED_DEPTH or size % FUSED_COLUMNS or cells % FUSED_DEPTH:
        return f"sizes {width}, {size}, {cells} are not multiples of {FUSED_DEPTH}, {FUSED_COLUMNS}, {FUSED_DEPTH}"
    if call.cell.dtype != torch.float32:
        return f"cells are {call.cell.dtype}, not float32"
    return why_not_inference(call) or _why_packed(kind, call)


def _why_packed(kind: str, call: LstmCall) -> str | None:
    """The reason to use "packed" if it is clearly faster on this machine, otherwise `None`.

    AVX-512's bfloat16 products run at twice the rate of float32 products on one processor, and at two thirds of that
    rate on another. A table of processors would be right only for the processors in it, so the speed is measured: this
    takes some milliseconds, once on each machine.
    """
    if "packed" not in enabled() or why_not_packed(call.inputs):
        return None
    fused, packed = native.measured(kind, functools.partial(_measure, kind, call))
    return None if fused < SLOWER * packed else f"slower here than packed ({1e3 * fused:.2f} and {1e3 * packed:.2f} ms)"


def _measure(kind: str, call: LstmCall) -> list[float]:
    """Seconds that "fused" and "packed" take for a layer of the sizes `MEASURED`: the shortest of eight calls each, in
    the processor time of one thread, because other work on the machine changes this time least."""
    (rows, steps, size, cells), (dtype, directions) = MEASURED, (call.inputs.dtype, len(call.weights))
    best, threads = [math.inf, math.inf], torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode(False), torch.no_grad(), watch(lambda *_: None):
        shapes = (4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells)
        weights = [
            type(direction)(*(torch.full(shape, 0.01, dtype=dtype) for shape in shapes)) for direction in call.weights
        ]
        inputs, hidden = (torch.full((directions, n, size), 0.01, dtype=dtype) for n in (steps * rows, rows))
        cell = torch.zeros(directions, rows, cells)
        sample = call._replace(inputs=inputs, batch_sizes=[rows] * steps, hidden=hidden, cell=cell, weights=weights)
        for number in range(9):
            for place, run in enumerate((partial(_run_fused, {dtype: kind}), run_packed)):
                start = time.thread_time()
                run(sample)
                if number:  # the first call lays out the weights
                    best[place] = min(best[place], time.thread_time() - start)
    torch.set_num_threads(threads)
    return best


def _run_fused(types: dict[torch.dtype, str], call: LstmCall) -> tuple[Tensor, State]:
    """The result of `modeling_elmo.bilstm_layer`."""
    dtype = call.inputs.dtype
    kind = types[dtype]
    weights = [_gates_layout(kind, direction, dtype) for direction in call.weights]
    weights_hr = [_projection_layout(kind, direction, dtype) for direction in call.weights]
    biases = [direction.bias.detach().to(dtype).float().contiguous() for direction in call.weights]
    inputs, hidden = call.inputs.contiguous(), call.hidden.float().contiguous()
    cell = call.cell.clone(memory_format=torch.contiguous_format)
    outputs = inputs.new_empty(*inputs.shape[:2], hidden.shape[2])

    (directions, rows, size), cells, threads = hidden.shape, cell.shape[2], torch.get_num_threads()
    step = threads // math.gcd(threads, directions)  # all threads work if `groups` is a multiple of `step`
    groups = math.ceil(rows / GROUP_ROWS / step) * step
    group = math.ceil(rows / groups / FUSED_ROWS) * FUSED_ROWS
    needed = getattr(native.library(), f"scratch_{kind}")(group, inputs.shape[2], size, cells)
    scratch_bytes = math.ceil(needed / 64) * 64  # a whole number of cache lines
    scratch = torch.empty(threads, scratch_bytes, dtype=torch.uint8, device="cpu")
    sizes = torch.tensor(call.batch_sizes, device="cpu")
    arrays = [native.pointers(x) for x in (inputs, weights, weights_hr, biases, outputs)]
    layer = Layer(
        *(ctypes.cast(array, ctypes.c_void_p) for array in arrays),
        *(x.data_ptr() for x in (hidden, cell, sizes, scratch)),
        *(scratch_bytes, len(call.batch_sizes), directions, rows, group, inputs.shape[2], size, cells),
        *(math.inf if bound is None else bound for bound in (call.cell_clip, call.proj_clip)),
        threads,
    )
    getattr(native.library(), f"layer_{kind}")(ctypes.byref(layer))
    return outputs, (outputs.index_select(1, last_words(call.batch_sizes)), cell)


def _gates_layout(kind: str, direction: LstmWeights, dtype: torch.dtype) -> Tensor:
    """`weight_ih` and `weight_hh` `[4C, ...]` side by side, in the layout that the C functions read."""

    def make() -> Tensor:
        weight = torch.cat((direction.weight_ih, direction.weight_hh), dim=1).detach().to(dtype)
        return _fused_layout(kind, weight.view(4, -1, LANES, weight.shape[1]).transpose(0, 1))

    return get_cached((direction.weight_ih, direction.weight_hh), (kind, dtype), make)


def _projection_layout(kind: str, direction: LstmWeights, dtype: torch.dtype) -> Tensor:
    def make() -> Tensor:
        weight = direction.weight_hr.detach().to(dtype)
        return _fused_layout(kind, weight.view(-1, 4, LANES, weight.shape[1]))

    return get_cached((direction.weight_hr,), (kind, dtype), make)


def _fused_layout(kind: str, blocks: Tensor) -> Tensor:
    """The layout that the C functions read, from `[blocks, 4, LANES, K]`."""
    if kind == "f32":
        return blocks.unflatten(3, (-1, FUSED_DEPTH)).permute(0, 3, 4, 1, 2).contiguous()
    parts = blocks.bfloat16()
    parts = torch.stack((parts, (blocks - parts).bfloat16())) if kind == "split_tiles" else parts[None]
    parts = parts.unflatten(4, (-1, FUSED_DEPTH // 2, 2))  # [parts, blocks, 4, LANES, K / FUSED_DEPTH, pairs, 2]
    return parts.permute((1, 4, 0, 5, 2, 3, 6) if kind == "bf16" else (1, 4, 0, 2, 5, 3, 6)).contiguous()


# -- small batches -----------------------------------------------------------------------------------------------------

MOST_ROWS = 7  # for more rows, "fused" and "packed" are faster
WORDS_AT_ONCE = 256  # the input half of the gates is computed for about this many words together


def _supports_small_batch(call: LstmCall) -> str | None:
    if call.batch_sizes[0] > MOST_ROWS:
        return f"a batch of more than {MOST_ROWS} rows"
    if call.inputs.dtype not in TYPES or call.cell.dtype != torch.float32:
        return f"inputs are {call.inputs.dtype} and cells {call.cell.dtype}"
    size, cells = call.hidden.shape[2], call.cell.shape[2]
    if size % (2 * LANES) or cells % LANES:
        return f"the sizes {size} and {cells} are not multiples of {2 * LANES} and {LANES}"
    return native.reason() or why_not_inference(call)


def _run_small_batch(call: LstmCall) -> tuple[Tensor, State]:
    """The result of `modeling_elmo.bilstm_layer`."""
    inputs, dtype = call.inputs.contiguous(), call.inputs.dtype
    hidden = call.hidden.to(torch.float32, copy=True).contiguous()
    cell = call.cell.clone(memory_format=torch.contiguous_format)
    outputs = inputs.new_empty(*inputs.shape[:2], hidden.shape[2])
    biases = [direction.bias.detach().to(dtype) for direction in call.weights]
    products, weights_hh, weights_hr = _small_batch_layouts(call.weights, dtype)
    before_clip = None
    for steps in _pieces(steps_of(call.batch_sizes)):
        part = slice(steps[0][0], steps[-1][1])
        gates = [product(x[part], bias) for product, x, bias in zip(products, inputs, biases, strict=True)]
        clips = before_clip, call.cell_clip, call.proj_clip
        sizes = [end - start for start, end in steps]
        _run_steps(sizes, gates, hidden, cell, weights_hh, weights_hr, clips, [output[part] for output in outputs])
        before_clip = call.cell_clip
    return outputs, (outputs.index_select(1, last_words(call.batch_sizes)), clip(cell, call.cell_clip))


def _small_batch_layouts(
    directions: Sequence[LstmWeights], dtype: torch.dtype
) -> tuple[list[Product], list[Tensor], list[Tensor | None]]:
    """For each direction the product with `weight_ih`, and the layouts of `weight_hh` and `weight_hr`."""
    packs = why_not_packed(directions[0].weight_ih.new_empty(0, dtype=dtype)) is None

    def make() -> tuple[list[Product], list[Tensor], list[Tensor | None]]:
        cast = [[None if x is None else x.detach().to(dtype) for x in direction] for direction in directions]
        products = [product_of(ih) for ih, *_ in cast]
        projections = [None if hr is None else projection_layout(hr) for *_, hr in cast]
        return products, [recurrent_layout(hh) for _, hh, *_ in cast], projections

    weights = [
        x
        for direction in directions
        for x in (direction.weight_ih, direction.weight_hh, direction.weight_hr)
        if x is not None
    ]
    return get_cached(weights, ("small batch", dtype, len(directions), packs), make)


def _pieces(steps: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """The steps in pieces of about `WORDS_AT_ONCE` words."""
    piece: list[tuple[int, int]] = []
    for step in steps:
        piece.append(step)
        if step[1] - piece[0][0] >= WORDS_AT_ONCE:
            yield piece
            piece = []
    if piece:
        yield piece


def recurrent_layout(weight: Tensor) -> Tensor:
    """`weight_hh [4C, P]` as C reads it: the gates of `LANES` cells side by side; in bfloat16, two gates alternate."""
    cells = len(weight) // 4
    if weight.dtype == torch.float32:
        return native.lay_out(weight, cells // LANES, 4, LANES, cells)
    return weight.view(2, 2, -1, LANES, weight.shape[1]).permute(2, 4, 0, 3, 1).contiguous()


def projection_layout(weight: Tensor) -> Tensor:
    """`weight_hr [P, C]` in the layout that the C functions read."""
    if weight.dtype == torch.float32:
        return native.lay_out(weight, len(weight) // (2 * LANES), 2, 2 * LANES, LANES)
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
    """Run some steps of a layer, in all directions.

    Args:
        sizes: rows of each step, non-increasing.
        gates: for each direction `[words, 4C]`, the input half of the gates, bias included.
        hidden, cell: `[directions, rows, P]` and `[directions, rows, C]` float32, contiguous: the state, overwritten by
            the state after each row's last step (the cell before its clip).
        weights_hh, weights_hr: for each direction, laid out by [`recurrent_layout`] and [`projection_layout`].
        clips: the bounds on the cell before the first step, on later cells and on the projection; `None` for no bound.
        outputs: for each direction `[words, P]`, contiguous, written.
    """
    (directions, rows, size), cells = hidden.shape, cell.shape[2]
    cell_outputs, step_rows = torch.empty_like(cell), torch.tensor(sizes, device="cpu")
    arrays = [native.pointers(tensors) for tensors in (gates, weights_hh, weights_hr, outputs)]
    arguments = SmallBatch(
        *(ctypes.cast(array, ctypes.c_void_p) for array in arrays),
        *(tensor.data_ptr() for tensor in (hidden, cell, cell_outputs, step_rows)),
        *(len(sizes), directions, rows, cells, size),
        *(math.inf if bound is None else bound for bound in clips),
        torch.get_num_threads(),
    )
    getattr(native.library(), f"small_batch_{TYPES[outputs[0].dtype]}")(ctypes.byref(arguments))


register("lstm", "fused-tiles", 10, _supports_fused_tiles, partial(_run_fused, TILE_TYPES))
register("lstm", "fused", 20, _supports_fused, partial(_run_fused, TYPES))
register("lstm", "small-batch", 30, _supports_small_batch, _run_small_batch)
