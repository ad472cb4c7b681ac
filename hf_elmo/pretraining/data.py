"""Batches of text for training the language models; their position in the text can be saved."""

import copy
import hashlib
import heapq
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import KW_ONLY, dataclass
from itertools import chain, islice, repeat
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset
from transformers.utils.logging import tqdm

from ..checkpoints.loading import ensure_loaded
from ..modeling_pretraining_elmo import ElmoForPreTraining, neighbor_labels
from ..reading.rows import Words
from ..tokenization_elmo import ElmoTokenizer
from ..utils.fingerprints import tokenizer_fingerprint
from ..utils.spelling import BEGIN, END, PADDING, Speller, Token
from .texts import TEXTS_AT_ONCE, Text, Texts
from .vocabulary import Vocabulary

Batch = dict[str, Tensor]  # the arguments of a language model
Part = tuple[Text, int, int]  # a text, and the start and stop of its time steps that make a row of a batch
Streams = Sequence[list[Token]]  # inputs and targets of the forward LM, then those of the backward LM


def _streams(text: Text) -> Streams:
    """Inputs and targets of the forward LM over a text, then of the backward LM, which starts at the text's end."""
    sentences = [[BEGIN, *words, END] for words in text]
    directions = sentences, [sentence[::-1] for sentence in reversed(sentences)]
    parts = slice(None, -1), slice(1, None)
    return tuple([*chain.from_iterable(own[part] for own in way)] for way in directions for part in parts)


def _steps(text: Text) -> int:
    """Time steps of each LM over a text: its words, and one boundary a sentence."""
    return sum(len(words) + 1 for words in text if words)


