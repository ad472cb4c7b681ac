"""Words a second of ElmoTokenizer on the test part of WikiText-2, in batches of lines.

    python benchmarks/tokenizer_speed.py [FILE] [--batch 128] [--rounds 5]

FILE is any text file, one text a line, gzipped or not; by default WikiText-2 of the data beside the project (the folder
that $ELMO_SHARED names, else ../shared). The target is 0.4 million words a second for
`tokenizer(texts, padding=True, return_tensors="pt")`.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hf_elmo import ElmoTokenizer
from hf_elmo.text import read_lines
from measure.text import WIKITEXT, shared_folder

TARGET = 0.4e6


def words_per_second(call: Callable[[list[str]], object], batches: list[list[str]], words: int, rounds: int) -> float:
    """The median rate of the passes over all batches, after one pass that warms up."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        for batch in batches:
            call(batch)
        times.append(time.perf_counter() - start)
    return words / statistics.median(times[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="text, one a line (default: WikiText-2's test part)")
    parser.add_argument("--batch", type=int, default=128, help="lines in a batch (default: 128)")
    parser.add_argument("--rounds", type=int, default=5, help="passes over the file (default: 5)")
    options = parser.parse_args()
    file = options.file or shared_folder() / WIKITEXT
    lines = [line for line in map(str.strip, read_lines(file)) if line]
    batches = [lines[first : first + options.batch] for first in range(0, len(lines), options.batch)]
    print(f"{file.name}: {len(lines)} lines in batches of {options.batch}, median of {options.rounds} passes")
    rates = []
    for splitting in ("lm1b", "whitespace"):
        tokenizer = ElmoTokenizer(word_splitting=splitting)
        words = sum(len(tokens) - 2 for batch in batches for tokens in tokenizer(batch)["attention_mask"])
        tensors = partial(tokenizer, padding=True, return_tensors="pt")
        rates.append(words_per_second(tensors, batches, words, options.rounds))
        lists = words_per_second(tokenizer, batches, words, options.rounds)
        print(
            f"{splitting}: {words} words; a second {rates[-1] / 1e6:.2f} million to tensors, {lists / 1e6:.2f} to lists"
        )
    verdict = "reached" if min(rates) >= TARGET else "NOT reached"
    print(f"target for tensors: {TARGET / 1e6:.1f} million words a second, {verdict}")
    return int(min(rates) < TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
