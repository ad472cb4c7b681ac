"""How input is read: the rows of files, streams, lists, arrays, columns, data sets and generators."""

import csv
import json
import os
import pickle
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from glob import glob
from io import BytesIO
from itertools import chain, islice
from numbers import Integral
from pathlib import PurePosixPath
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
TAGGED = r"([^\s,]+[ \t]){1,4}(O|[BEILMSUW]-[A-Za-z]\S*)\n"  # a line of words and tags, but also `I send an E-mail`
# How files of other formats begin that have the ending of a text or a table.
BEGINNINGS = {
    "conll": r"-DOCSTART-|#begin document|# (newdoc|newpar|(sent_id|text|global\.columns) =)|TOKEN\tNE-"
    rf"|1\t([^\t\n]*\t){{8}}[^\t\n]*$|{TAGGED}({TAGGED}|\Z)",
    "fasta": r">\S",
    "jsonl": r'[\[{]\s*$|\[\s*\{|\["|\{\s*"[^"]+":',
    "xml": r'<\?xml|<!DOCTYPE|<(html|corpus|TEI|DOC)\b|<\w+( [\w:.-]+="[^"]*")+ ?/?>',
    "trees": r"\( ?\(?(\d|[A-Z]+) \([A-Z\d(-]",
    "labels": r"__label__\S|[A-Z]{3,4}:[a-z]+ \S",  # of fastText, of TREC
    "tagged words": r"\s*(?=(\S+[ \t]+){3}\S)(\S+(/[A-Za-z]\S*|_[A-Z]{1,4}\$?)\s+){4}",
    "SVMlight": r"[-+\d.]+( \d+:[-\d.]+)+\s*$",
    "tsv": r".*\S\t\S",
}
DEFAULT_COLUMNS = ("text", "sentence", "words", "tokens")
CSV_FIELD_CHARACTERS = 1 << 24  # the most in a field of a CSV, which a missing quote makes as long as the file


class NamedRow(list):
    """The words of a row that has a name: the identifier of a FASTA sequence."""

    def __init__(self, words: Iterable[str], name: str) -> None:
        super().__init__(words)
        self.name = name


