"""Taggers: files, batches, and metrics over spans and over semantic roles."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import BatchEncoding, DataCollatorForTokenClassification, EvalPrediction

from ..modeling_elmo import align_left, token_masks
from ..pipeline_elmo import continues_span
from ..reading.conll import read_sentences
from ..utils.extras import extra_needed
from .stored_layers import LayersMixin
from .task import Metrics, Piece, Record, Task, precision_recall_f1, ratio

if TYPE_CHECKING:
    from datasets import Dataset

SCHEMES = {"IOB1": "IOB1", "IOB2": "IOB2", "BIOES": "IOBES", "BIOUL": "BILOU"}  # names in ElmoConfig, and in seqeval
VERB = "V"  # the role of the predicate, which is given and not scored

Span = tuple[int, int]  # the first word, and the word after the last one


def read_conll(path: str | os.PathLike, word: int | None = None, tag: int = -1, encoding: str = "utf-8") -> "Dataset":
    """The sentences of a file in columns, as CoNLL has them: a line for each word, a blank line after each sentence.

    Tabs separate the columns of a line that has tabs, otherwise blanks do. Left out are `-DOCSTART-`; a first line with
    the names of the columns; in a file whose first column numbers the words, CoNLL-U's ranges and empty nodes (`3-4`,
    `8.1`) and WebAnno's parts of words (`1-2.1`); and comments: lines of CoNLL-U such as `# newdoc`, and other lines
    that begin with `#`, unless they have all columns (in a file with tabs, between them) and `#...` is the word.

    Args:
        path, encoding: the path of the file, whose ending names the compression, and the encoding.
        word, tag: the columns of the words and of their tags, from 0; -1 is the last one. By default, the words are in
            column 1 if column 0 numbers the words of the first sentences (CoNLL-U, CoNLL-X, CoNLL-2009), in column 2
            if column 1 numbers the characters then (WebAnno), in column 3 if column 2 numbers the words, after another
            number (CoNLL-2012), and otherwise in column 0 (CoNLL-2000, CoNLL-2003).

    Returns:
        a data set with the columns `words` and `tags`, lists of strings.

    Raises:
        ValueError: a line has another number of columns than most of its sentence, an empty word or tag, or the words
            of a whole sentence; the columns `word` or `tag` do not exist.
    """
    with extra_needed("train"):
        from datasets import Dataset

    sentences = list(read_sentences(path, word, tag, encoding))
    words, tags = ([[columns[part] for columns in sentence] for sentence in sentences] for part in (0, 1))
    return Dataset.from_dict({"words": words, "tags": tags})


class TaggingCollator(LayersMixin, DataCollatorForTokenClassification):
    """transformers' collator, which also pads rows of [`store_layers`] if it has the `model`, as [`LayersCollator`]. A
    row needs `labels`, one for each position, as `tokenizer.align_labels` gives them."""


def span_metrics(id2label: Mapping[int, str], scheme: str | None = None) -> Metrics:
    """`compute_metrics` of Trainer for spans: precision, recall and F1 (micro), and the accuracy of words, by seqeval.

    It evaluates the CRF's tags, or without a CRF the best label of each word, or the labels that Trainer's
    `preprocess_logits_for_metrics` chose. Without a scheme, for labels that are no spans, such as parts of speech
    (none begins with `B-`, `I-`, `E-` or `S-`, and not all are `O`, `B`, `I`, `E` or `S`), it gives the accuracy alone.
    `id2label` is that of the model's configuration; with its `tagging_scheme` as `scheme`, spans count strictly by the
    scheme, with `None` like conlleval."""
    with extra_needed("train"):
        from seqeval import metrics
        from seqeval import scheme as schemes

    has_types = any(name.startswith(("B-", "I-", "E-", "S-")) for name in id2label.values())
    has_spans = has_types or scheme is not None or set(id2label.values()) <= set("OBIES")
    strictly = {} if scheme is None else {"mode": "strict", "scheme": getattr(schemes, SCHEMES[scheme])}

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        truth, predicted = tags_of(prediction, id2label)
        scores = {"accuracy": metrics.accuracy_score(truth, predicted) if any(truth) else 0.0}
        if has_spans:
            for name in ("precision", "recall", "f1"):
                scores[name] = getattr(metrics, f"{name}_score")(truth, predicted, zero_division=0, **strictly)
        return {name: float(score) for name, score in scores.items()}

    return compute


def tags_of(prediction: EvalPrediction, id2label: Mapping[int, str]) -> tuple[list[list[str]], list[list[str]]]:
    """The names of the true labels and of the predicted labels of the words of each row."""
    labels = np.asarray(prediction.label_ids)
    tags = prediction.predictions
    if isinstance(tags, tuple):  # (logits, tags) of a CRF
        tags = tags[1]
    elif tags.shape != labels.shape:  # else `preprocess_logits_for_metrics` has chosen the labels
        tags = tags.argmax(axis=2)
    return tuple(
        [[id2label[int(label)] for label in row[mask]] for row, mask in zip(rows, labels != -100, strict=True)]
        for rows in (labels, tags)
    )


def arguments_of(tags: Sequence[str]) -> list[tuple[str, tuple[Span, ...]]]:
    """The arguments of one predicate, from the tag of each word in IOB2: the role of each argument, and its spans.

    A span `C-X` belongs to the last argument of role X before it; if there is none, the span is itself an argument of
    role X. A reference `R-X` is a role of its own. An `I-` tag that continues no span begins one (as in CoNLL-2005's
    scorer, Carreras and Marquez 2005)."""
    arguments: list[tuple[str, list[Span]]] = []
    last: dict[str, list[Span]] = {}  # the spans of the last argument of each role
    spans: list[Span] = []  # of the last argument that was found
    for place, tag in enumerate(tags):
        if tag == "O":
            continue
        if place and continues_span(tags[place - 1], tag):
            spans[-1] = spans[-1][0], place + 1
            continue
        role = tag.split("-", 1)[-1]
        continued = role.removeprefix("C-")
        if continued == role or continued not in last:
            last[continued] = []
            arguments.append((continued, last[continued]))
        spans = last[continued]
        spans.append((place, place + 1))
    return [(role, tuple(spans)) for role, spans in arguments]


def role_metrics(id2label: Mapping[int, str]) -> Metrics:
    """`compute_metrics` of Trainer for semantic roles: precision, recall and F1 over the arguments of all predicates.

    An argument is correct if its role and all its spans are correct; the verb is not scored. The figures equal
    those of CoNLL-2005's program. `id2label` is that of the model's configuration, with tags in IOB2.
    """

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        truth, guess = (
            Counter((row, one) for row, tags in enumerate(rows) for one in arguments_of(tags) if one[0] != VERB)
            for rows in tags_of(prediction, id2label)
        )
        correct = (truth & guess).total()
        return precision_recall_f1(ratio(correct, guess.total()), ratio(correct, truth.total()))

    return compute


class TaggingTask(Task):
    """A tag for each word of a text. For semantic roles a row is a text and the index of its predicate's word."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reads_roles = self.model.classifier.indicator is not None
        if self.reads_roles:
            self.reads = "pairs of a text and the index of its predicate's word"
            self.types = (str | list, int)

    def read(self, row: Any) -> Any:
        if not self.reads_roles:
            return super().read(row)
        if isinstance(row, tuple) and isinstance(row[1], str) and row[1].isdecimal():
            row = row[0], int(row[1])
        text, index = super().read(row)
        (words,) = self.tokenizer.split_into_words([text], self.pretokenized)
        if words and not 0 <= index < len(words):
            raise ValueError(f"of {len(words)} words there is no word {index}")
        return words, index

    def encode(self, rows: Sequence[Any]) -> list[Piece]:
        if not self.reads_roles:
            return super().encode(rows)
        return [Piece(number, len(words) + 2, (words, index)) for number, (words, index) in enumerate(rows) if words]

    def collate(self, pieces: Sequence[Any]) -> BatchEncoding:
        inputs = super().collate([piece[:1] for piece in pieces])
        if self.reads_roles:  # word 0 is the second position
            position = inputs["attention_mask"].new_tensor([[index + 2] for _, index in pieces])
            inputs["token_type_ids"] = (inputs["attention_mask"].cumsum(1) == position).long()
        return inputs

    def decode(self, pieces: Sequence[Any], inputs: BatchEncoding, output: Any) -> Iterator[Record]:
        is_token, is_boundary = token_masks(inputs["attention_mask"], None, inputs["input_ids"], None)
        is_word = is_token & ~is_boundary
        scores, inside = align_left(output.logits, is_word)
        crf = self.model.classifier.crf
        probabilities = scores.double().softmax(2) if crf is None else crf(scores, inside, marginals=True)
        tags = probabilities.argmax(2) if crf is None else align_left(output.tags, is_word)[0]
        chosen = probabilities.gather(2, tags.clamp(min=0)[:, :, None])[:, :, 0]
        for (words, *_), mask, labels, values in zip(pieces, inside, tags, chosen, strict=True):
            names = [self.model.config.id2label[label] for label in labels[mask].tolist()]
            yield {"words": words, "tags": names, "probabilities": values[mask].tolist()}

    def join(self, row: Any, results: list[Record]) -> Record:
        return results[0] if results else {"words": [], "tags": [], "probabilities": []}

    @staticmethod
    def write(record: Record) -> str:
        """A line for each word with its tag, and a blank line after each row. A tab in a word becomes a space."""
        words = (re.sub(r"[\t\r\n]", " ", word) for word in record["words"])
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, record["tags"], strict=True)) + "\n"
