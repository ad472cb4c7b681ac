"""SST-5: five degrees of sentiment by the biattentive network with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.sst5.run

The network is that of McCann et al. (2017), trained on whole sentences.
"""

from collections.abc import Sequence

from transformers import AutoModelForSequenceClassification

from examples.classifier import encode
from examples.comparison import ACCURACY, DROPOUT, compare, options, parsed, rows_of_table, with_glove
from examples.data import sst5

LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
HEAD = {"id2label": dict(enumerate(LABELS)), "encoder_type": "biattentive", "encoder_hidden_size": 64, **DROPOUT}
SETTINGS = {"num_train_epochs": 3, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "max_grad_norm": 5.0}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    args = parsed(options(__doc__), arguments)
    parts = {part: rows[:200] if args.quick else rows for part, rows in sst5(args.data).items()}
    parts = {part: [(text.split(), label) for text, label in rows] for part, rows in parts.items()}
    tokenizer, vectors = with_glove(args, (words for rows in parts.values() for words, _ in rows))
    encoded = encode(parts, tokenizer, is_split_into_words=True)
    model = AutoModelForSequenceClassification
    compare(rows_of_table(model, HEAD, tokenizer, vectors, encoded, args, **SETTINGS), ACCURACY, args)


if __name__ == "__main__":
    main()
