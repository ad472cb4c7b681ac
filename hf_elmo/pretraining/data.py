"""Batches of text for training the language models, whose position in the text can be saved."""

import contextlib
import hashlib
import heapq
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset
from transformers.utils.logging import tqdm

from ..fingerprints import tokenizer_fingerprint
from ..spelling import BEGIN, END, PADDING, Speller, Token
from ..tokenization_elmo import ElmoTokenizer
from .exchange import gathered, in_processes
from .text import DatasetTexts, Text, TextFiles, Words
from .vocabulary import Vocabulary

Row = tuple[Text, int, int]  # a text, and the slice of its time steps that makes a row of a batch


class _EndOfText(Exception):
    """The text has ended and must not start over."""


# What a position in a text stands on: a resumed training has those of the interrupted one.
POSITION = "kind", "batch_size", "rank", "world_size", "seed", "shuffle_block", "text", "held_out_every", "tokenizer"


class _Batches(IterableDataset):
    """An endless stream of batches: when the text ends it starts over, reshuffled. `len` is the number of batches in an
    epoch; iterating yields that many, and the next iteration continues from there.

    Of several processes each reads a part of the source (`source.part`), pass after pass at its own pace: where a part
    ends earlier than the others, the next pass over it begins, and nobody waits. An epoch is as many steps as all
    processes together need for all words."""

    carries_state: bool

    def __init__(
        self,
        source: TextFiles | DatasetTexts,
        tokenizer: ElmoTokenizer,
        batch_size: int,
        seed: int = 0,
        shuffle_block: int = 1_000_000,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < 1 or shuffle_block < 0 or not 0 <= rank < world_size:
            raise ValueError(
                f"batch_size {batch_size} must be 1 or more, shuffle_block {shuffle_block} 0 or more, "
                f"and rank {rank} one of 0 to world_size - 1 = {world_size - 1}."
            )
        self.source, self.tokenizer = source, tokenizer
        self.own = source.part(rank, world_size) if world_size > 1 else source
        self.endless = not source.countable  # without a length: no text is counted, and an epoch never ends
        self.encoder = WordEncoder(tokenizer)
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle_block = shuffle_block
        self.rank, self.world_size = rank, world_size
        self._epoch, self._unit = 0, 0  # passes over the source completed, texts of this pass read
        self._step = 0  # batches of the current epoch yielded
        self._resumed_at = 0
        self._ends = False
        self._length: int | None = None
        self._texts: Iterator[Text] | None = None

    def __len__(self) -> int:
        if self._length is None:
            if self.endless:
                raise TypeError("a streamed dataset has no length: set max_steps.")
            self._length = self._count() // (self._capacity * self.world_size)
            if self._length == 0:
                raise ValueError(self.too_little)
        return self._length

    def fills_a_batch(self) -> bool:
        """Whether the text that this process reads is enough for one batch; of a stream it is not looked at."""
        if not self.source.countable:
            return True
        filled = itertools.accumulate(map(self._amount, self.own.read()))
        return any(amount >= self._capacity for amount in filled)

    @property
    def too_little(self) -> str:
        """What to say where it is not."""
        each = f" in each of {self.world_size} processes" if self.world_size > 1 else ""
        remedy = ", or start fewer processes" if self.world_size > 1 else ""
        return (
            f"the text does not fill one batch{each} ({type(self).__name__}, batch_size {self.batch_size}): give more "
            f"text or use a smaller batch{remedy}."
        )

    def __iter__(self) -> Iterator[dict[str, torch.Tensor] | None]:
        # A Trainer that resumes skips the batches of this epoch that it has trained on: None costs nothing.
        length = None if self.endless and self._length is None else len(self)
        if length is not None:
            self._resumed_at %= length  # an endless run counted its steps from its beginning
        yield from itertools.repeat(None, self._resumed_at)
        self._step, self._resumed_at = self._resumed_at, 0
        while length is None or self._step < length:
            self._step += 1
            yield self._next_batch()
        self._step = 0

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch in the text of this process, JSON-serializable."""
        return {
            "kind": type(self).__name__,
            "batch_size": self.batch_size * self.world_size,
            "rank": self.rank,
            "world_size": self.world_size,
            "seed": self.seed,
            "shuffle_block": self.shuffle_block,
            "text": self.source.fingerprint,
            "held_out_every": getattr(self.source, "held_out_every", None),  # of that text, so many are not trained on
            "tokenizer": self._tokenizer_sha256,
            "epoch": self._epoch,
            "unit": self._unit,
            "step": 0 if self._length is not None and self._step == self._length else self._step,
            "length": self._length,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a position saved by `state_dict`; ValueError where this run forms its batches differently."""
        mine = self.state_dict()
        state = {"rank": 0, "world_size": 1, **state}  # that of one process, if an earlier version wrote it
        for key in POSITION:
            saved, own = state.get(key, mine[key]), mine[key]
            if isinstance(saved, dict):  # earlier versions recorded less of a text
                own = {name: own.get(name) for name in saved}
            if key == "text" and {"files", "sha256"} <= saved.keys():
                raise ValueError(
                    "the saved position is of a version that knew a text by samples of its bytes, so whether it is "
                    "this one is not known: resume with that version, or train on from the checkpoint's weights "
                    "(init, --init)."
                )
            if saved != own:
                which = " (--word-splitting, --vocab, --init)" if key == "tokenizer" else ""
                raise ValueError(
                    f"the saved position has {key} {saved!r}, but this run has {own!r}: "
                    f"resume with the settings of the original run{which}."
                )
        self._epoch, self._unit, self._length = state["epoch"], state["unit"], state["length"]
        self._step = self._resumed_at = state["step"]
        self._texts = None

    @cached_property
    def _tokenizer_sha256(self) -> str:
        """Of what decides the numbers of a text: another vocabulary of the same length would train on other words."""
        decisive = tokenizer_fingerprint(self.tokenizer), self.tokenizer.vocabulary
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()

    def one_pass(self) -> Iterator[dict[str, torch.Tensor]]:
        """The batches of a single pass over the text; an incomplete last batch is dropped."""
        with contextlib.suppress(_EndOfText):
            self._ends = True
            while True:
                yield self._next_batch()

    def _next_text(self) -> Text:
        if self._texts is None:
            self._texts = self._pass(self._epoch, self._unit)
        text = next(self._texts, None)
        if text is None:
            if self._unit == 0:
                whose = f" of process {self.rank} of {self.world_size}" if self.world_size > 1 else ""
                raise ValueError(f"there is no text to train on: the files or the dataset{whose} are empty.")
            if self._ends:
                raise _EndOfText
            self._epoch, self._unit, self._texts = self._epoch + 1, 0, None
            return self._next_text()
        self._unit += 1
        return text

    def _pass(self, epoch: int, start: int) -> Iterator[Text]:
        """One pass over the source, from position `start` of its shuffled order. Shuffling within blocks bounds the
        memory."""
        if not self.shuffle_block:
            yield from self.own.read(start)
            return
        block, inside = divmod(start, self.shuffle_block)
        texts = self.own.read(block * self.shuffle_block)
        while chunk := [_interned(text) for text in itertools.islice(texts, self.shuffle_block)]:
            order = np.random.default_rng((self.seed, epoch, block)).permutation(len(chunk))
            for place in order[inside:]:
                yield chunk[place]
            block, inside = block + 1, 0

    def _count(self) -> int:
        """What the whole text fills of batches; processes count together, each its part."""
        together = self.world_size > 1 and in_processes()
        texts = tqdm((self.own if together else self.source).read(), desc="Counting words", unit=" texts", leave=False)
        amount = sum(map(self._amount, texts))
        return sum(gathered(amount)) if together else amount

    @property
    def _capacity(self) -> int:
        """What a batch of this process holds: time steps or rows."""
        raise NotImplementedError

    def _amount(self, text: Text) -> int:
        """What a text fills of that."""
        raise NotImplementedError

    def _next_batch(self) -> dict[str, torch.Tensor]:
        raise NotImplementedError


class PackedWindows(_Batches):
    """
    Windows over packed sentences, as bilm-tf trains (the published models: 128 rows of 20 words).

    Each row of the batch is a stream of sentences of its own, continued from window to window with the LSTM state.
    The forward LM reads `<S> w1 .. wn` of each sentence and predicts `w1 .. wn </S>`; the backward LM reads `</S> wn
    .. w1` and predicts `wn .. w1 <S>`. Both streams cut a sentence after the same number of words, so a window contains
    its first words in one direction and its last in the other. A row that has finished a sentence takes the next one of
    the text.

    Yields dictionaries with the rows of this process:
        input_ids `[batch_size, window, characters]`: the input of the forward LM.
        backward_input_ids `[batch_size, window, characters]`: the input of the backward LM, in its reading order.
        labels `[batch_size, window, 2]`: the targets of the forward and of the backward LM.

    Args:
        source: texts, taken sentence by sentence.
        tokenizer: with the vocabulary.
        batch_size: rows for each process.
        window: words of a window.
        seed: of the shuffling.
        shuffle_block: texts shuffled together, held in memory; 0 keeps the source's order. With blocks smaller than the
            corpus the loss jumps between blocks where the source changes its subject.
        rank, world_size: of this process, as in torch.distributed. It makes the batches of one process that is given
            its part of the source.
    """

    carries_state = True

    def __init__(
        self, source, tokenizer: ElmoTokenizer, batch_size: int = 128, window: int = 20, **kwargs: Any
    ) -> None:
        super().__init__(source, tokenizer, batch_size, **kwargs)
        if window < 1:
            raise ValueError(f"window is {window}, but must be 1 or more.")
        self.window = window
        self._rows: list[tuple[Words, int]] = [([], 1)] * batch_size  # sentence, words of it consumed
        self._waiting: list[Words] = []  # sentences of the current text that no row has taken

    def state_dict(self) -> dict[str, Any]:
        rows = [[list(words), position] for words, position in self._rows]
        return {**super().state_dict(), "window": self.window, "rows": rows, "waiting": list(self._waiting)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["window"] != self.window:
            raise ValueError(f"the saved position has window {state['window']}, but this run has {self.window}.")
        self._rows = [(list(words), position) for words, position in state["rows"]]
        self._waiting = list(state["waiting"])

    @property
    def _capacity(self) -> int:
        return self.batch_size * self.window

    def _amount(self, text: Text) -> int:
        return _steps(text)

    def _next_sentence(self) -> Words:
        while not self._waiting:
            self._waiting = [words for words in self._next_text() if words]
        return self._waiting.pop(0)

    def _next_batch(self) -> dict[str, torch.Tensor]:
        streams: tuple[list, ...] = ([], [], [], [])
        for row in range(len(self._rows)):
            for stream, piece in zip(streams, self._advance(row), strict=True):
                stream += piece
        return self.encoder.batch(*streams, shape=(self.batch_size, self.window))

    def _advance(self, row: int) -> tuple[list, list, list, list]:
        """The next window of a row: forward inputs and targets, backward inputs and targets."""
        inputs, targets, backward_inputs, backward_targets = [], [], [], []
        words, position = self._rows[row]
        while len(inputs) < self.window:
            if position > len(words):
                words, position = self._next_sentence(), 0
            tokens = [BEGIN, *words, END]
            stop = min(position + self.window - len(inputs), len(words) + 1)
            inputs += tokens[position:stop]
            targets += tokens[position + 1 : stop + 1]
            tokens.reverse()
            backward_inputs += tokens[position:stop]
            backward_targets += tokens[position + 1 : stop + 1]
            position = stop
        self._rows[row] = words, position
        return inputs, targets, backward_inputs, backward_targets


class PaddedTexts(_Batches):
    """
    Sentences or documents, each a padded row that starts from zero state.

    A text longer than `max_words` becomes several rows. A document is read sentence after sentence with their
    boundaries, by the backward LM from its last sentence to its first. Rows of similar length are batched together.

    Yields dictionaries as [`PackedWindows`] does, `[batch_size, words of the longest]`, with an `attention_mask`;
    `labels` are -100 at padded positions.

    Args:
        source, tokenizer, batch_size, seed, shuffle_block, rank, world_size: as in [`PackedWindows`].
        max_words: longest row, boundaries included.
        sort_batches: number of batches formed at a time from rows sorted by length.
    """

    carries_state = False

    def __init__(
        self,
        source,
        tokenizer: ElmoTokenizer,
        batch_size: int = 32,
        max_words: int = 400,
        sort_batches: int = 50,
        **kwargs: Any,
    ) -> None:
        super().__init__(source, tokenizer, batch_size, **kwargs)
        if max_words < 1 or sort_batches < 1:
            raise ValueError(f"max_words {max_words} and sort_batches {sort_batches} must be 1 or more.")
        self.max_words = max_words
        self.sort_batches = sort_batches
        self._rest: list[Row] = []  # rows read but not in a batch yet
        self._pool: list[list[Row]] = []  # batches formed but not yielded yet
        self._pools, self._taken = 0, 0  # formed; batches of the last one that were yielded
        self._pool_start = self._position()

    def state_dict(self) -> dict[str, Any]:
        # The position where the pool of batches began: on resuming the pool is formed again from there, and the batches
        # that were yielded are skipped.
        own = {"taken": self._taken, "max_words": self.max_words, "sort_batches": self.sort_batches}
        return {**super().state_dict(), **self._pool_start, **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for key in ("max_words", "sort_batches"):
            if state[key] != getattr(self, key):
                raise ValueError(f"the saved position has {key} {state[key]}, but this run has {getattr(self, key)}.")
        self._rest, self._pools = [tuple(row) for row in state["rest"]], state.get("pools", 0)
        self._pool, self._taken, self._pool_start = [], 0, self._position()
        for _ in range(state["taken"]):
            self._next_rows()

    def _position(self) -> dict[str, Any]:
        rest = [list(row) for row in self._rest]
        return {"epoch": self._epoch, "unit": self._unit, "pools": self._pools, "rest": rest}

    @property
    def _capacity(self) -> int:
        return self.batch_size

    def _amount(self, text: Text) -> int:
        return -(-_steps(text) // self.max_words)

    def _next_rows(self) -> list[Row]:
        if not self._pool:
            self._pool_start, self._taken = self._position(), 0
            self._fill_pool(self.batch_size)
            self._pools += 1
        self._taken += 1
        return self._pool.pop()

    def _fill_pool(self, rows_of_batch: int) -> None:
        # Processes take their short and their long batches at the same steps: none waits for longer rows of another,
        # and words of short rows weigh no more than theirs in the mean over processes.
        drawn = (self._epoch, self._unit) if self.world_size == 1 else (self._pools,)
        order = np.random.default_rng((self.seed, *drawn))
        rows = self._rest
        while len(rows) < self.sort_batches * rows_of_batch:
            try:
                text = [words for words in self._next_text() if words]
            except _EndOfText:
                if len(rows) < rows_of_batch:
                    raise
                rows = rows[: len(rows) // rows_of_batch * rows_of_batch]
                break
            steps = _steps(text)
            rows += [(text, start, min(start + self.max_words, steps)) for start in range(0, steps, self.max_words)]
        rows, self._rest = rows[: self.sort_batches * rows_of_batch], rows[self.sort_batches * rows_of_batch :]
        rows.sort(key=lambda row: row[2] - row[1])
        batches = [rows[start : start + rows_of_batch] for start in range(0, len(rows), rows_of_batch)]
        self._pool = [batches[place] for place in order.permutation(len(batches))]

    def _next_batch(self) -> dict[str, torch.Tensor]:
        rows = self._next_rows()
        width = max(stop - start for _, start, stop in rows)
        streams: tuple[list, ...] = ([], [], [], [])
        for text, start, stop in rows:
            padding = [PADDING] * (width - (stop - start))
            for stream, piece in zip(streams, _streams(text), strict=True):
                stream += piece[start:stop] + padding
        batch = self.encoder.batch(*streams, shape=(len(rows), width))
        batch["attention_mask"] = (batch["labels"][..., 0] != -100).long()
        return batch


class WordEncoder:
    """Turns words, boundaries and padding into what the model reads (character ids) and predicts (labels)."""

    def __init__(self, tokenizer: ElmoTokenizer) -> None:
        self.vocabulary = Vocabulary.of(tokenizer)
        self.speller = Speller(tokenizer)
        self._labels = {BEGIN: self.vocabulary.bos_id, END: self.vocabulary.eos_id, PADDING: -100}

    def labels(self, tokens: Sequence[Token]) -> np.ndarray:
        """Rows of the vocabulary `[tokens]`; -100 for padding."""
        ids = self.vocabulary.ids(tokens)
        for place, token in enumerate(tokens):
            if not isinstance(token, str):
                ids[place] = self._labels[token]
        return ids

    def batch(
        self,
        inputs: list[Token],
        targets: list[Token],
        backward_inputs: list[Token],
        backward_targets: list[Token],
        shape: tuple[int, int],
    ) -> dict[str, torch.Tensor]:
        """The model's arguments from four flat lists of tokens; `shape` is (rows, words)."""
        characters = torch.from_numpy(self.speller.characters(inputs + backward_inputs)).view(2, *shape, -1)
        labels = [torch.from_numpy(self.labels(tokens)).view(shape) for tokens in (targets, backward_targets)]
        return {
            "input_ids": characters[0],
            "backward_input_ids": characters[1],
            "labels": torch.stack(labels, dim=-1),
        }


def carried_windows(
    encoder: WordEncoder, sentences: Iterable[Words], rows: int, window: int
) -> Iterator[dict[str, torch.Tensor]]:
    """
    The windows of [`PackedWindows`] over sentences, each of which is read once and to its end, with an
    `attention_mask`: some rows end before others.

    The row that ends first takes the next sentence, whatever the window. `[rows, window]`, the last one shorter.
    """
    sentences = iter(sentences)
    streams: list[tuple[list, ...]] = [([], [], [], []) for _ in range(rows)]  # of each row, what is to be read
    ends = [(0, row) for row in range(rows)]  # a heap: how many words each row has had
    for stop in itertools.count(window, window):
        while ends[0][0] < stop and (words := next(sentences, None)) is not None:
            end, row = ends[0]
            heapq.heapreplace(ends, (end + len(words) + 1, row))
            for stream, piece in zip(streams[row], _streams([words]), strict=True):
                stream += piece
        width = min(window, max(len(inputs) for inputs, *_ in streams))
        if not width:
            return
        flat: tuple[list, ...] = ([], [], [], [])
        for own in streams:
            for whole, stream in zip(flat, own, strict=True):
                whole += stream[:width] + [PADDING] * (width - len(stream))
                del stream[:width]
        batch = encoder.batch(*flat, shape=(rows, width))
        yield {**batch, "attention_mask": (batch["labels"][..., 0] != -100).long()}


def _streams(text: Text) -> tuple[list, list, list, list]:
    """Inputs and targets of the forward LM over a text, then those of the backward LM, which starts at its end."""
    sentences = [[BEGIN, *words, END] for words in text]
    backward = [sentence[::-1] for sentence in reversed(sentences)]
    return (
        [token for sentence in sentences for token in sentence[:-1]],
        [token for sentence in sentences for token in sentence[1:]],
        [token for sentence in backward for token in sentence[:-1]],
        [token for sentence in backward for token in sentence[1:]],
    )


def _interned(text: Text) -> Text:
    """The same text with interned strings: a block takes about 10 bytes a word."""
    return [list(map(sys.intern, words)) for words in text]


def _steps(text: Text) -> int:
    """Time steps of each LM over a text: its words, and one boundary a sentence."""
    return sum(len(words) + 1 for words in text if words)
