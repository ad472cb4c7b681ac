"""Reading text: the lines, sentences and rows of files.

fsspec opens the files: paths, and addresses (`s3://`, `hf://`) if the library that fsspec needs for them is installed.
Names that end in `.gz`, `.bz2`, `.xz` or `.zst` are compressed files. Only one block of a file is in memory at a time.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain, groupby
from lzma import LZMAError
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import IO, Any
from zlib import error as ZlibError

import fsspec
import pyarrow
import pyarrow.parquet
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ..tokenization_elmo import drop_surrogates, require_list

Words = list[str]
Row = str | Words  # a text that is still to be split into words, or its words
Pair = tuple[Row, Row | int]  # a text and its pair: another text, or the index of a word

# The endings of each format; one with "conll" in it is CoNLL's, too. A file with an ending that stands nowhere here is
# plain text: that is what corpora such as `wiki.train.tokens`, `train.de` and `news.en-00001-of-00100` are.
ENDINGS = {
    "text": ("txt",),
    "jsonl": ("jsonl", "jsonlines", "ndjson", "json"),
    "csv": ("csv",),
    "tsv": ("tsv",),
    "parquet": ("parquet", "pq"),
    "fasta": ("fasta", "fas", "fa", "faa", "fna", "fsa", "ffn"),
    "conll": ("cupt", "iob", "iob1", "iob2", "bio", "bio1", "bio2", "bioes", "iobes", "bilou", "testa", "testb"),
}
FORMATS = {f".{ending}": name for name, endings in ENDINGS.items() for ending in endings}
# Endings of what is no text, or has markup in it; or that may be text as well as columns.
OTHERS = """.arrow .avro .feather .ipc .orc .h5 .hdf5 .npy .npz .pickle .pkl .pth .safetensors .bin .db .sqlite .msgpack
    .yaml .yml .toml .doc .docx .epub .htm .html .ipynb .odt .pdf .ppt .pptx .rtf .svg .tex .xhtml .xml .xls .xlsx .ods
    .ann .fastq .gff .mrg .naf .pdb .ptb .sgm .sgml .srt .tei .tmx .trees .vtt .warc .xliff .xmi
    .7z .lz4 .rar .snappy .tar .tbz2 .tgz .txz .zip .train .dev .test"""
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".lzma": "lzma", ".zst": "zstd"}
DEFAULT_COLUMNS = ("text", "sentence", "words", "tokens")
CSV_FIELD_CHARACTERS = 1 << 24  # the most in a field of a CSV, which a missing quote makes as long as the file


def local_path(path: str | os.PathLike) -> Path:
    """A path to write to; ValueError for an address, such as `s3://bucket/name`, which would become a folder `s3:`."""
    if re.match(r"\w{2,}:/", os.fspath(path)):
        raise ValueError(f"{os.fspath(path)!r} is an address, but must be a path: write to one, and upload it then")
    return Path(path)


def find_files(pattern: str | os.PathLike) -> list[str]:
    """The files that a path, a folder or a glob pattern stands for, in alphabetical order; FileNotFoundError if there
    is none. A folder stands for all files below it, except files and folders whose names begin with a dot or an
    underscore."""
    filesystem, path = url_to_fs(os.fspath(pattern))
    if filesystem.isdir(path):
        paths = [file for file in filesystem.find(path) if not re.search("/[._]", file.removeprefix(path))]
    elif filesystem.isfile(path):
        paths = [path]
    else:
        paths = [file for file in filesystem.glob(path) if not filesystem.isdir(file)]
    if not paths:
        raise FileNotFoundError(f"no file matches {os.fspath(pattern)!r}")
    is_local = isinstance(filesystem, LocalFileSystem)
    return [file if is_local else filesystem.unstrip_protocol(file) for file in sorted(paths)]


@contextmanager
def open_file(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its name ends in `.gz`, `.bz2`, `.xz` or `.zst`; ValueError if they end too
    early, as after an interrupted download, or are damaged. A pipe, such as that of a shell's `<(zcat x)`, can be read
    once."""
    name = os.fspath(path)
    compression = COMPRESSIONS.get(PurePosixPath(name).suffix.lower())
    by_pyarrow = compression == "zstd"  # fsspec's library for it takes an incomplete file for a whole one
    by_fsspec = None if by_pyarrow else compression
    try:
        with open(name, "rb") if Path(name).is_fifo() else fsspec.open(name, "rb", compression=by_fsspec) as file:
            yield pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), compression) if by_pyarrow else file
    except (EOFError, LZMAError, OSError, ZlibError) as error:
        if compression is None or getattr(error, "errno", None):
            raise
        raise ValueError(f"{name} is incomplete or damaged ({error}): fetch it again") from error


