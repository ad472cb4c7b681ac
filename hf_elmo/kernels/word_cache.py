"""Word vectors without gradients on the CPU: computed from tables of characters, and cached across calls.

Texts repeat words, so most vectors of a batch were computed for an earlier one. The cache of an encoder is emptied when
its weights change and when it is full. A word's float32 vector has the same bits alone and among other words.
"""

import os
import threading
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from . import native
from .character_tables import TYPES, CharacterTables, require_below, why_not_shaped
from .lstm_onednn import can_pack, pack
from .native import LANES, PRODUCT_COLUMNS
from .tensors import CharacterWeights, cached_values, get_cached, tensors_of, why_not_cached

PADDING = 261  # the character id after a word's end
BYTES = 1 << 27  # size of an encoder's cache
BYTES_OF_KEY = 200  # of a word besides its vector: its characters (16 bits each) and its entry in the dictionary
# Limits the memory for values between two layers. For bfloat16, these values then fit into the processor's cache.
WORDS_AT_ONCE = {torch.bfloat16: 256, torch.float32: 1024}
ROWS_TOGETHER = {torch.bfloat16: 16, torch.float32: 1}  # oneDNN is slower if 16 does not divide the number of rows
ROWS_PER_THREAD = 16  # with fewer rows, waking a thread takes more time than the thread saves
ACTIVATIONS_ = {torch.relu: torch.relu_, torch.tanh: torch.tanh_}


def why_not(weights: CharacterWeights, words: Tensor) -> str | None:
    """Why "word-cache" does not compute the words' vectors, or `None` if it does."""
    tensors = list(tensors_of(weights))
    if weights.embedding.dtype not in TYPES or any(tensor.dtype != weights.embedding.dtype for tensor in tensors):
        return "weights are of several types, or neither float32, bfloat16 nor float16"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if weights.activation not in ACTIVATIONS_:
        return "the activation is not relu or tanh"
    shaped = why_not_shaped(weights, words.shape[1] - (weights.word_embedding is not None))
    return shaped or why_not_cached(tensors) or native.reason()


def run(weights: CharacterWeights, words: Tensor) -> Tensor:
    """The vectors `[n, P]` of words `[n, characters]`. IndexError if an id is outside of the vocabulary."""
    # Computed in bfloat16 if the weights have this type and oneDNN multiplies it on this processor.
    is_packed = weights.embedding.dtype == torch.bfloat16 and can_pack(weights.embedding)
    dtype = torch.bfloat16 if is_packed else torch.float32
    with torch.inference_mode(False), torch.no_grad():  # cached vectors are also used outside of inference mode
        cache = get_cached([*tensors_of(weights)], weights.activation, lambda: WordVectors(weights, dtype))
        vectors = cache.of(words.numpy(), weights.word_embedding)
    return vectors.to(weights.embedding.dtype)


