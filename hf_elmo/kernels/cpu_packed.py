"""Inference on the CPU on weights laid out for oneDNN once, not at each product, with the fastest cell there is.

`torch.nn.functional.linear` brings the weight into the library's own layout at each call. In a recurrence, where the
same weight meets one small batch of rows after another, that can cost as much as the product itself.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..lstm_elmo import LstmCall, LstmWeights, State, clip
from .cell import choose_cell
from .packing import last_words, steps_of
from .tensors import why_not_inference
from .weights import cached

Product = Callable[..., Tensor]

# oneDNN chooses its layout for this many rows; it multiplies any number.
ROWS = 128
# With fewer rows, reading the weights takes the time: `cpu_small_batch`, or plain PyTorch, reads half of them a step.
FEWEST_ROWS = 8


def supports(call: LstmCall) -> str | None:
    """Why the call cannot be computed so, or `None`."""
    if call.batch_sizes[0] < FEWEST_ROWS:
        return f"a batch of fewer than {FEWEST_ROWS} rows"
    return why_not_packed(call.inputs) or why_not_inference(call, "cpu")


def run(call: LstmCall) -> tuple[Tensor, State]:
    """`lstm_elmo.bilstm_layer` for calls that [`supports`] takes."""
    inputs, hidden = call.inputs.contiguous(), call.hidden.contiguous()
    outputs = inputs.new_empty(*inputs.shape[:2], hidden.shape[2])
    cell = call.cell.clone(memory_format=torch.contiguous_format)
    for direction, own in enumerate(call.weights):
        _run_direction(call, direction, own, inputs[direction], hidden[direction], cell, outputs[direction])
    return outputs, (outputs.index_select(1, last_words(call.batch_sizes)), clip(cell, call.cell_clip))


def why_not_packed(x: Tensor) -> str | None:
    """Why products with tensors like `x` do not gain from a packed weight here, or `None`."""
    if x.device.type != "cpu":
        return f"inputs are on {x.device}, not on the CPU"
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return "oneDNN is switched off, or not a part of this PyTorch"
    bfloat16 = x.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if x.dtype != torch.float32 and not bfloat16:
        return f"oneDNN multiplies no {x.dtype} on this processor"
    return None


def packed_product(weights: tuple[Tensor, ...], dtype: torch.dtype) -> Product:
    """A product with weights `[out, in]` side by side, `[out, sum of in]`, in `dtype`: as [`pack`] returns, cached."""
    return cached(weights, dtype, f"packed, {len(weights)}", _pack_side_by_side)


def _pack_side_by_side(*weights: Tensor) -> Product:
    return pack(torch.cat(weights, dim=1))


def pack(weight: Tensor) -> Product:
    """`(x [rows, in], added [out] or [rows, out] or None) -> x @ weight.T + added`, in the type of `weight`."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    linear, linear_add = torch.ops.mkldnn._linear_pointwise, torch.ops.mkldnn._linear_pointwise.binary

    def product(x: Tensor, added: Tensor | None = None) -> Tensor:
        if added is None or added.dim() == 1:
            return linear(x, packed, added, "none", [], "")
        return linear_add(x, added, packed, None, "add")

    return product


def _run_direction(
    call: LstmCall,
    direction: int,
    weights: LstmWeights,
    inputs: Tensor,
    hidden: Tensor,
    cells: Tensor,
    outputs: Tensor,
) -> None:
    """Writes `outputs [words, P]`; `cells[direction]` becomes that of each row's last step, before its clip."""
    rows, before_clip, cell = call.batch_sizes[0], None, cells[direction : direction + 1]
    gates_of = _gates(rows, inputs, weights)
    project = None if weights.weight_hr is None else packed_product((weights.weight_hr,), inputs.dtype)
    forward_cell, cell_outputs = choose_cell(inputs, cell).forward, inputs.new_empty(cell.shape)
    for start, end in steps_of(call.batch_sizes):
        if end - start < rows:
            rows = end - start
            hidden, cell, cell_outputs = hidden[:rows], cell[:, :rows], cell_outputs[:, :rows]
        gates = gates_of(start, end, hidden).unsqueeze(0)
        forward_cell(gates, None, cell, before_clip, call.cell_clip, cell, cell_outputs)
        hidden, before_clip = outputs[start:end], call.cell_clip
        if project is None:
            hidden.copy_(cell_outputs[0])
        elif call.proj_clip is None:
            hidden.copy_(project(cell_outputs[0]))
        else:
            torch.clamp(project(cell_outputs[0]), -call.proj_clip, call.proj_clip, out=hidden)


def _gates(rows: int, inputs: Tensor, weights: LstmWeights) -> Callable[[int, int, Tensor], Tensor]:
    """`(start, end, hidden) -> gates`: word and recurrent state side by side, both halves in one product."""
    product = packed_product((weights.weight_ih, weights.weight_hh), inputs.dtype)
    bias, size = weights.bias.detach().to(inputs.dtype), inputs.shape[1]
    both = inputs.new_empty(rows, size + weights.weight_hh.shape[1])

    def gates_of(start: int, end: int, hidden: Tensor) -> Tensor:
        now = both[: end - start]
        now[:, :size] = inputs[start:end]
        now[:, size:] = hidden
        return product(now, bias)

    return gates_of
