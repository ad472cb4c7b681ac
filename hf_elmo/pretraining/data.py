"""Batches of text for training the language models; their position in the text can be saved."""

import copy
import hashlib
import heapq
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.utils.data import IterableDataset
from transformers.utils.logging import tqdm

from ..checkpoints.fingerprints import tokenizer_fingerprint
from ..tokenization_elmo import ElmoTokenizer
from ..utils.spelling import BEGIN, END, PADDING, Speller, Token
from ..utils.text import Words
from .texts import DatasetTexts, Text, TextFiles
from .vocabulary import Vocabulary

END_OF_EPOCH = object()
Row = tuple[Text, int, int]  # a text, and the start and stop of its time steps that make a row of a batch


class _Batches(IterableDataset):
    """
    An endless stream of batches: when the text ends, the stream starts over with the text reshuffled. `len` is the
    number of batches in an epoch; one iteration yields an epoch, and the next iteration continues where it ended.

    In distributed training each process reads its part of the source (`source.part`) at its own pace: a part that ends
    before the other parts starts over. An epoch has as many steps as all processes together need for all words.
    """

    carries_state: bool
    options: tuple[str, ...]  # attributes that are arguments of this layout alone
    position: tuple[str, ...]  # names, without their underscore, of attributes that hold text read but not yielded yet
    _capacity: int  # the size of a batch of this process: time steps or rows

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
        self.source, self.tokenizer = source, tokenizer
        self.part = source.part(rank, world_size) if world_size > 1 else source
        self.endless = not source.countable  # has no length: the words are not counted, and an epoch never ends
        self.encoder = WordEncoder(tokenizer)
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle_block = shuffle_block
        self.rank, self.world_size = rank, world_size
        self._epoch, self._texts_read = 0, 0  # passes over the source completed, texts of this pass read
        self._step = 0  # batches of the current epoch yielded
        self._resumed_at = 0
        self._length: int | None = None
        self._texts: Iterator[Text] | None = None

    def __len__(self) -> int:
        if self._length is None:
            if self.endless:
                raise TypeError("the length of the text is not known: set max_steps.")
            self._length = self._count() // (self._capacity * self.world_size)
            if self._length == 0:
                raise ValueError(
                    f"the text does not fill one batch of batch_size {self.batch_size} in each of {self.world_size} "
                    "processes: use more text, a smaller batch_size, or fewer processes."
                )
        return self._length

    def __iter__(self) -> Iterator[dict[str, Tensor] | None]:
        length = None if self.endless and self._length is None else len(self)
        if length is not None:
            self._resumed_at %= length  # in an endless run, the step counts from the run's beginning
        # A resumed Trainer skips the batches that it has trained on in this epoch: None stands for them, at no cost.
        yield from repeat(None, self._resumed_at)
        self._step, self._resumed_at = self._resumed_at, 0
        while length is None or self._step < length:
            self._step += 1
            yield self._next_batch()
        self._step = 0

    @property
    def settings(self) -> dict[str, Any]:
        """What the batches depend on. A saved position is valid only if the settings are the same."""
        return {
            "layout": type(self).__name__,
            "text": self.source.fingerprint,
            "held_out": self.source.held_out,
            "tokenizer": tokenizer_fingerprint(self.tokenizer),
            "vocabulary": hashlib.sha256("\n".join(self.encoder.vocabulary.words).encode()).hexdigest(),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "shuffle_block": self.shuffle_block,
            "processes": self.world_size,
            **{name: getattr(self, name) for name in self.options},
        }

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch in the text of this process."""
        ended = self._length is not None and self._step == self._length
        return {
            "epoch": self._epoch,
            "texts_read": self._texts_read,
            "step": 0 if ended else self._step,
            "length": self._length,
            **{name: copy.copy(getattr(self, f"_{name}")) for name in self.position},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a position saved by `state_dict` of a dataset with the same `settings`."""
        self._epoch, self._texts_read, self._length = state["epoch"], state["texts_read"], state["length"]
        self._step = self._resumed_at = state["step"]
        self._texts = None
        for name in self.position:
            setattr(self, f"_{name}", copy.copy(state[name]))

    def _next_text(self) -> Text:
        if self._texts is None:
            self._texts = self._pass(self._epoch, self._texts_read)
        text = next(self._texts, None)
        if text is None:
            if self._texts_read == 0:
                raise ValueError(f"process {self.rank} of {self.world_size} has no text to train on: give more text.")
            self._epoch, self._texts_read, self._texts = self._epoch + 1, 0, None
            return self._next_text()
        self._texts_read += 1
        return text

    def _pass(self, epoch: int, start: int) -> Iterator[Text]:
        """One pass over the source, from position `start` of its shuffled order. Texts are shuffled within blocks to
        bound the memory."""
        if not self.shuffle_block:
            yield from self.part.read(start)
            return
        block, done = divmod(start, self.shuffle_block)
        texts = self.part.read(block * self.shuffle_block)
        # With interned strings, a block takes only about 10 bytes a word.
        while chunk := [[list(map(sys.intern, words)) for words in text] for text in islice(texts, self.shuffle_block)]:
            order = np.random.default_rng((self.seed, epoch, block)).permutation(len(chunk))
            for index in order[done:]:
                yield chunk[index]
            block, done = block + 1, 0

    def _count(self) -> int:
        """The size of the whole text, in the unit of `_capacity`. If processes train together, each counts its part."""
        together = distributed.is_initialized() and distributed.get_world_size() == self.world_size > 1
        texts = (self.part if together else self.source).read()
        size = sum(map(self._size, tqdm(texts, desc="Counting words", unit=" texts", leave=False)))
        if together:
            from accelerate.utils import gather_object

            size = sum(gather_object([size]))
        return size

    def _size(self, text: Text) -> int:
        """The size of a text, in the unit of `_capacity`."""
        raise NotImplementedError

    def _next_batch(self) -> dict[str, Tensor]:
        raise NotImplementedError


