"""Layers of the recurrence for tests: random ones, the reference over several directions, and comparisons."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hf_elmo.modeling_elmo import LstmWeights, State, clip

INPUT, PROJECTED, CELL = 7, 5, 11
BATCHES = {
    "one word": [1],
    "one step": [3],
    "one row": [1, 1, 1, 1],
    "rows ending": [6, 6, 4, 3, 3, 1],
    "window": [4, 4, 4],
}
CLIPS = {"no clip": (None, None), "both clips": (0.5, 0.4), "cell clip": (0.5, None), "projection clip": (None, 0.3)}
# Relative to the largest value of a tensor: a few roundings of the type. A bfloat16 has 8 bits, and a value that it
# puts on the other side of a clip changes a gradient altogether: it is compared without clips, float32 with them.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.bfloat16: 4e-2}


def random_layer(
    batch_sizes, dtype=torch.float32, directions=2, projected=True, seed=0, sizes=(INPUT, PROJECTED, CELL)
):
    """Inputs, state and weights, large enough that the clips above take part. `sizes`: input, P and C."""
    torch.manual_seed(seed)
    width, size, cell = sizes
    size = size if projected else cell
    state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    inputs = torch.randn(directions, sum(batch_sizes), width, dtype=dtype)
    state = (
        0.5 * torch.randn(directions, batch_sizes[0], size, dtype=dtype),
        torch.randn(directions, batch_sizes[0], cell, dtype=state_dtype),
    )
    weights = [
        LstmWeights(
            0.8 * width**-0.5 * torch.randn(4 * cell, width, dtype=dtype),
            0.9 * size**-0.5 * torch.randn(4 * cell, size, dtype=dtype),
            0.3 * torch.randn(4 * cell, dtype=dtype),
            1.6 * cell**-0.5 * torch.randn(size, cell, dtype=dtype) if projected else None,
        )
        for _ in range(directions)
    ]
    return inputs, state, weights


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
    """One direction of one layer, step by step: the reference for every backend.

    `c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g))`, `h = clip(W_hr (sigmoid(o) * tanh(c)))`, each with its own clip;
    without a projection `h` is not clipped, as in TensorFlow's `LSTMCell`. Gates in the order i, f, g, o of
    `torch.nn.LSTM`; the forget bias of 1 that TensorFlow adds is part of `bias`. (Peters et al. 2018, section 3.1.)

    Args:
        inputs: `[words, input]`, packed.
        batch_sizes: the number of rows of each step, non-increasing.
        state: `h [rows, P]` and `c [rows, C]` before the first step, for the rows of step 0.
        weight_ih, weight_hh, bias, weight_hr: `[4C, input]`, `[4C, P]`, `[4C]`, and `[P, C]` or `None`.
        cell_clip, proj_clip: bounds on the absolute value of `c` and of the projected `h`, or `None`.

    Returns:
        outputs `[words, P]`, packed, and the state after the last step of each row.
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


def reference(inputs, batch_sizes, state, weights, cell_clip=None, proj_clip=None):
    """`bilstm_layer` by `lstm_layer_reference`, one direction after the other."""
    layers = [
        lstm_layer_reference(x, batch_sizes, (h, c), *w, cell_clip, proj_clip)
        for x, h, c, w in zip(inputs, *state, weights, strict=True)
    ]
    outputs, states = zip(*layers, strict=True)
    return torch.stack(outputs), tuple(torch.stack(parts) for parts in zip(*states, strict=True))


def everything(function, inputs, batch_sizes, state, weights, *clips):
    """Outputs, final state, and the gradients of inputs, state and weights for a random loss over all of the former."""
    leaves = [inputs, *state, *(tensor for w in weights for tensor in w if tensor is not None)]
    leaves = [tensor.detach().clone().requires_grad_() for tensor in leaves]
    inputs, h, c, *rest = leaves
    rest = iter(rest)
    weights = [LstmWeights(*(None if tensor is None else next(rest) for tensor in w)) for w in weights]
    outputs, state = function(inputs, batch_sizes, (h, c), weights, *clips)
    generator = torch.Generator().manual_seed(1)
    results = outputs, *state
    loss = sum((x.double() * torch.randn(x.shape, generator=generator, dtype=torch.float64)).sum() for x in results)
    return [x.detach() for x in results] + list(torch.autograd.grad(loss, leaves))


def assert_near(found, expected, tolerance):
    """Each tensor of one type, and within `tolerance` of the largest expected value."""
    assert [x.dtype for x in found] == [x.dtype for x in expected]
    errors = [
        ((x - y).abs().max() / y.abs().max().clamp(min=1e-6)).item() for x, y in zip(found, expected, strict=True)
    ]
    assert max(errors) <= tolerance, errors


def flat(result):
    """Outputs and both parts of the state."""
    outputs, state = result
    return [outputs, *state]


def changed_in_place(weight):
    with torch.no_grad():
        weight.mul_(0.5)


def changed_through_data(weight):
    weight.data.mul_(0.5)


def given_new_data(weight):
    weight.data = weight.data * 0.5


# Writes to weights that caches notice: counted by PyTorch, or of the whole weight.
CHANGES = [changed_in_place, changed_through_data, given_new_data]
