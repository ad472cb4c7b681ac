"""Sources of text for training the language models: files and `datasets`, read from any position."""

import copy
import filecmp
import glob
import hashlib
import itertools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

from transformers.utils import logging

from ..lines import read_lines
from ..optional import import_optional
from ..tokenization_elmo import ElmoTokenizer

logger = logging.get_logger(f"transformers.{__name__}")

Words = list[str]
Text = list[Words]  # a sentence alone, or the sentences of a document

TEXTS_AT_ONCE = 1024  # split together: the tokenizer is faster on many
COMPRESSED = (".zst", ".xz", ".bz2", ".lz4", ".lzma", ".br", ".7z", ".z")
SAMPLES, SAMPLE_BYTES = 64, 2**16  # of a text whose fingerprint is not of all its bytes
NO_TEXT = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".tar", ".tgz", ".zip", ".arrow", ".fasta", ".fa", ".faa")
LINE_END = re.compile(rb"\r\n?|\n")
LINE_BYTES = 2**12  # of a line whose end is looked for, so many bytes are read at once
ENOUGH_FILES = 20  # gzipped ones for each process, from which on each file is read by one process


class TextFiles:
    """
    The sentences of text files, one a line, blank lines skipped; or documents, separated by blank lines.

    Args:
        patterns: paths or glob patterns of UTF-8 text files, gzipped where the name ends in `.gz`; read in the order
            given, a pattern's files in alphabetical order.
        tokenizer: splits lines into words; by default they are tokenized already, and whitespace separates their words.
        documents: whether a text is a document instead of a sentence.

    Raises:
        FileNotFoundError: a pattern matches no file, or a link that leads to none.
        ValueError: a file is given twice, or its ending is that of something else than plain text.
    """

    countable = True

    def __init__(
        self,
        patterns: str | Path | Iterable[str | Path],
        tokenizer: ElmoTokenizer | None = None,
        documents: bool = False,
    ) -> None:
        patterns = [patterns] if isinstance(patterns, (str, Path)) else list(patterns)
        self.files = [file for pattern in patterns for file in _files(str(pattern))]
        for file in self.files:
            _require_plain_text(file)
        places = Counter(map(os.path.realpath, self.files))
        if twice := [file for file in self.files if places[os.path.realpath(file)] > 1]:
            raise ValueError(f"{' and '.join(twice[:2])} are one file: name it once, or its text counts twice.")
        self.split = _splitter(tokenizer)
        self.documents = documents
        self.pretokenized = tokenizer is None
        self._rank, self._world_size = 0, 1

    def part(self, rank: int, world_size: int) -> "TextFiles":
        """
        What process `rank` of `world_size` reads: each text is in exactly one part.

        Of all bytes one after another each part has an equal stretch, cut at ends of texts; it opens the files in
        which its stretch lies, and nothing else of them is read. Gzipped files cannot be entered in the middle: of
        `ENOUGH_FILES` for each process or more every `world_size`th is read, of fewer each is decompressed and every
        `world_size`th text is split into words.
        """
        part = copy.copy(self)
        part._rank, part._world_size = rank, world_size
        return part

    def read(self, start: int = 0) -> Iterator[Text]:
        """The texts from number `start` on; those before are skipped without being split into words."""
        texts = itertools.islice(self._lines_of_texts(), start, None)
        while chunk := list(itertools.islice(texts, TEXTS_AT_ONCE)):
            sentences = iter(self.split([line for lines in chunk for line in lines]))
            for lines in chunk:
                yield list(itertools.islice(sentences, len(lines)))

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """A fingerprint of the text: the files' number and bytes, the SHA-256 of each one's bytes in
        their order, and how they are read. All files are read for it (about 1 GB a second if the disk is as fast)."""
        digest = hashlib.sha256()
        for name in self.files:
            with open(name, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return {**self._outline, "files_sha256": digest.hexdigest()}

    @cached_property
    def sampled_fingerprint(self) -> dict[str, Any]:
        """A fingerprint that is found at once and misses some changes: as `fingerprint`, but of the bytes only
        `SAMPLES` blocks of each file."""
        digest = hashlib.sha256()
        for name in self.files:
            size = os.path.getsize(name)
            digest.update(size.to_bytes(8, "big"))
            with open(name, "rb") as file:
                for start in _spread(max(size - SAMPLE_BYTES, 0) + 1):
                    file.seek(start)
                    digest.update(file.read(SAMPLE_BYTES))
        return {**self._outline, "sha256": digest.hexdigest()}

    @property
    def why_empty(self) -> str:
        """What to say where no words are read."""
        others = f" and {len(self.files) - 1} others have" if len(self.files) > 1 else " has"
        return f"{self.files[0]}{others} no words"

    @property
    def _outline(self) -> dict[str, Any]:
        return {
            "files": len(self.files),
            "bytes": sum(map(os.path.getsize, self.files)),
            "documents": self.documents,
            "pretokenized": self.pretokenized,
        }

    def _lines_of_texts(self) -> Iterator[list[str]]:
        rank, world_size = self._rank, self._world_size
        if world_size == 1:
            yield from itertools.chain.from_iterable(map(self._texts, self.files))
            return
        for stretch in self._stretches:
            yield from self._texts(*stretch)
        gzipped = list(filter(_is_gzipped, self.files))
        if len(gzipped) >= ENOUGH_FILES * world_size:
            yield from itertools.chain.from_iterable(map(self._texts, gzipped[rank::world_size]))
            return
        for number, file in enumerate(gzipped):
            yield from itertools.islice(self._texts(file), (rank + number) % world_size, None, world_size)

    def _texts(self, file: str, start: int = 0, stop: int | None = None) -> Iterator[list[str]]:
        """The lines of each text between two bytes of a file."""
        document = []
        for line in map(str.strip, read_lines(file, start=start, stop=stop)):
            if line and self.documents:
                document.append(line)
            elif line:
                yield [line]
            elif document:
                yield document
                document = []
        if document:
            yield document

    @cached_property
    def _stretches(self) -> list[tuple[str, int, int]]:
        """The files of this part that are not gzipped, each with its first byte and the one after its last."""
        sizes = {file: os.path.getsize(file) for file in self.files if not _is_gzipped(file)}
        files = [file for file in self.files if file in sizes]
        total, before, found = sum(sizes[file] for file in files), 0, []
        edges = [total * (self._rank + end) // self._world_size for end in (0, 1)]
        for file in files:
            size = sizes[file]
            start, stop = (self._cut(file, min(max(edge - before, 0), size), size) for edge in edges)
            if start < stop:
                found.append((file, start, stop))
            before += size
        return found

    def _cut(self, file: str, place: int, size: int) -> int:
        """The first end of a text from byte `place` on."""
        if place in (0, size):
            return place
        with open(file, "rb") as lines:
            lines.seek(place - 1)
            _read_line(lines)
            while self.documents and _read_line(lines).decode(errors="replace").strip():
                pass
            return lines.tell()


class DatasetTexts:
    """
    The rows of a `datasets.Dataset`, of a streamed `datasets.IterableDataset`, or of a list of rows.

    Args:
        dataset: its rows are dictionaries; a list may also hold the texts themselves.
        column: the column with the text: a string, which is split into words, a list of words, or a list of lists of
            words, which makes the row a document.
        tokenizer: as in [`TextFiles`].
        documents: whether a string is a document, one sentence a line, instead of a sentence.

    A stream is read from its beginning whenever a pass over it begins, and must give the same rows in the same order
    each time: one that is shuffled (`dataset.shuffle(seed=..., buffer_size=...)`) keeps the order of its seed.

    Raises:
        ValueError: a row has no such column, or a value of it is none of these.
    """

    files: Sequence[str] = ()  # that the rows are read from, where they are known

    def __init__(
        self, dataset: Any, column: str = "text", tokenizer: ElmoTokenizer | None = None, documents: bool = False
    ) -> None:
        self.dataset, self.column, self.tokenizer, self.documents = dataset, column, tokenizer, documents
        self.split = _splitter(tokenizer)
        self.countable = hasattr(dataset, "__len__")
        self._is_part = False

    def part(self, rank: int, world_size: int) -> "DatasetTexts":
        """
        What process `rank` of `world_size` reads: each text is in exactly one part.

        Rows are shared out as `datasets.distributed.split_dataset_by_node` does: a dataset in equal stretches; a
        stream by its shards (files), where their number is a multiple of `world_size`, else every `world_size`th row,
        for which each process reads them all.
        """
        part = copy.copy(self)
        part._is_part = world_size > 1
        if hasattr(self.dataset, "column_names"):
            from datasets.distributed import split_dataset_by_node

            # `n_shards` before datasets 3.1
            shards = 0 if self.countable else getattr(self.dataset, "num_shards", None) or self.dataset.n_shards
            if shards % world_size and rank == 0:
                logger.warning_once(
                    "The stream has %d shards (files), which is no multiple of the %d processes: each process reads "
                    "them all and keeps its rows. `reshard()` of Parquet makes more.",
                    *(shards, world_size),
                )
            part.dataset = split_dataset_by_node(self.dataset, rank=rank, world_size=world_size)
        else:
            rows = len(self.dataset)
            part.dataset = self.dataset[rows * rank // world_size : rows * (rank + 1) // world_size]
        return part

    def read(self, start: int = 0) -> Iterator[Text]:
        """The texts from number `start` on."""
        # A part of a stream would skip rows of the whole stream.
        if hasattr(self.dataset, "skip") and (self.countable or not self._is_part):
            rows = iter(self.dataset.skip(start))
        else:
            rows = itertools.islice(iter(self.dataset), start, None)
        numbered = enumerate(rows, start)
        while chunk := [self._value(*one) for one in itertools.islice(numbered, TEXTS_AT_ONCE)]:
            lines = [self._lines(value) if isinstance(value, str) else None for value in chunk]
            sentences = iter(self.split([line for own in lines for line in own or ()]))
            for value, own in zip(chunk, lines, strict=True):
                yield value if own is None else list(itertools.islice(sentences, len(own)))

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """A fingerprint of the dataset that misses some changes: the number of its rows, and the SHA-256 of
        `SAMPLES` of its texts as they are read, of a stream the first ones. A change elsewhere is not noticed: a
        dataset has no bytes to compare, and a stream would have to be read to its end."""
        if self.countable:
            rows = [self.dataset[number] for number in _spread(len(self.dataset))]
            texts = DatasetTexts(rows, self.column, self.tokenizer, self.documents).read()
        else:
            texts = itertools.islice(self.read(), SAMPLES)
        digest = hashlib.sha256(json.dumps(list(texts)).encode())
        return {**({"rows": len(self.dataset)} if self.countable else {}), "sha256": digest.hexdigest()}

    @property
    def sampled_fingerprint(self) -> dict[str, Any]:
        """`fingerprint`, which is found at once."""
        return self.fingerprint

    @property
    def why_empty(self) -> str:
        """What to say where no words are read."""
        return f"the rows have no words in the column {self.column!r}"

    def _lines(self, text: str) -> list[str]:
        if self.documents:
            return [line for line in text.split("\n") if line.strip()]
        if "\n" in text.strip():
            logger.warning_once(
                f"A text of the column {self.column!r} has line breaks, but is read as one sentence: give each "
                'sentence a row, or pretrain with layout="documents" (--layout documents), whose lines are sentences.'
            )
        return [text]

    def _value(self, number: int, row: Any) -> str | Text:
        """The text of a row that is split already, or a string to split; a null is a blank row."""
        value = row
        if isinstance(row, dict):
            if self.column not in row:
                raise ValueError(f"column is {self.column!r}, but the rows have {', '.join(map(repr, row))}: name one.")
            value = row[self.column]
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
            return [list(value)]
        if isinstance(value, (list, tuple)) and all(isinstance(part, (list, tuple)) for part in value):
            return [list(part) for part in value]
        where = f"row {number}" + (f", column {self.column!r}" if isinstance(row, dict) else "")
        raise ValueError(
            f"{where}: a text must be a string, a list of words or a list of such lists, not {value!r:.100}: choose "
            "another column (--text-column), or convert it."
        )


def open_texts(
    texts: Any, tokenizer: ElmoTokenizer | None = None, documents: bool = False, column: str | None = None
) -> TextFiles | DatasetTexts:
    """
    The source that `texts` stand for.

    Args:
        texts: text files and glob patterns ([`TextFiles`]); Parquet files, patterns and addresses (`s3://...`,
            `hf://...`, as `datasets` reads them), which are streamed; a `datasets.Dataset` or `IterableDataset`.
        tokenizer, documents: as in [`TextFiles`].
        column: of Parquet and of datasets, `"text"` by default; [`require_columns`] says whether it is read.

    Raises:
        ImportError: Parquet without `datasets`.
        FileNotFoundError: a pattern matches no file.
        ValueError: text files beside Parquet, or a dictionary of datasets.
    """
    if isinstance(texts, Mapping):
        raise ValueError(f"texts has the parts {', '.join(texts)}: give one of them, texts[{next(iter(texts), '')!r}].")
    if not hasattr(texts, "column_names"):  # no dataset
        names = [str(text) for text in ([texts] if isinstance(texts, (str, Path)) else texts)]
        parquet = [name for name in names if name.endswith(".parquet")]
        if not parquet:
            return TextFiles(names, tokenizer, documents)
        if len(parquet) < len(names):
            other = next(name for name in names if name not in parquet)
            raise ValueError(f"{other} is no Parquet file as {parquet[0]} is: give files of one kind.")
        datasets = import_optional("datasets", "text in Parquet", '"hf-elmo[train]"')
        texts = datasets.load_dataset("parquet", data_files=parquet, split="train", streaming=True)
        source = DatasetTexts(texts, column or "text", tokenizer, documents)
        source.files = [file for name in parquet for file in glob.glob(name, recursive=True) or [name]]
        return source
    return DatasetTexts(texts, column or "text", tokenizer, documents)


def require_apart(texts: TextFiles | DatasetTexts, held_out: TextFiles | DatasetTexts | None) -> None:
    """Refuses held-out text that is trained on (ValueError): the same file or dataset, or a copy of the file."""
    if held_out is None:
        return
    trained_on = set(map(os.path.realpath, texts.files))
    by_size: dict[int, list[str]] = defaultdict(list)
    for file in filter(os.path.isfile, trained_on):
        by_size[os.path.getsize(file)].append(file)

    found = next((file for file in held_out.files if os.path.realpath(file) in trained_on), None)
    for file in filter(os.path.getsize, filter(os.path.isfile, held_out.files)):  # an empty one holds nothing
        for other in by_size.get(os.path.getsize(file), ()) if found is None else ():
            if filecmp.cmp(file, other, shallow=False):
                found = f"{file}, a copy of {other},"
    if isinstance(texts, DatasetTexts) and isinstance(held_out, DatasetTexts) and texts.dataset is held_out.dataset:
        found = "the dataset"
    if found is not None:
        raise ValueError(
            f"{found} is held out (--held-out), but is among the texts, too: its perplexity would be that of text that "
            "was trained on. Leave it out of the texts, or hold out another one."
        )


def require_columns(column: str | None, *sources: TextFiles | DatasetTexts | None) -> None:
    """Refuses the name of a column where no source has columns (ValueError)."""
    if column is not None and not any(isinstance(source, DatasetTexts) for source in sources):
        raise ValueError(f"text_column is {column!r}, but text files have no columns: leave it out.")


def _spread(number: int) -> list[int]:
    """At most `SAMPLES` of the numbers below `number`, the first and the last among them, evenly spread."""
    count = min(number, SAMPLES)
    return [place * (number - 1) // max(count - 1, 1) for place in range(count)]


def _splitter(tokenizer: ElmoTokenizer | None) -> Callable[[list[str]], list[Words]]:
    return partial((tokenizer or ElmoTokenizer()).split_into_words, pretokenized=tokenizer is None)


def _require_plain_text(file: str) -> None:
    """Refuses the endings of files whose lines are no sentences (ValueError)."""
    endings = [ending.lower() for ending in Path(file).suffixes if ending.lower() != ".gz"]
    if endings and endings[-1] in COMPRESSED:
        raise ValueError(f"{file} is compressed, by its ending {endings[-1]}: decompress it first, or give it as .gz.")
    if endings and endings[-1] in NO_TEXT:
        raise ValueError(
            f"{file} is no plain text, by its ending {endings[-1]}: give a sentence a line in a .txt, Parquet, or from "
            "Python a datasets.Dataset (datasets.load_dataset reads JSON lines and CSV)."
        )


def _read_line(file: IO[bytes]) -> bytes:
    """The next line with its end, as `read_lines` has them: `\\n`, `\\r\\n`, or `\\r` alone."""
    start, line = file.tell(), b""
    while chunk := file.read(LINE_BYTES):
        line += chunk
        if found := LINE_END.search(line, len(line) - len(chunk)):
            break
    else:
        return line
    if found.end() == len(line) and found[0] == b"\r":  # perhaps the first half of an end
        line += file.read(1)
    line = line[: LINE_END.search(line, found.start()).end()]
    file.seek(start + len(line))
    return line


def _is_gzipped(file: str) -> bool:
    return Path(file).suffix.lower() == ".gz"


def _files(pattern: str) -> list[str]:
    places = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
    if lost := [place for place in places if not os.path.exists(place)]:
        raise FileNotFoundError(f"{lost[0]} is a link to nothing: restore what it leads to, or remove it.")
    found = list(filter(os.path.isfile, places))
    if not found:
        raise FileNotFoundError(f"no file matches {pattern!r}: give a text file, a .gz file or a glob pattern.")
    return found
