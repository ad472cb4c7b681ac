"""ELMo as a textbook would write it, one sentence, one word and one step at a time, differentiable: from the weights of
a model, or in float64 from the files of AllenNLP. The package's numbers are held against it; it shares no line."""

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import torch
from torch import Tensor

from hf_elmo import ElmoModel

State = tuple[Tensor, Tensor]  # h [layers, 2, P] and c [layers, 2, C]


@dataclass
class Reference:
    """A biLM by its weights."""

    embedding: Tensor  # [characters, D]
    filters: list[tuple[Tensor, Tensor]]  # of each width the weight [n, D, width] and the bias
    activation: str
    highways: list[tuple[Tensor, Tensor, Tensor, Tensor]]  # of each the weight and the bias of carry and of transform
    projection: tuple[Tensor, Tensor] | None  # weight and bias
    # Of each direction its layers: W_ih [4C, P], W_hh [4C, P], bias, W_hr [P, C] or `None`: the gates are i, f, g, o,
    # and the bias has the 1 that TensorFlow adds to f.
    stacks: list[list[tuple[Tensor, Tensor, Tensor, Tensor | None]]]
    cell_clip: float | None
    proj_clip: float | None
    skip: bool

    def word_vector(self, characters: list[int] | Tensor) -> Tensor:
        """One word's vector `[P]`: every window, trailing padding too."""
        embedded = self.embedding[characters]
        parts = []
        for weight, bias in self.filters:
            windows = embedded.unfold(0, weight.shape[2], 1)  # [places, D, width]
            parts.append(torch.einsum("pcw,ncw->pn", windows, weight).amax(0) + bias)
        x = getattr(torch, self.activation)(torch.cat(parts))
        for carry, carry_bias, transform, transform_bias in self.highways:
            gate = torch.sigmoid(carry @ x + carry_bias)
            x = gate * (transform @ x + transform_bias).relu() + (1 - gate) * x
        return x if self.projection is None else self.projection[0] @ x + self.projection[1]

    def sentence(self, vectors: list[Tensor], state: State | None = None) -> tuple[Tensor, State]:
        """The layers `[layers + 1, words, 2P]` of the vectors of words, and the state at both ends."""
        directions, after = [], []
        for direction, stack in enumerate(self.stacks):
            x = vectors[::-1] if direction else vectors
            outputs, states = [x], []
            for number, layer in enumerate(stack):
                y, end = self._run(layer, x, None if state is None else [part[number, direction] for part in state])
                x = [new + old for new, old in zip(y, x, strict=True)] if self.skip and number else y
                outputs.append(x)
                states.append(end)
            directions.append([torch.stack(output[::-1] if direction else output) for output in outputs])
            after.append([torch.stack(part) for part in zip(*states, strict=True)])
        layers = torch.stack([torch.cat(pair, dim=1) for pair in zip(*directions, strict=True)])
        return layers, tuple(torch.stack(pair, dim=1) for pair in zip(*after, strict=True))

    def _run(self, layer: tuple, words: list[Tensor], state: list[Tensor] | None) -> tuple[list[Tensor], State]:
        weight_ih, weight_hh, bias, weight_hr = layer
        cell_clip, proj_clip = (bound or torch.inf for bound in (self.cell_clip, self.proj_clip))
        hidden, cell = state or (bias.new_zeros(weight_hh.shape[1]), bias.new_zeros(len(bias) // 4))
        outputs = []
        for x in words:
            i, f, g, o = (weight_ih @ x + weight_hh @ hidden + bias).chunk(4)
            cell = (torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)).clamp(-cell_clip, cell_clip)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            if weight_hr is not None:
                hidden = (weight_hr @ hidden).clamp(-proj_clip, proj_clip)
            outputs.append(hidden)
        return outputs, (hidden, cell)


def sentence_layers(model: ElmoModel, rows: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """The layers `[layers + 1, words, 2P]` of one sentence `[words, characters]` without padding, and the state."""
    encoder, config = model.char_encoder, model.config
    cnn = encoder.embedding.weight, [(each.weight, each.bias) for each in encoder.convolutions], config.char_activation
    highways = [(h.carry.weight, h.carry.bias, h.transform.weight, h.transform.bias) for h in encoder.highways]
    projection = None if encoder.projection is None else (encoder.projection.weight, encoder.projection.bias)
    stacks = []
    for suffix in ("", "_reverse"):
        names = [f"{name}{suffix}" for name in ("weight_ih", "weight_hh", "bias", "weight_hr")]
        stacks.append([tuple(getattr(layer.lstm, name) for name in names) for layer in model.bilm.layers])
    last = config.cell_clip, config.proj_clip, config.use_skip_connections
    reference = Reference(*cnn, highways, projection, stacks, *last)
    return reference.sentence([reference.word_vector(row) for row in rows], state)


class NumpyELMo:
    """The biLM of AllenNLP's pair of files."""

    def __init__(self, options: Path, weights: Path) -> None:
        self.options = json.loads(Path(options).read_text())
        lstm, cnn, w = self.options["lstm"], self.options.get("char_cnn"), {}
        names: list[str] = []
        with h5py.File(weights) as file:
            file.visit(names.append)
            w |= {name: torch.tensor(file[name][...]).double() for name in names if hasattr(file[name], "shape")}
        stacks = []
        for direction in range(2):
            stacks.append([])
            for number in range(lstm.get("n_layers", 1)):
                path = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
                path = path if f"{path}/W_0" in w else f"RNN_{direction}/RNN/LSTMCell"
                # TensorFlow's gates are i, j, f, o, and its cell adds 1 to f.
                i, j, f, o = w[f"{path}/W_0"].T.chunk(4)
                bias_i, bias_j, bias_f, bias_o = w[f"{path}/B"].chunk(4)
                weight, size = torch.cat((i, f, j, o)), lstm["projection_dim"]
                bias, weight_hr = torch.cat((bias_i, bias_f + 1, bias_j, bias_o)), w.get(f"{path}/W_P_0")
                hr = None if weight_hr is None else weight_hr.T
                stacks[-1].append((weight[:, :-size], weight[:, -size:], bias, hr))
        last = stacks, lstm.get("cell_clip"), lstm.get("proj_clip"), lstm.get("use_skip_connections", False)
        if not cnn:
            self.words = Path(weights).with_name("vocab.txt").read_text(encoding="utf-8").splitlines()
            self.reference = Reference(w["embedding"], [], "relu", [], None, *last)
            return
        self.words, self.length = None, cnn["max_characters_per_token"]
        parts = [f"{kind}_{gate}" for gate in ("carry", "transform") for kind in "Wb"]
        highways = [[w[f"CNN_high_{i}/{part}"].t() for part in parts] for i in range(cnn.get("n_highway") or 0)]
        numbers = range(len(cnn["filters"]))
        filters = [(w[f"CNN/W_cnn_{i}"][0].permute(2, 1, 0), w[f"CNN/b_cnn_{i}"]) for i in numbers]
        projection = (w["CNN_proj/W_proj"].T, w["CNN_proj/b_proj"]) if "CNN_proj/W_proj" in w else None
        self.reference = Reference(w["char_embed"], filters, cnn["activation"], highways, projection, *last)

    def layers(self, words: list[str], state: State | None = None) -> tuple:
        """A sentence's layers `[num_layers + 1, words + 2, 2P]`, boundaries included, in NumPy, and its state."""
        layers, state = self.reference.sentence(self.vectors(words), state)
        return layers.numpy(), state

    def vectors(self, words: list[str]) -> list[Tensor]:
        """The vectors of the words and of both boundaries."""
        if self.words is not None:
            known = [word if word in self.words else "<UNK>" for word in words]
            return [self.reference.embedding[self.words.index(word)] for word in ("<S>", *known, "</S>")]
        inner = [[256], *(list(word.encode("utf-8", "ignore"))[: self.length - 2] for word in words), [257]]
        rows = [[258, *row, 259] + [260] * (self.length - 2 - len(row)) for row in inner]
        return [self.reference.word_vector(row) for row in rows]
