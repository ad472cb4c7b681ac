"""Reading text: lines, rows of every format, and the texts of files and datasets, whole or in parts."""

import gzip
import itertools
import json
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from hf_elmo import ElmoTokenizer
from hf_elmo.text import DatasetTexts, RowSource, TextFiles, find_files, open_texts, read_lines, require_apart

ROWS = ["The cat sat .", "", 'Said "no", twice', "Ünïcödé 日本語 😀", "NA", "last , row"]
PAIRS = [("a b", "c"), ("", "say 'hi'"), ("d", "")]


def write(path: Path, rows: list[str]) -> Path:
    """`rows` as a file of the format that the ending of `path` names."""
    ending = path.name.removesuffix(".gz").rsplit(".", 1)[1]
    if ending in ("parquet", "arrow"):
        table = pyarrow.table({"id": list(range(len(rows))), "text": rows})
        if ending == "parquet":
            pyarrow.parquet.write_table(table, path, row_group_size=2)
        else:
            with pyarrow.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table, max_chunksize=2)
        return path
    lines = {
        "txt": rows,
        "jsonl": [json.dumps({"id": number, "text": row}) for number, row in enumerate(rows)],
        "csv": ["id,text", *('{},"{}"'.format(number, row.replace('"', '""')) for number, row in enumerate(rows))],
        "tsv": ["id\ttext", *(f"{number}\t{row}" for number, row in enumerate(rows))],
    }[ending]
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# -- lines and files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_of_plain_and_gzipped_files(tmp_path, name):
    data = b"\xef\xbb\xbf" + "ü\n\ufeffb\r\nc\u2028d\n\nlast".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert list(read_lines(tmp_path / name)) == ["ü\n", "\ufeffb\n", "c\u2028d\n", "\n", "last"]
    assert list(read_lines(tmp_path / name, newline=""))[1] == "\ufeffb\r\n"


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


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.csv.gz", "a.tsv", "a.tsv.gz", "a.parquet", "a.arrow"]
)
def test_every_format_gives_the_rows(tmp_path, name):
    source = RowSource(write(tmp_path / name, ROWS))
    assert list(source) == ROWS
    assert list(source) == ROWS  # a second reading begins at the beginning


def test_a_file_that_datasets_wrote(tmp_path):
    datasets.Dataset.from_dict({"text": ROWS}).save_to_disk(tmp_path)
    assert list(RowSource(next(tmp_path.glob("*.arrow")))) == ROWS


def test_a_format_that_is_given_beats_the_ending(tmp_path):
    path = write(tmp_path / "a.jsonl", ROWS).rename(tmp_path / "a.data")
    assert list(RowSource(path, "jsonl")) == ROWS


def test_json_lines_and_tables_take_lists_of_words_and_null(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"sentence": "a b"}\n"c d"\n["New York", "e"]\n{"sentence": ["f", ""]}\nnull\n')
    assert list(RowSource(tmp_path / "a.jsonl")) == ["a b", "c d", ["New York", "e"], ["f", ""], ""]
    pyarrow.parquet.write_table(pyarrow.table({"words": [["a", "b"], None, []]}), tmp_path / "a.parquet")
    assert list(RowSource(tmp_path / "a.parquet")) == [["a", "b"], "", []]


@pytest.mark.parametrize("column", ["body", 1])
def test_csv_column_by_name_and_by_position(tmp_path, column):
    header = "label,body\n" if column == "body" else ""
    (tmp_path / "a.csv").write_text(header + 'ham,"two\nlines"\n\nspam,007\n')
    assert list(RowSource(tmp_path / "a.csv", text_column=column)) == ["two\nlines", "007"]


def test_quotes_and_empty_lines_of_a_tsv_are_text(tmp_path):
    (tmp_path / "a.tsv").write_text('text\n"open\n\nshut"\n')
    assert list(RowSource(tmp_path / "a.tsv")) == ['"open', "", 'shut"']


def test_a_long_field_of_a_csv(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + "word " * 500_000 + ",1\n")
    assert [len(row) for row in RowSource(tmp_path / "a.csv")] == [2_500_000]


