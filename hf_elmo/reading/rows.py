"""How input is read: the rows of files, streams, lists, arrays, columns, data sets and generators. No pattern knows
every format: [`Rows.report`] says what was read, and only what certainly is of another format is refused."""

import csv
import json
import os
import pickle
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from glob import glob
from itertools import chain, islice
from numbers import Integral
from pathlib import PurePosixPath
from typing import Any

import pyarrow.parquet
from transformers.utils import logging

from ..text_elmo import drop_surrogates, require_list
from ..tokenization_elmo import ElmoTokenizer
from .conll import has_columns, read_sentences
from .files import COMPRESSIONS, Files, find_files, is_pipe, open_file, read_lines

logger = logging.get_logger(f"transformers.{__name__}")

Words = list[str]
Row = str | Words  # a text that is still to be split into words, or its words
Pair = tuple[Row, Row | int]  # a text and its pair: another text, or the index of a word

# The endings of each format; one with "conll" in it is CoNLL's, too, and any other ending is plain text's: `train.de`.
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
# How files begin that have the ending of text, but certainly are of another format.
BEGINNINGS = {
    "conll": r"-DOCSTART-|#begin document|# (newdoc|newpar|(sent_id|text|global\.columns) =)",
    "fasta": r">\S.*\n([A-Z*-]+|[a-z*-]{20,})\n",
    "jsonl": r'[\[{]\s*\n\s*["\[{]|\[\s*\{|\["[^"]*"\s*[],]|\{\s*"[^"]+":',
    "xml": r"(?i)<\?xml|<!DOCTYPE|<(html|corpus|tei|doc)\b",
}
DEFAULT_COLUMNS = ("text", "sentence", "words", "tokens")
CSV_FIELD_CHARACTERS = 1 << 24  # the most in a field of a CSV, which a missing quote makes as long as the file
TSV_LINES = 10_000  # lines of a TSV that tell whether quotes have a meaning
QUOTED = re.compile('"(?:[^"]|"")*"')  # a field in quotes, which doubles those within it


class NamedRow(list):
    """The words of a row that has a name: the identifier of a FASTA sequence."""

    def __init__(self, words: Iterable[str], name: str) -> None:
        super().__init__(words)
        self.name = name


