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
    .yaml .yml .toml .doc .docx .epub .odt .pdf .ppt .pptx .rtf .tex .xls .xlsx .ods .ann .fastq .gff .mrg .pdb .ptb
    .srt .trees .vert .vrt .vtt .warc .7z .rar .tar .tbz2 .tgz .txz .zip .xml .htm .html .train .dev .test"""
# How files begin that have the ending of text, but certainly are of another format.
BEGINNINGS = {
    "conll": r"-DOCSTART-|#begin document|# (newdoc|newpar|(sent_id|text|global\.columns) =)",
    "fasta": r">\S.*\n([A-Z*-]+|[a-z*-]{20,})\n",
    "jsonl": r'[\[{]\s*\n\s*["\[{]|\[\s*\{|\["[^"]*"\s*[],]|\{\s*"[^"]+":',
    "xml": r"(?i)<\?xml|<!DOCTYPE|<(html|corpus|tei|doc|svg|tmx|(src|ref|tst)set)\b",
}
DEFAULT_COLUMNS = ("text", "sentence", "words", "tokens")
DOUBLED = re.compile('"(?:[^"]*"")+[^"]*"')  # a field in quotes that doubles those within it


class NamedRow(list):
    """The words of a row that has a name: the identifier of a FASTA sequence."""

    name = ""


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
            if isinstance(value, tuple) and (self.pairs or self.columns):
                text, *others = value
                if self.pairs:
                    others = [int(part) if isinstance(part, Integral) else check_row(part, where) for part in others]
                yield check_row(text, where), *others
            else:
                yield check_row(value, where)

    def report(self, tokenizer: ElmoTokenizer, pretokenized: bool) -> None:
        """Logs what is read, at the level INFO: the files of each ending, and the words of the first row with words."""
        endings: dict[str, list[str]] = {}
        for file in self.files if logger.isEnabledFor(logging.INFO) else ():
            endings.setdefault(re.sub(r"\d", "", _ending(file)), []).append(file)
        for files in endings.values():
            words: Words = []
            values = chain.from_iterable(map(self.values_of, files))
            while not words and (found := next(values, None)):
                where, row = found
                if isinstance(row, tuple) or (isinstance(row, list) and any(isinstance(part, list) for part in row)):
                    row = row[0]  # of a pair the text, of a document the first sentence
                (words,) = tokenizer.split_into_words([check_row(row, where)], pretokenized)
            what = files[0] if len(files) == 1 else f"{len(files)} files ({files[0]}, ...)"
            logger.info("%s: read as %s, the first row is %.60s", what, self.format_of(files[0]), words)

    def values(self) -> Iterator[tuple[str, Any]]:
        """The place of each row, for error messages, and its value, which is not checked yet."""
        if self.files:
            return chain.from_iterable(map(self.values_of, self.files))
        rows = self.inputs.to_pylist() if hasattr(self.inputs, "to_pylist") else self.inputs
        return self._selected(self._kept(rows, self.name) if isinstance(rows, Iterator) else rows, self.name)

    def values_of(self, file: str) -> Iterator[tuple[str, Any]]:
        kind = self.format_of(file)
        word = self.text_column if kind == "conll" and isinstance(self.text_column, int) else None
        if {self.text_column, *self.columns} - {None, word} and kind in ("text", "fasta", "conll"):
            raise ValueError(f"{file} is read as {kind}, without named columns: pass input_format, or no column")
        rows = getattr(self, f"_read_{kind}", self._read_table)(file)
        return self._selected(self._kept(rows, file) if is_pipe(file) else rows, file)

    def format_of(self, file: str) -> str:
        """`input_format`, or else the format of the ending; ValueError for an ending of files that are no text."""
        ending = _ending(file)
        if self.input_format is None and ending in OTHERS.split():
            raise ValueError(f"{file} ends in {ending}: extract its text or, if it is text, pass input_format='text'")
        return self.input_format or ("conll" if "conll" in ending else FORMATS.get(ending, "text"))

    def _selected(self, rows: Iterable[Any], where: str) -> Iterator[tuple[str, Any]]:
        """The place and the value of each row: of a dictionary, its text, or a tuple of it and of further columns."""
        names: list[str | None] = []
        for number, row in enumerate(rows):
            place = f"{where}, row {number} (from 0)"
            if isinstance(row, Mapping):
                names = names or self._names(list(row), place)
                values = tuple(map(row.get, names))
                row = values if self.columns else values[0]
            yield place, row

    def _names(self, names: list[str], where: str) -> list[str | None]:
        """The names of the columns of the text, and of further columns, `None` for a column `None`."""
        others = [wanted if wanted is None else pick_column(names, wanted, where) for wanted in self.columns]
        left = [name for name in names if name not in others] if self.text_column is None else names
        return [pick_column(left, self.text_column, where), *others]

    def _kept(self, rows: Iterable[Any], name: str) -> Iterator[Any]:
        """Rows that can be read only once: those of a generator or a pipe, kept in a temporary file."""
        if name not in self._copies:
            folder = tempfile.TemporaryDirectory()
            with open(f"{folder.name}/rows", "wb") as file:
                # Of pandas, also tuples of classes that cannot be pickled.
                file.writelines(pickle.dumps(tuple(row) if isinstance(row, tuple) else row) for row in rows)
            self._copies[name] = folder
        with open(f"{self._copies[name].name}/rows", "rb") as file:
            while file.peek():
                yield pickle.load(file)

    def _read_text(self, file: str) -> Iterator[str]:
        lines = read_lines(file, self.encoding)
        first = list(islice(lines, 300))
        text = [line for line in first if line.strip()][:100]
        kinds = (kind for kind, beginning in BEGINNINGS.items() if re.match(beginning, "".join(text)))
        if self.input_format is None and (kind := next(kinds, None) or has_columns(text)):
            how = f"pass input_format={kind!r} (or 'text')" if kind in ENDINGS else "extract its text"
            raise ValueError(f"{file}, line {first.index(text[0]) + 1}: {text[0]!r:.40} begins a file of {kind}: {how}")
        return (line.rstrip("\n") for line in chain(first, lines))

    def _read_conll(self, file: str) -> Iterator[Words]:
        return (list(chain(*words)) for words in read_sentences(file, self.text_column, encoding=self.encoding))

    def _read_fasta(self, file: str) -> Iterator[NamedRow]:
        """The letters of each FASTA sequence (Pearson and Lipman 1988), named by the first word of its header."""
        row = NamedRow()  # above the first header
        for number, line in enumerate(map(str.strip, chain(read_lines(file, self.encoding), [">end"])), start=1):
            if line.startswith(">") and line != ">":
                if row.name:
                    yield row
                row = NamedRow()
                row.name = line[1:].split()[0]
            elif line and (not row.name or line[0] in ">;"):
                raise ValueError(f"{file}, line {number}: expected '>name' or letters below it, got {line!r:.60}")
            else:
                row += "".join(line.split()).upper()

    def _read_jsonl(self, file: str) -> Iterator[Any]:
        how = "each line must be a record: save other JSON as .jsonl, with one row per line"
        rows = 0
        for number, line in enumerate(map(str.rstrip, read_lines(file, self.encoding)), start=1):
            if line:
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{file}, line {number}, column {error.colno}: {error.msg}; {how}") from error
                rows += 1
                yield row
        is_alone = rows == 1 and _ending(file) == ".json" and self.input_format is None
        if is_alone and any(isinstance(value, list) for value in (row.values() if isinstance(row, dict) else [row])):
            raise ValueError(f"{file} holds a JSON list, but {how}")

    def _read_parquet(self, file: str) -> Iterator[dict[str, Any]]:
        with open_file(file) as source:
            table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(source.read()) if is_pipe(file) else source)
            names = table.schema_arrow.names
            for batch in table.iter_batches(1024, columns=[*filter(None, self._names(names, file))]):
                yield from (dict.fromkeys(names) | row for row in batch.to_pylist())

    def _read_table(self, file: str) -> Iterator[dict[str, str]]:
        """In a TSV, quotes are ordinary, except around a field in which each quote is doubled, or if all names of the
        first line have them, or lines have other numbers of columns without them, as where pandas writes a break."""
        delimiter = "\t" if self.format_of(file) == "tsv" else ","
        lines = read_lines(file, self.encoding, newline="")
        first = list(islice(lines, 10_000))  # these tell whether quotes have a meaning
        names, *others = [line.rstrip("\r\n").split("\t") for line in first if line.strip()] or [[]]
        is_ragged = any(len(row) < len(names) or any(row[len(names) :]) for row in others)
        has_quotes = delimiter == "," or is_ragged or all(re.fullmatch('"([^"]|"")*"', name) for name in names)
        quoting = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
        csv.field_size_limit(max(1 << 24, csv.field_size_limit()))  # a missing quote makes a field as long as the file
        reader = csv.reader(chain(first, lines), strict=True, delimiter=delimiter, quoting=quoting)
        rows = (row for row in reader if row or delimiter == "\t")  # a blank line of a CSV is no row
        line = 1  # in which a row begins
        try:
            top = next(filter(None, rows), [])
            names = self._header(top, f"{file}, line 1")
            for row in rows if names == top else chain([top], rows):
                row = row or [""] * len(names)
                if len(row) < len(names) or any(row[len(names) :]):
                    raise csv.Error(f"expected {len(names)} columns, got {len(row)}")
                if not has_quotes:
                    row = [text[1:-1].replace('""', '"') if DOUBLED.fullmatch(text) else text for text in row]
                yield dict(zip(names, row, strict=False))
                line = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(f"{file}, line {line} to {reader.line_num}: {error} (are all quotes closed?)") from error

    def _header(self, row: list[str], where: str) -> list[str]:
        """The names of the columns: those in the first row, or, if the columns are given by numbers, numbers."""
        given = {self.text_column, *self.columns} - {None}
        numbers = list(map(str, range(len(row))))
        # pandas names columns that have no names by their numbers.
        has_names = {*DEFAULT_COLUMNS} & {*map(str.lower, row)} or row in (numbers, ["", *numbers[:-1]])
        names = numbers if given and given <= {*range(-len(row), len(row))} and not has_names else row
        where += " (names of columns; if not, pass text_column as a number, input_format='tsv' or input_format='conll')"
        separator = r"[ ,;|\t]" if self.text_column is None else r"\S[;|\t]\S"
        if len(row) == 1 and re.search(separator, re.sub(r"&#?\w+;", "", row[0])):
            raise ValueError(f"{where}: the only column is {row[0]!r:.60}")
        self._names(names, where)
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
    name, ending = os.path.splitext(os.fspath(file).lower())
    return os.path.splitext(name)[1] if ending in COMPRESSIONS else ending


def pick_column(names: list[str], wanted: str | int | None, where: str) -> str:
    """The column named `wanted`, or with this number; by default the first of `DEFAULT_COLUMNS`, or else the only one.
    ValueError, whose message begins with `where`, if there is none, or several have its name."""
    if wanted is None:
        wanted = next((name for name in DEFAULT_COLUMNS if name in names), names[0] if len(names) == 1 else None)
    elif isinstance(wanted, int) and str(wanted) not in names and -len(names) <= wanted < len(names):
        wanted = names[wanted]
    if names.count(str(wanted)) != 1:
        raise ValueError(f"{where}: {wanted or 'text_column'} must be one of the columns {names!s:.200}")
    return str(wanted)


def check_row(value: Any, where: str) -> Row:
    """A row as `str` or `list[str]`, without lone surrogates, which no file can hold. TypeError for others: for missing
    values (`None`, NaN), too, as only the user knows whether they stand for a blank text."""
    if isinstance(value, str):
        return drop_surrogates(value)
    words = value.tolist() if hasattr(value, "tolist") else value  # an array, a pandas Series
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise TypeError(f"{where}: expected text ('' if it is blank) or a list of words, got {value!r:.60}")
    return words if isinstance(words, NamedRow) else list(map(drop_surrogates, words))
