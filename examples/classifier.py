"""Classes of texts by word vectors, a BiLSTM and a classifier, with and without ELMo: the rows of several comparisons.

The rows of a table are a bag of words, and three kinds of word vectors (learned from the training texts, GloVe's
frozen, and GloVe's trained), each alone and with ELMo, `[x; ELMo]`. The rows of word vectors differ in nothing else.
"""

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from datasets import Dataset
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_elmo
from examples.comparison import ALONE, Rows, Run, Variant, rows_of_table, with_glove

HEAD = {"encoder_type": "bilstm", "encoder_hidden_size": 100, "classifier_pooling": "max", "classifier_dropout": 0.5}
SETTINGS = {"num_train_epochs": 6, "per_device_train_batch_size": 32, "learning_rate": 2e-3}
# Beside a vector of 50 numbers, the 512 of ELMo start small: this gains 0.4 to 0.8 points on folds of the train titles.
ELMO = Variant(rates={"mix": 1e-3}, gamma=0.1)
FROZEN = {"embedding": False, "GloVe, frozen": True, "GloVe, trained": False}  # the kinds of word vectors
PAIRS = [(kind, f"{kind} + ELMo") for kind in FROZEN]
BAG = "bag of words"
WORDS = (TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]+"),)
REGULARIZATION = (1, 3, 10, 30, 100)  # of a bag of words: the best on dev counts

Parts = Mapping[str, Sequence[tuple[str, int]]]  # texts and labels of train, dev and test


def encode(parts: Mapping[str, Sequence[tuple]], tokenizer: hf_elmo.ElmoTokenizer, **how: Any) -> dict[str, Dataset]:
    """A row for each text or pair of texts with its label; `how` are arguments of the tokenizer."""
    encoded = {}
    for part, rows in parts.items():
        *texts, labels = (list(column) for column in zip(*rows, strict=True))
        encoded[part] = Dataset.from_dict({**tokenizer(*texts, **how), "labels": labels})
    return encoded


def rows(parts: Parts, classes: Sequence[str], args: Namespace) -> Rows:
    """The rows of a table, each a function of the seed."""
    made: Rows = {BAG: partial(bag_of_words, parts)}
    learned = AutoTokenizer.from_pretrained(args.model)  # with the words that occur twice in the texts that train
    learned.words = hf_elmo.count_words(learned, [text for text, _ in parts["train"]], min_count=2, lowercase=True)
    glove = with_glove(args, (text for part in parts.values() for text, _ in part))
    for kind, frozen in FROZEN.items():
        tokenizer, vectors = (learned, None) if kind == "embedding" else glove
        fields = {**HEAD, "id2label": dict(enumerate(classes)), "freeze_word_vectors": frozen}
        how = {"variants": {kind: ALONE, f"{kind} + ELMo": ELMO}, **SETTINGS}
        encoded = encode(parts, tokenizer)
        made |= rows_of_table(AutoModelForSequenceClassification, fields, tokenizer, vectors, encoded, args, **how)
    return made


def bag_of_words(
    parts: Parts, seed: int, vectorizers: Sequence[Any] = WORDS, strengths: Sequence[float] = REGULARIZATION
) -> Run:
    """Logistic regression on the words and the pairs of words of a text by their tf-idf, or on what `vectorizers` make
    of it, the best on dev: the same for each `seed`."""
    start = time.perf_counter()
    tests = {name: tuple(zip(*part, strict=True)) for name, part in parts.items()}
    (texts, labels), (dev_texts, dev_labels) = tests.pop("train"), tests.pop("dev")
    fitted = []
    for vectorizer in map(clone, vectorizers):
        train, dev = vectorizer.fit_transform(texts), vectorizer.transform(dev_texts)
        for c in strengths:
            model = LogisticRegression(C=c, max_iter=1000).fit(train, labels)
            fitted.append((model.score(dev, dev_labels), vectorizer, model))
    _, vectorizer, model = max(fitted, key=itemgetter(0))
    scores = {}
    for name, (test_texts, test_labels) in tests.items():
        predicted = model.predict(vectorizer.transform(test_texts))
        prefix = f"{name}_".removeprefix("test_")
        scores[f"{prefix}accuracy"] = accuracy_score(test_labels, predicted)
        scores[f"{prefix}macro_f1"] = f1_score(test_labels, predicted, average="macro")
    return Run(scores, time.perf_counter() - start, model.coef_.size + model.intercept_.size)
