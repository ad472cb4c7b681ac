"""Inference on CUDA: both halves of the gates as one product a step, the cell in one kernel.

What costs time there is launching kernels, not running them: a step is a handful of a few microseconds each, and Python
needs longer than that to start one. Many rows side by side pay for it.
"""

import torch
from torch import Tensor

from ..lstm_elmo import LstmCall, State, clip
from .cell import choose_cell
from .packing import last_words, steps_of
from .tensors import why_not_inference


def supports(call: LstmCall) -> str | None:
    """Why the call cannot be computed so, or `None`."""
    return why_not_inference(call, "cuda")


def run(call: LstmCall) -> tuple[Tensor, State]:
    """`lstm_elmo.bilstm_layer` for calls that [`supports`] takes."""
    outputs, cell = infer(call)
    return outputs, (outputs.index_select(1, last_words(call.batch_sizes, outputs.device)), cell)


def infer(call: LstmCall) -> tuple[Tensor, Tensor]:
    """The outputs `[D, words, P]`, and the clipped cells of each row's last step; nothing else is kept."""
    inputs, steps, size = call.inputs, steps_of(call.batch_sizes), call.inputs.shape[2]
    same_kind = zip(*call.weights, strict=True)
    stacked = (None if x[0] is None else torch.stack([y.to(inputs.dtype) for y in x]) for x in same_kind)
    weight_ih, weight_hh, bias, weight_hr = stacked
    cell = call.cell.clone(memory_format=torch.contiguous_format)
    rows, weight = cell.shape[1], torch.cat((weight_ih, weight_hh), dim=2).mT
    # The operands of every step, `[x_t; h_{t-1}]`, are allocated before the first.
    both = torch.cat((inputs, inputs.new_empty(*inputs.shape[:2], call.hidden.shape[2])), dim=2)
    both[:, :rows, size:] = call.hidden
    outputs = torch.empty_like(both[:, :, size:], memory_format=torch.contiguous_format)
    gates, cell_outputs = inputs.new_empty(len(cell), rows, len(bias[0])), inputs.new_empty(cell.shape)
    forward_cell, before_clip, bias = choose_cell(gates, cell).forward, None, bias.unsqueeze(1)
    for number, (start, end) in enumerate(steps):
        now, words = slice(0, end - start), slice(start, end)
        torch.bmm(both[:, words], weight, out=gates[:, now])
        own = gates[:, now], bias.expand(-1, end - start, -1), cell[:, now], before_clip, call.cell_clip
        forward_cell(*own, cell[:, now], cell_outputs[:, now], keep_gates=False)
        before_clip = call.cell_clip
        if weight_hr is None:
            outputs[:, words] = cell_outputs[:, now]
        else:
            torch.bmm(cell_outputs[:, now], weight_hr.mT, out=outputs[:, words])
            if call.proj_clip is not None:
                outputs[:, words].clamp_(-call.proj_clip, call.proj_clip)
        if number + 1 < len(steps):
            after = slice(*steps[number + 1])
            both[:, after, size:] = outputs[:, start : start + after.stop - after.start]
    return outputs, clip(cell, call.cell_clip)
