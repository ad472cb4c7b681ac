"""Reading text: lines, rows of every format, and `pretokenized=True`, which means the same everywhere."""

import bz2
import gzip
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from datasets import Dataset

import hf_elmo
from hf_elmo import ElmoForTokenClassification, store_layers
from hf_elmo.conversion import convert
from hf_elmo.reading.files import find_files, read_lines
from hf_elmo.reading.rows import Rows, check_row
from hf_elmo_cli import main
from tests.factories import small_model, write_lines
from tests.language_models import small_language_model, small_tokenizer

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
COMPRESS[".zst"] = lambda data: pyarrow.compress(data, "zstd", asbytes=True)
ROWS = ["The cat sat .", "", 'Said "no", twice', "Ünïcödé 日本語 😀", "NA", "last , row"]


@pytest.mark.parametrize("ending", COMPRESS)
def test_lines_of_plain_and_compressed_files(tmp_path, ending):
    path, compress = tmp_path / f"a.txt{ending}", COMPRESS[ending]
    path.write_bytes(compress(b"\xef\xbb\xbf" + "ü\n\ufeffb\r\nc\u2028d\n\nlast".encode()))
    for encoding in ("utf-8", "UTF8", "utf_8"):
        assert list(read_lines(path, encoding)) == ["ü\n", "\ufeffb\n", "c\u2028d\n", "\n", "last"]
    assert list(read_lines(path, newline=""))[1] == "\ufeffb\r\n"
    if ending:  # as an interrupted download leaves it
        data = compress(str([*range(9999)]).encode())
        for path in (tmp_path / f"b.txt{ending}", tmp_path / f"b.csv{ending}"):
            path.write_bytes(data[: len(data) // 2])
            with pytest.raises(ValueError, match=re.escape(f"{path.name} is incomplete")):
                list(Rows(path))


@pytest.mark.parametrize("before", [2, 5000])
def test_bytes_of_another_encoding_are_named_by_their_line(tmp_path, before):
    (tmp_path / "a.txt").write_bytes(b"good\n" * before + b"na\xefve\n")
    with pytest.raises(ValueError, match=rf"a\.txt, line {before + 1}"):
        list(read_lines(tmp_path / "a.txt"))
    assert list(read_lines(tmp_path / "a.txt", "latin-1"))[-1] == "naïve\n"


def test_files_of_paths_folders_and_patterns(tmp_path):
    for name in ("b.txt", "a.txt", "more/c.jsonl", "a[1].txt", "_SUCCESS", ".hidden/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for pattern, names in (
        (".", ["a.txt", "a[1].txt", "b.txt", "more/c.jsonl"]),
        ("a[1].txt", ["a[1].txt"]),
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("**/*.jsonl", ["more/c.jsonl"]),
    ):
        assert find_files(tmp_path / pattern) == [str(tmp_path / name) for name in names]
    with pytest.raises(FileNotFoundError):
        find_files(tmp_path / "nothing*.txt")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.csv.gz", "a.parquet"])
def test_every_format_gives_the_rows(tmp_path, name):
    table, path = pandas.DataFrame({"id": range(len(ROWS)), "text": ROWS}), tmp_path / name
    if name == "a.parquet":
        table.to_parquet(path, row_group_size=2)
    elif name == "a.jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False)
    rows = Rows(path)
    assert list(rows) == list(rows) == ROWS  # a second reading begins at the beginning
    other_name = path.rename(tmp_path / ("a.data" + ".gz" * name.endswith(".gz")))
    assert list(Rows(other_name, name.split(".")[1])) == ROWS


def test_json_lines_and_tables_take_lists_of_words(tmp_path):
    """Blank lines are not rows; lone surrogates, which no file can hold, are dropped."""
    rows = ['{"sentence": "a b"}', '"c\\ud83d d"', "", '["New York", "e"]', '{"sentence": ["f", ""]}', ""]
    assert list(Rows(write_lines(tmp_path / "a.jsonl", rows))) == ["a b", "c d", ["New York", "e"], ["f", ""]]
    pyarrow.parquet.write_table(pyarrow.table({"words": [["a", "b"], []]}), tmp_path / "a.parquet")
    assert list(Rows(tmp_path / "a.parquet")) == [["a", "b"], []]


def test_rows_of_csv_and_tsv(tmp_path):
    """A column by name and by position, long fields; quotes and empty lines of a TSV are text."""
    for header, column in (("label,body\n", "body"), ("", 1)):
        (tmp_path / "a.csv").write_text("\n" + header + 'ham,"two\nlines"\n\nspam,007\n')
        assert list(Rows(tmp_path / "a.csv", text_column=column)) == ["two\nlines", "007"]
    (tmp_path / "a.tsv").write_text('text\n"open\n\nshut"\n')
    assert list(Rows(tmp_path / "a.tsv")) == ['"open', "", 'shut"']
    (tmp_path / "a.csv").write_text("text,label\n" + "word " * 500_000 + ",1\n")
    assert [len(row) for row in Rows(tmp_path / "a.csv")] == [2_500_000]
    (tmp_path / "a.csv").write_bytes("text\ncafé\n".encode("cp1252"))
    assert list(Rows(tmp_path / "a.csv", encoding="cp1252")) == ["café"]


def test_sequences_of_fasta_and_their_identifiers(tmp_path):
    (tmp_path / "a.fa").write_bytes(b">sp|P1 the first\nMKv\n  la\r\n>P2\r\nAC D\n\n>empty\n > P4\nw*")
    rows = list(Rows(tmp_path / "a.fa"))
    assert {row.name: row for row in rows} == {"sp|P1": [*"MKVLA"], "P2": [*"ACD"], "empty": [], "P4": [*"W*"]}


def test_a_second_column_gives_pairs(tmp_path):
    pairs, named = [("a b", "c"), ("", "hi"), ("d", "")], {"text_column": "a", "text_pair_column": "b"}
    for name, data, columns in (
        ("a.jsonl", '{"b": "c", "a": "a b"}\n{"b": "hi", "a": ""}\n{"b": "", "a": "d"}\n', named),
        ("a.csv", "b,a\nc,a b\nhi,\n,d\n", named),
        ("a.tsv", "b\ta\nc\ta b\nhi\t\n\td\n", named),
        ("without a header.csv", "c,a b\nhi,\n,d\n", {"text_column": 1, "text_pair_column": 0}),
    ):
        (tmp_path / name).write_text(data)
        assert list(Rows(tmp_path / name, **columns)) == pairs
    pyarrow.parquet.write_table(pyarrow.table({"b": ["c"], "id": [0], "a": ["a b"]}), tmp_path / "b.parquet")
    assert list(Rows(tmp_path / "b.parquet", text_column="a", text_pair_column="b")) == pairs[:1]
    # The text is the only other column, and a pair may be a number.
    write_lines(tmp_path / "b.jsonl", ['{"a": "x", "n": 3}', '{"a": ["b", ""], "n": ["c"]}'])
    assert list(Rows(tmp_path / "b.jsonl", text_pair_column="n")) == [("x", 3), (["b", ""], ["c"])]


@pytest.mark.parametrize(
    ("name", "data", "options", "named"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"b": 1}\n', {}, "line 2.*'text'"),
        ("a.jsonl", b'"a"\n\n{"text": "b"\n', {}, "line 3, column 13"),
        ("a.fasta", b"MKV\n>P1\nMKV\n", {}, "line 1"),
        ("eng.txt", b"-DOCSTART- -X- O\n\nHe PRP O\n", {}, "input_format='conll'"),
        ("a.json", b'["A text.", "Another."]\n', {}, r"a\.json"),
        ("a.csv", b"id,text\n1,a\n2\n", {}, r"a\.csv, line 3"),
        ("a.csv", b"text,body\n1,a\n", {"text_pair_column": "x"}, "text_pair_column"),
        ("a.csv", b"id;text\n1;a b\n", {}, "text_column"),
    ],
)
def test_what_is_malformed_is_named(tmp_path, name, data, options, named):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=named):
        list(Rows(tmp_path / name, **options))


