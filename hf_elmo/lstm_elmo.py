"""The recurrence of ELMo: an LSTM with a projection and two clips, over packed words.

Packed words are the unpadded words of a batch, time-major, the rows sorted by falling length: step 0 of every row, then
step 1 of the rows that have one, and so on, as in `torch.nn.utils.rnn.PackedSequence`. `batch_sizes[t]` rows take part
in step t.

`lstm_layer_reference` is the definition; `lstm_layer`, and `bilstm_layer` for both directions of a layer, compute the
same faster.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .lstm_c_elmo import c_cell
from .lstm_cell_elmo import TORCH_CELL, Cell, clip, clip_backward_
from .lstm_cpu_elmo import infer_on_cpu
from .lstm_packed_elmo import Product, can_pack, pack

State = tuple[Tensor, Tensor]


class LstmWeights(NamedTuple):
    """The parameters of one direction of one layer, with gate order and names as in `torch.nn.LSTM`."""

    weight_ih: Tensor  # [4C, input]
    weight_hh: Tensor  # [4C, P]
    bias: Tensor  # [4C]
    weight_hr: Tensor | None  # [P, C]; None: no projection, P == C


def lstm_layer_reference(
    inputs: Tensor,
    batch_sizes: Sequence[int],
    state: tuple[Tensor, Tensor],
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    weight_hr: Tensor | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One direction of one layer, step by step: the truth that every faster way is compared with.

    `c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g))`, `h = clip(W_hr (sigmoid(o) * tanh(c)))`, each clip its own value;
    without a projection `h` is not clipped, as in TensorFlow's `LSTMCell`. Gates in the order i, f, g, o of
    `torch.nn.LSTM`; the forget bias of 1 that TensorFlow adds is part of `bias`. (Peters et al. 2018, section 3.1.)

    Args:
        inputs: `[words, input]`, packed.
        batch_sizes: rows of each step, never rising.
        state: `h [rows, P]` and `c [rows, C]` before the first step; the rows are those of step 0.
        weight_ih, weight_hh, bias, weight_hr: `[4C, input]`, `[4C, P]`, `[4C]`, and `[P, C]` or `None`.
        cell_clip, proj_clip: bounds on the absolute value of `c` and of the projected `h`, or `None`.

    Returns:
        outputs `[words, P]`, packed, and the state after each row's last step.
    """
    hidden, cell = state
    outputs, first = [], 0
    for size in batch_sizes:
        gates = nn.functional.linear(inputs[first : first + size], weight_ih, bias)
        gates = gates + nn.functional.linear(hidden[:size], weight_hh)
        i, f, g, o = gates.to(cell.dtype).chunk(4, dim=1)
        new_cell = f.sigmoid() * cell[:size] + i.sigmoid() * g.tanh()
        if cell_clip is not None:
            new_cell = new_cell.clamp(-cell_clip, cell_clip)
        new_hidden = (o.sigmoid() * new_cell.tanh()).to(gates.dtype)
        if weight_hr is not None:
            new_hidden = nn.functional.linear(new_hidden, weight_hr)
            if proj_clip is not None:
                new_hidden = new_hidden.clamp(-proj_clip, proj_clip)
        outputs.append(new_hidden)
        hidden = torch.cat((new_hidden, hidden[size:].to(new_hidden.dtype)))
        cell = torch.cat((new_cell, cell[size:]))
        first += size
    return torch.cat(outputs), (hidden, cell)


def lstm_layer(
    inputs: Tensor,
    batch_sizes: Sequence[int],
    state: State,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    weight_hr: Tensor | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Tensor, State]:
    """`lstm_layer_reference`, faster: the same arguments, outputs, final state and gradients.

    Products are computed in the type of `inputs`, or of autocast where it is on; the cell state is float32 at least.
    """
    hidden, cell = state
    weights = LstmWeights(weight_ih, weight_hh, bias, weight_hr)
    outputs, (hidden, cell) = bilstm_layer(
        inputs.unsqueeze(0), batch_sizes, (hidden.unsqueeze(0), cell.unsqueeze(0)), (weights,), cell_clip, proj_clip
    )
    return outputs.squeeze(0), (hidden.squeeze(0), cell.squeeze(0))


