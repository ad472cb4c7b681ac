"""The vectors of words where no gradient is wanted, on the CPU: computed by faster ways, and cached across calls.

A text repeats its words: most vectors that a batch needs were computed for an earlier one. The cache lives as long as
the encoder's weights do, and is emptied when they change (see `weights.py`).
"""

import os
import threading
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from ..configuration_elmo import WORD_PADDING_ID
from . import native
from .character_tables import MOST_CHARACTERS, CharacterTables, why_not_called
from .cpu_packed import Product, pack, why_not_packed
from .product import row_highway, row_product
from .tensors import wants_gradient, why_not_plain
from .weights import cached

BYTES = 1 << 27  # of an encoder's cache; when it is full, it is emptied
BYTES_OF_KEY = 200  # a word's own part of it: its characters (of 16 bits), and its entry in the dictionary
# Bounds the memory between two layers. More at once are no faster: bfloat16 leaves the cache, float32 reads the weights
# seldom enough.
WORDS_AT_ONCE = {torch.bfloat16: 256, torch.float32: 1024}
# oneDNN takes longer for a number of rows that these do not divide.
ROWS_TOGETHER = {torch.bfloat16: 16, torch.float32: 1}
ACTIVATIONS_ = {torch.relu: torch.relu_, torch.tanh: torch.tanh_}


def supports(encoder: nn.Module, words: Tensor) -> str | None:
    """Why the encoder has to compute the words itself, or `None`.

    Args:
        encoder: an `ElmoCharacterEncoder`.
        words: `[n, characters]` integers.
    """
    for module in list(encoder.modules())[1:]:
        if (reason := why_not_called(module)) is not None:
            return reason
    weights = list(encoder.parameters())
    if wants_gradient(weights):
        return "a gradient is wanted"
    if (reason := why_not_plain((words, *weights), "cpu")) is not None:
        return reason
    if any(weight.dtype != weights[0].dtype for weight in weights):
        return "weights are of several types"
    computed = _computed_dtype(weights[0])
    if (reason := why_not_packed(weights[0].new_empty(0, dtype=computed))) is not None:
        return reason
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if encoder.activation not in ACTIVATIONS_:
        return "the activation is not relu or tanh"
    if encoder.embedding.num_embeddings > MOST_CHARACTERS:
        return f"the vocabulary has more than {MOST_CHARACTERS} characters"
    return native.reason()


def run(encoder: nn.Module, words: Tensor) -> Tensor:
    """The vectors `[n, P]` of `words`.

    Raises:
        IndexError: a character id is outside of the vocabulary.
    """
    weights = tuple(encoder.parameters())
    computed = _computed_dtype(weights[0])
    settings = encoder.activation, torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled
    # Also outside of inference mode, what was made inside of it is needed.
    with torch.inference_mode(False), torch.no_grad():
        made = cached(weights, computed, f"words, {settings}", lambda *weights: WordVectors(encoder, weights))
        vectors = made.of(words.numpy())
    return vectors.to(weights[0].dtype)


def _computed_dtype(weight: Tensor) -> torch.dtype:
    return torch.float32 if weight.dtype == torch.float16 else weight.dtype  # a CPU multiplies float16 slowly


