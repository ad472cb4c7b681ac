"""The encoder of a corpus, which runs rows through the model in batches of limited size, and the rows' vectors."""

import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from pathlib import Path

import numpy as np
import pyarrow
import torch
from torch import Tensor
from transformers.utils import logging

from ..modeling_elmo import ElmoModel, Packing, State
from ..reading.rows import NamedRow, Row
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import evaluation_mode
from ..utils.jobs import cut
from ..utils.spelling import BEGIN, END, Speller, Token

logger = logging.get_logger(f"transformers.{__name__}")

FORWARD, BACKWARD = range(2)
BOUNDARIES = 2  # <S> and </S> around each row
# If fewer rows than MIN_WHOLE_ROWS fit into a batch, at least twice as many, up to MAX_ROWS_IN_PIECES, run in pieces.
MIN_WHOLE_ROWS = 8
MAX_ROWS_IN_PIECES = 32
# Large enough for full speed: on a CPU, the smaller the model's matrix products, the more tokens a batch needs.
BATCH_TOKENS = 16384
BATCH_TOKENS_CPU = 4096
BATCH_VALUES_CPU = 1 << 22  # numbers in a batch's word vectors: projection_size for each token
SHARD_BATCHES = 16  # sorting by length within this many batches leaves little padding
SPLIT_ROWS = 64  # rows that are split into words at a time
OUT_OF_MEMORY = "out of memory|can't allocate memory|not enough memory"  # in errors of PyTorch's allocators


@dataclass(frozen=True)
class RowLayout:
    """Shape and dtype of the vectors of a row."""

    layers: int | None  # the number of layers, or `None` for vectors without an axis of layers
    size: int  # of a vector, 2P
    pooled: bool  # whether a row has one vector instead of one for each word
    dtype: str  # "float32" or "float16"

    def shape(self, words: int) -> tuple[int, ...]:
        """`[layers, words, 2P]` of a row, without the axes that the layout lacks."""
        axes = (self.layers, None if self.pooled else words, self.size)
        return tuple(axis for axis in axes if axis is not None)

    def split(self, values: np.ndarray, word_counts: Iterable[int]) -> list[np.ndarray]:
        """The array of each row, as a view of `values`, which holds the rows one after another."""
        shapes = [self.shape(count) for count in word_counts]
        ends = list(accumulate(map(math.prod, shapes)))
        return [row.reshape(shape) for row, shape in zip(np.split(values, ends), shapes, strict=False)]


def make_array(shape: tuple[int, ...], dtype: str, folder: Path | None = None) -> np.ndarray:
    """Zeros in memory, or in a temporary file in `folder` that is mapped into memory; OSError if the disk is full."""
    if folder is None or math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # without it, a full disk would kill the process later, by SIGBUS
            os.posix_fallocate(file.fileno(), 0, math.prod(shape) * np.dtype(dtype).itemsize)
        return np.asarray(np.memmap(file, dtype, "w+", shape=shape))


class EmbeddedRows:
    """The words and the vectors of consecutive rows, the first with the number `first`, filled in any order; pooled
    vectors of blank rows are zero. With `folder`, the vectors are in a temporary file there, mapped into memory."""

    def __init__(self, layout: RowLayout, words: list[list[str]], first: int = 0, folder: Path | None = None) -> None:
        self.layout = layout
        self.words = words
        self.first = first
        size = sum(math.prod(layout.shape(len(row))) for row in words)
        self.values = make_array((size,), layout.dtype, folder)
        self.arrays = layout.split(self.values, map(len, words))

    def put(self, row: int, values: Tensor, start: int = 0, direction: int | None = None) -> None:
        """Store vectors of a row, on the CPU: `[layers, size]` if pooled, else `[layers, words, size]` of the words
        from `start` on. With a `direction`, they are only its half of each vector."""
        halves = 1 if direction is None else 2
        stored = torch.from_numpy(self.arrays[row]).view(len(values), -1, halves, self.layout.size // halves)
        values = values.reshape(len(values), -1, stored.shape[3])
        stored[:, start : start + values.shape[1], direction or 0] = values

    def result(self) -> list[np.ndarray] | np.ndarray:
        """An array for each row; if pooled, one array whose first axis is the rows."""
        return self.values.reshape(-1, *self.layout.shape(0)) if self.layout.pooled else self.arrays

    def batch(self) -> pyarrow.RecordBatch:
        """The rows' numbers, words and vectors, and their names (`id`) if they have names. The vectors are those in
        memory: vectors of a fixed size, inside a list of the words, inside a list of the layers."""
        layout = self.layout
        vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(self.values), layout.size)
        if not layout.pooled:
            counts = chain.from_iterable([len(words)] * (layout.layers or 1) for words in self.words)
            vectors = pyarrow.ListArray.from_arrays(np.array([0, *accumulate(counts)], np.int32), vectors)
        if layout.layers is not None:
            vectors = pyarrow.FixedSizeListArray.from_arrays(vectors, layout.layers)
        words = pyarrow.array(self.words, pyarrow.list_(pyarrow.string()))
        numbers = pyarrow.array(range(self.first, self.first + len(self.words)), pyarrow.int64())
        columns = {"row": numbers, "words": words, "embedding": vectors}
        if any(isinstance(row, NamedRow) for row in self.words):
            columns["id"] = pyarrow.array([row.name for row in self.words])  # type: ignore[attr-defined]
        return pyarrow.record_batch(columns)