@torch.compiler.disable  # a graph would hold one list of batch sizes only, and run it slower
def bilstm_layer(
    inputs: Tensor,
    batch_sizes: Sequence[int],
    state: State,
    weights: Sequence[LstmWeights],
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Tensor, State]:
    """Several independent LSTMs over words packed alike, side by side: the directions of one layer of a biLM.

    Args:
        inputs: `[directions, words, input]`, packed; the backward direction's words in the order that it reads them.
        batch_sizes: rows of each step, never rising, the same for every direction.
        state: `h [directions, rows, P]` and `c [directions, rows, C]` before the first step.
        weights: one for each direction, of the same shapes.
        cell_clip, proj_clip: as in [`lstm_layer_reference`].

    Returns:
        outputs `[directions, words, P]`, and the state after each row's last step.

    Raises:
        ValueError: `batch_sizes` is empty, rises, or does not fit the number of words or of the state's rows.
    """
    _check_sizes(batch_sizes, words=inputs.shape[1], rows=state[0].shape[1])
    dtype = _product_dtype(inputs)
    inputs, hidden, cell = inputs.to(dtype), state[0].to(dtype), state[1].to(_state_dtype(dtype))
    tensors = (inputs, hidden, cell, *(tensor for same in weights for tensor in same if tensor is not None))
    trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if can_pack(inputs) and not trained:
        return _infer_cpu(inputs, (hidden, cell), weights, batch_sizes, cell_clip, proj_clip)
    if can_pack(inputs):  # one after the other, each with its own packed weights
        parts = [slice(direction, direction + 1) for direction in range(len(weights))]
    else:
        parts = [slice(0, len(weights))]
    run = _infer_cuda if inputs.is_cuda and not trained else _PackedLSTM.apply
    layers = []
    for part in parts:
        own = (
            None if same[0] is None else _stack([x.to(dtype) for x in same])
            for same in zip(*weights[part], strict=True)
        )
        layers.append(run(inputs[part], hidden[part], cell[part], *own, tuple(batch_sizes), cell_clip, proj_clip))
    outputs, hidden, cell = (same[0] if len(same) == 1 else torch.cat(same) for same in zip(*layers, strict=True))
    return outputs, (hidden, cell)


def _check_sizes(batch_sizes: Sequence[int], words: int, rows: int) -> None:
    falling = all(size >= after >= 1 for size, after in pairwise(batch_sizes))
    if not (batch_sizes and falling and sum(batch_sizes) == words and batch_sizes[0] == rows > 0):
        raise ValueError(
            f"batch_sizes {list(batch_sizes)} must never rise, add up to the {words} words of `inputs` and begin with "
            f"the {rows} rows of `state`; a batch without words needs no call"
        )


def _stack(tensors: list[Tensor]) -> Tensor:
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(tensors)


def _product_dtype(inputs: Tensor) -> torch.dtype:
    kind = inputs.device.type
    if torch.is_autocast_enabled(kind) and inputs.dtype != torch.float64:  # autocast leaves float64 alone
        return torch.get_autocast_dtype(kind)
    return inputs.dtype


def _state_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def _choose_cell(gates: Tensor, state: Tensor) -> Cell:
    if gates.is_cuda:
        from .lstm_triton_elmo import triton_cell  # here, because importing Triton takes long

        return triton_cell(gates, state) or TORCH_CELL
    return c_cell(gates, state) or TORCH_CELL


def _infer_cpu(inputs, state, weights, batch_sizes, cell_clip, proj_clip):
    """`bilstm_layer` without gradients on the CPU, each direction with its own packed weights."""
    steps = list(pairwise(accumulate(batch_sizes, initial=0)))
    outputs, cell = infer_on_cpu(steps, inputs, state, weights, cell_clip, proj_clip, _choose_cell)
    return outputs, (outputs.index_select(1, _last_words(steps, inputs.device)), cell)


def _infer_cuda(inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr, batch_sizes, cell_clip, proj_clip):
    """`bilstm_layer` without gradients on CUDA, on stacked weights."""
    from .lstm_cuda_elmo import infer

    steps = list(pairwise(accumulate(batch_sizes, initial=0)))
    weights = weight_ih, weight_hh, bias, weight_hr
    outputs, cell = infer(steps, inputs, (hidden, cell), weights, cell_clip, proj_clip, _choose_cell)
    return outputs, outputs.index_select(1, _last_words(steps, inputs.device)), cell


