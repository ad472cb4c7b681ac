"""Words as characters of a model's own vocabulary, and as entries of its own word list, where they are not bytes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .configuration_elmo import SENTENCE_BEGIN_ID, SENTENCE_BEGIN_WORD_ID, WORD_BEGIN_ID, WORD_END_ID, WORD_PADDING_ID

UNKNOWN_CHARACTER_ID = 1
MARKERS = WORD_PADDING_ID - SENTENCE_BEGIN_ID + 1  # ids of markers, among those of characters
# Ids of words; as among characters, 0 marks a padded position.
UNKNOWN_WORD_ID, SENTENCE_END_WORD_ID, FIRST_WORD_ID = 1, SENTENCE_BEGIN_WORD_ID + 1, SENTENCE_BEGIN_WORD_ID + 2


class CharacterVocabulary:
    """
    Spells words with Unicode characters, and looks them up among the words that have a vector of their own.

    The markers (sentence boundaries, begin and end of a word, padding) have the same ids as among bytes, so that
    whatever reads them need not know which characters a model has; the characters have those that are left.

    Args:
        characters: one string each; the first has the id 2, as 1 stands for every other character.
        words: those with a vector of their own, or `None`; the first has the id 4, as 1 stands for every other word, 2
            and 3 for the sentence boundaries.

    Raises:
        ValueError: a character or a word is there twice.
    """

    def __init__(self, characters: Sequence[str], words: Sequence[str] | None = None) -> None:
        self.characters, self.words = list(characters), None if words is None else list(words)
        self._character_ids = _numbered(self.characters, map(character_id, range(len(self.characters))))
        self._word_ids = None if words is None else _numbered(self.words, range(FIRST_WORD_ID, self.word_size))
        self._character_of = {number: character for character, number in self._character_ids.items()}

    @property
    def size(self) -> int:
        """Rows of the character embedding, row 0 and the markers included."""
        return max(WORD_PADDING_ID, character_id(len(self.characters) - 1)) + 1

    @property
    def word_size(self) -> int | None:
        """Rows of the word embedding, those of the unknown word and of the boundaries included; `None` without one."""
        return None if self.words is None else FIRST_WORD_ID + len(self.words)

    def spell(self, words: Sequence[str], max_word_length: int) -> np.ndarray:
        """
        The ids of words: their first `max_word_length - 2` characters between the word markers, padded, and with a word
        list the id of the word so cut, which ends the row. Lone surrogates are dropped.

        Returns:
            `[words, max_word_length]` int64, with a word list one column more.
        """
        cut = [word.encode("utf-8", "ignore").decode("utf-8")[: max_word_length - 2] for word in words]
        lengths = np.fromiter(map(len, cut), dtype=np.int64, count=len(cut))
        ids = np.full((len(cut), max_word_length + (self.words is not None)), WORD_PADDING_ID, dtype=np.int64)
        ids[:, 0] = WORD_BEGIN_ID
        find = self._character_ids.get
        spelled = [find(character, UNKNOWN_CHARACTER_ID) for word in cut for character in word]
        ids[:, 1 : max_word_length - 1][np.arange(1, max_word_length - 1) <= lengths[:, None]] = spelled
        ids[np.arange(len(cut)), lengths + 1] = WORD_END_ID
        if self._word_ids is not None:
            ids[:, -1] = [self._word_ids.get(word, UNKNOWN_WORD_ID) for word in cut]
        return ids

    def word_of(self, row: Sequence[int]) -> str:
        """The word that a row spells; an unknown character is U+FFFD."""
        spelled = []
        for number in row[1:]:
            if number in (WORD_END_ID, WORD_PADDING_ID, 0):
                break
            spelled.append(self._character_of.get(number, "\ufffd"))
        return "".join(spelled)

    def character_ids(self) -> dict[str, int]:
        """The id of each character; `"<unknown>"` is any other."""
        return {"<unknown>": UNKNOWN_CHARACTER_ID, **self._character_ids}

    @classmethod
    def load(cls, path: str | Path) -> "CharacterVocabulary":
        """
        Read what [`save`] wrote.

        Raises:
            ValueError: the file is not of that format.
        """
        try:
            stored = json.loads(Path(path).read_text(encoding="utf-8"))
            lists = [stored["characters"], stored.get("words") or []]
            if not all(isinstance(entry, str) for entries in lists for entry in entries):
                raise TypeError("an entry that is not a string")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no character vocabulary ({error!r}): save the tokenizer again.") from error
        return cls(stored["characters"], stored.get("words"))

    def save(self, path: str | Path) -> None:
        """Write the characters and words as JSON."""
        stored = {"characters": self.characters, "words": self.words}
        Path(path).write_text(json.dumps(stored, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def character_id(place: int) -> int:
    """The id of the character at a place of the vocabulary's list: those of the markers are skipped."""
    number = place + UNKNOWN_CHARACTER_ID + 1
    return number if number < SENTENCE_BEGIN_ID else number + MARKERS


def _numbered(entries: Sequence[str], numbers: object) -> Mapping[str, int]:
    ids = dict(zip(entries, numbers, strict=True))
    if len(ids) < len(entries):
        twice = next(entry for place, entry in enumerate(entries) if entry in entries[:place])
        raise ValueError(f"{twice!r} is twice in the vocabulary, but each entry must be there once.")
    return ids
