"""Coreference: documents as rows, batches, clusters of texts, and scores: MUC, B-cubed and CEAF."""

import os
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchEncoding, EvalPrediction

from ..checkpoints.loading import Device, load_head
from ..configuration_elmo import IGNORE_INDEX
from ..modeling_coreference_elmo import ElmoForCoreferenceResolution
from ..reading.conll import read_columns
from ..text_elmo import as_list
from ..tokenization_elmo import ElmoTokenizer
from ..utils.extras import extra_needed
from .stored_layers import LayersCollator, place
from .task import Metrics, Piece, Record, Task, precision_recall_f1, ratio

if TYPE_CHECKING:
    from datasets import Dataset

Span = tuple[int, int]
Document = str | Sequence[Sequence[str]]
Clusters = Sequence[Sequence[Hashable | list[Hashable]]]


@dataclass(frozen=True)
class Resolved:
    """The words of a document, and its clusters of two or more mentions in the order of the text; a mention is the
    indices of its first and last word, and in `characters` (`None` for a list) `(start, end)` in the text."""

    words: list[str]
    clusters: list[list[Span]]
    characters: list[list[Span]] | None


def read_conll2012(path: str | os.PathLike, encoding: str = "utf-8") -> "Dataset":
    """The documents of a file in the columns of CoNLL-2012 or of LitBank; the ending of its name gives the compression.

    Returns:
        a data set with a row for each document: `document` and `part`, from its `#begin` line, and the arguments of
        [`encode_document`]: `sentences`, lists of words; `clusters`, lists of mentions, some with only one mention, and
        each mention only in its first cluster; `speakers`, the name or `None` at the first word of each sentence.

    Raises:
        ValueError: a line is above the first `#begin` or has too few columns, or a mention has only one end.
    """
    with extra_needed("train"):
        from datasets import Dataset

    documents: list[dict[str, Any]] = []
    for where, columns in read_columns(path, encoding):
        if not columns or columns[0].startswith("#end"):
            sentence = None
        elif begin := re.match(r"#begin document \((.*)\)(?:; part (\d+))?", " ".join(columns)):
            name, part = begin.groups("0")
            documents.append({"document": name, "part": int(part), "sentences": [], "speakers": [], "clusters": []})
            sentence = None
        elif not documents or len(columns) < 11:
            raise ValueError(f"{where}: {columns} must be columns of CoNLL-2012, below a line '#begin document'")
        else:
            document = documents[-1]
            if sentence is None:
                document["sentences"].append(sentence := [])
                document["speakers"].append(None if columns[9] in ("-", "_") else columns[9])
            sentence.append(columns[3])
            document["clusters"].append((where, columns[-1]))
    for document in documents:
        document["clusters"] = _clusters(document["clusters"])
    return Dataset.from_list(documents)


def _clusters(columns: Sequence[tuple[str, str]]) -> list[list[Span]]:
    """The clusters in the columns of words, such as `(3|(0)`, each with the line's place."""
    begun: defaultdict[str, list[int]] = defaultdict(list)
    cluster_of: dict[Span, str] = {}
    for index, (_, column) in enumerate(columns):
        for part in filter(None, column.strip("_-").split("|")):
            number = part.strip("()")
            if part[0] == "(":
                begun[number].append(index)
            if part[-1] == ")":
                if not begun[number]:
                    raise ValueError(f"{columns[index][0]}: a mention ends and did not begin")
                cluster_of.setdefault((begun[number].pop(), index), number)
    for starts in filter(None, begun.values()):
        raise ValueError(f"{columns[starts[0]][0]}: a mention begins and does not end")
    return list(map(sorted, _of_mentions((first, last, number) for (first, last), number in cluster_of.items())))


def encode_document(
    tokenizer: ElmoTokenizer,
    document: Document,
    clusters: Sequence[Sequence[Span]] | None = None,
    speakers: Sequence[str | None] | None = None,
) -> dict[str, list]:
    """A document as a row for [`ElmoForCoreferenceResolution`]: its sentences in sequence, each with its boundaries.

    Args:
        tokenizer: the model's.
        document: a text with one sentence per line, or a list of sentences, lists of words. Blank ones are left out.
        clusters: lists of mentions: first and last word, from 0 in the document. They become `labels` `[mentions, 3]`.
        speakers: the speaker of each sentence or line, or `None`. They become `speaker_ids` `[positions]`.

    Returns:
        `input_ids` and `attention_mask`; `word_vector_ids`, `labels` and `speaker_ids` if there are any.
    """
    sentences = _sentences(document)
    encoded = tokenizer(sentences or [[]], is_split_into_words=not isinstance(document, str))
    kept = [index for index, rows in enumerate(encoded["input_ids"]) if len(rows) > 2]
    row = {name: [x for index in kept for x in columns[index]] for name, columns in encoded.items()}
    if clusters is not None:
        row["labels"] = [[first, last, index] for index, cluster in enumerate(clusters) for first, last in cluster]
    if speakers is not None:
        of_sentences = _speakers_of(sentences, speakers)
        ids = {name: index for index, name in enumerate(dict.fromkeys(filter(None, speakers)), start=1)}
        row["speaker_ids"] = [ids.get(of_sentences[index], 0) for index in kept for _ in encoded["input_ids"][index]]
    return row


