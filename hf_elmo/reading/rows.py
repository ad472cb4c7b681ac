"""How input is read: the rows of files, streams, lists, arrays, columns, data sets and generators."""

from __future__ import annotations

import csv
import json
import os
import pickle
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import cached_property
from itertools import chain
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.parquet

from ..text_elmo import drop_surrogates, require_list
from .conll import read_sentences
from .files import COMPRESSIONS, Files, find_files, is_pipe, open_file, read_lines

Words = list[str]
Row = str | Words  # a text that is still to be split into words, or its words
Pair = tuple[Row, Row | int]  # a text and its pair: another text, or the index of a word

# The endings of each format; one with "conll" in it is CoNLL's, too. A file with an ending that stands nowhere here is
# plain text: that is what corpora such as `wiki.train.tokens`, `train.de` and `news.en-00001-of-00100` are.
ENDINGS = {
    "text": "txt",
    "jsonl": "jsonl jsonlines ndjson json",
    "csv": "csv",
    "tsv": "tsv",
    "parquet": "parquet pq",
    "fasta": "fasta fas fa faa fna fsa ffn",
    "conll": "cupt iob iob1 iob2 bio bio1 bio2 bioes iobes bieos bioul bilou bmes bmeso bmewo testa testb",
}
FORMATS = {f".{ending}": name for name, endings in ENDINGS.items() for ending in endings.split()}
# Endings of what is no text, or has markup in it; or that may be text as well as columns.
OTHERS = """.arrow .avro .feather .ipc .orc .h5 .hdf5 .npy .npz .pickle .pkl .pth .safetensors .bin .db .sqlite .msgpack
    .yaml .yml .toml .doc .docx .epub .htm .html .ipynb .odt .pdf .ppt .pptx .rtf .svg .tex .xhtml .xml .xls .xlsx .ods
    .ann .fastq .gff .mrg .naf .pdb .ptb .sgm .sgml .srt .tei .tmx .trees .vert .vrt .vtt .warc .xliff .xmi
    .7z .lz4 .rar .snappy .tar .tbz2 .tgz .txz .zip .train .dev .test"""
# How files of other formats begin that have the ending of a text or a table.
BEGINNINGS = {
    "conll": r"-DOCSTART-|#begin document|# (newdoc|newpar|(sent_id|text|global\.columns) =)|TOKEN\tNE-",
    "fasta": r">\S",
    "jsonl": r'\{"|\["',
    "xml": r"<\?xml|<!DOCTYPE|<html",
}
DEFAULT_COLUMNS = ("text", "sentence", "words", "tokens")
CSV_FIELD_CHARACTERS = 1 << 24  # the most in a field of a CSV, which a missing quote makes as long as the file


class NamedRow(list):
    """The words of a row that has a name: the identifier of a FASTA sequence."""

    def __init__(self, words: Iterable[str], name: str) -> None:
        super().__init__(words)
        self.name = name


