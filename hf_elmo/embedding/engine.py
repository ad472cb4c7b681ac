"""The encoder of a corpus. It runs windows (consecutive rows) through the model, in batches of limited size."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow
import torch
from torch import Tensor
from transformers.utils import logging

from ..modeling_elmo import ElmoModel, Packing, State
from ..spelling import BEGIN, END, Speller, Token
from ..text import NamedRow
from ..tokenization_elmo import ElmoTokenizer

logger = logging.get_logger(f"transformers.{__name__}")

FORWARD, BACKWARD = 0, 1
BOUNDARIES = 2  # <S> and </S> around each row
# A time step of the LSTM takes about as long for one row as for many. If fewer than MIN_WHOLE_ROWS rows fit into a
# batch, up to MAX_ROWS_IN_PIECES are encoded side by side in pieces, if these are twice as many rows or more.
MIN_WHOLE_ROWS, MAX_ROWS_IN_PIECES = 8, 32


@dataclass(frozen=True)
class RowLayout:
    """Shape and dtype of the vectors of a row.

    Args:
        layers: number of layers, or `None` for vectors without an axis of layers.
        size: the size of a vector, 2P.
        pooled: whether a row has one vector instead of one for each word.
        dtype: `"float32"` or `"float16"`.
    """

    layers: int | None
    size: int
    pooled: bool
    dtype: str

    def shape(self, words: int) -> tuple[int, ...]:
        """`[layers, words, 2P]` of a row, without the axes that the layout lacks."""
        lead = () if self.layers is None else (self.layers,)
        return (*lead, self.size) if self.pooled else (*lead, words, self.size)

    def split(self, values: np.ndarray, word_counts: Iterable[int]) -> list[np.ndarray]:
        """The array of each row, as a view of `values`, which holds the rows one after another."""
        shapes = [self.shape(count) for count in word_counts]
        ends = list(accumulate(map(math.prod, shapes)))
        return [row.reshape(shape) for row, shape in zip(np.split(values, ends), shapes, strict=False)]

    @property
    def arrow_type(self) -> pyarrow.DataType:
        """The type of a row: vectors of a fixed size, inside a list of the words, inside a list of the layers."""
        vector = pyarrow.list_(pyarrow.from_numpy_dtype(self.dtype), self.size)
        of_words = vector if self.pooled else pyarrow.list_(vector)
        return of_words if self.layers is None else pyarrow.list_(of_words, self.layers)

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of a table of rows with their vectors."""
        words = pyarrow.list_(pyarrow.string())
        return pyarrow.schema([("row", pyarrow.int64()), ("words", words), ("embedding", self.arrow_type)])


def make_mapped_array(folder: str | os.PathLike, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of zeros in a temporary file in `folder`, mapped into memory; OSError if the disk is full."""
    with tempfile.TemporaryFile(dir=os.fspath(folder)) as file:
        if hasattr(os, "posix_fallocate"):  # without it, a full disk would kill the process later, by SIGBUS
            os.posix_fallocate(file.fileno(), 0, math.prod(shape) * np.dtype(dtype).itemsize)
        return np.asarray(np.memmap(file, dtype, "w+", shape=shape))


class Window:
    """The vectors of consecutive rows, filled in any order; the pooled vectors of blank rows are zero.

    Args:
        layout: the layout of the rows.
        words: the words of each row.
        first: the number of the first row, for messages.
        folder: the folder of a temporary file with the vectors, mapped into memory; by default there is no file.
    """

    def __init__(
        self, layout: RowLayout, words: list[list[str]], first: int = 0, folder: str | os.PathLike | None = None
    ) -> None:
        self.layout, self.words, self.first = layout, words, first
        size = sum(math.prod(layout.shape(len(row))) for row in words)
        if folder is None or size == 0:
            self.values = np.zeros(size, layout.dtype)
        else:
            self.values = make_mapped_array(folder, layout.dtype, (size,))
        self.arrays = layout.split(self.values, map(len, words))

    def put(self, row: int, values: Tensor, start: int = 0, direction: int | None = None) -> None:
        """Store the vectors of a row, or a part of them.

        Args:
            row: the number of the row in the window.
            values: `[layers, size]` if pooled, else `[layers, words of the part, size]`, on the CPU.
            start: the first word of the part.
            direction: the direction that computed `values`, if they are only its half of each vector.
        """
        halves = 1 if direction is None else 2
        stored = torch.from_numpy(self.arrays[row]).view(len(values), -1, halves, self.layout.size // halves)
        values = values.reshape(len(values), -1, stored.shape[3])
        stored[:, start : start + values.shape[1], direction or 0] = values

    def arrow(self) -> pyarrow.Array:
        """The vectors as an Arrow array of the layout's type, in the same memory."""
        layout = self.layout
        array = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(self.values), layout.size)
        if not layout.pooled:
            lists = 1 if layout.layers is None else layout.layers
            counts = chain.from_iterable([len(words)] * lists for words in self.words)
            array = pyarrow.ListArray.from_arrays(np.array([0, *accumulate(counts)], np.int32), array)
        if layout.layers is not None:
            array = pyarrow.FixedSizeListArray.from_arrays(array, layout.layers)
        return array

    def table(self) -> pyarrow.Table:
        """A table of the rows: their numbers, words and vectors, and their names (`id`) if they have names."""
        schema, rows = self.layout.schema, range(self.first, self.first + len(self.words))
        columns = {"row": rows, "words": self.words, "embedding": self.arrow()}
        if any(isinstance(words, NamedRow) for words in self.words):
            schema = schema.append(pyarrow.field("id", pyarrow.string()))
            columns["id"] = [words.name for words in self.words]  # type: ignore[attr-defined]
        return pyarrow.Table.from_pydict(columns, schema)