def _sentences(document: Document) -> list:
    if isinstance(document, str):
        return document.split("\n")
    return [as_list(sentence, "a sentence of a document") for sentence in document]


def _speakers_of(sentences: list, speakers: Sequence[str | None]) -> list[str | None]:
    """The speaker of each sentence, none of a blank one at the end, as of a text that ends with a line break."""
    speakers = [*speakers, *([None] if sentences and not sentences[-1] and len(speakers) < len(sentences) else [])]
    if len(speakers) != len(sentences):
        raise ValueError(f"speakers has {len(speakers)} values, but the document has {len(sentences)} sentences")
    return speakers


class CoreferenceCollator(LayersCollator):
    """As [`LayersCollator`], of documents. Padding is -100 in `labels` and 0 in `speaker_ids`."""

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> BatchEncoding:
        names = [name for name in features[0] if any(row[name] is not None for row in features)]
        further = {name: [row[name] for row in features] for name in ("labels", "speaker_ids") if name in names}
        batch = super().__call__([{name: row[name] for name in names if name not in further} for row in features])
        if "speaker_ids" in further:
            batch["speaker_ids"] = place(further["speaker_ids"], batch["attention_mask"].bool())
        if "labels" in further:
            labels = [torch.from_numpy(np.asarray(rows, np.int64).reshape(-1, 3)) for rows in further["labels"]]
            batch["labels"] = pad_sequence(labels, batch_first=True, padding_value=IGNORE_INDEX)
        return batch


def _of_mentions(rows: Iterable[Sequence]) -> list[list[Span]]:
    """The clusters of mentions `(first, last, cluster)`, without padding (-100)."""
    clusters: defaultdict[Any, list[Span]] = defaultdict(list)
    for first, last, cluster in rows:
        if cluster != IGNORE_INDEX:
            clusters[cluster].append((first, last))
    return list(clusters.values())


def coreference_metrics(singletons: bool = False) -> Metrics:
    """`compute_metrics` of Trainer for [`ElmoForCoreferenceResolution`]: [`score_clusters`], and `mentions_kept`, the
    fraction of the mentions in `labels` that are among the model's `spans`; the model finds no others. Choose the best
    checkpoint by F1, `metric_for_best_model="conll_f1"`, because the loss counts no wrong clusters. Clusters of one
    mention in `labels` count if `singletons`: CoNLL-2012 has none, and the model predicts none."""

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        clusters, spans, *_ = prediction.predictions
        keys, responses = (list(map(_of_mentions, rows.tolist())) for rows in (prediction.label_ids, clusters))
        keys = keys if singletons else [[cluster for cluster in key if len(cluster) > 1] for key in keys]
        kept = [set(map(tuple, row_spans)) for row_spans in spans.tolist()]
        found = [mention in own for key, own in zip(keys, kept, strict=True) for cluster in key for mention in cluster]
        return score_clusters(keys, responses) | {"mentions_kept": ratio(sum(found), len(found))}

    return compute


def score_clusters(keys: Sequence[Clusters], responses: Sequence[Clusters]) -> dict[str, float]:
    """Precision, recall and F1 of MUC (Vilain et al. 1995), B-cubed (Bagga and Baldwin 1998) and CEAF with the
    similarity phi4 (Luo 2005), for predicted mentions as in Pradhan et al. 2014. Counts are summed over the documents.

    Args:
        keys, responses: the true and the predicted clusters of each document. A mention is any hashable object, or a
            list of hashable objects, as in JSON; if it occurs twice, it counts in its first cluster.

    Returns:
        fractions: `muc_precision`, `muc_recall`, `muc_f1`, the same for `b_cubed` and `ceaf`; `conll_f1`, the mean F1.
    """
    given = [(_distinct(key), _distinct(response)) for key, response in zip(keys, responses, strict=True)]
    swapped = [(response, key) for key, response in given]
    scores: dict[str, float] = {}
    for name, count in {"muc": _muc, "b_cubed": _b_cubed, "ceaf": _ceaf}.items():
        recall, precision = (ratio(*np.sum([(0, 0), *starmap(count, pairs)], axis=0)) for pairs in (given, swapped))
        scores |= precision_recall_f1(precision, recall, f"{name}_")
    return scores | {"conll_f1": (scores["muc_f1"] + scores["b_cubed_f1"] + scores["ceaf_f1"]) / 3}


def _distinct(clusters: Clusters) -> list[set[Hashable]]:
    """The clusters, with each mention only in the first cluster that has it; empty clusters are left out."""
    seen: set[Hashable] = set()
    distinct = []
    for cluster in clusters:
        distinct.append({tuple(mention) if isinstance(mention, list) else mention for mention in cluster} - seen)
        seen |= distinct[-1]
    return list(filter(None, distinct))


