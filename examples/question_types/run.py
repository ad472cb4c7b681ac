"""Question types (TREC-6; Li and Roth 2002): what a question asks for, with and without ELMo.

    python -m examples.question_types.run ../shared/data --trec FOLDER

Six classes, the published split: 5,452 questions train, the 500 of TREC 10 test. The rows are those of
`examples/classifier.py`.
"""

from collections.abc import Sequence
from pathlib import Path

from examples.classifier import Parts, in_parts, rows, show
from examples.comparison import clock, compare, options, parsed

CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
FILES = {"train": "train_5500.label", "test": "TREC_10.label"}
SOURCE = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"
WRITTEN = {"``": '"', "''": '"'}  # what the files put for characters of the text


def read(folder: Path, quick: bool = False) -> Parts:
    """
    The questions of a folder with both files.

    Raises:
        FileNotFoundError: where one is not there; says where both are to be had.
        ValueError: for a line that is not `CLASS:type question`.
    """
    parts = []
    for name in FILES.values():
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there: {' and '.join(FILES.values())} are to be had at {SOURCE}")
        questions = []
        for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), start=1):
            label, _, question = line.partition(" ")
            if label.partition(":")[0] not in CLASSES or not question.strip():
                raise ValueError(f"{path}:{number} is {line!r}, not CLASS:type QUESTION, of {', '.join(CLASSES)}")
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
    start = clock()
    parts = read(args.trec or args.data / "trec", args.quick)
    results = compare(rows(parts, dict(enumerate(CLASSES)), args, args.out / "questions"), args.seeds)
    show("questions", parts, results, "accuracy (%)", args.out / "question_types.png", start, lowest=50)


if __name__ == "__main__":
    main()
