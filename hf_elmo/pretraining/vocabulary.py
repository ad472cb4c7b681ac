"""The vocabulary of the language models' softmax: bilm-tf's file, one word a line."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from transformers.utils.logging import tqdm

from ..lines import read_lines

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
SPECIAL_WORDS = (BOS, EOS, UNK)


class Vocabulary:
    """
    The words that the language models predict, in the order of the softmax's rows: `<S>`, `</S>`, `<UNK>`, then by
    decreasing frequency, as bilm-tf writes them (the sampled softmax draws its negatives by that order).

    Args:
        words: every word once, `<S>`, `</S>` and `<UNK>` among them.

    Raises:
        ValueError: one of the three is missing, or a word is empty.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        missing = [word for word in SPECIAL_WORDS if word not in self.words]
        if missing:
            raise ValueError(
                f"a vocabulary needs the words {', '.join(SPECIAL_WORDS)}, but {', '.join(missing)} is missing: "
                "make one with `hf-elmo vocab`."
            )
        if "" in self.words:
            raise ValueError(f"word {self.words.index('')} of the vocabulary is empty: every line must hold a word.")
        self.bos_id, self.eos_id, self.unk_id = (self.words.index(word) for word in SPECIAL_WORDS)
        # A word "<S>" of a text is not a boundary: like any word outside the vocabulary it is unknown.
        self._ids = {word: row for row, word in enumerate(self.words) if word not in SPECIAL_WORDS}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def ids(self, words: Iterable[str]) -> np.ndarray:
        """The ids of words, `[words]` int64; words outside the vocabulary get the id of `<UNK>`."""
        return np.array([self._ids.get(word, self.unk_id) for word in words], dtype=np.int64)

    def sentence_ids(self, words: Sequence[str]) -> np.ndarray:
        """The ids of `<S>`, the words and `</S>`, `[words + 2]` int64."""
        return np.concatenate(([self.bos_id], self.ids(words), [self.eos_id]))

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Reads a file with one word a line (UTF-8); raises ValueError as the constructor does, and for a word that
        stands there twice: the model would never learn to predict one of the two."""
        words = [line.removesuffix("\n") for line in read_lines(path)]
        if twice := [word for word, count in Counter(words).items() if count > 1]:
            raise ValueError(f"{path} has {twice[0]!r} twice: each word has one line, leave the others out.")
        return cls(words)

    @classmethod
    def of(cls, tokenizer) -> "Vocabulary":
        """The vocabulary saved with a tokenizer; ValueError where there is none."""
        if tokenizer.vocabulary is None:
            raise ValueError(
                "the tokenizer has no vocabulary (vocab.txt), so the language models' words are not known: load it "
                "from the folder of a pretrained language model, or give it one with ElmoTokenizer(vocab_file=...)."
            )
        return cls(tokenizer.vocabulary)

    def require_rows(self, rows: int | None) -> None:
        """Refuses a softmax of `rows` words where this vocabulary has another number (ValueError)."""
        if len(self) != rows:
            raise ValueError(
                f"the tokenizer's vocabulary has {len(self)} words, but the model's softmax {rows}: give the tokenizer "
                "that belongs to the model."
            )

    def save(self, path: str | Path) -> None:
        """Writes the file that `load` and bilm-tf read, whole or not at all; its folder is made where there is none.
        OSError where it cannot be written."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.draft")
        try:
            draft.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")
            os.replace(draft, path)
        except OSError as error:
            if error.filename is not None:  # it is named already
                raise
            raise OSError(f"{path} could not be written ({error}): make room, or choose another place.") from error
        finally:
            draft.unlink(missing_ok=True)

    def rows_in(self, old: "Vocabulary") -> np.ndarray:
        """The id in `old` of each word of this vocabulary, -1 where `old` lacks it: `[len(self)]` int64."""
        return np.array([self._row_in(old, word) for word in self.words], dtype=np.int64)

    @staticmethod
    def _row_in(old: "Vocabulary", word: str) -> int:
        special = {BOS: old.bos_id, EOS: old.eos_id, UNK: old.unk_id}
        return special[word] if word in special else old._ids.get(word, -1)


def build_vocabulary(
    sentences: Iterable[Sequence[str]],
    size: int | None = None,
    min_count: int = 1,
    max_words_in_memory: int = 20_000_000,
) -> Vocabulary:
    """
    Counts words and keeps the most frequent, ties in alphabetical order. Words with a line break, which a file with a
    word a line cannot hold, are left out.

    Args:
        sentences: each a list of words; read once, not kept in memory.
        size: words of the vocabulary, the three special ones included; all by default.
        min_count: words with fewer occurrences are left out.
        max_words_in_memory: distinct words counted at a time. Beyond it the rarest are dropped (counts of 1, then
            of 2, ...) to bound the memory; the count of a frequent word is then too small by at most the largest count
            dropped.

    Raises:
        ValueError: no word is left, or `size` does not hold a single word.
    """
    if size is not None and size <= len(SPECIAL_WORDS):
        raise ValueError(f"size is {size}, but {len(SPECIAL_WORDS)} of the words are special: use a larger one.")
    counts: Counter[str] = Counter()
    dropped = 0
    for words in tqdm(sentences, "Counting words", unit=" sentences"):
        counts.update(words)
        while len(counts) > max_words_in_memory:
            dropped += 1
            counts = Counter({word: count for word, count in counts.items() if count > dropped})
    ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
    words = [word for _, word in ranked if word and word not in SPECIAL_WORDS and not {"\n", "\r"} & set(word)]
    if not words:
        raise ValueError(f"no word occurs {min_count} times or more: give more text, or lower min_count.")
    return Vocabulary([*SPECIAL_WORDS, *words[: None if size is None else size - len(SPECIAL_WORDS)]])
