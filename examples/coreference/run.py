"""Coreference end to end with and without ELMo (Lee et al. 2017, 2018; Peters et al. 2018, section 4).

    python -m examples.coreference.run

LitBank's first fold: the first sentences of passages of 100 novels. Each row is also tested on GAP, whose pronouns are
as often a woman's as a man's.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from datasets import Dataset

import hf_elmo
from examples.comparison import DROPOUT, compare, gain, options, parsed, rows_of_table, sizes, with_glove
from examples.data import gap, litbank
from hf_elmo.tasks.coreference import Span
from hf_elmo.tasks.task import precision_recall_f1, ratio

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
GENDERS = dict.fromkeys(("he", "him", "his"), "masculine") | dict.fromkeys(("she", "her", "hers"), "feminine")
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


def gap_scores(rows: Sequence[Mapping[str, Any]], clusters: Sequence[Sequence[Sequence[Span]]]) -> dict[str, float]:
    """Precision, recall and F1 of GAP (Webster et al. 2018), in total and by gender: which name a pronoun refers to. It
    is one of which the pronoun's cluster has a mention that is the name, a part of it, or ends with it (*Mr. Obama*).

    Args:
        rows: with the columns of GAP's files: `Pronoun`, `Pronoun-offset`, `A`, `A-offset`, `A-coref`, ...(or text).
        clusters: the clusters of each row, each mention a `(start, end)` in `Text`.

    Returns:
        fractions: `precision`, `recall`, `f1`; the same with the prefixes `masculine_` and `feminine_`; and `bias`, the
        feminine F1 divided by the masculine F1.
    """
    counts = {gender: np.zeros(3) for gender in ("masculine", "feminine")}  # correct, predicted and true references
    for row, row_clusters in zip(rows, clusters, strict=True):
        starts = {name: int(row[f"{name}-offset"]) for name in ("Pronoun", "A", "B")}
        places = {name: (start, start + len(row[name])) for name, start in starts.items()}
        mentions = [one for own in row_clusters if places["Pronoun"] in map(tuple, own) for one in own]
        for name in ("A", "B"):
            start, end = places[name]
            predicted = any((start <= a and b <= end) or (a <= start and b == end) for a, b in mentions)
            true = str(row[f"{name}-coref"]).upper() == "TRUE"
            counts[GENDERS[row["Pronoun"].lower()]] += predicted and true, predicted, true
    scores: dict[str, float] = {}
    for gender, (correct, predicted, true) in {"": sum(counts.values()), **counts}.items():
        scores |= precision_recall_f1(ratio(correct, predicted), ratio(correct, true), gender and f"{gender}_")
    return scores | {"bias": ratio(scores["feminine_f1"], scores["masculine_f1"])}


def scores_on_gap(
    rows: Sequence[dict], tokenizer: hf_elmo.ElmoTokenizer, model: hf_elmo.ElmoForCoreferenceResolution
) -> dict[str, float]:
    """The scores of a trained model on the texts of GAP."""
    resolved = hf_elmo.resolve(model, [row["Text"] for row in rows], tokenizer=tokenizer)
    scores = gap_scores(rows, [text.characters for text in resolved])
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