@dataclass(eq=False, repr=False)
class _Batches(IterableDataset):
    """An endless stream of batches: when the text ends, the stream starts over with the text reshuffled. `len` is the
    number of batches in an epoch; one iteration yields an epoch, and the next iteration continues where it ended.
    Each process reads its part of the source at its own pace, again and again; an epoch has as many steps as all
    processes together need for all words."""

    source: Texts
    tokenizer: ElmoTokenizer
    batch_size: int
    _: KW_ONLY
    seed: int = 0
    shuffle_block: int = 1_000_000
    rank: int = 0
    world_size: int = 1
    carries_state: ClassVar[bool]
    options: ClassVar[tuple[str, ...]]  # attributes that are arguments of this layout alone
    position: ClassVar[tuple[str, ...]]  # names, without underscores, of the attributes that the next batches depend on
    ahead = 0  # batches that are made before they are taken, while a GPU computes
    _size: ClassVar[Callable[..., int]]  # the size of a text, in the unit of `_capacity`
    _next_batch: ClassVar[Callable[..., Batch]]

    def __post_init__(self) -> None:
        self.part = self.source.part(self.rank, self.world_size)
        self.endless = not self.source.countable  # has no length: the words are not counted, and an epoch never ends
        self.encoder = WordEncoder(self.tokenizer)
        self._capacity = self.batch_size  # the size of a batch of this process: rows or time steps
        self._texts = self._read()
        self._thread = ThreadPoolExecutor(1)
        self._epoch = 0  # passes over the source completed
        self._texts_read = 0  # of this pass
        self._step = 0  # batches of the current epoch yielded
        self._resumed_at = 0  # those yielded before a stop
        self._length: int | None = None
        self._made: deque[Future] = deque()  # batches that nobody has taken yet, each with the position after it
        self._taken: dict[str, Any] = {}  # the position after the batch that was taken last

    def __len__(self) -> int:
        if self._length is None:
            if self.endless:
                raise TypeError("the length of the text is not known: set max_steps.")
            from accelerate.utils import gather_object  # of the extra `train`

            texts = tqdm(self.part.read(), desc="Counting words", unit=" texts", leave=False)
            size = sum(gather_object([sum(map(self._size, texts))]))
            self._length = size // (self._capacity * self.world_size)
            if self._length == 0:
                raise ValueError(f"the text does not fill batch_size {self.batch_size} in {self.world_size} processes.")
        return self._length

    def __iter__(self) -> Iterator[Batch | None]:
        length = None if self.endless and self._length is None else len(self)
        # A position of an endless run counts its batches from the run's beginning.
        self._step = self._resumed_at if length is None else self._resumed_at % length
        self._resumed_at = 0
        # A resumed Trainer skips the batches that it has trained on in this epoch: None stands for them, at no cost.
        yield from repeat(None, self._step)
        while length is None or self._step < length:
            self._step += 1
            while self.ahead and len(self._made) <= self.ahead:
                self._made.append(self._thread.submit(lambda: (self._next_batch(), self._position())))
            made = self._made.popleft().result() if self._made else (self._next_batch(), self._position())
            self._taken = made[1]
            yield made[0]
        self._step = 0

    @property
    def settings(self) -> dict[str, Any]:
        """What the batches depend on. A saved position is valid only if the settings are the same."""
        own = {"layout": type(self).__name__, "text": self.source.fingerprint, "held_out": self.source.held_out}
        words = "\n".join(self.encoder.vocabulary.words)
        own |= {"tokenizer": tokenizer_fingerprint(self.tokenizer), "processes": self.world_size}
        own |= {"vocabulary": hashlib.sha256(words.encode()).hexdigest()}
        return own | {name: getattr(self, name) for name in ("batch_size", "seed", "shuffle_block", *self.options)}

    def _position(self) -> dict[str, Any]:
        return {name: copy.copy(getattr(self, f"_{name}")) for name in self.position}

    def state_dict(self) -> dict[str, Any]:
        """The position, in the text of this process, after the batch that was taken last."""
        step = self._step if self._length is None else self._step % self._length
        return {**(self._taken or self._position()), "step": step, "length": self._length}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a position saved by `state_dict` of a dataset with the same `settings`."""
        wait(self._made)
        self._made.clear()
        self._taken = {name: state[name] for name in self.position}
        for name, value in self._taken.items():
            setattr(self, f"_{name}", copy.copy(value))
        self._texts = self._read()
        self._step = self._resumed_at = state["step"]
        self._length = state["length"]

    def _read(self) -> Iterator[Text]:
        """The texts from the position on, pass after pass. Texts are shuffled within blocks to bound the memory."""
        size = self.shuffle_block or TEXTS_AT_ONCE
        while True:
            has_words = self._texts_read > 0
            block, done = divmod(self._texts_read, size)
            texts = self.part.read(block * size)
            # With interned strings, a block takes only about 10 bytes a word.
            while chunk := [[list(map(sys.intern, words)) for words in text] for text in islice(texts, size)]:
                rng = np.random.default_rng((self.seed, self._epoch, block))
                order = rng.permutation(len(chunk)) if self.shuffle_block else range(len(chunk))
                for index in order[done:]:
                    has_words = has_words or any(chunk[index])
                    self._texts_read += 1
                    yield chunk[index]
                block += 1
                done = 0
            if not has_words:
                raise ValueError(f"process {self.rank} of {self.world_size} has no text to train on: give more text.")
            self._epoch += 1
            self._texts_read = 0


@dataclass(eq=False, repr=False)
class PackedWindows(_Batches):
    """Windows over packed sentences, as in bilm-tf (for the published models, 128 rows of 20 words).

    Each row of the batch is a stream of sentences that continues from window to window with the LSTM state. The forward
    LM reads `<S> w1 .. wn` of each sentence and predicts `w1 .. wn </S>`; the backward LM reads `</S> wn .. w1` and
    predicts `wn .. w1 <S>`. Both streams cut a sentence after the same number of words, so a window has its first words
    in one direction and its last words in the other. A row that has finished a sentence takes the text's next one.

    Yields dictionaries with the rows of this process: `input_ids` and `backward_input_ids`, what each LM reads in its
    order, `[batch_size, window, characters]`; `labels`, what they predict, `[batch_size, window, 2]`.

    Args:
        source, seed, tokenizer: the text, the seed with which it is shuffled, and what has the vocabulary.
        batch_size, window: number of rows in each process, and of words in a row.
        shuffle_block: number of texts that are shuffled together, in memory; 0 keeps the source's order. With blocks
            smaller than the corpus the loss jumps between blocks where the source changes its subject.
        rank, world_size: the rank of this process and the number of processes, as in torch.distributed.
    """

    batch_size: int = 128
    window: int = 20
    carries_state = True
    options = ("window",)
    position = ("epoch", "texts_read", "rows", "waiting")
    _size = staticmethod(_steps)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._capacity *= self.window
        self._rows: list[tuple[Words, int]] = [([], 1)] * self.batch_size  # sentence, number of its words read
        self._waiting: list[Words] = []  # sentences of the current text that no row has taken

    def _next_batch(self) -> Batch:
        batch = []
        for row, (words, position) in enumerate(self._rows):
            streams: Streams = ([], [], [], [])
            while missing := self.window - len(streams[0]):
                if position > len(words):
                    while not self._waiting:
                        self._waiting = [sentence for sentence in next(self._texts) if sentence]
                    words = self._waiting.pop(0)
                    position = 0
                for stream, tokens in zip(streams, _streams([words]), strict=True):
                    stream += tokens[position : position + missing]
                position += missing
            self._rows[row] = words, position
            batch.append(streams)
        return self.encoder.batch(batch, masked=False)


@dataclass(eq=False, repr=False)
class PaddedTexts(_Batches):
    """Sentences or documents, each a padded row, or several if it is longer than `max_words`, from zero state.

    The forward LM reads the sentences of a document from first to last, the backward LM from last to first, each with
    its boundaries. Rows of similar length are batched together. Arguments and dictionaries are those of
    [`PackedWindows`], with the longest row's length as `window`, an `attention_mask`, and `labels` of -100 at padding.
    """

    batch_size: int = 32
    carries_state = False
    options = ("max_words", "sort_batches")
    position = ("epoch", "texts_read", "rest", "pool", "pools")
    max_words = 400  # length of the longest row, boundaries included
    sort_batches = 50  # batches that are formed together, from rows sorted by length

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rest: list[Part] = []  # rows read but not in a batch yet
        self._pool: list[list[Part]] = []  # batches formed but not yielded yet
        self._pools = 0  # pools formed

    def _size(self, text: Text) -> int:
        return -(-_steps(text) // self.max_words)

    def _fill_pool(self) -> None:
        # With the same seeds, all processes take short and long batches together: none waits, or weighs words more.
        seeds = (self._epoch, self._texts_read) if self.world_size == 1 else (self._pools,)
        rng = np.random.default_rng((self.seed, *seeds))
        size = self.batch_size
        wanted = self.sort_batches * size
        while len(self._rest) < wanted:
            text = [words for words in next(self._texts) if words]
            steps = _steps(text)
            starts = range(0, steps, self.max_words)
            self._rest += [(text, start, min(start + self.max_words, steps)) for start in starts]
        rows = sorted(self._rest[:wanted], key=lambda row: row[2] - row[1])
        self._rest = self._rest[wanted:]
        self._pool = [rows[start * size :][:size] for start in rng.permutation(self.sort_batches)]
        self._pools += 1

    def _next_batch(self) -> Batch:
        if not self._pool:
            self._fill_pool()
        rows = self._pool.pop()
        return self.encoder.batch([stream[start:stop] for stream in _streams(text)] for text, start, stop in rows)


class WordEncoder:
    """Turns words, boundaries and padding into what the model reads (character ids) and predicts (labels)."""

    def __init__(self, tokenizer: ElmoTokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = Vocabulary.of(tokenizer)
        self.speller = Speller(tokenizer)

    def characters(self, rows: Sequence[Sequence[Token]]) -> Tensor:
        """The character ids of rows of tokens, padded to the longest row: `[rows, words, characters]`."""
        return torch.from_numpy(self.speller.characters(_padded(rows))).unflatten(0, (len(rows), -1))

    def labels(self, rows: Sequence[Sequence[Token]]) -> Tensor:
        """The row of each token in the vocabulary, -100 for padding: `[rows, words]`."""
        return torch.from_numpy(self.vocabulary.ids(_padded(rows))).view(len(rows), -1)

    def sentences(self, sentences: Sequence[Words], device: torch.device | str = "cpu") -> Batch:
        """`input_ids`, `attention_mask` and `labels` of sentences, padded on the right."""
        rows = [[BEGIN, *words, END] for words in sentences]
        word_ids = self.labels(rows)
        mask = (word_ids >= 0).long()
        batch = {"input_ids": self.characters(rows), "attention_mask": mask, "labels": neighbor_labels(word_ids, mask)}
        return {key: tensor.to(device) for key, tensor in batch.items()}

    def batch(self, rows: Iterable[Streams], masked: bool = True) -> Batch:
        """The model's arguments from the streams of each row, if `masked` with an `attention_mask`."""
        inputs, targets, backward_inputs, backward_targets = zip(*rows, strict=True)
        characters = self.characters(inputs + backward_inputs).chunk(2)
        labels = torch.stack([self.labels(targets), self.labels(backward_targets)], dim=-1)
        batch = {"input_ids": characters[0], "backward_input_ids": characters[1], "labels": labels}
        return {**batch, "attention_mask": (labels[..., 0] != -100).long()} if masked else batch