def read_lines(path: str | os.PathLike, encoding: str = "utf-8", newline: str | None = None) -> Iterator[str]:
    """The lines of a text file ([`open_file`]), each with its line break, which `newline` determines as in `open`; a
    byte order mark at the beginning of UTF-8 is left out. ValueError, with the number of the line, for bytes that are
    invalid in the encoding."""
    codec = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    lines_read = 0
    try:
        with open_file(path) as file, TextIOWrapper(file, codec, newline=newline) as lines:
            for line in lines:
                lines_read += 1
                yield line
    except UnicodeDecodeError as error:  # error.object is the block of bytes after the last line read
        line = lines_read + error.object[: error.start].count(b"\n") + 1
        message = f"{path}, line {line}: not valid {encoding} ({error.reason}): pass its encoding="
        raise ValueError(message) from error


def read_columns(path: str | os.PathLike, encoding: str = "utf-8") -> Iterator[tuple[str, list[str]]]:
    """The place of each line of a file in CoNLL's format, for error messages, and its columns; a blank line has none.
    Tabs separate the columns of a line that has tabs, otherwise spaces do. (A no-break space is a part of a word.)"""
    for number, line in enumerate(read_lines(path, encoding), start=1):
        line = line.rstrip("\n")
        columns = line.split("\t") if "\t" in line else filter(None, line.split(" "))
        yield f"{path}, line {number}", [column.strip(" ") for column in columns] if line.strip(" \t") else []


# Lines without a word: documents and, in CoNLL-U, comments such as `# newdoc` and `# text = ...`.
NO_WORD = re.compile(r"-DOCSTART-|#(begin|end) document\b|# (newdoc|newpar)\b|# ?[\w.]+ = ")
NO_WORD_ID = re.compile(r"\d+[-.]\d+")  # CoNLL-U's ranges and empty nodes; in WebAnno, `1-2` numbers a word


def read_sentences(
    path: str | os.PathLike, word: int | None = None, tag: int | None = None, encoding: str = "utf-8"
) -> Iterator[list[list[str]]]:
    """The sentences of a file of CoNLL, each a list with the columns `word` and, unless it is `None`, `tag` of its
    words. The docstring of [`hf_elmo.read_conll`] has the rules, and those for the default of `word`."""
    first: list[str] = []
    for _, group in groupby(read_columns(path, encoding), lambda line: not line[1]):
        lines = [(where, columns) for where, columns in group if columns]
        lines = [line for line in lines if not NO_WORD.match(" ".join(line[1])) and not line[1][0].startswith("# ")]
        if not lines:
            continue
        own = min((columns for _, columns in lines), key=lambda columns: columns[0].startswith("#"))
        first = own if not first or first[0].startswith("#") else first
        if word is None and not own[0].startswith("#"):
            word = _word_column([columns for _, columns in lines if not columns[0].startswith("#")])
        wanted = [word or 0] if tag is None else [word or 0, tag]
        fewest = max(1 + max(wanted), -min(wanted), 1 if tag is None and len(own) == 1 else 2)
        is_numbered = wanted[0] != 0 and any(columns[0].isdecimal() for _, columns in lines)
        sentence = []
        for where, columns in lines:
            has_all = fewest <= len(columns) and (min(wanted) >= 0 or len(columns) == len(first))
            is_whole = has_all and len(columns) == len(own)
            if columns[0].startswith("#") and not (is_whole and columns[wanted[0]].startswith("#")):
                continue
            if is_numbered and NO_WORD_ID.fullmatch(columns[0]):
                continue
            if not (has_all and all(columns[column] for column in wanted)):
                named = dict(zip(("word", "tag"), wanted, strict=False))
                raise ValueError(f"{where}: {columns} lacks a column of {named}; the first word has {first}")
            sentence.append([columns[column] for column in wanted])
        if sentence:
            yield sentence


def _word_column(sentence: list[list[str]]) -> int:
    """The column after that which numbers the words: the first one in CoNLL-U, the third one in CoNLL-2012; else 0."""
    numbers = [columns[0] for columns in sentence if len(columns) > 1 and not NO_WORD_ID.fullmatch(columns[0])]
    if numbers[:1] in (["0"], ["1"]) and all(map(str.isdecimal, numbers)):
        return 1
    places = ((columns[1:3], str(place)) for place, columns in enumerate(sentence) if len(columns) > 3)
    is_2012 = [part.isdecimal() and number == place for (part, number), place in places]
    return 3 if len(is_2012) == len(sentence) and all(is_2012) else 0


