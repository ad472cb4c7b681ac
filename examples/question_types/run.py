"""Question types (TREC-6; Li and Roth 2002): what a question asks for, with and without ELMo.

    python -m examples.question_types.run

Six classes, the published split: 5,452 questions train, the 500 of TREC 10 test. The rows are those of
`examples/classifier.py`.
"""

from collections.abc import Sequence
from pathlib import Path

from examples.classifier import PAIRS, Parts, in_parts, rows
from examples.comparison import ACCURACY, compare, options, parsed, sizes
from examples.data import TREC_CLASSES, trec

WRITTEN = {"``": '"', "''": '"'}  # how the data writes quotation marks


def read(data: Path | None, quick: bool = False) -> Parts:
    """The questions with their labels."""
    questions = {
        part: [(" ".join(WRITTEN.get(word, word) for word in text.split()), label) for text, label in texts]
        for part, texts in trec(data).items()
    }
    train, test = questions["train"], questions["test"]
    return in_parts(train[:300], test[:100]) if quick else in_parts(train, test)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table and the gains."""
    args = parsed(options(__doc__, "outputs/question_types"), arguments)
    parts = read(args.data, args.quick)
    print(f"questions: {sizes(parts)}\n", flush=True)
    compare(rows(parts, TREC_CLASSES, args, args.out / "questions"), ACCURACY, args, PAIRS)


if __name__ == "__main__":
    main()
