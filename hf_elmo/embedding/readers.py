"""Rows of text from files: plain text, JSON lines, CSV, TSV, Parquet, FASTA and standard input, one row at a time.

A row is a `str` (text still to be split into words) or a `list[str]` (words already split; of FASTA a [`NamedRow`]), or
where a second column is named a tuple of a text and its pair. A reader has one row in memory at a time (Parquet: one
batch of rows), and of FASTA the identifiers.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

from ..lines import codec_name, read_lines
from ..optional import import_optional

Row = str | list[str]
Pair = tuple[Row, Row | int]  # a text, and what belongs to it: another one, or the index of a word

FORMATS = {
    ".txt": "text",
    ".text": "text",
    ".tokens": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".fasta": "fasta",
    ".fa": "fasta",
    ".faa": "fasta",
}
DEFAULT_COLUMNS = ("text", "sentence", "words", "tokens")
PARQUET_BATCH_ROWS = 256


class NamedRow(list):
    """The words of a row that has a name of its own."""

    name: str = ""


@dataclass(frozen=True)
class RowSource:
    """A file of rows and how to read it. It can be iterated repeatedly, each time from the beginning.

    Args:
        path: the file; it is decompressed where its name ends in `.gz` (all formats but Parquet).
        file_format: `"text"` (one row a line), `"jsonl"`, `"csv"` (quoted as Excel does), `"tsv"` (quotes are ordinary
            characters), `"parquet"` or `"fasta"` (each letter of a sequence is a word, as a capital); by default from
            the ending.
        text_column: the column (CSV, Parquet) or key (JSON lines) with the text; an `int` is the index of a column in a
            CSV without a header. By default `text`, `sentence`, `words` or `tokens`, or the only column.
        encoding: of all formats but Parquet.
        name: of the file in error messages; by default the path.
        open_file: opens the path, where it is not one of this machine's file system (and was found to exist there).
        text_pair_column: the column or key of each text's pair, another text or a whole number; as `text_column` a name
            or an index. With it rows are tuples.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: unknown ending or format, an option that has no meaning for it, missing column, malformed line, a
            row of a CSV or TSV with another number of fields than the first, a `.json` that is a single list, bytes
            that are not of the encoding.
    """

    path: Path
    file_format: str | None = None
    text_column: str | int | None = None
    encoding: str = "utf-8"
    name: str = ""
    open_file: Callable[[str], IO[bytes]] | None = None
    text_pair_column: str | int | None = None

    def __post_init__(self) -> None:
        if self.open_file is None and not self.path.exists():
            raise FileNotFoundError(
                f"input {str(self.path)!r} does not exist; give the path of a file, '-' for standard input, or "
                "(in Python) a list of sentences"
            )
        if self.open_file is None and self.path.is_dir():
            raise IsADirectoryError(f"input {str(self.path)!r} is a folder; give one file")
        for option in ("text_column", "text_pair_column"):
            if self.resolved_format in ("text", "fasta") and getattr(self, option) is not None:
                raise ValueError(
                    f"{option}={getattr(self, option)!r} has no meaning for a {self.resolved_format} file; leave it out"
                )
        if self.resolved_format == "parquet" and codec_name(self.encoding) != "utf-8":
            raise ValueError(f"encoding={self.encoding!r} has no meaning for a parquet file; leave it out")
        if self.text_pair_column is not None:
            self._require_two_columns()
        if self.resolved_format in ("jsonl", "parquet"):  # which have names alone, "0" among them
            for option in ("text_column", "text_pair_column"):
                if isinstance(number := getattr(self, option), int):
                    object.__setattr__(self, option, str(number))

    def _require_two_columns(self) -> None:
        text, pair = self.text_column, self.text_pair_column
        if text == pair:
            raise ValueError(f"text_column and text_pair_column are both {text!r}; choose two columns")
        if isinstance(text, int) != isinstance(pair, int):
            raise ValueError(
                f"text_column={text!r} and text_pair_column={pair!r}: give both by name, or both as an index (of a CSV "
                "without a header)"
            )

    def __str__(self) -> str:
        return self.name or str(self.path)

    @property
    def resolved_format(self) -> str:
        """The given format, or that of the ending (before `.gz`)."""
        if self.file_format is not None:
            if self.file_format not in FORMATS.values():
                raise ValueError(f"input format {self.file_format!r} is unknown; take one of {_known_formats()}")
            return self.file_format
        ending = self.ending
        if ending not in FORMATS:
            raise ValueError(
                f"input {str(self.path)!r} has the unknown ending {ending!r}; known are {', '.join(FORMATS)}, each "
                f"but .parquet also with .gz. Rename the file, or give its format: {_known_formats()}"
            )
        return FORMATS[ending]

    @property
    def ending(self) -> str:
        """Of the name, before `.gz`, in small letters."""
        endings = [ending.lower() for ending in self.path.suffixes]
        return endings[-2] if endings[-1:] == [".gz"] and len(endings) > 1 else "".join(endings[-1:])

    def __iter__(self) -> Iterator[Row | Pair]:
        return _READERS[self.resolved_format](self)

    def columns(self, names: list[str], where: str) -> list[str]:
        """The columns to read of those that there are: the text's, then its pair's where one is named."""
        pair = self.text_pair_column
        if pair is None:
            return [pick_column(names, self.text_column, where)]
        text = pick_column([name for name in names if name != pair], self.text_column, where)
        return [text, pick_column(names, pair, where, "text_pair_column")]

    def lines(self, newline: str | None = None) -> Iterator[str]:
        """The lines of the file, as [`read_lines`] gives them."""
        remedy = ", or name the encoding it has (for example encoding='latin-1')"
        return read_lines(self.path, self.encoding, newline, str(self), self.open_file, remedy=remedy)


def _known_formats() -> str:
    return ", ".join(sorted(set(FORMATS.values())))


def _read_text(source: RowSource) -> Iterator[Row]:
    for line in source.lines():
        yield line.rstrip("\n")


def _read_json_lines(source: RowSource) -> Iterator[Row | Pair]:
    paired = source.text_pair_column is not None
    keys, chosen_at, row, number = None, "", "", 0
    if source.text_column is not None:
        keys = [source.text_column, source.text_pair_column] if paired else [source.text_column]
    for number, line in enumerate(source.lines(), start=1):
        where = f"{source}, line {number}"
        value = _parse_json(line, where)
        if isinstance(value, dict):
            if keys is None:
                keys, chosen_at = source.columns(list(value), where), f" (found in line {number})"
            for key in keys:
                if key not in value:
                    raise ValueError(
                        f"{where}: no key {key!r}{chosen_at}, but {list(value)!r:.200}; every object of a JSON lines "
                        f"file must hold the text under the same key{', and its pair' if paired else ''}"
                    )
                if isinstance(value, _Repeated) and key in value.repeated:
                    raise ValueError(f"{where}: the key {key!r} stands there twice; leave one of them, or rename it")
            row = _row([value[key] for key in keys], where)
        elif paired:
            raise ValueError(f"{where}: {value!r:.60} is no object with the key {source.text_pair_column!r}")
        else:
            row = check_row(value, where)
        yield row
    if number == 1 and isinstance(row, list) and source.ending == ".json" and source.file_format is None:
        raise ValueError(
            f"{source} is a single list, {row!r:.60}: of texts, or of the words of one? Write each text on a line of "
            "its own (JSON lines); for the words of one give input_format='jsonl' (--input-format jsonl)"
        )


def _row(values: list[Any], where: str) -> Row | Pair:
    """A row of the values in its columns."""
    return check_row(values[0], where) if len(values) == 1 else check_pair(tuple(values), where)


class _Repeated(dict):
    """A JSON object in which keys stand more than once."""

    repeated: set[str]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, a [`_Repeated`] where a key would replace the value of an earlier one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        found = _Repeated(found)
        found.repeated = {key for key, count in Counter(key for key, _ in pairs).items() if count > 1}
    return found


_decode_json = json.JSONDecoder(object_pairs_hook=_object).decode


def _parse_json(line: str, where: str) -> Any:
    if not line.strip():
        raise ValueError(f'{where}: empty; each line of a JSON lines file holds one value (a blank row is "")')
    try:
        return _decode_json(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where}: malformed JSON at column {error.colno} ({error.msg}); each line must hold one whole value (one "
            "JSON document over several lines is not JSON lines)"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of 4,300 digits, lists in lists
        raise ValueError(f"{where}: {error or type(error).__name__}; a line holds text or a list of words") from error


def _read_csv(source: RowSource) -> Iterator[Row | Pair]:
    dialect = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if source.resolved_format == "tsv" else {"strict": True}
    old_limit = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # the default, 128 kB a field, is less than a book
    try:
        yield from _csv_columns(source, csv.reader(source.lines(newline=""), **dialect))
    except csv.Error as error:
        raise ValueError(f"{source}: malformed {source.resolved_format.upper()} ({error})") from error
    finally:
        csv.field_size_limit(old_limit)


def _csv_columns(source: RowSource, rows: Any) -> Iterator[Row | Pair]:
    wanted = [source.text_column] if source.text_pair_column is None else [source.text_column, source.text_pair_column]
    positions, width = None, 0
    for fields in rows:
        if not fields and width == 1 and source.resolved_format == "tsv":
            fields = [""]  # the only way in which a TSV of one column can write an empty text
        if not fields:  # csv parses an empty line as no fields: it is no row
            continue
        if positions is None:
            width, where = len(fields), f"{source}, line {rows.line_num}"
            if not isinstance(source.text_column, int):
                _require_header(source, fields)
                positions = [fields.index(name) for name in source.columns(fields, str(source))]
                continue
            positions = wanted
            for option, position in zip(("text_column", "text_pair_column"), positions, strict=False):
                if not 0 <= position < width:
                    raise ValueError(
                        f"{where}: {width} fields, none at position {position} (counted from 0); fix the line, or "
                        f"choose another {option}"
                    )
        if len(fields) != width:
            _refuse_width(source, rows.line_num, len(fields), width)
        yield fields[positions[0]] if len(positions) == 1 else (fields[positions[0]], fields[positions[1]])


def _require_header(source: RowSource, fields: list[str]) -> None:
    """Raises ValueError for a single column that has a text for its name, as where there is no header."""
    if source.text_column is None and len(fields) == 1 and len(fields[0].split()) > 1:
        raise ValueError(
            f"{source}: is the first row, {fields[0]!r:.60}, a text or the name of the column? Of a file without a "
            "header give text_column=0 (--text-column 0), else the name"
        )


def _refuse_width(source: RowSource, line: int, found: int, width: int) -> NoReturn:
    """Raises ValueError for a row that has more or fewer fields than the first: a separator or a line break in a text
    that is not quoted ends it there, and what is left would be read as if it were whole."""
    remedy = "quote a text that holds a comma or a line break"
    if source.resolved_format == "tsv":
        remedy = "replace tabs and line breaks within texts, which a TSV cannot quote"
    if found < width:
        remedy = f"add those that are missing, or {remedy}"
    raise ValueError(f"{source}, line {line}: {found} fields, but the first row has {width}; {remedy}")


def _read_parquet(source: RowSource) -> Iterator[Row | Pair]:
    parquet = import_pyarrow("reading Parquet").parquet
    try:
        file = parquet.ParquetFile(source.open_file(source.path.as_posix()) if source.open_file else source.path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{source} is not a whole Parquet file ({error})") from error
    with file:
        columns = source.columns(file.schema_arrow.names, str(source))
        named = " and ".join(map(repr, columns))
        number = 0
        for batch in file.iter_batches(batch_size=PARQUET_BATCH_ROWS, columns=columns):
            values = [batch.column(batch.schema.get_field_index(column)).to_pylist() for column in columns]
            for row in zip(*values, strict=True):
                yield _row(list(row), f"{source}, column {named}, row {number}")
                number += 1


def import_pyarrow(purpose: str) -> ModuleType:
    """The library that reads and writes Parquet, for `purpose`; ImportError where it is not installed."""
    return import_optional("pyarrow.parquet", purpose, "pyarrow")


def pick_column(names: list[str], wanted: str | None, where: str, option: str = "text_column") -> str:
    """The column of the text: `wanted`, by default one of `DEFAULT_COLUMNS` or the only one.

    Raises:
        ValueError: there is none, or which one it is, is not clear; `where` is what the message begins with, `option`
            what the column is chosen by.
    """
    if wanted is None:
        named = [name for name in DEFAULT_COLUMNS if name in names]
        if not named and len(names) != 1:
            raise ValueError(f"{where}: which column holds the text? Choose {option} among {names}")
        wanted = (named or names)[0]
    if wanted not in names:
        raise ValueError(f"{where}: no column {wanted!r}; choose {option} among {names}")
    if names.count(wanted) > 1:
        raise ValueError(f"{where}: {names.count(wanted)} columns are named {wanted!r}; rename all but the text")
    return wanted


def _read_fasta(source: RowSource) -> Iterator[NamedRow]:
    """The letters of each sequence (Pearson and Lipman 1988), named by the first word of its header."""
    row, names = None, set()
    for number, line in enumerate(source.lines(), start=1):
        where = f"{source}, line {number}"
        if line.startswith(">"):
            if row is not None:
                yield row
            row, name = NamedRow(), (line[1:].split() or [""])[0]
            if not name or name in names:
                raise ValueError(
                    f"{where}: the sequence has {f'the identifier {name!r} of an earlier one' if name else 'none'}; "
                    "each needs an identifier of its own, the first word after >"
                )
            row.name = name
            names.add(name)
        elif row is not None:
            row += "".join(line.split()).upper()
        elif line.strip():
            raise ValueError(f"{where}: {line.strip()!r:.40} stands before the first header; FASTA begins with >")
    if row is not None:
        yield row


def check_row(value: Any, where: str) -> Row:
    """A row as `str` or `list[str]`; a null is a blank row.

    Raises:
        TypeError: `value` is neither text nor a list of words; or it is two texts, a tuple with a space in one of them.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if getattr(value, "ndim", 0) == 1:  # an array, a pandas Series
        value = value.tolist()
    if isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value):
        if isinstance(value, tuple) and len(value) == 2 and any(" " in word for word in value):
            raise TypeError(
                f"{where}: expected one text, got a pair of them, {value!r:.60}; give one, or a list of words"
            )
        return list(value)
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    raise TypeError(
        f"{where}: expected text (str) or a list of words (list of str), got {type(value).__name__} {shown}; "
        "choose another column, or convert the values"
    )


