"""The recurrence of ELMo: an LSTM with a projection and two clips, over packed words.

Packed words are the unpadded words of a batch, time-major, the rows sorted by falling length: step 0 of every row, then
step 1 of the rows that have one, and so on, as in `torch.nn.utils.rnn.PackedSequence`. `batch_sizes[t]` rows take part
in step t.

`lstm_layer_reference` is the definition. `bilstm_layer` computes several directions: by a backend of hf_elmo.kernels
where there is one for the call, else by `lstm_directions`, a loop over steps that trains by autograd. For
`torch.export` there is `bilstm_layer_padded`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .backends_elmo import find_backend

State = tuple[Tensor, Tensor]


class LstmWeights(NamedTuple):
    """The parameters of one direction of one layer, with gate order and names as in `torch.nn.LSTM`."""

    weight_ih: Tensor  # [4C, input]
    weight_hh: Tensor  # [4C, P]
    bias: Tensor  # [4C]
    weight_hr: Tensor | None  # [P, C]; None: no projection, P == C


class LstmCall(NamedTuple):
    """The arguments of [`bilstm_layer`] as backends get them.

    `inputs`, `hidden` and `cell` have the types that are computed in; the weights may have others, and are cast.
    """

    inputs: Tensor  # [directions, words, input]
    batch_sizes: Sequence[int]
    hidden: Tensor  # [directions, rows, P]
    cell: Tensor  # [directions, rows, C]
    weights: Sequence[LstmWeights]
    cell_clip: float | None
    proj_clip: float | None


def lstm_layer_reference(
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
    """One direction of one layer, step by step: the reference implementation for every backend.

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
        new_cell = clip(f.sigmoid() * cell[:size] + i.sigmoid() * g.tanh(), cell_clip)
        new_hidden = (o.sigmoid() * new_cell.tanh()).to(gates.dtype)
        if weight_hr is not None:
            new_hidden = clip(nn.functional.linear(new_hidden, weight_hr), proj_clip)
        outputs.append(new_hidden)
        hidden = torch.cat((new_hidden, hidden[size:].to(new_hidden.dtype)))
        cell = torch.cat((new_cell, cell[size:]))
        first += size
    return torch.cat(outputs), (hidden, cell)


def clip(x: Tensor, bound: float | None) -> Tensor:
    """`x` with its absolute value bounded, or `x` itself without a bound."""
    return x if bound is None else x.clamp(-bound, bound)


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

    Products are computed in the type of `inputs`, or of autocast where it is on (float16 on a CPU, which multiplies it
    many times more slowly, in float32); the cell state is float32 at least.

    Args:
        inputs: `[directions, words, input]`, packed; the backward direction's words in the order that it reads them.
        batch_sizes: rows of each step, never rising, the same for every direction.
        state: `h [directions, rows, P]` and `c [directions, rows, C]` before the first step.
        weights: one for each direction, of the same shapes.
        cell_clip, proj_clip: as in [`lstm_layer_reference`].

    Returns:
        outputs `[directions, words, P]`, and the state after each row's last step.

    Raises:
        ValueError: `batch_sizes` is empty, rises, or does not fit the number of words or of the state's rows; or a
            weight or the state has a shape or a device that does not fit the others.
    """
    _check_sizes(batch_sizes, words=inputs.shape[1], rows=state[0].shape[1])
    _check_tensors(inputs, state, weights)
    dtype = _product_dtype(inputs)
    computed = torch.float32 if dtype == torch.float16 and inputs.device.type == "cpu" else dtype
    hidden, cell = state[0].to(computed), state[1].to(torch.promote_types(computed, torch.float32))
    call = LstmCall(inputs.to(computed), batch_sizes, hidden, cell, weights, cell_clip, proj_clip)
    with torch.autocast(inputs.device.type, enabled=False):
        outputs, (hidden, cell) = (find_backend("lstm", call) or lstm_directions)(call)
    return outputs.to(dtype), (hidden.to(dtype), cell)


def lstm_directions(call: LstmCall) -> tuple[Tensor, State]:
    """[`bilstm_layer`] in plain PyTorch: every device, gradients of any order, forward-mode differentiation."""
    # A GPU makes one product of all directions. On a CPU one after the other is faster, and needs no copy of weights.
    together = 1 if call.inputs.device.type == "cpu" else len(call.weights)
    parts = []
    for first in range(0, len(call.weights), together):
        part = slice(first, first + together)
        same = zip(*call.weights[part], strict=True)
        weights = [None if x[0] is None else _stack([y.to(call.inputs.dtype) for y in x]) for x in same]
        state = call.hidden[part], call.cell[part]
        parts.append(_loop(call.inputs[part], call.batch_sizes, state, *weights, call.cell_clip, call.proj_clip))
    outputs, hidden, cell = (torch.cat(same) for same in zip(*parts, strict=True))
    return outputs, (hidden, cell)


def _stack(tensors: list[Tensor]) -> Tensor:
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(tensors)


def _loop(
    inputs: Tensor,
    batch_sizes: Sequence[int],
    state: State,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    weight_hr: Tensor | None,
    cell_clip: float | None,
    proj_clip: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As [`lstm_layer_reference`] with an axis of directions in front; the input half of all gates is one product."""
    input_half = torch.baddbmm(bias.unsqueeze(1), inputs, weight_ih.mT).split(list(batch_sizes), dim=1)
    (hidden, cell), outputs, finished = state, [], []
    for gates in input_half:
        if (size := gates.shape[1]) < hidden.shape[1]:  # the last rows have ended
            finished.append((hidden[:, size:], cell[:, size:]))
            hidden, cell = hidden[:, :size], cell[:, :size]
        gates = torch.baddbmm(gates, hidden, weight_hh.mT).to(cell.dtype)
        i, f, g, o = gates.chunk(4, dim=2)
        cell = clip(torch.addcmul(f.sigmoid() * cell, i.sigmoid(), g.tanh()), cell_clip)
        hidden = (o.sigmoid() * cell.tanh()).to(inputs.dtype)
        if weight_hr is not None:
            hidden = clip(torch.bmm(hidden, weight_hr.mT), proj_clip)
        outputs.append(hidden)
    finished.append((hidden, cell))
    hidden, cell = (torch.cat(rows[::-1], dim=1) for rows in zip(*finished, strict=True))
    return torch.cat(outputs, dim=1), hidden, cell