@dataclass
class EmbeddedRows:
    """Rows and their vectors in memory."""

    layout: RowLayout
    windows: list[Window] = field(default_factory=list)

    @property
    def words(self) -> list[list[str]]:
        """The words of each row."""
        return [words for window in self.windows for words in window.words]

    def arrays(self) -> list[np.ndarray] | np.ndarray:
        """An array for each row; if pooled, one array whose first axis is the rows."""
        if not self.layout.pooled:
            return [array for window in self.windows for array in window.arrays]
        values = [window.values for window in self.windows] or [np.zeros(0, self.layout.dtype)]
        return (values[0] if len(values) == 1 else np.concatenate(values)).reshape(-1, *self.layout.shape(0))

    def arrow(self) -> pyarrow.Array:
        """One Arrow value for each row, in the same memory if there is only one window."""
        arrays = [window.arrow() for window in self.windows] or [pyarrow.array([], self.layout.arrow_type)]
        return arrays[0] if len(arrays) == 1 else pyarrow.concat_arrays(arrays)


class CorpusEncoder:
    """Encodes windows of rows, at most `budget` tokens (padding included) at a time.

    A row longer than the budget is encoded in pieces. The two directions of a biLM are independent, so the forward one
    runs over the pieces from the left and the backward one from the right, each carrying its state from piece to piece:
    the result is that of one pass over the whole row. Several such rows are encoded side by side. Rows of which only a
    few fit into the budget are encoded in the same way.

    Args:
        model: the model in evaluation mode, on the device and in the dtype to compute with.
        tokenizer: makes the character ids of the words.
        layers: `"mix"`, `"sum"`, `"all"` or the number of one layer.
        pooling: `"none"`, `"mean"` or `"max"` over the words of a row.
        budget: the most tokens in one batch; halved when memory runs out.
        advance: called with the numbers of rows and of words finished since its last call, for a progress bar.
    """

    def __init__(
        self,
        model: ElmoModel,
        tokenizer: ElmoTokenizer,
        layers: str | int,
        pooling: str,
        budget: int,
        advance: Callable[[int, float], None],
    ) -> None:
        self.model, self.layers, self.pooling = model, layers, pooling
        self.budget, self.advance = budget, advance
        self.num_layers = model.config.num_hidden_layers + 1 if layers == "all" else 1
        self.speller = Speller(tokenizer, boundary_words=not tokenizer.split_special_tokens)
        self.warned = False

    def encode(self, rows: list[list[str]], window: Window) -> None:
        """Fill `window` with the vectors of `rows`, each a list of words.

        Raises:
            MemoryError: not even one word fits into memory.
            ValueError: a number is too large for the window's dtype, or a row is too long for a mix with layer norm.
        """
        # Longest first, so that a budget that is too large fails at once. Blank rows keep the zeros of a new window.
        pending = sorted((row for row, words in enumerate(rows) if words), key=lambda row: -len(rows[row]))
        self.advance(len(rows) - len(pending), 0)
        while pending:
            encode, count, tokens = self._plan([len(rows[row]) + BOUNDARIES for row in pending])
            group = pending[:count]
            if self._fits(encode, group, rows, window):
                for row in group:
                    self._check(window, row)
                del pending[:count]
                self.advance(count, 0)
            else:
                self._halve(tokens)

    def _plan(self, lengths: list[int]) -> tuple[Callable[..., None], int, int]:
        """From the rows' lengths, longest first: the next batch's method, number of rows and number of tokens."""
        whole = self.budget // lengths[0]
        if whole < MIN_WHOLE_ROWS:
            long_rows = sum(length * MIN_WHOLE_ROWS > self.budget for length in lengths)
            together = min(long_rows, MAX_ROWS_IN_PIECES, self.budget)
            if whole == 0 or (together >= 2 * whole and not self._needs_whole_rows):
                return self._encode_long, together, together * (self.budget // together)
        count = min(len(lengths), whole)
        return self._encode_batch, count, count * lengths[0]

    @property
    def _needs_whole_rows(self) -> bool:
        """Whether all words of a row must be encoded at once, because the layer normalization is over all of them."""
        return self.layers == "mix" and self.model.config.scalar_mix_layer_norm

    def _fits(self, encode: Callable[..., None], *arguments: Any) -> bool:
        try:
            encode(*arguments)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return False  # the caller retries: the exception keeps tensors in memory until this block is left
        return True

    def _halve(self, tried: int) -> None:
        if tried <= 1:
            raise MemoryError(
                f"one word does not fit into the memory of {self.model.device}; free memory there, choose another "
                "device, or load the model in a smaller dtype (bfloat16)"
            )
        self.budget = tried // 2
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        logger.warning("out of memory with %d tokens in a batch; continuing with %d", tried, self.budget)

    def _encode_batch(self, group: list[int], rows: list[list[str]], window: Window) -> None:
        words = [rows[row] for row in group]
        lengths = [len(row) + BOUNDARIES for row in words]
        with torch.inference_mode():
            layers = self._chosen(self._whole_layers(words, lengths), lengths)
            if self.pooling == "none":
                layers = layers.cpu()
            arrays = [layer[:, 1:-1] for layer in layers.split(lengths, dim=1)]
            if self.pooling != "none":
                pool = torch.amax if self.pooling == "max" else torch.mean  # [layers, words, 2P] -> [layers, 2P]
                arrays = torch.stack([pool(array.float(), 1) for array in arrays]).cpu()
            for row, array in zip(group, arrays, strict=True):
                window.put(row, array)
        self.advance(0, sum(map(len, words)))

    def _check(self, window: Window, row: int) -> None:
        """Raises ValueError for numbers too large for float16; warns once of other numbers that are not finite."""
        low, high = torch.from_numpy(window.arrays[row]).aminmax()
        if low.isfinite() and high.isfinite():
            return
        name = f"row {window.first + row} (from 0)"
        if window.layout.dtype == "float16" and (low.isinf() or high.isinf()):
            raise ValueError(f"{name} has numbers over 65504, the largest of float16: use output_dtype='float32'")
        if not self.warned:
            self.warned = True
            logger.warning("%s has vectors that are not finite; further rows are not reported", name)

    def _whole_layers(self, words: list[list[str]], lengths: list[int]) -> Tensor:
        """All layers of whole rows, `[layers, words, 2P]`, the rows concatenated, boundaries included."""
        ids, indices = self._distinct_words(words, [(0, length) for length in lengths])
        packing = Packing.of_lengths(lengths, ids.device)
        order = _row_by_row(packing)
        # The indices of the words in the order in which each direction reads them.
        read = torch.empty_like(order).scatter_(1, order, indices.expand_as(order))
        outputs, _ = self.model.read(ids, packing, numbers=read)
        layers = outputs[0].new_empty(len(outputs), len(indices), 2 * outputs[0].shape[2])
        order[BACKWARD] += len(indices)  # in an output, the backward direction follows the forward one
        halves = order.t().flatten()
        for layer, output in zip(layers, outputs, strict=True):
            torch.index_select(output.flatten(0, 1), 0, halves, out=layer.view(len(halves), -1))
        return layers

    def _chosen(self, layers: Tensor, lengths: list[int]) -> Tensor:
        """The requested layers out of `[all layers, words, size]`, or their mix; `lengths` are the rows' lengths."""
        if self._needs_whole_rows:
            # One row at a time: the normalization is over all words that it gets, and no row may depend on other rows.
            return torch.cat([self.model.scalar_mix(row)[0] for row in layers.split(lengths, dim=1)])[None]
        if self.layers == "mix":
            return self.model.scalar_mix(layers)[0][None]
        if self.layers == "sum":
            return layers.sum(0, keepdim=True, dtype=torch.float32)
        return layers if self.layers == "all" else layers[self.layers :][:1]

    def _distinct_words(self, words: list[list[str]], spans: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """The distinct words in the spans of all rows; position 0 of a row is `<S>`.

        Returns:
            their character ids `[distinct, characters]`, and the index of the word at each place of the joined spans.
        """
        tokens: list[Token] = []
        for row, (begin, end) in zip(words, spans, strict=True):
            tokens += (BEGIN,) if begin == 0 else ()
            tokens += row[max(begin - 1, 0) : end - 1]
            tokens += (END,) if end == len(row) + BOUNDARIES else ()
        ids, indices = self.speller.distinct(tokens)
        device = self.model.device
        return torch.from_numpy(ids).to(device), torch.tensor(indices, device=device)

    def _encode_long(self, group: list[int], rows: list[list[str]], window: Window) -> None:
        """Encode rows (longest first) in pieces, side by side."""
        if self._needs_whole_rows:
            raise ValueError(
                f"a row of {len(rows[group[0]])} words is longer than batch_tokens={self.budget}, and a mix with layer "
                "normalization needs all of its words at once; raise batch_tokens, or set layers='all'"
            )
        words = [rows[row] for row in group]
        for direction in (FORWARD, BACKWARD):
            if self.pooling == "none":
                for place, begin, values in self._pieces(words, direction):
                    window.put(group[place], torch.from_numpy(values).transpose(0, 1), begin, direction)
            else:
                for row, values in zip(group, self._pool_pieces(words, direction), strict=True):
                    window.put(row, torch.from_numpy(values), 0, direction)

    def _pool_pieces(self, words: list[list[str]], direction: int) -> np.ndarray:
        """The rows' means or maxima over words, `[rows, layers, P]`: only the half of this direction."""
        shape = len(words), self.num_layers, self.model.config.projection_size
        if self.pooling == "max":
            largest = np.full(shape, -np.inf, np.float32)
            for place, _, values in self._pieces(words, direction):
                largest[place] = np.maximum(largest[place], values.max(axis=0))
            return largest
        total = np.zeros(shape, np.float64)  # float32 would lose digits over a long document
        for place, _, values in self._pieces(words, direction):
            total[place] += values.sum(axis=0, dtype=np.float64)
        return total / np.array([len(row) for row in words])[:, None, None]

    def _pieces(self, words: list[list[str]], direction: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """Runs one direction over rows (longest first), side by side and piece by piece; the boundaries are left out.

        Yields:
            the index of a row, the first word of a piece, and the values of its words, `[words, layers, P]` float32.
        """
        lengths = [len(row) + BOUNDARIES for row in words]
        step = self.budget // len(words)
        state = None
        for done in range(0, lengths[0], step):
            # Rows that have ended are the last ones, because the longest come first.
            here = sum(length > done for length in lengths)
            spans = [(done, min(done + step, length)) for length in lengths[:here]]
            if direction == BACKWARD:
                spans = [(length - end, length - begin) for length, (begin, end) in zip(lengths, spans, strict=False)]
            state = None if state is None else tuple(part[:, :here] for part in state)
            values, state = self._half_layers(words[:here], spans, state, direction)
            first_value = 0
            for place, (begin, end) in enumerate(spans):
                first, last = max(begin, 1), min(end, lengths[place] - 1)
                if first < last:
                    self.advance(0, (last - first) / 2)  # each direction counts for half of the words
                    yield place, first - 1, values[first_value + first - begin : first_value + last - begin]
                first_value += end - begin

    def _half_layers(
        self, words: list[list[str]], spans: list[tuple[int, int]], state: State | None, direction: int
    ) -> tuple[np.ndarray, State]:
        """One direction of the requested layers, `[words, layers, P]` float32 (rows concatenated); the last state."""
        with torch.inference_mode():
            ids, indices = self._distinct_words(words, spans)
            vectors = self.model.char_encoder(ids)
            packing = Packing.of_lengths([end - begin for begin, end in spans], vectors.device)
            order = _row_by_row(packing)[direction]
            inputs = _arrange(vectors, indices, order)
            outputs, state = self.model.bilm.run_direction(direction, inputs, packing.batch_sizes, state)
            layers = torch.stack([vectors[indices], *(output[order] for output in outputs)])
            values = self._chosen(layers, [len(indices)]).transpose(0, 1)
            return values.float().contiguous().cpu().numpy(), state


def _row_by_row(packing: Packing) -> Tensor:
    """`[2, packed]`: for each word, row after row, its place in the order in which each direction reads the words."""
    order = packing.positions.argsort()
    return torch.stack((order, packing.reverse[order]))


def _arrange(vectors: Tensor, indices: Tensor, places: Tensor) -> Tensor:
    """A tensor `out` with `out[places] = vectors[indices]`, made in one pass over the vectors."""
    return vectors.index_select(0, torch.empty_like(indices).index_copy_(0, places, indices))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, in Python or in one of PyTorch's allocators."""
    signs = ("out of memory", "can't allocate memory", "not enough memory")
    is_runtime_error = isinstance(error, RuntimeError)
    return isinstance(error, MemoryError) or (is_runtime_error and any(sign in str(error).lower() for sign in signs))
