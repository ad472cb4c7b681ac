"""A word's vector from its characters (Peters et al. 2018, section 3.4; Kim et al. 2016)."""

import torch
from torch import Tensor, nn

from .backends_elmo import find_backend
from .configuration_elmo import WORD_PADDING_ID, ElmoConfig
from .packing_elmo import distinct_rows


def bilm_linear(in_features: int, out_features: int, initial_bias: float = 0.0) -> nn.Linear:
    """A linear layer of the biLM itself: `initial_bias` has it initialized as in the original code."""
    layer = nn.Linear(in_features, out_features)  # no subclass: quantizers look for the exact type
    layer.initial_bias = initial_bias
    return layer


class ElmoHighway(nn.Module):
    """`g * relu(transform(x)) + (1 - g) * x`, where `g = sigmoid(carry(x))` (Srivastava et al. 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.carry = bilm_linear(size, size, initial_bias=-2.0)
        self.transform = bilm_linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class ElmoCharacterEncoder(nn.Module):
    """A word's vector from its characters: convolutions, maximum over positions, highway layers, projection.

    With `config.word_vocab_size` the word's own vector stands in front of the filters when they are projected
    (ELMoForManyLangs); its id ends the word's row of characters.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.char_vocab_size, config.char_embedding_size, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_embedding_size, number, width) for width, number in config.char_filters
        )
        self.highways = nn.ModuleList(ElmoHighway(config.num_filters) for _ in range(config.num_highway_layers))
        self.word_embedding, size = None, config.num_filters
        if config.word_vocab_size is not None:
            self.word_embedding = nn.Embedding(config.word_vocab_size, config.word_embedding_size, padding_idx=0)
            size += config.word_embedding_size
        self.projection = bilm_linear(size, config.projection_size) if config.char_projection else None
        self.activation = torch.relu if config.char_activation == "relu" else torch.tanh
        self.size, self.widest = config.projection_size, max(width for width, _ in config.char_filters)
        self.characters = slice(None) if self.word_embedding is None else slice(-1)  # of a word's row
        self.words_at_once = 4096  # bounds the memory of the convolutions; more at once are no faster
        self.lengths_together = 4  # words whose lengths differ by less are padded to the same length

    @torch.compiler.disable  # its shapes follow from the words, which differ from batch to batch
    def forward(self, character_ids: Tensor) -> Tensor:
        """`[..., characters]` to `[..., P]`; each distinct word is computed once."""
        words = character_ids.flatten(0, -2)
        if (backend := find_backend("word-vectors", self, words)) is not None:
            vectors = backend(self, words)
        else:
            distinct, number = distinct_rows(words)
            vectors = self.encode(distinct).index_select(0, number)
        return vectors.unflatten(0, character_ids.shape[:-1])

    def encode(self, words: Tensor) -> Tensor:
        """The vectors `[words, P]` of distinct words; those of similar length in one batch, to pad little."""
        if not len(words):
            return self.embedding.weight.new_zeros(0, self.size)
        rows, words = words, words[:, self.characters].contiguous()
        lengths = ((words != WORD_PADDING_ID) * torch.arange(1, words.shape[1] + 1, device=words.device)).amax(1)
        arguments = words, lengths, self.embedding, self.convolutions
        if (backend := find_backend("character-maxima", *arguments)) is not None:
            return self._mix_filters(self.activation(backend(*arguments)), rows)
        group, order = (lengths // self.lengths_together).sort(stable=True)
        parts = words[order].split(torch.bincount(group).tolist())
        vectors = torch.cat(
            [
                self._convolve(some[:, : self._positions((number + 1) * self.lengths_together - 1)])
                for number, part in enumerate(parts)
                for some in part.split(self.words_at_once)
                if len(some)
            ]
        )
        return self._mix_filters(vectors, rows[order]).index_select(0, order.argsort())

    def encode_all(self, character_ids: Tensor) -> Tensor:
        """As `forward`, over all characters at once: for `torch.export`, whose graph must not depend on the words."""
        distinct, number = torch.unique(character_ids.flatten(0, -2), dim=0, return_inverse=True)
        vectors = self._mix_filters(self._convolve(distinct[:, self.characters]), distinct)
        return vectors.index_select(0, number).unflatten(0, character_ids.shape[:-1])

    def _mix_filters(self, vectors: Tensor, rows: Tensor) -> Tensor:
        for highway in self.highways:
            vectors = highway(vectors)
        if self.word_embedding is not None:
            vectors = torch.cat((self.word_embedding(rows[:, -1]), vectors), dim=1)
        return vectors if self.projection is None else self.projection(vectors)

    def _positions(self, longest: int) -> int:
        # Padding characters have a learned vector and take part in the maximum. All windows of padding alone are
        # equal, so one of them for each width is as good as all.
        return longest + self.widest

    def _convolve(self, words: Tensor) -> Tensor:
        x = self.embedding(words).transpose(1, 2)  # [words, char_embedding_size, characters]
        return self.activation(torch.cat([_maximum(convolution(x)) for convolution in self.convolutions], dim=1))


def _maximum(x: Tensor) -> Tensor:
    """`[n, m, positions]` to `[n, m]`; the gradient goes to the first of equals, as in TensorFlow's pooling."""
    # amax is the faster one, but not its gradient, which is shared among equals.
    return x.max(2).values if x.requires_grad else x.amax(2)
