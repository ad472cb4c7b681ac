"""Rows of text out of files: every format, and every way in which a file can be wrong."""

import gzip
import json
from pathlib import Path

import pytest

from hf_elmo.embedding.readers import RowSource, spool, survey

ROWS = ["The cat sat .", "", 'Said "no", twice', "Ünïcödé 日本語 😀", "last , row"]


def write(path: Path, rows: list[str]) -> Path:
    """`rows` as a file of the format that the ending of `path` names."""
    ending = path.name.removesuffix(".gz").rsplit(".", 1)[1]
    if ending == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        pyarrow = pytest.importorskip("pyarrow")
        parquet.write_table(pyarrow.table({"id": list(range(len(rows))), "text": rows}), path, row_group_size=2)
        return path
    lines = {
        "txt": rows,
        "jsonl": [json.dumps({"id": number, "text": row}) for number, row in enumerate(rows)],
        "csv": ["id,text"] + ['{},"{}"'.format(number, row.replace('"', '""')) for number, row in enumerate(rows)],
        "tsv": ["id\ttext"] + [f"{number}\t{row}" for number, row in enumerate(rows)],
    }[ending]
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    "name",
    ["a.txt", "a.txt.gz", "a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.tsv", "a.tsv.gz", "a.parquet", "A.TXT"],
)
def test_every_format_gives_the_rows(tmp_path, name):
    source = RowSource(write(tmp_path / name.lower(), ROWS).rename(tmp_path / name))
    assert list(source) == ROWS
    assert list(source) == ROWS  # a second reading begins at the beginning


def test_format_given_beats_the_ending(tmp_path):
    path = write(tmp_path / "a.jsonl", ROWS).rename(tmp_path / "a.data")
    assert list(RowSource(path, "jsonl")) == ROWS


def test_last_line_without_a_newline_and_windows_line_ends(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone two\r\n\r\nthree")
    assert list(RowSource(path)) == ["one two", "", "three"]


def test_unicode_line_separators_do_not_end_a_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\u2028b\x85c\x0cd\ne\n", encoding="utf-8")
    assert list(RowSource(path)) == ["a\u2028b\x85c\x0cd", "e"]


def test_json_lines_take_objects_strings_lists_of_words_and_null(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"sentence": "a b"}\n"c d"\n["New York", "e"]\n{"id": 4, "sentence": ["f", ""]}\nnull\n')
    assert list(RowSource(path)) == ["a b", "c d", ["New York", "e"], ["f", ""], ""]


def test_a_json_file_may_be_one_line(tmp_path):
    path = tmp_path / "a.json"
    for text, rows in (('"a b"', ["a b"]), ('{"text": "a"}', ["a"]), ('["a"]\n["b"]', [["a"], ["b"]]), ("", [])):
        path.write_text(text)
        assert list(RowSource(path)) == rows
    path.write_text('["New York", "e"]')
    assert list(RowSource(path, "jsonl")) == list(RowSource(path.rename(tmp_path / "a.jsonl"))) == [["New York", "e"]]


def test_parquet_takes_lists_of_words_and_null(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"words": [["a", "b"], None, []]}), tmp_path / "a.parquet")
    assert list(RowSource(tmp_path / "a.parquet")) == [["a", "b"], "", []]


def test_json_keys_that_are_not_read_may_repeat(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "id": 2, "text": "a", "meta": {"text": "b", "text": "c"}}\n')
    assert list(RowSource(path)) == ["a"]


@pytest.mark.parametrize("column", ["body", 1])
def test_csv_column_by_name_and_by_position(tmp_path, column):
    path = tmp_path / "a.csv"
    path.write_text(("" if column == 1 else "label,body\n") + 'ham,"two\nlines"\n\nspam,x\n')
    assert list(RowSource(path, text_column=column)) == ["two\nlines", "x"]


def test_a_single_column_whose_name_has_spaces_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a text\na b\n")
    assert list(RowSource(path, text_column="a text")) == ["a b"]
    assert list(RowSource(path, text_column=0)) == ["a text", "a b"]
    path.write_text("review\na b\n")
    assert list(RowSource(path)) == ["a b"]


