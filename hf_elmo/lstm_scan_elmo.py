"""The recurrence as one `scan` over padded words: for `torch.export`, whose graph must hold for any rows and words."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .lstm_cell_elmo import clip


def bilstm_layer_padded(
    inputs: Tensor,
    mask: Tensor,
    state: tuple[Tensor, Tensor],
    weights: Sequence[Sequence[Tensor | None]],
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """`bilstm_layer` over padded words: the same numbers, in operations that a graph of any length can hold.

    Padding may stand anywhere: the state passes it unchanged. So the backward direction's words are the sentence
    flipped, wherever its padding is.

    Args:
        inputs: `[directions, rows, words, input]`, each direction's words in the order that it reads them.
        mask: `[directions, rows, words]`, true for words.
        state: `h [directions, rows, P]` and `c [directions, rows, C]` before the first word.
        weights: `weight_ih, weight_hh, bias, weight_hr` of each direction, as in `lstm_layer_reference`.
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

    def step(before: tuple[Tensor, Tensor], now: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
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
