"""How the vectors of words lie to each other: similarities by layer, and a picture of them in the plane."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..embedding.corpus import embed
from ..modeling_elmo import ElmoModel
from ..tokenization_elmo import ElmoTokenizer
from .neighbors import position_of


@dataclass(frozen=True)
class LayerSimilarities:
    """How similar the vectors of two words are.

    Args:
        words: both, as written in their sentences.
        layers: `[layers]`, the cosine of their vectors in each, from 0, the characters.
        others: `[layers]`, the mean cosine of all other pairs of a word of the first sentence and one of the second, to
            compare with; NaN where there is no other pair.
    """

    words: tuple[str, str]
    layers: np.ndarray
    others: np.ndarray


def layer_similarities(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sentences: Sequence[str | Sequence[str]],
    words: Sequence[str | int],
    pretokenized: bool = False,
) -> LayerSimilarities:
    """
    The similarity of a word in one sentence with a word in another, for each layer of the biLM.

    Args:
        model: an ELMo, or a model with one inside, on the device where it is to run.
        tokenizer: splits and spells words.
        sentences: two, each text, which the tokenizer splits, or a list of words.
        words: of each sentence a word (its first occurrence) or the index of one.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Returns:
        [`LayerSimilarities`].

    Raises:
        ValueError: there are not two sentences and two words, or a word is not in its sentence.
    """
    if not len(sentences) == len(words) == 2 or isinstance(sentences, str) or isinstance(words, str):
        raise ValueError(f"sentences and words must be two each, but are {sentences!r:.60} and {words!r:.60}.")
    split = tokenizer.split_into_words(sentences, pretokenized)
    first, second = (position_of(own, word) for own, word in zip(split, words, strict=True))
    unit = [_unit(layers) for layers in _all_layers(model, tokenizer, split)]
    cosines = np.einsum("lfv,lsv->lfs", *unit)
    others = np.full(len(cosines), np.nan)
    if cosines[0].size > 1:
        others = (cosines.sum(axis=(1, 2)) - cosines[:, first, second]) / (cosines[0].size - 1)
    return LayerSimilarities((split[0][first], split[1][second]), cosines[:, first, second], others)


@dataclass(frozen=True)
class WordPlane:
    """The vectors of the words of sentences in the plane in which they differ most.

    Args:
        sentences: their words.
        points: for each sentence `[words, 2]`.
        explained: the share of the variance that each of the two axes has.
        layer: the layer that the vectors are of.
    """

    sentences: list[list[str]]
    points: list[np.ndarray]
    explained: tuple[float, float]
    layer: int


def word_plane(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sentences: Sequence[str | Sequence[str]],
    layer: int | None = None,
    pretokenized: bool = False,
) -> WordPlane:
    """
    The first two principal components of the vectors of all words of some sentences.

    Each axis points where its largest coordinate is positive, so that the picture is the same each time.

    Args:
        model, tokenizer: as for [`layer_similarities`].
        sentences: each text, which the tokenizer splits, or a list of words; blank ones are left out.
        layer: 0 (characters) to `num_hidden_layers`; by default the last one.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Returns:
        [`WordPlane`].

    Raises:
        ValueError: there is no such layer, there are fewer than three words, or `sentences` is one string.
    """
    split = [words for words in tokenizer.split_into_words(sentences, pretokenized) if words]
    last = model.config.num_hidden_layers
    layer = last if layer is None else layer
    if not 0 <= layer <= last:
        raise ValueError(f"layer is {layer}, but the model has the layers 0 to {last}.")
    if sum(map(len, split)) < 3:
        raise ValueError(f"a plane needs three words or more, but the sentences have {sum(map(len, split))}.")
    vectors = np.concatenate([layers[layer] for layers in _all_layers(model, tokenizer, split)]).astype(np.float64)
    u, s, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    points = u[:, :2] * s[:2]
    points *= np.sign(points[np.abs(points).argmax(axis=0), [0, 1]])
    shares = s[:2] ** 2 / max((s**2).sum(), np.finfo(np.float64).tiny)
    ends = np.cumsum([len(words) for words in split])[:-1]
    return WordPlane(split, np.split(points, ends), (float(shares[0]), float(shares[1])), layer)


def _all_layers(model: ElmoModel, tokenizer: ElmoTokenizer, sentences: list[list[str]]) -> list[np.ndarray]:
    """`[layers, words, 2P]` of each sentence."""
    return embed(model, sentences, tokenizer=tokenizer, layers="all", progress=False)


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


__all__ = ["LayerSimilarities", "WordPlane", "layer_similarities", "word_plane"]