def test_sequences_of_fasta_and_their_identifiers(tmp_path):
    (tmp_path / "a.fa.gz").write_bytes(gzip.compress(b">sp|P1 the first\nMKv\n  la\r\n>P2\r\nAC D\n\n>empty\n>P4\nw*"))
    rows = list(RowSource(tmp_path / "a.fa.gz"))
    assert {row.name: row for row in rows} == {"sp|P1": [*"MKVLA"], "P2": [*"ACD"], "empty": [], "P4": [*"W*"]}


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "without a header.csv"])
def test_a_second_column_gives_pairs(tmp_path, name):
    path, columns = tmp_path / name, {"text_column": "one", "text_pair_column": "two"}
    if path.suffix == ".parquet":
        table = pyarrow.table({"two": [pair for _, pair in PAIRS], "id": [0, 1, 2], "one": [text for text, _ in PAIRS]})
        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"two": pair, "one": text}) + "\n" for text, pair in PAIRS))
    else:
        separator = "\t" if path.suffix == ".tsv" else ","
        path.write_text("".join(f"{pair}{separator}{text}\n" for text, pair in [("one", "two"), *PAIRS]))
    if path.name.startswith("without"):
        path.write_text(path.read_text().removeprefix("two,one\n"))
        columns = {"text_column": 1, "text_pair_column": 0}
    assert list(RowSource(path, **columns)) == PAIRS


def test_the_text_is_the_only_other_column_and_a_pair_may_be_a_number(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": "x", "n": 3}\n{"a": null, "n": null}\n{"a": ["b", ""], "n": ["c"]}\n')
    assert list(RowSource(tmp_path / "a.jsonl", text_pair_column="n")) == [("x", 3), ("", ""), (["b", ""], ["c"])]


@pytest.mark.parametrize(
    ("name", "data", "options", "error", "named"),
    [
        ("a.jsonl", b'"a"\n{"text": \n', {}, ValueError, "line 2"),
        ("a.jsonl", b'{"text": "a"}\n{"b": 1}\n', {}, ValueError, "line 2.*'text'"),
        ("a.jsonl", b'"a"\n17\n', {}, TypeError, "row 1"),
        ("a.json", b'["A text.", "Another."]\n', {}, ValueError, r"a\.json"),
        ("a.csv", b"id,text\n1,a\n2\n", {}, ValueError, r"a\.csv.*Row #3"),
        ("a.csv", b"id,body\n1,a\n", {}, ValueError, "text_column"),
        ("a.csv", b"text,text\n1,a\n", {}, ValueError, "text_column"),
        ("a.csv", b"text,body\n1,a\n", {"text_pair_column": "x"}, ValueError, "text_pair_column"),
        ("a.csv", b"The first.\nThe second.\n", {}, ValueError, "text_column"),
        ("a.csv", b"text,id\nna\xefve,1\n", {}, ValueError, r"a\.csv"),
        ("a.parquet", b"PAR1 no", {}, ValueError, r"a\.parquet"),
        ("a.tar.gz", gzip.compress(b"text"), {}, ValueError, r"a\.tar\.gz"),
    ],
)
def test_what_is_malformed_is_named(tmp_path, name, data, options, error, named):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=named):
        list(RowSource(tmp_path / name, **options))


# -- texts to train on -------------------------------------------------------------------------------------------------

SENTENCES = [[["one"]], [["two"]], [["three", "four"]], [["five"]], [["sechs", "süß"]], [["sieben"]], [["acht"]]]
LINES = [f"{number} {'word ' * (number * 7 % 11)}süß" for number in range(40)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "b.txt").write_text("three four\n\n  \nfive\n", encoding="utf-8")
    with gzip.open(folder / "c.txt.gz", "wt", encoding="utf-8") as file:
        file.write("sechs süß\n\nsieben\nacht\n")
    (folder / "a.txt").write_text("one\ntwo", encoding="utf-8")
    return folder


def in_parts(source: TextFiles | DatasetTexts, world_size: int) -> list[list]:
    return [list(source.part(rank, world_size).read()) for rank in range(world_size)]


@pytest.mark.parametrize("start", [0, 1, 3, 7, 8])
def test_files_are_read_in_order_from_any_sentence(files, start):
    assert list(TextFiles(f"{files}/*").read(start)) == SENTENCES[start:]
    assert (
        list(TextFiles([files / "a.txt", files / "c.txt.gz", files / "a.txt"]).read()) == SENTENCES[:2] + SENTENCES[4:]
    )


def test_blank_lines_and_files_part_documents(files):
    assert list(TextFiles(files, documents=True).read()) == [
        [["one"], ["two"]],
        [["three", "four"]],
        [["five"]],
        [["sechs", "süß"]],
        [["sieben"], ["acht"]],
    ]


