"""SST-5: five degrees of sentiment by the biattentive network with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.sst5.run

Both rows have the same network (McCann et al. 2017), trained in the same way on whole sentences: one row with GloVe's
vectors alone, the other with GloVe's vectors and ELMo. The biLM is frozen, and its layers are computed once.
"""

from collections.abc import Sequence

from datasets import Dataset
from transformers import AutoModelForSequenceClassification

from examples.comparison import ACCURACY, compare, options, parsed, rows_of_table, with_glove
from examples.data import sst5

LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
HEAD = {
    "id2label": dict(enumerate(LABELS)),
    "encoder_type": "biattentive",
    "encoder_hidden_size": 64,
    "encoder_dropout": 0.3,
    "classifier_dropout": 0.3,
}
SETTINGS = {"num_train_epochs": 3, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "max_grad_norm": 5.0}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    args = parsed(options(__doc__, "outputs/sst5"), arguments)
    parts = {part: rows[:200] if args.quick else rows for part, rows in sst5(args.data).items()}
    tokenizer, vectors = with_glove(
        args, (word for rows in parts.values() for text, _ in rows for word in text.split())
    )
    encoded = {}
    for part, rows in parts.items():
        words, labels = [text.split() for text, _ in rows], [label for _, label in rows]
        encoded[part] = Dataset.from_dict({**tokenizer(words, is_split_into_words=True), "labels": labels})
    rows = rows_of_table(
        AutoModelForSequenceClassification, HEAD, tokenizer, vectors, encoded, args, args.out / "model", **SETTINGS
    )
    compare(rows, ACCURACY, args)


if __name__ == "__main__":
    main()
