"""Files cut into shards, and the folder of shards: what is there is whole, what is missing or changed is computed."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from hf_elmo import ElmoTokenizer, Embedder, embed
from hf_elmo.embedding import shards as module
from hf_elmo.embedding.on_ray import ShardWorker
from hf_elmo.embedding.shards import MANIFEST, SHARD_FILE, ShardFolder, ShardReader, find_files, require_outside

from .helpers import ROWS, close, initial_model

parquet = pytest.importorskip("pyarrow.parquet")
READING = {"file_format": None, "text_column": None, "encoding": "utf-8"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, model) -> str:
    folder = tmp_path_factory.mktemp("shards") / "checkpoint"
    model.save_pretrained(folder)
    ElmoTokenizer("whitespace").save_pretrained(folder)
    return str(folder)


@pytest.fixture
def texts(tmp_path) -> dict[str, list]:
    """Files of every format, in a folder and below it; the rows of each."""
    folder = tmp_path / "texts"
    (folder / "more").mkdir(parents=True)
    (folder / "a.txt").write_text("".join(f"{row}\n" for row in ROWS), encoding="utf-8")
    with gzip.open(folder / "b.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": n, "text": row}) + "\n" for n, row in enumerate(ROWS))
    words = [["New York", "isn't"], [], ["big"]]
    (folder / "more" / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in words))
    (folder / "more" / "d.csv").write_text('id,text\n1,"a, b"\n2,c\n')
    parquet.write_table(module.import_pyarrow("").table({"text": ["x y", None, "z"]}), folder / "e.parquet")
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.txt").write_text("no\n")
    rows = {"a.txt": ROWS, "b.jsonl.gz": ROWS, "e.parquet": ["x y", "", "z"]}
    rows |= {"more/c.jsonl": words, "more/d.csv": ["a, b", "c"]}
    return {str(folder / name): value for name, value in rows.items()}


def run(
    embedder: Embedder, inputs, output, shard_rows: int = 3, restart=False, overwrite=False, manifest="m"
) -> list[str]:
    """What the engine does, in this process; the names of the files of shards that it computed."""
    reader = ShardReader(*find_files(inputs, ShardFolder.at(output)), READING, 3)
    with ShardFolder.at(output).prepared({"settings": manifest}, overwrite, restart) as folder:
        worker, done, counts, computed = ShardWorker(embedder, folder), folder.done(), {}, []
        for path in reader.paths:
            for shard in reader.shards(path):
                rows = [] if shard.name in done else [json.dumps(row) for row in shard.rows]
                computed += [folder.file_of(shard.name)] if rows else []
                report = worker({"name": shard.name, "path": shard.path, "first": shard.first, "rows": rows})
                counts[report["name"]] = report["rows"], report["words"]
        folder.finish(counts)
    return computed


def rows_of(file: str) -> str:
    """The name of a shard's file without its settings."""
    return file.rpartition("-")[0]


def read(output) -> dict[str, list[tuple[int, list[str], np.ndarray]]]:
    """The rows of each file, with their numbers and words."""
    table = parquet.read_table(sorted(output.glob("*.parquet"))).to_pylist()
    found = {}
    for row in sorted(table, key=lambda row: row["row"]):
        values = np.array(row["embedding"], np.float32).reshape(len(row["words"]), 22)
        found.setdefault(row["path"], []).append((row["row"], row["words"], values))
    return found


def test_every_row_of_every_file_is_in_one_shard(checkpoint, texts, tmp_path):
    embedder = Embedder(checkpoint)
    assert len(run(embedder, tmp_path / "texts", tmp_path / "out")) == 9
    found = read(tmp_path / "out")
    assert set(found) == set(texts)
    for path, rows in texts.items():
        numbers, words, arrays = zip(*found[path], strict=True)
        assert list(numbers) == list(range(len(rows)))
        assert list(words) == [row if isinstance(row, list) else row.split() for row in rows]
        close(arrays, embed(checkpoint, rows))
    table = parquet.read_table(next((tmp_path / "out").glob("a.txt-*-000000-*.parquet")))
    assert table.column_names == ["path", "row", "words", "embedding"]
    assert str(table.schema.field("embedding").type) == "list<element: fixed_size_list<element: float>[22]>"