@dataclass(eq=False, repr=False)
class CorpusEncoder:
    """Encodes rows of text, at most `budget` tokens (padding included) at a time.

    A row longer than the budget is encoded in pieces. The two directions of a biLM are independent, so the forward one
    runs over the pieces from the left and the backward one from the right, each carrying its state from piece to piece:
    the result is that of one pass. Several such rows, and rows of which few fit into the budget, run side by side.

    Args:
        model: the model, on the device and in the dtype to compute with.
        tokenizer: splits the rows, and makes the character ids of the words.
        others: as in [`embed`]. The budget is `batch_tokens` until memory runs out, which halves it.
    """

    model: ElmoModel
    tokenizer: ElmoTokenizer
    layers: str | int
    pooling: str
    output_dtype: str
    pretokenized: bool
    batch_tokens: int | None = None
    shard_tokens: int | None = None
    warned = False

    def __post_init__(self) -> None:
        config = self.model.config
        values = {"layers": ["mix", "sum", "all", *range(config.num_hidden_layers + 1)]}
        values |= {"pooling": ["none", "mean", "max"], "output_dtype": ["float32", "float16"]}  # integers would round
        for name, allowed in values.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but must be one of {allowed}")
        on_cpu = max(BATCH_TOKENS_CPU, min(BATCH_TOKENS, BATCH_VALUES_CPU // config.projection_size))
        self.batch_tokens = self.batch_tokens or (on_cpu if self.model.device.type == "cpu" else BATCH_TOKENS)
        self.budget = self.batch_tokens
        self.shard_tokens = self.shard_tokens or SHARD_BATCHES * self.budget
        num_layers = config.num_hidden_layers + 1 if self.layers == "all" else None
        self.layout = RowLayout(num_layers, config.hidden_size, self.pooling != "none", self.output_dtype)
        # A mix's layer normalization is over all words, its alignment over both directions: not of a row in pieces.
        self.needs_whole_rows = self.layers == "mix" and (config.scalar_mix_layer_norm or config.scalar_mix_alignment)
        self.speller = Speller(self.tokenizer, boundary_words=not self.tokenizer.split_special_tokens)

    def shards(self, rows: Iterable[Row]) -> Iterator[list[list[str]]]:
        """The words of rows, one shard at a time. Only the rows and `shard_tokens` decide where a shard ends."""
        return cut(self._split(iter(rows)), lambda words: len(words) + BOUNDARIES, self.shard_tokens)

    def _split(self, rows: Iterator[Row]) -> Iterator[list[str]]:
        while texts := list(islice(rows, SPLIT_ROWS)):
            split = self.tokenizer.split_into_words(texts, self.pretokenized)
            for text, words in zip(texts, split, strict=True):
                yield text if isinstance(text, NamedRow) else words

    def embed(self, texts: Iterable[Row], advance: Callable[[int], object] = lambda rows: None) -> EmbeddedRows:
        """The vectors of rows, in memory. `advance` is called with the number of rows of each shard."""
        shards = list(self.shards(texts))
        rows = EmbeddedRows(self.layout, list(chain.from_iterable(shards)))
        for shard, end in zip(shards, accumulate(map(len, shards)), strict=True):
            self.encode(rows, range(end - len(shard), end))
            advance(len(shard))
        return rows

    def encode(self, rows: EmbeddedRows, indices: range | None = None) -> None:
        """Fill in the vectors of rows, by default of all; ValueError as in `_check` and `_encode_long`."""
        indices = range(len(rows.words)) if indices is None else indices
        # Longest first, so that a budget that is too large fails at once. Blank rows keep their zeros.
        pending = sorted((row for row in indices if rows.words[row]), key=lambda row: -len(rows.words[row]))
        while pending:
            encode, count, tokens = self._plan([len(rows.words[row]) + BOUNDARIES for row in pending])
            try:
                with evaluation_mode(self.model), torch.autocast(self.model.device.type, enabled=False):
                    encode(rows, pending[:count])
            except (MemoryError, RuntimeError) as error:
                is_memory = isinstance(error, MemoryError) or re.search(OUT_OF_MEMORY, str(error), re.IGNORECASE)
                if not is_memory or tokens <= 1:
                    raise
            else:
                for row in pending[:count]:
                    self._check(rows, row)
                del pending[:count]
                continue
            # Only now, as the exception keeps tensors in memory until its block is left.
            self.budget = tokens // 2
            torch.cuda.empty_cache()
            logger.warning("out of memory with %d tokens in a batch; continuing with %d", tokens, self.budget)

    def _plan(self, lengths: list[int]) -> tuple[Callable[..., None], int, int]:
        """From the rows' lengths, longest first: the next batch's method, number of rows and number of tokens."""
        whole = self.budget // lengths[0]
        long_rows = sum(length * MIN_WHOLE_ROWS > self.budget for length in lengths)  # none if as many fit
        together = min(long_rows, MAX_ROWS_IN_PIECES, self.budget)
        if whole == 0 or (together >= 2 * whole and not self.needs_whole_rows):
            return self._encode_long, together, together * (self.budget // together)
        count = min(len(lengths), whole)
        return self._encode_batch, count, count * lengths[0]

    @torch.inference_mode()
    def _encode_batch(self, rows: EmbeddedRows, group: list[int]) -> None:
        words = [rows.words[row] for row in group]
        lengths = [len(row) + BOUNDARIES for row in words]
        layers = self._chosen(self._whole_layers(words, lengths), lengths)
        layers = layers.cpu() if self.pooling == "none" else layers
        arrays = [layer[:, 1:-1] for layer in layers.split(lengths, dim=1)]
        if self.pooling != "none":
            pool = torch.amax if self.pooling == "max" else torch.mean  # [layers, words, 2P] -> [layers, 2P]
            arrays = torch.stack([pool(array.float(), 1) for array in arrays]).cpu()
        for row, array in zip(group, arrays, strict=True):
            rows.put(row, array)

    def _check(self, rows: EmbeddedRows, row: int) -> None:
        """Raises ValueError for numbers too large for float16; warns once of other numbers that are not finite."""
        low, high = torch.from_numpy(rows.arrays[row]).aminmax()
        if low.isfinite() and high.isfinite():
            return
        name = f"row {rows.first + row} (from 0)"
        if self.layout.dtype == "float16" and (low.isinf() or high.isinf()):
            raise ValueError(f"{name} has numbers over 65504, the largest of float16: use output_dtype='float32'")
        if not self.warned:
            self.warned = True
            logger.warning("%s has vectors that are not finite; further rows are not reported", name)

    def _whole_layers(self, words: list[list[str]], lengths: list[int]) -> Tensor:
        """All layers of whole rows, `[layers, words, 2P]`, boundaries included."""
        ids, indices = self._distinct_words(words, [(0, length) for length in lengths])
        packing, order = _packing_of(lengths, ids.device)
        # The indices of the words in the order in which each direction reads them.
        read = torch.empty_like(order).scatter_(1, order, indices.expand_as(order))
        outputs, _ = self.model.read_directions(ids, read, packing)
        layers = outputs[0].new_empty(len(outputs), len(indices), 2 * outputs[0].shape[2])
        order[BACKWARD] += len(indices)  # in an output, the backward direction follows the forward one
        halves = order.t().flatten()
        for layer, output in zip(layers, outputs, strict=True):
            torch.index_select(output.flatten(0, 1), 0, halves, out=layer.view(len(halves), -1))
        return layers

    def _chosen(self, layers: Tensor, lengths: list[int]) -> Tensor:
        """The requested layers out of `[all layers, words, size]`, or their mix; `lengths` are the rows' lengths."""
        if self.needs_whole_rows:
            # One row at a time: the normalization is over all words that it gets, and no row may depend on other rows.
            return torch.cat([self.model.scalar_mix(row) for row in layers.split(lengths, dim=1)])[None]
        if self.layers == "mix":
            return self.model.scalar_mix(layers)[None]
        if self.layers == "sum":
            return layers.sum(0, keepdim=True, dtype=torch.float32)
        return layers if self.layers == "all" else layers[self.layers][None]

    def _distinct_words(self, words: list[list[str]], spans: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """The character ids `[distinct, characters]` of the distinct words in the spans of all rows, and the index of
        the word at each place of the joined spans; position 0 of a row is `<S>`."""
        tokens: list[Token] = []
        for row, (begin, end) in zip(words, spans, strict=True):
            tokens += (BEGIN,) if begin == 0 else ()
            tokens += row[max(begin - 1, 0) : end - 1]
            tokens += (END,) if end == len(row) + BOUNDARIES else ()
        ids, indices = self.speller.distinct(tokens)
        return torch.from_numpy(ids).to(self.model.device), torch.tensor(indices, device=self.model.device)

    def _encode_long(self, rows: EmbeddedRows, group: list[int]) -> None:
        """Encode rows (longest first) in pieces, side by side."""
        words = [rows.words[row] for row in group]
        if self.needs_whole_rows:
            how = "a mix with layer normalization or alignment needs whole rows: raise it, or set layers='all'"
            raise ValueError(f"a row of {len(words[0])} words is longer than batch_tokens={self.budget}; {how}")
        shape = len(words), self.layout.layers or 1, self.model.config.projection_size
        for direction in (FORWARD, BACKWARD):
            # In float32, sums would lose digits over a long document.
            pooled = np.full(shape, -np.inf if self.pooling == "max" else 0.0)
            for place, begin, values in self._pieces(words, direction):
                if self.pooling == "none":
                    rows.put(group[place], torch.from_numpy(values).transpose(0, 1), begin, direction)
                elif self.pooling == "max":
                    pooled[place] = np.maximum(pooled[place], values.max(axis=0))
                else:
                    pooled[place] += values.sum(axis=0, dtype=np.float64) / len(words[place])
            if self.pooling != "none":
                for row, values in zip(group, pooled, strict=True):
                    rows.put(row, torch.from_numpy(values), direction=direction)

    def _pieces(self, words: list[list[str]], direction: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """Runs one direction over rows (longest first), side by side and piece by piece. Each item is the index of a
        row, the first word of a piece, and the values of its words, `[words, layers, P]` float32, no boundaries."""
        lengths = [len(row) + BOUNDARIES for row in words]
        step = self.budget // len(words)
        state = None
        for done in range(0, lengths[0], step):
            here = sum(length > done for length in lengths)  # those that have ended are the last, shortest ones
            spans = [(done, min(done + step, length)) for length in lengths[:here]]
            if direction == BACKWARD:
                spans = [(length - end, length - begin) for length, (begin, end) in zip(lengths, spans, strict=False)]
            state = None if state is None else tuple(part[:, :, :here] for part in state)
            values, state = self._half_layers(words[:here], spans, state, direction)
            parts = np.split(values, list(accumulate(end - begin for begin, end in spans)))
            for place, (begin, end) in enumerate(spans):
                inner = slice(int(begin == 0), min(end, lengths[place] - 1) - begin)
                if inner.start < inner.stop:
                    yield place, begin + inner.start - 1, parts[place][inner]

    @torch.inference_mode()
    def _half_layers(
        self, words: list[list[str]], spans: list[tuple[int, int]], state: State | None, direction: int
    ) -> tuple[np.ndarray, State]:
        """One direction of the requested layers, `[words, layers, P]` float32 (rows concatenated); the last state."""
        ids, indices = self._distinct_words(words, spans)
        vectors = self.model.char_encoder(ids)
        packing, orders = _packing_of([end - begin for begin, end in spans], vectors.device)
        order = orders[direction]
        inputs = vectors.index_select(0, torch.empty_like(indices).index_copy_(0, order, indices))
        if state is None:
            state = tuple(part[:, [direction]] for part in self.model.bilm.initial_state(len(words), vectors))
        outputs, state = self.model.bilm.run(inputs[None], state, packing.batch_sizes, [direction])
        layers = torch.stack([vectors[indices], *(output[0, order] for output in outputs)])
        values = self._chosen(layers, [len(indices)]).transpose(0, 1)
        return values.float().contiguous().cpu().numpy(), state


def _packing_of(lengths: list[int], device: torch.device) -> tuple[Packing, Tensor]:
    """The packing of rows of these lengths, and the place of each of their words in each direction, `[2, packed]`."""
    packing = Packing.of(torch.arange(lengths[0], device=device) < torch.tensor(lengths, device=device)[:, None])
    order = packing.indices.argsort()
    return packing, torch.stack((order, packing.reverse[order]))
