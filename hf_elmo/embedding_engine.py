"""Words in, vectors out: a window of rows through the model in batches of at most so many tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from .embedding_parts import WindowFile
from .modeling_elmo import ElmoModel, State
from .packing_elmo import Packing
from .tokenization_elmo import ElmoTokenizer, words_to_character_ids

logger = logging.getLogger(__name__)

FORWARD, BACKWARD = 0, 1
BOUNDARIES = 2  # <S> and </S> around each row
# A step of the recurrence costs about the same for one row and for many: rows of which fewer than the first number fit
# into a batch go in pieces, up to the second number side by side, unless too few of them are there.
FEW_ROWS, LONG_ROWS_TOGETHER = 8, 32


class CorpusEncoder:
    """Encodes windows of rows, at most `budget` tokens (padding included) at a time.

    A row longer than the budget goes in pieces. The two directions of a biLM never meet, so the forward one takes the
    pieces from the left and the backward one from the right, each handing its state from piece to piece: what comes out
    is what one pass over the whole row gives. Long rows go side by side, and so do several that are not much shorter.

    Args:
        model: in evaluation mode, on its device and in its type.
        tokenizer: spells the words.
        layers: `"mix"`, `"all"` or the number of one layer.
        pooling: `"none"`, `"mean"` or `"max"` over the words of a row.
        budget: tokens in one batch; halved when memory runs out.
        scratch: makes a file for the forward halves of long rows while the backward ones are not there yet.
        advance: called with how many rows, and how many words, are done since its last call, for a progress bar.
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
        self.model, self.tokenizer, self.layers, self.pooling = model, tokenizer, layers, pooling
        self.budget, self.scratch, self.advance = budget, scratch, advance
        self.kept_layers = model.config.num_hidden_layers + 1 if layers == "all" else 1
        bos, eos = tokenizer.convert_tokens_to_ids([tokenizer.bos_token, tokenizer.eos_token])
        self.bos, self.eos = np.array(bos), np.array(eos)

    def encode(self, rows: list[list[str]], window: WindowFile) -> None:
        """Fill `window` with the vectors of `rows`, the words of each.

        Raises:
            MemoryError: not even one word fits.
        """
        # Longest first: what does not fit is met at once. Rows without words stay what the file begins as, zeros.
        pending = sorted((number for number, words in enumerate(rows) if words), key=lambda number: -len(rows[number]))
        self.advance(len(rows) - len(pending), 0)
        while pending:
            encode, count, tokens = self._plan([len(rows[number]) + BOUNDARIES for number in pending])
            group = pending[:count]
            if self._fits(encode, group, rows, window):
                del pending[:count]
                self.advance(count, 0)
            else:
                self._halve(tokens)

    def _plan(self, lengths: list[int]) -> tuple[Callable[..., None], int, int]:
        """How to encode the first of the pending rows (longest first), how many, and with how many tokens at a time."""
        whole = self.budget // lengths[0]
        if whole < FEW_ROWS:
            long_rows = sum(length * FEW_ROWS > self.budget for length in lengths)
            together = min(long_rows, LONG_ROWS_TOGETHER, self.budget)
            if whole == 0 or (together >= 2 * whole and not self._needs_whole_rows):
                return self._encode_long, together, together * (self.budget // together)
        count = min(len(lengths), whole)
        return self._encode_batch, count, count * lengths[0]

    @property
    def _needs_whole_rows(self) -> bool:
        return self.layers == "mix" and self.model.config.scalar_mix_layer_norm

    def _fits(self, encode: Callable[..., None], *arguments: Any) -> bool:
        try:
            encode(*arguments)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return False  # only outside this block does the error let go of the memory it holds
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
        logger.warning("out of memory with %d tokens in a batch; going on with %d", tried, self.budget)

    # -- whole rows ---------------------------------------------------------------------------------------------------

    def _encode_batch(self, group: list[int], rows: list[list[str]], window: WindowFile) -> None:
        sequences = [self._spell(rows[number], 0, len(rows[number]) + BOUNDARIES) for number in group]
        input_ids, mask = self._pad(sequences)
        with torch.inference_mode():
            layers = self._whole_layers(input_ids, mask)
            if self.pooling != "none":
                words = mask.clone()
                words[:, 0] = False
                words[torch.arange(len(group)), mask.sum(1) - 1] = False
                layers = [self._pool(layer, words) for layer in layers]
            arrays = [layer.float().cpu().numpy() for layer in layers]
        for place, number in enumerate(group):
            inside = () if self.pooling != "none" else slice(1, len(rows[number]) + 1)
            window.put(number, np.stack([array[place][inside] for array in arrays]))
        self.advance(0, sum(len(rows[number]) for number in group))

    def _whole_layers(self, input_ids: Tensor, mask: Tensor) -> list[Tensor]:
        """The layers asked for, each `[batch, words, 2P]`."""
        output = self.model(input_ids, mask, output_hidden_states=self.layers != "mix" or self._needs_whole_rows)
        if self._needs_whole_rows:
            # The norm is over all words given: those of one row at a time here, so that no row depends on its batch.
            return [self._mix_each_row(output.hidden_states, mask)]
        if self.layers == "mix":
            return [output.last_hidden_state]
        return list(output.hidden_states) if self.layers == "all" else [output.hidden_states[self.layers]]

    def _mix_each_row(self, layers: tuple[Tensor, ...], mask: Tensor) -> Tensor:
        mixed = torch.zeros_like(layers[0])
        for row, words in enumerate(mask):
            mixed[row, words] = self.model.scalar_mix([layer[row, words] for layer in layers])[0]
        return mixed

    def _pool(self, layer: Tensor, words: Tensor) -> Tensor:
        """`[batch, words, 2P]` to `[batch, 2P]`, over the positions that `words` `[batch, words]` names."""
        layer, words = layer.float(), words[:, :, None]
        if self.pooling == "max":
            return layer.masked_fill(~words, -torch.inf).amax(1)
        return (layer * words).sum(1) / words.sum(1)

    def _spell(self, words: list[str], begin: int, end: int) -> np.ndarray:
        """Character ids of the positions `begin` to `end` of a row, `<S>` being position 0."""
        inside = words[max(begin - 1, 0) : end - 1]
        parts = [self.bos[None]] if begin == 0 else []
        if inside:
            parts.append(self._word_ids(inside))
        if end == len(words) + BOUNDARIES:
            parts.append(self.eos[None])
        return np.concatenate(parts)

    def _word_ids(self, words: list[str]) -> np.ndarray:
        if self.tokenizer.split_special_tokens:  # a word that reads "<S>" is a word
            return words_to_character_ids(words, self.tokenizer.max_word_length)
        return np.asarray(self.tokenizer.convert_tokens_to_ids(words))

    def _pad(self, sequences: list[np.ndarray]) -> tuple[Tensor, Tensor]:
        """`input_ids` `[batch, words, characters]` and their mask `[batch, words]`, bool, padded on the right."""
        lengths = torch.tensor([len(sequence) for sequence in sequences])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        input_ids = torch.zeros(*mask.shape, sequences[0].shape[1], dtype=torch.int64)
        input_ids[mask] = torch.from_numpy(np.concatenate(sequences))
        return input_ids.to(self.model.device), mask.to(self.model.device)

    # -- rows in pieces -----------------------------------------------------------------------------------------------

    def _encode_long(self, group: list[int], rows: list[list[str]], window: WindowFile) -> None:
        """Rows in pieces, longest first, side by side."""
        if self._needs_whole_rows:
            raise ValueError(
                f"a row of {len(rows[group[0]])} words is longer than batch_tokens={self.budget}, and a mix with layer "
                "normalisation needs all of its words at once; raise batch_tokens, or take layers='all'"
            )
        words = [rows[number] for number in group]
        if self.pooling != "none":
            halves = [self._pool_pieces(words, direction) for direction in (FORWARD, BACKWARD)]
            for number, values in zip(group, np.concatenate(halves, axis=2), strict=True):
                window.put(number, values)
            return
        with self.scratch() as file:
            # The forward halves [words, layers, P] of each row lie here until the backward ones come.
            offsets = np.cumsum([0, *(self._half_bytes(len(row)) for row in words)]).tolist()
            for place, begin, values in self._pieces(words, FORWARD):
                file.seek(offsets[place] + self._half_bytes(begin))
                file.write(values.data)
            for place, begin, backward in self._pieces(words, BACKWARD):
                file.seek(offsets[place] + self._half_bytes(begin))
                data = file.read(self._half_bytes(len(backward)))
                forward = np.frombuffer(data, np.float32).reshape(backward.shape)
                window.put(group[place], np.concatenate((forward, backward), axis=2).swapaxes(0, 1), start=begin)

    def _half_bytes(self, words: int) -> int:
        return words * self.kept_layers * self.model.config.projection_size * np.dtype(np.float32).itemsize

    def _pool_pieces(self, words: list[list[str]], direction: int) -> np.ndarray:
        """One half, `[rows, layers, P]`, of each row's mean or maximum."""
        shape = len(words), self.kept_layers, self.model.config.projection_size
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
        """One direction over rows (longest first) side by side, piece by piece, boundaries left out.

        Yields:
            the row's place, the piece's first word, and its values `[words of the piece, layers, P]` float32.
        """
        lengths = [len(row) + BOUNDARIES for row in words]
        step = self.budget // len(words)
        state = None
        for done in range(0, lengths[0], step):
            # Rows that have ended are the last ones.
            here = sum(length > done for length in lengths)
            spans = [(done, min(done + step, length)) for length in lengths[:here]]
            if direction == BACKWARD:
                spans = [(length - end, length - begin) for length, (begin, end) in zip(lengths, spans, strict=False)]
            sequences = [self._spell(row, *span) for row, span in zip(words, spans, strict=False)]
            state = None if state is None else tuple(part[:, :here] for part in state)
            values, state = self._half_layers(sequences, state, direction)
            for place, (begin, end) in enumerate(spans):
                first, last = max(begin, 1), min(end, lengths[place] - 1)
                if first < last:
                    self.advance(0, (last - first) / 2)  # the other direction does the other half
                    yield place, first - 1, np.ascontiguousarray(values[place, first - begin : last - begin])

    def _half_layers(
        self, sequences: list[np.ndarray], state: State | None, direction: int
    ) -> tuple[np.ndarray, State]:
        """The layers asked for in one direction, `[rows, words, layers, P]` float32, and the state after them."""
        input_ids, mask = self._pad(sequences)
        model = self.model
        with torch.inference_mode():
            packing = Packing.of(mask)
            vectors = model.char_encoder(input_ids.flatten(0, 1)[packing.positions])
            inputs = vectors[packing.reverse] if direction == BACKWARD else vectors
            outputs, state = model.bilm.run_direction(direction, inputs, packing.batch_sizes, state)
            if direction == BACKWARD:
                outputs = [output[packing.reverse] for output in outputs]
            layers = [vectors, *outputs]
            if self.layers == "mix":
                layers = [model.scalar_mix(layers)[0]]
            elif self.layers != "all":
                layers = [layers[self.layers]]
            values = torch.stack([packing.pad(layer) for layer in layers], dim=2)
            return values.float().cpu().numpy(), state


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` is one of the ways in which Python, torch and its allocators say that memory is used up."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(
        sign in str(error).lower() for sign in ("out of memory", "can't allocate memory", "not enough memory")
    )