@dataclass(eq=False, repr=False)
class Rows:
    """The rows of any input, checked. They can be iterated repeatedly, each time from the beginning.

    A row is a `str` (text to be split into words) or a `list[str]` (words; in FASTA, a [`NamedRow`] of upper-case
    letters), or with further columns a tuple. Blank lines of text and TSV files are rows. In TSV, quotes are ordinary,
    except around a field in which each quote is doubled, as in CSV.

    Args:
        inputs: a path, a folder, a glob pattern or an address; `"-"`, standard input; a list of `Path`s; or rows in
            memory: a list, an array, a column of a table, a data set, a list of dictionaries, or a generator.
        input_format: one of `ENDINGS`; by default the ending of a file decides.
        text_column: the column or key with the text; an `int` is the index of a column of a CSV without a header, or of
            the words of CoNLL ([`hf_elmo.read_conll`]). By default one of `DEFAULT_COLUMNS`, or else the only column.
        encoding: the encoding of files, unless they are Parquet.
        columns: columns or keys whose values follow in a row's tuple, `None` for a column `None`.
        pairs: whether rows are pairs: of a text and another text or a whole number.
        name: what error messages call rows in memory.

    Raises FileNotFoundError; ValueError for an unknown format or column, a format that is another one or has no
    columns, a malformed row, and a table or an array with several axes; TypeError for a value that is neither text nor
    a list of words, such as a null.
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
        # The files that are read; none for rows in memory.
        self.files = list(dict.fromkeys(chain.from_iterable(map(find_files, _patterns(self.inputs)))))
        if not self.files:
            require_list(self.inputs, self.name)

    def __iter__(self) -> Iterator[Row | Pair]:
        for where, value in self.values():
            if self.pairs and (isinstance(value, tuple) or not self.files):
                yield check_pair(value, where)
            elif self.columns and isinstance(value, tuple):
                yield check_row(value[0], where), *value[1:]
            else:
                yield check_row(value, where)

    def values(self) -> Iterator[tuple[str, Any]]:
        """The place of each row, for error messages, and its value, which is not checked yet."""
        if self.files:
            return chain.from_iterable(map(self.values_of, self.files))
        rows = self.inputs.to_pylist() if hasattr(self.inputs, "to_pylist") else self.inputs
        rows = self._kept(rows, self.name) if isinstance(rows, Iterator) else rows
        return self._selected(enumerate(rows), self.name, "row {} (from 0)")

    def values_of(self, file: str) -> Iterator[tuple[str, Any]]:
        """As [`values`], of one of the files."""
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
        """The place and the value of each row; of rows that are dictionaries, the values of the columns."""
        names = None
        for number, row in rows:
            place = f"{where}, {unit.format(number)}"
            if isinstance(row, Mapping):
                names = names or self._names(list(row), place)
                if missing := [name for name in filter(None, names) if name not in row]:
                    raise ValueError(f"{place}: missing key {missing[0]!r}")
                row = self._picked(row, names)
            yield place, row

    def _picked(self, row: Mapping[str, Any], names: list[str | None]) -> Any:
        """The text of a row, or a tuple of it and of the further columns; `names` are those of [`_names`]."""
        values = tuple(None if name is None else row[name] for name in names)
        return values if self.columns else values[0]

    def _names(self, names: list[str], where: str) -> list[str | None]:
        """The names of the columns of the text, and of further columns, `None` for a column `None`."""
        option = "text_pair_column" if self.pairs else "column"
        others = [wanted if wanted is None else pick_column(names, wanted, where, option) for wanted in self.columns]
        left = [name for name in names if name not in others] if self.text_column is None else names
        return [pick_column(left, self.text_column, where), *others]

    def _kept(self, rows: Iterable[Any], name: str) -> Iterator[Any]:
        """Rows that can be read only once: those of a generator or a pipe, kept in a temporary file."""
        if name not in self._copies:
            file = tempfile.TemporaryFile()  # noqa: SIM115
            for row in rows:
                pickle.dump(tuple(row) if isinstance(row, tuple) else row, file)  # pandas's tuples cannot be pickled
            self._copies[name] = file
        file = self._copies[name]
        place = 0  # of this iterator: others may read the file between two of its rows
        with suppress(EOFError):
            while True:
                file.seek(place)
                row = pickle.load(file)
                place = file.tell()
                yield row

    def _lines(self, file: str, newline: str | None = None) -> Iterator[str]:
        """The lines of a file; ValueError if the first ones are those of another format than the ending says."""
        lines = read_lines(file, self.encoding, newline)
        first = list(islice(lines, 9))
        begin = "".join(f"{line.rstrip()}\n" for line in first if line.strip())
        kinds = (kind for kind, beginning in BEGINNINGS.items() if re.match(beginning, begin, re.MULTILINE))
        kind = None if self.input_format else next(kinds, None)
        if kind not in (None, self.format_of(file)):
            how = f"pass input_format={kind!r}" if kind in ENDINGS else "extract its text"
            number, line = next((number, line) for number, line in enumerate(first, start=1) if line.strip())
            raise ValueError(f"{file}, line {number}: {line[:40]!r} begins a file of {kind}: {how} (or 'text')")
        return chain(first, lines)

    # Each reader gives the rows; those of text, JSON and tables, with the numbers of the lines in which they begin.

    def _read_text(self, file: str) -> Iterator[tuple[int, str]]:
        return enumerate((line.rstrip("\n") for line in self._lines(file)), start=1)

    def _read_conll(self, file: str) -> Iterator[Words]:
        sentences = read_sentences(file, self.text_column, encoding=self.encoding)
        return ([word for (word,) in sentence] for sentence in sentences)

    def _read_fasta(self, file: str) -> Iterator[NamedRow]:
        """The letters of each FASTA sequence (Pearson and Lipman 1988), named by the first word of its header."""
        row = None
        for number, line in enumerate(map(str.strip, read_lines(file, self.encoding)), start=1):
            if line.startswith(">") and line != ">":
                if row is not None:
                    yield row
                row = NamedRow([], line[1:].split()[0])
            elif line:
                if row is None or line[0] in ">;":
                    raise ValueError(f"{file}, line {number}: expected '>name' or letters below it, got {line!r:.60}")
                row += "".join(line.split()).upper()
        if row is not None:
            yield row

    def _read_jsonl(self, file: str) -> Iterator[tuple[int, Any]]:
        for number, line in enumerate(map(str.rstrip, read_lines(file, self.encoding)), start=1):
            if not line:
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                place = f"{file}, line {number}, column {error.colno}"
                raise ValueError(f"{place}: invalid JSON (one record per line): {error.msg}") from error
            if isinstance(row, list) and _ending(file) == ".json" and self.input_format is None:
                raise ValueError(f"{file} holds a JSON list: save it as .jsonl, with one row per line")
            yield number, row

    def _read_parquet(self, file: str) -> Iterator[Any]:
        try:
            with open_file(file) as source:
                table = pyarrow.parquet.ParquetFile(BytesIO(source.read()) if is_pipe(file) else source)
                names = self._names(table.schema_arrow.names, file)
                for batch in table.iter_batches(1024, columns=[*filter(None, names)]):
                    yield from (self._picked(row, names) for row in batch.to_pylist())
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{file} is no whole file of Parquet: {error}") from error

    def _read_tsv(self, file: str) -> Iterator[tuple[int, dict[str, str]]]:
        for number, row in self._read_csv(file, "tabs", delimiter="\t", quoting=csv.QUOTE_NONE):
            yield number, {name: _unquoted(text) for name, text in row.items()}

    def _read_csv(self, file: str, separators: str = "commas", **dialect: Any) -> Iterator[tuple[int, dict[str, str]]]:
        csv.field_size_limit(max(CSV_FIELD_CHARACTERS, csv.field_size_limit()))
        reader = csv.reader(self._lines(file, newline=""), strict=True, **dialect)
        names: list[str] = []
        first = 1  # the line in which a row begins
        try:
            for row in reader:
                if row or dialect:  # a blank line is no row of a CSV, and a blank text of a TSV
                    row = row or [""] * max(1, len(names))
                    given = [column for column in (self.text_column, *self.columns) if column is not None]
                    has_name = self.text_column is None and not set(DEFAULT_COLUMNS).isdisjoint(row)
                    is_header = not names and (has_name or _is_header(row, given))
                    if not names:
                        if not is_header and any(row[column].lower() in DEFAULT_COLUMNS for column in given):
                            raise ValueError(f"{file}, line {first}: {row} are names: pass text_column by its name")
                        names = row if is_header else [str(column) for column in range(len(row))]
                        self._require_columns(names, file, separators)
                    if len(row) != len(names):
                        raise csv.Error(f"expected {len(names)} columns, got {len(row)}")
                    if not is_header:
                        yield first, dict(zip(names, row, strict=True))
                first = reader.line_num + 1
        except csv.Error as error:
            lines = first if first == reader.line_num else f"{first} to {reader.line_num}"
            raise ValueError(f"{file}, line {lines}: {error} (is each quote closed, or doubled?)") from error
        if not names:
            raise ValueError(f"{file} is empty")

    def _require_columns(self, names: list[str], file: str, separators: str) -> None:
        """Raises ValueError if the columns are not among `names`, or the line was not separated."""
        try:
            if self.text_column is None and len(names) == 1 and re.search(r"[ ,;|\t]", names[0]):
                raise ValueError(f"{file}: the only column is {names[0]!r:.60}")
            self._names(names, file)
        except ValueError as error:
            how = f"the first line must have their names, with {separators} between them, or text_column be a number"
            raise ValueError(f"{error} ({how}; files of CoNLL have input_format='conll')") from None


def _patterns(inputs: Any) -> list:
    """The paths and patterns of files; none for rows in memory. ValueError for names of files in a list of texts."""
    if isinstance(inputs, (Files, str, os.PathLike)):
        return inputs if isinstance(inputs, Files) else [inputs]
    first = inputs[0] if isinstance(inputs, (list, tuple)) and inputs else None
    if isinstance(first, str) and (_is_address(first) or ("." in first and any(map(os.path.isfile, glob(first))))):
        raise ValueError(f"{first!r} is a file, but strings of a list are texts: pass pathlib.Path, or one pattern")
    return list(inputs) if isinstance(first, os.PathLike) else []


def _is_address(text: str) -> bool:
    """Whether a text is a file's address: on the web, one with the ending of a format, since posts begin with links."""
    return bool(re.fullmatch(r"\w+://\S+", text)) and (not text.startswith("http") or _ending(text) in FORMATS)


