"""Character ids of the words of a list, of each distinct word only once."""

from collections.abc import Sequence

import numpy as np

from ..configuration_elmo import ElmoConfig
from ..tokenization_elmo import ElmoTokenizer

# These stand for `<S>`, `</S>` and padding in a list of words. They are integers, so they never equal a word.
BEGIN, END, PADDING = range(3)
Token = str | int  # a word, `BEGIN`, `END` or `PADDING`


class Speller:
    """Character ids of the tokens of a list. With `boundary_words`, the words `<S>` and `</S>` of a text are sentence
    boundaries (as for a tokenizer with `split_special_tokens=False`) instead of ordinary words."""

    def __init__(self, tokenizer: ElmoTokenizer, boundary_words: bool = False) -> None:
        self._spell = tokenizer.spell
        boundaries = [str(tokenizer.bos_token), str(tokenizer.eos_token)]
        padding = np.zeros((1, tokenizer.row_length), np.int64)
        self._special_rows = np.concatenate((tokenizer.convert_tokens_to_ids(boundaries), padding))
        self._boundary_words = dict(zip(boundaries, self._special_rows, strict=False)) if boundary_words else {}

    def distinct(self, tokens: Sequence[Token]) -> tuple[np.ndarray, list[int]]:
        """The ids of the distinct tokens, `[distinct, characters]` int64, and the index of the row of each token."""
        seen = dict.fromkeys(tokens)
        special = [token for token in (BEGIN, END, PADDING) if token in seen]
        words = [token for token in seen if isinstance(token, str)]
        row_of = {token: row for row, token in enumerate((*special, *words))}
        ids = np.concatenate((self._special_rows[special], self._spell(words)))
        for word in self._boundary_words.keys() & seen.keys():
            ids[row_of[word]] = self._boundary_words[word]
        return ids, [row_of[token] for token in tokens]

    def characters(self, tokens: Sequence[Token]) -> np.ndarray:
        """The character ids of all tokens, `[tokens, characters]` int64."""
        ids, rows = self.distinct(tokens)
        return ids[rows]


def require_tokenizer(config: ElmoConfig, tokenizer: ElmoTokenizer) -> None:
    """Raises ValueError if a tokenizer makes character ids of another kind than the model reads."""
    units = "bytes" if tokenizer.character_vocab is None else "unicode"
    wanted = config.max_word_length, config.char_units, config.row_length
    given = tokenizer.max_word_length, units, tokenizer.row_length
    if given != wanted:
        fields = "max_word_length, char_units and row_length"
        raise ValueError(f"{fields} of the tokenizer are {given}, of the model {wanted}: give the model's tokenizer.")