def test_rows_of_other_formats_are_texts(tmp_path):
    texts = open_texts(write(tmp_path / "a.parquet", ["a b", "d e\nf"]), documents=True)
    assert list(texts.read()) == [[["a", "b"]], [["d", "e"], ["f"]]]


def test_the_tokenizer_splits_raw_text(files):
    (files / "a.txt").write_text("Don't!\n", encoding="utf-8")
    assert list(TextFiles(files / "a.txt", ElmoTokenizer()).read()) == [[["Don", "'t", "!"]]]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"text": "a b"}, [["a", "b"]]),
        ({"text": ["a", "b c"]}, [["a", "b c"]]),
        ({"text": [["a"], ["b"]]}, [["a"], ["b"]]),
        ({"text": None}, [[]]),
        ("a b", [["a", "b"]]),
    ],
)
def test_rows_of_a_dataset(row, text):
    assert list(DatasetTexts([row]).read()) == [text]
    with pytest.raises(TypeError, match="row 1"):
        list(DatasetTexts([row, 7]).read())


@pytest.mark.parametrize("world_size", [2, 3, 7])
@pytest.mark.parametrize("documents", [False, True])
def test_each_text_of_files_is_in_exactly_one_part(tmp_path, world_size, documents):
    for number, lines in enumerate((LINES[:1], [], LINES[1:4], LINES[4:33], LINES[33:])):
        (tmp_path / f"{number}.txt.gz").write_bytes(gzip.compress("\n\n".join(lines).encode()))
        (tmp_path / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    source = TextFiles(f"{tmp_path}/*", documents=documents)
    parts = in_parts(source, world_size)
    assert sorted(itertools.chain(*parts)) == sorted(source.read())
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for rank, whole in enumerate(parts):
        assert list(source.part(rank, world_size).read(3)) == whole[3:]


@pytest.mark.parametrize(("files", "each"), [(39, [39, 39]), (41, [21, 20])])
def test_enough_files_are_read_by_one_process_each(tmp_path, files, each):
    for number in range(files):
        (tmp_path / f"{number:02}.txt").write_text(f"{number} first\n{number} second")
    parts = in_parts(TextFiles(tmp_path), 2)
    assert [len({text[0][0] for text in part}) for part in parts] == each
    assert sum(map(len, parts)) == 2 * files


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("kind", ["list", "dataset", "stream of 1", "stream of 6", "shuffled stream of 6"])
def test_each_row_is_in_exactly_one_part(kind, world_size):
    dataset = datasets.Dataset.from_dict({"text": LINES})
    if "stream" in kind:
        dataset = dataset.to_iterable_dataset(num_shards=int(kind[-1]))
        dataset = dataset.shuffle(seed=3, buffer_size=7) if "shuffled" in kind else dataset
    source = DatasetTexts(LINES if kind == "list" else dataset)
    parts = in_parts(source, world_size)
    assert sorted(itertools.chain(*parts)) == sorted(source.read())
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    for rank, whole in enumerate(parts):
        assert list(source.part(rank, world_size).read(5)) == whole[5:]


def test_a_stream_with_shards_for_each_process_is_not_read_by_all():
    read = []

    def rows(shards):
        for shard in shards:
            read.append(shard)
            yield from ({"text": f"{shard} {number}"} for number in range(4))

    stream = datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": list(range(4))})
    assert len(list(DatasetTexts(stream).part(1, 2).read())) == 8
    assert len(read) == 2


@pytest.mark.parametrize("place", [0, -1])
def test_fingerprints_know_the_ends_of_a_text(tmp_path, place):
    rows = [f"text {number}" for number in range(1000)]
    changed = list(rows)
    changed[place] = "other 00"
    found = []
    for texts in (rows, changed):
        (tmp_path / "a.txt").write_text("\n".join(texts))
        found.append((TextFiles(tmp_path / "a.txt").fingerprint, DatasetTexts(texts).fingerprint))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_held_out_text_must_not_be_trained_on(files):
    (files / "link.txt").symlink_to(files / "a.txt")
    require_apart(TextFiles(files / "a.txt"), TextFiles(files / "b.txt"))
    with pytest.raises(ValueError, match="held_out"):
        require_apart(TextFiles(f"{files}/[abc].*"), TextFiles(files / "link.txt"))
    dataset = datasets.Dataset.from_dict({"text": LINES})
    with pytest.raises(ValueError, match="held_out"):
        require_apart(DatasetTexts(dataset), DatasetTexts(dataset))


def test_a_dictionary_of_datasets_is_refused():
    with pytest.raises(ValueError, match="texts"):
        open_texts(datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})}))
