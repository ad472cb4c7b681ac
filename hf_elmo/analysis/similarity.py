"""Relations of word vectors: nearest neighbors in a corpus, similarities by layer, principal components."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers.utils.logging import tqdm

from ..checkpoints.loading import ensure_loaded
from ..embedding.corpus import embed
from ..embedding.store import StoredRow, read_vectors
from ..modeling_elmo import ElmoModel
from ..reading.rows import Row, Rows
from ..tokenization_elmo import ElmoTokenizer
from ..utils.fingerprints import model_fingerprint
from ..utils.spelling import Speller
from .scoring import positions_of

ROWS_AT_ONCE = 1000  # sentences whose vectors are in memory together
Place = tuple[int, list[str], int]  # index of a sentence in the corpus, the sentence, index of a word in it
# Sentences with their indices, and a function (layer, places) that gives the vectors `[places, size]`.
Chunk = tuple[list[tuple[int, list[str]]], Callable[[int | str, list[Place]], np.ndarray]]


@dataclass(frozen=True)
class Neighbor:
    """A word of a corpus.

    Args:
        similarity: cosine similarity to the query vector.
        word: the word as written in the corpus.
        sentence: the words of the word's sentence.
        position: the index of the word in the sentence.
        row: the index of the sentence in the corpus.
    """

    similarity: float
    word: str
    sentence: list[str]
    position: int
    row: int

    def context(self, words: int = 8) -> tuple[str, str]:
        """Up to `words` words before the word, and after it."""
        first = max(self.position - words, 0)
        last = self.position + 1 + words
        before = ["..."] * (first > 0) + self.sentence[first : self.position]
        after = self.sentence[self.position + 1 : last] + ["..."] * (last < len(self.sentence))
        return " ".join(before), " ".join(after)

    def in_context(self, words: int = 8) -> str:
        """The word in brackets, with up to `words` words on either side."""
        before, after = self.context(words)
        return f"{before} [{self.word}] {after}".strip()


def nearest_neighbors(
    model: ElmoModel | str | os.PathLike | None,
    sentence: str | Sequence[str],
    word: str | int,
    corpus: str | os.PathLike | Iterable[Row],
    *,
    tokenizer: ElmoTokenizer | None = None,
    top: int = 5,
    any_word: bool = False,
    input_format: str | None = None,
    text_column: str | int | None = None,
    encoding: str = "utf-8",
    pretokenized: bool = False,
) -> dict[int | str, list[Neighbor]]:
    """For each layer, the words of a corpus nearest to a word in a sentence (Peters et al. 2018, Table 4).

    Layer 0 has no context: its neighbors are other words, each at its first occurrence. In the layers above, each
    neighbor is a word in its sentence. Repeated sentences count once, and the query sentence is excluded.

    Args:
        model: a model, which stays on its device, or the name or folder of one; `None` for the model that ships.
        sentence: the query sentence, text or a list of words.
        word: the query word (its first occurrence in `sentence`), or its index in the sentence.
        corpus: sentences, each text or a list of words; or the path of a file of sentences, as `embed` reads it; or a
            Parquet file of vectors for each word, as `embed` writes it. A file is read once, not kept in memory.
        tokenizer: splits and spells words; by default the tokenizer of the model's folder.
        top: number of neighbors for each layer.
        any_word: in layers 1 and up, search all words, not only the query word (in upper or lower case).
        input_format, text_column, encoding, pretokenized: as for [`embed`], of `sentence` and of a corpus of text.

    Returns:
        for each layer, 0 to `num_hidden_layers`, at most `top` neighbors, the nearest first. For a file of vectors of
        one layer or a mix, that is the only key, such as `1` or `"mix"`.

    Raises:
        ValueError: the word is not in the sentence, or a file has vectors of rows (pooled) or of another model.
    """
    model, tokenizer = ensure_loaded(model, tokenizer)
    model = model.base_model
    (words,) = tokenizer.split_into_words([sentence], pretokenized)
    position, *_ = positions_of(words, word)
    wanted = None if any_word else words[position].casefold()
    keys: Sequence[int | str] = range(model.config.num_hidden_layers + 1)
    if isinstance(corpus, (str, os.PathLike)) and (vectors := read_vectors(corpus)):
        about, stored = vectors
        if model_fingerprint(model, getattr(torch, about["dtype"])) != about["model"]:
            raise ValueError(f"{corpus} has vectors of another model, or of one with other weights")
        keys = keys if about["layers"] == "all" else [about["layers"]]
        chunks = _stored_chunks(stored, keys)
    else:
        texts = Rows(corpus, input_format, text_column, encoding, name="corpus")
        texts.report(tokenizer, pretokenized)
        chunks = _text_chunks(texts, model, tokenizer, pretokenized)
    (query,) = embed(model, [words], tokenizer=tokenizer, layers=keys[0] if len(keys) == 1 else "all", progress=False)
    queries = dict(zip(keys, query.reshape(len(keys), *query.shape[-2:])[:, position], strict=True))
    neighbors: dict[int | str, list[Neighbor]] = {key: [] for key in keys}
    seen: set[Any] = {words[position], hash(tuple(words))}  # words, and hashes of sentences
    for rows, vectors_of in tqdm(chunks, "Neighbors", unit=" thousand rows", leave=False, disable=None):
        uses = [(row, own, place) for row, own in rows if _is_new(hash(tuple(own)), seen) for place in range(len(own))]
        first_uses = [use for use in uses if _is_new(use[1][use[2]], seen)]
        wanted_uses = [use for use in uses if wanted in (None, use[1][use[2]].casefold())]
        for layer in keys:
            if places := first_uses if layer == 0 else wanted_uses:
                similarities = _unit(vectors_of(layer, places).astype(np.float32)) @ _unit(queries[layer])
                for index in np.argsort(-similarities, kind="stable")[:top]:
                    row, own, place = places[index]
                    neighbors[layer].append(Neighbor(float(similarities[index]), own[place], own, place, row))
                neighbors[layer] = sorted(neighbors[layer], key=lambda neighbor: -neighbor.similarity)[:top]
    return neighbors


def _text_chunks(texts: Rows, model: ElmoModel, tokenizer: ElmoTokenizer, pretokenized: bool) -> Iterator[Chunk]:
    """Sentences, `ROWS_AT_ONCE` at a time; only the vectors that are asked for are computed."""
    speller = Speller(tokenizer, boundary_words=not tokenizer.split_special_tokens)
    layers_of: dict[int, np.ndarray] = {}

    def vectors_of(layer: int | str, places: list[Place]) -> np.ndarray:
        if layer == 0:  # the character CNN's output twice
            characters = torch.from_numpy(speller.characters([words[position] for _, words, position in places]))
            with torch.inference_mode():
                half = model.char_encoder(characters.to(model.device)).float().cpu().numpy()
            return np.concatenate((half, half), axis=1)
        sentences = {row: words for row, words, _ in places}
        if layers_of.keys() != sentences.keys():
            layers_of.clear()
            arrays = embed(model, list(sentences.values()), tokenizer=tokenizer, layers="all", progress=False)
            layers_of.update(zip(sentences, arrays, strict=True))
        return np.stack([layers_of[row][layer, position] for row, _, position in places])

    indexed = enumerate(texts)
    while chunk := list(islice(indexed, ROWS_AT_ONCE)):
        split = tokenizer.split_into_words([text for _, text in chunk], pretokenized)
        yield [(row, words) for (row, _), words in zip(chunk, split, strict=True)], vectors_of


def _stored_chunks(chunks: Iterable[list[StoredRow]], keys: Sequence[int | str]) -> Iterator[Chunk]:
    for chunk in chunks:
        arrays = {row: array.reshape(len(keys), *array.shape[-2:]) for row, _, array in chunk}

        def vectors_of(layer: int | str, places: list[Place], arrays: dict[int, np.ndarray] = arrays) -> np.ndarray:
            return np.stack([arrays[row][keys.index(layer), position] for row, _, position in places])

        yield [(row, words) for row, words, _ in chunk], vectors_of


def _is_new(item: Any, seen: set[Any]) -> bool:
    """Whether an item is not among those that were seen, to which it is then added."""
    before = len(seen)
    seen.add(item)
    return len(seen) > before


@dataclass(frozen=True)
class LayerSimilarities:
    """The similarities of word vectors, for one word in each of several sentences.

    Args:
        uses: for each sentence, the word and the words next to it, such as `"river bank ."`.
        layers: `[layers]`, the cosine of the words' vectors in each layer, from 0 on; the mean over pairs of sentences.
        others: `[layers]`, the mean cosine of all other pairs of words in different sentences; NaN without such pairs.
        matrix: `[layers, sentences, sentences]`, the cosines of the words' vectors.
    """

    uses: list[str]
    layers: np.ndarray
    others: np.ndarray
    matrix: np.ndarray


def layer_similarities(
    model: ElmoModel | str | os.PathLike | None,
    sentences: Sequence[str | Sequence[str]],
    words: str | Sequence[str | int],
    *,
    tokenizer: ElmoTokenizer | None = None,
    pretokenized: bool = False,
) -> LayerSimilarities:
    """The similarity of words in two or more sentences, for each layer. [`plot_similarities`] draws the result.

    Args:
        model, tokenizer, pretokenized: as for [`nearest_neighbors`].
        sentences: two or more sentences, each text, which the tokenizer splits, or a list of words.
        words: for each sentence a word (its first occurrence) or the index of a word; or one word for all sentences.

    Raises:
        ValueError: the numbers of sentences and words differ, or a word is not in its sentence.
    """
    model, tokenizer = ensure_loaded(model, tokenizer)
    split = tokenizer.split_into_words(sentences, pretokenized)
    words = [words] * len(split) if isinstance(words, str) else words
    places = [positions_of(own, word)[0] for own, word in zip(split, words, strict=True)]
    unit = [_unit(layers) for layers in embed(model, split, tokenizer=tokenizer, layers="all", progress=False)]
    vectors = [own[:, place] for own, place in zip(unit, places, strict=True)]
    sums = [own.sum(axis=1) for own in unit]
    of_words, of_sentences = (np.einsum("slv,tlv->lst", each, each) for each in (vectors, sums))
    pairs = (slice(None), *np.triu_indices(len(split), 1))
    lengths = np.array([len(own) for own in split])
    others = np.full(len(of_words), np.nan)
    if (number := (np.outer(lengths, lengths)[pairs[1:]] - 1).sum()) > 0:
        others = (of_sentences[pairs].sum(axis=1) - of_words[pairs].sum(axis=1)) / number
    uses = [_use(own, place) for own, place in zip(split, places, strict=True)]
    return LayerSimilarities(uses, of_words[pairs].mean(axis=1), others, of_words)


def _use(words: list[str], place: int) -> str:
    return " ".join(words[max(place - 1, 0) : place + 2])


@dataclass(frozen=True)
class WordPlane:
    """The word vectors of sentences, projected on their first two principal components.

    Args:
        sentences: the words of each sentence.
        labels: for each sentence its words, or one label: a word and the words next to it.
        points: for each sentence the points `[labels, 2]`.
        explained: the share of the variance along each of the two axes.
        layer: the layer of the vectors.
    """

    sentences: list[list[str]]
    labels: list[list[str]]
    points: list[np.ndarray]
    explained: tuple[float, float]
    layer: int


def word_plane(
    model: ElmoModel | str | os.PathLike | None,
    sentences: Sequence[str | Sequence[str]],
    word: str | None = None,
    *,
    tokenizer: ElmoTokenizer | None = None,
    layer: int | None = None,
    pretokenized: bool = False,
) -> WordPlane:
    """The first two principal components of the vectors of all words of some sentences, or of one word in each of them.
    Along each axis, the coordinate with the largest absolute value is positive. [`plot_word_plane`] draws the result.

    Args:
        model, tokenizer, pretokenized: as for [`nearest_neighbors`].
        sentences: each text, which the tokenizer splits, or a list of words; blank sentences are left out.
        word: use only this word, at its first occurrence in each sentence; by default all words.
        layer: 0 (characters) to `num_hidden_layers`; by default the last one.

    Raises:
        ValueError: a sentence does not contain the word, or there are fewer than two words to compare.
    """
    model, tokenizer = ensure_loaded(model, tokenizer)
    split = [words for words in tokenizer.split_into_words(sentences, pretokenized) if words]
    layer = model.config.num_hidden_layers if layer is None else layer
    places = [list(range(len(words))) if word is None else positions_of(words, word)[:1] for words in split]
    if (count := sum(map(len, places))) < 2:
        raise ValueError(f"sentences have {count} words to draw, but two or more make a plane: give more sentences")
    arrays = embed(model, split, tokenizer=tokenizer, layers=layer, progress=False)
    vectors = np.concatenate([own[place] for own, place in zip(arrays, places, strict=True)]).astype(np.float64)
    u, s, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    points = u[:, :2] * s[:2]
    points *= np.sign(points[np.abs(points).argmax(axis=0), [0, 1]])
    shares = s[:2] ** 2 / max((s**2).sum(), np.finfo(np.float64).tiny)
    labels = split if word is None else [[_use(words, *place)] for words, place in zip(split, places, strict=True)]
    ends = np.cumsum([len(place) for place in places])[:-1]
    return WordPlane(split, labels, np.split(points, ends), (float(shares[0]), float(shares[1])), layer)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
