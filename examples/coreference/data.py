"""The data of the comparison of resolvers of coreference: LitBank's documents with their clusters, and GAP's texts."""

import csv
import gzip
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LITBANK, FOLDS = "coref/litbank/litbank_all.conll.gz", "coref/litbank/tenfold_splits.tar.gz"
GAP = "coref/gap/gap-test.tsv.gz"


@dataclass
class Document:
    """Sentences of words, and clusters of two mentions or more, each the first and the last word, counted from 0."""

    name: str
    sentences: list[list[str]]
    clusters: list[list[tuple[int, int]]]

    def begin(self, sentences: int) -> "Document":
        """Its first sentences."""
        own = self.sentences[:sentences]
        words = sum(map(len, own))
        inside = [[mention for mention in cluster if mention[1] < words] for cluster in self.clusters]
        return Document(self.name, own, [cluster for cluster in inside if len(cluster) > 1])


def read_litbank(data: Path, fold: int = 0) -> dict[str, list[Document]]:
    """Train, dev and test of one of the ten folds."""
    documents = {document.name: document for document in read_conll(data / LITBANK)}
    parts = {}
    with tarfile.open(data / FOLDS) as folds:
        for part in ("train", "dev", "test"):
            text = folds.extractfile(f"litbank_tenfold_splits/{fold}/{part}.ids").read().decode()
            parts[part] = [documents[Path(line).stem] for line in text.split()]
    return parts


def read_conll(path: Path) -> Iterator[Document]:
    """Documents of a file in LitBank's columns: the word is the fourth, coreference the last."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#begin document"):
                name, sentences, rows = re.search(r"\((.*)\)", line)[1], [[]], []
            elif line.startswith("#end document"):
                yield Document(name, [words for words in sentences if words], _clusters(rows))
            elif not line.strip():
                sentences.append([])
            else:
                columns = line.rstrip("\n").split("\t")
                sentences[-1].append(columns[3])
                rows.append(columns[-1])


def _clusters(rows: Sequence[str]) -> list[list[tuple[int, int]]]:
    """The clusters of the columns of words, such as `(3|(0)`. A mention that occurs twice counts where it is first."""
    clusters: dict[str, list[tuple[int, int]]] = {}
    begun: dict[str, list[int]] = {}
    seen = set()
    for place, column in enumerate(rows):
        for part in filter(None, column.strip("_-").split("|")):
            number = part.strip("()")
            if part[0] == "(":
                begun.setdefault(number, []).append(place)
            if part[-1] == ")":
                mention = begun[number].pop(), place
                if mention not in seen:
                    clusters.setdefault(number, []).append(mention)
                seen.add(mention)
    return [sorted(cluster) for cluster in clusters.values() if len(cluster) > 1]


def read_gap(data: Path, number: int) -> list[dict[str, str]]:
    """The first rows of GAP, in whose texts a line ends where a sentence most likely does; places stay the same."""
    with gzip.open(data / GAP, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:number]
    return [{**row, "Text": re.sub(r"(?<=[.!?]) (?=[\"'(]?[A-Z])", "\n", row["Text"])} for row in rows]
