"""Chunks and names by a BiLSTM-CRF with and without ELMo: F1 over spans (Peters et al. 2018, appendix).

    python -m examples.tagging.run

In `uner_ewt`, one row reads the biLM's layer 0, which sees only a word's characters, in place of ELMo. `--unfrozen`
adds a row that also trains the biLM, which takes five times as long as the first two rows together.
"""

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from datasets import Dataset
from transformers import AutoModelForTokenClassification

import hf_elmo
from examples import comparison
from examples.data import TAGGED, Sentences, tagged

HEAD = {"encoder_type": "bilstm", "encoder_hidden_size": 100, "tagging_crf": True, "tagging_scheme": "IOB2"}
HEAD |= comparison.DROPOUT
SETTINGS = {"num_train_epochs": 5, "per_device_train_batch_size": 16, "learning_rate": 3e-3, "max_grad_norm": 5.0}
CHARACTERS_IN = "uner_ewt"  # the only table with a row of layer 0, to save time


def encode(tokenizer: hf_elmo.ElmoTokenizer, sentences: Sentences, label2id: dict[str, int]) -> Dataset:
    """A row for each sentence, with a label for each word."""
    words, tags = zip(*sentences, strict=True)
    encoded = tokenizer(list(words), is_split_into_words=True)
    labels = tokenizer.align_labels(encoded, [[label2id[tag] for tag in row] for row in tags])
    return Dataset.from_dict({**encoded, "labels": labels})


def rows_of_tagger(
    parts: dict[str, Sentences],
    args: Namespace,
    head: dict[str, Any] = HEAD,
    metrics: Callable = hf_elmo.span_metrics,
    encode: Callable = encode,
    **how: Any,
) -> comparison.Rows:
    """For each row of a data set's table, a function of the seed that trains and tests it."""
    sentences = [sentence for part in parts.values() for sentence in part]
    tags = sorted({tag for _, tags in sentences for tag in tags})
    fields = {**head, "id2label": dict(enumerate(tags)), "label2id": {tag: i for i, tag in enumerate(tags)}}
    tokenizer, vectors = comparison.with_glove(args, (words for words, _ in sentences))
    encoded = {part: encode(tokenizer, sentences, fields["label2id"]) for part, sentences in parts.items()}
    how |= {"metrics": metrics(fields["id2label"]), "best": "f1", "collator": hf_elmo.TaggingCollator}
    model = AutoModelForTokenClassification
    return comparison.rows_of_table(model, fields, tokenizer, vectors, encoded, args, **how)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each data set."""
    parser = comparison.options(__doc__, train=2000)
    parser.add_argument("--tasks", nargs="+", choices=TAGGED, default=list(TAGGED), help="data sets [all]")
    parser.add_argument("--unfrozen", action="store_true", help="add a row that also trains the biLM")
    args = comparison.parsed(parser, arguments)
    for name in args.tasks:
        limits = (300, 100, 100) if args.quick else (args.train, 400, None)
        parts = tagged(name, args.data).items()
        parts = {part: rows[:limit] for (part, rows), limit in zip(parts, limits, strict=True)}
        print(f"**{name}** ({comparison.sizes(parts)} sentences)\n", flush=True)
        variants = dict(comparison.GLOVE_ROWS)
        if name == CHARACTERS_IN:
            variants = {"GloVe": variants["GloVe"], "GloVe + characters": comparison.CHARACTERS, **variants}
        if args.unfrozen:
            variants["GloVe + ELMo, biLM trained"] = comparison.BILM_TRAINED
        comparison.compare(rows_of_tagger(parts, args, variants=variants, **SETTINGS), comparison.F1, args)


if __name__ == "__main__":
    main()
