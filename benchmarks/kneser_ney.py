"""The baseline of the language models: an interpolated Kneser-Ney trigram over the same text and vocabulary.

    python benchmarks/kneser_ney.py --vocab corpus/vocab.txt corpus/train.txt corpus/heldout.txt corpus/wikitext2.txt

prints the forward perplexity of each file after the first, on which the model is trained. Files hold one tokenized
sentence a line. Counted as `hf-elmo perplexity --pretokenized` counts: each sentence by itself, `</S>` is predicted,
`<S>` is not, and a word outside the vocabulary is the word `<UNK>`.

nltk's KneserNeyInterpolated, against which the tests check this one, walks over all contexts for every probability:
0.03 s a word after 100,000 words of training text, 0.11 s after 400,000. After ten million words the held-out books
would take days; here they take seconds.
"""

import argparse
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_elmo.pretraining.texts import TextFiles
from hf_elmo.pretraining.vocabulary import Vocabulary

Discounts = tuple[float, float, float]


@dataclass
class _Order:
    """The n-grams of one order, as sorted numbers `context * vocab_size + word`.

    Args:
        keys: `[n-grams]` int64, sorted; `counts` beside it.
        contexts: `[contexts]` int64, sorted; `totals` (counts of all n-grams that begin so) and `backoffs` (the
            probability that discounting took from them) beside it.
        discounts: what is taken from n-grams counted once, twice, and more often.
    """

    keys: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray
    backoffs: np.ndarray
    discounts: Discounts

    @classmethod
    def of(cls, keys: np.ndarray, counts: np.ndarray, vocab_size: int, discounts: Discounts | None) -> "_Order":
        discounts = discounts or estimate_discounts(counts)
        contexts, first = np.unique(keys // vocab_size, return_index=True)
        totals = np.add.reduceat(counts, first)
        taken = np.add.reduceat(_discount_of(counts, discounts), first)
        return cls(keys, counts, contexts, totals, taken / totals, discounts)

    def interpolate(self, contexts: np.ndarray, keys: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Probabilities of n-grams, given those of the order below (`lower`), which stay in contexts never seen."""
        context, context_seen = _find(self.contexts, contexts)
        key, key_seen = _find(self.keys, keys)
        counts = np.where(key_seen, self.counts[key], 0)
        kept = (counts - _discount_of(counts, self.discounts)) / self.totals[context]
        return np.where(context_seen, kept + self.backoffs[context] * lower, lower)


def _find(table: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each key's place in a sorted table, and whether it is there."""
    place = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return place, table[place] == keys


def _discount_of(counts: np.ndarray, discounts: Discounts) -> np.ndarray:
    return np.array([0.0, *discounts])[np.minimum(counts, 3)]


def estimate_discounts(counts: np.ndarray) -> Discounts:
    """The three discounts of modified Kneser-Ney, from the numbers of n-grams counted once to four times (Chen and
    Goodman 1998, equation 26), kept between nothing and the whole count; ValueError where one of the numbers is 0."""
    ones, twos, threes, fours = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].tolist()
    if not (ones and twos and threes and fours):
        raise ValueError("no n-grams are counted 1, 2, 3 or 4 times: give more text, or discounts.")
    share = ones / (ones + 2 * twos)
    ratios = twos / ones, threes / twos, fours / threes
    return tuple(min(max(n - (n + 1) * share * ratio, 0.0), float(n)) for n, ratio in enumerate(ratios, start=1))


class KneserNeyTrigram:
    """
    An interpolated trigram model with modified Kneser-Ney smoothing (Chen and Goodman 1998).

    Trigrams have their counts; bigrams and words the number of different words that stand before them. The probability
    of a word without context is not discounted, since every word of the vocabulary stands in the training text.

    Args:
        sentences: each `[words]` int64, words numbered by `vocabulary`, without boundaries.
        vocabulary: gives the numbers of `<S>` and `</S>`, and its size.
        discounts: for n-grams counted once, twice, more often; estimated for each order by default. Three equal ones
            are plain Kneser-Ney.

    Raises:
        ValueError: there is too little text to estimate the discounts.
    """

    def __init__(
        self, sentences: Iterable[np.ndarray], vocabulary: Vocabulary, discounts: Discounts | None = None
    ) -> None:
        self.vocabulary, size = vocabulary, len(vocabulary)
        trigrams, counts = np.unique(self._key(*self._contexts_and_words(sentences)), return_counts=True)
        bigrams, before_bigram = np.unique(trigrams % size**2, return_counts=True)
        self.trigrams = _Order.of(trigrams, counts, size, discounts)
        self.bigrams = _Order.of(bigrams, before_bigram, size, discounts)
        before_word = np.bincount(bigrams % size, minlength=size)
        self._words = before_word / before_word.sum()

    def _key(self, first: np.ndarray, second: np.ndarray, third: np.ndarray) -> np.ndarray:
        return (first * len(self.vocabulary) + second) * len(self.vocabulary) + third

    def _contexts_and_words(self, sentences: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each word and each `</S>`: the two words before it and itself. Two `<S>` stand before each sentence."""
        begin, end = [self.vocabulary.bos_id] * 2, [self.vocabulary.eos_id]
        parts = [part for words in sentences for part in (begin, words, end)]
        text = np.concatenate(parts).astype(np.int64)
        third = np.flatnonzero(text != self.vocabulary.bos_id)
        return text[third - 2], text[third - 1], text[third]

    def probabilities(self, first: np.ndarray, second: np.ndarray, third: np.ndarray) -> np.ndarray:
        """P(third | first, second), float64, elementwise for int64 arrays of one shape."""
        pair = second * len(self.vocabulary) + third
        lower = self.bigrams.interpolate(second, pair, self._words[third])
        return self.trigrams.interpolate(first * len(self.vocabulary) + second, self._key(first, second, third), lower)

    def nll(self, sentences: Iterable[np.ndarray]) -> np.ndarray:
        """Negative log-likelihoods in nats, of the words and the `</S>` of each sentence in turn."""
        return -np.log(self.probabilities(*self._contexts_and_words(sentences)))


def read_sentences(path: Path, vocabulary: Vocabulary) -> list[np.ndarray]:
    """The sentences of a file as numbers; empty lines are left out."""
    return [vocabulary.ids(words) for (words,) in TextFiles(path).read()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains on the first file and prints the perplexity of the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("train", type=Path, help="tokenized sentences, one a line")
    parser.add_argument("test", type=Path, nargs="+", help="tokenized sentences, one a line")
    parser.add_argument("--vocab", type=Path, required=True, help="one word a line; <S>, </S>, <UNK> among them")
    parser.add_argument("--discount", type=float, help="one for all: plain Kneser-Ney [modified, estimated]")
    args = parser.parse_args(arguments)
    vocabulary, start = Vocabulary.load(args.vocab), time.perf_counter()
    discounts = None if args.discount is None else (args.discount,) * 3
    model = KneserNeyTrigram(read_sentences(args.train, vocabulary), vocabulary, discounts)
    discounts = (*model.trigrams.discounts, *model.bigrams.discounts)
    values = " ".join(f"{value:.3f}" for value in discounts)
    print(f"trained in {time.perf_counter() - start:.0f} s, {len(vocabulary):,} words, discounts {values}")
    for path in args.test:
        sentences = read_sentences(path, vocabulary)
        nll = model.nll(sentences)
        unknown = sum(int((words == vocabulary.unk_id).sum()) for words in sentences) / len(nll)
        print(f"{path.name:16s} {len(nll):9,} words {unknown:7.2%} <UNK>  perplexity {math.exp(nll.mean()):7.1f}")


if __name__ == "__main__":
    main()