CONLLU = "# sent_id = 1\n1\tVamos\tir\n2-3\tal\t_\n2\ta\ta\n3\tel\tel\n3.1\t_\t_\n4\tMar Muerto\t_\n"
CONLLU = [f"{CONLLU}\n# sent_id = 2\n1\tNo\tno\n2\t!\t!\n", ["Vamos", "a", "el", "Mar Muerto"], ["No", "!"]]
CONLL2012 = "#begin document (a); part 000\n\na 0 0 He PRP * *\na 0 1 ran VBD (V*) *\n\n#end document\n"
SENTENCES = {
    "a.conllu.gz": CONLLU,
    "comments.iob2": ["# id 1\ta=b\nHe _ _ O\n#a note\n\n# id 2\ta=b\n\n# _ _ O\n1 _ _ O\n", ["He"], ["#", "1"]],
    "offsets.conll": ["He 0 2 O\nran 3 6 O\n", ["He", "ran"]],
    "one column.conll": ["He\n#\n\n7\n", ["He", "#"], ["7"]],
    "a.v4_gold_conll": [CONLL2012, ["He", "ran"]],
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_of_conll_have_the_words_of_their_column(tmp_path, name):
    text, *sentences = SENTENCES[name]
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert list(Rows(path)) == sentences
    other = path.rename(tmp_path / f"b.data{'.gz' * name.endswith('.gz')}")
    assert list(Rows(other, "conll")) == sentences
    if sentences[0][0] == "Vamos":
        assert next(iter(Rows(other, "conll", text_column=2))) == ["ir", "a", "el", "_"]  # its lemmas


def test_an_ending_that_nobody_knows_is_text_and_one_of_other_files_is_refused(tmp_path):
    for name in ("wiki.train.tokens", "train.de", "news.en-00001-of-00100", "part-00000", "a.TXT"):
        assert list(Rows(write_lines(tmp_path / name, ["a b"]))) == ["a b"]
    assert list(Rows(write_lines(tmp_path / "a.jsonlines", ['{"text": "a b"}']))) == ["a b"]
    for name in ("a.pdf", "a.xml", "a.DOCX", "a.html", "a.zip", "a.tar", "a.arrow", "esp.train"):
        path = write_lines(tmp_path / name, ["a b"])
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(b"a b\n"))
        for file in (path, f"{path}.gz"):
            with pytest.raises(ValueError, match=f"{name}.*input_format='text'"):
                list(Rows(file))
            assert list(Rows(file, "text")) == ["a b"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_is_read(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    writer = Thread(target=(tmp_path / "a.jsonl").write_text, args=('{"text": "a b"}\n["c"]\n',))
    writer.start()
    rows = Rows(tmp_path / "a.jsonl")
    assert list(rows) == list(rows) == ["a b", ["c"]]
    writer.join()


def test_what_is_no_text_or_no_list_of_texts_is_refused():
    for value in (None, float("nan"), 3, ("a", "b"), ["a", None]):
        with pytest.raises(TypeError, match="row 7"):
            check_row(value, "row 7")
    frame = pandas.DataFrame({"text": ["a"]})
    for texts in ({"text": ["a"]}, frame, frame.to_numpy(), pyarrow.table({"text": ["a"]})):
        with pytest.raises(ValueError, match="inputs must be a list"):
            list(Rows(texts))
    with pytest.raises(FileNotFoundError, match="no file"):
        list(Rows("A text that is given in place of a list of texts. " * 99))


ENCODED = Dataset.from_dict({"input_ids": [[[1] * 50]]})
WRITERS = {
    "embed": lambda out: hf_elmo.embed(None, ["a"], f"{out}.npz"),
    "pretrain": lambda out: hf_elmo.pretrain(["a"], out),
    "store_layers": lambda out: store_layers(small_model(ElmoForTokenClassification), ENCODED, folder=out),
    "vocab": lambda out: main(["--traceback", "vocab", "-", str(out)]),
    "convert": lambda out: convert("a.zip", Path(out)),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("out", ["s3://bucket/out", Path("hf://datasets/me/out")], ids=str)
def test_an_address_is_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable, out: object) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="address"):
        write(out)
    assert list(tmp_path.iterdir()) == []


TEXT = "It isn't  so."  # three words at whitespace, five by the tokenizer

# Of each function the number of words that it finds in TEXT; `how` is the tokenizer and `pretokenized`.
COUNTS = {
    "embed": lambda model, corpus, **how: len(hf_elmo.embed(model.elmo, corpus, **how)[0]),
    "nearest_neighbors": lambda model, corpus, **how: len(
        hf_elmo.nearest_neighbors(model, f"Oh. {TEXT}", "It", corpus, top=1, **how)[1][0].sentence
    ),
    # One prediction is that of the boundary.
    "perplexity": lambda model, corpus, **how: hf_elmo.perplexity(model, corpus, **how).words // 9 - 1,
    "score": lambda model, corpus, **how: len(hf_elmo.score(model, [TEXT], **how)[0].words) - 2,
    "substitutes": lambda model, corpus, **how: len(hf_elmo.substitutes(model, TEXT, top=2, **how)),
    "word_plane": lambda model, corpus, **how: len(hf_elmo.word_plane(model, [TEXT], **how).sentences[0]),
}


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_words_of_text_that_is_tokenized_already(count: Callable[..., int], tmp_path: Path) -> None:
    tokenizer, corpus = small_tokenizer(tmp_path), write_lines(tmp_path / "corpus.txt", [TEXT] * 9)
    model = small_language_model(tokenizer)
    assert count(model, corpus, tokenizer=tokenizer, pretokenized=True) == 3
    assert count(model, corpus, tokenizer=tokenizer) == 5