@dataclass(eq=False, repr=False)
class Rows:
    """The rows of any input, checked: each a `str` (text to be split into words), a `list[str]` (words; in FASTA, a
    [`NamedRow`] of upper-case letters), or with further columns a tuple. Each iteration begins with the first row.

    Args:
        inputs, input_format, text_column, encoding: as for [`hf_elmo.embed`], which raises the same errors.
        columns: columns or keys whose values follow in a row's tuple, `None` for a column `None`.
        pairs, name: whether rows are pairs of a text and a text or whole number; what errors call rows in memory.
    """

    inputs: Any
    input_format: str | None = None
    text_column: str | int | None = None
    encoding: str = "utf-8"
    _: KW_ONLY
    columns: tuple[str | int | None, ...] = ()
    pairs: bool = False
    name: str = "inputs"

    def __post_init__(self) -> None:
        if self.input_format not in (None, *ENDINGS):
            raise ValueError(f"input_format is {self.input_format!r}, but must be one of {', '.join(ENDINGS)}")
        self._copies: dict[str, Any] = {}  # files of rows that can be read only once
        patterns = list(map(os.fspath, _patterns(self.inputs)))
        self.files = list(dict.fromkeys(chain.from_iterable(map(find_files, patterns))))  # none for rows in memory
        self.places = [*patterns, *self.files] or [f"<rows {id(self.inputs)}>"]  # what [`require_apart`] compares
        if not self.files:
            require_list(self.inputs, self.name)

    def __iter__(self) -> Iterator[Row | Pair]:
        for where, value in self.values():
            if self.pairs and (isinstance(value, tuple) or not self.files):
                if not isinstance(value, tuple) or len(value) != 2:
                    kind = f"{type(value).__name__} {value!r:.60}"
                    raise TypeError(f"{where}: expected a tuple (text, text or whole number), got {kind}")
                text, pair = value
                is_index = isinstance(pair, Integral) and not isinstance(pair, bool)
                yield check_row(text, where), int(pair) if is_index else check_row(pair, where)
            elif self.columns and isinstance(value, tuple):
                yield check_row(value[0], where), *value[1:]
            else:
                yield check_row(value, where)

    def report(self, tokenizer: ElmoTokenizer, pretokenized: bool) -> None:
        """Logs what is read, at the level INFO: the files of each format, and the words of the first row with words."""
        kinds: dict[tuple[str, str], list[str]] = {}
        for file in self.files if logger.isEnabledFor(logging.INFO) else ():
            kinds.setdefault((self.format_of(file), re.sub(r"\d", "", _ending(file))), []).append(file)
        for (kind, _), files in kinds.items():
            words: Words = []
            values = chain.from_iterable(map(self.values_of, files))
            while not words and (found := next(values, None)):
                where, row = found
                if isinstance(row, tuple) or (isinstance(row, list) and any(isinstance(part, list) for part in row)):
                    row = row[0]  # of a pair the text, of a document the first sentence
                (words,) = tokenizer.split_into_words([check_row(row, where)], pretokenized)
            what = files[0] if len(files) == 1 else f"{len(files)} files ({files[0]}, ...)"
            logger.info("%s: read as %s, the first row is %.60s", what, kind, words)

    def values(self) -> Iterator[tuple[str, Any]]:
        """The place of each row, for error messages, and its value, which is not checked yet."""
        if self.files:
            return chain.from_iterable(map(self.values_of, self.files))
        rows = self.inputs.to_pylist() if hasattr(self.inputs, "to_pylist") else self.inputs
        rows = self._kept(rows, self.name) if isinstance(rows, Iterator) else rows
        return self._selected(enumerate(rows), self.name, "row {} (from 0)")

    def values_of(self, file: str) -> Iterator[tuple[str, Any]]:
        kind = self.format_of(file)
        word = self.text_column if kind == "conll" and isinstance(self.text_column, int) else None
        if {self.text_column, *self.columns} - {None, word} and kind in ("text", "fasta", "conll"):
            raise ValueError(f"{file} is read as {kind}, without named columns: pass input_format, or no column")
        rows = getattr(self, f"_read_{kind}")(file)
        rows = self._kept(rows, file) if is_pipe(file) else rows
        if kind in ("parquet", "fasta", "conll"):
            return self._selected(enumerate(rows), file, "row {} (from 0)")
        return self._selected(rows, file, "line {}")

    def format_of(self, file: str) -> str:
        """`input_format`, or else the format of the ending; ValueError for an ending of files that are no text."""
        ending = _ending(file)
        if self.input_format is None and ending in OTHERS.split():
            how = "extract or convert it, or, if it is text, rename it or pass input_format='text'"
            raise ValueError(f"{file} ends in {ending}, which is no format of rows: {how}")
        return self.input_format or ("conll" if "conll" in ending else FORMATS.get(ending, "text"))

    def _selected(self, rows: Iterable[tuple[int, Any]], where: str, unit: str) -> Iterator[tuple[str, Any]]:
        """The place and the value of each row: of a dictionary, its text, or a tuple of it and of further columns."""
        names: list[str | None] = []
        for number, row in rows:
            place = f"{where}, {unit.format(number)}"
            if isinstance(row, Mapping):
                names = names or self._names(list(row), place)
                if missing := {*names} - {None, *row}:
                    raise ValueError(f"{place}: missing key {missing.pop()!r}")
                values = tuple(None if name is None else row[name] for name in names)
                row = values if self.columns else values[0]
            yield place, row

    def _names(self, names: list[str], where: str) -> list[str | None]:
        """The names of the columns of the text, and of further columns, `None` for a column `None`."""
        option = "text_pair_column" if self.pairs else "column"
        others = [wanted if wanted is None else pick_column(names, wanted, where, option) for wanted in self.columns]
        left = [name for name in names if name not in others] if self.text_column is None else names
        return [pick_column(left, self.text_column, where), *others]

    def _kept(self, rows: Iterable[Any], name: str) -> Iterator[Any]:
        """Rows that can be read only once: those of a generator or a pipe, kept in a temporary file."""
        if name not in self._copies:
            folder = tempfile.TemporaryDirectory()
            with open(f"{folder.name}/rows", "wb") as file:
                for row in rows:  # of pandas, also tuples of classes that cannot be pickled
                    pickle.dump(tuple(row) if isinstance(row, tuple) else row, file)
            self._copies[name] = folder
        with open(f"{self._copies[name].name}/rows", "rb") as file:
            while file.peek():
                yield pickle.load(file)

    # Each reader gives the rows; those of text, JSON and tables, with the numbers of the lines in which they begin.

    def _read_text(self, file: str) -> Iterator[tuple[int, str]]:
        lines = read_lines(file, self.encoding)
        first = list(islice(lines, 300))
        text = [line for line in first if line.strip()][:100]
        kinds = (kind for kind, beginning in BEGINNINGS.items() if re.match(beginning, "".join(text)))
        if self.input_format is None and (kind := next(kinds, None) or has_columns(text)):
            how = f"pass input_format={kind!r}" if kind in ENDINGS else "extract its text"
            where = f"{file}, line {first.index(text[0]) + 1}"
            raise ValueError(f"{where}: {text[0][:40]!r} begins a file of {kind}: {how} (or 'text')")
        yield from enumerate((line.rstrip("\n") for line in chain(first, lines)), start=1)

    def _read_conll(self, file: str) -> Iterator[Words]:
        return (list(chain(*words)) for words in read_sentences(file, self.text_column, encoding=self.encoding))

    def _read_fasta(self, file: str) -> Iterator[NamedRow]:
        """The letters of each FASTA sequence (Pearson and Lipman 1988), named by the first word of its header."""
        row = NamedRow([], "")  # above the first header
        for number, line in enumerate(map(str.strip, read_lines(file, self.encoding)), start=1):
            if line.startswith(">") and line != ">":
                if row.name:
                    yield row
                row = NamedRow([], line[1:].split()[0])
            elif line and (not row.name or line[0] in ">;"):
                raise ValueError(f"{file}, line {number}: expected '>name' or letters below it, got {line!r:.60}")
            else:
                row += "".join(line.split()).upper()
        if row.name:
            yield row

    def _read_jsonl(self, file: str) -> Iterator[tuple[int, Any]]:
        how = "each line must be a record: save other JSON as .jsonl, with one row per line"
        rows = 0
        for number, line in enumerate(map(str.rstrip, read_lines(file, self.encoding)), start=1):
            if line:
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    where = f"{file}, line {number}, column {error.colno}"
                    raise ValueError(f"{where}: no JSON ({error.msg}); {how}") from error
                rows += 1
                yield number, row
        is_alone = rows == 1 and _ending(file) == ".json" and self.input_format is None
        if is_alone and any(isinstance(value, list) for value in (row.values() if isinstance(row, dict) else [row])):
            raise ValueError(f"{file} holds a JSON list, but {how}")

    def _read_parquet(self, file: str) -> Iterator[Any]:
        try:
            with open_file(file) as source:
                table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(source.read()) if is_pipe(file) else source)
                names = table.schema_arrow.names
                for batch in table.iter_batches(1024, columns=[*filter(None, self._names(names, file))]):
                    yield from (dict.fromkeys(names) | row for row in batch.to_pylist())
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{file} is no whole file of Parquet: {error}") from error

    def _read_tsv(self, file: str) -> Iterator[tuple[int, dict[str, str]]]:
        """Quotes are ordinary, except around a field in which each quote is doubled, or if all names of the first line
        have them, or lines have other numbers of columns without them, as where pandas writes a line break."""
        lines = read_lines(file, self.encoding, newline="")
        first = list(islice(lines, TSV_LINES))
        names, *rows = [line.rstrip("\r\n").split("\t") for line in first if line.strip()] or [[""]]
        is_ragged = any(len(row) < len(names) or any(row[len(names) :]) for row in rows)
        quoting = csv.QUOTE_MINIMAL if is_ragged or all(map(QUOTED.fullmatch, names)) else csv.QUOTE_NONE
        for number, row in self._read_csv(file, chain(first, lines), "tabs", delimiter="\t", quoting=quoting):
            doubled = [name for name, text in row.items() if QUOTED.fullmatch(text) and '""' in text[1:-1]]
            yield number, row | {name: row[name][1:-1].replace('""', '"') for name in doubled}

    def _read_csv(self, file: str, lines: Any = None, separators: str = "commas", **dialect: Any) -> Iterator[Any]:
        csv.field_size_limit(max(CSV_FIELD_CHARACTERS, csv.field_size_limit()))
        reader = csv.reader(lines or read_lines(file, self.encoding, newline=""), strict=True, **dialect)
        names: list[str] = []
        first = 1  # the line in which a row begins
        try:
            for row in reader:
                if row or dialect:  # a blank line is no row of a CSV, and a blank text of a TSV
                    is_header = not names
                    names = names or self._header(row or [""], file, separators)
                    row = row or [""] * len(names)
                    row = row[: len(names)] if not any(row[len(names) :]) else row  # without a separator at its end
                    if len(row) != len(names):
                        raise csv.Error(f"expected {len(names)} columns, got {len(row)}")
                    if not is_header or row != names:
                        yield first, dict(zip(names, row, strict=True))
                first = reader.line_num + 1
        except csv.Error as error:
            place = f"{file}, line {first}" + f" to {reader.line_num}" * (first < reader.line_num)
            raise ValueError(f"{place}: {error} (is each quote closed, or doubled?)") from error
        if not names:
            raise ValueError(f"{file} is empty")

    def _header(self, row: list[str], file: str, separators: str) -> list[str]:
        """The names of the columns: those in the first row, or, if the columns are given by numbers, numbers."""
        given = {self.text_column, *self.columns} - {None}
        numbers = list(map(str, range(len(row))))
        is_numbered = given and all(isinstance(column, int) and column < len(row) for column in given)
        has_default = self.text_column is None and not set(DEFAULT_COLUMNS).isdisjoint(row)
        # pandas names columns that have no names by their numbers.
        names = row if not is_numbered or has_default or row in (numbers, ["", *numbers[:-1]]) else numbers
        separator = r"[ ,;|\t]" if self.text_column is None else r"\S[;|\t]\S"
        try:
            if names is numbers and any(row[column].lower() in DEFAULT_COLUMNS for column in given):
                raise ValueError(f"{file}, line 1: {row} are names: pass text_column by its name")
            if len(row) == 1 and re.search(separator, re.sub(r"&#?\w+;", "", row[0])):
                raise ValueError(f"{file}, line 1: the only column is {row[0]!r:.60}")
            self._names(names, f"{file}, line 1")
        except ValueError as error:
            how = f"the first line must have their names, with {separators} between them, or text_column be a number"
            raise ValueError(f"{error} ({how}; else pass input_format='conll' or input_format='tsv')") from None
        return names


