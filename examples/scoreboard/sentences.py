"""Tests of sentences: which of two is grammatical (BLiMP), classes of sentences (SentEval), and misspelled ones."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hf_elmo

from .. import data
from .figures import Figure, figure, over_folds
from .words import Model

TASKS = ("MR", "CR", "SUBJ", "MPQA", "TREC", "SST-2")
SHARES = {"clean": 0.0, "a typo in a quarter of the longer words": 0.25, "in half": 0.5, "in each": 1.0}
LONGER = 4  # letters, from which a word may get a typo
OTHERS = {
    "words": TfidfVectorizer(token_pattern=r"\S+", sublinear_tf=True),
    "character n-grams": TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), min_df=2, sublinear_tf=True),
}


def blimp(
    model: hf_elmo.ElmoForPreTraining, tokenizer: hf_elmo.ElmoTokenizer, folder: Path | None, part: str
) -> Iterator:
    """Percentage of pairs whose grammatical sentence is more probable; of `part` "dev" every tenth pair."""
    pairs = data.blimp(folder)
    if part == "dev":
        pairs = {name: rows[::10] for name, rows in pairs.items()}
    right: dict[str, list[np.ndarray]] = {}
    for name, rows in pairs.items():
        texts = [row[key] for row in rows for key in ("sentence_good", "sentence_bad")]
        scores = hf_elmo.score(model, texts, tokenizer=tokenizer, words_per_batch=8192)
        sums = np.array([(np.nansum(one.forward), np.nansum(one.backward)) for one in scores]).reshape(-1, 2, 2)
        sums = np.concatenate((sums, sums.sum(2, keepdims=True)), axis=2)  # the third: both language models
        right[name] = sums[:, 0] > sums[:, 1]
    for column, title in enumerate(("forward", "backward", "both")):
        yield figure("BLiMP", title, np.concatenate(list(right.values()))[:, column])
    for name, of_pairs in right.items():
        yield figure("BLiMP", f"forward, {name}", of_pairs[:, 0])


def means(model: Model, texts: Sequence[str]) -> np.ndarray:
    """For each text the mean vector of each layer, side by side. The texts are tokenized: blanks separate words."""
    rows = hf_elmo.embed(
        model[0], texts, tokenizer=model[1], layers="all", pooling="mean", pretokenized=True, progress=False
    )
    return np.stack([row.reshape(-1) for row in rows])


def classifier(sparse: bool) -> GridSearchCV:
    """Logistic regression, whose regularization is chosen by cross-validation."""
    steps = (
        [LogisticRegression(C=1.0, max_iter=200)] if sparse else [StandardScaler(), LogisticRegression(max_iter=200)]
    )
    strengths = [1, 10, 100] if sparse else [1e-4, 1e-3, 1e-2]
    return GridSearchCV(make_pipeline(*steps), {"logisticregression__C": strengths}, cv=3, n_jobs=2)


def senteval(model: Model, folder: Path | None, part: str) -> Iterator[Figure]:
    """Accuracy of logistic regression on mean vectors, on words and on character n-grams: over five folds, or, where
    the task has a test part, on `part`."""
    for task in TASKS:
        parts = data.senteval(task, folder)
        texts, labels = map(list, zip(*parts["train"], strict=True))
        tested = parts.get(part, []) if part in parts else []
        for name, x, others in _inputs(model, texts, [text for text, _ in tested]):
            if tested:
                right = classifier(name != "ELMo").fit(x, labels).predict(others) == [label for _, label in tested]
                yield figure("SentEval", f"{task}, {name}", right)
            else:
                scores = cross_val_score(classifier(name != "ELMo"), x, labels, cv=5)
                yield over_folds("SentEval", f"{task}, {name}", scores)


def _inputs(model: Model, known: list[str], others: list[str]) -> Iterator[tuple[str, csr_matrix | np.ndarray, object]]:
    both = means(model, known + others)
    yield "ELMo", both[: len(known)], both[len(known) :]
    for name, vectorizer in OTHERS.items():
        yield name, vectorizer.fit_transform(known), vectorizer.transform(others) if others else None


def typos(model: Model, folder: Path | None, part: str) -> Iterator[Figure]:
    """Accuracy on SST-2's `part` with misspelled words, by classifiers of clean sentences."""
    parts = data.senteval("SST-2", folder)
    texts, labels = map(list, zip(*parts["train"], strict=True))
    own, gold = map(list, zip(*parts[part], strict=True))
    damaged = {name: [misspelled(text, share) for text in own] for name, share in SHARES.items()}
    every = [text for rows in damaged.values() for text in rows]
    for name, x, others in _inputs(model, texts, every):
        predicted = classifier(name != "ELMo").fit(x, labels).predict(others).reshape(len(damaged), -1)
        for title, row in zip(damaged, predicted, strict=True):
            yield figure("typos", f"{title}, {name}", row == gold)


def misspelled(text: str, share: float) -> str:
    """The text with a typo in a share of its longer words: two letters exchanged, one left out, doubled or replaced."""
    chance = random.Random(text)
    words = text.split(" ")
    for index, word in enumerate(words):
        if word.isalpha() and len(word) >= LONGER and chance.random() < share:
            place = chance.randrange(len(word) - 1)
            letter = chance.choice("abcdefghijklmnopqrstuvwxyz")
            middle = chance.choice(
                [word[place + 1] + word[place], word[place + 1], word[place] * 2 + word[place + 1], letter]
            )
            words[index] = word[:place] + middle + word[place + 2 :]
    return " ".join(words)
