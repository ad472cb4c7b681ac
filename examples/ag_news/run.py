"""AG News: the class of a text by word vectors, a BiLSTM and a classifier, with and without ELMo.

    python -m examples.ag_news.run

A textbook's comparison, on titles or on whole texts: the rows of `examples/classifier.py`. With `--write FILE` it only
writes texts without labels, to adapt the biLM to before a classifier is trained (Peters et al. 2018, section 3.4).
"""

import html
import re
from collections.abc import Sequence
from pathlib import Path

from examples.classifier import PAIRS, Parts, rows
from examples.comparison import ACCURACY, compare, hold_out, options, parsed, sizes
from examples.data import ag_news

TEXTS = ("titles", "whole")
CLASSES = ("World", "Sports", "Business", "Sci/Tech")
TRAIN_TITLES = 5600  # of the 7,600 of the test part; the others are the test part of both tables
WHOLE_TEXTS = 2000
FIRST_WORDS = 5  # of a text, by which stories that agencies sent twice are recognized


def read(data: Path | None, whole: bool, quick: bool) -> Parts:
    """Titles, or whole texts (title and description), with their labels."""
    parts = ag_news(data)
    texts = [(f"{title} {text}" if whole else title, label) for title, text, label in parts["test"]]
    train, test = texts[:TRAIN_TITLES], texts[TRAIN_TITLES:]
    if whole:
        others = [(f"{title} {text}", label) for title, text, label in parts["train"] if title]
        train = others[:: max(1, len(others) // WHOLE_TEXTS)][:WHOLE_TEXTS]
    if quick:
        train, test = train[:300], test[:100]
    train, test = ([(plain(text), label) for text, label in part] for part in (train, test))
    return {**hold_out(train), "test": test}


def plain(text: str) -> str:
    r"""Text without the remains of mark-up: `#39;` for an apostrophe, `\` for a line break."""
    return html.unescape(re.sub(r"(?<!&)#(\d+;)", r"&#\1", text)).replace("\\", " ")


def unlabeled(data: Path | None) -> list[str]:
    """The texts of the train part, without those that share their first words with a title or a description of the test
    part: so the biLM reads neither the titles that train nor the titles that test."""

    def first_words(text: str) -> str:
        return " ".join(text.lower().split()[:FIRST_WORDS])

    parts = ag_news(data)
    known = {first_words(plain(text)) for *texts, _ in parts["test"] for text in texts}
    texts = (" ".join(plain(f"{title} {text}").split()) for title, text, _ in parts["train"])
    return [text for text in texts if text and first_words(text) not in known]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables and the gains."""
    parser = options(__doc__)
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS[:1], help="which tables to print [titles]")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write texts without labels, and nothing else")
    args = parsed(parser, arguments)
    if args.write:
        args.write.write_text("".join(f"{line}\n" for line in unlabeled(args.data)), encoding="utf-8")
        return
    for name in args.texts:
        parts = read(args.data, name == "whole", args.quick)
        print(f"{name}: {sizes(parts)}\n", flush=True)
        compare(rows(parts, CLASSES, args), ACCURACY, args, PAIRS)


if __name__ == "__main__":
    main()
