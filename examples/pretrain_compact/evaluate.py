"""The table of the model card: any number of models side by side.

    python -m examples.pretrain_compact.evaluate MODEL... --corpus corpus --data ../shared/data

Perplexity of held-out books and text of today, and of WikiText-2's test part as it is and without its notation; senses
of *line* and *interest* by layer; where the answers of the paper's Table 4 come among all uses of "play" in the Brown
corpus; SMS spam by a textbook's recipe; news topics, names and types of questions on frozen vectors, by the examples
that fine-tune. Models are folders with both language models and their vocabulary. Needs `hf-elmo[examples]`; an hour a
model on one core.
"""

import argparse
import gzip
from argparse import Namespace
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import hf_elmo
from examples.ag_news import run as ag_news
from examples.classifier import dataset
from examples.classifier import rows as rows_of_classifier
from examples.comparison import Run, parsed
from examples.data import TREC_CLASSES
from examples.data import sms_spam as spam_messages
from examples.pretrain_compact.books import wikitext_sentences
from examples.pretrain_compact.prepare import table
from examples.question_types import run as question_types
from examples.sms_spam import run as sms_spam
from examples.tagging import run as tagging
from examples.word_senses import accuracies, read_senseval, vectors_of
from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.loading import locate
from hf_elmo.pretraining.perplexity import perplexity

# Parts of sentences of the Brown corpus: the paper's two with "play", and the nearest that it prints of each.
PLAY = {
    "Chico Ruiz made a spectacular play on Alusik's grounder": "Kieffer , the only junior in the group",
    "Olivia De Havilland signed to do a Broadway play": "actors who had been handed fat roles in a successful play",
}
# Of the taggers' data sets those that are measured.
NAMES = {"uner_ewt": "names in web text", "wnut17": "names in posts"}

Measures = dict[str, str]  # a row of the table for each


def perplexities(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, args: Namespace) -> Measures:
    """Of each text `exp` of the mean of both models' losses, each line from zero state, and the unknown words."""
    wikitext = (args.data / "lm" / "other" / "wikitext-2" / "test.txt").read_text(encoding="utf-8")
    texts = {
        "held-out books": (args.corpus / "heldout.txt").read_text(encoding="utf-8").splitlines(),
        "held-out text of today": (args.corpus / "heldout_modern.txt").read_text(encoding="utf-8").splitlines(),
        "WikiText-2 test": [line for line in wikitext.split("\n") if line.strip()],
        "WikiText-2 test, without its notation": [" ".join(words) for words in wikitext_sentences(wikitext)],
    }
    rows = {}
    for name, lines in texts.items():
        with TemporaryDirectory() as folder:
            path = Path(folder, "text.txt")
            path.write_text("".join(f"{line}\n" for line in lines[: args.limit]), encoding="utf-8")
            result = perplexity(model, path, tokenizer=tokenizer, pretokenized=True)
        rows[f"perplexity, {name}"] = f"{result.mean:.1f} ({result.unknown:.1%} unknown)"
    return rows


