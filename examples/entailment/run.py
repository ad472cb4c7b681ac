"""Entailment: does a sentence follow from another? ESIM with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.entailment.run ../shared/data

Two data sets: 20,000 pairs of MultiNLI, tested on their validation part, and SNLI, trained here on its dev part and
tested on its test part. The first `--pairs` of each train; a tenth of these pairs chooses the epoch. Both rows have the
same network (Chen et al. 2017), trained in the same way: one row with GloVe's vectors alone, the other with GloVe's
vectors and ELMo. The biLM is frozen, and its layers are computed once.
"""

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForSequenceClassification

import hf_elmo
from examples.comparison import ACCURACY, compare, options, parsed, rows_of_table, sizes, with_glove

LABELS = ("entailment", "neutral", "contradiction")
HEAD = {
    "id2label": dict(enumerate(LABELS)),
    "classifier_text_pairs": True,
    "encoder_type": "esim",
    "encoder_hidden_size": 64,
    "encoder_dropout": 0.3,
    "classifier_dropout": 0.3,
    "classifier_hidden_size": 64,
}
SETTINGS = {"num_train_epochs": 3, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "max_grad_norm": 10.0}
TASKS = {  # the files for training and testing, and the columns of the two sentences
    "MultiNLI": ("nli/mnli_subset/mnli_train.tsv.gz", "nli/mnli_subset/mnli_val.tsv.gz", "sentence1", "sentence2"),
    "SNLI": ("snli/snli_dev.tsv", "snli/snli_test.tsv", "premise", "hypothesis"),
}
MAX_WORDS = 400  # of a premise; three rows of MultiNLI's table have thousands, because lines were joined

Pairs = list[tuple[list[str], list[str], int]]  # words of the premise, of the hypothesis, and the label


def read(path: Path, premise: str, hypothesis: str) -> Pairs:
    """The pairs of a table, split into words at whitespace. Damaged rows are left out, and their number is printed."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        pairs = [(row[premise].split(), row[hypothesis].split(), LABELS.index(row["label"])) for row in rows]
    whole = [pair for pair in pairs if len(pair[0]) <= MAX_WORDS]
    if len(whole) < len(pairs):
        print(f"{path.name}: {len(pairs) - len(whole)} left out, whose premise has over {MAX_WORDS} words")
    return whole


def encode(tokenizer: hf_elmo.ElmoTokenizer, pairs: Pairs) -> Dataset:
    """A row for each pair."""
    premises, hypotheses, labels = (list(column) for column in zip(*pairs, strict=True))
    return Dataset.from_dict({**tokenizer(premises, hypotheses, is_split_into_words=True), "labels": labels})


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each data set."""
    parser = options(__doc__, "outputs/entailment")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="data sets [both]")
    parser.add_argument("--pairs", type=int, default=5000, help="pairs of each that train [5000]")
    args = parsed(parser, arguments)
    for name in args.tasks:
        train, test, *columns = TASKS[name]
        pairs, tested = (read(args.data / file, *columns) for file in (train, test))
        pairs, tested = (pairs[:300], tested[:300]) if args.quick else (pairs[: args.pairs], tested)
        parts = {"train": [pair for i, pair in enumerate(pairs) if i % 10], "dev": pairs[::10], "test": tested}
        print(f"**{name}** ({sizes(parts)} pairs)\n", flush=True)
        words = (word for part in parts.values() for *texts, _ in part for text in texts for word in text)
        tokenizer, vectors = with_glove(args, words)
        encoded = {part: encode(tokenizer, pairs) for part, pairs in parts.items()}
        rows = rows_of_table(
            AutoModelForSequenceClassification, HEAD, tokenizer, vectors, encoded, args, args.out / name, **SETTINGS
        )
        compare(rows, ACCURACY, args)


if __name__ == "__main__":
    main()
