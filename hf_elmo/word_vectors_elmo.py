"""The vectors of words where no gradient is wanted, on the CPU: computed by faster ways, and kept from call to call.

A text repeats its words: most vectors that a batch needs were computed for an earlier one. They are kept as long as the
encoder lives and its weights do not change, beside it and not in it (so neither in a state dict nor in a copy).
"""

import threading
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from .char_c_elmo import CharacterTables, load
from .lstm_packed_elmo import Product, can_pack, identity, is_unchanged, pack

BYTES = 1 << 27  # for the words kept of one encoder; when they are full, all are let go
BYTES_OF_KEY = 200  # a word's own part of them: its characters, and its place in the dictionary
# Bounds the memory between two layers. More at once are no faster: bfloat16 leaves the cache, float32 reads the weights
# seldom enough.
WORDS_AT_ONCE = {torch.bfloat16: 256, torch.float32: 1024}
# MKL adds up fewer rows in another order: with so many, a word has the same vector alone and among others. And oneDNN
# takes longer for a number of rows that these do not divide.
ROWS_TOGETHER = 16

_kept: WeakKeyDictionary = WeakKeyDictionary()
_lock = threading.Lock()


@torch.compiler.disable  # looking words up is no work for a graph
def kept_vectors(encoder: nn.Module, words: Tensor, padding_id: int) -> Tensor | None:
    """The vectors `[n, P]` of `words [n, characters]`, or `None` where the encoder must compute them itself.

    That is where a gradient is wanted, under autocast, in types and on devices without packed products, without a C
    compiler, and where a module of the encoder does something else than at first (a hook, an adapter, quantisation).

    Args:
        encoder: an `ElmoCharacterEncoder`.
        padding_id: the character that fills words up.

    Raises:
        IndexError: a character id is outside of the vocabulary.
    """
    weights = list(encoder.parameters())
    wanted = torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)
    if wanted or not _is_plain(encoder, weights) or load() is None:
        return None
    with _lock, torch.inference_mode(False), torch.no_grad():  # what is kept may be needed outside of inference mode
        vectors = _kept.get(encoder)
        if vectors is None or not is_unchanged(weights, vectors.made_from):
            vectors = _kept[encoder] = WordVectors(encoder, weights, padding_id)
    return vectors.of(words.numpy())


def _is_plain(encoder: nn.Module, weights: list[Tensor]) -> bool:
    first, autocast = weights[0], torch.is_autocast_enabled("cpu")
    alike = all(weight.dtype == first.dtype and weight.device == first.device for weight in weights)
    return alike and can_pack(first) and not autocast and all(map(_is_unhooked, encoder.modules()))


def _is_unhooked(module: nn.Module) -> bool:
    own = type(module).__module__
    known = own.startswith("torch.nn.modules.") or own.endswith(".modeling_elmo")
    return known and not (module._forward_hooks or module._forward_pre_hooks)


class WordVectors:
    """The vectors of one encoder's words, for its weights as they are now; safe to use from several threads."""

    def __init__(self, encoder: nn.Module, weights: list[Tensor], padding_id: int) -> None:
        self.made_from, self.padding_id = identity(weights), padding_id
        self.tables = CharacterTables(encoder.embedding.weight, encoder.convolutions)
        self.activate_ = {torch.relu: torch.relu_, torch.tanh: torch.tanh_}[encoder.activation]
        self.highways = [(_linear(highway.carry), _linear(highway.transform)) for highway in encoder.highways]
        self.projection = None if encoder.projection is None else _linear(encoder.projection)
        self.capacity = max(1, BYTES // (BYTES_OF_KEY + encoder.size * weights[0].element_size()))
        # The system hands out the memory of this page by page, as it is filled.
        self.vectors = weights[0].new_empty(self.capacity, encoder.size)
        self.places: dict[bytes, int] = {}
        self.lock = threading.Lock()

    def of(self, words: np.ndarray) -> Tensor:
        """`[n, characters]` integers to `[n, P]`."""
        if words.size and not (words.min() >= 0 and words.max() < self.tables.vocabulary):
            raise IndexError(f"a character id is outside of the vocabulary, 0 to {self.tables.vocabulary - 1}")
        words = words.astype(np.uint16)
        with self.lock, torch.no_grad():
            parts = [self._look_up(words[n : n + self.capacity]) for n in range(0, max(1, len(words)), self.capacity)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _look_up(self, words: np.ndarray) -> Tensor:
        """As `of`, for no more words than are kept."""
        # numpy leaves out the zeros at the end of a string, which padding is here.
        from_padding = words - np.uint16(self.padding_id)
        keys = from_padding.view(f"S{words.shape[1] * words.itemsize}").ravel().tolist()
        new = {key: number for number, key in enumerate(keys) if key not in self.places}
        if len(self.places) + len(new) > self.capacity:
            self.places.clear()
            new = {key: number for number, key in enumerate(keys)}
        if new:
            begin = len(self.places)
            with torch.inference_mode(False):
                self._compute(words[list(new.values())], self.vectors[begin : begin + len(new)])
            self.places.update(zip(new, range(begin, begin + len(new)), strict=True))
        return self.vectors.index_select(0, torch.tensor([self.places[key] for key in keys], dtype=torch.int64))

    def _compute(self, words: np.ndarray, vectors: Tensor) -> None:
        """Write the vectors `[n, P]` of distinct words."""
        inside = words[:, ::-1] != self.padding_id
        lengths = np.where(inside.any(1), words.shape[1] - inside.argmax(1), 0)
        at_once = WORDS_AT_ONCE[vectors.dtype]
        for start in range(0, len(words), at_once):
            part = slice(start, start + at_once)
            maxima = self.tables.maxima(words[part], lengths[part])
            if missing := -len(maxima) % ROWS_TOGETHER:
                maxima = nn.functional.pad(maxima, (0, 0, 0, missing))
            x = self.activate_(maxima).to(vectors.dtype)
            for carry, transform in self.highways:
                x = torch.lerp(x, transform(x).relu_(), carry(x).sigmoid_())
            vectors[part] = (x if self.projection is None else self.projection(x))[: len(vectors[part])]


def _linear(layer: nn.Linear) -> Product:
    weight, bias = layer.weight.detach(), layer.bias.detach()
    if weight.dtype == torch.float32:  # no faster when packed, and oneDNN's long sums round twice as much as MKL's
        return lambda x: nn.functional.linear(x, weight, bias)
    product = pack(weight)
    return lambda x: product(x, bias)
