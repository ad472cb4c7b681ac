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
from .figures import Figure, figure, over_folds

# The words of SemEval-2020 task 1 are all of DWUG EN but these, which its version 2 added.
NEW_WORDS = {"afternoon_nn", "bar_nn", "chef_nn", "heel_nn", "include_vb", "international_jj", "ocean_nn", "pick_vb"}
NEW_WORDS |= {"plate_nn"}
Model = tuple[hf_elmo.ElmoModel, hf_elmo.ElmoTokenizer]


def wic(model: Model, folder: Path | None, part: str) -> Iterator[Figure]:
    """Accuracy of a threshold on the cosine of the two uses, chosen on the parts before `part`."""
    rows = data.wic(folder)
    known = rows["train"] + (rows["dev"] if part == "test" else [])
    pairs = known + rows[part]
    vectors = vectors_of(*model, [Occurrence(*use, "") for pair, _ in pairs for use in pair])
    labels = np.array([label for _, label in pairs])
    for layer, of_layer in enumerate(vectors):
        first, second = normalize(of_layer).reshape(len(pairs), 2, -1).swapaxes(0, 1)
        cosines = (first * second).sum(1)
        candidates = np.unique(cosines[: len(known)])
        right = [(labels[: len(known)] == (cosines[: len(known)] >= one)).mean() for one in candidates]
        threshold = candidates[np.argmax(right)]
        yield figure("WiC", f"layer {layer}", (cosines >= threshold)[len(known) :] == labels[len(known) :])


def change(model: Model, folder: Path | None, part: str) -> Iterator[Figure]:
    """Spearman's correlation of distances between two periods with the change that people see (DWUG EN): the average
    pairwise distance (APD) and the distance of prototypes (PRT)."""
    uses, changes = data.dwug(folder)
    distances: dict[str, list[list[float]]] = {"APD": [], "PRT": []}  # of each word, for each layer
    for earlier, later in uses.values():
        vectors = vectors_of(*model, [Occurrence(*use, "") for use in (*earlier, *later)])
        halves = [(layer[: len(earlier)], layer[len(earlier) :]) for layer in vectors]
        distances["APD"].append([cdist(*both, "cosine").mean() for both in halves])
        distances["PRT"].append([cdist(a.mean(0)[None], b.mean(0)[None], "cosine").item() for a, b in halves])
    gold = np.array(list(changes.values()))
    for title, chosen in (("all words", uses), ("SemEval's", uses.keys() - NEW_WORDS)):
        is_chosen = [word in chosen for word in uses]
        for name, of_words in distances.items():
            for layer, column in enumerate(np.array(of_words)[is_chosen].T):
                what = f"{title} ({sum(is_chosen)}), {name}, layer {layer}"
                yield figure("meaning change", what, column, gold[is_chosen], of=lambda *x: spearmanr(*x).statistic)


def layers(model: Model, folder: Path | None, part: str) -> Iterator[Figure]:
    """Accuracy by layer of a linear probe (least squares) of parts of speech and of relation labels in sentences held
    out, and of the nearest neighbor's sense (Peters et al. 2018, section 5.3)."""
    sentences, tags, relations = zip(*data.dependencies(folder), strict=True)
    arrays = hf_elmo.embed(model[0], list(sentences), tokenizer=model[1], layers="all", progress=False)
    number = np.repeat(np.arange(len(sentences)), [len(words) for words in sentences])
    vectors = np.concatenate(arrays, axis=1)
    for title, labels in (("parts of speech", tags), ("relations", relations)):
        y = [label.partition(":")[0] for label in chain(*labels)]
        for layer, x in enumerate(vectors):
            scores = cross_val_score(RidgeClassifier(solver="cholesky"), x, y, groups=number, cv=GroupKFold(5))
            yield over_folds("layers", f"{title}, layer {layer}", scores)
    if folder is None:  # nltk has the files of word_senses.py
        return
    for file in sorted((folder / "wsd" / "senseval").glob("*.pos.gz")):
        occurrences = list(read_senseval(file))
        found = accuracies(vectors_of(*model, occurrences), occurrences)
        for layer in range(len(vectors)):
            accuracy = found[f"layer {layer}"]
            spread = (accuracy * (1 - accuracy) / len(occurrences)) ** 0.5
            yield Figure("layers", f"senses of {file.name.split('.')[0]}, layer {layer}", 100 * accuracy, 100 * spread)
