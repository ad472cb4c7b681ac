"""Sentiment of short Korean reviews, clean and misspelled: what a model of spellings keeps that a vocabulary loses.

    python -m examples.korean.sentiment --data FOLDER --model outputs/korean

Ratings 1 to 4 against 9 and 10, as many of each. The reviews that test are of other movies, and a share of their
syllables is dropped, doubled or swapped with the next character; what trains stays as it is.
"""

from argparse import Namespace
from collections.abc import Sequence
from itertools import chain
from random import Random

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples.classifier import BAG, bag_of_words
from examples.comparison import Rows, Run, compare, options, parsed
from examples.korean.prepare import read
from hf_elmo import ElmoVectorizer

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


def rows(size: int, args: Namespace) -> Rows:
    """The rows of a table, logistic regression each: functions of the seed, which also draws the reviews that train."""
    train, test = (read(args.data, part) for part in ("train", "test"))
    tests = {"test": labeled(test, 0)[: 100 if args.quick else TEST]}
    for share in NOISE[1:]:
        noisy = (noised(text, share, Random(number)) for number, (text, _) in enumerate(tests["test"]))
        tests[str(share)] = [(text, label) for text, (_, label) in zip(noisy, tests["test"], strict=True)]

    def run(seed: int, *how: Sequence) -> Run:
        drawn = labeled(train, seed)[: size + DEV]
        held_out = len(drawn) - min(DEV, len(drawn) // 2)
        return bag_of_words({"train": drawn[:held_out], "dev": drawn[held_out:], **tests}, seed, *how)

    elmo = make_pipeline(ElmoVectorizer(args.model, layers="all"), StandardScaler())
    kinds = {BAG: (), CHARACTERS: (N_GRAMS, (1, 3, 10)), ELMO_MEAN: ([elmo], (1e-4, 3e-4, 1e-3, 3e-3, 1e-2))}
    return {name: lambda seed, how=how: run(seed, *how) for name, how in kinds.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each number of reviews."""
    parser = options(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000], help="reviews that train [1000 10000]")
    args = parsed(parser, arguments)
    for size in args.sizes:
        print(f"{size:,} reviews\n")
        compare(rows(size, args), METRICS, args, PAIRS)


if __name__ == "__main__":
    main()
