"""Reading text: lines, rows of every format, and `pretokenized=True`, which means the same everywhere."""

import bz2
import gzip
import lzma
import os
import re
import shutil
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from io import StringIO
from itertools import chain
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
from hf_elmo.reading.files import find_files, read_lines, require_apart
from hf_elmo.reading.rows import Rows, check_row
from hf_elmo_cli import main
from tests.factories import save_checkpoint, small_language_model, small_model, small_tokenizer, write_lines
from tests.pretraining.conftest import CONFIG

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
COMPRESS[".zst"] = lambda data: pyarrow.compress(data, "zstd", asbytes=True)
ROWS = ["The cat sat .", "", 'Said "no", twice', "Ünïcödé 日本語 😀", "NA", "last , row"]
CONLLU = "# sent_id = 1\n1\tVamos\tir\n2-3\tal\t_\n2\ta\ta\n3\tel\tel\n3.1\t_\t_\n4\tMar Muerto\t_\n"
CONLLU += "\n# sent_id = 2\n1\tNo\tno\n2\t!\t!\n"
SPANISH = [["Vamos", "a", "el", "Mar Muerto"], ["No", "!"]]
CONLL2012 = "#begin document (a); part 000\n\na 0 0 He PRP * *\na 0 1 ran VBD (V*) *\n\n#end document\n"
COLUMN = {"text_column": 1}
# Files as they are found, each with the options to read it, and its rows, by default the lines, or what says why it is
# refused. The first ones may be of another format, and are text.
FILES = {
    "contents": ("Chapter One\t1\nChapter Two\t1\nChapter Three\t19", {}, None),
    "code": ("import os\nimport re\n\nint main ( )\n{\n}", {}, None),
    "subtitles": ("1\n00:00:01,000 --> 00:00:02,000\nOh .\n\n2\n00:00:03,000 --> 00:00:04,000\nOh .", {}, None),
    "chat": ("<ann> hi\n<bob> hi\n<ann> bye", {}, None),
    "PubTator": ("1|t|A title\n1|a|Text .\n1\t2\t7\ttitle\tX\tD1", {}, None),
    "i2b2": ('c="pneumonia" 12:3 12:3||t="problem"', {}, None),
    "trees": ("( (S \n (NP (PRP It)) (VP (VBZ is))))", {}, None),
    "CoNLL-2012": ("bc/a 0 0 He PRP * - - - - * (0)\nbc/a 0 1 ran VBD * - - - - * (V*) -", {}, None),
    "tagged": ("Well/UH ,/, no/UH ./.", {}, None),
    "vertical": ("Barco_N\nrojo_A", {}, None),
    "BOM and CRLF.txt": ("\ufeffa b\r\n\r\nc\r\n", {}, ["a b", "", "c"]),
    "a BOM alone.txt": ("\ufeff", {}, []),
    "latin.txt": (b"good\nna\xefve\n", {"encoding": "latin-1"}, ["good", "naïve"]),
    "bytes after many lines.txt": (b"good\n" * 5000 + b"na\xefve\n", {}, "line 5001: .*encoding="),
    "empty.txt": ("", {}, []),
    "no text.txt": ("\n \n", {}, ["", " "]),
    "a.TXT": ("a b\n", {}, ["a b"]),
    "wiki.train.tokens": ("a b\n", {}, ["a b"]),
    "esp.train": ("a b\n", {}, "esp.train.* ends in .train.*input_format='text'"),
    "text of words.train": ("a b\n", {"input_format": "text"}, ["a b"]),
    "labels.txt": ("a b\t0\n", COLUMN, "labels.txt.* is read as text.*input_format"),
    "labels of columns.txt": ("0\ta b\n1\tc\n", {**COLUMN, "input_format": "tsv"}, ["a b", "c"]),
    "columns.txt": ("a b\t0\n", {}, "line 1.*input_format='tsv'"),
    "tabs.csv": ("id\ttext\n1\ta\n", {}, "line 1.*input_format='tsv'"),
    "eng.txt": ("-DOCSTART- -X- O\n\nHe PRP O\n", {}, "line 1.*input_format='conll'"),
    "columns.tsv": ("1\tHe" + "\t_" * 8 + "\n", {}, "line 1.*input_format='conll'"),
    "proteins.txt": (">P1\nMKV\n", {}, "line 1.*input_format='fasta'"),
    "records.txt": ('{"text": "a"}\n', {}, "line 1.*input_format='jsonl'"),
    "pretty records.txt": ('[\n  {"text": "a"}\n]\n', {}, "line 1.*input_format='jsonl'"),
    "wiki_00": ('<doc id="1" url="a?b" title="A">\nA\n', {}, "line 1.*extract its text"),
    "two blanks.txt": ("\nEU  B-ORG\nrejects O\n", {}, "line 2.*input_format='conll'"),
    "lower case and underscores.txt": ("eu b_org\nrejects o\n", {}, "line 1.*input_format='conll'"),
    "parts of speech.txt": ("It PRP\nis VBZ\nhere RB\n. .\n", {}, "line 1.*input_format='conll'"),
    "tweets.txt": ("I\tO\npredict\tV\nI\tO\nwon't\tV\n", {}, "line 1.*input_format='conll'"),
    "no markup.txt": ("<s> (S (see\n(A (b)) 9 0:9 a\n<user> b\n", {}, ["<s> (S (see", "(A (b)) 9 0:9 a", "<user> b"]),
    "quotes.txt": ('[ " tokenized " ]\n{ " text " }\n', {}, ['[ " tokenized " ]', '{ " text " }']),
    "hipe.tsv": ("TOKEN\tNE-COARSE-LIT\n# a = b\nHe\tO\n", {}, "line 1.*input_format='conll'"),
    "quotes.tsv": ('text\n"open\n\nshut"\n', {}, ['"open', "", 'shut"']),
    "quotes of pandas.tsv": ('text\n"a ""b"" c"\n"""d"""\n"e"\n"" f ""\n', {}, ['a "b" c', '"d"', '"e"', '"" f ""']),
    "all quoted.tsv": ('"title"\t"text"\n"1"\t"a\tb"\n"2"\t"""c"""\n', {}, ["a\tb", '"c"']),
    "breaks of pandas.tsv": ('text\tn\n"a\nb"\t1\n"c\t2\n', {}, "line 4"),
    "breaks in quotes.tsv": ('text\tn\n"a\nb"\t1\nc\t2\n', {}, ["a\nb", "c"]),
    "speech.tsv": ('"Yes," he said, "no."\n', {"text_column": 0}, ['"Yes," he said, "no."']),
    "a tab at the end.tsv": ('text\tn\n"a\t1\nb\t2\t\n', {}, ['"a', "b"]),
    "a number and semicolons.csv": ("1;a b\n2;c\n", {"text_column": 0}, "line 1.*'1;a b'"),
    "entities.csv": ("R&amp;D; a\n", {"text_column": 0}, ["R&amp;D; a"]),
    "quotes.csv": ('a,text\n1,"two\nlines, ""x"""\n\n2,007\n', {}, ['two\nlines, "x"', "007"]),
    "no header.csv": ('\nham,"two\nlines"\n\nspam,007\n', COLUMN, ["two\nlines", "007"]),
    "a number and names.csv": ("Id,Text\n1,a b\n", COLUMN, ["a b"]),
    "a negative number.tsv": ("1\ta b\n2\tc\n", {"text_column": -1}, ["a b", "c"]),
    "numbers of pandas.csv": (",0\n0,first\n1,second\n", {"text_column": 0}, ["first", "second"]),
    "years.csv": ("id,2018\n0,first\n", {"text_column": 2018}, ["first"]),
    "latin.csv": (b"text\ncaf\xe9\n", {"encoding": "cp1252"}, ["café"]),
    "open quote.csv": ('a,text\n1,one\n2,"two\n3,three\n', {}, "line 3 to 4.*quote"),
    "ragged.csv": ("id,text\n1,a\n2\n", {}, "line 3.*2 columns"),
    "commas.tsv": ("id,text\n1,a b\n", {}, "line 1.*'id,text'"),
    "semicolons.csv": ("id;text\n1;a b\n", {}, "line 1.*'id;text'"),
    "article.csv": ("word " * 600 + "\n", {}, "^.{0,400}$"),
    "pair.csv": ("text,body\n1,a\n", {"columns": ("x",), "pairs": True}, "x must be one"),
    "lists.jsonl": ('{"sentence": "a"}\n"c\\ud83d"\n\n["New York", ""]\n', {}, ["a", "c", ["New York", ""]]),
    "a.json": ('["A text.", "Another."]\n', {}, r"a\.json.*\.jsonl"),
    "columns.json": ('{"text": ["Boats leak.", "Rain fell."]}\n', {}, r"columns\.json.*\.jsonl"),
    "pretty.jsonl": ('{\n "text": "a"\n}\n', {}, r"line 1, .*\.jsonl"),
    "lines.json": ('{"tokens": ["a", "b"]}\n{"tokens": ["c"]}\n', {}, [["a", "b"], ["c"]]),
    "other keys.jsonl": ('{"text": "a"}\n{"b": 1}\n', {}, r"row 1 \(from 0\)"),
    "cut.jsonl": ('"a"\n\n{"text": "b"\n', {}, "line 3, column 13"),
    "letters first.fasta": ("MKV\n>P1\nMKV\n", {}, "line 1"),
    "ranges and empty nodes.conllu": (CONLLU, {}, SPANISH),
    "lemmas.conllu": (CONLLU, {"text_column": 2}, [["ir", "a", "el", "_"], ["no", "!"]]),
    "conll without its ending.data": (CONLLU, {"input_format": "conll"}, SPANISH),
    "a.v4_gold_conll": (CONLL2012, {}, [["He", "ran"]]),
    "comments.iob2": ("# id 1\ta=b\nHe _ O\n#a note\n\n# id 2\ta=b\n\n# _ O\n1 _ O\n", {}, [["He"], ["#", "1"]]),
    "comments beside tabs.conll": ("# b\nHe\tO\n# c\n#\tO\n\n# d\n\n# e\nran\tO\n", {}, [["He", "#"], ["ran"]]),
    "license.conll": ("# by me\n# CC BY\n\nHe O\n", {}, [["He"]]),
    "a number first.conll": ("0 CD O\n1 CD O\n\nThe DT O\n", {}, [["0", "1"], ["The"]]),
    "an odd number.conll": ("1 a O\n\n1 b O\n\n1a c O\n", {}, [["a"], ["b"], ["c"]]),
    "tagged at the end.txt": ("I send an E-mail\nIs it read?\n", {}, ["I send an E-mail", "Is it read?"]),
    "sharps.conll": ("# # I-NP\n3 CD I-NP\n", {}, [["#", "3"]]),
    "offsets.conll": ("He 0 2 O\nran 3 6 O\n", {}, [["He", "ran"]]),
    "one column.conll": ("He\n#\n\n7\n", {}, [["He", "#"], ["7"]]),
    "hebrew.bmes": ("a S-x\nb\xa0c O\r\n\r\nd O\n", {}, [["a", "b\xa0c"], ["d"]]),
    "header.conll": ("TOKEN\tNE-COARSE-LIT\n# hipe:id = 1\nHe\tO\n", {}, [["He"]]),
    "no header.conll": ("Word NOUN\nToken NOUN\n", {}, [["Word", "Token"]]),
    "a tab at the end.conll": ("a\tO\nb\tO\t\n\nc\tO\t\n", {}, [["a", "b"], ["c"]]),
    "a blank.conll": ("a\tO\n \tO\nb\tO\n", {}, [["a", " ", "b"]]),
    "blanks for tabs.conllu": ("1    We    we    PRON\n2    ran\trun    VERB\n", {}, [["We", "ran"]]),
    "atis.conll": ("BOS cheap seats EOS\tO B-cost O O\n", {}, "line 1"),
    "atis with its intent.conll": ("BOS cheap seats EOS\tO B-cost O O flight\n", {}, "line 1"),
    "spacy.iob": ("We|O visited|O\n", {}, "line 1"),
    "webanno.conll": ("#Text=Foo a\n1-1\t0-3\tFoo\t_\n1-1.1\t0-1\tF\t_\n1-2\t4-5\ta\t_\n", {}, [["Foo", "a"]]),
    "webanno 2.conll": ("1-1\tFoo\t_\n1-2\ta\t_\n\n2-1\tb\t_\n", {}, [["Foo", "a"], ["b"]]),
    "named entities.conll": ("word named_entity\nHe O\n", {}, [["He"]]),
    "kaggle.conll": ("Sentence Word POS Tag\n1 He PRP O\n2 ran VBD O\n", {"text_column": 1}, [["He", "ran"]]),
    "korean.conll": ("; a b c d\n$a b\n1\ta\tx\n2\tb\ty\n", {}, "line 1.*3 columns"),
    "a.parquet": ("", {}, "damaged"),
    "empty word.conll": ("a\tO\n\tO\n", {}, "line 2"),
}
READ_BY_ALL = ["labels of columns.txt", "numbers of pandas.csv", "ranges and empty nodes.conllu", "labels.txt"]
READ_BY_ALL += ["open quote.csv", "korean.conll", "esp.train"]
# Of each command its arguments, and the words in what it wrote or in what it printed.
COMMANDS = {
    "embed": ("IN out.parquet", lambda _: {*chain(*pyarrow.parquet.read_table("out.parquet")["words"].to_pylist())}),
    "predict": ("IN out.jsonl", lambda _: {*chain(*pandas.read_json("out.jsonl", lines=True)["words"])}),
    "neighbors": ("zebra zebra IN --any-word --top=99", lambda out: {*re.findall(r"(?m)^layer 0 +\S+ +(.*)$", out)}),
    "vocab": ("IN words.txt", lambda _: {*Path("words.txt").read_text("utf-8").splitlines()[3:]}),
    "pretrain": (
        "IN out --steps=1 --batch-size=1 --window=1 --set=use_cpu=true",
        lambda _: {*Path("out/vocab.txt").read_text("utf-8").splitlines()[3:]},
    ),
    "perplexity": ("IN", lambda out: int(re.search(r"(\d+) words", out)[1])),
}
ENCODED = Dataset.from_dict({"input_ids": [[[1] * 50]]})
WRITERS = {
    "embed": lambda out: hf_elmo.embed(None, ["a"], f"{out}.npz"),
    "pretrain": lambda out: hf_elmo.pretrain(["a"], out),
    "store_layers": lambda out: store_layers(small_model(ElmoForTokenClassification), ENCODED, folder=out),
    "vocab": lambda out: main(["--traceback", "vocab", "-", str(out)]),
    "convert": lambda out: convert("a.zip", Path(out)),
}
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


