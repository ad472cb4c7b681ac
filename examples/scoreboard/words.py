"""Tests of words in sentences: same meaning or another (WiC), meanings that change, and what each layer says."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.preprocessing import normalize

import hf_elmo

from .. import data
from ..word_senses import Occurrence, accuracies, read_senseval, vectors_of
from .figures import Figure, Model, figure, over_folds

# The words of SemEval-2020 task 1 are all of DWUG EN but these, which a later version added.
ADDED = {"afternoon_nn", "bar_nn", "chef_nn", "grain_nn", "heel_nn", "include_vb", "maxim_nn", "pick_vb", "rally_nn"}


def wic(model: Model, folder: Path | None, part: str, every: int = 1) -> Iterator[Figure]:
    """Accuracy of a threshold on the cosine of the two uses by layer, and of the layer that is best on the parts before
    `part`, on which the thresholds are chosen."""
    parts = {name: rows[::every] for name, rows in data.wic(folder).items()}
    known = parts["train"] + (parts["dev"] if part == "test" else [])
    pairs = known + parts[part]
    labels = np.array([label for _, label in pairs])
    vectors = vectors_of(*model, [Occurrence(*use, "") for pair, _ in pairs for use in pair])
    found = []
    for layer, of_layer in enumerate(vectors):
        first, second = normalize(of_layer).reshape(len(pairs), 2, -1).swapaxes(0, 1)
        cosines = (first * second).sum(axis=1)
        candidates = np.unique(cosines[: len(known)])
        on_known = [(labels[: len(known)] == (cosines[: len(known)] >= one)).mean() for one in candidates]
        right = (cosines >= candidates[np.argmax(on_known)]) == labels
        found.append((max(on_known), right[len(known) :]))
        yield figure("WiC", f"layer {layer}", found[-1][1])
    yield figure("WiC", "the layer that is best on the other parts", max(found, key=lambda pair: pair[0])[1])


def change(model: Model, folder: Path | None, part: str, every: int = 1) -> Iterator[Figure]:
    """Spearman's correlation of distances between two periods with the change that people see (DWUG EN): the average
    pairwise distance (APD) and the distance of prototypes (PRT)."""
    uses, changes = data.dwug(folder)
    distances: dict[str, list[list[float]]] = {"APD": [], "PRT": []}  # of each word, for each layer
    for earlier, later in uses.values():
        first, second = (
            vectors_of(*model, [Occurrence(*use, "") for use in period[::every]]) for period in (earlier, later)
        )
        layers = list(zip(first, second, strict=True))
        distances["APD"].append([cdist(a, b, "cosine").mean() for a, b in layers])
        distances["PRT"].append([cdist(a.mean(0)[None], b.mean(0)[None], "cosine").item() for a, b in layers])
    gold = np.array(list(changes.values()))
    for title, chosen in (("all words", uses), ("SemEval's", uses.keys() - ADDED)):
        is_chosen = [word in chosen for word in uses]
        for name, of_words in distances.items():
            for layer, column in enumerate(np.array(of_words)[is_chosen].T):
                what = f"{title} ({sum(is_chosen)}), {name}, layer {layer}"
                yield figure("meaning change", what, column, gold[is_chosen], of=lambda *x: spearmanr(*x).statistic)


def layers(model: Model, folder: Path | None, part: str, every: int = 1) -> Iterator[Figure]:
    """Accuracy by layer of a linear probe (least squares) of parts of speech and of relation labels in sentences held
    out, and of the nearest neighbor's sense (Peters et al. 2018, section 5.3)."""
    sentences, tags, relations = zip(*data.dependencies(folder)[::every], strict=True)
    arrays = hf_elmo.embed(model[0], list(sentences), tokenizer=model[1], layers="all", progress=False)
    number = np.repeat(np.arange(len(sentences)), [len(words) for words in sentences])
    vectors = np.concatenate(arrays, axis=1)
    for title, labels in (("parts of speech", tags), ("relations", relations)):
        y = [label.partition(":")[0] for label in chain(*labels)]
        for layer, x in enumerate(vectors):
            scores = cross_val_score(RidgeClassifier(solver="cholesky"), x, y, groups=number, cv=GroupKFold(5))
            yield over_folds("layers", f"{title}, layer {layer}", scores)
    for file in data.senseval(folder):
        occurrences = list(read_senseval(file))[::every]
        found = accuracies(vectors_of(*model, occurrences), occurrences)
        for name in ["most frequent", *(f"layer {layer}" for layer in range(len(vectors)))]:
            accuracy = found[name]
            spread = (accuracy * (1 - accuracy) / len(occurrences)) ** 0.5
            yield Figure("layers", f"senses of {file.name.partition('.')[0]}, {name}", 100 * accuracy, 100 * spread)