def test_a_second_run_computes_what_is_missing_or_changed(checkpoint, texts, tmp_path):
    embedder, output = Embedder(checkpoint), tmp_path / "out"
    first = run(embedder, tmp_path / "texts", output)
    finished = json.loads((output / MANIFEST).read_text())
    assert finished["finished"] == {
        "shards": 9,
        "rows": 26,
        "words": sum(len(row[1]) for rows in read(output).values() for row in rows),
    }
    wanted = read(output)
    with pytest.raises(FileExistsError, match="exists; choose another name, or overwrite=True"):
        run(embedder, tmp_path / "texts", output)
    # As if it had been interrupted: without its end, one shard, and another whose writing was cut off.
    (output / MANIFEST).write_text(json.dumps({"settings": "m"}))
    (output / first[4]).unlink()
    (output / f".{first[4]}.{'0' * 32}").write_bytes(b"PAR1")
    before = {path.name: path.stat().st_mtime_ns for path in output.glob("*.parquet")}
    assert run(embedder, tmp_path / "texts", output) == [first[4]]
    after = {path.name: path.stat().st_mtime_ns for path in output.glob("*.parquet")}
    assert {name: after[name] for name in before} == before
    assert [path.name for path in output.glob(".*")] == [MANIFEST]
    assert [path for path in wanted if str(wanted[path]) != str(read(output)[path])] == []
    # A file that changed after its first shard, and a new one.
    (output / MANIFEST).write_text(json.dumps({"settings": "m"}))
    lines = [*ROWS[:3], "changed", *ROWS[4:]]
    (tmp_path / "texts" / "a.txt").write_text("".join(f"{row}\n" for row in lines), encoding="utf-8")
    (tmp_path / "texts" / "new.txt").write_text("new\n")
    computed = run(embedder, tmp_path / "texts", output)
    assert [name.split("-")[::2][:2] for name in computed] == [["a.txt", "000001"], ["new.txt", "000000"]]
    assert [row[1] for row in read(output)[str(tmp_path / "texts" / "a.txt")]] == [line.split() for line in lines]


def test_other_settings_are_refused(checkpoint, texts, tmp_path):
    embedder, output = Embedder(checkpoint), tmp_path / "out"
    first = run(embedder, tmp_path / "texts", output)
    (output / MANIFEST).write_text(json.dumps({"settings": "m"}))
    with pytest.raises(ValueError, match=r"interrupted run that differs: settings was 'm', now 'n'.*restart=True"):
        run(embedder, tmp_path / "texts", output, manifest="n")
    for options in ({"restart": True, "manifest": "n"}, {"overwrite": True, "manifest": "o"}):
        computed = run(embedder, tmp_path / "texts", output, **options)
        assert [rows_of(name) for name in computed] == [rows_of(name) for name in first]
        assert not {*computed} & {*first}
        assert sorted(path.name for path in output.glob("*")) == sorted([*computed, MANIFEST])


def test_what_is_no_output_of_ours_stays(checkpoint, texts, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / "thesis.parquet").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"has 'thesis\.parquet', which is no shard"):
        run(Embedder(checkpoint), tmp_path / "texts", output, overwrite=True, restart=True)
    assert (output / "thesis.parquet").read_text() == "years of work"
    with pytest.raises(ValueError, match="is in the input's folder"):
        require_outside(ShardFolder.at(tmp_path / "texts" / "out"), tmp_path / "texts")
    require_outside(ShardFolder.at(tmp_path / "texts_out"), tmp_path / "texts")


