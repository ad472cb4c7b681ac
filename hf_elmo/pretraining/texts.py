"""The texts that language models train on: those of files and of datasets, whole or in parts."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ..tokenization_elmo import ElmoTokenizer
from ..utils.text import Row, RowSource, Words, check_row, find_files, read_lines

Text = list[Words]  # what a language model reads at a time: one sentence, or the sentences of a document

TEXTS_AT_ONCE = 1024  # texts that are split into words together
SAMPLES = 64  # texts of a dataset that its fingerprint is made of
HELD_OUT_EVERY = 20  # if an adaptation has no held-out text, every 20th text is held out
FILES_PER_PROCESS = 20  # with at least this many files for each process, a process reads whole files


class _Texts:
    """The texts that language models train on, in a fixed order."""

    countable = True  # whether the number of texts is finite and known, so that an epoch has a length
    held_out: bool | None = None  # whether only every `HELD_OUT_EVERY`th text is read, or only the others
    files: list[str]  # the files that are read; empty for a dataset
    _rank, _world_size = 0, 1

    def __init__(self, tokenizer: ElmoTokenizer | None, documents: bool) -> None:
        self.tokenizer, self.documents = tokenizer, documents

    def part(self, rank: int, world_size: int) -> Self:
        """The texts that process `rank` of `world_size` reads: each text is in exactly one part."""
        part = copy.copy(self)
        part._rank, part._world_size = rank, world_size
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
            values = self._values(start)
        else:
            every = enumerate(self._values(0), start=1)
            shared = (value for index, value in every if (index % HELD_OUT_EVERY == 0) == self.held_out)
            values = itertools.islice(shared, start, None)
        while chunk := list(itertools.islice(values, TEXTS_AT_ONCE)):
            words = iter(split(list(itertools.chain(*chunk)), pretokenized=self.tokenizer is None))
            yield from (list(itertools.islice(words, len(sentences))) for sentences in chunk)

    def sentences(self) -> Iterator[Words]:
        """The sentences of all texts that have words."""
        return (words for text in self.read() for words in text if words)

    def _values(self, start: int) -> Iterator[list[Row]]:
        """The texts from number `start` on, as lists of sentences: words, or a string that is still to be split."""
        raise NotImplementedError

    def _sentences_of(self, value: Any, where: str) -> list[Row]:
        """The sentences of a row's value. There is nothing to learn from a missing text (`None`), so it is blank."""
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], (list, tuple)):
            return [check_row(list(sentence), where) for sentence in value]
        row = check_row("" if value is None else value, where)
        if self.documents and isinstance(row, str):
            return [line for line in row.split("\n") if line.strip()]
        return [row]


