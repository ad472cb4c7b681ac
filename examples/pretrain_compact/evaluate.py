"""The table of the model card: any number of models side by side.

    PYTHONPATH=examples python -m examples.pretrain_compact.evaluate MODEL... --corpus corpus --data ../shared/data

Perplexity of held-out books and text of today, and of WikiText-2's test part as it is and without its notation; senses
of *line* and *interest* by layer; where the answers of the paper's Table 4 come among all uses of "play" in the Brown
corpus; SMS spam by a textbook's recipe; news topics and names on frozen vectors, by the examples that fine-tune; in the
same way types of questions, with `--measure questions`, whose files are to be had elsewhere (examples/question_types).
Models are folders with both language models and their vocabulary. Needs `hf-elmo[examples]`; an hour a model on one
core.
"""

import argparse
import gzip
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from datasets import disable_progress_bars
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging
from word_senses import accuracies, read_senseval, vectors_of

import hf_elmo
from examples.ag_news import run as ag_news
from examples.classifier import rows as rows_of_classifier
from examples.pretrain_mini.prepare import wikitext_sentences
from examples.question_types import run as question_types
from examples.sms_spam import run as sms_spam
from examples.tagging import run as tagging
from examples.tagging.data import TASKS
from examples.tagging.data import read as read_tagged
from examples.variants import Variant, rows_of_table
from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.pretraining.perplexity import perplexity
from hf_elmo.shipped import located

# Lines of the Brown corpus, from 0: the paper's two sentences with "play", and the nearest that it prints of each.
PLAY = {1240: 1656, 1525: 56449}
# Of the taggers' data sets those that are measured.
NAMES = {"uner_ewt": "names in web text", "wnut17": "names in posts"}

Measures = dict[str, str]  # a row of the table for each


def texts(corpus: Path, data: Path) -> dict[str, list[str]]:
    """The texts of the perplexities: tokenized lines."""
    wikitext = (data / "lm" / "other" / "wikitext-2" / "test.txt").read_text(encoding="utf-8")
    return {
        "held-out books": (corpus / "heldout.txt").read_text(encoding="utf-8").splitlines(),
        "held-out text of today": (corpus / "heldout_modern.txt").read_text(encoding="utf-8").splitlines(),
        "WikiText-2 test": [line for line in wikitext.split("\n") if line.strip()],
        "WikiText-2 test, without its notation": [" ".join(words) for words in wikitext_sentences(wikitext)],
    }


def perplexities(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, found: dict[str, list[str]]) -> Measures:
    """Of each text `exp` of the mean of both models' losses, each line from zero state, and the unknown words."""
    rows = {}
    for name, lines in found.items():
        with TemporaryDirectory() as folder:
            path = Path(folder, "text.txt")
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            result = perplexity(model, tokenizer, path, pretokenized=True)
        rows[f"perplexity, {name}"] = f"{result.mean:.1f} ({result.unknown:.1%} unknown)"
    return rows