class WordVectors:
    """A thread-safe cache of word vectors, computed with the weights of an encoder, and stored, in `dtype`."""

    def __init__(self, weights: CharacterWeights, dtype: torch.dtype) -> None:
        def linear(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
            weight, bias = (tensor.detach().to(dtype, copy=True) for tensor in (weight, bias))
            return row_product(weight, bias) if dtype == torch.float32 else partial(pack(weight), bias=bias)

        convolutions = [(weight.detach().to(dtype), bias.detach().to(dtype)) for weight, bias in weights.convolutions]
        self.tables = CharacterTables(weights.embedding.detach().to(dtype), convolutions)
        self.activate_ = ACTIVATIONS_[weights.activation]
        self.highways = [(linear(*layer[:2]), linear(*layer[2:])) for layer in weights.highways]
        mix = lambda x, carry, transform: torch.lerp(x, transform.relu_(), carry.sigmoid_())  # noqa: E731
        self.mix = row_highway if dtype == torch.float32 else mix
        self.projection = None if weights.projection is None else linear(*weights.projection)
        own = torch.empty(0) if weights.word_embedding is None else weights.word_embedding[0]  # of a word
        size = len(own) + self.tables.blocks.filters if weights.projection is None else len(weights.projection[0])
        self.capacity = max(1, BYTES // (BYTES_OF_KEY + own.nbytes + size * dtype.itemsize))
        self.vectors = torch.empty(self.capacity, size, dtype=dtype, device="cpu")  # takes memory as it is filled
        self.row_of: dict[bytes, int] = {}
        self.lock = threading.Lock()

    def of(self, words: np.ndarray, word_embedding: Tensor | None) -> Tensor:
        """The vectors `[n, P]` of words, `[n, characters]` ids. If words have vectors of their own (`word_embedding`),
        the last id of a row is the word's id."""
        characters = words if word_embedding is None else words[:, :-1]
        require_below(self.tables.vocabulary, "a character id", characters)
        parts = [characters.astype(np.uint16, order="C")]
        if word_embedding is not None:
            require_below(len(word_embedding), "a word's id", words[:, -1])
            ids = torch.from_numpy(words[:, -1].astype(np.int64))
            parts.append(word_embedding.index_select(0, ids))
        starts = range(0, max(1, len(words)), self.capacity)
        with self.lock:
            vectors = [self._look_up(*(part[start : start + self.capacity] for part in parts)) for start in starts]
        return vectors[0] if len(vectors) == 1 else torch.cat(vectors)

    def _look_up(self, words: np.ndarray, own: Tensor | None = None) -> Tensor:
        """The vectors `[n, P]` of at most `capacity` words, from their characters and their own vectors."""
        # With the padding's id subtracted, padding is 0. NumPy drops zeros at the end of a string, so keys are short.
        # They begin with the width, on which it depends whether there are windows of padding. Own vectors stand in
        # keys in place of ids, so that a write to a row of their embedding is noticed.
        spelled = np.empty((len(words), 1 + words.shape[1]), np.uint16)
        spelled[:, 0] = words.shape[1]
        np.subtract(words, np.uint16(PADDING), out=spelled[:, 1:])
        spelled = spelled.view(np.uint8)
        if own is not None:
            spelled = np.concatenate((own.view(torch.uint8).numpy(), spelled), axis=1)
        keys = spelled.view(f"S{spelled.shape[1]}").ravel().tolist()
        new = {key: row for row, key in enumerate(keys) if key not in self.row_of}
        if len(self.row_of) + len(new) > self.capacity:
            self.row_of.clear()
            new = {key: row for row, key in enumerate(keys)}
        if new:
            begin = len(self.row_of)
            rows = list(new.values())
            vectors = self.vectors[begin : begin + len(new)]
            self._compute(words[rows], own if own is None else own[rows], vectors)
            self.row_of.update(zip(new, range(begin, begin + len(new)), strict=True))
        rows = torch.tensor([self.row_of[key] for key in keys], dtype=torch.int64, device="cpu")
        return self.vectors.index_select(0, rows)

    def _compute(self, words: np.ndarray, own: Tensor | None, vectors: Tensor) -> None:
        """Write the vectors `[n, P]` of distinct words."""
        is_character = words[:, ::-1] != PADDING
        lengths = np.where(is_character.any(1), words.shape[1] - is_character.argmax(1), 0)
        at_once = WORDS_AT_ONCE[vectors.dtype]
        for start in range(0, len(words), at_once):
            part = slice(start, start + at_once)
            maxima = self.tables.maxima(words[part], lengths[part])
            if missing := -len(maxima) % ROWS_TOGETHER[vectors.dtype]:
                maxima = nn.functional.pad(maxima, (0, 0, 0, missing))
            x = self.activate_(maxima).to(vectors.dtype)
            for carry, transform in self.highways:
                x = self.mix(x, carry(x), transform(x))
            if own is not None:
                x = torch.cat((nn.functional.pad(own[part].to(x), (0, 0, 0, missing)), x), dim=1)
            vectors[part] = (x if self.projection is None else self.projection(x))[: len(vectors[part])]


def _renew_locks() -> None:
    """In a child process: a thread of its parent that computed words, and held a lock, does not exist here."""
    for value in cached_values():
        if isinstance(value, WordVectors):
            value.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_locks)


def row_product(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    """`x [rows, in] -> x @ weight.T + bias` in float32. A row's result has the same bits alone and among other rows."""
    columns, depth = weight.shape
    missing = -columns % PRODUCT_COLUMNS
    biases = nn.functional.pad(bias, (0, missing)).contiguous()
    blocks = nn.functional.pad(weight, (0, 0, 0, missing)).unflatten(0, (-1, LANES)).mT.contiguous()

    def product(x: Tensor) -> Tensor:
        sums = x.new_empty(len(x), columns)
        sizes = {"rows": len(x), "depth": depth, "columns": columns}
        threads = native.threads_for(len(x), ROWS_PER_THREAD)
        native.run("product", x=x.contiguous(), weights=blocks, bias=biases, sums=sums, **sizes, threads=threads)
        return sums

    return product


def row_highway(x: Tensor, carry: Tensor, transform: Tensor) -> Tensor:
    """`g * relu(transform) + (1 - g) * x`, where `g = sigmoid(carry)`, of `[rows, size]` float32; `x` is overwritten. A
    row has the same bits alone and among others; PyTorch's sigmoid rounds differently at the end of a thread's part."""
    tensors = {"x": x, "carry": carry.contiguous(), "transform": transform.contiguous()}
    threads = native.threads_for(len(x), ROWS_PER_THREAD)
    native.run("highway", **tensors, rows=len(x), columns=x.shape[1], threads=threads)
    return x
