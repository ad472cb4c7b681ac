"""Words, and what stands beside their characters: words too long for the tokenizer's backend, the numbers of words that
have vectors of their own, scripts that were read, and stored layers."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from transformers.utils import logging

from .configuration_tasks_elmo import FIRST_WORD_ID, UNKNOWN_ID

logger = logging.get_logger(f"transformers.{__name__}")

# A script as the name of its letters has it: LATIN SMALL LETTER A, HANGUL SYLLABLE GA, THAI CHARACTER KO KAI.
_SCRIPT = re.compile(
    r"(?:FULLWIDTH |HALFWIDTH )?(CJK|HANGUL|[A-Z -]+?(?=(?: CAPITAL| SMALL)? (?:LETTER|SYLLABLE|CHARACTER)\b))"
)
_SCRIPT_NAMES = {"CJK": "Chinese characters"}

LONG = 10_000  # characters, from which on a word is shortened
KEPT_AT_END = 9
PIECE = 1 << 20  # characters of a text that the backend splits at once
# Whitespace (str.isspace takes four controls more for it), but not after what "lm1b" looks beyond for: "J. Smith".
_BETWEEN_WORDS = re.compile(r"(?<=[^.\s])[^\S\x1c-\x1f]")
# Runs of characters inside one word, whatever their number: by `word_splitting`, and of words already split. Not those
# after an apostrophe, where "lm1b" tells letters from digits; nor of lone surrogates, which something else replaces.
_RUNS = {
    "lm1b": r"(?<![^\W_])(?<!['‘’])[^\W_]{LONG,}|(?<!\.)\.{LONG,}|(?<!-)-{LONG,}",
    "whitespace": r"(?<![^\s\ud800-\udfff])[^\s\ud800-\udfff]{LONG,}",
    "words": r"(?<![^\ud800-\udfff])[^\ud800-\udfff]{LONG,}",
}


class Cuts(NamedTuple):
    """Places in a shortened text, in order; what was cut out there; and its characters until each place."""

    places: list[int]
    texts: list[str]
    totals: list[int]


def is_long(text: str | Sequence) -> bool:
    """Whether a text, or one in nested sequences of texts, is long enough for a word that is shortened."""
    if isinstance(text, str):
        return len(text) >= LONG
    if text and not isinstance(text[0], str):
        return any(map(is_long, text))
    return max(map(len, text), default=0) >= LONG


class LongWordBackend:
    """A tokenizer's backend that is given long words without their middles, and whose encodings are those of the whole
    text: it takes more than a hundred bytes for each character, and ELMo reads the first ones of a word.

    Args:
        backend: of the tokenizer. One that looks for special tokens is given whole words.
        runs: how it splits: as a `word_splitting` says, not at all (`"words"`), or `None` in its own way.
        kept: characters of a word that are read.
    """

    def __init__(self, backend: Tokenizer, runs: str | None, kept: int) -> None:
        vars(self).update(_backend=backend, _runs=runs, _kept=kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_backend"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._backend, name, value)

    def encode_batch(self, batch: Sequence, is_pretokenized: bool = False, **options: Any) -> list:
        """As of [`Tokenizer`]: of texts, pairs of them, or with `is_pretokenized` of lists of words."""
        shortened = [self._shorten(sample, is_pretokenized) for sample in batch]
        texts = [text for text, _ in shortened]
        encodings = self._backend.encode_batch(texts, is_pretokenized=is_pretokenized, **options)
        both = zip(encodings, shortened, strict=True)
        return [_WholeEncoding(encoding, cuts) if cuts else encoding for encoding, (_, cuts) in both]

    def words(self, text: str) -> list[str]:
        """The words of a text, which the backend is given in pieces, from one whitespace to another."""
        words, start = [], 0
        known = self._runs not in (None, "words") and self._backend.encode_special_tokens
        while start < len(text):
            between = _BETWEEN_WORDS.search(text, start + PIECE) if known else None
            end = between.start() if between else len(text)
            words += self.encode_batch([text[start:end]], add_special_tokens=False)[0].tokens
            start = end
        return words

    def _shorten(self, sample: Any, is_pretokenized: bool) -> tuple[Any, dict[tuple[int, int | None], Cuts]]:
        """A sample for the backend, and its cuts by sequence, and word of a list."""
        pair = isinstance(sample, tuple) and isinstance(sample[0], list if is_pretokenized else str)
        cuts, parts = {}, []
        for sequence, part in enumerate(sample if pair else [sample]):
            texts = [self._cut(text) for text in (part if is_pretokenized else [part])]
            parts.append([text for text, _ in texts] if is_pretokenized else texts[0][0])
            cuts |= {(sequence, n if is_pretokenized else None): own for n, (_, own) in enumerate(texts) if own}
        return tuple(parts) if pair else parts[0], cuts

    def _cut(self, text: str) -> tuple[str, Cuts | None]:
        if len(text) < LONG or self._runs not in _RUNS or not self._backend.encode_special_tokens:
            return text, None
        pieces, places, texts, end, removed = [], [], [], 0, 0
        for run in re.finditer(_RUNS[self._runs].replace("LONG", str(LONG)), text):
            first, last = run.start() + self._kept, run.end() - KEPT_AT_END
            if first < last and self._is_one_word("".join(set(run[0]))):
                places.append(first - removed)
                removed += last - first
                pieces.append(text[end:first])
                texts.append(text[first:last])
                end = last
        if not places:
            return text, None
        return "".join((*pieces, text[end:])), Cuts(places, texts, [0, *accumulate(map(len, texts))])

    def _is_one_word(self, characters: str) -> bool:
        """Whether the backend, too, takes these for characters of one word: what a letter is depends on its Unicode."""
        splits = self._backend.pre_tokenizer
        return splits is None or len(splits.pre_tokenize_str(characters)) == 1


_NO_CUTS = Cuts([], [], [0])


class _WholeEncoding:
    """The encoding of a shortened text as one of the whole text: with all characters in its tokens and offsets."""

    def __init__(self, encoding: Encoding, cuts: dict[tuple[int, int | None], Cuts]) -> None:
        self._encoding, self._cuts = encoding, cuts

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not there yet, while it is copied
            raise AttributeError(name)
        return getattr(self._encoding, name)

    def __len__(self) -> int:
        return len(self._encoding)

    def _spans(self) -> Iterator[tuple[int, int, Cuts]]:
        """Of each token where it is in the shortened text, and the cuts of that text."""
        tokens = zip(self._encoding.offsets, self._encoding.sequence_ids, self._encoding.word_ids, strict=True)
        for (start, end), sequence, word in tokens:
            yield start, end, self._cuts.get((sequence, word)) or self._cuts.get((sequence, None), _NO_CUTS)

    @property
    def tokens(self) -> list[str]:
        """The tokens, in full."""
        found = []
        for token, (start, end, cuts) in zip(self._encoding.tokens, self._spans(), strict=True):
            pieces, at = [], 0
            for number in range(bisect_right(cuts.places, start), bisect_left(cuts.places, end)):
                pieces += token[at : cuts.places[number] - start], cuts.texts[number]
                at = cuts.places[number] - start
            found.append("".join((*pieces, token[at:])))
        return found

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Where the tokens are in the whole text."""
        return [
            tuple(place + cuts.totals[bisect_left(cuts.places, place)] for place in (start, end))
            for start, end, cuts in self._spans()
        ]

    @property
    def overflowing(self) -> list["_WholeEncoding"]:
        """What was truncated."""
        return [_WholeEncoding(encoding, self._cuts) for encoding in self._encoding.overflowing]

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        """Where a token is."""
        return None if self._encoding.sequence_ids[token_index] is None else self.offsets[token_index]

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Where a word is."""
        tokens = self._encoding.word_to_tokens(word_index, sequence_index)
        return None if tokens is None else (self.offsets[tokens[0]][0], self.offsets[tokens[1] - 1][1])

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The token that has a character."""
        spans = zip(self.offsets, self._encoding.sequence_ids, strict=True)
        here = (n for n, ((start, end), own) in enumerate(spans) if own == sequence_index and start <= char_pos < end)
        return next(here, None)

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The number of the word that has a character."""
        token = self.char_to_token(char_pos, sequence_index)
        return None if token is None else self._encoding.word_ids[token]


class WordNumbers:
    """A list of words, numbered as the rows of their vectors: the first is 3, after padding, boundaries and unknown.

    A word is looked up as it is spelled, then in lower case, so that a list in lower case, as GloVe's, serves text with
    capitals.

    Raises:
        ValueError: a word is in the list twice, is empty or has a line break in it.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._number_of = {word: number for number, word in enumerate(self.words, FIRST_WORD_ID)}
        if len(self._number_of) < len(self.words):
            seen: set[str] = set()
            twice = next(word for word in self.words if word in seen or seen.add(word))
            raise ValueError(f"words holds {twice!r} twice: each needs a row of its own, so leave one out.")
        for word in self.words:
            if not word or "\n" in word or "\r" in word:
                raise ValueError(f"words holds {word!r}, but a word must be of one line and not empty: leave it out.")

    @classmethod
    def load(cls, path: str | Path) -> "WordNumbers":
        """From a file, one word a line."""
        text = Path(path).read_bytes().decode("utf-8").removesuffix("\n")
        return cls(text.split("\n") if text else [])

    def save(self, path: str | Path) -> None:
        """Into a file, one word a line."""
        Path(path).write_bytes("".join(f"{word}\n" for word in self.words).encode())

    def of(self, words: Iterable[str]) -> np.ndarray:
        """The numbers `[words]` int64; that of unknown words for those which the list does not hold."""
        find = self._number_of.get
        return np.fromiter((find(word) or find(word.lower(), UNKNOWN_ID) for word in words), dtype=np.int64)


