"""LSTM layers with gradients on the CPU: oneDNN multiplies by packed weights, C computes the cells (`csrc/cells.c`).

`torch.nn.functional.linear` converts the weight to oneDNN's layout at each call. In a recurrence, which multiplies a
small batch of rows by the same weight at each step, the conversion can take as long as the product.

"onednn-training" is one autograd function for each layer and direction, with a loop over the steps and another one
backward. What does not depend on the previous step is a product of all words: the gradients of weights after the loop
and, without packed weights, the input half of the gates before it. Gates are stored before their activation, and cells
before their clip, because the next step and the gradient of the clip are both computed from the unclipped value.
"""

import platform
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from . import native
from .tensors import LstmCall, State, aliases, first_order, has, last_words, steps_of

Product = Callable[..., Tensor]
Saved = Sequence[Tensor | None]
Clips = tuple[float | None, float | None]

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}  # of gates; cells are float32
CELLS_PER_THREAD = 8192  # with fewer cells, waking a thread takes more time than the thread saves
ROWS = 128  # oneDNN chooses the layout for this number of rows; the layout works for any number


@cache
def multiplies_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 by instructions for it. On x86 it does so with any AVX-512, but slowly."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", bool)
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    return torch.backends.mkldnn.is_available() and supported() and (has("avx512_bf16") or not is_x86)


def can_pack(x: Tensor, rows: int = ROWS) -> bool:
    """Whether packed weights speed up products of `rows` rows with tensors like `x`."""
    operations = ("_reorder_linear_weight", "_linear_pointwise")  # a PyTorch without oneDNN lacks them
    if not torch.backends.mkldnn.enabled or not all(hasattr(torch.ops.mkldnn, name) for name in operations):
        return False
    if x.dtype == torch.float32:  # to multiply one row takes as long as to read the weights
        return rows > 1
    return x.dtype == torch.bfloat16 and multiplies_bfloat16()