class WordVectors:
    """The vectors of one encoder's words, for its weights as they are now; safe to use from several threads.

    Args:
        encoder: says which of the weights is what.
        weights: its parameters in their order, in the type to compute in.
    """

    def __init__(self, encoder: nn.Module, weights: tuple[Tensor, ...]) -> None:
        of = {id(parameter): weight for parameter, weight in zip(encoder.parameters(), weights, strict=True)}

        def linear(layer: nn.Linear) -> Product:
            return _linear(of[id(layer.weight)], of[id(layer.bias)])

        convolutions = [(of[id(layer.weight)], of[id(layer.bias)]) for layer in encoder.convolutions]
        self.tables = CharacterTables(of[id(encoder.embedding.weight)], convolutions)
        self.activate_ = ACTIVATIONS_[encoder.activation]
        self.highways = [(linear(highway.carry), linear(highway.transform)) for highway in encoder.highways]
        self.projection = None if encoder.projection is None else linear(encoder.projection)
        # Of words with vectors of their own: the vectors, and rows too wide for 16 bits.
        own = encoder.word_embedding
        self.own, self.integers = (None, np.uint16) if own is None else (of[id(own.weight)], np.uint32)
        self.characters = encoder.characters
        self.ids = slice(0) if own is None else slice(-1, None)
        self.mix = row_highway if weights[0].dtype == torch.float32 else _highway
        key = BYTES_OF_KEY * np.dtype(self.integers).itemsize // 2
        self.capacity = max(1, BYTES // (key + encoder.size * weights[0].element_size()))
        # The system hands out the memory of this page by page, as it is filled.
        self.vectors = weights[0].new_empty(self.capacity, encoder.size)
        self.places: dict[bytes, int] = {}
        self.lock = threading.Lock()
        _all.add(self)

    def of(self, words: np.ndarray) -> Tensor:
        """`[n, characters]` integers to `[n, P]`; with word vectors of its own `[n, characters + 1]`, the id last."""
        for what, ids, size in (
            ("a character id", words[:, self.characters], self.tables.vocabulary),
            ("a word's id", words[:, self.ids], 0 if self.own is None else len(self.own)),
        ):
            if ids.size and not (ids.min() >= 0 and ids.max() < size):
                raise IndexError(f"{what} is outside of the vocabulary, 0 to {size - 1}")
        words = words.astype(self.integers)
        with self.lock:
            parts = [self._look_up(words[n : n + self.capacity]) for n in range(0, max(1, len(words)), self.capacity)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _look_up(self, words: np.ndarray) -> Tensor:
        """As `of`, for no more words than the cache holds."""
        # numpy leaves out the zeros at the end of a string, which padding is here.
        from_padding = words - self.integers(WORD_PADDING_ID)
        keys = from_padding.view(f"S{words.shape[1] * words.itemsize}").ravel().tolist()
        new = {key: number for number, key in enumerate(keys) if key not in self.places}
        if len(self.places) + len(new) > self.capacity:
            self.places.clear()
            new = {key: number for number, key in enumerate(keys)}
        if new:
            begin = len(self.places)
            self._compute(words[list(new.values())], self.vectors[begin : begin + len(new)])
            self.places.update(zip(new, range(begin, begin + len(new)), strict=True))
        return self.vectors.index_select(0, torch.tensor([self.places[key] for key in keys], dtype=torch.int64))

    def _compute(self, words: np.ndarray, vectors: Tensor) -> None:
        """Write the vectors `[n, P]` of distinct words."""
        own = torch.from_numpy(words[:, self.ids].astype(np.int64))
        words = np.ascontiguousarray(words[:, self.characters], np.uint16)
        inside = words[:, ::-1] != WORD_PADDING_ID
        lengths = np.where(inside.any(1), words.shape[1] - inside.argmax(1), 0)
        at_once = WORDS_AT_ONCE[vectors.dtype]
        for start in range(0, len(words), at_once):
            part = slice(start, start + at_once)
            maxima = self.tables.maxima(words[part], lengths[part])
            if missing := -len(maxima) % ROWS_TOGETHER[vectors.dtype]:
                maxima = nn.functional.pad(maxima, (0, 0, 0, missing))
            x = self.activate_(maxima).to(vectors.dtype)
            for carry, transform in self.highways:
                x = self.mix(x, carry(x), transform(x))
            if self.own is not None:
                beside = self.own.index_select(0, own[part, 0])
                x = torch.cat((nn.functional.pad(beside, (0, 0, 0, len(x) - len(beside))), x), dim=1)
            vectors[part] = (x if self.projection is None else self.projection(x))[: len(vectors[part])]


def _linear(weight: Tensor, bias: Tensor) -> Product:
    if weight.dtype == torch.float32:  # a word has the same bits alone and among others, whatever was met before
        return row_product(weight, bias)
    product = pack(weight)
    return lambda x: product(x, bias)


def _highway(x: Tensor, carry: Tensor, transform: Tensor) -> Tensor:
    return torch.lerp(x, transform.relu_(), carry.sigmoid_())


_all: WeakSet[WordVectors] = WeakSet()


def clear() -> None:
    """Empty all caches."""
    for vectors in list(_all):
        with vectors.lock:
            vectors.places.clear()


def _after_fork() -> None:
    """After a fork: a thread that held a lock, half way through its words, is not there in the child."""
    for vectors in list(_all):
        vectors.lock = threading.Lock()
        vectors.places.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