def _muc(key: list[set], response: list[set]) -> tuple[float, float]:
    """The numerator and the denominator of recall, as those below; with the arguments swapped, of precision."""
    cluster_of = {mention: index for index, cluster in enumerate(response) for mention in cluster}
    parts = [{cluster_of.get(mention, (mention,)) for mention in cluster} for cluster in key]
    mentions = sum(map(len, key))
    return mentions - sum(map(len, parts)), mentions - len(key)


def _b_cubed(key: list[set], response: list[set]) -> tuple[float, float]:
    return sum(len(k & r) ** 2 / len(k) for k in key for r in response), sum(map(len, key))


def _ceaf(key: list[set], response: list[set]) -> tuple[float, float]:
    with extra_needed("train"):
        from scipy.optimize import linear_sum_assignment

    similarity = np.array([[2 * len(k & r) / (len(k) + len(r)) for r in response] for k in key])
    best = similarity[linear_sum_assignment(similarity, maximize=True)].sum() if key and response else 0.0
    return best, len(key)


def resolve(
    model: ElmoForCoreferenceResolution | str | os.PathLike,
    documents: Sequence[Document],
    *,
    tokenizer: ElmoTokenizer | None = None,
    speakers: Sequence[Sequence[str | None]] | None = None,
    genres: Sequence[int] | None = None,
    device: Device = None,
) -> list[Resolved]:
    """The clusters of mentions in documents, none in a document without words. The model reads a document at a time.

    Args:
        model, tokenizer, device: as for [`predict`].
        documents: each a text with one sentence per line, or a list of sentences, each a list of words.
        speakers, genres: of each document the speakers, as in [`encode_document`], and the genre, if the model has any.

    Raises:
        ValueError: `speakers` or `genres` have another length than `documents`, or the scores are NaN.
    """
    documents = as_list(documents, "documents")
    speakers = [None] * len(documents) if speakers is None else as_list(speakers, "speakers")
    genres = [None] * len(documents) if genres is None else as_list(genres, "genres")
    task = CoreferenceTask(*load_head(model, tokenizer, device, ElmoForCoreferenceResolution))
    records = task.run([task.checked(*row) for row in zip(documents, speakers, genres, strict=True)])
    return [Resolved(**record) for record in records]


class CoreferenceTask(Task):
    """The clusters of mentions of a document. A row is a document, its speakers and its genre."""

    reads = "documents"
    reads_one = True
    endings = (".jsonl",)

    def read(self, row: Any) -> Any:
        """A text, with one sentence per line, or the words of one sentence; or a tuple of it, speakers and genre."""
        document, speakers, genre = row if isinstance(row, tuple) and len(row) == 3 else (super().read(row), None, None)
        document = document if isinstance(document, str) else [document]
        if self.pretokenized and isinstance(document, str):
            document = self.tokenizer.split_into_words(document.split("\n"), pretokenized=True)
        speakers = re.split("\r?\n", speakers) if isinstance(speakers, str) else speakers
        return self.checked(document, speakers, genre and int(genre))

    def checked(self, document: Document, speakers: Sequence[str | None] | None, genre: int | None) -> tuple:
        """The row; raises ValueError if sentences have no speaker each, or the genre is none of the model's."""
        genres = self.model.config.coreference_num_genres
        if genre is not None and genres and not 0 <= genre < genres:
            raise ValueError(f"genre is {genre}, but must be from 0 to {genres - 1}")
        if speakers is not None:
            _speakers_of(_sentences(document), speakers)
        return document, speakers, genre

    def encode(self, rows: Sequence[Any]) -> list[Piece]:
        encoded = [
            encode_document(self.tokenizer, document, None, speakers) | {"genre_ids": genre}
            for document, speakers, genre in rows
        ]
        return [Piece(row, len(own["attention_mask"]), own) for row, own in enumerate(encoded) if own["attention_mask"]]

    def collate(self, pieces: Sequence[Any]) -> BatchEncoding:
        return CoreferenceCollator(self.tokenizer)(pieces)

    def decode(self, pieces: Sequence[Any], inputs: BatchEncoding, output: Any) -> Iterator[Any]:
        return map(_of_mentions, output.clusters.tolist())

    def join(self, row: Any, results: list[Any]) -> Record:
        document, *_ = row
        words = [word for sentence in self.tokenizer.split_into_words(_sentences(document)) for word in sentence]
        clusters = results[0] if results else []
        characters = None
        if isinstance(document, str):
            lines = document.split("\n")
            starts = accumulate((len(line) + 1 for line in lines), initial=0)
            encoded = self.tokenizer(lines, return_offsets_mapping=True, add_special_tokens=False)
            rows = zip(starts, encoded["offset_mapping"], strict=False)
            places = [(start + first, start + end) for start, offsets in rows for first, end in offsets]
            characters = [[(places[first][0], places[last][1]) for first, last in cluster] for cluster in clusters]
        return {"words": words, "clusters": clusters, "characters": characters}
