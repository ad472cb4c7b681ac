"""Who did what to whom: semantic roles with and without ELMo, F1 over arguments (Peters et al. 2018, appendix).

    python -m examples.semantic_roles.run ../shared/data

A smaller tagger of He et al. (2017): layers that are in turn forward and backward, with highways and recurrent dropout,
read the word vectors, each with a mark of the predicate; the result is the most probable tags that IOB2 allows. One row
reads GloVe's vectors alone, the other also reads ELMo, from a frozen biLM whose layers are computed once.
"""

from collections.abc import Sequence

from transformers import AutoModelForTokenClassification

import hf_elmo
from examples.comparison import F1, compare, options, parsed, rows_of_table, sizes, with_glove
from examples.semantic_roles.data import encode, read

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
