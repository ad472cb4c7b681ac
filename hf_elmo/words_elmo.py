"""What belongs to words beside their characters: ids of those with vectors of their own, their labels, scripts of the
training text, stored layers."""

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import logging, to_py_obj

from .configuration_elmo import IGNORE_INDEX
from .configuration_tasks_elmo import FIRST_VECTOR_ID, UNKNOWN_ID

logger = logging.get_logger(f"transformers.{__name__}")

# A script as the name of its letters has it: LATIN SMALL LETTER A, HANGUL SYLLABLE GA, THAI CHARACTER KO KAI.
_SCRIPT = re.compile(
    r"(?:FULLWIDTH |HALFWIDTH )?(CJK|HANGUL|[A-Z -]+?(?=(?: CAPITAL| SMALL)? (?:LETTER|SYLLABLE|CHARACTER)\b))"
)
_SCRIPT_NAMES = {"CJK": "Chinese characters"}

ARGUMENTS = (
    "word_splitting",
    "max_word_length",
    "split_special_tokens",
    "words_file",
    "character_vocab_file",
    "scripts",
)

LEAVING_OUT = "the biLM was trained on sentences between boundaries; a call leaves both out by add_special_tokens=False"
# Replaces an empty word inside the backend, which would drop it. Its position tells it from a text's same character.
_EMPTY_WORD = "\ufdd0"
LONGEST_WORD = 10_000_000  # characters; for each of them the tokenizer's backend takes about 130 bytes


def warn_of_misspelled(given: dict[str, Any]) -> None:
    """An argument of the tokenizer that is nearly one of ours, or leaves boundaries out. (transformers keeps any
    other.)"""
    for name, value in given.items():
        if name in ("add_bos_token", "add_eos_token") and value is False:
            logger.warning(f"{name}=False has no effect: {LEAVING_OUT}.")
        if name in ("do_lower_case", "lowercase", "strip_accents") and value:
            logger.warning(f"{name}={value!r} has no effect: ELMo reads the characters as they are.")
        nearest = difflib.get_close_matches(name, ARGUMENTS, n=1, cutoff=0.8)
        if nearest and name not in ARGUMENTS:
            logger.warning(
                f"ElmoTokenizer has no argument {name} ({value!r} has no effect); did you mean {nearest[0]}?"
            )


def require_word_splitting(file: str | Path, given: dict[str, Any]) -> None:
    """Refuses a checkpoint's tokenizer.json (ValueError) without the settings that are saved with it: text would be
    split by the default."""
    if "word_splitting" not in given:
        raise ValueError(
            f"{file} has no tokenizer_config.json beside it that tells its word_splitting: copy that, too, or give "
            "word_splitting."
        )


def require_words_of_some_length(texts: str | Sequence | None) -> None:
    """Refuses a word that would take gigabytes in the backend (ValueError), in texts or nested sequences of them."""
    if isinstance(texts, str):
        if len(texts) > LONGEST_WORD and (run := re.search(rf"(?<!\S)\S{{{LONGEST_WORD + 1},}}", texts)):
            raise ValueError(
                f"a word has {len(run[0]):,} characters, {run[0][:30]!r}..., but must have no more than "
                f"{LONGEST_WORD:,}: leave it out, or cut it."
            )
        return
    for text in texts or ():
        require_words_of_some_length(text)


def require_room(
    boundaries: int,
    add_special_tokens: bool = True,
    truncation_strategy: TruncationStrategy = TruncationStrategy.DO_NOT_TRUNCATE,
    max_length: int | None = None,
    **kwargs: Any,
) -> None:
    """Refuses a `max_length` to cut to that the boundaries alone exceed (ValueError): the backend would not cut."""
    cuts = add_special_tokens and truncation_strategy != TruncationStrategy.DO_NOT_TRUNCATE and max_length is not None
    if cuts and max_length < boundaries:
        raise ValueError(
            f"max_length is {max_length}, but the boundaries of sentences alone are {boundaries}: give a larger one, "
            "or add_special_tokens=False."
        )


def set_aside(file: Path) -> None:
    """Renames a file, where there is one, that would be loaded with what is saved beside it; says so."""
    if file.exists():
        names = (file.with_name(f"{file.name}.{number}") for number in count(1))
        aside = next(name for name in names if not name.exists())
        file.rename(aside)
        logger.warning(f"{file} is not of the tokenizer that is saved beside it, and is {aside.name} now.")