def ensure_language_models(model: Any, tokenizer: ElmoTokenizer | None) -> tuple[ElmoForPreTraining, WordEncoder]:
    """The language models and the encoder of their words; ValueError for another model's vocabulary, or none."""
    model, tokenizer = ensure_loaded(model, tokenizer, ElmoForPreTraining)
    encoder = WordEncoder(tokenizer)
    encoder.vocabulary.require_rows(model.config.vocab_size)
    return model, encoder


def _padded(rows: Sequence[Sequence[Token]]) -> list[Token]:
    width = max(map(len, rows))
    return list(chain.from_iterable([*row, *[PADDING] * (width - len(row))] for row in rows))


def carried_windows(encoder: WordEncoder, sentences: Iterable[Words], rows: int, window: int) -> Iterator[Batch]:
    """The windows of [`PackedWindows`] over sentences, with an `attention_mask`, because some rows end before others.
    Each sentence is read once and to its end; the row that ends first takes the next sentence, whatever `window` is.

    Yields batches `[rows, window]`, of which the last may be shorter.
    """
    streams: list[Streams] = [([], [], [], []) for _ in range(rows)]
    ends = [(0, row) for row in range(rows)]  # a heap: the time steps of each row
    for words in sentences:
        end, row = ends[0]
        heapq.heapreplace(ends, (end + len(words) + 1, row))
        for stream, tokens in zip(streams[row], _streams([words]), strict=True):
            stream += tokens
    for start in range(0, max(ends)[0], window):
        yield encoder.batch([stream[start : start + window] for stream in row] for row in streams)
