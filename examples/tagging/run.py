"""Chunks and names by a BiLSTM-CRF with and without ELMo: F1 over spans (Peters et al. 2018, appendix).

    python -m examples.tagging.run ../shared/data

The rows of a data set are the same tagger, trained in the same way. One reads word vectors alone: GloVe's, which know
no capitals, or for Spanish vectors that it learns; one ELMo beside them, of a frozen biLM whose layers are computed
once. In `uner_ewt` one reads the biLM's layer 0 in place of ELMo, which sees the characters of a word and nothing
beside it; `--unfrozen` adds one that trains the biLM, too, which takes five times as long as the other two together.
"""

from argparse import Namespace
from collections.abc import Sequence

from transformers import AutoModelForTokenClassification, AutoTokenizer

import hf_elmo
from examples.comparison import clock, compare, options, parsed
from examples.tagging.data import TASKS, Sentences, encode, read
from examples.variants import GLOVE, VARIANTS, report, rows_of_table

HEAD = {
    "encoder_type": "bilstm",
    "encoder_hidden_size": 100,
    "encoder_dropout": 0.3,
    "classifier_dropout": 0.3,
    "tagging_crf": True,
    "tagging_scheme": "IOB2",
}
SETTINGS = {"num_train_epochs": 5, "per_device_train_batch_size": 16, "learning_rate": 3e-3, "max_grad_norm": 5.0}
SENTENCES = 2000  # that train
ROWS = ["", " + ELMo"]
MORE_ROWS = {"uner_ewt": [" + characters"]}  # for time's sake of one table
UNFROZEN = " + ELMo, biLM trained"


def rows_of_task(name: str, parts: dict[str, Sentences], args: Namespace, unfrozen: bool = False) -> dict:
    """For each row of a data set's table a function of the seed."""
    tags = sorted({tag for sentences in parts.values() for _, own in sentences for tag in own})
    fields = {**HEAD, "id2label": dict(enumerate(tags)), "label2id": {tag: i for i, tag in enumerate(tags)}}
    tokenizer, vectors = AutoTokenizer.from_pretrained(args.model), None
    if TASKS[name].english:
        words = {word for sentences in parts.values() for own, _ in sentences for word in own}
        tokenizer.words, vectors = hf_elmo.read_word_vectors(args.data / GLOVE, words=words)
    else:
        tokenizer.words = hf_elmo.count_words(tokenizer, [words for words, _ in parts["train"]], min_count=2)
    first = "embedding" if vectors is None else "GloVe"
    rows = ROWS + MORE_ROWS.get(name, []) + [UNFROZEN] * unfrozen
    return rows_of_table(
        AutoModelForTokenClassification,
        fields,
        tokenizer,
        vectors,
        {part: encode(tokenizer, sentences, fields["label2id"]) for part, sentences in parts.items()},
        {first + row: variant for row, variant in VARIANTS.items() if row in rows},
        args,
        args.out / name,
        metrics=hf_elmo.span_metrics(fields["id2label"]),
        best="f1",
        collator=hf_elmo.TaggingCollator,
        **SETTINGS,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each data set."""
    parser = options(__doc__, "outputs/tagging")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="data sets [all]")
    parser.add_argument("--sentences", type=int, default=SENTENCES, help=f"sentences of each that train [{SENTENCES}]")
    parser.add_argument("--unfrozen", action="store_true", help="a row more, which trains the biLM, too")
    args = parsed(parser, arguments)
    for name in args.tasks:
        start = clock()
        parts = read(args.data, TASKS[name], args.sentences, args.quick)
        counts = ", ".join(f"{len(sentences):,} {part}" for part, sentences in parts.items())
        print(f"**{name}** ({counts} sentences)\n", flush=True)
        results = compare(rows_of_task(name, parts, args, args.unfrozen), args.seeds)
        report(results, {"f1": "F1", "precision": "precision", "recall": "recall"}, start)


if __name__ == "__main__":
    main()
