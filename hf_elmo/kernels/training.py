"""The recurrence with gradients: the loop over steps and its gradient written out, one autograd function a layer.

Only what one step hands to the next is inside the loops: the input half of the gates is one product before the loop (or
where weights are packed a part of the product inside, which costs less than a cell that adds and writes again), the
gradients of inputs and weights are one product each after it. Saved for the gradient, for each word: the gates before
activation, the cell before its clip, the cell's output, the projection before its clip.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..lstm_elmo import LstmCall, State, clip
from .cell import Cell, choose_cell, clip_backward_
from .cpu_packed import Product, pack, why_not_packed
from .packing import last_words, steps_of
from .tensors import first_order, tensors_of, wants_gradient, why_not_plain

Steps = list[tuple[int, int]]
Clips = tuple[float | None, float | None]


def supports(call: LstmCall) -> str | None:
    """Why the call cannot be computed so, or `None`."""
    tensors = tensors_of(call)
    if not wants_gradient(tensors):
        return "no gradient is wanted"
    return why_not_plain(tensors, call.inputs.device.type)


def run(call: LstmCall, take_graph: Callable | None = None) -> tuple[Tensor, State]:
    """`lstm_elmo.bilstm_layer` for calls that [`supports`] takes.

    Args:
        take_graph: what records the loops, as `cuda_graphs.take_graph`, which it is by default on CUDA.
    """
    inputs, dtype, weights = call.inputs, call.inputs.dtype, call.weights
    if why_not_packed(inputs) is None:  # one after the other, each with its own packed weights
        parts = [slice(direction, direction + 1) for direction in range(len(weights))]
    else:
        parts = [slice(0, len(weights))]
    layers = []
    for part in parts:
        same_kind = zip(*weights[part], strict=True)
        own = (None if same[0] is None else _stack([x.to(dtype) for x in same]) for same in same_kind)
        settings = tuple(call.batch_sizes), (call.cell_clip, call.proj_clip), take_graph
        layers.append(_Layer.apply(inputs[part], call.hidden[part], call.cell[part], *own, *settings))
    outputs, hidden, cell = (same[0] if len(same) == 1 else torch.cat(same) for same in zip(*layers, strict=True))
    return outputs, (hidden, cell)


def _stack(tensors: list[Tensor]) -> Tensor:
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(tensors)


class _Layer(torch.autograd.Function):
    """`lstm_elmo.bilstm_layer` on stacked weights, and its gradient."""

    @staticmethod
    def forward(ctx, inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr, batch_sizes, clips, take_graph):
        steps, lstm_cell = steps_of(batch_sizes), choose_cell(inputs, cell)
        own = inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr
        forward = partial(_forward_loop, steps, clips, lstm_cell)
        backward = partial(_backward_loop, steps, clips, lstm_cell)
        taken = torch.empty(0)  # lives as long as what is saved for the backward pass
        ctx.graph = None
        if not _saves_elsewhere():
            ctx.graph = (take_graph or _take_graph)(forward, backward, own, (batch_sizes, clips), taken)
        if ctx.graph is None:
            saved = forward(*own)
            outputs = saved[-1]
        else:
            saved = ctx.graph.forward(own)
            own, outputs = ctx.graph.inputs, saved[-1].clone()
        last = last_words(batch_sizes, inputs.device)
        ctx.save_for_backward(taken, *own, *saved)
        ctx.steps, ctx.backward_loop = steps, backward
        return outputs, outputs.index_select(1, last), clip(saved[-4].index_select(1, last), clips[0])

    @staticmethod
    @first_order
    def backward(ctx, *grads):
        _, *tensors = ctx.saved_tensors
        own, saved = tuple(tensors[:7]), tuple(tensors[7:])
        inputs, hidden, _, weight_ih, _, _, weight_hr = own
        if ctx.graph is None:
            grads = [grad.clone(memory_format=torch.contiguous_format) for grad in grads]
            grad_gates = ctx.backward_loop(own, saved, *grads)
            grad_outputs, grad_hidden, grad_cell = grads
        else:
            grad_gates, (grad_outputs, grad_hidden, grad_cell) = ctx.graph.backward(grads)
            grad_hidden, grad_cell = grad_hidden.clone(), grad_cell.clone()
        wanted = ctx.needs_input_grad
        grad_weights: tuple[Tensor | None, ...] = (None, None, None)
        if any(wanted[3:6]):
            grad_weights = _weight_gradients(grad_gates, inputs, _words_before(saved[-1], hidden, ctx.steps))
        return (
            torch.bmm(grad_gates, weight_ih) if wanted[0] else None,
            grad_hidden,
            grad_cell,
            *grad_weights,
            torch.bmm(grad_outputs.mT, saved[-3]) if weight_hr is not None and wanted[6] else None,
            *(None, None, None),
        )


def _saves_elsewhere() -> bool:
    """Whether a hook (checkpointing, offloading) stores what is saved for the backward pass: then `taken` says nothing
    about how long a graph's tensors are needed, and they may be overwritten before."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _take_graph(forward: Callable, backward: Callable, inputs: tuple[Tensor | None, ...], settings, until: Tensor):
    """The loops recorded as a CUDA graph, or `None` where they run as they are."""
    if not inputs[0].is_cuda:
        return None
    from .cuda_graphs import take_graph

    return take_graph(forward, backward, inputs, settings, until)