def bilstm_layer_padded(
    inputs: Tensor,
    mask: Tensor,
    state: State,
    weights: Sequence[LstmWeights],
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Tensor, State]:
    """[`bilstm_layer`] as one `scan` over padded words: for `torch.export`, whose graph holds for any rows and words.

    Padding may stand anywhere: the state passes it unchanged. So the backward direction's words are the sentence
    flipped, wherever its padding is.

    Args:
        inputs: `[directions, rows, words, input]`, each direction's words in the order that it reads them.
        mask: `[directions, rows, words]`, true for words.
        state: `h [directions, rows, P]` and `c [directions, rows, C]` before the first word.
        weights: one for each direction.
        cell_clip, proj_clip: bounds on the absolute value of `c` and of the projected `h`, or `None`.

    Returns:
        outputs `[directions, rows, words, P]`, zero where there is no word, and the state after each row's last word.
    """
    from torch._higher_order_ops.scan import scan  # here, because it is not public: only exporting depends on it

    directions, rows, words, size = inputs.shape
    stacked = (None if same[0] is None else torch.stack(tuple(same)) for same in zip(*weights, strict=True))
    weight_ih, weight_hh, bias, weight_hr = stacked
    gates = torch.baddbmm(bias.unsqueeze(1), inputs.reshape(directions, rows * words, size), weight_ih.mT)
    gates = gates.reshape(directions, rows, words, gates.shape[-1]).permute(2, 0, 1, 3)

    if torch.onnx.is_in_onnx_export() or not torch.is_grad_enabled():  # else the scan that makes gradients goes along
        gates, weight_hh = gates.detach(), weight_hh.detach()
        weight_hr = None if weight_hr is None else weight_hr.detach()

    def step(before, now):  # without annotations, which strict export cannot read
        hidden, cell = before
        input_half, is_word = now
        i, f, g, o = (input_half + torch.bmm(hidden, weight_hh.mT)).to(cell.dtype).chunk(4, dim=-1)
        new_cell = clip(f.sigmoid() * cell + i.sigmoid() * g.tanh(), cell_clip)
        new_hidden = (o.sigmoid() * new_cell.tanh()).to(hidden.dtype)
        if weight_hr is not None:
            new_hidden = clip(torch.bmm(new_hidden, weight_hr.mT), proj_clip)
        hidden, cell = torch.where(is_word, new_hidden, hidden), torch.where(is_word, new_cell, cell)
        return (hidden, cell), new_hidden * is_word

    state, outputs = scan(step, (state[0], state[1]), (gates, mask.permute(2, 0, 1).unsqueeze(-1)))
    return outputs.permute(1, 2, 0, 3), state


def _check_sizes(batch_sizes: Sequence[int], words: int, rows: int) -> None:
    falling = all(size >= after >= 1 for size, after in pairwise(batch_sizes))
    if not (batch_sizes and falling and sum(batch_sizes) == words and batch_sizes[0] == rows > 0):
        raise ValueError(
            f"batch_sizes {list(batch_sizes)} must never rise, add up to the {words} words of `inputs` and begin with "
            f"the {rows} rows of `state`; a batch without words needs no call"
        )


def _check_tensors(inputs: Tensor, state: State, weights: Sequence[LstmWeights]) -> None:
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


def _product_dtype(inputs: Tensor) -> torch.dtype:
    kind = inputs.device.type
    if torch.is_autocast_enabled(kind) and inputs.dtype != torch.float64:  # autocast leaves float64 alone
        return torch.get_autocast_dtype(kind)
    return inputs.dtype
