"""The data of the comparison of resolvers of coreference: LitBank's documents with their clusters, and GAP's texts."""

import csv
import gzip
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import hf_elmo

LITBANK, FOLDS = "coref/litbank/litbank_all.conll.gz", "coref/litbank/tenfold_splits.tar.gz"
GAP = "coref/gap/gap-test.tsv.gz"


@dataclass
class Document:
    """Sentences of words, and clusters of mentions, each the first and the last word, counted from 0."""

    name: str
    sentences: list[list[str]]
    clusters: list[list[list[int]]]

    def begin(self, sentences: int) -> "Document":
        """The first sentences of the document, with clusters of two mentions or more."""
        own = self.sentences[:sentences]
        words = sum(map(len, own))
        inside = [[mention for mention in cluster if mention[1] < words] for cluster in self.clusters]
        return Document(self.name, own, [cluster for cluster in inside if len(cluster) > 1])


def read_litbank(data: Path, fold: int = 0) -> dict[str, list[Document]]:
    """Train, dev and test of one of the ten folds."""
    rows = hf_elmo.read_conll2012(data / LITBANK)
    documents = {row["document"]: Document(row["document"], row["sentences"], row["clusters"]) for row in rows}
    parts = {}
    with tarfile.open(data / FOLDS) as folds:
        for part in ("train", "dev", "test"):
            text = folds.extractfile(f"litbank_tenfold_splits/{fold}/{part}.ids").read().decode()
            parts[part] = [documents[Path(line).stem] for line in text.split()]
    return parts


def read_gap(data: Path, number: int) -> list[dict[str, str]]:
    """The first rows of GAP; in the texts, a line break replaces the blank after a likely end of a sentence."""
    with gzip.open(data / GAP, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:number]
    return [{**row, "Text": re.sub(r"(?<=[.!?]) (?=[\"'(]?[A-Z])", "\n", row["Text"])} for row in rows]
