"""The engine ray: files cut into shards, which workers write, though one is killed; a run resumes shard by shard."""

import json
import os
import signal

import numpy as np
import pytest

import hf_elmo_cli as cli
from hf_elmo import ElmoConfig, ElmoTokenizer, Embedder, embed, kernels
from hf_elmo.embedding import workers
from hf_elmo.embedding.store import MANIFEST, ShardStore
from hf_elmo.embedding.workers import SHARD_NAME, ShardCutter, ShardWorker, embed_on_ray

from ..conftest import random_model
from .helpers import close

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def ray():
    """Ray on two cores."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'ray[data]'")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    """Of sizes that the fused LSTM takes, so that vectors have the same bits in every batch of eight rows or more."""
    folder = tmp_path_factory.mktemp("ray") / "checkpoint"
    sizes = {"hidden_size": 128, "cell_size": 96, "char_filters": [[1, 8], [2, 24]], "char_embedding_size": 4}
    random_model(ElmoConfig(**sizes)).save_pretrained(folder)
    ElmoTokenizer("whitespace").save_pretrained(folder)
    return str(folder)


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
    written = embed_on_ray(checkpoint, tmp_path / "texts", tmp_path / "out", workers=2, shard_rows=10, progress=False)
    assert died.exists(), "nobody was killed: the test would prove too little"
    assert (written.rows, written.hidden_size, written.path) == (120, 128, tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 12
    fused = "fused" in describe(checkpoint)
    for path, rows in texts.items():
        found, wanted = rows_of(tmp_path / "out", path), embed(checkpoint, rows)
        close(found, wanted)
        if fused:
            assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


def describe(checkpoint: str) -> str:
    """The kernels that ran for a batch of ten rows."""
    with kernels.record() as ran:
        embed(checkpoint, ["a b c"] * 10)
    return str(ran)


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
        close(rows_of(tmp_path / "out", path), embed(checkpoint, rows, layers="all", pooling="mean"))
    assert cli.main(command) == 1
    assert "--overwrite" in capsys.readouterr().err


def test_the_embedder_in_an_actor_pool_of_ray_data(ray, checkpoint, texts):
    path, rows = next(iter(texts.items()))
    found = ray.data.read_text(path).map_batches(
        Embedder,
        fn_constructor_args=[checkpoint],
        fn_constructor_kwargs={"words_column": "words"},
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=1,
    )
    found = {row["text"]: row for row in found.take_all()}
    assert [found[row]["words"] for row in rows] == [row.split() for row in rows]
    close([np.array(list(found[row]["embedding"]), np.float32) for row in rows], embed(checkpoint, rows))


# -- without Ray -------------------------------------------------------------------------------------------------------

READING = {"file_format": None, "text_column": None, "encoding": "utf-8"}


def shards_of(path, shard_rows: int, settings: str = "") -> list[dict]:
    return list(ShardCutter(READING, shard_rows, settings)(str(path)))


def test_the_same_rows_and_settings_make_the_same_shards(texts, tmp_path):
    (path, rows), *_ = texts.items()
    shards = shards_of(path, 30)
    assert shards == shards_of(path, 30)
    assert all(SHARD_NAME.fullmatch(shard["name"] + ".parquet") for shard in shards)
    assert [json.loads(row) for shard in shards for row in shard["rows"]] == rows
    assert [shard["first"] for shard in shards] == [0, 30, 60]
    others = shards_of(path, 30, "other settings")
    (tmp_path / "texts" / "a.txt").write_text("".join(row + "\n" for row in [*rows[:40], "changed", *rows[41:]]))
    changed = shards_of(path, 30)
    assert not {one["name"] for one in shards} & {one["name"] for one in others}
    assert [one == other for one, other in zip(shards, changed, strict=True)] == [True, False, True]


def test_long_rows_make_short_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "SHARD_CHARACTERS", 10)
    (tmp_path / "long.jsonl").write_text('"123456789"\n"a"\n["1234567890123"]\n"b"\n')
    assert [len(shard["rows"]) for shard in shards_of(tmp_path / "long.jsonl", 1000)] == [2, 1, 1]


def test_a_folder_of_shards_is_one_table(checkpoint, texts, tmp_path):
    store, (path, rows) = ShardStore(tmp_path / "out", ".parquet"), next(iter(texts.items()))
    worker = ShardWorker(Embedder(checkpoint), store)
    with store.opened({}):
        reports = [worker(shard) for shard in shards_of(path, 30)]
        assert [worker({**shard, "rows": []}) for shard in shards_of(path, 30)] == reports  # that are there already
        store.finish(rows=70)
    assert sum(report["words"] for report in reports) == sum(len(row.split()) for row in rows)
    assert parquet.read_schema(tmp_path / "out" / store.names()[0]).names == ["path", "row", "words", "embedding"]
    close(rows_of(tmp_path / "out", path), embed(checkpoint, rows))
    (tmp_path / "out" / ".lock").touch()
    assert parquet.read_table(tmp_path / "out").num_rows == 70
    datasets = pytest.importorskip("datasets")
    for how in ({"path": "parquet", "data_dir": str(tmp_path / "out")}, {"path": str(tmp_path / "out")}):
        assert len(datasets.load_dataset(**how, split="train", cache_dir=str(tmp_path / "cache"))) == 70


def test_a_finished_folder_is_kept_unless_asked(tmp_path):
    store = ShardStore(tmp_path / "out", ".txt")
    with store.opened({"model": "a"}):
        store.write("a", ["a\n"])
        store.finish(rows=1)
    assert json.loads((tmp_path / "out" / MANIFEST).read_text()) == {"model": "a", "finished": {"rows": 1}}
    for options in ({}, {"restart": True}):
        with pytest.raises(FileExistsError), store.opened({"model": "a"}, **options):
            pass
    with store.opened({"model": "b"}, overwrite=True):
        assert store.names() == []