class NamedRow(list):
    """The words of a row that has a name: the identifier of a FASTA sequence."""

    def __init__(self, words: Iterable[str], name: str) -> None:
        super().__init__(words)
        self.name = name


@dataclass(frozen=True)
class RowSource:
    """The rows of a file. It can be iterated repeatedly, each time from the beginning.

    A row is a `str` (text to be split into words) or a `list[str]` (words; in FASTA, a [`NamedRow`] of upper-case
    letters), or with other columns a tuple. Blank lines of text and TSV files are rows; in TSV, quotes are ordinary.

    Args:
        path: a path or an address.
        file_format: one of `ENDINGS`; by default the ending decides.
        text_column: the column or key with the text; an `int` is the index of a column of a CSV without a header, or of
            the words of CoNLL ([`hf_elmo.read_conll`]). By default one of `DEFAULT_COLUMNS`, or else the only column.
        encoding: the encoding of the file, unless it is Parquet.
        text_pair_column: the column or key of each text's pair, which is another text or a whole number.
        further_columns: columns or keys whose values follow in a row's tuple as they are, `None` for a column `None`.

    Raises:
        ValueError: a column does not exist, the format is unknown or has no columns, or a row is malformed.
        TypeError: a value is neither text nor a list of words, such as a null.
    """

    path: str | os.PathLike
    file_format: str | None = None
    text_column: str | int | None = None
    encoding: str = "utf-8"
    text_pair_column: str | int | None = None
    further_columns: tuple[str | None, ...] = ()

    @property
    def ending(self) -> str:
        """The ending of the file's name in lower case, without the ending of a compression such as `.gz`."""
        name = PurePosixPath(os.fspath(self.path))
        return (name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name).suffix.lower()

    @property
    def resolved_format(self) -> str:
        """`file_format`, or else the format of the ending; ValueError for an unknown format, and for an ending of files
        that are no text."""
        if self.file_format not in (None, *ENDINGS):
            raise ValueError(f"input_format is {self.file_format!r}, but must be one of {', '.join(ENDINGS)}")
        if self.file_format is None and self.ending in OTHERS.split():
            raise ValueError(
                f"{self.path} ends in {self.ending}, which is no format of rows: extract or convert it, or, if it is "
                "text, rename it or pass input_format='text'"
            )
        return self.file_format or ("conll" if "conll" in self.ending else FORMATS.get(self.ending, "text"))

    def __iter__(self) -> Iterator[Row | Pair]:
        for row, (text, *others) in enumerate(self.values()):
            where = f"{self.path}, row {row} (from 0)"
            if self.text_pair_column is not None:
                yield check_pair((text, *others), where)
            elif self.further_columns:
                given = iter(others)
                yield check_row(text, where), *(name and next(given) for name in self.further_columns)
            else:
                yield check_row(text, where)

    def values(self) -> Iterator[tuple]:
        """Each row as a tuple: the values of the columns of the text, its pair and further columns; not checked yet."""
        if "://" not in str(self.path) and not os.path.exists(self.path):
            error = FileNotFoundError(f"there is no file {str(self.path)!r:.80}")
            error.add_note("For texts, pass a list of them.")
            raise error
        kind = self.resolved_format
        if kind == "jsonl":
            yield from self._json_values()
        elif kind == "parquet":
            yield from self._parquet_values()
        elif kind in ("csv", "tsv"):
            yield from self._csv_values(is_tsv=kind == "tsv")
        else:
            word_column = self.text_column if kind == "conll" and isinstance(self.text_column, int) else None
            if {self.text_column, self.text_pair_column, *self.further_columns} - {None, word_column}:
                raise ValueError(f"{self.path} is read as {kind}, without named columns: pass input_format")
            if kind == "conll":
                for sentence in read_sentences(self.path, word_column, encoding=self.encoding):
                    yield ([word for (word,) in sentence],)
            elif kind == "fasta":
                yield from ((sequence,) for sequence in self._sequences())
            else:
                for line in read_lines(self.path, self.encoding):
                    if line.startswith("-DOCSTART-") and self.file_format is None:
                        raise ValueError(f"{self.path} is a file of CoNLL: pass input_format='conll' (or 'text')")
                    yield (line.rstrip("\n"),)

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

    def _parquet_values(self) -> Iterator[tuple]:
        with open_file(self.path) as file:
            table = pyarrow.parquet.ParquetFile(file)
            columns = self._columns(table.schema_arrow.names)
            for batch in table.iter_batches(1024, columns=columns):
                yield from zip(*(batch[column].to_pylist() for column in columns), strict=True)

    def _csv_values(self, is_tsv: bool) -> Iterator[tuple]:
        csv.field_size_limit(max(CSV_FIELD_CHARACTERS, csv.field_size_limit()))
        dialect = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if is_tsv else {}
        reader = csv.reader(read_lines(self.path, self.encoding, newline=""), **dialect)
        rows = reader if is_tsv else filter(None, reader)  # blank lines of a CSV are no rows
        try:
            if (first := next(rows, None)) is None:
                raise ValueError(f"{self.path} is empty")
            has_header = not isinstance(self.text_column, int)
            names = first if has_header else [str(column) for column in range(len(first or [""]))]
            if self.text_column is None and len(names) == 1 and {" ", ";", "\t"}.intersection(names[0]):
                name = repr(names[0])[:60]
                raise ValueError(f"{self.path}: the only column is {name}: pass text_column, or separate by commas")
            places = [names.index(name) for name in self._columns(names)]
            for row in rows if has_header else chain([first], rows):
                row = row or [""] * len(names)  # a blank line of a TSV is a blank text
                if len(row) != len(names):
                    raise csv.Error(f"expected {len(names)} columns, got {len(row)}")
                yield tuple([row[place] for place in places])
        except csv.Error as error:
            raise ValueError(f"{self.path}, line {reader.line_num}: {error}") from error

    def _columns(self, names: list[str]) -> list[str]:
        """The names of the columns of the text, of its pair if there is one, and of further columns."""
        wanted = [(name, "column") for name in self.further_columns if name is not None]
        if self.text_pair_column is not None:
            wanted.insert(0, (self.text_pair_column, "text_pair_column"))
        others = [pick_column(names, name, str(self.path), option) for name, option in wanted]
        return [pick_column([name for name in names if name not in others], self.text_column, str(self.path)), *others]