class Rows:
    """The rows of any input, checked. They can be iterated repeatedly, each time from the beginning.

    A row is a `str` (text to be split into words) or a `list[str]` (words; in FASTA, a [`NamedRow`] of upper-case
    letters), or with other columns a tuple. Blank lines of text and TSV files are rows; in TSV, quotes are ordinary.

    Args:
        inputs: a path, a folder, a glob pattern or an address; a list of `Path`s ([`Files`]); `"-"`, standard input; or
            rows in memory: a list, an array, a column of a table, a generator, or a data set or list of dictionaries.
            A pipe and a generator are copied into a temporary file, because they can be read only once.
        input_format: one of `ENDINGS`; by default the ending of a file decides.
        text_column: the column or key with the text; an `int` is the index of a column of a CSV without a header, or of
            the words of CoNLL ([`hf_elmo.read_conll`]). By default one of `DEFAULT_COLUMNS`, or else the only column.
        encoding: the encoding of files, unless they are Parquet.
        text_pair_column: the column or key of each text's pair, which is another text or a whole number.
        further_columns: columns or keys whose values follow in a row's tuple as they are, `None` for a column `None`.
        pairs: whether rows in memory are tuples of a text and its pair.
        name: what error messages call rows in memory.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column does not exist, the format is unknown, has no columns or is that of other files, a row is
            malformed, or `inputs` is a table or an array with several axes.
        TypeError: a value is neither text nor a list of words, such as a null.
    """

    def __init__(
        self,
        inputs: Any,
        input_format: str | None = None,
        text_column: str | int | None = None,
        encoding: str = "utf-8",
        *,
        text_pair_column: str | int | None = None,
        further_columns: tuple[str | None, ...] = (),
        pairs: bool = False,
        name: str = "inputs",
    ) -> None:
        if input_format not in (None, *ENDINGS):
            raise ValueError(f"input_format is {input_format!r}, but must be one of {', '.join(ENDINGS)}")
        self.inputs, self.name = inputs, name
        self.input_format, self.text_column, self.encoding = input_format, text_column, encoding
        self.text_pair_column, self.further_columns = text_pair_column, further_columns
        self.pairs = pairs or text_pair_column is not None
        # The files that are read; none for rows in memory.
        self.files = list(dict.fromkeys(chain.from_iterable(map(find_files, _patterns(inputs)))))

    def __iter__(self) -> Iterator[Row | Pair]:
        for where, value in self.values():
            if self.further_columns and isinstance(value, tuple):
                yield check_row(value[0], where), *value[1:]
            else:
                yield check_pair(value, where) if self.pairs else check_row(value, where)

    def values(self) -> Iterator[tuple[str, Any]]:
        """The place of each row, for error messages, and its value, which is not checked yet."""
        if not self.files:
            rows = enumerate(self._in_memory())
            return self._selected((f"{self.name}, row {number} (from 0)", row) for number, row in rows)
        return chain.from_iterable(map(self.values_of, self.files))

    def values_of(self, file: str) -> Iterator[tuple[str, Any]]:
        """As [`values`], of one of the files."""
        path = self.path_of(file)
        kind = self.format_of(path)
        word = self.text_column if kind == "conll" and isinstance(self.text_column, int) else None
        columns = {self.text_column, self.text_pair_column, *self.further_columns} - {None, word}
        if columns and kind in ("text", "fasta", "conll"):
            raise ValueError(f"{path} is read as {kind}, without named columns: pass input_format, or no column")
        return getattr(self, f"_read_{kind}")(path)

    def format_of(self, file: str) -> str:
        """`input_format`, or else the format of the ending; ValueError for an ending of files that are no text."""
        ending = _ending(file)
        if self.input_format is None and ending in OTHERS.split():
            raise ValueError(
                f"{file} ends in {ending}, which is no format of rows: extract or convert it, or, if it is "
                "text, rename it or pass input_format='text'"
            )
        return self.input_format or ("conll" if "conll" in ending else FORMATS.get(ending, "text"))

    @cached_property
    def _folder(self) -> Path:
        """A folder for copies, which is removed with this object."""
        folder = tempfile.mkdtemp(prefix="hf_elmo_")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def path_of(self, file: str) -> str:
        """Where to read a file: of a pipe, the path of its copy."""
        if file != "-" and not is_pipe(file):
            return file
        path = self._folder / ("standard_input" if file == "-" else Path(file).name)
        if not path.exists():
            with nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as source, open(path, "wb") as copy:
                shutil.copyfileobj(source, copy)
        return str(path)

    def _in_memory(self) -> Iterator[Any]:
        require_list(self.inputs, self.name)
        if not isinstance(self.inputs, Iterator):
            yield from self.inputs.to_pylist() if hasattr(self.inputs, "to_pylist") else self.inputs
            return
        path = self._folder / "inputs.pickle"
        if not path.exists():
            with open(path, "wb") as file:
                for row in self.inputs:
                    pickle.dump(row, file)
        with open(path, "rb") as file, suppress(EOFError):
            while True:
                yield pickle.load(file)

    def _selected(self, records: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The values of the columns of records that are dictionaries; others are values."""
        columns = None
        for where, record in records:
            if isinstance(record, Mapping):
                columns = columns or self._columns(list(record), where)
                if missing := [column for column in columns if column not in record]:
                    raise ValueError(f"{where}: missing key {missing[0]!r}")
                record = self._value([record[column] for column in columns])
            yield where, record

    def _value(self, cells: list[Any]) -> Any:
        """A row's value from those of its columns."""
        text, *others = cells
        if not self.further_columns:
            return (text, *others) if others else text
        given = iter(others)
        return text, *(name and next(given) for name in self.further_columns)

    def _columns(self, names: list[str], where: str) -> list[str]:
        """The names of the columns of the text, of its pair if there is one, and of further columns."""
        wanted = [(name, "column") for name in self.further_columns if name is not None]
        if self.text_pair_column is not None:
            wanted.insert(0, (self.text_pair_column, "text_pair_column"))
        others = [pick_column(names, name, where, option) for name, option in wanted]
        return [pick_column([name for name in names if name not in others], self.text_column, where), *others]

    def _lines(self, path: str, newline: str | None = None) -> Iterator[str]:
        """The lines of a file; ValueError if the first one is that of another format than the ending says."""
        for number, line in enumerate(read_lines(path, self.encoding, newline)):
            if number == 0 and self.input_format is None:
                for kind, beginning in BEGINNINGS.items():
                    if re.match(beginning, line):
                        how = f"pass input_format={kind!r}" if kind in ENDINGS else "extract its text"
                        raise ValueError(f"{path}, line 1: {line[:40]!r} begins a file of {kind}: {how} (or 'text')")
            yield line

    def _read_text(self, path: str) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(self._lines(path), start=1):
            yield f"{path}, line {number}", line.rstrip("\n")

    def _read_conll(self, path: str) -> Iterator[tuple[str, Words]]:
        for sentence in read_sentences(path, self.text_column, encoding=self.encoding):
            yield path, [word for (word,) in sentence]

    def _read_fasta(self, path: str) -> Iterator[tuple[str, NamedRow]]:
        """The letters of each FASTA sequence (Pearson and Lipman 1988), named by the first word of its header."""
        row = None
        for number, line in enumerate(map(str.strip, read_lines(path, self.encoding)), start=1):
            if line.startswith(">") and line != ">":
                if row is not None:
                    yield path, row
                row = NamedRow([], line[1:].split()[0])
            elif line:
                if row is None or line[0] in ">;":
                    place = f"{path}, line {number}"
                    raise ValueError(f"{place}: expected a header '>name' or letters below one, got {line!r:.60}")
                row += "".join(line.split()).upper()
        if row is not None:
            yield path, row

    def _read_jsonl(self, path: str) -> Iterator[tuple[str, Any]]:
        return self._selected(self._json_records(path))

    def _json_records(self, path: str) -> Iterator[tuple[str, Any]]:
        for number, line in enumerate(read_lines(path, self.encoding), start=1):
            if not (record := line.rstrip()):
                continue
            try:
                value = json.loads(record)
            except json.JSONDecodeError as error:
                place = f"{path}, line {number}, column {error.colno}"
                raise ValueError(f"{place}: invalid JSON (one record per line): {error.msg}") from error
            if isinstance(value, list) and _ending(path) == ".json" and self.input_format is None:
                raise ValueError(f"{path} holds a JSON list: save it as .jsonl, with one row per line")
            yield f"{path}, line {number}", value

    def _read_parquet(self, path: str) -> Iterator[tuple[str, Any]]:
        with open_file(path) as file:
            table = pyarrow.parquet.ParquetFile(file)
            columns = self._columns(table.schema_arrow.names, path)
            row = 0
            for batch in table.iter_batches(1024, columns=columns):
                for cells in zip(*(batch[column].to_pylist() for column in columns), strict=True):
                    yield f"{path}, row {row} (from 0)", self._value(list(cells))
                    row += 1

    def _read_tsv(self, path: str) -> Iterator[tuple[str, Any]]:
        return self._table(path, delimiter="\t", quoting=csv.QUOTE_NONE)

    def _read_csv(self, path: str) -> Iterator[tuple[str, Any]]:
        return self._table(path, strict=True)

    def _table(self, path: str, **dialect: Any) -> Iterator[tuple[str, Any]]:
        csv.field_size_limit(max(CSV_FIELD_CHARACTERS, csv.field_size_limit()))
        reader = csv.reader(self._lines(path, newline=""), **dialect)
        rows = reader if "delimiter" in dialect else filter(None, reader)  # blank lines of a CSV are no rows
        start = 1  # the line in which the next row begins
        try:
            if (first := next(rows, None)) is None:
                raise ValueError(f"{path} is empty")
            first = first or [""]
            start = reader.line_num + 1
            has_header = _has_header(first, self.text_column)
            names = first if has_header else [str(column) for column in range(len(first))]
            try:
                if self.text_column is None and len(first) == 1 and re.search("[ ;\t]", first[0]):
                    raise ValueError(f"{path}: the only column is {first[0]!r:.60}")
                places = [names.index(name) for name in self._columns(names, path)]
            except ValueError as error:
                separator = "tab" if "delimiter" in dialect else "comma"
                how = f"the first line must name the columns, with {separator}s between them"
                raise ValueError(f"{error}: {how}, or text_column must be the number of one, from 0") from None
            for row in rows if has_header else chain([first], rows):
                row = row or [""] * len(names)  # a blank line of a TSV is a blank text
                if len(row) != len(names):
                    raise ValueError(f"{path}, line {start}: expected {len(names)} columns, got {len(row)}")
                yield f"{path}, line {start}", self._value([row[place] for place in places])
                start = reader.line_num + 1
        except csv.Error as error:
            place = f"{start} to {reader.line_num}" if start < reader.line_num else start
            raise ValueError(f"{path}, line {place}: {error} (a quote that is not closed, or not doubled)") from error


def _patterns(inputs: Any) -> list:
    """The paths and patterns of files; none for rows in memory. ValueError for names of files in a list of texts."""
    if isinstance(inputs, (str, os.PathLike)):
        return [inputs]
    if isinstance(inputs, Files):
        return inputs
    first = inputs[0] if isinstance(inputs, (list, tuple)) and inputs else None
    if isinstance(first, str) and "." in first and os.path.isfile(first):
        raise ValueError(f"{first!r} is a file, but strings of a list are texts: pass a list of pathlib.Path")
    return list(inputs) if isinstance(first, os.PathLike) else []


def _ending(file: str | os.PathLike) -> str:
    """The ending of a file's name in lower case, without the ending of a compression such as `.gz`."""
    name = PurePosixPath(os.fspath(file))
    return (name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name).suffix.lower()


def _has_header(first: list[str], text_column: str | int | None) -> bool:
    """Whether the first row of a table has the names of its columns: unless the text's column is given by its number.
    pandas names columns that have no names by their numbers, too."""
    numbers = [str(column) for column in range(len(first))]
    by_pandas = numbers == first or (len(first) > 1 and ["", *numbers[:-1]] == first)
    return by_pandas or not isinstance(text_column, int) or text_column >= len(first)


def pick_column(names: list[str], wanted: str | int | None, where: str, option: str = "text_column") -> str:
    """The column of the text: the one named `wanted`, or with this number; by default the first of `DEFAULT_COLUMNS`
    that exists, or else the only one. ValueError if there is none, or several have its name; the message begins with
    `where` and names the `option`."""
    if wanted is None:
        wanted = next((name for name in DEFAULT_COLUMNS if name in names), names[0] if len(names) == 1 else None)
    elif isinstance(wanted, int) and str(wanted) not in names and wanted < len(names):
        wanted = names[wanted]
    if names.count(str(wanted)) != 1:
        given = "" if wanted is None else f", and is {wanted!r}"
        shown = [f"{name:.40}" for name in names[:20]]
        raise ValueError(f"{where}: {option} must name one of the columns {shown}{given}")
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