def senses(model: hf_elmo.ElmoModel, tokenizer: ElmoTokenizer, data: Path, limit: int | None = None) -> Measures:
    """Accuracies of the nearest neighbor, as `word_senses.py` has them."""
    rows = {}
    for word in ("line", "interest"):
        occurrences = list(read_senseval(data / "wsd" / "senseval" / f"{word}.pos.gz"))
        if limit is not None:  # of all senses
            occurrences = occurrences[:: max(len(occurrences) // limit, 1)]
        for name, accuracy in accuracies(vectors_of(model, tokenizer, occurrences), occurrences).items():
            rows[f"senses of *{word}*, {name}"] = f"{accuracy:.1%}"
    return rows


def brown(path: Path) -> list[str]:
    """The sentences of the Brown corpus with quotation marks as text has them."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    return [line.replace("``", '"').replace("''", '"') for line in text.split("\n")]


def ranks(
    model: hf_elmo.ElmoModel,
    tokenizer: ElmoTokenizer,
    sentences: Sequence[str],
    word: str,
    answers: dict[int, int],
) -> list[tuple[dict[int, int], int]]:
    """For each question, the index of a sentence with `word`, and the index of its answer: the rank of the answer among
    all other sentences with the word, by each layer with context, and their number."""
    places = [place for place, sentence in enumerate(sentences) if word in sentence.casefold()]
    found = []
    for question, answer in answers.items():
        nearest = hf_elmo.nearest_neighbors(
            model, tokenizer, sentences[question], word, [sentences[place] for place in places], top=10 * len(places)
        )
        of_layers = {
            layer: list(dict.fromkeys(places[neighbor.row] for neighbor in neighbors))
            for layer, neighbors in nearest.items()
            if layer > 0
        }
        by_layer = {layer: rows.index(answer) + 1 for layer, rows in of_layers.items()}
        found.append((by_layer, len(of_layers[1])))
    return found


def play(model: hf_elmo.ElmoModel, tokenizer: ElmoTokenizer, data: Path) -> Measures:
    """The paper's two sentences."""
    sentences = brown(data / "lm" / "other" / "brown.txt.gz")
    rows = {}
    for number, (by_layer, count) in enumerate(ranks(model, tokenizer, sentences, "play", PLAY), start=1):
        for layer, rank in by_layer.items():
            rows[f'rank of the paper\'s answer to its "play" {number}, layer {layer}'] = f"{rank} of {count}"
    return rows


def spam(folder: str, tokenizer: ElmoTokenizer, data: Path, seeds: int, limit: int | None = None) -> Measures:
    """Accuracy of the textbook's recipe on frozen vectors, mean and standard deviation over seeds."""
    messages = sms_spam.read(data / "sms_spam" / "spam.csv").map(lambda row: tokenizer(row["text"]))
    train, test = range(sms_spam.TRAIN), range(sms_spam.TRAIN, len(messages))
    parts = {name: messages.select(islice(rows, limit)) for name, rows in (("train", train), ("test", test))}
    with TemporaryDirectory() as out:
        args = Namespace(model=folder, quick=False, out=Path(out))
        (run,) = rows_of_table(
            AutoModelForSequenceClassification,
            sms_spam.TEXTBOOK,
            tokenizer,
            None,
            parts,
            {"textbook": Variant()},
            args,
            args.out / "model",
            **sms_spam.TEXTBOOK_SETTINGS,
        ).values()
        found = np.array([run(seed).metrics["accuracy"] for seed in range(1, seeds + 1)])
    return {f"SMS spam, textbook's recipe, {seeds} seeds": mean_and_deviation(found)}


def mean_and_deviation(found: Sequence[float]) -> str:
    """Over seeds."""
    return f"{np.mean(found):.2%} ± {np.std(found, ddof=len(found) > 1):.2%}"


def frozen(folder: str, data: Path, seeds: int, quick: bool) -> Iterator[tuple[str, str]]:
    """Rows of the examples' tables: classes of news titles, and names, beside word vectors."""
    with TemporaryDirectory() as out:
        args = Namespace(model=folder, data=data, quick=quick, out=Path(out))
        parts = ag_news.read(data, whole=False, quick=quick)
        titles = rows_of_classifier(parts, ag_news.CLASSES, args, args.out / "titles")
        found = [titles["embedding + ELMo"](seed).metrics["accuracy"] for seed in range(1, seeds + 1)]
        yield f"news topics, titles, embedding + ELMo, {seeds} seeds", mean_and_deviation(found)
        for name, what in NAMES.items():
            parts = read_tagged(data, TASKS[name], tagging.SENTENCES, quick)
            run = tagging.rows_of_task(name, parts, args)["GloVe + ELMo"]
            found = [run(seed).metrics["f1"] for seed in range(1, seeds + 1)]
            yield f"{what} ({name}), GloVe + ELMo, {seeds} seeds, F1", mean_and_deviation(found)


def questions(folder: str, data: Path, trec: Path | None, seeds: int, quick: bool) -> Measures:
    """A row of the example's table: question types, beside word vectors."""
    with TemporaryDirectory() as out:
        args = Namespace(model=folder, data=data, quick=quick, out=Path(out))
        classes = dict(enumerate(question_types.CLASSES))
        run = rows_of_classifier(question_types.read(trec or data / "trec", quick), classes, args, args.out)[
            "embedding + ELMo"
        ]
        found = [run(seed).metrics["accuracy"] for seed in range(1, seeds + 1)]
    return {f"question types (TREC-6), embedding + ELMo, {seeds} seeds": mean_and_deviation(found)}


def measures(folder: str, args: Namespace) -> Iterator[Measures]:
    """All rows of a model, as they are measured."""
    model = ElmoForPreTraining.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    steps: dict[str, Callable[[], Measures]] = {
        "perplexity": lambda: perplexities(
            model, tokenizer, {name: lines[: args.limit] for name, lines in texts(args.corpus, args.data).items()}
        ),
        "senses": lambda: senses(model.base_model, tokenizer, args.data, args.limit),
        "play": lambda: play(model.base_model, tokenizer, args.data),
        "spam": lambda: spam(folder, tokenizer, args.data, args.seeds, args.limit),
        "frozen": lambda: dict(frozen(folder, args.data, args.seeds, args.limit is not None)),
        "questions": lambda: questions(folder, args.data, args.trec, args.seeds, args.limit is not None),
    }
    yield {"weights": f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.1f} million"}
    for name in args.measure:
        yield steps[name]()


def table(found: dict[str, Measures]) -> str:
    """Markdown: a column for each model, a row for each measure."""
    rows = [["", *found], ["---"] * (len(found) + 1)]
    names = dict.fromkeys(name for one in found.values() for name in one)
    rows += [[name, *(one.get(name, "") for one in found.values())] for name in names]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


MEASURES = ("perplexity", "senses", "play", "spam", "frozen")


def main(arguments: Iterable[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=located, nargs="+", help="folders of models, or names of those that ship")
    parser.add_argument("--corpus", type=Path, required=True, help="folder that prepare.py wrote")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder [../shared/data]")
    choices = (*MEASURES, "questions")
    parser.add_argument(
        "--measure", choices=choices, nargs="+", default=MEASURES, help="only these [all but questions]"
    )
    parser.add_argument("--trec", type=Path, help="folder of questions' two files [trec in the data folder]")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each training [5]")
    parser.add_argument("--limit", type=int, help="so many lines, occurrences and messages, to see that it runs [all]")
    args = parser.parse_args(arguments)
    disable_progress_bars()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    found: dict[str, Measures] = {}
    for folder in args.models:
        found[Path(folder).name] = {name: value for rows in measures(folder, args) for name, value in rows.items()}
    print(table(found), end="")


if __name__ == "__main__":
    main()