def pick_column(names: list[str], wanted: str | int | None, where: str, option: str = "text_column") -> str:
    """The column of the text: `wanted`, or by default the first of `DEFAULT_COLUMNS` that exists, or else the only one.
    ValueError if no column or several have this name; the message begins with `where` and names the `option`."""
    if wanted is None:
        wanted = next((name for name in DEFAULT_COLUMNS if name in names), names[0] if len(names) == 1 else None)
    if names.count(str(wanted)) != 1:
        given = "" if wanted is None else f", and is {wanted!r}"
        raise ValueError(f"{where}: {option} must name one of the columns {names}{given}")
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


@dataclass(frozen=True)
class Sentences:
    """Sentences in memory as rows, or with `pairs` tuples of a text and its pair; errors call them `name`."""

    sentences: Iterable[Any]
    pairs: bool = False
    name: str = "inputs"

    def __iter__(self) -> Iterator[Row | Pair]:
        require_list(self.sentences, self.name)
        check = check_pair if self.pairs else check_row
        for row, sentence in enumerate(self.sentences):
            yield check(sentence, f"{self.name}, row {row} (from 0)")


def rows_of(inputs: Any, reading: dict[str, Any], folder: Path, pairs: bool = False) -> RowSource | Sentences:
    """The rows of a file, of standard input (`"-"`), or of sentences; `reading` has the options of [`RowSource`].

    With `pairs`, each sentence is a tuple (text, pair). Standard input, pipes and generators are copied into `folder`,
    because they can be read only once."""
    if isinstance(inputs, (str, os.PathLike)):
        is_input = str(inputs) == "-"
        if not is_input and not Path(inputs).is_fifo():
            return RowSource(inputs, **reading)
        path = folder / ("standard_input" if is_input else Path(inputs).name)
        with nullcontext(sys.stdin.buffer) if is_input else open(inputs, "rb") as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file)
        return RowSource(path, **reading)
    rows = Sentences(inputs, pairs)
    if not isinstance(inputs, Iterator):
        return rows
    path = folder / "inputs.jsonl"
    with open(path, "w", encoding="ascii") as file:
        file.writelines(json.dumps({"text": row[0], "pair": row[1]} if pairs else row) + "\n" for row in rows)
    return RowSource(path, **({"text_column": "text", "text_pair_column": "pair"} if pairs else {}))
