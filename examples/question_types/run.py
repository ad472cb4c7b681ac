"""Question types (TREC-6; Li and Roth 2002): what a question asks for, with and without ELMo.

    python -m examples.question_types.run

Six classes, the published split: 5,452 questions train, the 500 of TREC 10 test. The rows are those of
`examples/classifier.py`.
"""

from collections.abc import Sequence

from examples.classifier import PAIRS, rows
from examples.comparison import ACCURACY, compare, hold_out, options, parsed, sizes
from examples.data import TREC_CLASSES, trec

WRITTEN = {"``": '"', "''": '"'}  # how the data writes quotation marks


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table and the gains."""
    args = parsed(options(__doc__), arguments)
    questions = {
        part: [(" ".join(WRITTEN.get(word, word) for word in text.split()), label) for text, label in texts]
        for part, texts in trec(args.data).items()
    }
    limits = (300, 100) if args.quick else (None, None)
    parts = {**hold_out(questions["train"][: limits[0]]), "test": questions["test"][: limits[1]]}
    print(f"questions: {sizes(parts)}\n", flush=True)
    compare(rows(parts, TREC_CLASSES, args), ACCURACY, args, PAIRS)


if __name__ == "__main__":
    main()