def test_an_empty_text_keeps_its_row_in_a_tsv_of_one_column(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\na b\n\nc\n")
    assert list(RowSource(path)) == ["a b", "", "c"]
    path.write_text("text\tid\na b\t1\n\nc\t2\n")  # no row of two columns
    assert list(RowSource(path)) == ["a b", "c"]


def test_columns_whose_names_are_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"0": "a", "1": "b"}\n')
    assert list(RowSource(path, text_column=1)) == list(RowSource(path, text_column="1")) == ["b"]
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"0": ["a"], "1": ["b"]})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet")
    assert list(RowSource(tmp_path / "a.parquet", text_column=0, text_pair_column=1)) == [("a", "b")]


def test_tsv_quotes_are_letters(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"open\t1\nshut"\t0\n')
    assert list(RowSource(path)) == ['"open', 'shut"']


def test_csv_field_longer_than_the_modules_default_limit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "word " * 50_000 + ",1\n")
    assert len(next(iter(RowSource(path)))) == 250_000


def test_encoding_is_used(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("naïve\n".encode("latin-1"))
    assert list(RowSource(path, encoding="latin-1")) == ["naïve"]


def test_sms_spam_is_latin_1(shared):
    path = shared / "data/sms_spam/spam.csv"
    assert survey(RowSource(path, text_column="v2", encoding="latin-1")).rows == 5572
    with pytest.raises(ValueError, match=r"line \d+: not utf-8.*encoding='latin-1'"):
        survey(RowSource(path, text_column="v2"))


BAD_FILES = {
    "not utf-8": ("a.txt", b"good\nfine\nna\xefve\n", {}, r"a\.txt, line 3: not utf-8"),
    "json malformed": ("a.jsonl", b'{"text": "a"}\n{"text": \n', {}, r"line 2: malformed JSON at column \d+"),
    "json empty line": ("a.jsonl", b'"a"\n\n"b"\n', {}, r"line 2: empty"),
    "json nested deeply": ("a.jsonl", b'"a"\n' + b"[" * 200_000 + b"]" * 200_000, {}, "line 2: .*a line holds text"),
    "json key twice": (
        "a.jsonl",
        b'{"text": "a"}\n{"text": "a", "te\\u0078t": "b"}\n',
        {},
        r"a\.jsonl, line 2: .*'text'",
    ),
    "json number too long": ("a.jsonl", b'"a"\n' + b"9" * 5000, {}, "line 2: .*digits.*a line holds text"),
    "json column unclear": ("a.jsonl", b'{"txt": "b", "n": 1}\n', {}, r"line 1: which column holds .*'txt', 'n'"),
    "json column missing": (
        "a.jsonl",
        b'"a"\n{"text": "a"}\n{"sentence": "b", "id": 1}\n',
        {},
        r"line 3: no key 'text' \(found in line 2\), but \['sentence', 'id'\]",
    ),
    "json named column missing": (
        "a.jsonl",
        b'{"text": "a"}\n',
        {"text_column": "body"},
        r"no key 'body', but .*'text'",
    ),
    "json array": ("a.json", b'["A text.", "Another."]\n', {}, r"a\.json is a single list, \['A text.*of its own"),
    "json columns": ("a.json.gz", gzip.compress(b'{"text": ["A text.", "Another."]}'), {}, "is a single list.*words"),
    "csv without a header": ("a.csv", b"The first.\nThe second.\n", {}, r"row, 'The first\.', a text .*text_column=0"),
    "tsv without a header": ("a.tsv", b"The first.\nThe second.\n", {}, r"row, 'The first\.', a text .*text_column=0"),
    "encoding of parquet": ("a.parquet", b"", {"encoding": "latin-1"}, "encoding='latin-1' has no meaning for a parq"),
    "csv column twice": ("a.csv", b"text,text\n1,a\n", {}, r"2 columns are named 'text'"),
    "csv column missing": ("a.csv", b"id,body\n1,a\n", {"text_column": "text"}, r"no column 'text'.*'id', 'body'"),
    "csv column unclear": ("a.csv", b"id,body\n1,a\n", {}, r"which column holds the text.*'id', 'body'"),
    "csv short line": ("a.csv", b"id,text\n1,a\n2\n", {}, r"line 3: 1 fields, but the first row has 2; add .*missing"),
    "csv broken line": (
        "a.csv",
        b"text,id\na\nb,1\n",
        {},
        r"line 2: 1 fields, .* quote a text that holds .*line break",
    ),
    "csv long line": ("a.csv", b"id,text\n\n1,Hello, world\n", {}, r"a\.csv, line 3: 3 fields, .* has 2; quote a text"),
    "csv long line of one column": ("a.csv", b"text\n'a'\nHello, world\n", {}, r"line 3: 2 fields, .* has 1; quote a"),
    "csv long line without a header": ("a.csv", b"a\nb,c\n", {"text_column": 0}, r"line 2: 2 fields, .* has 1; quote"),
    "csv position missing": ("a.csv", b"a,b\n", {"text_column": 2}, r"line 1: 2 fields, none at position 2"),
    "tsv long line": ("a.tsv", b"id\ttext\n1\tHello,\tworld\n", {}, r"a\.tsv, line 2: 3 fields, .* replace tabs"),
    "tsv broken line": ("a.tsv", b"text\tid\na\nb\t1\n", {}, r"line 2: 1 fields, .* or replace .*line breaks"),
    "csv quote never closed": ("a.csv", b'id,text\n1,"a\n2,b\n', {}, r"a\.csv: malformed CSV"),
    "ending unknown": ("a.docx", b"", {}, r"unknown ending '\.docx'.*\.jsonl"),
    "ending missing": ("corpus", b"", {}, r"unknown ending ''"),
    "format unknown": ("a.txt", b"", {"file_format": "xml"}, r"format 'xml' is unknown.*parquet"),
    "encoding unknown": ("a.txt", b"a", {"encoding": "utf-9"}, r"encoding 'utf-9' is unknown"),
    "column of a text file": ("a.txt", b"a", {"text_column": "text"}, r"text_column='text' has no meaning"),
    "gzip cut off": ("a.txt.gz", gzip.compress(b"some text " * 99, mtime=0)[:-12], {}, r"not a whole gzip file"),
    "not gzip": ("a.txt.gz", b"plain", {}, r"not a whole gzip file"),
    "not parquet": ("a.parquet", b"PAR1 no", {}, r"not a whole Parquet file"),
}


@pytest.mark.parametrize(("name", "data", "options", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_are_refused_with_a_remedy(tmp_path, name, data, options, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(RowSource(tmp_path / name, **options))


@pytest.mark.parametrize(("line", "shown"), [("17", "int 17"), ('{"text": 1.5}', "float 1.5"), ('["a", 3]', "list")])
def test_values_that_are_no_text_are_refused(tmp_path, line, shown):
    (tmp_path / "a.jsonl").write_text('"fine"\n' + line + "\n")
    with pytest.raises(TypeError, match=rf"a\.jsonl, line 2: expected text .* got {shown}"):
        list(RowSource(tmp_path / "a.jsonl"))


def test_parquet_column_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"column 'id', row 0: expected text"):
        list(RowSource(write(tmp_path / "a.parquet", ROWS), text_column="id"))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'The cat sat \.' does not exist.*a list of sentences"):
        RowSource(Path("The cat sat ."))
    with pytest.raises(IsADirectoryError, match="give one file"):
        RowSource(tmp_path)


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match="pip install pyarrow"):
        list(RowSource(tmp_path / "a.parquet"))


def test_survey_counts_and_tells_rows_apart():
    assert survey(ROWS).rows == len(ROWS)
    different = [["a b"], [["a", "b"]], [["a b"]], ["a", "b"], ["b", "a"], ["a b", ""], [["a", "b", ""]]]
    assert len({survey(rows).sha256 for rows in different}) == len(different)


def test_spooled_rows_come_back(tmp_path):
    rows = [*ROWS, ["New York", ""], "\ud800 lone"]
    assert list(spool(iter(rows), tmp_path / "spool.jsonl")) == rows


# -- pairs -------------------------------------------------------------------------------------------------------------

PAIRS = [("a b", "c"), ("", "say 'hi'"), ("d", "")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "without a header.csv"])
def test_a_second_column_gives_pairs(tmp_path, name):
    path, columns = tmp_path / name, {"text_column": "one", "text_pair_column": "two"}
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"two": [pair for _, pair in PAIRS], "id": [0, 1, 2], "one": [text for text, _ in PAIRS]})
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"two": pair, "one": text}) + "\n" for text, pair in PAIRS))
    else:
        separator = "\t" if path.suffix == ".tsv" else ","
        path.write_text("".join(f"{pair}{separator}{text}\n" for text, pair in [("one", "two"), *PAIRS]))
    if path.name.startswith("without"):
        path.write_text(path.read_text().removeprefix("two,one\n"))
        columns = {"text_column": 1, "text_pair_column": 0}
    assert list(RowSource(path, **columns)) == PAIRS
    assert list(RowSource(path, **columns)) == PAIRS