class ReadAhead(IterableDataset):
    """The batches of a dataset; a thread makes the next ones while a GPU computes. `state_dict` is the position after
    the batch that was taken last."""

    def __init__(self, batches: _Batches, most: int = 4) -> None:
        self.batches, self.most, self._state = batches, most, None

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[dict[str, Tensor] | None]:
        batches = iter(self.batches)
        with ThreadPoolExecutor(1) as thread:
            waiting = deque(thread.submit(self._next, batches) for _ in range(self.most))
            while True:
                batch, self._state = waiting.popleft().result()
                if batch is END_OF_EPOCH:
                    return
                waiting.append(thread.submit(self._next, batches))
                yield batch

    def _next(self, batches: Iterator) -> tuple[Any, dict[str, Any]]:
        return next(batches, END_OF_EPOCH), self.batches.state_dict()

    def state_dict(self) -> dict[str, Any]:
        return self.batches.state_dict() if self._state is None else self._state


class PackedWindows(_Batches):
    """
    Windows over packed sentences, as in bilm-tf (for the published models, 128 rows of 20 words).

    Each row of the batch is a stream of sentences that continues from window to window with the LSTM state. The forward
    LM reads `<S> w1 .. wn` of each sentence and predicts `w1 .. wn </S>`; the backward LM reads `</S> wn .. w1` and
    predicts `wn .. w1 <S>`. Both streams cut a sentence after the same number of words, so a window contains the first
    words of the sentence in one direction and its last words in the other. A row that has finished a sentence takes the
    next sentence of the text.

    Yields dictionaries with the rows of this process:
        input_ids `[batch_size, window, characters]`: the input of the forward LM.
        backward_input_ids `[batch_size, window, characters]`: the input of the backward LM, in the order that it reads.
        labels `[batch_size, window, 2]`: the targets of the forward and of the backward LM.

    Args:
        source: the text, read sentence by sentence.
        tokenizer: a tokenizer with the vocabulary.
        batch_size: number of rows in each process.
        window: number of words in a row of a window.
        seed: the seed for shuffling.
        shuffle_block: number of texts that are shuffled together, in memory; 0 keeps the source's order. With blocks
            smaller than the corpus the loss jumps between blocks where the source changes its subject.
        rank, world_size: the rank of this process and the number of processes, as in torch.distributed.
    """

    carries_state, options, position = True, ("window",), ("rows", "waiting")

    def __init__(
        self, source, tokenizer: ElmoTokenizer, batch_size: int = 128, window: int = 20, **kwargs: Any
    ) -> None:
        super().__init__(source, tokenizer, batch_size, **kwargs)
        self.window, self._capacity = window, batch_size * window
        self._rows: list[tuple[Words, int]] = [([], 1)] * batch_size  # sentence, number of its words read
        self._waiting: list[Words] = []  # sentences of the current text that no row has taken

    def _size(self, text: Text) -> int:
        return _steps(text)

    def _next_sentence(self) -> Words:
        while not self._waiting:
            self._waiting = [words for words in self._next_text() if words]
        return self._waiting.pop(0)

    def _next_batch(self) -> dict[str, Tensor]:
        streams: tuple[list, ...] = ([], [], [], [])
        for row, (words, position) in enumerate(self._rows):
            missing = self.window
            while missing:
                if position > len(words):
                    words, position = self._next_sentence(), 0
                stop = min(position + missing, len(words) + 1)
                for stream, tokens in zip(streams, _streams([words]), strict=True):
                    stream += tokens[position:stop]
                missing -= stop - position
                position = stop
            self._rows[row] = words, position
        return self.encoder.batch(streams, (self.batch_size, self.window))


