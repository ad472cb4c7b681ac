"""The texts that language models train on: the rows of any input, whole or in parts."""

import copy
import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, groupby, islice
from typing import Any, Self

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ..reading.files import is_pipe
from ..reading.rows import Row, Rows, Words, check_row
from ..tokenization_elmo import ElmoTokenizer

Text = list[Words]  # what a language model reads at a time: one sentence, or the sentences of a document

TEXTS_AT_ONCE = 1024  # texts that are split into words together
SAMPLES = 64  # rows in memory that their fingerprint is made of
HELD_OUT_EVERY = 20  # if an adaptation has no held-out text, every 20th text is held out
FILES_PER_PROCESS = 20  # with at least this many files for each process, a process reads whole files


class Texts:
    """The texts of [`Rows`], in a fixed order.

    A row is a sentence; blank ones are left out. A list of lists of words is a document. With `documents`, so is a
    string, with one sentence per line, and in plain text the lines between blank lines.

    Args:
        inputs, reading: what is read, and how: the arguments of [`Rows`].
        tokenizer, documents: what splits sentences, if not whitespace; whether texts are documents, not sentences.

    Each pass over a stream (`datasets.IterableDataset`) must give the same rows in the same order, as if shuffled with
    a seed. It is divided by shards (files) if their number is a multiple of that of processes, otherwise by rows.
    """

    def __init__(self, inputs: Any, tokenizer: Any = None, documents: bool = False, **reading: Any) -> None:
        self.rows = Rows(inputs, **reading)
        self.tokenizer: ElmoTokenizer | None = tokenizer
        self.documents = documents
        self.reading = reading
        # Whether the number of texts is finite and known, so that an epoch has a length.
        self.countable = bool(self.rows.files) or hasattr(inputs, "__len__") or isinstance(inputs, Iterator)
        self.held_out: bool | None = None  # whether only every `HELD_OUT_EVERY`th text is read, or only the others
        self._rank = 0
        self._world_size = 1

    def report(self) -> None:
        """As [`Rows.report`]."""
        self.rows.report(self.tokenizer or ElmoTokenizer(), pretokenized=self.tokenizer is None)

    def part(self, rank: int, world_size: int) -> Self:
        """The texts that process `rank` of `world_size` reads: each text is in exactly one part."""
        part = copy.copy(self)
        if world_size > 1 and hasattr(self.rows.inputs, "column_names"):
            from datasets.distributed import split_dataset_by_node

            part.rows = Rows(split_dataset_by_node(self.rows.inputs, rank, world_size), **self.reading)
        else:
            part._rank = rank
            part._world_size = world_size
        return part

    def share(self, held_out: bool) -> Self:
        """Every `HELD_OUT_EVERY`th text, or all other texts."""
        share = copy.copy(self)
        share.held_out = held_out
        return share

    def read(self, start: int = 0) -> Iterator[Text]:
        """The texts from number `start` on; earlier texts are skipped without being split into words."""
        split = (self.tokenizer or ElmoTokenizer()).split_into_words
        if self.held_out is None:
            texts = self._texts(start)
        else:
            every = enumerate(filter(any, self._texts(0)), start=1)
            shared = (text for number, text in every if (number % HELD_OUT_EVERY == 0) == self.held_out)
            texts = islice(shared, start, None)
        while chunk := list(islice(texts, TEXTS_AT_ONCE)):
            words = iter(split(list(chain(*chunk)), pretokenized=self.tokenizer is None))
            yield from (list(islice(words, len(sentences))) for sentences in chunk)

    def sentences(self) -> Iterator[Words]:
        """The sentences of all texts that have words."""
        return (words for text in self.read() for words in text if words)

    def _texts(self, start: int) -> Iterator[list[Row]]:
        """The texts from number `start` on, as lists of sentences: words, or a string that is still to be split."""
        rows = self.rows
        if hasattr(rows.inputs, "select"):  # a stream reads what it skips
            rows = Rows(rows.inputs.skip(start), **self.reading)
            start = 0
        if not rows.files:
            texts = (self._sentences(value, where) for where, value in rows.values())
        elif len(rows.files) < FILES_PER_PROCESS * self._world_size:
            texts = chain.from_iterable(map(self._texts_of, rows.files))
        else:
            own = rows.files[self._rank :: self._world_size]
            return islice(chain.from_iterable(map(self._texts_of, own)), start, None)
        return islice(texts, self._rank + start * self._world_size, None, self._world_size)

    def _texts_of(self, file: str) -> Iterator[list[Row]]:
        values = self.rows.values_of(file)
        if self.documents and self.rows.format_of(file) == "text":
            groups = groupby((line.strip() for _, line in values), bool)
            return (list(lines) for is_text, lines in groups if is_text)
        return filter(any, (self._sentences(value, where) for where, value in values))

    def _sentences(self, value: Any, where: str) -> list[Row]:
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], (list, tuple)):
            return [check_row(list(sentence), where) for sentence in value]
        row = check_row(value, where)
        if self.documents and isinstance(row, str):
            return [line for line in row.split("\n") if line.strip()]
        return [row.strip() if isinstance(row, str) else row]

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Of files, the SHA-256 of their bytes (of remote ones, of their servers' checksums), and how they are read; of
        rows in memory, their number and the SHA-256 of all, or of `SAMPLES` of a data set (a stream's first)."""
        inputs = self.rows.inputs
        files = self.rows.files
        settings = {**self.reading, "documents": self.documents, "pretokenized": self.tokenizer is None}
        if not files or any(map(is_pipe, files)):
            rows = len(inputs) if hasattr(inputs, "__len__") else None
            sample = self
            if hasattr(inputs, "select") and rows:
                places = [place * (rows - 1) // (SAMPLES - 1) for place in range(SAMPLES)]
                sample = Texts(inputs.select(places), self.tokenizer, self.documents, **self.reading)
            texts = islice(sample.read(), SAMPLES if hasattr(inputs, "column_names") else None)
            return {"rows": rows, **settings, "sha256": hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()}
        digest = hashlib.sha256()
        for file in files:
            filesystem, path = url_to_fs(file)
            if isinstance(filesystem, LocalFileSystem):
                with open(path, "rb") as content:
                    digest.update(hashlib.file_digest(content, "sha256").digest())
            else:
                digest.update(str(filesystem.checksum(path)).encode())
        return {"files": len(files), **settings, "files_sha256": digest.hexdigest()}
