"""Nearest neighbours in context: where a corpus uses a word as a sentence uses it (Peters et al. 2018, Table 4)."""

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
from ..tokenization_elmo import ElmoTokenizer, words_to_character_ids

ROWS_AT_ONCE = 1000  # sentences whose vectors are held together


@dataclass(frozen=True)
class Neighbor:
    """A word of a corpus.

    Args:
        similarity: cosine of its vector and the vector asked for.
        word: as it stands there.
        sentence: the words of its sentence.
        place: its number in the sentence, from 0.
        row: the number of the sentence in the corpus, from 0.
    """

    similarity: float
    word: str
    sentence: list[str]
    place: int
    row: int

    def in_context(self, words: int = 8) -> str:
        """The word in brackets with so many words on either side."""
        first, last = max(self.place - words, 0), self.place + 1 + words
        before, after = self.sentence[first : self.place], self.sentence[self.place + 1 : last]
        cut = ["..."] if last < len(self.sentence) else []
        return " ".join(["..."] * (first > 0) + before + [f"[{self.word}]"] + after + cut)


@dataclass
class _Nearest:
    """The words nearest to one vector `[size]`, of all that were offered; what came first wins a tie."""

    vector: np.ndarray
    top: int
    found: list[Neighbor] = field(default_factory=list)

    def offer(self, vectors: np.ndarray, places: Sequence[tuple[int, list[str], int]]) -> None:
        """Vectors `[words, size]`, and (row, sentence, place) of each."""
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(self.vector)
        similarities = vectors @ self.vector / np.maximum(lengths, np.finfo(np.float32).tiny)
        for number in np.argsort(-similarities, kind="stable")[: self.top].tolist():
            row, sentence, place = places[number]
            self.found.append(Neighbor(float(similarities[number]), sentence[place], sentence, place, row))
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
    The words of a corpus whose vectors are nearest to that of a word in a sentence, by each layer (paper, Table 4).

    Layer 0 knows no context: its neighbours are other words, each where it first occurs. Those of the layers above it
    are occurrences: places where the corpus uses the word in that sense. Sentences that occur twice count once, and the
    sentence asked about does not count.

    Args:
        model: an ELMo, or a model with one inside, on the device where it is to run.
        tokenizer: splits and spells words.
        sentence: text, which the tokenizer splits, or a list of words.
        word: the word asked about (where it first stands in `sentence`), or its number in the sentence, from 0.
        corpus: sentences, each text or a list of words, or the path of a file of them, as `embed` reads it. Read once,
            never held.
        top: neighbours for each layer.
        any_word: search all words, not only the same one (whatever its case) in layers 1 and up. Then every sentence is
            embedded; else only those that have the word.
        pretokenized: whether text is tokenised already, words parted by blanks.

    Returns:
        for each layer, 0 to `num_hidden_layers`, at most `top` neighbours, the nearest first.

    Raises:
        ValueError: the word is not in the sentence, or `top` is under 1.
    """
    if top < 1:
        raise ValueError(f"top is {top}, but must be 1 or more.")
    model = getattr(model, "base_model", model)
    split = partial(tokenizer.split_into_words, pretokenized=pretokenized)
    (words,) = split([sentence])
    place = _place(words, word)
    layers = embed(model, [words], tokenizer=tokenizer, layers="all", progress=False)[0]
    static, *contextual = (_Nearest(vector, top) for vector in layers[:, place])
    wanted = None if any_word else words[place].casefold()
    known_words = {words[place]}
    in_file = isinstance(corpus, (str, os.PathLike))
    source = RowSource(Path(corpus)) if in_file else SentenceSource(corpus, "corpus")
    for rows in _chunks(source, split, {tuple(words)}):
        _offer_words(static, rows, known_words, model)
        _offer_occurrences(contextual, rows, wanted, model, tokenizer)
    return dict(enumerate([static.found, *(nearest.found for nearest in contextual)]))


def _place(words: list[str], word: str | int) -> int:
    if isinstance(word, str):
        if word not in words:
            raise ValueError(f"word {word!r} does not stand in the sentence, whose words are {words!r}.")
        return words.index(word)
    if not 0 <= word < len(words):
        raise ValueError(f"word is number {word}, but the sentence has the words 0 to {len(words) - 1}: {words!r}.")
    return word


def _chunks(
    rows: Iterable[Row], split: Callable[[list[Row]], list[list[str]]], seen: set[tuple[str, ...]]
) -> Iterator[list[tuple[int, list[str]]]]:
    """Numbered sentences, `ROWS_AT_ONCE` at a time, without blank ones and those that came before."""
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


def _offer_words(static: _Nearest, rows: list[tuple[int, list[str]]], known: set[str], model: ElmoModel) -> None:
    """Words that no row before had, by the character CNN alone: layer 0 is its vector twice."""
    places = []
    for row, words in rows:
        for place, word in enumerate(words):
            if word not in known:
                known.add(word)
                places.append((row, words, place))
    if places:
        characters = words_to_character_ids([words[place] for _, words, place in places], model.config.max_word_length)
        with torch.inference_mode():
            vectors = model.char_encoder(torch.from_numpy(characters).to(model.device)).float().cpu().numpy()
        static.offer(np.concatenate((vectors, vectors), axis=1), places)


def _offer_occurrences(
    contextual: list[_Nearest],
    rows: list[tuple[int, list[str]]],
    wanted: str | None,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
) -> None:
    """Words in their sentences, by the layers of the biLM: all of them, or those that read `wanted`."""
    places_of = [
        (row, words, [place for place, word in enumerate(words) if wanted in (None, word.casefold())])
        for row, words in rows
    ]
    places_of = [entry for entry in places_of if entry[2]]
    if not places_of:
        return
    arrays = embed(model, [words for _, words, _ in places_of], tokenizer=tokenizer, layers="all", progress=False)
    vectors = np.concatenate(
        [array[:, places] for array, (_, _, places) in zip(arrays, places_of, strict=True)], axis=1
    )
    flat = [(row, words, place) for row, words, places in places_of for place in places]
    for layer, nearest in enumerate(contextual, start=1):
        nearest.offer(vectors[layer], flat)
