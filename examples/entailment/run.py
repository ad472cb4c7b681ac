"""Entailment: does a sentence follow from another? ESIM with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.entailment.run

The first `--train` of SNLI's dev part train, and a tenth of them chooses the epoch; SNLI's test part tests. The network
is that of Chen et al. (2017).
"""

from collections.abc import Sequence

from transformers import AutoModelForSequenceClassification

from examples.classifier import encode
from examples.comparison import ACCURACY, DROPOUT, compare, hold_out, options, parsed, rows_of_table, sizes, with_glove
from examples.data import NLI_CLASSES, snli

HEAD = {
    "id2label": dict(enumerate(NLI_CLASSES)),
    "classifier_text_pairs": True,
    "encoder_type": "esim",
    "encoder_hidden_size": 64,
    **DROPOUT,
    "classifier_hidden_size": 64,
}
SETTINGS = {"num_train_epochs": 3, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "max_grad_norm": 10.0}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    args = parsed(options(__doc__, train=5000), arguments)
    read = snli(args.data)
    train, test = (read["dev"][:300], read["test"][:300]) if args.quick else (read["dev"][: args.train], read["test"])
    parts = {**hold_out(train), "test": test}
    print(f"{sizes(parts)} pairs\n", flush=True)
    tokenizer, vectors = with_glove(args, (text for part in parts.values() for *pair, _ in part for text in pair))
    encoded, model = encode(parts, tokenizer), AutoModelForSequenceClassification
    compare(rows_of_table(model, HEAD, tokenizer, vectors, encoded, args, **SETTINGS), ACCURACY, args)


if __name__ == "__main__":
    main()
