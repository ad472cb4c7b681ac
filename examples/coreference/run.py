"""Coreference end to end with and without ELMo (Lee et al. 2017, 2018; Peters et al. 2018, section 4).

    python -m examples.coreference.run ../shared/data

LitBank's first fold: the first 40 sentences of passages of 100 novels. The rows are the same resolver, trained in the
same way: one on GloVe's vectors alone, one on these and ELMo, of a frozen biLM whose layers are computed once. Each is
also tested on GAP, whose pronouns are as often a woman's as a man's.
"""

from argparse import Namespace
from collections.abc import Callable, Sequence

from datasets import Dataset
from transformers import AutoTokenizer

import hf_elmo
from examples.comparison import clock, compare, options, parsed
from examples.coreference.data import Document, read_gap, read_litbank
from examples.variants import GLOVE, VARIANTS, report, rows_of_table

HEAD = {
    "encoder_type": "bilstm",
    "encoder_hidden_size": 64,
    "encoder_dropout": 0.3,
    "classifier_dropout": 0.3,
    "coreference_max_width": 10,
    "coreference_spans_per_word": 0.25,
    "coreference_max_antecedents": 30,
    "coreference_hidden_size": 64,
}
SETTINGS = {"num_train_epochs": 12, "per_device_train_batch_size": 1, "learning_rate": 1e-3, "max_grad_norm": 5.0}
# In a minute on few documents it learns something, whereas a training that does nothing has scores of 0.
QUICK = {"quick_epochs": 12, "learning_rate": 3e-3, "patience": 12}
WITHOUT_DROPOUT = {"encoder_dropout": 0.0, "classifier_dropout": 0.0}
METRICS = {
    "conll_f1": "mean F1",
    "muc_f1": "MUC",
    "b_cubed_f1": "B-cubed",
    "ceaf_f1": "CEAF",
    "gap_f1": "GAP F1",
    "gap_masculine_f1": "masculine",
    "gap_feminine_f1": "feminine",
}


def encode(tokenizer: hf_elmo.ElmoTokenizer, documents: Sequence[Document]) -> Dataset:
    """A row for each document."""
    return Dataset.from_list([hf_elmo.encode_document(tokenizer, each.sentences, each.clusters) for each in documents])


def on_gap(tokenizer: hf_elmo.ElmoTokenizer, rows: Sequence[dict]) -> Callable[[object], dict[str, float]]:
    """A function of a model: its scores on GAP."""

    def score(model: hf_elmo.ElmoForCoreferenceResolution) -> dict[str, float]:
        found = hf_elmo.resolve(model, [row["Text"] for row in rows], tokenizer=tokenizer)
        scores = hf_elmo.gap_scores(rows, [one.characters for one in found])
        return {f"gap_{name}": value for name, value in scores.items()}

    return score


def rows_of_litbank(parts: dict[str, list[Document]], gap: list[dict], args: Namespace) -> dict:
    """For each row of the table a function of the seed."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    words = {word for part in parts.values() for each in part for sentence in each.sentences for word in sentence}
    words |= {word for text in tokenizer.split_into_words([row["Text"] for row in gap]) for word in text}
    tokenizer.words, vectors = hf_elmo.read_word_vectors(args.data / GLOVE, words=words)
    encoded = {part: encode(tokenizer, documents) for part, documents in parts.items()}
    head = {**HEAD, **(WITHOUT_DROPOUT if args.quick else {})}
    fields = {**head, "word_vectors_vocab_size": len(tokenizer.words) + 3, "word_vectors_size": vectors.shape[1]}
    model = hf_elmo.ElmoForCoreferenceResolution.from_pretrained(args.model, dtype="float32", **fields)
    stored = {
        part: hf_elmo.store_layers(model, rows, folder=args.out / "layers", batch_size=4)
        for part, rows in encoded.items()
    }
    return rows_of_table(
        hf_elmo.ElmoForCoreferenceResolution,
        head,
        tokenizer,
        vectors,
        stored,
        {f"GloVe{row}": VARIANTS[row] for row in ("", " + ELMo")},
        args,
        args.out / "model",
        metrics=hf_elmo.coreference_metrics(),
        best="conll_f1",
        collator=hf_elmo.CoreferenceCollator,
        also=on_gap(tokenizer, gap),
        **{**SETTINGS, **(QUICK if args.quick else {})},
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = options(__doc__, "outputs/coreference")
    parser.add_argument("--fold", type=int, choices=range(10), default=0, help="of LitBank's ten [0]")
    parser.add_argument("--documents", type=int, default=80, help="that train [80]")
    parser.add_argument("--sentences", type=int, default=40, help="of each document that are read, its first [40]")
    parser.add_argument("--gap", type=int, default=500, help="texts of GAP [500]")
    args = parsed(parser, arguments)
    if args.quick:
        args.documents, args.sentences, args.gap = 8, 10, 5
    start = clock()
    documents = read_litbank(args.data, args.fold)
    parts = {part: [each.begin(args.sentences) for each in own] for part, own in documents.items()}
    parts["train"] = parts["train"][: args.documents]
    if args.quick:
        parts |= {part: parts[part][:3] for part in ("dev", "test")}
    gap = read_gap(args.data, args.gap)
    counts = ", ".join(f"{len(documents)} {part}" for part, documents in parts.items())
    print(f"**LitBank**, fold {args.fold} ({counts} documents), **GAP** ({len(gap)} texts)\n", flush=True)
    results = compare(rows_of_litbank(parts, gap, args), args.seeds)
    report(results, METRICS, start)


if __name__ == "__main__":
    main()