class WordIds:
    """A list of words, numbered as the rows of their vectors: the first is 3, after padding, boundaries and unknown.

    A word is looked up as it is spelled, then in lower case, so that a list in lower case, as GloVe's, serves text with
    capitals.

    Raises:
        ValueError: a word is in the list twice, is empty or has a line break in it.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._number_of = {word: number for number, word in enumerate(self.words, FIRST_VECTOR_ID)}
        if len(self._number_of) < len(self.words):
            seen: set[str] = set()
            twice = next(word for word in self.words if word in seen or seen.add(word))
            raise ValueError(f"words holds {twice!r} twice: each needs a row of its own, so leave one out.")
        for word in self.words:
            if not word or "\n" in word or "\r" in word:
                raise ValueError(f"words holds {word!r}, but a word must be of one line and not empty: leave it out.")

    @classmethod
    def load(cls, path: str | Path) -> "WordIds":
        """From a file, one word a line."""
        text = Path(path).read_bytes().decode("utf-8-sig").removesuffix("\n")
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

    The vocabulary of its softmax, or of its characters, holds what a model read most. Of a model without one a
    conversion writes down the scripts of its text where they are known: the language of a published model, the words
    beside its files. Where nothing is known, nothing is said. The weights do not tell: a row of the character
    embedding that no gradient ever changed looks like any other.

    Args:
        words: the vocabulary; `None` where there is none.
        special: what is no word: boundaries and the like.
        scripts: the scripts of the text that was read, by their names in [`script_of`], where they are known.
    """

    def __init__(
        self, words: Iterable[str] | None, special: Iterable[str] = (), scripts: Iterable[str] | None = None
    ) -> None:
        self._special = set(special)
        self._known = None if words is None and scripts is None else set().union(*(set(words or ()) - self._special))
        self._scripts = {script_of(character) for character in self._known or ()} | set(scripts or ())
        self._lacks = "of which this model's vocabulary has none" if words is not None else "that is not its text's"

    @classmethod
    def of(cls, tokenizer: Any) -> "ScriptsRead":
        """What an [`ElmoTokenizer`] says: its vocabulary, which is read from its file, or its `scripts`."""
        special, scripts = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token), _scripts_told(tokenizer)
        if tokenizer.character_vocab is not None:
            return cls(tokenizer.character_vocab.characters, special, scripts)
        file = getattr(tokenizer, "vocab_file", None)
        if file is None or not Path(file).is_file():
            return cls(None, special, scripts)
        return cls(Path(file).read_text(encoding="utf-8", errors="ignore").split("\n"), special, scripts)

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
                    f"{word!r} has letters of a script {self._lacks} ({script}): it has read few of them, if any, and "
                    "then its vectors of such words say little, and differ little. Take a model of that language, or "
                    "train one."
                )
                self._scripts.add(script)
            self._known.add(character)


def _scripts_told(tokenizer: Any) -> list[str] | None:
    """The argument `scripts` of a tokenizer, which its tokenizer_config.json keeps."""
    scripts = tokenizer.init_kwargs.get("scripts")
    if scripts is not None and not (isinstance(scripts, (list, tuple)) and all(isinstance(x, str) for x in scripts)):
        raise ValueError(f'scripts is {scripts!r}, but must be a list of names of scripts, such as ["Latin"], or None.')
    return scripts


def is_sentence_of_words(text: Sequence) -> bool:
    return not text or isinstance(text[0], str)


def mark_empty_words(
    batch: Sequence | None, sequence: int, empty_words: set[tuple[int, int, int]]
) -> list[list[str] | tuple[list[str], ...]] | None:
    """Puts `_EMPTY_WORD` where a word is empty, and notes (sentence, sequence of a pair, word) in `empty_words`."""
    if batch is None:
        return None

    def mark(words: Sequence[str], sentence: int, sequence: int) -> list[str]:
        empty_words.update((sentence, sequence, number) for number, word in enumerate(words) if not word)
        return [word or _EMPTY_WORD for word in words]

    return [
        tuple(mark(words, number, i) for i, words in enumerate(sentence))
        if isinstance(sentence, tuple) and not is_sentence_of_words(sentence)
        else mark(sentence, number, sequence)
        for number, sentence in enumerate(batch)
    ]


def labels_at_words(encodings: Sequence[Any], samples: Sequence[int] | None, texts: Sequence[Sequence]) -> list[list]:
    """The labels of each text's words where its encoding, or each of its pieces, has the words, and -100 elsewhere.

    Args:
        encodings: of the tokenizer's backend.
        samples: the number of each one's text where texts are in pieces; else `None`.
        texts: the labels of each text.

    Raises:
        ValueError: a text has another number of words than of labels, or is a pair.
    """
    numbers = list(range(len(encodings))) if samples is None else list(map(int, samples))
    if len(set(numbers)) != len(texts):
        raise ValueError(f"{len(set(numbers))} texts are encoded, but there are labels of {len(texts)}.")
    words, is_cut = [0] * len(texts), [False] * len(texts)
    for number, encoding in zip(numbers, encodings, strict=True):
        if 1 in encoding.sequence_ids:
            raise ValueError(f"text {number} is a pair, but labels are those of one text: encode each by itself.")
        is_cut[number] = bool(encoding.overflowing) and samples is None
        words[number] = max(words[number], 0, *(word + 1 for word in encoding.word_ids if word is not None))
    for number, own in enumerate(texts):
        if words[number] > len(own) or (words[number] < len(own) and not is_cut[number]):
            raise ValueError(f"text {number} has {words[number]} words, but {len(own)} labels: give one for each word.")
    return [
        [IGNORE_INDEX if word is None else texts[number][word] for word in encoding.word_ids]
        for number, encoding in zip(numbers, encodings, strict=True)
    ]


def as_examples(input_ids: Any, row_length: int) -> tuple[list[np.ndarray], bool]:
    """Each example of `input_ids` as `[words, row_length]`, and whether `input_ids` is one example only."""
    input_ids = to_py_obj(input_ids)
    first = next((example for example in input_ids if np.ndim(example) and len(example)), [])
    one = len(first) > 0 and np.ndim(first[0]) == 0
    examples = [np.asarray(example, dtype=np.int64) for example in ([input_ids] if one else input_ids)]
    for example in examples:
        if example.size and example.shape[1:] != (row_length,):
            raise ValueError(
                f"input_ids of one example must be [words, {row_length}], but one is {list(example.shape)}."
            )
    return [example.reshape(-1, row_length) for example in examples], one


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


__all__ = ["ScriptsRead", "WordIds"]
