"""Sentiment of short Korean reviews, clean and misspelled: what a model of spellings keeps that a vocabulary loses.

    python -m examples.korean.sentiment --data FOLDER --model outputs/korean

Ratings 1 to 4 against 9 and 10, as many of each. The reviews that test are of other movies, and a share of their
syllables is dropped, doubled or swapped with the next character; what trains stays as it is.
"""

from argparse import Namespace
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from random import Random
from typing import Any

import numpy as np
from datasets import Dataset
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import StandardScaler

from examples.classifier import BAG, bag_of_words, dataset, with_layers
from examples.comparison import Rows, compare, options, parsed
from examples.korean.prepare import read

NOISE = (0, 5, 10, 20, 30)  # percent of the syllables
METRICS = {f"{share}_accuracy".removeprefix("0_"): f"{share} % noise" for share in NOISE}
TEST, DEV = 2000, 1000  # reviews
CHARACTERS = "character n-grams"
N_GRAMS = [TfidfVectorizer(analyzer="char_wb", ngram_range=(1, n), sublinear_tf=True) for n in (3, 5)]
ELMO_MEAN = "mean of ELMo's layers"
PAIRS = [(CHARACTERS, ELMO_MEAN)]


def labeled(reviews: Sequence[tuple[str, int]], seed: int) -> list[tuple[str, int]]:
    """Texts with 0 (negative) or 1 in turn, as many of each, in an order by chance."""
    kinds = [[text for text, rating in reviews if rating in ratings] for ratings in (range(1, 5), range(9, 11))]
    for texts in kinds:
        Random(seed).shuffle(texts)
    return list(chain.from_iterable(zip(*([(text, label) for text in kinds[label]] for label in (0, 1)), strict=False)))


def noised(text: str, percent: int, random: Random) -> str:
    """The text with a share of its syllables dropped, doubled, or swapped with the character that follows."""
    characters, place = list(text), 0
    while place < len(characters):
        if "가" <= characters[place] <= "힣" and random.random() < percent / 100:
            pair = characters[place : place + 2]
            changed = random.choice(([], pair[:1] * 2, pair[::-1]))
            taken = 2 if changed == pair[::-1] else 1
            characters[place : place + taken] = changed
            place += len(changed)
        else:
            place += 1
    return "".join(characters)


def pooled(row: dict[str, Any]) -> dict[str, Any]:
    """The mean over its words of each of a review's layers, one after the other."""
    words = np.asarray(row["special_tokens_mask"]) == 0
    return {"mean": np.asarray(row["bilm_layers"], dtype=np.float32)[words].mean(0).reshape(-1)}


def rows(size: int, args: Namespace) -> Rows:
    """The rows of a table, logistic regression each: functions of the seed, which also draws the reviews that train."""
    train, test = (read(args.data, part) for part in ("train", "test"))
    clean = labeled(test, 0)[: 100 if args.quick else TEST]
    tests = {"test": clean} | {
        str(share): [(noised(text, share, Random(number)), label) for number, (text, label) in enumerate(clean)]
        for share in NOISE[1:]
    }

    def with_means(parts: dict[str, list]) -> dict[str, Dataset]:
        stored = with_layers({name: dataset(part) for name, part in parts.items()}, args)
        return {name: part.map(pooled, remove_columns="bilm_layers") for name, part in stored.items()}

    tested, means = with_means(tests), ((StandardScaler(),), (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), "mean")

    @lru_cache(maxsize=1)
    def parts(seed: int) -> dict[str, Dataset]:
        drawn = labeled(train, seed)[: size + DEV]
        held_out = len(drawn) - min(DEV, len(drawn) // 2)
        return with_means({"train": drawn[:held_out], "dev": drawn[held_out:]}) | tested

    kinds = {BAG: (), CHARACTERS: (N_GRAMS, (1, 3, 10)), ELMO_MEAN: means}
    return {name: lambda seed, how=how: bag_of_words(parts(seed), seed, *how) for name, how in kinds.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each number of reviews."""
    parser = options(__doc__, "outputs/korean_sentiment")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000], help="reviews that train [1000 10000]")
    args = parsed(parser, arguments)
    for size in args.sizes:
        print(f"{size:,} reviews\n")
        compare(rows(size, args), METRICS, args, PAIRS)


if __name__ == "__main__":
    main()
