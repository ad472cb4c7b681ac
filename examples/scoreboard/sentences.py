"""Tests of sentences: which of two is grammatical (BLiMP), classes of sentences (SentEval), and misspelled ones."""

import random
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hf_elmo
from hf_elmo.pretraining.data import ensure_language_models
from hf_elmo.utils.evaluation import batches, evaluation_mode

from .. import data
from .figures import Figure, Model, figure, over_folds

LanguageModel = tuple[hf_elmo.ElmoForPreTraining, hf_elmo.ElmoTokenizer]
TASKS = ("MR", "CR", "SUBJ", "MPQA", "TREC", "SST-2")
SHARES = {"clean": 0.0, "a typo in a quarter of the longer words": 0.25, "in half": 0.5, "in each": 1.0}
FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)  # shuffled: neighboring lines are of one product or film
LONGER = 4  # letters, from which a word may get a typo
OTHERS = {
    "words": TfidfVectorizer(token_pattern=r"\S+", sublinear_tf=True),
    "character n-grams": TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), min_df=2, sublinear_tf=True),
}


def blimp(model: LanguageModel, folder: Path | None, part: str, every: int = 1) -> Iterator[Figure]:
    """Percentage of pairs whose grammatical sentence is more probable: of all pairs, or, for the part "dev", of every
    tenth pair."""
    every *= 10 if part == "dev" else 1
    pairs = {name: rows[::every] for name, rows in data.blimp(folder).items()}
    rows = chain.from_iterable(pairs.values())
    differences = advantages(model, [(row["sentence_good"], row["sentence_bad"]) for row in rows])
    right = np.column_stack((differences, differences.sum(axis=1))) > 0  # forward, backward, both
    for title, column in zip(("forward", "backward", "both"), right.T, strict=True):
        yield figure("BLiMP", title, column)
    names = np.repeat(list(pairs), [len(rows) for rows in pairs.values()])
    for name in pairs:
        yield figure("BLiMP", f"forward, {name}", right[names == name, 0])


@torch.no_grad()
def advantages(model: LanguageModel, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """How much more probable the first sentence of each pair is than the second, in nats, by the forward and the
    backward language model: `[pairs, 2]`.

    To the words before the first difference the forward model gives the same probabilities in both sentences, and so
    does the backward model to those after the last: these, a third of all, are left out (see [`hf_elmo.score`])."""
    language_model, tokenizer = model
    _, encoder = ensure_language_models(language_model, tokenizer)
    rows = tokenizer.split_into_words([sentence for pair in pairs for sentence in pair])
    nll = np.zeros((len(rows), 2))
    with evaluation_mode(language_model):
        for batch in batches([len(words) + 2 for words in rows], 4096):
            inputs = encoder.sentences([rows[index] for index in batch], language_model.device)
            for labels, index in zip(inputs["labels"], batch, strict=True):
                own, other = rows[index], rows[index ^ 1]
                labels[: alike(own, other), 0] = -100
                labels[len(own) + 2 - alike(own[::-1], other[::-1]) :, 1] = -100
            nll[batch] = language_model.word_nll(**inputs)[0].double().sum(dim=1).cpu()
    return nll[1::2] - nll[::2]


def alike(first: Sequence[str], second: Sequence[str]) -> int:
    """The number of words with which both begin."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))))


def means(model: Model, texts: Sequence[str]) -> np.ndarray:
    """For each text the mean vector of each layer, side by side. The texts are tokenized: blanks separate words."""
    options = {"layers": "all", "pooling": "mean", "pretokenized": True, "progress": False}
    return hf_elmo.embed(model[0], texts, tokenizer=model[1], **options).reshape(len(texts), -1)


def classifier(sparse: bool) -> GridSearchCV:
    """Logistic regression, whose regularization is chosen by the accuracy over five folds."""
    if sparse:  # the coordinate descent of liblinear, which has two classes, is ten times as fast here
        one = LogisticRegression(solver="liblinear", dual=True, random_state=0)
        return GridSearchCV(OneVsRestClassifier(one), {"estimator__C": [1, 10, 100]}, cv=FOLDS)
    dense = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    return GridSearchCV(dense, {"logisticregression__C": [1e-4, 1e-3, 1e-2]}, cv=FOLDS)


def senteval(model: Model, folder: Path | None, part: str, every: int = 1) -> Iterator[Figure]:
    """Accuracy of logistic regression on mean vectors, on words and on character n-grams: on `part`, or, where the task
    has no such part, over the five folds of train that chose the regularization."""
    for task in TASKS:
        parts = {name: rows[::every] for name, rows in data.senteval(task, folder).items()}
        texts, labels = zip(*parts["train"], strict=True)
        tested, gold = zip(*parts.get(part, [("", 0)]), strict=True)
        for name, x, others in _inputs(model, texts, tested):
            fitted = classifier(name != "ELMo").fit(x, labels)
            if part in parts:
                yield figure("SentEval", f"{task}, {name}", fitted.predict(others) == gold)
            else:
                scores = [fitted.cv_results_[f"split{fold}_test_score"][fitted.best_index_] for fold in range(5)]
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
