"""The engine ray: files cut into shards, which workers write, though one is killed; a run resumes shard by shard."""

import json
import os
import signal

import numpy as np
import pytest

import hf_elmo_cli as cli
from hf_elmo import Embedder, embed
from hf_elmo.embedding import workers
from hf_elmo.embedding.store import ShardStore
from hf_elmo.embedding.workers import ShardWorker, cut_shards, embed_on_ray

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
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("".join(row + "\n" for row in rows[:70]))
    (tmp_path / "texts" / "b.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows[70:]))
    return {str(tmp_path / "texts" / "a.txt"): rows[:70], str(tmp_path / "texts" / "b.jsonl"): rows[70:]}


def rows_of(output, path: str) -> list[np.ndarray]:
    table = parquet.read_table(sorted(output.glob("*.parquet")), filters=[("path", "=", path)]).sort_by("row")
    assert table["row"].to_pylist() == list(range(len(table)))
    return [np.array(row, np.float32) for row in table["embedding"].to_pylist()]


@pytest.mark.slow
def test_two_workers_of_which_one_is_killed_write_what_one_process_does(ray, checkpoint, texts, tmp_path, monkeypatch):
    died = tmp_path / "died"

    class Fragile(ShardWorker):
        """Kills the first worker that comes to its third shard."""

        shards = 0

        def __call__(self, row):
            self.shards += 1
            if self.shards == 3 and not died.exists():
                died.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(row)

    monkeypatch.setattr(workers, "ShardWorker", Fragile)
    written = embed_on_ray(checkpoint, tmp_path / "texts", tmp_path / "out", workers=2, shard_rows=10)
    assert died.exists(), "nobody was killed: the test would prove too little"
    assert (written.rows, written.hidden_size, written.path) == (120, 22, tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 12
    for path, rows in texts.items():
        close(rows_of(tmp_path / "out", path), embed(checkpoint, rows), 1e-5)


@pytest.mark.slow
def test_a_run_that_failed_computes_the_other_shards(ray, checkpoint, texts, tmp_path, capsys):
    bad = tmp_path / "texts" / "b.jsonl"
    good = bad.read_text()
    bad.write_text(good + "{\n")
    command = ["embed", str(tmp_path / "texts"), str(tmp_path / "out"), "--model", checkpoint, "--engine", "ray"]
    command += ["--workers", "1", "--shard-rows", "10", "--layers", "all", "--pooling", "mean"]
    assert cli.main(command) == 1
    assert "b.jsonl, line 51" in capsys.readouterr().err
    bad.write_text(good)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert cli.main(command) == 0
    assert "out: 120 rows, " in capsys.readouterr().out
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert len(after) == 12
    assert {name: after[name] for name in before} == before
    for path, rows in texts.items():
        close(rows_of(tmp_path / "out", path), embed(checkpoint, rows, layers="all", pooling="mean"), 1e-5)
    assert cli.main(command) == 1
    assert "--overwrite" in capsys.readouterr().err


def test_a_folder_of_shards_is_one_table(checkpoint, texts, tmp_path):
    reading = {"file_format": None, "text_column": None, "encoding": "utf-8"}
    store, (path, rows) = ShardStore(tmp_path / "out", ".parquet"), next(iter(texts.items()))
    with store.opened({}):
        for shard in cut_shards(path, reading, 30, "settings"):
            ShardWorker(Embedder(checkpoint), store)(shard)
        store.finish(rows=70)
    names = store.names()
    close(rows_of(tmp_path / "out", path), embed(checkpoint, rows), 1e-5)
    assert parquet.read_schema(tmp_path / "out" / names[0]).names == ["path", "row", "words", "embedding"]
    write_lines(tmp_path / "texts" / "a.txt", [*rows[:40], "changed", *rows[41:]])
    changed = [f"{shard['name']}.parquet" for shard in cut_shards(path, reading, 30, "settings")]
    assert [one == other for one, other in zip(names, changed, strict=True)] == [True, False, True]
