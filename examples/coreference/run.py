"""Coreference end to end with and without ELMo (Lee et al. 2017, 2018; Peters et al. 2018, section 4).

    python -m examples.coreference.run

LitBank's first fold: the first sentences of passages of 100 novels. Each row is also tested on GAP, whose pronouns are
as often a woman's as a man's.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from datasets import Dataset

import hf_elmo
from examples.comparison import DROPOUT, compare, gain, options, parsed, rows_of_table, sizes, with_glove
from examples.data import gap, litbank

HEAD = {
    "encoder_type": "bilstm",
    "encoder_hidden_size": 64,
    **DROPOUT,
    "coreference_max_width": 10,
    "coreference_spans_per_word": 0.25,
    "coreference_max_antecedents": 30,
    "coreference_hidden_size": 64,
}
SETTINGS = {"num_train_epochs": 6, "per_device_train_batch_size": 1, "learning_rate": 1e-3, "max_grad_norm": 5.0}
TESTED = 40  # sentences of each document of dev and test, more than of training documents, for less noise
METRICS = {
    "conll_f1": "mean F1",
    "mentions_kept": "mentions kept",
    "muc_f1": "MUC",
    "b_cubed_f1": "B-cubed",
    "ceaf_f1": "CEAF",
    "gap_f1": "GAP F1",
    "gap_masculine_f1": "masculine",
    "gap_feminine_f1": "feminine",
}


Document = dict[str, list]  # `sentences` of words, and `clusters` of mentions, each the first and the last word


def begin(document: Document, sentences: int) -> Document:
    """The first sentences of a document, with clusters of two mentions or more."""
    own = document["sentences"][:sentences]
    words = sum(map(len, own))
    inside = [[mention for mention in cluster if mention[1] < words] for cluster in document["clusters"]]
    return {"sentences": own, "clusters": [cluster for cluster in inside if len(cluster) > 1]}


def in_lines(row: dict[str, Any]) -> dict[str, Any]:
    """A row of GAP, with a line break in place of the blank after a likely end of a sentence."""
    return {**row, "Text": re.sub(r"(?<=[.!?]) (?=[\"'(]?[A-Z])", "\n", row["Text"])}


def scores_on_gap(
    rows: Sequence[dict], tokenizer: hf_elmo.ElmoTokenizer, model: hf_elmo.ElmoForCoreferenceResolution
) -> dict[str, float]:
    """The scores of a trained model on the texts of GAP."""
    resolved = hf_elmo.resolve(model, [row["Text"] for row in rows], tokenizer=tokenizer)
    scores = hf_elmo.gap_scores(rows, [text.characters for text in resolved])
    return {f"gap_{name}": value for name, value in scores.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    args = parsed(options(__doc__, train=80), arguments)
    limits = {"train": 20, "dev": TESTED, "test": TESTED}
    parts = {part: [begin(one, limits[part]) for one in whole] for part, whole in litbank(args.data).items()}
    parts["train"] = parts["train"][: 8 if args.quick else args.train]
    texts = [in_lines(row) for row in gap(args.data)[: 5 if args.quick else 300]]
    print(f"**LitBank** ({sizes(parts)} documents), **GAP** ({len(texts)} texts)\n", flush=True)
    sentences = [sentence for part in parts.values() for document in part for sentence in document["sentences"]]
    tokenizer, vectors = with_glove(args, [*sentences, *(row["Text"] for row in texts)])
    encoded = {}
    for part, documents in parts.items():
        rows = [hf_elmo.encode_document(tokenizer, one["sentences"], one["clusters"]) for one in documents]
        encoded[part] = Dataset.from_list(rows)
    how = {"metrics": hf_elmo.coreference_metrics(), "best": "conll_f1", "collator": hf_elmo.CoreferenceCollator}
    how |= {"further_metrics": partial(scores_on_gap, texts, tokenizer), **SETTINGS}
    rows = rows_of_table(hf_elmo.ElmoForCoreferenceResolution, HEAD, tokenizer, vectors, encoded, args, **how)
    results = compare(rows, METRICS, args)
    print(f"- GAP: {gain(results, *results, 'gap_f1')}")


if __name__ == "__main__":
    main()
