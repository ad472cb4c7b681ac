"""What stands beside characters: the numbers of words that have vectors of their own, and stored layers."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .configuration_tasks_elmo import FIRST_WORD_ID, UNKNOWN_ID


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


__all__ = ["WordNumbers"]