def senses(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, args: Namespace) -> Measures:
    """Accuracies of the nearest neighbor, as `word_senses.py` has them."""
    rows = {}
    for word in ("line", "interest"):
        occurrences = list(read_senseval(args.data / "wsd" / "senseval" / f"{word}.pos.gz"))
        if args.limit is not None:  # of all senses
            occurrences = occurrences[:: max(len(occurrences) // args.limit, 1)]
        for name, accuracy in accuracies(vectors_of(model.base_model, tokenizer, occurrences), occurrences).items():
            rows[f"senses of *{word}*, {name}"] = f"{accuracy:.1%}"
    return rows


def play(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, args: Namespace) -> Measures:
    """The ranks of the answers to the paper's two sentences, by each layer with context."""
    text = gzip.decompress((args.data / "lm" / "other" / "brown.txt.gz").read_bytes()).decode("utf-8")
    sentences = [line.replace("``", '"').replace("''", '"') for line in text.split("\n")]
    candidates = [sentence for sentence in sentences if "play" in sentence.casefold()]
    rows = {}
    for number, pair in enumerate(PLAY.items(), start=1):
        question, answer = (next(row for row, text in enumerate(candidates) if part in text) for part in pair)
        query = candidates[question], "play", candidates
        nearest = hf_elmo.nearest_neighbors(model.base_model, *query, tokenizer=tokenizer, top=10 * len(candidates))
        for layer in range(1, len(nearest)):
            ranked = list(dict.fromkeys(neighbor.row for neighbor in nearest[layer]))
            rank = f"{ranked.index(answer) + 1} of {len(ranked)}"
            rows[f'rank of the paper\'s answer to its "play" {number}, layer {layer}'] = rank
    return rows


def over_seeds(run: Callable[[int], Run], args: Namespace, metric: str = "accuracy") -> str:
    """Mean and standard deviation of a metric."""
    scores = [run(seed).metrics[metric] for seed in range(1, args.seeds + 1)]
    return f"{np.mean(scores):.2%} ± {np.std(scores, ddof=len(scores) > 1):.2%}"


def spam(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, args: Namespace) -> Measures:
    """Accuracy of the textbook's recipe on frozen vectors."""
    messages = dataset(spam_messages(args.data)).map(lambda row: tokenizer(row["text"]))
    train, test = range(sms_spam.TRAIN), range(sms_spam.TRAIN, len(messages))
    parts = {name: messages.select(islice(rows, args.limit)) for name, rows in (("train", train), ("test", test))}
    scores = over_seeds(sms_spam.textbook(tokenizer, parts, args)["textbook"], args)
    return {f"SMS spam, textbook's recipe, {args.seeds} seeds": scores}


def frozen(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, args: Namespace) -> Measures:
    """Rows of the examples' tables: classes of news titles, and names, beside word vectors."""
    titles = rows_of_classifier(
        ag_news.read(args.data, whole=False, quick=args.quick), ag_news.CLASSES, args, args.out / "titles"
    )
    rows = {f"news topics, titles, embedding + ELMo, {args.seeds} seeds": over_seeds(titles["embedding + ELMo"], args)}
    for name, what in NAMES.items():
        parts = tagging.read(name, args)
        run = tagging.rows_of_task(name, parts, args)["GloVe + ELMo"]
        rows[f"{what} ({name}), GloVe + ELMo, {args.seeds} seeds, F1"] = over_seeds(run, args, "f1")
    return rows


def questions(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, args: Namespace) -> Measures:
    """A row of the example's table: question types, beside word vectors."""
    parts = question_types.read(args.data, args.quick)
    run = rows_of_classifier(parts, TREC_CLASSES, args, args.out)["embedding + ELMo"]
    return {f"question types (TREC-6), embedding + ELMo, {args.seeds} seeds": over_seeds(run, args)}


def measures(folder: str, args: Namespace) -> Measures:
    """All rows of a model."""
    model = ElmoForPreTraining.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    rows = {"weights": f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.1f} million"}
    with TemporaryDirectory() as out:
        args = Namespace(**vars(args), model=folder, quick=args.limit is not None, out=Path(out))
        for name in args.measure:
            rows |= MEASURES[name](model, tokenizer, args)
    return rows


MEASURES = {measure.__name__: measure for measure in (perplexities, senses, play, spam, frozen, questions)}


def main(arguments: Iterable[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=locate, nargs="+", help="folders of models, or names of those that ship")
    parser.add_argument("--corpus", type=Path, required=True, help="folder that prepare.py wrote")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder [../shared/data]")
    parser.add_argument("--measure", choices=MEASURES, nargs="+", default=list(MEASURES), help="only these [all]")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each training [5]")
    parser.add_argument("--limit", type=int, help="so many lines, occurrences and messages, to see that it runs [all]")
    args = parsed(parser, arguments)
    columns = {Path(folder).name: measures(folder, args) for folder in args.models}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    print(table([["", *columns], *([name, *(column.get(name, "") for column in columns.values())] for name in names)]))


if __name__ == "__main__":
    main()
