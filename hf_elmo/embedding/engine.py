"""The encoder of a corpus: windows of rows through the model, in batches of a limited number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from ..kernels import constant_weights
from ..modeling_elmo import ElmoModel, State
from ..out_of_memory import is_out_of_memory
from ..packing_elmo import Packing
from ..spelling import BEGIN, END, Speller, Token
from ..tokenization_elmo import ElmoTokenizer
from .parts import Window

logger = logging.get_logger(f"transformers.{__name__}")

FORWARD, BACKWARD = 0, 1
BOUNDARIES = 2  # <S> and </S> around each row
# A step of the recurrence costs about the same for one row as for many. Rows so long that fewer than the first number
# fit into a batch are encoded in pieces, up to the second number of them side by side, if there are enough.
MIN_WHOLE_ROWS, MAX_ROWS_IN_PIECES = 8, 32


class CorpusEncoder:
    """Encodes windows of rows, at most `budget` tokens (padding included) at a time.

    A row longer than the budget is encoded in pieces. The two directions of a biLM are independent, so the forward one
    runs over the pieces from the left and the backward one from the right, each carrying its state from piece to piece:
    the result is that of one pass over the whole row. Several long rows are encoded side by side, and so are rows not
    much shorter than the budget.

    Args:
        model: in evaluation mode, on its device and in its dtype.
        tokenizer: spells the words.
        layers: `"mix"`, `"sum"`, `"all"` or the number of one layer.
        pooling: `"none"`, `"mean"` or `"max"` over the words of a row.
        budget: tokens in one batch; halved when memory runs out.
        scratch: opens a temporary file, for the forward halves of long rows until the backward halves are computed.
        advance: called with the numbers of rows and of words finished since its last call, for a progress bar.
    """

    def __init__(
        self,
        model: ElmoModel,
        tokenizer: ElmoTokenizer,
        layers: str | int,
        pooling: str,
        budget: int,
        scratch: Callable[[], AbstractContextManager[IO[bytes]]],
        advance: Callable[[int, float], None],
    ) -> None:
        self.model, self.layers, self.pooling = model, layers, pooling
        self.budget, self.scratch, self.advance = budget, scratch, advance
        self.num_layers = model.config.num_hidden_layers + 1 if layers == "all" else 1
        self.speller = Speller(tokenizer, boundary_words=not tokenizer.split_special_tokens)
        self.warned = False

    def encode(self, rows: list[list[str]], window: Window) -> None:
        """Fill `window` with the vectors of `rows`, each a list of words.

        Raises:
            MemoryError: not even one word fits.
            ValueError: a number is too large for the window's dtype.
        """
        # Longest first: what does not fit shows at once. Blank rows keep the zeros that the window begins with.
        pending = sorted((number for number, words in enumerate(rows) if words), key=lambda number: -len(rows[number]))
        self.advance(len(rows) - len(pending), 0)
        with constant_weights():  # nobody else's code runs before the window is full
            while pending:
                encode, count, tokens = self._plan([len(rows[number]) + BOUNDARIES for number in pending])
                group = pending[:count]
                if self._fits(encode, group, rows, window):
                    del pending[:count]
                    self.advance(count, 0)
                else:
                    self._halve(tokens)

    def _plan(self, lengths: list[int]) -> tuple[Callable[..., None], int, int]:
        """How to encode the next of the pending rows (longest first), how many of them, and the tokens of a batch."""
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
        """Layer normalization is over all words of a row."""
        return self.layers == "mix" and self.model.config.scalar_mix_layer_norm

    def _fits(self, encode: Callable[..., None], *arguments: Any) -> bool:
        try:
            encode(*arguments)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return False  # not retried in here: the exception holds on to memory until this block is left
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
        words = [rows[number] for number in group]
        lengths = [len(row) + BOUNDARIES for row in words]
        with torch.inference_mode():
            layers = self._chosen(self._whole_layers(words, lengths), lengths)
            out_of_range = self.pooling == "none" and _is_out_of_range(layers, window)  # boundaries included
            if self.pooling == "none":
                layers = layers.cpu()
            arrays = [layer[:, 1:-1] for layer in layers.split(lengths, dim=1)]
            if self.pooling != "none":
                arrays = torch.stack([self._pool(array.float()) for array in arrays]).cpu()
                out_of_range = _is_out_of_range(arrays, window)
            for number, array in zip(group, arrays, strict=True):
                self._put(window, number, array, out_of_range)
        self.advance(0, sum(map(len, words)))

    def _put(self, window: Window, row: int, values: Tensor, out_of_range: bool, start: int = 0) -> None:
        """Into the window, after a look at each number if one of the batch is `out_of_range` what its dtype holds."""
        if out_of_range:
            finite = values.isfinite()
            if (finite & (values.abs() >= window.layout.limit)).any():
                raise ValueError(
                    f"{window.name_of(row)} has numbers over 65504 in its vectors, which float16 has not: take "
                    "output_dtype='float32' (--output-dtype float32)"
                )
            if not (self.warned or finite.all()):
                self.warned = True
                logger.warning(
                    "%s has vectors that are not finite, and further rows may have: the model's weights are not "
                    "finite, or too large for %s; look at its training, or load it in float32",
                    window.name_of(row),
                    str(self.model.dtype).removeprefix("torch."),
                )
        window.put(row, values, start)

    def _whole_layers(self, words: list[list[str]], lengths: list[int]) -> Tensor:
        """`[all layers, words, 2P]`, the rows concatenated, boundaries included."""
        ids, numbers = self._distinct_words(words, [(0, length) for length in lengths])
        packing = Packing.of_lengths(lengths, ids.device)
        order = packing.row_by_row()
        # Which word each direction reads, in its order.
        read = torch.empty_like(order).scatter_(1, order, numbers.expand_as(order))
        outputs, _ = self.model.read(ids, packing, numbers=read)
        layers = outputs[0].new_empty(len(outputs), len(numbers), 2 * outputs[0].shape[2])
        order[BACKWARD] += len(numbers)  # the backward direction follows the forward one
        halves = order.t().flatten()
        for layer, output in zip(layers, outputs, strict=True):
            torch.index_select(output.flatten(0, 1), 0, halves, out=layer.view(len(halves), -1))
        return layers

    def _chosen(self, layers: Tensor, lengths: list[int]) -> Tensor:
        """The requested ones of `[all layers, words, size]`, or their mix; `lengths` are those of the rows."""
        if self._needs_whole_rows:
            # One row at a time: the normalization is over all words of the call, and no row may depend on its batch.
            return torch.cat([self.model.scalar_mix(row)[0] for row in layers.split(lengths, dim=1)])[None]
        if self.layers == "mix":
            return self.model.scalar_mix(layers)[0][None]
        if self.layers == "sum":
            return layers.sum(0, keepdim=True, dtype=torch.float32)
        return layers if self.layers == "all" else layers[self.layers :][:1]

    def _pool(self, layers: Tensor) -> Tensor:
        """`[layers, words, 2P]` of one row to `[layers, 2P]`."""
        return layers.amax(1) if self.pooling == "max" else layers.mean(1)

    def _distinct_words(self, words: list[list[str]], spans: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """The distinct words in the `spans` of rows, where position 0 is `<S>`.

        Returns:
            their character ids `[distinct, characters]`, and for each position of the concatenated spans its row there.
        """
        tokens: list[Token] = []
        for row, (begin, end) in zip(words, spans, strict=True):
            tokens += (BEGIN,) if begin == 0 else ()
            tokens += row[max(begin - 1, 0) : end - 1]
            tokens += (END,) if end == len(row) + BOUNDARIES else ()
        ids, numbers = self.speller.distinct(tokens)
        device = self.model.device
        return torch.from_numpy(ids).to(device), torch.tensor(numbers, device=device)

    def _encode_long(self, group: list[int], rows: list[list[str]], window: Window) -> None:
        """Rows in pieces, longest first, side by side."""
        if self._needs_whole_rows:
            raise ValueError(
                f"a row of {len(rows[group[0]])} words is longer than batch_tokens={self.budget}, and a mix with layer "
                "normalization needs all of its words at once; raise batch_tokens, or take layers='all'"
            )
        words = [rows[number] for number in group]
        if self.pooling != "none":
            halves = [self._pool_pieces(words, direction) for direction in (FORWARD, BACKWARD)]
            pooled = torch.from_numpy(np.concatenate(halves, axis=2))
            out_of_range = _is_out_of_range(pooled, window)
            for number, values in zip(group, pooled, strict=True):
                self._put(window, number, values, out_of_range)
            return
        with self.scratch() as file:
            # The file has the forward halves [words, layers, P] of the rows until the backward halves are computed.
            offsets = np.cumsum([0, *(self._half_bytes(len(row)) for row in words)]).tolist()
            for place, begin, values in self._pieces(words, FORWARD):
                file.seek(offsets[place] + self._half_bytes(begin))
                file.write(values.data)
            for place, begin, backward in self._pieces(words, BACKWARD):
                file.seek(offsets[place] + self._half_bytes(begin))
                data = file.read(self._half_bytes(len(backward)))
                forward = np.frombuffer(data, np.float32).reshape(backward.shape)
                both = torch.from_numpy(np.concatenate((forward, backward), axis=2))
                self._put(window, group[place], both.transpose(0, 1), _is_out_of_range(both, window), start=begin)

    def _half_bytes(self, words: int) -> int:
        return words * self.num_layers * self.model.config.projection_size * np.dtype(np.float32).itemsize

    def _pool_pieces(self, words: list[list[str]], direction: int) -> np.ndarray:
        """One half, `[rows, layers, P]`, of the rows' means or maxima."""
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

    def _pieces(self, words: list[list[str]], direction: int) -> Any:
        """One direction over rows (longest first) side by side, piece by piece, without the boundaries.

        Yields:
            the index of a row, the first word of a piece, and its values `[words of the piece, layers, P]` float32.
        """
        lengths = [len(row) + BOUNDARIES for row in words]
        step = self.budget // len(words)
        state = None
        for done in range(0, lengths[0], step):
            # The rows that have ended are the last ones.
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
                    self.advance(0, (last - first) / 2)  # the other direction counts for the other half
                    yield place, first - 1, values[first_value + first - begin : first_value + last - begin]
                first_value += end - begin

    def _half_layers(
        self, words: list[list[str]], spans: list[tuple[int, int]], state: State | None, direction: int
    ) -> tuple[np.ndarray, State]:
        """One direction of the requested layers, `[words, layers, P]` float32 (rows concatenated), and its state."""
        with torch.inference_mode():
            ids, numbers = self._distinct_words(words, spans)
            vectors = self.model.char_encoder(ids)
            packing = Packing.of_lengths([end - begin for begin, end in spans], vectors.device)
            order = packing.row_by_row()[direction]
            inputs = _arrange(vectors, numbers, order)
            outputs, state = self.model.bilm.run_direction(direction, inputs, packing.batch_sizes, state)
            layers = torch.stack([vectors[numbers], *(output[order] for output in outputs)])
            values = self._chosen(layers, [len(numbers)]).transpose(0, 1)
            return values.float().contiguous().cpu().numpy(), state


def _arrange(vectors: Tensor, numbers: Tensor, places: Tensor) -> Tensor:
    """`out[places] = vectors[numbers]`, in one pass over the vectors."""
    return vectors.index_select(0, torch.empty_like(numbers).index_copy_(0, places, numbers))


def _is_out_of_range(values: Tensor, window: Window) -> bool:
    """Whether a number is not finite, or would not be in the window; in one pass."""
    low, high = torch.stack(torch.aminmax(values)).tolist()
    return not -window.layout.limit < low <= high < window.layout.limit  # NaN is never less