def _patterns(inputs: Any) -> list:
    """The paths and patterns of files; none for rows in memory. ValueError for names of files in a list of texts."""
    if isinstance(inputs, (Files, str, os.PathLike)):
        return inputs if isinstance(inputs, Files) else [inputs]
    first = inputs[0] if isinstance(inputs, (list, tuple)) and inputs else None
    if isinstance(first, str):
        # Posts begin with links: an address on the web is a file if it has the ending of a format.
        is_address = re.fullmatch(r"\w+://\S+", first) and (not first.startswith("http") or _ending(first) in FORMATS)
        if is_address or ("." in first and any(map(os.path.isfile, glob(first)))):
            raise ValueError(f"{first!r} is a file, but strings of a list are texts: pass pathlib.Path, or one pattern")
    return list(inputs) if isinstance(first, os.PathLike) else []


def _ending(file: str | os.PathLike) -> str:
    """The ending of a file's name in lower case, without the ending of a compression such as `.gz`."""
    name = PurePosixPath(os.fspath(file))
    return (name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name).suffix.lower()


def pick_column(names: list[str], wanted: str | int | None, where: str, option: str = "text_column") -> str:
    """The column named `wanted`, or with this number; by default the first of `DEFAULT_COLUMNS`, or else the only one.
    ValueError, whose message begins with `where` and names the `option`, if there is none, or several have its name."""
    if wanted is None:
        wanted = next((name for name in DEFAULT_COLUMNS if name in names), names[0] if len(names) == 1 else None)
    elif isinstance(wanted, int) and str(wanted) not in names and wanted < len(names):
        wanted = names[wanted]
    if names.count(str(wanted)) != 1:
        shown = [f"{name:.40}" for name in names[:20]]
        given = f", and is {wanted!r}" * (wanted is not None)
        raise ValueError(f"{where}: {option} must name one of the columns {shown}{given}")
    return str(wanted)


def check_row(value: Any, where: str) -> Row:
    """A row as `str` or `list[str]`, without lone surrogates, which no file can hold. TypeError for others: for missing
    values (`None`, NaN), too, as only the user knows whether they stand for a blank text."""
    if isinstance(value, str):
        return drop_surrogates(value)
    words = value.tolist() if hasattr(value, "tolist") else value  # an array, a pandas Series
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        kind = f"{type(value).__name__} {value!r:.60}"
        raise TypeError(f"{where}: expected text ('' if it is blank) or a list of words, got {kind}")
    return words if isinstance(words, NamedRow) else list(map(drop_surrogates, words))
