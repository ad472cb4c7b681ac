"""The matrix that maps the vectors of one language's ELMo to those of another's, from a dictionary."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy.linalg import orthogonal_procrustes

from hf_elmo import ElmoModel, embed
from hf_elmo.checkpoints.loading import ensure_loaded

Language = tuple[str | Path | ElmoModel, Sequence[str | Sequence[str]]]


def find_alignment(language: Language, target: Language, translations: Iterable[tuple[str, str]]) -> np.ndarray:
    """The orthogonal matrix `[2P, 2P]` that maps the vectors of a language's model to those of another's, for
    `convert --align`, by orthogonal Procrustes over the mean vectors of words and of their translations (Schuster et
    al. 2019, section 4).

    Args:
        language, target: each a model (or its folder or Hub id), whose mix gives the vectors, and texts.
        translations: pairs of a word and its translation, of which those are used that the texts have. With fewer pairs
            than 2P the matrix fits vectors only as far as they are sums of these words' vectors.
    """
    means: list[dict[str, np.ndarray]] = []
    for model, texts in (language, target):
        model, tokenizer = ensure_loaded(model, None)
        vectors: dict[str, list[np.ndarray]] = {}
        split = tokenizer.split_into_words(texts)
        for words, rows in zip(split, embed(model, split, tokenizer=tokenizer, progress=False), strict=True):
            for word, row in zip(words, rows, strict=True):
                vectors.setdefault(word, []).append(row)
        means.append({word: np.mean(rows, axis=0, dtype=np.float64) for word, rows in vectors.items()})
    pairs = [(means[0][a], means[1][b]) for a, b in translations if a in means[0] and b in means[1]]
    if not pairs:
        raise ValueError("translations has no pair of words that are in the texts: give more pairs, or more texts")
    return orthogonal_procrustes(*map(np.stack, zip(*pairs, strict=True)))[0].T