def test_a_worker_that_outlived_its_run_adds_nothing_to_the_next(tmp_path):
    for seed, name in enumerate("ab"):
        model = initial_model(seed, num_hidden_layers=3)
        model.save_pretrained(tmp_path / name)
        ElmoTokenizer().save_pretrained(tmp_path / name)
    a, b = Embedder(tmp_path / "a"), Embedder(tmp_path / "b")
    (tmp_path / "in.txt").write_text("a b c\nd e\nf\n")
    reader = ShardReader(*find_files(tmp_path / "in.txt"), READING, 1)
    shards, output = list(reader.shards(reader.paths[0])), ShardFolder.at(tmp_path / "out")
    with output.prepared({"model": "a"}, False, False) as folder:  # its driver is lost here, and a worker works on
        folder.put(shards[0], a.embed(shards[0].rows))
    with output.prepared({"model": "b"}, False, True) as mine:
        with pytest.raises(RuntimeError, match="is another run's by now, or finished"):
            folder.put(shards[1], a.embed(shards[1].rows))
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".lock", MANIFEST]
        # One that was looked for before, and gets its name only now, counts for nobody.
        (tmp_path / "out" / folder.file_of(shards[1].name)).write_bytes(b"PAR1")
        assert mine.done() == frozenset()
        for shard in shards:
            mine.put(shard, b.embed(shard.rows))
        mine.finish({shard.name: mine.count(shard.name) for shard in shards})
        with pytest.raises(RuntimeError, match="is another run's by now, or finished"):
            mine.put(shards[1], b.embed(shards[1].rows))
    assert len(list((tmp_path / "out").iterdir())) == 4
    found = read(tmp_path / "out")[str(tmp_path / "in.txt")]
    close([values for _, _, values in found], embed(tmp_path / "b", ["a b c", "d e", "f"]))


HOLD = """
import sys, time
from hf_elmo.embedding.shards import ShardFolder
with ShardFolder.at(sys.argv[1]).prepared({"settings": "m"}, False, False):
    print("held", flush=True)
    time.sleep(600)
"""


