"""AG News: the class of a text by word vectors, a BiLSTM and a classifier, with and without ELMo.

    python -m examples.ag_news.run ../shared/data

A textbook's comparison: word vectors that are learned from the training texts, and GloVe's, frozen and trained, each
alone and beside ELMo, `[x; ELMo]`. The rows of a table differ in nothing else. The biLM is frozen: its layers are
computed once, for all rows and seeds.
"""

import csv
import gzip
import html
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_elmo
from examples.comparison import Run, bar_chart, clock, compare, gain, options, parsed, table, took
from examples.variants import GLOVE, VARIANTS, Variant, rows_of_table

TEXTS = ("titles", "whole")
CLASSES = {0: "World", 1: "Sports", 2: "Business", 3: "Sci/Tech"}
TRAIN_TITLES = 5600  # of the 7,600 in test.csv; the others are the test part of both tables
WHOLE_TEXTS = 2000
HEAD = {"encoder_type": "bilstm", "encoder_hidden_size": 100, "classifier_pooling": "max", "id2label": CLASSES}
SETTINGS = {"num_train_epochs": 6, "per_device_train_batch_size": 32, "learning_rate": 2e-3}
# Beside a vector of 50 numbers the 512 of ELMo start small: on folds of the titles that train 0.4 to 0.8 points more.
ELMO = Variant(rates={"mix": 1e-3}, gamma=0.1, saved=True)
KINDS = {"embedding": False, "GloVe, frozen": True, "GloVe, trained": False}  # of word vectors; whether frozen

Parts = dict[str, Dataset]


def titled(data: Path) -> list[list[str]]:
    """The rows of `test.csv`: class, title, description."""
    with (data / "ag_news" / "test.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def subset(data: Path) -> list[dict[str, str]]:
    """The rows of `train_subset.csv.gz`: `class`, `text` (title and description in one), `has_title`."""
    with gzip.open(data / "ag_news" / "train_subset.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read(data: Path, whole: bool, quick: bool) -> Parts:
    """Titles, or whole texts (title and description): a tenth of those that train is held out as `dev`."""
    rows = [(f"{title} {text}" if whole else title, label) for label, title, text in titled(data)]
    train, test = rows[:TRAIN_TITLES], rows[TRAIN_TITLES:]
    if whole:
        others = [(row["text"], row["class"]) for row in subset(data) if row["has_title"] == "1"]
        train = others[:: max(1, len(others) // WHOLE_TEXTS)][:WHOLE_TEXTS]
    if quick:
        train, test = train[:300], test[:100]
    parts = {"train": [row for i, row in enumerate(train) if i % 10], "dev": train[::10], "test": test}
    return {
        name: Dataset.from_list([{"text": plain(text), "labels": int(label) - 1} for text, label in part])
        for name, part in parts.items()
    }


def plain(text: str) -> str:
    r"""Text without what is left of mark-up in it: `#39;` for an apostrophe, `\` for a line break."""
    return html.unescape(re.sub(r"(?<!&)#(\d+;)", r"&#\1", text)).replace("\\", " ")


def rows(parts: Parts, args: Namespace, saved: Path) -> dict[str, Callable[[int], Run]]:
    """The rows of a table, each a function of the seed; the models with ELMo go into the folder `saved`."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    elmo = AutoModelForSequenceClassification.from_pretrained(args.model, dtype="float32")
    tokenized = {part: texts.map(lambda row: tokenizer(row["text"])) for part, texts in parts.items()}
    stored = {part: hf_elmo.store_layers(elmo, texts, folder=args.out / "layers") for part, texts in tokenized.items()}
    learned = hf_elmo.count_words(tokenizer, parts["train"]["text"], min_count=2, lowercase=True)
    found = hf_elmo.count_words(tokenizer, [text for texts in parts.values() for text in texts["text"]])
    words, glove = hf_elmo.read_word_vectors(args.data / GLOVE, words=found)
    made = {}
    for kind, frozen in KINDS.items():
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        tokenizer.words = learned if kind == "embedding" else words
        numbered = {
            part: layers.add_column("word_vector_ids", tokenizer(list(layers["text"]))["word_vector_ids"])
            for part, layers in stored.items()
        }
        made |= rows_of_table(
            AutoModelForSequenceClassification,
            {**HEAD, "freeze_word_vectors": frozen},
            tokenizer,
            None if kind == "embedding" else glove,
            numbered,
            {kind: VARIANTS[""], kind + " + ELMo": ELMO},
            args,
            saved / re.sub(r"\W+", "_", kind.lower()),
            **SETTINGS,
        )
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables and the gains; draws the charts."""
    parser = options(__doc__, "outputs/ag_news")
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS[:1], help="the tables to make [titles]")
    args = parsed(parser, arguments)
    for name in args.texts:
        start = clock()
        parts = read(args.data, name == "whole", args.quick)
        results = compare(rows(parts, args, args.out / name), args.seeds)
        print(f"{name}: {', '.join(f'{len(rows):,} {part}' for part, rows in parts.items())}\n")
        print(table(results, {"accuracy": "accuracy", "macro_f1": "macro F1"}), end="\n\n")
        for alone in KINDS:
            print(f"- {gain(results, alone, alone + ' + ELMo')}")
        print(f"- {took(start)}\n", flush=True)
        label = f"accuracy (%) on {'titles' if name == 'titles' else 'whole texts'}, from chance on"
        bar_chart(results, "accuracy", label, args.out / f"{name}.png", start=25)


if __name__ == "__main__":
    main()
