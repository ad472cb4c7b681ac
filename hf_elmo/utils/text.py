"""Reading text: the lines, columns and rows of files.

fsspec opens the files: paths, and addresses (`s3://`, `hf://`) if the library that fsspec needs for them is installed.
Names that end in `.gz`, `.bz2` or `.xz` are compressed files. pyarrow reads CSV, TSV and Parquet. Only one block of a
file is in memory at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral
from pathlib import PurePosixPath
from typing import IO, Any

import fsspec
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import infer_compression

from ..tokenization_elmo import drop_surrogates

Words = list[str]
Row = str | Words  # a text that is still to be split into words, or its words
Pair = tuple[Row, Row | int]  # a text and its pair: another text, or the index of a word

# The format of a file by the ending of its name; a file with any other ending is plain text.
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv"}
FORMATS |= {".parquet": "parquet", ".fasta": "fasta", ".fa": "fasta", ".faa": "fasta"}
DEFAULT_COLUMNS = ("text", "sentence", "words", "tokens")
CSV_BLOCK_BYTES = 1 << 24  # no row of a CSV may be longer


def find_files(pattern: str | os.PathLike) -> list[str]:
    """The files that a path, a folder or a glob pattern stands for, in alphabetical order.

    A folder stands for all files below it, except files and folders whose names begin with a dot or an underscore.

    Raises:
        FileNotFoundError: no file matches.
    """
    filesystem, path = url_to_fs(os.fspath(pattern))
    if filesystem.isdir(path):
        names = {file: PurePosixPath(file).relative_to(path).parts for file in filesystem.find(path)}
        paths = [file for file in names if not any(name.startswith((".", "_")) for name in names[file])]
    elif filesystem.isfile(path):
        paths = [path]
    else:
        paths = [file for file in filesystem.glob(path) if not filesystem.isdir(file)]
    if not paths:
        raise FileNotFoundError(f"no file matches {os.fspath(pattern)!r}")
    is_local = isinstance(filesystem, LocalFileSystem)
    return [file if is_local else filesystem.unstrip_protocol(file) for file in sorted(paths)]


def read_columns(path: str | os.PathLike) -> Iterator[tuple[str, list[str]]]:
    """The place of each line of a file in CoNLL's format, for error messages, and its columns; a blank line has none.
    Tabs separate the columns of a line that has tabs, otherwise spaces do. (A no-break space is a part of a word.)"""
    for number, line in enumerate(read_lines(path), start=1):
        line = line.rstrip("\n")
        columns = line.split("\t") if "\t" in line else filter(None, line.split(" "))
        yield f"{path}, line {number}", [column.strip(" ") for column in columns] if line.strip(" \t") else []


def read_lines(path: str | os.PathLike, encoding: str = "utf-8", newline: str | None = None) -> Iterator[str]:
    """The lines of a text file, each with its line break; a byte order mark at the beginning of UTF-8 is left out.

    Args:
        path: a path or an address; the file is decompressed if its name ends in `.gz`, `.bz2` or `.xz`.
        encoding: the encoding of the text.
        newline: as in `open`.

    Raises:
        ValueError: the file has bytes that are invalid in the encoding; the message has the number of the line.
    """
    codec = "utf-8-sig" if encoding.lower() == "utf-8" else encoding
    lines_read = 0
    try:
        with fsspec.open(os.fspath(path), "rt", compression="infer", encoding=codec, newline=newline) as lines:
            for line in lines:
                lines_read += 1
                yield line
    except UnicodeDecodeError as error:  # error.object is the block of bytes after the last line read
        line_number = lines_read + error.object[: error.start].count(b"\n") + 1
        place = f"{path}, line {line_number}"
        raise ValueError(f"{place}: not valid {encoding} ({error.reason}): convert the file") from error


class NamedRow(list):
    """The words of a row that has a name: the identifier of a FASTA sequence."""

    def __init__(self, words: Iterable[str], name: str) -> None:
        super().__init__(words)
        self.name = name


@dataclass(frozen=True)
class RowSource:
    """The rows of a file. It can be iterated repeatedly, each time from the beginning.

    A row is a `str` (text to be split into words), a `list[str]` (words; in FASTA, a [`NamedRow`]), or with
    `text_pair_column` a tuple of a text and its pair.

    Args:
        path: a path or an address.
        file_format: `"text"` (each line is a row), `"jsonl"`, `"csv"`, `"tsv"` (quotes are ordinary characters),
            `"parquet"` or `"fasta"` (each letter, in upper case, is a word); by default the ending decides.
            Blank lines of JSON lines, CSV and FASTA files are not rows; those of text and TSV files are.
        text_column: the column or key with the text; an `int` is the index of a column of a CSV without a header. By
            default the first of `text`, `sentence`, `words` and `tokens` that exists, or else the only column.
        encoding: the encoding of text, JSON lines, CSV, TSV and FASTA files.
        text_pair_column: the column or key of each text's pair, which is another text or a whole number.

    Raises:
        ValueError: a column does not exist, the format is unknown or has no columns, or a row is malformed.
        TypeError: a value is neither text nor a list of words, such as a null.
    """

    path: str | os.PathLike
    file_format: str | None = None
    text_column: str | int | None = None
    encoding: str = "utf-8"
    text_pair_column: str | int | None = None

    @property
    def ending(self) -> str:
        """The ending of the file's name in lower case, without the ending of a compression such as `.gz`."""
        name = PurePosixPath(os.fspath(self.path))
        return (name.with_suffix("") if infer_compression(name.name) else name).suffix.lower()

    @property
    def resolved_format(self) -> str:
        """`file_format`, or else the format of the ending; ValueError for an archive or an unknown format."""
        if self.ending in (".tar", ".tgz"):
            raise ValueError(f"{self.path} is an archive: extract its files")
        if self.file_format not in (None, "text", *FORMATS.values()):
            known = ", ".join(dict.fromkeys(["text", *FORMATS.values()]))
            raise ValueError(f"input_format is {self.file_format!r}, but must be one of {known}")
        return self.file_format or FORMATS.get(self.ending, "text")

    def __iter__(self) -> Iterator[Row | Pair]:
        for row, values in enumerate(self.values()):
            where = f"{self.path}, row {row} (from 0)"
            yield check_row(values[0], where) if len(values) == 1 else check_pair(values, where)

    def values(self) -> Iterator[tuple]:
        """Each row as a tuple: the value of the text's column and, if there is one, of the pair's; not checked yet."""
        if "://" not in str(self.path) and not os.path.exists(self.path):
            raise FileNotFoundError(f"there is no file {str(self.path)!r:.80}: for texts, pass a list of them")
        has_no_columns, columns = self.resolved_format in ("text", "fasta"), (self.text_column, self.text_pair_column)
        if has_no_columns and columns != (None, None):
            raise ValueError(f"{self.path} is read as {self.resolved_format}, without columns: pass input_format")
        if self.resolved_format == "text":
            yield from ((line.rstrip("\n"),) for line in read_lines(self.path, self.encoding))
        elif self.resolved_format == "fasta":
            yield from ((sequence,) for sequence in self._sequences())
        elif self.resolved_format == "jsonl":
            yield from self._json_values()
        else:
            try:
                for batch in self._batches():
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
            except pyarrow.ArrowInvalid as error:
                raise ValueError(f"{self.path}: {error}") from error

    def _sequences(self) -> Iterator[NamedRow]:
        """The letters of each FASTA sequence (Pearson and Lipman 1988), named by the first word of its header."""
        row = None
        for number, line in enumerate(map(str.strip, read_lines(self.path, self.encoding)), start=1):
            if line.startswith(">") and line != ">":
                if row is not None:
                    yield row
                row = NamedRow([], line[1:].split()[0])
            elif line:
                if row is None or line[0] in ">;":
                    place = f"{self.path}, line {number}"
                    raise ValueError(f"{place}: expected a header '>name' or letters below one, got {line!r:.60}")
                row += "".join(line.split()).upper()
        if row is not None:
            yield row

    def _json_values(self) -> Iterator[tuple]:
        columns = None
        for line_number, line in enumerate(read_lines(self.path, self.encoding), start=1):
            if not (record := line.rstrip()):
                continue
            try:
                value = json.loads(record)
                if isinstance(value, dict):
                    columns = columns or self._columns(list(value))
                    yield tuple([value[column] for column in columns])
                    continue
            except json.JSONDecodeError as error:
                place = f"{self.path}, line {line_number}, column {error.colno}"
                raise ValueError(f"{place}: invalid JSON (one record per line): {error.msg}") from error
            except KeyError as error:
                raise ValueError(f"{self.path}, line {line_number}: missing key {error}") from error
            if isinstance(value, list) and self.ending == ".json" and self.file_format is None:
                raise ValueError(f"{self.path} holds a JSON list: save it as .jsonl, with one row per line")
            yield (value,)

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The columns of the text and of its pair, in batches of rows."""
        with fsspec.open(os.fspath(self.path), "rb", compression="infer") as file:
            if self.resolved_format == "parquet":
                table = pyarrow.parquet.ParquetFile(file)
                columns = self._columns(table.schema_arrow.names)
                batches = table.iter_batches(1024, columns=columns)
            else:
                columns = self._columns(self._open_csv(file).schema.names)
                file.seek(0)
                types = dict.fromkeys(columns, pyarrow.string())
                batches = self._open_csv(file, include_columns=columns, column_types=types)
            for batch in batches:
                yield batch.select(columns)

    def _open_csv(self, file: IO[bytes], **conversion: Any) -> pyarrow.csv.CSVStreamingReader:
        is_tsv = self.resolved_format == "tsv"
        return pyarrow.csv.open_csv(
            pyarrow.PythonFile(file, "r"),  # does not close the file
            pyarrow.csv.ReadOptions(
                use_threads=False,  # so that error messages have the number of the row
                block_size=CSV_BLOCK_BYTES,
                autogenerate_column_names=isinstance(self.text_column, int),
                encoding=self.encoding,
            ),
            pyarrow.csv.ParseOptions(
                delimiter="\t" if is_tsv else ",",
                quote_char=False if is_tsv else '"',
                newlines_in_values=not is_tsv,
                ignore_empty_lines=not is_tsv,  # in a TSV of one column, empty lines are texts
            ),
            pyarrow.csv.ConvertOptions(**conversion),
        )

    def _columns(self, names: list[str]) -> list[str]:
        """The name of the text's column and, if there is a `text_pair_column`, that of the pair's column."""
        is_csv = self.resolved_format in ("csv", "tsv")
        if is_csv and self.text_column is None and len(names) == 1 and {" ", ";", "\t"}.intersection(names[0]):
            raise ValueError(
                f"{self.path}: the only column is {names[0]!r:.60}: pass text_column, or separate by commas"
            )
        without_header = is_csv and isinstance(self.text_column, int)
        text, pair = (
            names[wanted] if without_header and wanted is not None else wanted
            for wanted in (self.text_column, self.text_pair_column)
        )
        if pair is None:
            return [pick_column(names, text, str(self.path))]
        text = pick_column([name for name in names if name != str(pair)], text, str(self.path))
        return [text, pick_column(names, pair, str(self.path), "text_pair_column")]


def pick_column(names: list[str], wanted: str | int | None, where: str, option: str = "text_column") -> str:
    """The column of the text: `wanted`, or by default the first of `DEFAULT_COLUMNS` that exists, or else the only one.
    ValueError if no column or several have this name; the message begins with `where` and names the `option`."""
    if wanted is None:
        wanted = next((name for name in DEFAULT_COLUMNS if name in names), names[0] if len(names) == 1 else None)
    if names.count(str(wanted)) != 1:
        raise ValueError(f"{where}: {option} is {wanted!r}, but must name one of the columns {names}")
    return str(wanted)


def check_row(value: Any, where: str) -> Row:
    """A row as `str` or `list[str]`, without lone surrogates, which no file can hold. Others raise TypeError, also
    missing values (`None`, NaN), as only the user knows whether they stand for a blank text, and tuples, which are
    pairs. The message begins with `where`."""
    if isinstance(value, str):
        return drop_surrogates(value)
    if isinstance(value, NamedRow):
        return value
    words = value.tolist() if hasattr(value, "tolist") else value  # an array, a pandas Series
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return list(map(drop_surrogates, words))
    kind = type(value).__name__
    raise TypeError(f"{where}: expected text ('' if it is blank) or a list of words, got {kind} {value!r:.60}")


def check_pair(value: Any, where: str) -> Pair:
    """A text as [`check_row`] returns it, and its pair: another such text or a whole number. Otherwise TypeError."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{where}: expected a tuple (text, pair), got {type(value).__name__} {value!r:.60}")
    text, pair = value
    is_index = isinstance(pair, Integral) and not isinstance(pair, bool)
    return check_row(text, where), int(pair) if is_index else check_row(pair, where)
