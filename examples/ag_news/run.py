"""AG News: the class of a text by word vectors, a BiLSTM and a classifier, with and without ELMo.

    python -m examples.ag_news.run ../shared/data

A textbook's comparison, on titles or on whole texts: the rows of `examples/classifier.py`. With `--write FILE` it only
writes texts without labels, to adapt the biLM to before a classifier is trained (Peters et al. 2018, section 3.4).
"""

import csv
import gzip
import html
import re
from collections.abc import Sequence
from pathlib import Path

from examples.classifier import PAIRS, Parts, in_parts, rows
from examples.comparison import ACCURACY, bar_chart, compare, options, parsed, sizes

TEXTS = ("titles", "whole")
CLASSES = {0: "World", 1: "Sports", 2: "Business", 3: "Sci/Tech"}
TRAIN_TITLES = 5600  # of the 7,600 in test.csv; the others are the test part of both tables
WHOLE_TEXTS = 2000
FIRST_WORDS = 5  # of a text, by which stories that agencies sent twice are recognized


def titled(data: Path) -> list[list[str]]:
    """The rows of `test.csv`: class, title, description."""
    with (data / "ag_news" / "test.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def subset(data: Path) -> list[dict[str, str]]:
    """The rows of `train_subset.csv.gz`: `class`, `text` (title and description in one), `has_title`."""
    with gzip.open(data / "ag_news" / "train_subset.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read(data: Path, whole: bool, quick: bool) -> Parts:
    """Titles, or whole texts (title and description); a tenth of the training texts is held out as `dev`."""
    texts = [(f"{title} {text}" if whole else title, label) for label, title, text in titled(data)]
    train, test = texts[:TRAIN_TITLES], texts[TRAIN_TITLES:]
    if whole:
        others = [(row["text"], row["class"]) for row in subset(data) if row["has_title"] == "1"]
        train = others[:: max(1, len(others) // WHOLE_TEXTS)][:WHOLE_TEXTS]
    if quick:
        train, test = train[:300], test[:100]
    return in_parts(*([(plain(text), int(label) - 1) for text, label in part] for part in (train, test)))


def plain(text: str) -> str:
    r"""Text without the remains of mark-up: `#39;` for an apostrophe, `\` for a line break."""
    return html.unescape(re.sub(r"(?<!&)#(\d+;)", r"&#\1", text)).replace("\\", " ")


def unlabeled(data: Path) -> list[str]:
    """The texts of `train_subset.csv.gz`, without those that share their first words with a title or a description of
    `test.csv`: so the biLM reads neither the titles that train nor the titles that test."""

    def first_words(text: str) -> str:
        return " ".join(text.lower().split()[:FIRST_WORDS])

    known = {first_words(plain(text)) for _, *row in titled(data) for text in row}
    texts = (" ".join(plain(row["text"]).split()) for row in subset(data))
    return [text for text in texts if text and first_words(text) not in known]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables and the gains; draws the charts."""
    parser = options(__doc__, "outputs/ag_news")
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS[:1], help="the tables to make [titles]")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write texts without labels, and nothing else")
    args = parsed(parser, arguments)
    if args.write:
        args.write.write_text("".join(f"{line}\n" for line in unlabeled(args.data)), encoding="utf-8")
        return
    for name in args.texts:
        parts = read(args.data, name == "whole", args.quick)
        print(f"{name}: {sizes(parts)}\n", flush=True)
        results = compare(rows(parts, CLASSES, args, args.out / name), ACCURACY, args, PAIRS)
        label = f"accuracy (%) on {'titles' if name == 'titles' else 'whole texts'}, from chance on"
        bar_chart(results, "accuracy", label, args.out / f"{name}.png", start=25)


if __name__ == "__main__":
    main()
