"""Who did what to whom: semantic roles with and without ELMo, F1 over arguments (Peters et al. 2018, appendix).

    python -m examples.semantic_roles.run

A smaller tagger of He et al. (2017): layers that are in turn forward and backward, with highways and recurrent dropout,
read the word vectors, each with a mark of the predicate; the result is the most probable tags that IOB2 allows.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from datasets import Dataset

import hf_elmo
from examples.comparison import F1, compare, options, parsed, sizes
from examples.data import Sentences, propbank
from examples.tagging import run as tagging

HEAD = {
    "encoder_type": "alternating",
    "encoder_num_layers": 4,
    "encoder_hidden_size": 128,
    "encoder_dropout": 0.2,
    "encoder_recurrent_dropout": 0.1,
    "classifier_dropout": 0.1,
    "tagging_indicator_size": 32,
    "tagging_scheme": "IOB2",
}
SETTINGS = {"num_train_epochs": 8, "per_device_train_batch_size": 32, "learning_rate": 2e-3, "max_grad_norm": 1.0}


def read(data: Path | None, train: int, quick: bool) -> dict[str, Sentences]:
    """Train (its first `train` sentences), dev and test: for each predicate the words and the tags of its roles."""
    limits = {"train": 60, "dev": 20, "test": 20} if quick else {"train": train, "dev": 200, "test": None}
    parts = {part: islice(propbank(data, part), limit) for part, limit in limits.items()}
    return {part: [(words, tags_of(one)) for words, spans in rows for one in spans] for part, rows in parts.items()}


def tags_of(spans: Iterable[str]) -> list[str]:
    """Spans in brackets, such as `(ARG0*`, `*`, `*)`, as tags in IOB2."""
    tags, role = [], None
    for span in spans:
        opened = re.match(r"\(([^*()]+)", span)
        role = opened[1] if opened else role
        tags.append("O" if role is None else f"{'B' if opened else 'I'}-{role}")
        if span.endswith(")"):
            role = None
    return tags


def encode(tokenizer: hf_elmo.ElmoTokenizer, sentences: Sentences, label2id: dict[str, int]) -> Dataset:
    """A row for each predicate, with 1 in `token_type_ids` at the predicate, and a label for each word."""
    marks = [[0, *(int(tag == "B-V") for tag in tags), 0] for _, tags in sentences]
    return tagging.encode(tokenizer, sentences, label2id).add_column("token_type_ids", marks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    args = parsed(options(__doc__, train=1000), arguments)
    parts = read(args.data, args.train, args.quick)
    print(f"({sizes(parts)} predicates)\n", flush=True)
    compare(tagging.rows_of_tagger(parts, args, HEAD, hf_elmo.role_metrics, encode, **SETTINGS), F1, args)


if __name__ == "__main__":
    main()