def test_two_runs_of_a_folder_at_a_time_are_refused_and_a_killed_one_leaves_it_free(checkpoint, texts, tmp_path):
    pytest.importorskip("fcntl")
    output, embedder = tmp_path / "out", Embedder(checkpoint)
    with subprocess.Popen([sys.executable, "-c", HOLD, output], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "held\n"
            draft = output / f".a.txt.{'0' * 32}"
            draft.write_bytes(b"PAR1")  # of one of its workers
            for restart in (False, True):
                with pytest.raises(BlockingIOError, match=rf"out' is being written by process {other.pid} on "):
                    run(embedder, tmp_path / "texts", output, restart=restart)
            assert draft.exists()
        finally:
            other.kill()
    assert (output / ".lock").exists()
    assert len(run(embedder, tmp_path / "texts", output)) == 9
    assert [path.name for path in output.glob(".*")] == [MANIFEST]


def test_a_file_system_without_locks_is_warned_of(checkpoint, texts, tmp_path, caplog):
    from pyarrow import fs

    with ShardFolder(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "out").prepared({}, False, False):
        assert (tmp_path / "out" / MANIFEST).exists()
    assert "out cannot be locked (a file system of pyarrow's type subtree): start no other run" in caplog.text


def test_readers_of_parquet_take_the_folder_as_one_table(checkpoint, texts, tmp_path):
    output, rows = tmp_path / "out", sum(map(len, texts.values()))
    run(Embedder(checkpoint), tmp_path / "texts", output)
    (output / ".lock").touch()  # of a run that works on it, or was killed
    columns = ["path", "row", "words", "embedding"]
    table = parquet.read_table(output)
    assert (table.num_rows, table.column_names) == (rows, columns)
    frame = pytest.importorskip("pandas").read_parquet(output)
    assert (len(frame), list(frame)) == (rows, columns)
    datasets = pytest.importorskip("datasets")
    for how in ({"path": "parquet", "data_dir": str(output)}, {"path": str(output)}):
        dataset = datasets.load_dataset(**how, split="train", cache_dir=str(tmp_path / "cache"))
        assert (len(dataset), dataset.column_names) == (rows, columns)


def test_folders_of_before_are_kept_or_refused(checkpoint, texts, tmp_path):
    output, embedder = tmp_path / "out", Embedder(checkpoint)
    first = run(embedder, tmp_path / "texts", output)
    old = [f"{rows_of(name)}.parquet" for name in first]
    for name, now in zip(first, old, strict=True):
        (output / name).rename(output / now)
    (output / MANIFEST).rename(output / "manifest.json")
    with pytest.raises(FileExistsError, match="exists; choose another name, or overwrite=True"):
        run(embedder, tmp_path / "texts", output)
    (output / "manifest.json").write_text(json.dumps({"settings": "m"}))
    with pytest.raises(ValueError, match=r"do not tell its settings, as an earlier hf_elmo wrote them.*restart=True"):
        run(embedder, tmp_path / "texts", output)
    assert sorted(path.name for path in output.iterdir()) == sorted([*old, "manifest.json"])
    assert run(embedder, tmp_path / "texts", output, restart=True) == first
    assert sorted(path.name for path in output.iterdir()) == sorted([*first, MANIFEST])


def test_a_damaged_or_lost_shard_is_named(checkpoint, texts, tmp_path):
    embedder, output = Embedder(checkpoint), tmp_path / "out"
    first = run(embedder, tmp_path / "texts", output)
    (output / MANIFEST).write_text(json.dumps({"settings": "m"}))
    data = (output / first[2]).read_bytes()
    (output / first[2]).write_bytes(data[:-9])
    with pytest.raises(ValueError, match=f"{first[2]} is damaged"):
        run(embedder, tmp_path / "texts", output)
    (output / first[2]).unlink()
    with (
        pytest.raises(FileNotFoundError, match=f"has lost '{first[2]}'"),
        ShardFolder.at(output).prepared({"settings": "m"}, False, False) as folder,
    ):
        folder.finish({rows_of(name): (1, 1) for name in first})


def test_the_same_rows_make_the_same_shards(texts, tmp_path):
    reader = ShardReader(*find_files(tmp_path / "texts"), READING, 4)
    once, again = ([shard for path in reader.paths for shard in reader.shards(path)] for _ in range(2))
    assert once == again
    assert all(SHARD_FILE.fullmatch(f"{shard.name}-0123456789ab.parquet") for shard in once)
    assert len({shard.name for shard in once}) == len(once)
    assert [(shard.first, len(shard.rows)) for shard in once if shard.path.endswith("a.txt")] == [
        (0, 4),
        (4, 4),
        (8, 1),
    ]


def test_long_rows_make_short_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD_CHARACTERS", 10)
    (tmp_path / "long.jsonl").write_text('"123456789"\n"a"\n["1234567890123"]\n"b"\n')
    reader = ShardReader(*find_files(tmp_path / "long.jsonl"), READING, 1000)
    assert [shard.rows for shard in reader.shards(reader.paths[0])] == [["123456789", "a"], [["1234567890123"]], ["b"]]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("texts", ["a.txt", "b.jsonl.gz", "e.parquet", "more/c.jsonl", "more/d.csv"]),
        ("texts/a.txt", ["a.txt"]),
        ("texts/*.txt", ["a.txt"]),
        ("texts/*/*", ["more/c.jsonl", "more/d.csv"]),
        ("texts/[ab].*", ["a.txt", "b.jsonl.gz"]),
        ("**/*.jsonl*", ["b.jsonl.gz", "more/c.jsonl"]),
        ("texts/**/*.[cj]s*", ["b.jsonl.gz", "more/c.jsonl", "more/d.csv"]),
        ("texts/**/more/**/d.csv", ["more/d.csv"]),
        ("texts/**", ["a.txt", "b.jsonl.gz", "e.parquet", "more/c.jsonl", "more/d.csv"]),
    ],
)
def test_files_folders_and_patterns(texts, tmp_path, pattern, names, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (pattern, tmp_path / pattern, (tmp_path / pattern).as_uri().replace("%2A", "*")):
        if "[" in pattern and "file:" in str(given):
            continue
        filesystem, paths = find_files(given)
        assert paths == [str(tmp_path / "texts" / name) for name in names]
        assert filesystem.type_name == "local"


@pytest.mark.parametrize("pattern", ["texts", "texts/**/*.txt"])
def test_a_link_to_nothing_is_named(texts, tmp_path, pattern):
    (tmp_path / "texts" / "more" / "lost.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"lost\.txt' is a link to nothing"):
        find_files(tmp_path / pattern)


def test_a_pattern_that_matches_the_output_reads_no_shard_of_it(checkpoint, texts, tmp_path):
    (tmp_path / "texts" / "more" / "f.parquet").write_bytes((tmp_path / "texts" / "e.parquet").read_bytes())
    embedder, pattern, output = Embedder(checkpoint), tmp_path / "texts" / "*" / "*.parquet", tmp_path / "texts" / "out"
    first = run(embedder, pattern, output)
    assert len(first) == 1
    (output / module.MANIFEST).write_text('{"settings": "m"}')  # as an interrupted run leaves it
    assert run(embedder, pattern, output) == []
    assert read(output).keys() == {str(tmp_path / "texts" / "more" / "f.parquet")}


def test_a_name_with_a_bracket_is_a_file_first(tmp_path):
    (tmp_path / "a[1].txt").write_text("x\n")
    assert find_files(tmp_path / "a[1].txt")[1] == [str(tmp_path / "a[1].txt")]


@pytest.mark.parametrize("name", ["nothing", "texts/*.doc", "nothing/*.txt"])
def test_no_files(texts, tmp_path, name):
    with pytest.raises(FileNotFoundError, match="there is no such file, and no file in such a folder"):
        find_files(tmp_path / name)


def test_formats_that_are_refused_before_the_work(tmp_path):
    (tmp_path / "a.fasta").write_text(">x\nAC\n")
    with pytest.raises(ValueError, match=r"a\.fasta is FASTA"):
        ShardReader(*find_files(tmp_path), READING, 5)
    os.rename(tmp_path / "a.fasta", tmp_path / "a.doc")
    with pytest.raises(ValueError, match=r"unknown ending '\.doc'"):
        ShardReader(*find_files(tmp_path), READING, 5)


def test_a_number_that_float16_has_not_is_named_by_its_row_in_the_file(tmp_path):
    model = initial_model(layer_weights=0)
    with torch.no_grad():
        model.char_encoder.embedding.weight[ord("#") + 1] *= 1e7
    model.save_pretrained(tmp_path / "model")
    ElmoTokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "in.txt").write_text("a\nb\nc\nd\n#\n")
    with pytest.raises(ValueError, match=r"in\.txt, row 4 \(counted from 0\) has numbers over 65504"):
        run(Embedder(tmp_path / "model", output_dtype="float16"), tmp_path / "in.txt", tmp_path / "out")


def test_a_malformed_row_is_named(checkpoint, tmp_path):
    (tmp_path / "in.jsonl").write_text('"a"\n{"b": 1, "c": 2}\n')
    with pytest.raises(ValueError, match=r"in\.jsonl, line 2: which column holds the text"):
        run(Embedder(checkpoint), tmp_path / "in.jsonl", tmp_path / "out")
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress("ü\n".encode("latin-1")))
    with pytest.raises(ValueError, match=r"in\.txt\.gz, line 1: not utf-8"):
        run(Embedder(checkpoint), tmp_path / "in.txt.gz", tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_rows_of_shards_of_other_lengths_are_numbered_over_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD_CHARACTERS", 10)
    (tmp_path / "a.txt").write_text("a\n" + "long " * 4 + "\nb\nc\nd\ne\n")
    filesystem, paths = find_files(tmp_path / "a.txt")
    shards = list(ShardReader(filesystem, paths, READING, 3).shards(paths[0]))
    assert [(shard.first, len(shard.rows)) for shard in shards] == [(0, 2), (2, 3), (5, 1)]
