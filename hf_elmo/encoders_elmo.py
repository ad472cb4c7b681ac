"""Encoders and poolings of the heads, between the word vectors and the classifier."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_elmo import ElmoConfig
from .packing_elmo import Packing, compact, expand, mean_over


class RaggedLSTM(nn.LSTM):
    """A `torch.nn.LSTM` in both directions over right-padded rows of different lengths."""

    def forward(self, words: Tensor, inside: Tensor) -> Tensor:
        """`[batch, words, input_size]` and the mask of the words to `[batch, words, 2 * hidden_size]`, which is
        undefined at padding."""
        # On a CPU PackedSequence is slow to train: its backward allocates a gradient of all steps at each step. Padded
        # rows are read by oneDNN.
        if words.is_cpu and words.dtype == torch.float32 and not torch.is_autocast_enabled("cpu"):
            return self._padded(words, inside)
        packing = Packing.of(inside)
        packed = PackedSequence(words.flatten(0, 1)[packing.positions], torch.tensor(packing.batch_sizes))
        return packing.pad(super().forward(packed)[0].data)

    def _padded(self, words: Tensor, inside: Tensor) -> Tensor:
        steps = torch.arange(inside.shape[1], device=inside.device)
        mirrored = torch.where(inside, inside.sum(1, keepdim=True) - 1 - steps, steps)[:, :, None]
        state = words.new_zeros(1, len(words), self.hidden_size)
        for layer in range(self.num_layers):
            words = nn.functional.dropout(words, self.dropout, self.training) if layer else words
            backward = words.gather(1, mirrored.expand_as(words))
            halves = []
            for ending, read in ((f"_l{layer}", words), (f"_l{layer}_reverse", backward)):
                names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                weights = [getattr(self, name + ending) for name in names]
                halves.append(torch.lstm(read, (state, state), weights, True, 1, 0.0, self.training, False, True)[0])
            halves[1] = halves[1].gather(1, mirrored.expand_as(halves[1]))
            words = torch.cat(halves, dim=2)
        return words


class ElmoBiLSTM(nn.Module):
    """An LSTM in both directions over the words of a mask, in their order; zero where no word is."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        between = dropout if num_layers > 1 else 0.0
        self.dropout = nn.Dropout(dropout)
        self.lstm = RaggedLSTM(input_size, hidden_size, num_layers, bidirectional=True, dropout=between)

    @torch.compiler.disable  # the lengths differ from batch to batch
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, input_size]` and `[batch, words]` to `[batch, words, 2 * hidden_size]`."""
        words, inside = compact(vectors, mask)
        if not inside.any():
            return vectors.new_zeros(*mask.shape, 2 * self.lstm.hidden_size)
        return expand(self.lstm(self.dropout(words), inside)[inside], mask)


class ElmoHighwayLSTM(GradientCheckpointingLayer):
    """A layer of an LSTM in one direction whose output goes through a highway (Zhang et al. 2016; He et al. 2017,
    section 2.2): `h = r * (o * tanh(c)) + (1 - r) * W x`, where the gate r is made as the others are."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.hidden_size, self.dropout = hidden_size, dropout
        self.weight_ih = nn.Parameter(torch.empty(6 * hidden_size, input_size))  # of i, f, g, o, r, and the highway
        self.weight_hh = nn.Parameter(torch.empty(5 * hidden_size, hidden_size))  # of i, f, g, o, r
        self.bias = nn.Parameter(torch.empty(6 * hidden_size))

    def forward(self, words: Tensor, batch_sizes: Sequence[int]) -> Tensor:
        """Packed words `[packed, input_size]`, in the order in which they are read, to `[packed, hidden_size]`."""
        *gates, highway = nn.functional.linear(words, self.weight_ih, self.bias).chunk(6, dim=1)
        # Under autocast the linear maps are of its type, and what is added up over the words of the weights'.
        hidden = highway.new_zeros(batch_sizes[0], self.hidden_size)
        cell = self.bias.new_zeros(hidden.shape)
        dropout_mask = nn.functional.dropout(torch.ones_like(hidden), self.dropout, self.training)
        weight_hh = self.weight_hh.T.to(hidden)
        steps = zip(*(part.split(batch_sizes) for part in (torch.cat(gates, dim=1), highway)), strict=True)
        outputs = []
        for from_word, carried in steps:
            size = len(carried)  # the last rows have ended
            i, f, g, o, r = torch.addmm(from_word, hidden[:size], weight_hh).chunk(5, dim=1)
            cell = f.sigmoid() * cell[:size] + i.sigmoid() * g.tanh()
            hidden = torch.lerp(carried, (o.sigmoid() * cell.tanh()).to(carried), r.sigmoid()) * dropout_mask[:size]
            outputs.append(hidden)
        return torch.cat(outputs)


class ElmoAlternatingLSTM(nn.Module):
    """Layers that read forward and backward in turn, each what the one below found (He et al. 2017, section 2.2; Zhou
    and Xu 2015); zero where no word is."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, dropout: float, recurrent_dropout: float
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        sizes = [input_size, *[hidden_size] * (num_layers - 1)]
        self.layers = nn.ModuleList(ElmoHighwayLSTM(size, hidden_size, recurrent_dropout) for size in sizes)

    @torch.compiler.disable  # the packing differs from batch to batch
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, input_size]` and `[batch, words]` to `[batch, words, hidden_size]`."""
        packing = Packing.of(mask)
        if not packing.batch_sizes:
            return vectors.new_zeros(*mask.shape, self.layers[0].hidden_size)
        words = self.dropout(vectors.flatten(0, 1)[packing.positions])
        for number, layer in enumerate(self.layers):
            words = words if number == 0 else words.index_select(0, packing.reverse)
            words = layer(words, packing.batch_sizes)
        return packing.pad(words if len(self.layers) % 2 else words.index_select(0, packing.reverse))


class ElmoTaskEncoder(nn.Module):
    """`[x; ELMo]` to the encoder's output, beside which ELMo may stand once more (Peters et al. 2018, section 3.3).

    `sizes` are those of the parts of the output, each of which has a forward and a backward half; that of an
    alternating encoder, which taggers read, has none.
    """

    def __init__(self, config: ElmoConfig, input_size: int) -> None:
        super().__init__()
        hidden = config.encoder_hidden_size
        biattentive = config.encoder_type == "biattentive"
        self.feedforward = nn.Linear(input_size, hidden) if biattentive else None
        layers = hidden if biattentive else input_size, hidden, config.encoder_num_layers, config.encoder_dropout
        if config.encoder_type == "alternating":
            self.bilstm = ElmoAlternatingLSTM(*layers, config.encoder_recurrent_dropout)
        else:
            self.bilstm = ElmoBiLSTM(*layers)
        self.dropout = nn.Dropout(config.encoder_dropout)
        again = [config.hidden_size] if config.elmo_at_output and config.use_elmo else []
        self.sizes = [hidden if config.encoder_type == "alternating" else 2 * hidden, *again]

    def forward(self, vectors: Tensor, mask: Tensor, elmo: Tensor | None = None) -> Tensor:
        """`[batch, words, input_size]`, `[batch, words]` and ELMo's second mix `[batch, words, 2P]`, where there is
        one, to `[batch, words, sum(sizes)]`."""
        if self.feedforward is not None:
            vectors = torch.relu(self.feedforward(self.dropout(vectors)))
        encoded = self.bilstm(vectors, mask)
        return encoded if elmo is None else torch.cat((encoded, self.dropout(elmo)), dim=2)


class ElmoAttentionPooling(nn.Module):
    """The mean of the words' vectors by learned weights (Lin et al. 2017; McCann et al. 2017, section 5)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.score = nn.Linear(size, 1)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, size]` and `[batch, words]` to `[batch, size]`; zero for a row without words."""
        weights = masked_softmax(self.score(vectors).squeeze(2), mask)
        return torch.bmm(weights[:, None], vectors)[:, 0]