def check_pair(value: Any, where: str) -> Pair:
    """A text and its pair, each as [`check_row`] has it, or the pair a whole number.

    Raises:
        TypeError: `value` is no such tuple.
    """
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{where}: expected a tuple (text, pair), got {type(value).__name__} {value!r:.60}")
    text, pair = value
    is_index = isinstance(pair, Integral) and not isinstance(pair, bool)
    return check_row(text, where), int(pair) if is_index else check_row(pair, where)


@dataclass(frozen=True)
class SentenceSource:
    """Sentences in memory as rows, each checked when it is read.

    Args:
        sentences: each a string or a list of words.
        name: what errors call them.
        pairs: each is a tuple of such a text and its pair, another one or a whole number.
        first: the number that errors give the first one.
    """

    sentences: Iterable[Any]
    name: str
    pairs: bool = False
    first: int = 0

    def __post_init__(self) -> None:
        of = getattr(self.sentences, "ndim", 1)
        if of != 1 or isinstance(self.sentences, (Mapping, set, frozenset)):  # a set has no order
            kind = f"a {type(self.sentences).__name__}" + (f" with {of} dimensions" if of != 1 else "")
            raise ValueError(f"{self.name} must be a list of sentences, or an array with one dimension, not {kind}")

    def __iter__(self) -> Iterator[Row | Pair]:
        check = check_pair if self.pairs else check_row
        for number, sentence in enumerate(self.sentences, start=self.first):
            yield check(sentence, f"{self.name}, row {number}")


