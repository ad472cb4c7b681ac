"""ELMo as a textbook would write it: one sentence, one word, one window and one step at a time, on a model's weights.

It shares nothing with the package but the names of the weights. Everything is differentiable, so gradients can be
compared too.
"""

import torch
from torch import Tensor

from hf_elmo import ElmoModel


def word_vector(model: ElmoModel, characters: Tensor) -> Tensor:
    """One word's vector `[P]` from its character ids `[characters]`: every window, trailing padding too."""
    encoder, config = model.char_encoder, model.config
    embedded = encoder.embedding.weight[characters]
    parts = []
    for convolution, (width, _) in zip(encoder.convolutions, config.char_filters, strict=True):
        windows = [
            torch.einsum("wc,ncw->n", embedded[start : start + width], convolution.weight) + convolution.bias
            for start in range(len(characters) - width + 1)
        ]
        parts.append(torch.stack(windows).amax(0))
    x = torch.cat(parts)
    x = x.clamp(min=0) if config.char_activation == "relu" else x.tanh()
    for highway in encoder.highways:
        gate = torch.sigmoid(highway.carry.weight @ x + highway.carry.bias)
        x = gate * (highway.transform.weight @ x + highway.transform.bias).clamp(min=0) + (1 - gate) * x
    return x if encoder.projection is None else encoder.projection.weight @ x + encoder.projection.bias


def run_layer(model: ElmoModel, layer: torch.nn.Module, words: list[Tensor], state: tuple[Tensor, Tensor]):
    """An LSTM layer over a sentence `[P]` each, and its state after the last word."""
    hidden, cell = state
    outputs = []
    for x in words:
        i, f, g, o = (layer.weight_ih @ x + layer.weight_hh @ hidden + layer.bias).chunk(4)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        if model.config.cell_clip is not None:
            cell = cell.clamp(-model.config.cell_clip, model.config.cell_clip)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        if layer.weight_hr is not None:
            hidden = layer.weight_hr @ hidden
            if model.config.proj_clip is not None:
                hidden = hidden.clamp(-model.config.proj_clip, model.config.proj_clip)
        outputs.append(hidden)
    return outputs, (hidden, cell)


def sentence_layers(model: ElmoModel, rows: Tensor, state: tuple[Tensor, Tensor] | None = None):
    """The layers `[layers + 1, words, 2P]` of one sentence `[words, characters]` without padding, and the state.

    The state is `h [layers, 2, P]` and `c [layers, 2, C]`, as ElmoModel's for one row.
    """
    vectors = [word_vector(model, row) for row in rows]
    layers, size, cell = model.config.num_hidden_layers, model.config.projection_size, model.config.cell_size
    if state is None:
        state = rows.new_zeros(layers, 2, size, dtype=model.dtype), rows.new_zeros(layers, 2, cell, dtype=model.dtype)
    directions, after = [], []
    for direction, stack in enumerate((model.bilm.forward_layers, model.bilm.backward_layers)):
        x = vectors[::-1] if direction else vectors
        outputs, states = [x], []
        for number, layer in enumerate(stack):
            y, end = run_layer(model, layer, x, (state[0][number, direction], state[1][number, direction]))
            skip = model.config.use_skip_connections and number > 0
            x = [new + old for new, old in zip(y, x, strict=True)] if skip else y
            outputs.append(x)
            states.append(end)
        directions.append([torch.stack(output[::-1] if direction else output) for output in outputs])
        after.append([torch.stack(part) for part in zip(*states, strict=True)])
    together = torch.stack([torch.cat(pair, dim=1) for pair in zip(*directions, strict=True)])
    return together, tuple(torch.stack(pair, dim=1) for pair in zip(*after, strict=True))