def test_the_text_is_the_only_other_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("passage,question\np,q\n")
    assert list(RowSource(path, text_pair_column="passage")) == [("q", "p")]
    path.write_text("text,words\nt,w\n")
    assert list(RowSource(path, text_pair_column="text")) == [("w", "t")]


def test_a_pair_may_be_a_number_words_or_null(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "n": 3}\n{"text": null, "n": null}\n{"text": ["b", ""], "n": ["c"]}\n')
    assert list(RowSource(path, text_pair_column="n")) == [("a", 3), ("", ""), (["b", ""], ["c"])]


@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("a.jsonl", '{"text": "a", "b": "c"}\n{"text": "a"}\n', {"text_pair_column": "b"}, "line 2: no key 'b'"),
        ("a.jsonl", '{"text": "a", "b": "c"}\n["x", "y"]\n', {"text_pair_column": "b"}, "line 2: .* is no object with"),
        ("a.jsonl", '{"text": "a", "b": 1.5}\n', {"text_pair_column": "b"}, "line 1: expected text .*got float 1.5"),
        ("a.jsonl", '{"text": "a", "b": true}\n', {"text_pair_column": "b"}, "line 1: expected text .*got bool True"),
        ("a.csv", "text,b\na,c\na\n", {"text_pair_column": "b"}, "line 3: 1 fields, .* first row has 2"),
        ("a.csv", "a,b\n", {"text_column": 0, "text_pair_column": 2}, "none at position 2 .*another text_pair_column"),
        ("a.jsonl", '{"text": "a", "b": 1, "b": 2}\n', {"text_pair_column": "b"}, "line 1: the key 'b' stands .*twice"),
        ("a.csv", "text,b\na,c\n", {"text_pair_column": "x"}, "no column 'x'; choose text_pair_column among"),
        ("a.csv", "c,b,d\n", {"text_pair_column": "b"}, r"which column holds the text.*\['c', 'd'\]"),
        ("a.csv", "text,b\n", {"text_column": "b", "text_pair_column": "b"}, "are both 'b'"),
        ("a.csv", "text,b\n", {"text_pair_column": 1}, "both by name, or both as an index"),
        ("a.txt", "a\n", {"text_pair_column": "b"}, "text_pair_column='b' has no meaning for a text file"),
    ],
)
def test_malformed_pairs_are_named(tmp_path, name, content, columns, said):
    (tmp_path / name).write_text(content)
    with pytest.raises((ValueError, TypeError), match=said):
        list(RowSource(tmp_path / name, **columns))


def test_the_fingerprint_of_pairs_covers_both_sides(tmp_path):
    rows = [("a", "b"), ("a", "c"), ("ab", ""), ("", "ab"), ("a", 1), ("a", "1"), ("a", ["b"]), "a", ["a", "b"]]
    rows = [[row] for row in rows] + [["a", "b"], [("a", "b"), ("a", "b")]]
    assert len({survey(one).sha256 for one in rows}) == len(rows)
    assert list(spool(iter(PAIRS), tmp_path / "spool.jsonl")) == PAIRS
    assert survey(spool(iter([("a", 1)]), tmp_path / "spool.jsonl")) == survey([("a", 1)])