def pack(weight: Tensor) -> Product:
    """The function `(x [rows, in], bias [out] or None) -> x @ weight.T + bias`, in the type of `weight [out, in]`."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    linear = torch.ops.mkldnn._linear_pointwise
    return lambda x, bias=None: linear(x, packed, bias, "none", [], "")


def product_of(weight: Tensor, rows: int = ROWS) -> Product:
    """The function `(x [rows, in], bias [out] or None) -> x @ weight.T + bias` for `weight [out, in]`."""
    return pack(weight) if can_pack(weight, rows) else lambda x, bias=None: nn.functional.linear(x, weight, bias)


def why_not_training(call: LstmCall) -> str | None:
    """Why "onednn-training" does not compute the call, or `None` if it does."""
    if call.inputs.dtype not in TYPES or call.cell.dtype != torch.float32:
        return f"inputs are {call.inputs.dtype}, not float32 or bfloat16, or cells are {call.cell.dtype}, not float32"
    return native.reason()


def run_training(call: LstmCall) -> tuple[Tensor, State]:
    """The result of `modeling_elmo.lstm_directions`, with gradients."""
    loop = call.batch_sizes, (call.cell_clip, call.proj_clip)
    results = []
    for inputs, hidden, cell, weights in zip(call.inputs, call.hidden, call.cell, call.weights, strict=True):
        # oneDNN's product does not ask for the strides of a bias.
        cast = (None if weight is None else weight.to(inputs.dtype).contiguous() for weight in weights)
        results.append(_Layer.apply(inputs, hidden, cell, *cast, *loop))
    outputs, hidden, cell = map(torch.stack, zip(*results, strict=True))
    return outputs, (hidden, cell)


class _Layer(torch.autograd.Function):
    """One direction of `modeling_elmo.lstm_directions`, and its gradient."""

    @staticmethod
    def forward(ctx, inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr, batch_sizes, clips):
        if can_pack(weight_ih, len(hidden)):  # one product for both halves is faster than two
            gates_of = _both_halves(pack(torch.cat((weight_ih, weight_hh), dim=1)), inputs, hidden, bias)
        else:
            gates = nn.functional.linear(inputs, weight_ih, bias)
            gates_of = lambda now, hidden: gates[now].addmm_(hidden, weight_hh.T)  # noqa: E731
        project = None if weight_hr is None else product_of(weight_hr, len(hidden))
        saved = _forward_loop(batch_sizes, clips, (inputs, hidden, cell), gates_of, project)
        ctx.save_for_backward(*aliases(inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr), *saved)
        ctx.loop = batch_sizes, clips
        *_, cells, _, _, outputs = saved
        last = last_words(batch_sizes)
        after = cells.index_select(0, last)
        after = after if clips[0] is None else after.clamp(-clips[0], clips[0])
        return outputs, outputs.index_select(0, last), after

    @staticmethod
    @first_order
    def backward(ctx, *grads):
        tensors = ctx.saved_tensors
        arguments = tensors[:7]
        saved = tensors[7:]
        inputs, hidden, _, weight_ih, _, _, weight_hr = arguments
        *_, cell_outputs, _, outputs = saved
        grad_outputs, grad_hidden, grad_cell = (grad.clone(memory_format=torch.contiguous_format) for grad in grads)
        grad_gates = _backward_loop(*ctx.loop, arguments, saved, grad_outputs, grad_hidden, grad_cell)
        wanted = ctx.needs_input_grad
        grad_weights: tuple[Tensor | None, ...] = (None, None, None)
        if any(wanted[3:6]):  # by one product, which takes half the time of three
            steps = zip(outputs.split([*ctx.loop[0]]), ctx.loop[0][1:], strict=False)
            before = torch.cat([hidden, *(words[:rows] for words, rows in steps)])  # at the previous step
            sources = torch.cat((inputs, before, inputs.new_ones(len(inputs), 1)), dim=1).T.contiguous()
            parts = (sources @ grad_gates).split((inputs.shape[1], before.shape[1], 1))
            grad_weights = parts[0].T.contiguous(), parts[1].T.contiguous(), parts[2][0]
        grad_inputs = grad_gates @ weight_ih if wanted[0] else None
        grad_hr = grad_outputs.T @ cell_outputs if weight_hr is not None and wanted[6] else None
        return grad_inputs, grad_hidden, grad_cell, *grad_weights, grad_hr, None, None


def _both_halves(product: Product, inputs: Tensor, hidden: Tensor, bias: Tensor) -> Callable[[slice, Tensor], Tensor]:
    """A function `(words, hidden) -> gates` by one product of the words and the hidden states side by side."""
    both = torch.cat((inputs, inputs.new_empty(len(inputs), hidden.shape[1])), dim=1)

    def gates_of(now: slice, hidden: Tensor) -> Tensor:
        both[now, inputs.shape[1] :] = hidden
        return product(both[now], bias)

    return gates_of


def _forward_loop(
    batch_sizes: Sequence[int], clips: Clips, start: Sequence[Tensor], gates_of: Product, project: Product | None
) -> Saved:
    """What the gradient needs, from inputs and state: the gates of each step before activation, the cells before their
    clip, the outputs of the cells, the projections before their clip or `None`, and the outputs."""
    inputs, hidden, cell = start
    cell_clip, proj_clip = clips
    cells = cell.new_empty(len(inputs), cell.shape[1])
    cell_outputs = torch.empty_like(cells, dtype=inputs.dtype)
    projected = None if project is None else inputs.new_empty(len(inputs), hidden.shape[1])
    outputs = cell_outputs if projected is None else projected if proj_clip is None else torch.empty_like(projected)
    cell = cell.contiguous()
    step_gates = []
    for now, rows in zip(steps_of(batch_sizes), batch_sizes, strict=True):
        gates = gates_of(now, hidden[:rows])
        step_gates.append(gates)
        tensors = {"gates": gates, "before": cell[:rows], "cells": cells[now], "hidden": cell_outputs[now]}
        run_cell("forward", cell_clip if now.start else None, cell_clip, **tensors)
        if project is not None:
            projected[now] = project(cell_outputs[now])
            if proj_clip is not None:
                torch.clamp(projected[now], -proj_clip, proj_clip, out=outputs[now])
        hidden = outputs[now]
        cell = cells[now]
    return *step_gates, cells, cell_outputs, projected, outputs


def _backward_loop(batch_sizes: Sequence[int], clips: Clips, arguments: Saved, saved: Saved, *grads: Tensor) -> Tensor:
    """The gradient of the gates before activation, from the arguments and the result of `_forward_loop`. In place, the
    gradient of the outputs becomes that of the projections before their clip, and the gradients of the state after the
    last step become those of the state before the first step."""
    grad_outputs, grad_hidden, grad_cell = grads
    _, _, cell, _, weight_hh, _, weight_hr = arguments
    *gates, cells, _, projected, _ = saved
    cell_clip, proj_clip = clips
    cell = cell.contiguous()
    grad_gates = cells.new_empty(len(cells), 4 * cells.shape[1], dtype=gates[0].dtype)
    to_hidden = product_of(weight_hh.T, len(cell))
    to_cell_outputs = None if weight_hr is None else product_of(weight_hr.T, len(cell))
    steps = steps_of(batch_sizes)
    for step, rows in reversed([*enumerate(batch_sizes)]):
        now = steps[step]
        grad = grad_outputs[now].add_(grad_hidden[:rows])
        if to_cell_outputs is not None:
            if proj_clip is not None:  # the gradient at the bound is kept, as TensorFlow and AllenNLP do in training
                grad.masked_fill_(projected[now].abs() > proj_clip, 0)
            grad = to_cell_outputs(grad)
        before = cells[steps[step - 1]] if step else cell
        tensors = {"gates": gates[step], "before": before[:rows], "cells": cells[now], "hidden": grad}
        tensors |= {"grad_cell": grad_cell[:rows], "grad_gates": grad_gates[now]}
        run_cell("backward", cell_clip if step else None, cell_clip, **tensors)
        grad_hidden[:rows] = to_hidden(grad_gates[now])
    return grad_gates


def run_cell(name: str, before_clip: float | None, cell_clip: float | None, **tensors: Tensor) -> None:
    """A step of the cell over gates `[B, 4C]`, or its gradient. A bound of `None` is no bound.

    "forward" writes `cells = sigmoid(f) * clip(before) + sigmoid(i) * tanh(g)` and `hidden = sigmoid(o) *
    tanh(clip(cells))`, both `[B, C]`, `hidden` in the type of `gates`. "backward" reads the same tensors, with the
    gradient of `hidden` in its place; it writes `grad_gates`, and overwrites `grad_cell`, that of the clipped `cells`
    from later steps, by that of the clipped `before`."""
    rows, size = tensors["cells"].shape
    sizes = {"rows": rows, "size": size, "threads": native.threads_for(rows * size, CELLS_PER_THREAD)}
    function = f"cell_{name}_{TYPES[tensors['gates'].dtype]}"
    native.run(function, **tensors, **sizes, before_clip=before_clip, cell_clip=cell_clip)