def script_of(character: str) -> str | None:
    """The script of a letter, such as "Latin" or "Hangul"; `None` for what is no letter, or one of all scripts."""
    if unicodedata.category(character) not in ("Lu", "Ll", "Lt", "Lo"):
        return None
    match = _SCRIPT.match(unicodedata.name(character, ""))
    return match and _SCRIPT_NAMES.get(match[1], match[1].title())


class ScriptsRead:
    """
    The scripts that a model read, as far as its vocabulary says, and a warning, once, of words in another one: their
    characters have the vectors that they were initialized with, so that one such word is much like the other.

    The vocabulary of its softmax, or of its characters, holds what a model read most. Of a model without one (all of
    AllenNLP's) nothing is known, and nothing is said. Its weights do not tell: a row of the character embedding
    that no gradient ever changed looks like any other.

    Args:
        words: the vocabulary; `None` where there is none.
        special: what is no word: boundaries and the like.
    """

    def __init__(self, words: Iterable[str] | None, special: Iterable[str] = ()) -> None:
        self._special = set(special)
        self._known = None if words is None else set().union(*(set(words) - self._special))
        self._scripts = {script_of(character) for character in self._known or ()}

    @classmethod
    def of(cls, tokenizer: Any) -> "ScriptsRead":
        """What the vocabulary of an [`ElmoTokenizer`] says, which is read from its file."""
        special = tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token
        if tokenizer.character_vocab is not None:
            return cls(tokenizer.character_vocab.characters, special)
        file = getattr(tokenizer, "vocab_file", None)
        if file is None or not Path(file).is_file():
            return cls(None)
        return cls(Path(file).read_text(encoding="utf-8", errors="ignore").split("\n"), special)

    def check(self, words: Sequence[str]) -> None:
        """Tells the log of words in a script of which the vocabulary has nothing; of each script once."""
        if self._known is None:
            return
        text = "".join(words)
        if text.isascii() and "Latin" in self._scripts:
            return
        for character in sorted(set(text) - self._known, key=text.index):
            script = script_of(character)
            if script is not None and script not in self._scripts:
                word = next((word for word in words if character in word and word not in self._special), None)
                if word is None:
                    continue
                logger.warning(
                    f"{word!r} has letters of a script of which this model's vocabulary has none ({script}): it has "
                    "probably never read them, and then its vectors of such words say little, and differ little. Take "
                    "a model of that language, or train one."
                )
                self._scripts.add(script)
            self._known.add(character)


