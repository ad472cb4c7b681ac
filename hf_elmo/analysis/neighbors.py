"""Nearest neighbors in context: where a corpus uses a word in the same sense (Peters et al. 2018, Table 4)."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from transformers.utils.logging import tqdm

from ..embedding.corpus import embed
from ..embedding.readers import Row, RowSource, SentenceSource
from ..modeling_elmo import ElmoModel
from ..spelling import Speller
from ..tokenization_elmo import ElmoTokenizer

ROWS_AT_ONCE = 1000  # sentences whose vectors are in memory together


@dataclass(frozen=True)
class Neighbor:
    """A word of a corpus.

    Args:
        similarity: cosine similarity to the query vector.
        word: as written in the corpus.
        sentence: the words of its sentence.
        position: its index in the sentence.
        row: the index of the sentence in the corpus.
    """

    similarity: float
    word: str
    sentence: list[str]
    position: int
    row: int

    def context(self, words: int = 8) -> tuple[str, str]:
        """Up to `words` words before the word, and after it."""
        first, last = max(self.position - words, 0), self.position + 1 + words
        before = ["..."] * (first > 0) + self.sentence[first : self.position]
        after = self.sentence[self.position + 1 : last] + ["..."] * (last < len(self.sentence))
        return " ".join(before), " ".join(after)

    def in_context(self, words: int = 8) -> str:
        """The word in brackets, with up to `words` words on either side."""
        before, after = self.context(words)
        return f"{before} [{self.word}] {after}".strip()


@dataclass
class _Nearest:
    """The words nearest to one vector `[size]` among those offered so far; in a tie the first one wins."""

    vector: np.ndarray
    top: int
    found: list[Neighbor] = field(default_factory=list)

    def offer(self, vectors: np.ndarray, positions: Sequence[tuple[int, list[str], int]]) -> None:
        """Vectors `[words, size]`, and (row, sentence, position) of each."""
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(self.vector)
        similarities = vectors @ self.vector / np.maximum(lengths, np.finfo(np.float32).tiny)
        for number in np.argsort(-similarities, kind="stable")[: self.top].tolist():
            row, sentence, position = positions[number]
            self.found.append(Neighbor(float(similarities[number]), sentence[position], sentence, position, row))
        self.found = sorted(self.found, key=lambda neighbor: -neighbor.similarity)[: self.top]


def nearest_neighbors(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sentence: str | Sequence[str],
    word: str | int,
    corpus: str | os.PathLike | Iterable[Row],
    top: int = 5,
    any_word: bool = False,
    pretokenized: bool = False,
) -> dict[int, list[Neighbor]]:
    """
    The words of a corpus whose vectors are nearest to that of a word in a sentence, for each layer (paper, Table 4).

    Layer 0 has no context: its neighbors are other words, each at its first occurrence. Neighbors in the layers above
    are occurrences in context. Repeated sentences count once, and the query sentence is excluded.

    Args:
        model: an ELMo, or a model with one inside, on the device where it is to run.
        tokenizer: splits and spells words.
        sentence: the query sentence: text, which the tokenizer splits, or a list of words.
        word: the query word (its first occurrence in `sentence`), or its index in the sentence.
        corpus: sentences, each text or a list of words, or the path of a file of them, as `embed` reads it. Read once,
            not kept in memory.
        top: neighbors for each layer.
        any_word: in layers 1 and up, search all words instead of only occurrences of the query word (in any case). Then
            every sentence is embedded, else only those that contain the word.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Returns:
        for each layer, 0 to `num_hidden_layers`, at most `top` neighbors, the nearest first.

    Raises:
        ValueError: the word is not in the sentence, `top` is below 1, or the file is malformed.
        TypeError: a row of the corpus is neither text nor a list of words.
    """
    if top < 1:
        raise ValueError(f"top is {top}, but must be 1 or more.")
    model = getattr(model, "base_model", model)
    split = partial(tokenizer.split_into_words, pretokenized=pretokenized)
    (words,) = split([sentence])
    position = position_of(words, word)
    layers = embed(model, [words], tokenizer=tokenizer, layers="all", progress=False)[0]
    static, *contextual = (_Nearest(vector, top) for vector in layers[:, position])
    wanted = None if any_word else words[position].casefold()
    known_words = {words[position]}
    speller = Speller(tokenizer, boundary_words=not tokenizer.split_special_tokens)
    in_file = isinstance(corpus, (str, os.PathLike))
    source = RowSource(Path(corpus)) if in_file else SentenceSource(corpus, "corpus")
    for rows in _chunks(source, split, {tuple(words)}):
        _offer_words(static, rows, known_words, model, speller)
        _offer_occurrences(contextual, rows, wanted, model, tokenizer)
    return dict(enumerate([static.found, *(nearest.found for nearest in contextual)]))


def position_of(words: list[str], word: str | int) -> int:
    """
    The index of a word in a sentence.

    Args:
        words: the sentence.
        word: a word of it, whose first occurrence counts, or an index.

    Raises:
        ValueError: the sentence has no such word.
    """
    if isinstance(word, str):
        if word not in words:
            raise ValueError(f"word {word!r} does not occur in the sentence, whose words are {words!r}.")
        return words.index(word)
    if not 0 <= word < len(words):
        raise ValueError(f"word is index {word}, but the sentence has the words 0 to {len(words) - 1}: {words!r}.")
    return word


def _chunks(
    rows: Iterable[Row], split: Callable[[list[Row]], list[list[str]]], seen: set[tuple[str, ...]]
) -> Iterator[list[tuple[int, list[str]]]]:
    """Numbered sentences, `ROWS_AT_ONCE` at a time, without blank and repeated ones."""
    hashes = {hash(words) for words in seen}
    numbered = enumerate(rows)
    with tqdm(desc="Neighbors", unit=" rows", leave=False) as progress:
        while chunk := list(islice(numbered, ROWS_AT_ONCE)):
            fresh = []
            for (number, _), words in zip(chunk, split([row for _, row in chunk]), strict=True):
                key = hash(tuple(words))
                if words and key not in hashes:
                    hashes.add(key)
                    fresh.append((number, words))
            yield fresh
            progress.update(len(chunk))


def _offer_words(
    static: _Nearest, rows: list[tuple[int, list[str]]], known: set[str], model: ElmoModel, speller: Speller
) -> None:
    """Offers words not seen in earlier rows. Layer 0 is the output of the character CNN twice."""
    positions = []
    for row, words in rows:
        for position, word in enumerate(words):
            if word not in known:
                known.add(word)
                positions.append((row, words, position))
    if positions:
        characters = speller.characters([words[position] for _, words, position in positions])
        with torch.inference_mode():
            vectors = model.char_encoder(torch.from_numpy(characters).to(model.device)).float().cpu().numpy()
        static.offer(np.concatenate((vectors, vectors), axis=1), positions)


def _offer_occurrences(
    contextual: list[_Nearest],
    rows: list[tuple[int, list[str]]],
    wanted: str | None,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
) -> None:
    """Offers words in their sentences to the biLM's layers: all words, or those equal to `wanted` when case-folded."""
    with_positions = [
        (row, words, [position for position, word in enumerate(words) if wanted in (None, word.casefold())])
        for row, words in rows
    ]
    with_positions = [entry for entry in with_positions if entry[2]]
    if not with_positions:
        return
    arrays = embed(model, [words for _, words, _ in with_positions], tokenizer=tokenizer, layers="all", progress=False)
    vectors = np.concatenate(
        [array[:, positions] for array, (_, _, positions) in zip(arrays, with_positions, strict=True)], axis=1
    )
    flat = [(row, words, position) for row, words, positions in with_positions for position in positions]
    for layer, nearest in enumerate(contextual, start=1):
        nearest.offer(vectors[layer], flat)
