"""The recurrence of ELMo: an LSTM with a projection and two clips, over packed words.

Packed words are the unpadded words of a batch, time-major, the rows sorted by falling length: step 0 of every row, then
step 1 of the rows that have one, and so on, as in `torch.nn.utils.rnn.PackedSequence`. `batch_sizes[t]` rows take part in
step t.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


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

    `c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g))`, `h = clip(W_hr (sigmoid(o) * tanh(c)))`, each clip its own value; without a
    projection `h` is not clipped, as in TensorFlow's `LSTMCell`. Gates in the order i, f, g, o of `torch.nn.LSTM`; the
    forget bias of 1 that TensorFlow adds is part of `bias`. (Peters et al. 2018, section 3.1.)

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
        i, f, g, o = gates.chunk(4, dim=1)
        new_cell = f.sigmoid() * cell[:size] + i.sigmoid() * g.tanh()
        if cell_clip is not None:
            new_cell = new_cell.clamp(-cell_clip, cell_clip)
        new_hidden = o.sigmoid() * new_cell.tanh()
        if weight_hr is not None:
            new_hidden = nn.functional.linear(new_hidden, weight_hr)
            if proj_clip is not None:
                new_hidden = new_hidden.clamp(-proj_clip, proj_clip)
        outputs.append(new_hidden)
        hidden = torch.cat((new_hidden, hidden[size:]))
        cell = torch.cat((new_cell, cell[size:]))
        first += size
    return torch.cat(outputs), (hidden, cell)


lstm_layer = lstm_layer_reference
