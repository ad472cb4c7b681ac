"""Question types (TREC-6; Li and Roth 2002): what a question asks for, with and without ELMo.

    python -m examples.question_types.run ../shared/data --trec FOLDER

Six classes and the published split: 5,452 questions for training, the 500 of TREC 10 for testing. The rows are those of
`examples/classifier.py`.
"""

from collections.abc import Sequence
from pathlib import Path

from examples.classifier import PAIRS, Parts, in_parts, rows
from examples.comparison import ACCURACY, bar_chart, compare, options, parsed, sizes

CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
FILES = {"train": "train_5500.label", "test": "TREC_10.label"}
WRITTEN = {"``": '"', "''": '"'}  # how the files write characters of the text


def read(folder: Path, quick: bool = False) -> Parts:
    """The questions of a folder with both files, from https://cogcomp.seas.upenn.edu/Data/QA/QC/, whose lines are
    `CLASS:type question`."""
    parts = []
    for name in FILES.values():
        questions = []
        for line in (folder / name).read_text(encoding="latin-1").splitlines():
            label, _, question = line.partition(" ")
            words = " ".join(WRITTEN.get(word, word) for word in question.split())
            questions.append((words, CLASSES.index(label.partition(":")[0])))
        parts.append(questions)
    train, test = (parts[0][:300], parts[1][:100]) if quick else parts
    return in_parts(train, test)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table and the gains; draws the chart."""
    parser = options(__doc__, "outputs/question_types")
    parser.add_argument("--trec", type=Path, help=f"folder of {' and '.join(FILES.values())} [trec in the data folder]")
    args = parsed(parser, arguments)
    parts = read(args.trec or args.data / "trec", args.quick)
    print(f"questions: {sizes(parts)}\n", flush=True)
    results = compare(rows(parts, dict(enumerate(CLASSES)), args, args.out / "questions"), ACCURACY, args, PAIRS)
    bar_chart(results, "accuracy", "accuracy (%)", args.out / "question_types.png", start=50)


if __name__ == "__main__":
    main()
