"""Entailment: does a sentence follow from another? ESIM with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.entailment.run

The first `--train` of SNLI's dev part train, and a tenth of them chooses the epoch; SNLI's test part tests. Both rows
have the same network (Chen et al. 2017), trained in the same way: one row with GloVe's vectors alone, the other with
GloVe's vectors and ELMo. The biLM is frozen, and its layers are computed once.
"""

from collections.abc import Sequence

from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_elmo
from examples.comparison import ACCURACY, compare, options, parsed, rows_of_table, sizes, with_glove
from examples.data import NLI_CLASSES, snli

HEAD = {
    "id2label": dict(enumerate(NLI_CLASSES)),
    "classifier_text_pairs": True,
    "encoder_type": "esim",
    "encoder_hidden_size": 64,
    "encoder_dropout": 0.3,
    "classifier_dropout": 0.3,
    "classifier_hidden_size": 64,
}
SETTINGS = {"num_train_epochs": 3, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "max_grad_norm": 10.0}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    args = parsed(options(__doc__, "outputs/entailment", train=5000), arguments)
    read = snli(args.data)
    train, test = (read["dev"][:300], read["test"][:300]) if args.quick else (read["dev"][: args.train], read["test"])
    parts = {"train": [pair for i, pair in enumerate(train) if i % 10], "dev": train[::10], "test": test}
    print(f"{sizes(parts)} pairs\n", flush=True)
    texts = [text for part in parts.values() for *pair, _ in part for text in pair]
    tokenizer, vectors = with_glove(args, hf_elmo.count_words(AutoTokenizer.from_pretrained(args.model), texts))
    encoded = {}
    for part, pairs in parts.items():
        premises, hypotheses, labels = (list(column) for column in zip(*pairs, strict=True))
        encoded[part] = Dataset.from_dict({**tokenizer(premises, hypotheses), "labels": labels})
    rows = rows_of_table(
        AutoModelForSequenceClassification, HEAD, tokenizer, vectors, encoded, args, args.out / "model", **SETTINGS
    )
    compare(rows, ACCURACY, args)


if __name__ == "__main__":
    main()