class _PackedLSTM(torch.autograd.Function):
    """`bilstm_layer` on stacked weights, and its gradient.

    Only what one step hands to the next is inside the loops over steps: the input half of the gates is one product
    before the loop (or where weights are packed a part of the product inside, which costs less than a cell that adds
    and writes again), the gradients of inputs and weights are one product each after it. Kept for the gradient, for
    each word: the gates before activation, the cell before its clip, the cell's output, the projection before its clip.
    """

    @staticmethod
    def forward(ctx, inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr, batch_sizes, cell_clip, proj_clip):
        steps, clips = list(pairwise(accumulate(batch_sizes, initial=0))), (cell_clip, proj_clip)
        own = inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr
        forward, backward = partial(_forward_loop, steps, clips), partial(_backward_loop, steps, clips)
        taken = torch.empty(0)  # lives as long as what is kept for the gradient
        ctx.graph = _take_graph(forward, backward, own, (batch_sizes, clips), taken)
        if ctx.graph is None:
            kept = forward(*own)
            outputs = kept[-1]
        else:
            kept = ctx.graph.forward(own)
            own, outputs = ctx.graph.inputs, kept[-1].clone()
        last = _last_words(steps, inputs.device)
        ctx.save_for_backward(taken, *own, *kept)
        ctx.steps, ctx.backward_loop = steps, backward
        return outputs, outputs.index_select(1, last), clip(kept[-4].index_select(1, last), cell_clip)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):
        _, *saved = ctx.saved_tensors
        own, kept = tuple(saved[:7]), tuple(saved[7:])
        inputs, hidden, _, weight_ih, _, _, weight_hr = own
        if ctx.graph is None:
            grads = [grad.clone(memory_format=torch.contiguous_format) for grad in grads]
            grad_gates = ctx.backward_loop(own, kept, *grads)
            grad_outputs, grad_hidden, grad_cell = grads
        else:
            grad_gates, (grad_outputs, grad_hidden, grad_cell) = ctx.graph.backward(grads)
            grad_hidden, grad_cell = grad_hidden.clone(), grad_cell.clone()
        wanted = ctx.needs_input_grad
        grad_weights: tuple[Tensor | None, ...] = (None, None, None)
        if any(wanted[3:6]):
            grad_weights = _weight_gradients(grad_gates, inputs, _words_before(kept[-1], hidden, ctx.steps))
        return (
            torch.bmm(grad_gates, weight_ih) if wanted[0] else None,
            grad_hidden,
            grad_cell,
            *grad_weights,
            torch.bmm(grad_outputs.mT, kept[-3]) if weight_hr is not None and wanted[6] else None,
            *(None, None, None),
        )


def _take_graph(forward, backward, inputs: tuple[Tensor | None, ...], settings: object, until: Tensor):
    """The loops recorded as a CUDA graph, or `None` where they run as they are; see lstm_cuda_elmo.py."""
    if not inputs[0].is_cuda:
        return None
    from .lstm_cuda_elmo import take_graph

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
    steps: list[tuple[int, int]],
    clips: tuple[float | None, float | None],
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
    forward_cell, cell, before_clip = _choose_cell(inputs, cell).forward, cell.contiguous(), None
    project, kept_gates = None if weight_hr is None else _product(weight_hr), []
    for start, end in steps:
        now, rows = slice(start, end), slice(0, end - start)
        gates, recurrent = gates_of(now, hidden[:, rows])
        kept_gates.append(gates)
        forward_cell(gates, recurrent, cell[:, rows], before_clip, cell_clip, cells[:, now], cell_outputs[:, now])
        if project is not None:
            projected[:, now] = project(cell_outputs[:, now])
            if proj_clip is not None:
                torch.clamp(projected[:, now], -proj_clip, proj_clip, out=outputs[:, now])
        hidden, cell, before_clip = outputs[:, now], cells[:, now], cell_clip
    return *(kept_gates if all_gates is None else [all_gates]), cells, cell_outputs, projected, outputs