_READERS = {
    "text": _read_text,
    "jsonl": _read_json_lines,
    "csv": _read_csv,
    "tsv": _read_csv,
    "parquet": _read_parquet,
    "fasta": _read_fasta,
}


@dataclass(frozen=True)
class Survey:
    """A source of rows in short: their number and their fingerprint."""

    rows: int
    sha256: str


class RowsRead:
    """Counts rows and hashes them, one after the other."""

    def __init__(self) -> None:
        self._digest, self._count = hashlib.sha256(), 0

    def add(self, row: Row | Pair) -> None:
        """The next row."""
        self._digest.update(b"p" + b"".join(map(_hashed, row)) if isinstance(row, tuple) else _hashed(row))
        self._count += 1

    @property
    def survey(self) -> Survey:
        """Of the rows until now."""
        return Survey(self._count, self._digest.hexdigest())


def _hashed(row: Row | int) -> bytes:
    """What is hashed of a row, or of one side of a pair: nothing else begins with it."""
    if isinstance(row, int):
        return b"i%d:" % row
    words = [row] if isinstance(row, str) else row
    data = b"".join(_length_prefixed(word) for word in words)
    if isinstance(row, NamedRow):
        data += b">" + _length_prefixed(row.name)
    return b"%s%d:" % (b"t" if isinstance(row, str) else b"w", len(words)) + data


def survey(rows: Iterable[Row | Pair]) -> Survey:
    """Read all rows once: count and hash them, and raise for a malformed one before any is embedded."""
    read = RowsRead()
    for row in rows:
        read.add(row)
    return read.survey


def _length_prefixed(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"%d:" % len(data) + data


def spool(rows: Iterable[Row | Pair], path: Path) -> RowSource:
    """Store rows that can be iterated only once (a generator) in `path`, so that they can be read again."""
    path.unlink(missing_ok=True)
    columns = {}
    with open(path, "x", encoding="ascii") as lines:
        for row in rows:
            if isinstance(row, tuple):
                columns = {"text_column": "text", "text_pair_column": "pair"}
                row = {"text": row[0], "pair": row[1]}
            lines.write(json.dumps(row) + "\n")
    return RowSource(path, "jsonl", **columns)
