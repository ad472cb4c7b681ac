"""Tests of sentences: which of two is grammatical (BLiMP), classes of sentences (SentEval), and misspelled ones."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hf_elmo

from .. import data
from .figures import Figure, Model, figure, over_folds

TASKS = ("MR", "CR", "SUBJ", "MPQA", "TREC", "SST-2")
SHARES = {"clean": 0.0, "a typo in a quarter of the longer words": 0.25, "in half": 0.5, "in each": 1.0}
LONGER = 4  # letters, from which a word may get a typo
OTHERS = {
    "words": TfidfVectorizer(token_pattern=r"\S+", sublinear_tf=True),
    "character n-grams": TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), min_df=2, sublinear_tf=True),
}


def blimp(
    model: tuple[hf_elmo.ElmoForPreTraining, hf_elmo.ElmoTokenizer], folder: Path | None, part: str, every: int = 1
) -> Iterator[Figure]:
    """Percentage of pairs whose grammatical sentence is more probable: of all pairs, or, for the part "dev", of every
    tenth pair."""
    every *= 10 if part == "dev" else 1
    pairs = {name: rows[::every] for name, rows in data.blimp(folder).items()}
    texts = [row[key] for rows in pairs.values() for row in rows for key in ("sentence_good", "sentence_bad")]
    scores = hf_elmo.score(model[0], texts, tokenizer=model[1])
    sums = np.array([(np.nansum(one.forward), np.nansum(one.backward)) for one in scores]).reshape(-1, 2, 2)
    sums = np.concatenate((sums, sums.sum(axis=2, keepdims=True)), axis=2)  # [pairs, good and bad, directions and both]
    right = sums[:, 0] > sums[:, 1]
    for column, title in enumerate(("forward", "backward", "both")):
        yield figure("BLiMP", title, right[:, column])
    names = np.repeat(list(pairs), [len(rows) for rows in pairs.values()])
    for name in pairs:
        yield figure("BLiMP", f"forward, {name}", right[names == name, 0])


def means(model: Model, texts: Sequence[str]) -> np.ndarray:
    """For each text the mean vector of each layer, side by side. The texts are tokenized: blanks separate words."""
    options = {"layers": "all", "pooling": "mean", "pretokenized": True, "progress": False}
    return hf_elmo.embed(model[0], texts, tokenizer=model[1], **options).reshape(len(texts), -1)


def classifier(sparse: bool) -> GridSearchCV:
    """Logistic regression, whose regularization is chosen by cross-validation."""
    steps = [] if sparse else [StandardScaler()]
    strengths = [1, 10, 100] if sparse else [1e-4, 1e-3, 1e-2]
    pipeline = make_pipeline(*steps, LogisticRegression(max_iter=200))
    return GridSearchCV(pipeline, {"logisticregression__C": strengths}, cv=3)


def senteval(model: Model, folder: Path | None, part: str, every: int = 1) -> Iterator[Figure]:
    """Accuracy of logistic regression on mean vectors, on words and on character n-grams: on `part`, or, where the task
    has no such part, over five folds of train."""
    for task in TASKS:
        parts = {name: rows[::every] for name, rows in data.senteval(task, folder).items()}
        texts, labels = zip(*parts["train"], strict=True)
        tested, gold = zip(*parts.get(part, [("", 0)]), strict=True)
        for name, x, others in _inputs(model, texts, tested):
            if part in parts:
                right = classifier(name != "ELMo").fit(x, labels).predict(others) == gold
                yield figure("SentEval", f"{task}, {name}", right)
            else:
                scores = cross_val_score(classifier(name != "ELMo"), x, labels, cv=5)
                yield over_folds("SentEval", f"{task}, {name}", scores)


def _inputs(model: Model, known: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """The name of each kind of input, and the inputs of the texts."""
    yield "ELMo", means(model, known), means(model, others)
    for name, vectorizer in OTHERS.items():
        yield name, vectorizer.fit_transform(known), vectorizer.transform(others)


def typos(model: Model, folder: Path | None, part: str, every: int = 1) -> Iterator[Figure]:
    """Accuracy on SST-2's `part` with misspelled words, by classifiers of clean sentences."""
    parts = data.senteval("SST-2", folder)
    texts, labels = zip(*parts["train"][::every], strict=True)
    own, gold = zip(*parts[part][::every], strict=True)
    damaged = [misspelled(text, share) for share in SHARES.values() for text in own]
    for name, x, others in _inputs(model, texts, damaged):
        predicted = classifier(name != "ELMo").fit(x, labels).predict(others).reshape(len(SHARES), -1)
        for title, row in zip(SHARES, predicted, strict=True):
            yield figure("typos", f"{title}, {name}", row == gold)


def misspelled(text: str, share: float) -> str:
    """The text with a typo in a share of its longer words: letters exchanged, or one left out, doubled or replaced."""
    chance = random.Random(text)
    words = text.split(" ")
    for index, word in enumerate(words):
        if word.isalpha() and len(word) >= LONGER and chance.random() < share:
            place = chance.randrange(len(word) - 1)
            first, second = word[place : place + 2]
            other = chance.choice(ascii_lowercase.replace(first.lower(), ""))
            typo = chance.choice([second + first, second, first + first + second, other + second])
            words[index] = word[:place] + typo + word[place + 2 :]
    return " ".join(words)