class PaddedTexts(_Batches):
    """
    Sentences or documents, each a padded row that starts from zero state.

    A text longer than `max_words` becomes several rows. The forward LM reads the sentences of a document from first to
    last, the backward LM from last to first, each with its boundaries. Rows of similar length are batched together.

    Yields dictionaries as [`PackedWindows`] does, with the length of the longest row instead of `window`, and with an
    `attention_mask`; `labels` are -100 at padded positions.

    Args:
        source, tokenizer, batch_size, seed, shuffle_block, rank, world_size: as in [`PackedWindows`].
        max_words: length of the longest row, boundaries included.
        sort_batches: number of batches that are formed together, from rows sorted by length.
    """

    carries_state, options, position = False, ("max_words", "sort_batches"), ("rest", "pool", "pools")

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
        self.max_words, self.sort_batches, self._capacity = max_words, sort_batches, batch_size
        self._rest: list[Row] = []  # rows read but not in a batch yet
        self._pool: list[list[Row]] = []  # batches formed but not yielded yet
        self._pools = 0  # pools formed

    def _size(self, text: Text) -> int:
        return -(-_steps(text) // self.max_words)

    def _fill_pool(self) -> None:
        # With the same seeds, all processes take short and long batches at the same steps: none waits for longer rows
        # of another process, and words of short rows do not weigh more in the mean over processes.
        seeds = (self._epoch, self._texts_read) if self.world_size == 1 else (self._pools,)
        rng = np.random.default_rng((self.seed, *seeds))
        size, wanted = self.batch_size, self.sort_batches * self.batch_size
        while len(self._rest) < wanted:
            text = [words for words in self._next_text() if words]
            steps, most = _steps(text), self.max_words
            self._rest += [(text, start, min(start + most, steps)) for start in range(0, steps, most)]
        rows, self._rest = sorted(self._rest[:wanted], key=lambda row: row[2] - row[1]), self._rest[wanted:]
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        self._pool = [batches[index] for index in rng.permutation(len(batches))]
        self._pools += 1

    def _next_batch(self) -> dict[str, Tensor]:
        if not self._pool:
            self._fill_pool()
        rows = self._pool.pop()
        width = max(stop - start for _, start, stop in rows)
        streams: tuple[list, ...] = ([], [], [], [])
        for text, start, stop in rows:
            padding = [PADDING] * (width - (stop - start))
            for stream, tokens in zip(streams, _streams(text), strict=True):
                stream += tokens[start:stop] + padding
        return _with_mask(self.encoder.batch(streams, (len(rows), width)))


class WordEncoder:
    """Turns words, boundaries and padding into what the model reads (character ids) and predicts (labels)."""

    def __init__(self, tokenizer: ElmoTokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = Vocabulary.of(tokenizer)
        self.speller = Speller(tokenizer)
        boundaries = {BEGIN: self.vocabulary.bos_id, END: self.vocabulary.eos_id}
        self._labels = {**self.vocabulary._ids, **boundaries, PADDING: -100}

    def labels(self, tokens: Sequence[Token]) -> np.ndarray:
        """Each token's row in the vocabulary, `[tokens]`; -100 for padding."""
        return np.array([self._labels.get(token, self.vocabulary.unk_id) for token in tokens], dtype=np.int64)

    def batch(self, streams: Sequence[list[Token]], shape: tuple[int, int]) -> dict[str, Tensor]:
        """The model's arguments from flat lists of tokens: inputs and targets of the forward LM, then those of the
        backward LM; `shape` is (rows, words)."""
        inputs, targets, backward_inputs, backward_targets = streams
        characters = torch.from_numpy(self.speller.characters(inputs + backward_inputs)).view(2, *shape, -1)
        labels = [torch.from_numpy(self.labels(tokens)).view(shape) for tokens in (targets, backward_targets)]
        labels = torch.stack(labels, dim=-1)
        return {"input_ids": characters[0], "backward_input_ids": characters[1], "labels": labels}


def carried_windows(
    encoder: WordEncoder, sentences: Iterable[Words], rows: int, window: int
) -> Iterator[dict[str, Tensor]]:
    """
    The windows of [`PackedWindows`] over sentences, with an `attention_mask`, because some rows end before others. Each
    sentence is read once and to its end; the row that ends first takes the next sentence, whatever `window` is.

    Yields batches `[rows, window]`, of which the last may be shorter.
    """
    streams: list[tuple[list, ...]] = [([], [], [], []) for _ in range(rows)]
    ends = [(0, row) for row in range(rows)]  # a heap: the time steps of each row
    for words in sentences:
        end, row = ends[0]
        heapq.heapreplace(ends, (end + len(words) + 1, row))
        for stream, tokens in zip(streams[row], _streams([words]), strict=True):
            stream += tokens
    length = max(ends)[0]
    for stream in chain(*streams):
        stream += [PADDING] * (length - len(stream))
    for start in range(0, length, window):
        part = slice(start, start + window)
        flat = [list(chain.from_iterable(row[kind][part] for row in streams)) for kind in range(4)]
        yield _with_mask(encoder.batch(flat, (rows, min(window, length - start))))


def _with_mask(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**batch, "attention_mask": (batch["labels"][..., 0] != -100).long()}


def _streams(text: Text) -> tuple[list, list, list, list]:
    """Inputs and targets of the forward LM over a text, then of the backward LM, which starts at the text's end."""
    sentences = [[BEGIN, *words, END] for words in text]
    backward = [sentence[::-1] for sentence in reversed(sentences)]
    return tuple(
        list(chain.from_iterable(sentence[part] for sentence in direction))
        for direction in (sentences, backward)
        for part in (slice(None, -1), slice(1, None))
    )


def _steps(text: Text) -> int:
    """Time steps of each LM over a text: its words, and one boundary a sentence."""
    return sum(len(words) + 1 for words in text if words)