def _gates(
    inputs: Tensor, hidden: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Callable[[slice, Tensor], tuple[Tensor, Tensor | None]], Tensor | None]:
    """`(words, hidden) -> (gates, what the cell has yet to add or None)`, and the tensor that all gates are part of."""
    if len(weight_ih) > 1 or not can_pack(weight_ih):
        gates, recurrent_half = _product(weight_ih)(inputs, bias), _product(weight_hh)
        return lambda now, hidden: (gates[:, now], recurrent_half(hidden)), gates
    product, size = _product(torch.cat((weight_ih, weight_hh), dim=2)), inputs.shape[2]
    both = torch.cat((inputs, inputs.new_empty(*inputs.shape[:2], hidden.shape[2])), dim=2)

    def both_halves(now: slice, hidden: Tensor) -> tuple[Tensor, None]:
        both[:, now, size:] = hidden
        return product(both[:, now], bias), None

    return both_halves, None


def _backward_loop(
    steps: list[tuple[int, int]],
    clips: tuple[float | None, float | None],
    inputs: Sequence[Tensor | None],
    kept: Sequence[Tensor | None],
    grad_outputs: Tensor,
    grad_hidden: Tensor,
    grad_cell: Tensor,
) -> Tensor:
    """The gradient of the gates before activation, from the arguments of `_forward_loop` and what it returned.

    In place, `grad_outputs` becomes that of the projections before their clip, `grad_hidden` and `grad_cell` that of
    the state before the first step.
    """
    (_, _, cell, _, weight_hh, _, weight_hr), (*gates, cells, _, projected, _) = inputs, kept
    cell_clip, proj_clip = clips
    if len(gates) < len(steps):
        gates = gates[0].split([end - start for start, end in steps], dim=1)
    backward_cell, cell = _choose_cell(gates[0], cell).backward, cell.contiguous()
    grad_gates = gates[0].new_empty(*cells.shape[:2], 4 * cells.shape[2])
    to_hidden, to_cell_outputs = _product(weight_hh.mT), None if weight_hr is None else _product(weight_hr.mT)
    steps_before = [(0, 0), *steps[:-1]]
    for gate, (start, end), (start_before, end_before) in zip(
        *map(reversed, (gates, steps, steps_before)), strict=True
    ):
        now, rows = slice(start, end), slice(0, end - start)
        grad = grad_outputs[:, now].add_(grad_hidden[:, rows])
        if to_cell_outputs is not None:
            grad = to_cell_outputs(clip_backward_(grad, projected[:, now], proj_clip))
        first = start == 0
        before, before_clip = (cell, None) if first else (cells[:, start_before:end_before], cell_clip)
        backward_cell(
            gate,
            before[:, rows],
            before_clip,
            cell_clip,
            cells[:, now],
            grad,
            grad_cell[:, rows],
            grad_gates[:, now],
        )
        grad_hidden[:, rows] = to_hidden(grad_gates[:, now])
    return grad_gates


def _product(weight: Tensor) -> Product:
    """`(x [D, rows, in], bias [D, out] or None) -> x @ weight.mT + bias` for `weight [D, out, in]`."""
    if len(weight) > 1 or not can_pack(weight):

        def batched(x: Tensor, bias: Tensor | None = None) -> Tensor:
            return torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

        return batched
    packed = pack(weight[0])
    return lambda x, bias=None: packed(x[0], None if bias is None else bias[0]).unsqueeze(0)


def _last_words(steps: list[tuple[int, int]], device: torch.device) -> Tensor:
    """The place of each row's last word among the packed words."""
    last: list[int] = []
    for start, end in reversed(steps):
        last.extend(range(start + len(last), end))
    return torch.tensor(last, device="cpu").to(device, non_blocking=True)


def _words_before(x: Tensor, first: Tensor, steps: list[tuple[int, int]]) -> Tensor:
    """For each packed word the row of `x [D, N, n]` of the step before it, `first [D, rows, n]` for the first step."""
    rows_after = [end - start for start, end in steps[1:]]
    return torch.cat(
        [first, *(x[:, start : start + rows] for (start, _), rows in zip(steps, rows_after, strict=False))], dim=1
    )
