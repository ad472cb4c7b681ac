"""AG News: what vectors know of the classes, by logistic regression on a title's mean vector.

    python -m examples.ag_news.probe ../shared/data [--models NAME ...]

Accuracy over three folds of the titles that train: all layers of ELMos (those that ship, or others), GloVe's vectors,
both beside each other, and the best weighted sum of the log-probabilities of both classifiers, which is more than
either can hope for.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hf_elmo
from examples.ag_news.run import read
from examples.variants import GLOVE

MODELS = ("elmo-mini-en", "elmo-compact-en")
REGULARIZATION = (1e-3, 1e-2, 1e-1)  # the best one counts
WEIGHTS = (0, 0.05, 0.1, 0.2, 0.3, 0.5)  # of the classifier on ELMo


def log_probabilities(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """`[titles, classes]`, each title by a classifier that did not see it."""
    found = []
    for c in REGULARIZATION:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=500))
        found.append(cross_val_predict(classifier, vectors, labels, cv=3, method="predict_log_proba"))
    return max(found, key=lambda one: accuracy(one, labels))


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """In percent."""
    return 100 * float((scores.argmax(1) == labels).mean())


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", default=Path("../shared/data"), help="folder [../shared/data]")
    parser.add_argument("--models", nargs="+", default=MODELS, help="names or folders [those that ship]")
    args = parser.parse_args()
    data = args.data
    train = read(data, whole=False, quick=False)["train"]
    texts, labels = list(train["text"]), np.array(train["labels"])
    words = hf_elmo.load_model()[1].split_into_words(texts)
    known, vectors = hf_elmo.read_word_vectors(data / GLOVE, words={word for title in words for word in title})
    vector_of = dict(zip(known, vectors, strict=True))
    nothing = np.zeros(vectors.shape[1])
    glove = np.stack([np.mean([vector_of.get(w.lower(), nothing) for w in own] or [nothing], 0) for own in words])
    alone = log_probabilities(glove, labels)
    print("| | ELMo alone | beside GloVe's | best weighted sum |\n|---|---|---|---|")
    print(f"| GloVe's vectors alone | | {accuracy(alone, labels):.1f} | |")
    for name in args.models:
        model, tokenizer = hf_elmo.load_model(name)
        layers = hf_elmo.embed(model, texts, tokenizer=tokenizer, layers="all", progress=False)
        means = np.stack([one.mean(1).ravel() for one in layers])
        own = log_probabilities(means, labels)
        both = log_probabilities(np.concatenate((glove, means), axis=1), labels)
        best = max(accuracy(alone + weight * own, labels) for weight in WEIGHTS)
        print(f"| {name} | {accuracy(own, labels):.1f} | {accuracy(both, labels):.1f} | {best:.1f} |", flush=True)


if __name__ == "__main__":
    main()
