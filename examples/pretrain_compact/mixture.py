"""Which sources are written as WikiText-2 is: the weights of a mixture of their bigram models.

    PYTHONPATH=examples python -m examples.pretrain_compact.mixture ../shared/data

reads each source as prepare.py does, makes a bigram model of each (Witten and Bell 1991), and finds by expectation
maximization the weights with which their mixture gives WikiText-2's valid part the lowest perplexity. How often a
source is read in the last run (`last` in prepare.py) lies between its share of the text and its weight: a source of
200,000 words is not read 20 times more. Nothing is trained on WikiText-2, and its test part is not looked at.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from . import prepare

VOCABULARY = 40_000
NUM_ITERATIONS = 300


def word_ids(lines: Iterable[str], ids: dict[str, int]) -> np.ndarray:
    """The words of the lines in one row, 0 before each line and after the last, 1 for words without an id."""
    row = [0]
    for line in lines:
        row += [ids.get(word, 1) for word in line.split()]
        row.append(0)
    return np.array(row, dtype=np.int64)


def bigram_probabilities(train: np.ndarray, before: np.ndarray, words: np.ndarray, size: int) -> np.ndarray:
    """
    What a bigram model of a text gives words after the words before them. A word that was seen `n` times, before `t`
    different words, leaves `t / (n + t)` to the unigram model, and that leaves as much to all words alike (Witten and
    Bell 1991, method C).

    Args:
        train: `(length,)`, the ids of the text.
        before, words: `(number,)`, ids.
        size: of the vocabulary.
    """
    counts = np.bincount(train, minlength=size)
    types = np.count_nonzero(counts)
    unigram = (counts + types / size) / (len(train) + types)
    pairs, pair_counts = np.unique(train[:-1] * size + train[1:], return_counts=True)
    followers = np.bincount(pairs // size, minlength=size)[before]
    seen = np.bincount(train[:-1], minlength=size)[before]
    wanted = before * size + words
    places = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    both = np.where(pairs[places] == wanted, pair_counts[places], 0)
    found = (both + followers * unigram[words]) / np.maximum(seen + followers, 1)
    return np.where(seen > 0, found, unigram[words])


def mixture_weights(probabilities: np.ndarray, num_iterations: int = NUM_ITERATIONS) -> np.ndarray:
    """The weights `(models,)` of the mixture that gives the words the highest likelihood, by expectation maximization.

    Args:
        probabilities: `(models, words)`.
    """
    weights = np.full(len(probabilities), 1 / len(probabilities))
    for _ in range(num_iterations):
        shares = weights[:, None] * probabilities
        weights = (shares / shares.sum(axis=0)).mean(axis=1)
    return weights


def perplexity(probabilities: np.ndarray) -> float:
    """Of words with these probabilities."""
    return float(np.exp(-np.log(probabilities).mean()))


def plain_lines(path: Path) -> list[str]:
    """The lines of a part of WikiText-2 without its notation, its unknown words as words that nobody knows."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").split("\n"))
    return [re.sub(r" @(.)@ ", r"\1", line).replace("<unk>", "\0") for line in lines if line]


def mixture(train: dict[prepare.Source, list[prepare.Paragraph]], valid: Sequence[str]) -> list[tuple[str, ...]]:
    """The rows of the table: source, words, perplexity by its own model, its weight, its share of the last pass."""
    counts = Counter(
        word for found in train.values() for one in found for line in one.sentences for word in line.split()
    )
    ids = {word: number for number, (word, _) in enumerate(counts.most_common(VOCABULARY), 2)}
    row = word_ids(valid, ids)
    known = row[1:] > 1
    before, words = row[:-1][known], row[1:][known]
    texts = {
        source: word_ids((" ".join(one.sentences) for one in found), ids) for source, found in train.items() if found
    }
    found = np.array([bigram_probabilities(text, before, words, len(ids) + 2) for text in texts.values()])
    weights = mixture_weights(found)
    total = sum(len(text) * source.last for source, text in texts.items())
    rows = [
        (
            source.path,
            f"{len(text):,}",
            f"{perplexity(own):,.0f}",
            f"{weight:.1%}",
            f"{len(text) * source.last / total:.1%}",
        )
        for (source, text), own, weight in zip(texts.items(), found, weights, strict=True)
    ]
    return [*rows, ("the mixture", f"{sum(map(len, texts.values())):,}", f"{perplexity(weights @ found):,.0f}", "", "")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with lm/ and wsd/")
    parser.add_argument("--documents", type=int, help="read so many documents of each source, to try it [all]")
    args = parser.parse_args(arguments)
    corpus = prepare.read(args.data, prepare.Reader(), args.documents)
    valid = plain_lines(args.data / "lm" / "other" / "wikitext-2" / "valid.txt")
    header = ("source", "words and lines", "perplexity by it alone", "weight", "share of the last pass")
    print(prepare.table([header, *mixture(corpus.train, valid)]), end="")


if __name__ == "__main__":
    main()
