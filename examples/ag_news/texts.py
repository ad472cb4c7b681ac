"""AG News as text without labels, to adapt the biLM to before a classifier is trained (Peters et al. 2018, sec. 3.4).

    python -m examples.ag_news.texts ../shared/data news.txt
    hf-elmo pretrain adapted news.txt --init elmo-compact-en --epochs 4 --batch-size 128 --learning-rate 0.001 --bf16
    python -m examples.ag_news.run ../shared/data --model adapted

Writes a line for each text of `train_subset.csv.gz`, which holds none of the titles that train or test a classifier.
Texts that share their first words with one of those titles or their descriptions are left out, too, because agencies
send a story more than once. So the biLM has read neither the titles that train nor the titles that test.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from examples.ag_news.run import plain, subset, titled

FIRST_WORDS = 5


def first_words(text: str) -> str:
    """The first words of a text in lower case, by which stories that were sent twice are recognized."""
    return " ".join(text.lower().split()[:FIRST_WORDS])


def texts(data: Path) -> Iterator[str]:
    """The lines of the file."""
    known = {first_words(plain(text)) for _, *row in titled(data) for text in row}
    for row in subset(data):
        text = " ".join(plain(row["text"]).split())
        if text and first_words(text) not in known:
            yield text


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the file, and prints its size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", default=Path("../shared/data"), help="folder [../shared/data]")
    parser.add_argument("out", type=Path, help="file to write")
    args = parser.parse_args(arguments)
    lines = list(texts(args.data))
    args.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{args.out}: {len(lines):,} lines, {sum(len(line.split()) for line in lines):,} words")


if __name__ == "__main__":
    main()
