"""Word sense disambiguation by nearest neighbor: does a word's vector tell its sense?

    python -m nltk.downloader -d outputs/nltk senseval
    python examples/word_senses.py outputs/nltk/corpora/senseval/{line,interest}.pos

Each occurrence of a word gets the sense of the occurrence with the nearest vector (1-NN, cosine), for each layer of the
biLM and means of layers, in 5-fold cross-validation, beside the most frequent sense. Equal sentences are in the same
fold. If several vectors are equally near, as all of one spelling are in layer 0, each counts equally: the result is the
mean accuracy of a random choice among them. Files are Senseval's as nltk distributes them. Needs scikit-learn.
"""

import argparse
import gzip
import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.preprocessing import normalize

import hf_elmo

FOLDS = 5
TIE = 1e-6  # cosines that differ by less, a few roundings of float32, are equal
SENTENCES_AT_ONCE = 500  # bounds the memory for the vectors of the other words

# The files are not well-formed XML.
_INSTANCE = re.compile(r"<instance.*?senseid=\"([^\"]+)\".*?<context>(.*?)</context>", re.DOTALL)
_WORD = re.compile(r"(<head>\s*)?<wf pos=(?:\"[^\"]*\"|'[^']*')>(.*?)</wf>")


class Occurrence(NamedTuple):
    """A word in a sentence, and its sense."""

    words: list[str]
    position: int
    sense: str


def read_senseval(path: Path) -> Iterator[Occurrence]:
    """The occurrences of a file, each with the one sentence that contains the word."""
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8")
    for sense, context in _INSTANCE.findall(text):
        sentence = next(line for line in context.split("\n") if "<head>" in line)
        heads, words = zip(*_WORD.findall(sentence), strict=True)
        position = next(number for number, head in enumerate(heads) if head)
        yield Occurrence([html.unescape(word) for word in words], position, sense)


def vectors_of(
    model: hf_elmo.ElmoModel, tokenizer: hf_elmo.ElmoTokenizer, occurrences: Sequence[Occurrence]
) -> np.ndarray:
    """The vectors of the occurrences, `[layers, occurrences, 2P]`."""
    found = []
    for start in range(0, len(occurrences), SENTENCES_AT_ONCE):
        part = occurrences[start : start + SENTENCES_AT_ONCE]
        arrays = hf_elmo.embed(model, [one.words for one in part], tokenizer=tokenizer, layers="all", progress=False)
        found += [array[:, one.position] for array, one in zip(arrays, part, strict=True)]
    return np.stack(found, axis=1)


def accuracies(vectors: np.ndarray, occurrences: Sequence[Occurrence]) -> dict[str, float]:
    """Accuracies of the most frequent sense, of each layer, and of means of layers."""
    senses = np.array([one.sense for one in occurrences])
    _, sentence = np.unique([" ".join(one.words) for one in occurrences], return_inverse=True)
    folds = list(StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0).split(senses, senses, groups=sentence))
    frequent = cross_val_predict(DummyClassifier(strategy="most_frequent"), vectors[0], senses, cv=folds)
    results = {"most frequent": (frequent == senses).mean()}
    inputs = {f"layer {number}": layer for number, layer in enumerate(vectors)}
    inputs |= {"mean of 1 up": vectors[1:].mean(0), "mean of all": vectors.mean(0)}
    for name, x in inputs.items():
        right = [of_nearest(x[train], senses[train], x[test], senses[test]) for train, test in folds]
        results[name] = np.concatenate(right).mean()
    return results


def of_nearest(known: np.ndarray, their_senses: np.ndarray, vectors: np.ndarray, senses: np.ndarray) -> np.ndarray:
    """For each vector, the share of its nearest known vectors (by cosine) that have its sense: 0 or 1 if only one is
    nearest."""
    cosines = normalize(vectors) @ normalize(known).T
    nearest = cosines > cosines.max(1, keepdims=True) - TIE
    alike = senses[:, None] == their_senses
    return (nearest & alike).sum(1) / nearest.sum(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="Senseval files, a word each: line.pos, interest.pos.gz")
    parser.add_argument("--model", help="folder or Hub name of an ELMo [the one that ships with hf_elmo]")
    args = parser.parse_args(arguments)
    model, tokenizer = hf_elmo.load_model(args.model, dtype="float32")
    for number, path in enumerate(args.files):
        occurrences = list(read_senseval(path))
        results = accuracies(vectors_of(model, tokenizer, occurrences), occurrences)
        if number == 0:
            print(f"{'word':10s} {'senses':>6s} {'times':>6s} " + " ".join(f"{name:>13s}" for name in results))
        senses = len({one.sense for one in occurrences})
        figures = " ".join(f"{value:13.1%}" for value in results.values())
        print(f"{path.name.split('.')[0]:10s} {senses:6d} {len(occurrences):6d} {figures}", flush=True)


if __name__ == "__main__":
    main()
