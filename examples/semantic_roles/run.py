"""Who did what to whom: semantic roles with and without ELMo, F1 over arguments (Peters et al. 2018, appendix).

    python -m examples.semantic_roles.run

A smaller tagger of He et al. (2017): layers that are in turn forward and backward, with highways and recurrent dropout,
read the word vectors, each with a mark of the predicate; the result is the most probable tags that IOB2 allows. One row
reads GloVe's vectors alone, the other also reads ELMo, from a frozen biLM whose layers are computed once.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset
from transformers import AutoModelForTokenClassification

import hf_elmo
from examples.comparison import F1, compare, options, parsed, rows_of_table, sizes, with_glove
from examples.data import propbank

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


class Predicate(NamedTuple):
    """The words of a sentence, where its predicate is, and the tags of its roles, in IOB2."""

    words: list[str]
    place: int
    tags: list[str]


def read(data: Path | None, train: int, quick: bool) -> dict[str, list[Predicate]]:
    """Train (the predicates of its first `train` sentences), dev and test."""
    limits = {"train": 60, "dev": 20, "test": 20} if quick else {"train": train, "dev": 200, "test": None}
    parts = {part: islice(propbank(data, part), limit) for part, limit in limits.items()}
    tagged = {part: [(words, [*map(tags_of, columns)]) for words, columns in rows] for part, rows in parts.items()}
    return {
        part: [Predicate(words, own.index("B-V"), own) for words, tags in rows for own in tags]
        for part, rows in tagged.items()
    }


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


def encode(tokenizer: hf_elmo.ElmoTokenizer, predicates: list[Predicate], label2id: dict[str, int]) -> Dataset:
    """A row for each predicate: its sentence, 1 in `token_type_ids` at the predicate, and a label for each word."""
    words = [predicate.words for predicate in predicates]
    encoded = tokenizer(words, is_split_into_words=True)
    labels = [[label2id[tag] for tag in predicate.tags] for predicate in predicates]
    marks = [[int(n == predicate.place) for n in range(len(predicate.words))] for predicate in predicates]
    marks = [[max(mark, 0) for mark in row] for row in tokenizer.align_labels(encoded, marks)]  # boundaries: 0
    labels = tokenizer.align_labels(encoded, labels)
    return Dataset.from_dict({**encoded, "token_type_ids": marks, "labels": labels})


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = options(__doc__, "outputs/semantic_roles")
    parser.add_argument("--sentences", type=int, default=1000, help="sentences that train [1000]")
    args = parsed(parser, arguments)
    parts = read(args.data, args.sentences, args.quick)
    print(f"({sizes(parts)} predicates)\n", flush=True)
    predicates = [predicate for part in parts.values() for predicate in part]
    tags = sorted({tag for predicate in predicates for tag in predicate.tags})
    fields = {**HEAD, "id2label": dict(enumerate(tags)), "label2id": {tag: i for i, tag in enumerate(tags)}}
    tokenizer, vectors = with_glove(args, (word for predicate in predicates for word in predicate.words))
    rows = rows_of_table(
        AutoModelForTokenClassification,
        fields,
        tokenizer,
        vectors,
        {name: encode(tokenizer, part, fields["label2id"]) for name, part in parts.items()},
        args,
        args.out / "model",
        metrics=hf_elmo.role_metrics(fields["id2label"]),
        best="f1",
        collator=hf_elmo.TaggingCollator,
        **SETTINGS,
    )
    compare(rows, F1, args)


if __name__ == "__main__":
    main()
