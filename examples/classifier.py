"""Classes of texts by word vectors, a BiLSTM and a classifier, with and without ELMo: rows of several comparisons.

Word vectors that are learned from the training texts, and GloVe's, frozen and trained, each alone and beside ELMo,
`[x; ELMo]`; a bag of words beside them. The rows of a table differ in nothing else. The biLM is frozen: its layers are
computed once, for all rows and seeds.
"""

import re
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from datasets import Dataset
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_elmo
from examples.comparison import Results, Run, bar_chart, gain, table, took
from examples.variants import GLOVE, VARIANTS, Variant, rows_of_table

HEAD = {"encoder_type": "bilstm", "encoder_hidden_size": 100, "classifier_pooling": "max"}
SETTINGS = {"num_train_epochs": 6, "per_device_train_batch_size": 32, "learning_rate": 2e-3}
# Beside a vector of 50 numbers the 512 of ELMo start small: on folds of AG News' titles that train 0.4 to 0.8 points
# more.
ELMO = Variant(rates={"mix": 1e-3}, gamma=0.1, saved=True)
KINDS = {"embedding": False, "GloVe, frozen": True, "GloVe, trained": False}  # of word vectors; whether frozen
BAG = "bag of words"
REGULARIZATION = (1, 3, 10, 30, 100)  # of a bag of words: the best on dev counts

Parts = Mapping[str, Dataset]


def in_parts(train: list[tuple[str, int]], test: list[tuple[str, int]]) -> Parts:
    """Rows of `text` and `labels`: a tenth of those that train is held out as `dev`."""
    parts = {"train": [row for i, row in enumerate(train) if i % 10], "dev": train[::10], "test": test}
    return {
        name: Dataset.from_list([{"text": text, "labels": label} for text, label in part])
        for name, part in parts.items()
    }


def rows(parts: Parts, classes: Mapping[int, str], args: Namespace, saved: Path) -> dict[str, Callable[[int], Run]]:
    """The rows of a table, each a function of the seed; the models with ELMo go into the folder `saved`."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    elmo = AutoModelForSequenceClassification.from_pretrained(args.model, dtype="float32")
    tokenized = {part: texts.map(lambda row: tokenizer(row["text"])) for part, texts in parts.items()}
    stored = {part: hf_elmo.store_layers(elmo, texts, folder=args.out / "layers") for part, texts in tokenized.items()}
    learned = hf_elmo.count_words(tokenizer, parts["train"]["text"], min_count=2, lowercase=True)
    found = hf_elmo.count_words(tokenizer, [text for texts in parts.values() for text in texts["text"]])
    words, glove = hf_elmo.read_word_vectors(args.data / GLOVE, words=found)
    made: dict[str, Callable[[int], Run]] = {BAG: partial(bag_of_words, parts)}
    for kind, frozen in KINDS.items():
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        tokenizer.words = learned if kind == "embedding" else words
        numbered = {
            part: layers.add_column("word_vector_ids", tokenizer(list(layers["text"]))["word_vector_ids"])
            for part, layers in stored.items()
        }
        made |= rows_of_table(
            AutoModelForSequenceClassification,
            {**HEAD, "id2label": dict(classes), "freeze_word_vectors": frozen},
            tokenizer,
            None if kind == "embedding" else glove,
            numbered,
            {kind: VARIANTS[""], kind + " + ELMo": ELMO},
            args,
            saved / re.sub(r"\W+", "_", kind.lower()),
            **SETTINGS,
        )
    return made


def bag_of_words(parts: Parts, seed: int) -> Run:
    """Logistic regression on the words and the pairs of words of a text, by their tf-idf: the same for each `seed`."""
    start = time.perf_counter()
    train, dev, test = (parts[part] for part in ("train", "dev", "test"))
    fitted = []
    for c in REGULARIZATION:
        features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]+")
        pipeline = make_pipeline(features, LogisticRegression(C=c, max_iter=1000))
        fitted.append(pipeline.fit(list(train["text"]), list(train["labels"])))
    best = max(fitted, key=lambda one: one.score(list(dev["text"]), list(dev["labels"])))
    predicted = best.predict(list(test["text"]))
    scores = {
        "accuracy": accuracy_score(test["labels"], predicted),
        "macro_f1": f1_score(test["labels"], predicted, average="macro"),
    }
    weights = best[-1]
    return Run(scores, time.perf_counter() - start, weights.coef_.size + weights.intercept_.size)


def show(
    name: str,
    parts: Parts,
    results: Results,
    label: str,
    chart: Path,
    start: tuple[float, float],
    lowest: float,
) -> None:
    """Prints a table, what ELMo adds to each kind of vectors and the time since `start` (`clock()`); draws the chart,
    whose axis is `label` and begins at `lowest`."""
    print(f"{name}: {', '.join(f'{len(rows):,} {part}' for part, rows in parts.items())}\n")
    print(table(results, {"accuracy": "accuracy", "macro_f1": "macro F1"}), end="\n\n")
    for alone in KINDS:
        print(f"- {gain(results, alone, alone + ' + ELMo')}")
    print(f"- {took(start)}\n", flush=True)
    bar_chart(results, "accuracy", label, chart, start=lowest)