@pytest.mark.parametrize("ending", COMPRESS)
def test_lines_of_plain_and_compressed_files(tmp_path, ending):
    path, compress = tmp_path / f"a.txt{ending}", COMPRESS[ending]
    path.write_bytes(compress(b"\xef\xbb\xbf" + "ü\n\ufeffb\r\nc\u2028d\n\nlast".encode()))
    for encoding in ("utf-8", "UTF8", "utf_8"):
        assert list(read_lines(path, encoding)) == ["ü\n", "\ufeffb\n", "c\u2028d\n", "\n", "last"]
    assert list(read_lines(path, newline=""))[1] == "\ufeffb\r\n"
    if ending:  # as an interrupted download leaves it
        data = compress(str([*range(9999)]).encode())
        for path, length in ((tmp_path / f"b.txt{ending}", len(data) // 2), (tmp_path / f"b.csv{ending}", 0)):
            path.write_bytes(data[:length])
            with pytest.raises(ValueError, match=re.escape(f"{path.name} is incomplete")):
                list(Rows(path))


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


def test_lists_of_words_fields_of_any_length_and_names_of_sequences(tmp_path):
    many = [["a", "b"], []] * 600  # more than are read at a time
    pyarrow.parquet.write_table(pyarrow.table({"words": many}), tmp_path / "a.parquet", row_group_size=500)
    assert list(Rows(tmp_path / "a.parquet")) == many
    (tmp_path / "a.csv").write_text("text,label\n" + "word " * 500_000 + ",1\n")
    assert [len(row) for row in Rows(tmp_path / "a.csv")] == [2_500_000]
    (tmp_path / "a.fa").write_bytes(b">sp|P1 the first\nMKv\n  la\r\n>P2\r\nAC D\n\n>empty\n > P4\nw*")
    rows = list(Rows(tmp_path / "a.fa"))
    assert {row.name: row for row in rows} == {"sp|P1": [*"MKVLA"], "P2": [*"ACD"], "empty": [], "P4": [*"W*"]}


def test_a_second_column_gives_pairs(tmp_path):
    pairs, named = [("a b", "c"), ("", "hi"), ("d", "")], {"text_column": "a", "columns": ("b",), "pairs": True}
    numbered = {"text_column": 1, "columns": (0,), "pairs": True}
    for name, data, columns in (
        ("a.jsonl", '{"b": "c", "a": "a b"}\n{"b": "hi", "a": ""}\n{"b": "", "a": "d"}\n', named),
        ("a.csv", "b,a\nc,a b\nhi,\n,d\n", named),
        ("without a header.csv", "c,a b\nhi,\n,d\n", numbered),
        ("only the pair, named.csv", "b,text\nc,a b\nhi,\n,d\n", {"columns": (0,), "pairs": True}),
        ("only the pair.csv", "c,a b\nhi,\n,d\n", {"columns": (0,), "pairs": True}),
    ):
        (tmp_path / name).write_text(data)
        assert list(Rows(tmp_path / name, **columns)) == pairs
    pyarrow.parquet.write_table(pyarrow.table({"b": ["c"], "a": ["a b"], "id": [0]}), tmp_path / "b.parquet")
    for columns in (named, numbered):
        assert list(Rows(tmp_path / "b.parquet", **columns)) == pairs[:1]
    frame = pandas.DataFrame(pairs, columns=["a", "b"])
    assert list(Rows(frame.itertuples(index=False), pairs=True)) == pairs
    # The text is the only other column, and a pair may be a number.
    write_lines(tmp_path / "b.jsonl", ['{"a": "x", "n": 3}', '{"a": ["b", ""], "n": ["c"]}'])
    assert list(Rows(tmp_path / "b.jsonl", columns=("n",), pairs=True)) == [("x", 3), (["b", ""], ["c"])]


def test_rows_in_memory_are_those_of_a_file(tmp_path):
    frame = pandas.DataFrame({"text": ROWS, "label": 0}).iloc[::-1]
    column, dictionaries = frame["text"], frame.to_dict("records")
    for inputs in (column, column.to_numpy(), pyarrow.chunked_array([column]), map(str, column), dictionaries):
        rows = Rows(inputs)
        assert list(rows) == list(rows) == ROWS[::-1]
        assert list(zip(rows, rows, strict=True)) == list(zip(ROWS[::-1], ROWS[::-1], strict=True))
    dataset = Dataset.from_list(dictionaries)
    assert list(Rows(dataset)) == list(Rows(dataset.to_iterable_dataset(), text_column="text")) == ROWS[::-1]
    write_lines(tmp_path / "more" / "b.txt", ["b"])
    files = [write_lines(tmp_path / "more" / "a.txt", ["a"]), tmp_path / "more" / "b.txt"]
    assert list(Rows(files)) == list(Rows(tmp_path / "more")) == list(Rows(f"{tmp_path}/*/*.txt")) == ["a", "b"]
    for texts in ([".", "a"], ["https://t.co/a", "b"]):
        assert list(Rows(texts)) == texts
    for texts in (list(map(str, files)), [f"{tmp_path}/*/*.txt"], ["s3://bucket/a"], ["https://host/a.txt"]):
        with pytest.raises(ValueError, match=r"pathlib\.Path"):
            Rows(texts)


def write_file(folder: Path, name: str) -> Path:
    data = FILES[name][0]
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return folder / name


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_its_rows_or_is_refused_by_name(tmp_path, name):
    path, (text, options, expected) = write_file(tmp_path, name), FILES[name]
    expected = text.split("\n") if expected is None else expected
    zipped = path.with_name(f"{name}.gz")
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, zipped):
        if isinstance(expected, str):
            with pytest.raises((ValueError, TypeError), match=expected) as raised:
                list(Rows(file, **options))
            assert name in str(raised.value)
        else:
            assert list(Rows(file, **options)) == expected


def words_by(command: str, folder: Path, path: Path, options: list[str]) -> set[str] | int:
    """The words that a command reads (of `perplexity`, their number, boundaries included)."""
    arguments, read = COMMANDS[command]
    vocabulary = write_lines(folder / "vocab.txt", ["<S>", "</S>", "<UNK>", "a"])
    tokenizer = hf_elmo.ElmoTokenizer("whitespace", vocab_file=str(vocabulary))
    model = small_model(ElmoForTokenClassification) if command == "predict" else small_language_model(tokenizer)
    if command == "pretrain":
        options = [*options, *CONFIG]
    elif command != "vocab":
        options = [*options, "--model", str(save_checkpoint(folder / "model", model, tokenizer))]
    given = [str(path) if argument == "IN" else argument for argument in arguments.split()]
    with chdir(folder), redirect_stdout(StringIO()) as printed:
        main(["--traceback", command, *given, "--pretokenized", *options])
        return read(printed.getvalue())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_the_same(tmp_path, command, capsys):
    for number, name in enumerate(READ_BY_ALL):
        path, (_, options, expected) = write_file(tmp_path, name), FILES[name]
        given = [f"--{option.replace('_', '-')}={value}" for option, value in options.items()]
        folder = tmp_path / str(number)
        if isinstance(expected, str):
            with pytest.raises(ValueError, match=expected):
                words_by(command, folder, path, given)
            continue
        rows = [row.split() if isinstance(row, str) else row for row in expected]
        words = {word for row in rows for word in row}
        found = words_by(command, folder, path, given)
        form = options.get("input_format", {".csv": "csv", ".conllu": "conll"}.get(path.suffix))
        assert f"{path}: read as {form}, the first row is {rows[0]!s:.60}\n" in capsys.readouterr().err
        assert found == (sum(len(row) + 1 for row in rows) if command == "perplexity" else words), name


def test_no_command_writes_over_its_input(tmp_path, capsys):
    text, words = write_lines(tmp_path / "in" / "a.txt", ["a b"]), write_lines(tmp_path / "b.txt", ["a"])
    (tmp_path / "link.txt").symlink_to(text)
    parts = write_lines(tmp_path / "v.npz.parts" / "a.txt", ["a"]).parent
    model = str(save_checkpoint(tmp_path / "model", small_model(ElmoForTokenClassification)))
    for arguments in (
        ["embed", text, tmp_path / "link.txt", "--model", model],
        ["predict", text, text, "--model", model],
        ["vocab", text, tmp_path / "link.txt"],
        ["vocab", words, text],
        ["pretrain", text, text.parent],
        ["pretrain", text, model, "--init", model],
        ["embed", text.parent, text.parent / "new.npz", "--model", model],
        ["embed", parts / "a.txt", tmp_path / "v.npz", "--model", model],
        ["pretrain", text.parent, text.parent / "new"],
        ["pretrain", words, tmp_path / "new", "--held-out", text, "--vocab", words],
        ["pretrain", tmp_path / "in", tmp_path / "new", "--held-out", tmp_path / "link.txt"],
    ):
        before = text.read_bytes(), sorted(os.listdir(tmp_path / "model"))
        assert main([*map(str, arguments), "--overwrite"]) == 1
        assert re.search("is the input|is init|no vocabulary|must end in|remove it", capsys.readouterr().err)
        assert (text.read_bytes(), sorted(os.listdir(tmp_path / "model"))) == before
    for output in (tmp_path / "me" / "model", Path(".")):  # rows in memory and names on the Hub are no paths
        require_apart(output, {"the input": Rows(["a"]).places, "init": ["me/model"], "held_out": ["-"]})
    with pytest.raises(ValueError, match="held_out"):
        hf_elmo.pretrain(rows := ["a b"], tmp_path / "new", held_out=rows)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv", "a.conll", "a.fasta", "a.parquet"])
def test_a_pointer_of_git_lfs_is_refused(tmp_path, name):
    pointer = tmp_path / name
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    weights = shutil.copy(pointer, tmp_path / "model.hdf5")
    options = write_lines(tmp_path / "options.json", ["{}"])
    reads = [lambda: list(Rows(pointer)), lambda: hf_elmo.read_word_vectors(pointer)]
    reads += [lambda: convert(options, weights, tmp_path / "out"), lambda: convert(tmp_path, tmp_path / "out")]
    for read in reads:
        with pytest.raises(ValueError, match="git lfs pull"):
            read()


def test_a_folder_of_several_formats_is_told_by_format(tmp_path, capsys):
    for name, text in {"1.txt": "\n \n", "2.txt": "a b\n", "3.con": 'c="a"\n', "4.jsonl": '["c"]\n'}.items():
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    command = ["vocab", f"{tmp_path}/in", f"{tmp_path}/out.txt", "--word-splitting", "whitespace", "--overwrite"]
    folder = f"{tmp_path}/in/"
    lines = [f"2 files ({folder}1.txt, ...): read as text, the first row is ['a', 'b']"]
    lines += [f"{folder}3.con: read as text, the first row is ['c=\"a\"']"]
    lines += [f"{folder}4.jsonl: read as jsonl, the first row is ['c']"]
    assert main(command) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if "read as" in line] == lines
    assert main(["-q", *command]) == 0
    assert "read as" not in capsys.readouterr().err
    assert main(command[:-1]) == 1  # it is there already


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


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("out", ["s3://bucket/out", Path("hf://datasets/me/out")], ids=str)
def test_an_address_is_no_output(tmp_path, monkeypatch, write: Callable, out: object) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="address"):
        write(out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_words_of_text_that_is_tokenized_already(count: Callable[..., int], tmp_path) -> None:
    tokenizer, corpus = small_tokenizer(tmp_path), write_lines(tmp_path / "corpus.txt", [TEXT] * 9)
    model = small_language_model(tokenizer)
    assert count(model, corpus, tokenizer=tokenizer, pretokenized=True) == 3
    assert count(model, corpus, tokenizer=tokenizer) == 5