def stored_layers(layers: Any) -> np.ndarray:
    """A text's stored layers of the biLM `[words, layers, 2P]`: floats, or as uint16 the bits of bfloat16.

    Arrow has no bfloat16, and data sets widen what they give: integers are bits of bfloat16, of whatever type they are.

    Raises:
        ValueError: they have another number of axes, or integers that are no 16 bits.
    """
    layers = np.asarray(layers)
    bits = layers.dtype.kind in "iu"
    if (
        layers.ndim != 3
        or layers.dtype.kind not in "iuf"
        or (bits and layers.size and not 0 <= layers.min() <= layers.max() < 65536)
    ):
        raise ValueError(
            f"bilm_layers of one text are {layers.dtype} {list(layers.shape)}, but must be [words, layers, 2P], floats "
            "or the 16 bits of bfloat16, as store_layers writes them."
        )
    return layers.astype(np.uint16 if bits else np.promote_types(layers.dtype, np.float16), copy=False)


def pad_column(examples: Sequence[np.ndarray], numbers: Sequence[Sequence[int]], one: bool, return_tensors: Any) -> Any:
    """The rows of each example, padded with zeros.

    Args:
        examples: each `[words, ...]`.
        numbers: for each example the index of the row, from 1, at each position; 0 for padding.
        one: there is one example, and no batch.
        return_tensors: `None` for lists, `"pt"` for tensors.
    """
    if len({len(row) for row in numbers}) != 1:
        return [row.tolist() for row in examples] if return_tensors is None else list(examples)
    rows = scatter_rows(np.concatenate(examples), np.array(numbers) > 0)
    rows = rows[0] if one else rows
    if return_tensors is None:
        return rows.tolist()
    if return_tensors != "pt":
        return rows
    tensor = torch.from_numpy(rows)
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.uint16 else tensor


def scatter_rows(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """`rows` `[n, ...]` where `mask` `[batch, words]` is, zeros elsewhere."""
    scattered = np.zeros((*mask.shape, *rows.shape[1:]), dtype=rows.dtype)
    scattered[mask] = rows
    return scattered


__all__ = ["ScriptsRead", "WordNumbers"]
