"""The engine ray: files cut into shards, which workers write; a run resumes shard by shard."""

import json
import os

import numpy as np
import pytest

import hf_elmo_cli as cli
from hf_elmo import Embedder, embed
from hf_elmo.embedding.store import ShardStore
from hf_elmo.embedding.workers import ShardWorker, cut_shards

from ..factories import write_lines
from .helpers import close

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def ray():
    """Ray on two cores."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'ray[data]'")
    ray.init(num_cpus=2, include_dashboard=False, ignore_reinit_error=True, object_store_memory=100_000_000)
    yield ray
    ray.shutdown()


@pytest.fixture
def texts(tmp_path) -> dict[str, list[str]]:
    """Two files, and their rows."""
    rows = [f"the {'very ' * (n % 5)}tall tree number {n} fell" for n in range(120)]
    first = write_lines(tmp_path / "texts" / "a.txt", rows[:70])
    second = write_lines(tmp_path / "texts" / "b.jsonl", (json.dumps({"text": row}) for row in rows[70:]))
    return {str(first): rows[:70], str(second): rows[70:]}


def rows_of(output, path: str) -> list[np.ndarray]:
    table = parquet.read_table(sorted(output.glob("*.parquet")), filters=[("path", "=", path)]).sort_by("row")
    assert table["row"].to_pylist() == list(range(len(table)))
    return [np.array(row, np.float32) for row in table["embedding"].to_pylist()]


@pytest.mark.slow
def test_a_run_that_failed_computes_the_other_shards(ray, checkpoint, texts, tmp_path, capsys):
    bad = tmp_path / "texts" / "b.jsonl"
    good = bad.read_text()
    bad.write_text(good + "{\n")
    command = ["embed", str(tmp_path / "texts"), str(tmp_path / "out"), "--model", checkpoint, "--engine", "ray"]
    command += ["--workers", "2", "--shard-rows", "10", "--layers", "all", "--pooling", "mean"]
    assert cli.main(command) == 1
    assert "b.jsonl, line 51" in capsys.readouterr().err
    bad.write_text(good)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert cli.main(command) == 0
    assert "out: 120 rows, " in capsys.readouterr().out
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert (len(after), before.items() <= after.items()) == (12, True)
    for path, rows in texts.items():
        close(rows_of(tmp_path / "out", path), embed(checkpoint, rows, layers="all", pooling="mean"), 1e-5)
    assert cli.main(command) == 1
    assert "--overwrite" in capsys.readouterr().err


def test_a_folder_of_shards_is_one_table(checkpoint, texts, tmp_path):
    reading = {"file_format": None, "text_column": None, "encoding": "utf-8"}
    store, (path, rows) = ShardStore(tmp_path / "out", ".parquet"), next(iter(texts.items()))
    with store.opened({}):
        for shard in cut_shards(path, reading, 30):
            ShardWorker(Embedder(checkpoint), store)(shard)
        store.finish(rows=70)
    names = store.names()
    close(rows_of(tmp_path / "out", path), embed(checkpoint, rows), 1e-5)
    assert parquet.read_schema(tmp_path / "out" / names[0]).names == ["path", "row", "words", "embedding"]
    write_lines(tmp_path / "texts" / "a.txt", [*rows[:40], "changed", *rows[41:]])
    changed = [f"{shard['name']}.parquet" for shard in cut_shards(path, reading, 30)]
    assert [one == other for one, other in zip(names, changed, strict=True)] == [True, False, True]