def _ending(file: str | os.PathLike) -> str:
    """The ending of a file's name in lower case, without the ending of a compression such as `.gz`."""
    name = PurePosixPath(os.fspath(file))
    return (name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name).suffix.lower()


def _is_header(row: list[str], given: list[str | int]) -> bool:
    """Whether the first row of a table has the names of its columns: unless the columns are given by their numbers.
    pandas names columns that have no names by their numbers, too."""
    numbers = [str(column) for column in range(len(row))]
    by_pandas = row == numbers or (len(row) > 1 and row == ["", *numbers[:-1]])
    return by_pandas or not given or not all(isinstance(column, int) and column < len(row) for column in given)


def _unquoted(text: str) -> str:
    """A field of a TSV without the quotes that csv and pandas put around it if it has quotes, which they double."""
    inner = text[1:-1]
    is_quoted = text[:1] == text[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else text


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
    words = value.tolist() if hasattr(value, "tolist") else value  # an array, a pandas Series
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        kind = f"{type(value).__name__} {value!r:.60}"
        raise TypeError(f"{where}: expected text ('' if it is blank) or a list of words, got {kind}")
    return words if isinstance(words, NamedRow) else list(map(drop_surrogates, words))


def check_pair(value: Any, where: str) -> Pair:
    """A text as [`check_row`] returns it, and its pair: another such text or a whole number. Otherwise TypeError."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{where}: expected a tuple (text, pair), got {type(value).__name__} {value!r:.60}")
    text, pair = value
    is_index = isinstance(pair, Integral) and not isinstance(pair, bool)
    return check_row(text, where), int(pair) if is_index else check_row(pair, where)
