"""SST-5: five degrees of sentiment by the biattentive network with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.sst5.run ../shared/data

Both rows have the same network (McCann et al. 2017), trained in the same way on whole sentences: one row with GloVe's
vectors alone, the other with GloVe's vectors and ELMo. The biLM is frozen, and its layers are computed once.
"""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForSequenceClassification

from examples.comparison import ACCURACY, compare, options, parsed, rows_of_table, with_glove

LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
HEAD = {
    "id2label": dict(enumerate(LABELS)),
    "encoder_type": "biattentive",
    "encoder_hidden_size": 64,
    "encoder_dropout": 0.3,
    "classifier_dropout": 0.3,
}
SETTINGS = {"num_train_epochs": 3, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "max_grad_norm": 5.0}
FILES = {"train": "train.txt.gz", "dev": "dev.txt", "test": "test.txt"}
WRITTEN = {"-LRB-": "(", "-RRB-": ")", "``": '"', "''": '"'}  # how the treebank writes characters of the text


def read(path: Path) -> tuple[list[list[str]], list[int]]:
    """The words of the sentences of a file of trees, and the labels of their roots."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        trees = [line for line in lines if line.strip()]
    leaves = [re.findall(r"\d ([^()]+)\)", tree) for tree in trees]
    return [[WRITTEN.get(word, word.replace("\\/", "/")) for word in row] for row in leaves], [int(x[1]) for x in trees]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    args = parsed(options(__doc__, "outputs/sst5"), arguments)
    parts = {part: read(args.data / "sst" / "trees" / file) for part, file in FILES.items()}
    if args.quick:
        parts = {part: (words[:200], labels[:200]) for part, (words, labels) in parts.items()}
    tokenizer, vectors = with_glove(args, (word for texts, _ in parts.values() for words in texts for word in words))
    encoded = {
        part: Dataset.from_dict({**tokenizer(words, is_split_into_words=True), "labels": labels})
        for part, (words, labels) in parts.items()
    }
    rows = rows_of_table(
        AutoModelForSequenceClassification, HEAD, tokenizer, vectors, encoded, args, args.out / "model", **SETTINGS
    )
    compare(rows, ACCURACY, args)


if __name__ == "__main__":
    main()
