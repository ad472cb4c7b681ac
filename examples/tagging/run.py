"""Chunks and names by a BiLSTM-CRF with and without ELMo: F1 over spans (Peters et al. 2018, appendix).

    python -m examples.tagging.run ../shared/data

All rows of a data set have the same tagger, trained in the same way. One row reads word vectors alone: GloVe's, which
ignore capitals, or, for Spanish, vectors that it learns. Another row also reads ELMo, from a frozen biLM whose layers
are computed once. In `uner_ewt`, one row reads the biLM's layer 0, which sees only a word's characters, in place of
ELMo. `--unfrozen` adds a row that also trains the biLM, which takes five times as long as the first two rows together.
"""

from argparse import Namespace
from collections.abc import Sequence

from transformers import AutoModelForTokenClassification, AutoTokenizer

import hf_elmo
from examples import comparison
from examples.tagging.data import TASKS, Sentences, encode, read

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
CHARACTERS_IN = "uner_ewt"  # the only table with a row of layer 0, to save time


def rows_of_task(name: str, parts: dict[str, Sentences], args: Namespace, unfrozen: bool = False) -> comparison.Rows:
    """For each row of a data set's table, a function of the seed that trains and tests it."""
    tags = sorted({tag for sentences in parts.values() for _, tags in sentences for tag in tags})
    fields = {**HEAD, "id2label": dict(enumerate(tags)), "label2id": {tag: i for i, tag in enumerate(tags)}}
    if TASKS[name].english:
        kind = "GloVe"
        words = (word for sentences in parts.values() for words, _ in sentences for word in words)
        tokenizer, vectors = comparison.with_glove(args, words)
    else:
        kind = "embedding"
        tokenizer, vectors = AutoTokenizer.from_pretrained(args.model), None
        tokenizer.words = hf_elmo.count_words(tokenizer, [words for words, _ in parts["train"]], min_count=2)
    variants = {kind: comparison.ALONE}
    if name == CHARACTERS_IN:
        variants[f"{kind} + characters"] = comparison.CHARACTERS
    variants[f"{kind} + ELMo"] = comparison.ELMO
    if unfrozen:
        variants[f"{kind} + ELMo, biLM trained"] = comparison.BILM_TRAINED
    return comparison.rows_of_table(
        AutoModelForTokenClassification,
        fields,
        tokenizer,
        vectors,
        {part: encode(tokenizer, sentences, fields["label2id"]) for part, sentences in parts.items()},
        args,
        args.out / name,
        variants=variants,
        metrics=hf_elmo.span_metrics(fields["id2label"]),
        best="f1",
        collator=hf_elmo.TaggingCollator,
        **SETTINGS,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each data set."""
    parser = comparison.options(__doc__, "outputs/tagging")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="data sets [all]")
    parser.add_argument("--sentences", type=int, default=SENTENCES, help=f"sentences of each that train [{SENTENCES}]")
    parser.add_argument("--unfrozen", action="store_true", help="a row more, which trains the biLM, too")
    args = comparison.parsed(parser, arguments)
    for name in args.tasks:
        parts = read(args.data, TASKS[name], args.sentences, args.quick)
        print(f"**{name}** ({comparison.sizes(parts)} sentences)\n", flush=True)
        comparison.compare(rows_of_task(name, parts, args, args.unfrozen), comparison.F1, args)


if __name__ == "__main__":
    main()