class ElmoBiattention(nn.Module):
    """What each word of a text finds in the other text, or in its own, read in order and pooled in four ways: the
    biattentive classification network (McCann et al. 2017, section 5)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.integrator = ElmoBiLSTM(3 * size, hidden_size, dropout=dropout)
        self.attention = ElmoAttentionPooling(2 * hidden_size)

    def forward(self, texts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """One text or two, each `[batch, words, size]` with its mask, to `[batch, 8 * hidden_size]` for each text."""
        others = texts[::-1] if len(texts) == 2 else texts
        pooled = []
        for (x, mask), (y, mask_of_y) in zip(texts, others, strict=True):
            found = masked_softmax(x @ y.mT, mask_of_y[:, None]) @ y
            read = self.integrator(torch.cat((x, x - found, x * found), dim=2), mask)
            pooled += [max_over(read, mask), mean_over(read, mask), -max_over(-read, mask), self.attention(read, mask)]
        return torch.cat(pooled, dim=1)


class ElmoLocalInference(nn.Module):
    """What each word of a premise finds in the hypothesis and the other way around, composed in order and pooled: ESIM
    (Chen et al. 2017, sections 3.2 and 3.3)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.projection = nn.Linear(4 * size, hidden_size)
        self.composition = ElmoBiLSTM(hidden_size, hidden_size, dropout=dropout)

    def forward(self, texts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Two texts, each `[batch, words, size]` with its mask, to `[batch, 8 * hidden_size]`."""
        pooled = []
        for (x, mask), (y, mask_of_y) in zip(texts, texts[::-1], strict=True):
            found = masked_softmax(x @ y.mT, mask_of_y[:, None]) @ y
            compared = torch.cat((x, found, x - found, x * found), dim=2)
            composed = self.composition(torch.relu(self.projection(compared)), mask)
            pooled += [mean_over(composed, mask), max_over(composed, mask)]
        return torch.cat(pooled, dim=1)


class ElmoMaxout(nn.Module):
    """The largest of several linear maps (Goodfellow et al. 2013), as the biattentive network ends."""

    def __init__(self, input_size: int, output_size: int, maps: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, output_size * maps)
        self.maps = maps

    def forward(self, x: Tensor) -> Tensor:
        """`[batch, input_size]` to `[batch, output_size]`."""
        return self.linear(x).unflatten(1, (-1, self.maps)).amax(2)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax over the last axis of what `mask` (which broadcasts) names; zeros where it names nothing."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask


def max_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """The maximum `[batch, size]` of `[batch, words, size]` over `mask`; zero where it is empty."""
    if not vectors.shape[1]:
        return vectors.new_zeros(vectors.shape[0], vectors.shape[2])
    lowest = torch.finfo(vectors.dtype).min
    return vectors.masked_fill(~mask[:, :, None], lowest).amax(1) * mask.any(1, keepdim=True)


def last_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """Each direction's final state: the forward half of the last position of `mask`, the backward half of the first."""
    if not vectors.shape[1]:
        return vectors.new_zeros(vectors.shape[0], vectors.shape[2])
    forward, backward = vectors.chunk(2, dim=2)
    position = torch.arange(mask.shape[1], device=mask.device)
    last, first = (mask * position).argmax(1), mask.int().argmax(1)
    rows = torch.arange(mask.shape[0], device=mask.device)
    return torch.cat((forward[rows, last], backward[rows, first]), dim=1)


__all__ = [
    "ElmoAlternatingLSTM",
    "ElmoAttentionPooling",
    "ElmoBiLSTM",
    "ElmoBiattention",
    "ElmoLocalInference",
    "ElmoMaxout",
]