def _weight_gradients(grad_gates: Tensor, inputs: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `weight_ih`, `weight_hh` and `bias`."""
    if grad_gates.is_cuda:
        return torch.bmm(grad_gates.mT, inputs), torch.bmm(grad_gates.mT, before), grad_gates.sum(1)
    # One product, which takes half the time of three.
    ones = inputs.new_ones(*inputs.shape[:2], 1)
    sources = torch.cat((inputs, before, ones), dim=2).mT.contiguous()
    sizes = inputs.shape[2], before.shape[2], 1
    grad_ih, grad_hh, grad_bias = torch.bmm(sources, grad_gates).split(sizes, dim=1)
    return grad_ih.mT.contiguous(), grad_hh.mT.contiguous(), grad_bias[:, 0]


def _forward_loop(
    steps: Steps,
    clips: Clips,
    lstm_cell: Cell,
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    weight_hr: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """What the gradient needs: the gates before activation, of all words or of each step; the cells before their clip,
    the cell's outputs, the projections before their clip or `None`, and the outputs."""
    cell_clip, proj_clip = clips
    gates_of, all_gates = _gates(inputs, hidden, weight_ih, weight_hh, bias)
    directions, words, size = *inputs.shape[:2], cell.shape[-1]
    cells, cell_outputs = cell.new_empty(directions, words, size), inputs.new_empty(directions, words, size)
    projected = None if weight_hr is None else torch.empty_like(hidden[:, :1].expand(-1, words, -1))
    outputs = cell_outputs if projected is None else projected if proj_clip is None else torch.empty_like(projected)
    cell, before_clip = cell.contiguous(), None
    project, saved_gates = None if weight_hr is None else _product(weight_hr), []
    for start, end in steps:
        now, rows = slice(start, end), slice(0, end - start)
        gates, recurrent = gates_of(now, hidden[:, rows])
        saved_gates.append(gates)
        lstm_cell.forward(gates, recurrent, cell[:, rows], before_clip, cell_clip, cells[:, now], cell_outputs[:, now])
        if project is not None:
            projected[:, now] = project(cell_outputs[:, now])
            if proj_clip is not None:
                torch.clamp(projected[:, now], -proj_clip, proj_clip, out=outputs[:, now])
        hidden, cell, before_clip = outputs[:, now], cells[:, now], cell_clip
    return *(saved_gates if all_gates is None else [all_gates]), cells, cell_outputs, projected, outputs


def _gates(
    inputs: Tensor, hidden: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Callable[[slice, Tensor], tuple[Tensor, Tensor | None]], Tensor | None]:
    """`(words, hidden) -> (gates, what the cell has yet to add or None)`, and the tensor that all gates are part of."""
    if len(weight_ih) > 1 or why_not_packed(weight_ih):
        gates, recurrent_half = _product(weight_ih)(inputs, bias), _product(weight_hh)
        return lambda now, hidden: (gates[:, now], recurrent_half(hidden)), gates
    product, size = _product(torch.cat((weight_ih, weight_hh), dim=2)), inputs.shape[2]
    both = torch.cat((inputs, inputs.new_empty(*inputs.shape[:2], hidden.shape[2])), dim=2)

    def both_halves(now: slice, hidden: Tensor) -> tuple[Tensor, None]:
        both[:, now, size:] = hidden
        return product(both[:, now], bias), None

    return both_halves, None


def _backward_loop(
    steps: Steps,
    clips: Clips,
    lstm_cell: Cell,
    inputs: Sequence[Tensor | None],
    saved: Sequence[Tensor | None],
    grad_outputs: Tensor,
    grad_hidden: Tensor,
    grad_cell: Tensor,
) -> Tensor:
    """The gradient of the gates before activation, from the arguments of `_forward_loop` and what it returned.

    In place, `grad_outputs` becomes that of the projections before their clip, `grad_hidden` and `grad_cell` that of
    the state before the first step.
    """
    (_, _, cell, _, weight_hh, _, weight_hr), (*gates, cells, _, projected, _) = inputs, saved
    cell_clip, proj_clip = clips
    if len(gates) < len(steps):
        gates = gates[0].split([end - start for start, end in steps], dim=1)
    cell, steps_before = cell.contiguous(), [(0, 0), *steps[:-1]]
    grad_gates = gates[0].new_empty(*cells.shape[:2], 4 * cells.shape[2])
    to_hidden, to_cell_outputs = _product(weight_hh.mT), None if weight_hr is None else _product(weight_hr.mT)
    for gate, (start, end), (start_before, end_before) in zip(
        *map(reversed, (gates, steps, steps_before)), strict=True
    ):
        now, rows = slice(start, end), slice(0, end - start)
        grad = grad_outputs[:, now].add_(grad_hidden[:, rows])
        if to_cell_outputs is not None:
            grad = to_cell_outputs(clip_backward_(grad, projected[:, now], proj_clip))
        before, before_clip = (cell, None) if start == 0 else (cells[:, start_before:end_before], cell_clip)
        own = gate, before[:, rows], before_clip, cell_clip, cells[:, now]
        lstm_cell.backward(*own, grad, grad_cell[:, rows], grad_gates[:, now])
        grad_hidden[:, rows] = to_hidden(grad_gates[:, now])
    return grad_gates


def _product(weight: Tensor) -> Product:
    """`(x [D, rows, in], bias [D, out] or None) -> x @ weight.mT + bias` for `weight [D, out, in]`."""
    if len(weight) > 1 or why_not_packed(weight):

        def batched(x: Tensor, bias: Tensor | None = None) -> Tensor:
            return torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

        return batched
    packed = pack(weight[0])
    return lambda x, bias=None: packed(x[0], None if bias is None else bias[0]).unsqueeze(0)


def _words_before(x: Tensor, first: Tensor, steps: Steps) -> Tensor:
    """For each packed word the row of `x [D, N, n]` of the step before it, `first [D, rows, n]` for the first step."""
    rows_after = [end - start for start, end in steps[1:]]
    return torch.cat(
        [first, *(x[:, start : start + rows] for (start, _), rows in zip(steps, rows_after, strict=False))], dim=1
    )