class TextFiles(_Texts):
    """The texts of files in any format that [`RowSource`] reads.

    In plain text a line is a sentence, except blank lines; with `documents`, the lines between blank lines are a
    document. In other formats a string is a sentence, or with `documents` a document with one sentence per line; a list
    of words is a sentence, and a list of such lists is a document.

    Args:
        patterns: files, folders or glob patterns ([`find_files`]), read in this order.
        tokenizer: splits sentences into words; `None` if whitespace separates the words already.
        documents: whether a string is a document with one sentence per line, instead of one sentence.
        column: the column with the text, in formats that have columns; by default the one that [`RowSource`] chooses.
        encoding: the encoding of the files, unless they are Parquet.
    """

    def __init__(
        self,
        patterns: str | Path | Iterable[str | Path],
        tokenizer: ElmoTokenizer | None = None,
        documents: bool = False,
        column: str | None = None,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(tokenizer, documents)
        patterns = [patterns] if isinstance(patterns, (str, os.PathLike)) else patterns
        self.files = list(dict.fromkeys(itertools.chain.from_iterable(map(find_files, patterns))))
        self.column, self.encoding = column, encoding

    def _values(self, start: int) -> Iterator[list[Row]]:
        """With at least `FILES_PER_PROCESS` files for each process, this process reads every `world_size`th file; with
        fewer files, it reads every `world_size`th text."""
        files, first, step = self.files, self._rank, self._world_size
        if len(files) >= FILES_PER_PROCESS * step:
            files, first, step = files[first::step], 0, 1
        texts = itertools.chain.from_iterable(map(self._texts_of, files))
        return itertools.islice(texts, first + start * step, None, step)

    def _texts_of(self, file: str) -> Iterator[list[Row]]:
        source = RowSource(file, text_column=self.column, encoding=self.encoding)
        if source.resolved_format != "text":
            for row, (value,) in enumerate(source.values()):
                yield self._sentences_of(value, f"{file}, row {row} (from 0)")
            return
        lines = map(str.strip, read_lines(file, self.encoding))
        if self.documents:
            yield from (list(group) for is_text, group in itertools.groupby(lines, bool) if is_text)
        else:
            yield from ([line] for line in lines if line)

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """The SHA-256 of the bytes of all files (for remote files, of the checksums that their servers give), and the
        settings with which the files are read."""
        digest = hashlib.sha256()
        for file in self.files:
            filesystem, path = url_to_fs(file)
            if isinstance(filesystem, LocalFileSystem):
                with open(path, "rb") as content:
                    digest.update(hashlib.file_digest(content, "sha256").digest())
            else:
                digest.update(str(filesystem.checksum(path)).encode())
        settings = {"column": self.column, "documents": self.documents, "encoding": self.encoding}
        settings["pretokenized"] = self.tokenizer is None
        return {"files": len(self.files), **settings, "files_sha256": digest.hexdigest()}


class DatasetTexts(_Texts):
    """The rows of a `datasets.Dataset`, of a streamed `datasets.IterableDataset`, or of a list of rows.

    Args:
        dataset: its rows are dictionaries; a list may also hold the texts themselves.
        column: the column with the text: a string, a list of words, or a list of lists of words, which is a document.
        tokenizer, documents: as in [`TextFiles`].

    Each pass over a stream reads it from its beginning, and it must give the same rows in the same order each time: a
    shuffled stream (`dataset.shuffle(seed=..., buffer_size=...)`) does, because it keeps the order of its seed.
    `datasets.distributed.split_dataset_by_node` divides a dataset among processes; it divides a stream by shards
    (files) if their number is a multiple of the number of processes, otherwise by rows.
    """

    files = ()

    def __init__(
        self, dataset: Any, column: str = "text", tokenizer: ElmoTokenizer | None = None, documents: bool = False
    ) -> None:
        super().__init__(tokenizer, documents)
        self.dataset, self.column = dataset, column
        self.countable = hasattr(dataset, "__len__")

    def part(self, rank: int, world_size: int) -> Self:
        part = super().part(rank, world_size)
        if world_size == 1:
            return part
        if hasattr(self.dataset, "column_names"):
            from datasets.distributed import split_dataset_by_node

            part.dataset = split_dataset_by_node(self.dataset, rank=rank, world_size=world_size)
        else:
            rows = len(self.dataset)
            part.dataset = self.dataset[rows * rank // world_size : rows * (rank + 1) // world_size]
        return part

    def _values(self, start: int) -> Iterator[list[Row]]:
        # `skip` on one process's part of a stream would count the rows of the whole stream.
        if hasattr(self.dataset, "skip") and (self.countable or self._world_size == 1):
            rows = self.dataset.skip(start)
        else:
            rows = itertools.islice(self.dataset, start, None)
        for place, row in enumerate(rows, start):
            yield self._sentences_of(row[self.column] if isinstance(row, dict) else row, f"row {place} (from 0)")

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """The number of rows, and the SHA-256 of only `SAMPLES` texts, evenly spread (of a stream, the first ones)."""
        texts = itertools.islice(self.read(), SAMPLES)
        rows = len(self.dataset) if self.countable else None
        if rows:
            sample = [self.dataset[place * (rows - 1) // (SAMPLES - 1)] for place in range(SAMPLES)]
            texts = DatasetTexts(sample, self.column, self.tokenizer, self.documents).read()
        return {"rows": rows, "sha256": hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()}


def open_texts(
    texts: Any,
    tokenizer: ElmoTokenizer | None = None,
    documents: bool = False,
    column: str | None = None,
    encoding: str = "utf-8",
) -> TextFiles | DatasetTexts:
    """The texts of files, folders and patterns ([`TextFiles`]), or of a dataset ([`DatasetTexts`]).

    Raises:
        FileNotFoundError: a pattern matches no file.
        ValueError: `texts` is a dictionary of datasets.
    """
    if isinstance(texts, Mapping):
        raise ValueError(f"texts has the splits {', '.join(texts)}: pass one, as texts[{next(iter(texts), '')!r}].")
    if hasattr(texts, "column_names"):
        return DatasetTexts(texts, column or "text", tokenizer, documents)
    return TextFiles(texts, tokenizer, documents, column, encoding)


def require_apart(texts: TextFiles | DatasetTexts, held_out: TextFiles | DatasetTexts) -> None:
    """Raises ValueError if a file or the dataset of `held_out` is also in `texts`, which would then be trained on."""
    both = set(map(os.path.realpath, texts.files)) & set(map(os.path.realpath, held_out.files))
    if both or (isinstance(texts, DatasetTexts) and texts.dataset is getattr(held_out, "dataset", None)):
        raise ValueError(f"{', '.join(sorted(both)) or 'the dataset'} is in texts and in held_out: remove it from one")
