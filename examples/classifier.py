"""Classes of texts by word vectors, a BiLSTM and a classifier, with and without ELMo: the rows of several comparisons.

The rows of a table are a bag of words, and three kinds of word vectors (learned from the training texts, GloVe's
frozen, and GloVe's trained), each alone and with ELMo, `[x; ELMo]`. The rows of word vectors differ in nothing else.
The biLM is frozen: its layers are computed once, for all rows and seeds.
"""

import re
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
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
ELMO = Variant(rates={"mix": 1e-3}, gamma=0.1, saved=True)
FROZEN = {"embedding": False, "GloVe, frozen": True, "GloVe, trained": False}  # the kinds of word vectors
PAIRS = [(kind, f"{kind} + ELMo") for kind in FROZEN]
BAG = "bag of words"
WORDS = (TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]+"),)
REGULARIZATION = (1, 3, 10, 30, 100)  # of a bag of words: the best on dev counts

Parts = Mapping[str, Dataset]


def dataset(rows: Sequence[tuple[str, int]]) -> Dataset:
    """Rows of `text` and `labels`."""
    return Dataset.from_list([{"text": text, "labels": label} for text, label in rows])


def in_parts(train: Sequence[tuple[str, int]], test: Sequence[tuple[str, int]]) -> Parts:
    """Rows of `text` and `labels`; a tenth of the training rows is held out as `dev`."""
    parts = {"train": [row for i, row in enumerate(train) if i % 10], "dev": train[::10], "test": test}
    return {name: dataset(part) for name, part in parts.items()}


def rows(parts: Parts, classes: Sequence[str], args: Namespace, saved: Path) -> Rows:
    """The rows of a table, each a function of the seed; the models with ELMo are saved in the folder `saved`."""
    stored, words = with_layers(parts, args), [text for texts in parts.values() for text in texts["text"]]
    words = hf_elmo.count_words(AutoTokenizer.from_pretrained(args.model), words)
    made: Rows = {BAG: partial(bag_of_words, parts)}
    for kind, frozen in FROZEN.items():
        learned = kind == "embedding"
        tokenizer, vectors = (with_learned(args, parts["train"]), None) if learned else with_glove(args, words)
        fields = {**HEAD, "id2label": dict(enumerate(classes)), "freeze_word_vectors": frozen}
        encoded, folder = numbered(stored, tokenizer), saved / re.sub(r"\W+", "_", kind.lower())
        how = {"variants": {kind: ALONE, f"{kind} + ELMo": ELMO}, **SETTINGS}
        model = AutoModelForSequenceClassification
        made |= rows_of_table(model, fields, tokenizer, vectors, encoded, args, folder, **how)
    return made


def with_layers(parts: Parts, args: Namespace) -> Parts:
    """The layers of the frozen biLM, computed once for all rows and seeds."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    elmo = AutoModelForSequenceClassification.from_pretrained(args.model, dtype="float32")
    return {
        part: hf_elmo.store_layers(elmo, texts.map(lambda row: tokenizer(row["text"])), folder=args.out / "layers")
        for part, texts in parts.items()
    }


def with_learned(args: Namespace, train: Dataset) -> hf_elmo.ElmoTokenizer:
    """The tokenizer of `--model` with the words that occur twice in the texts that train."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.words = hf_elmo.count_words(tokenizer, train["text"], min_count=2, lowercase=True)
    return tokenizer


def numbered(stored: Parts, tokenizer: hf_elmo.ElmoTokenizer) -> Parts:
    """The layers with the numbers of the words that have a vector."""
    return {
        part: layers.add_column("word_vector_ids", tokenizer(list(layers["text"]))["word_vector_ids"])
        for part, layers in stored.items()
    }


def bag_of_words(
    parts: Parts,
    seed: int,
    vectorizers: Sequence[Any] = WORDS,
    strengths: Sequence[float] = REGULARIZATION,
    column: str = "text",
) -> Run:
    """Logistic regression on the words and the pairs of words of a text by their tf-idf, or on what `vectorizers` make
    of a column, the best on dev: the same for each `seed`."""
    start = time.perf_counter()
    inputs = {name: list(part[column]) for name, part in parts.items()}
    labels = {name: list(part["labels"]) for name, part in parts.items()}
    fitted = []
    for vectorizer in map(clone, vectorizers):
        train, dev = vectorizer.fit_transform(inputs["train"]), vectorizer.transform(inputs["dev"])
        for c in strengths:
            model = LogisticRegression(C=c, max_iter=1000).fit(train, labels["train"])
            fitted.append((model.score(dev, labels["dev"]), vectorizer, model))
    _, vectorizer, model = max(fitted, key=itemgetter(0))
    scores = {}
    for name in parts.keys() - {"train", "dev"}:
        predicted = model.predict(vectorizer.transform(inputs[name]))
        prefix = f"{name}_".removeprefix("test_")
        scores[f"{prefix}accuracy"] = accuracy_score(labels[name], predicted)
        scores[f"{prefix}macro_f1"] = f1_score(labels[name], predicted, average="macro")
    return Run(scores, time.perf_counter() - start, model.coef_.size + model.intercept_.size)
