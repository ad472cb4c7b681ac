"""The engine ray: the shards of one process, though a worker is lost on the way, and a run resumes shard by shard."""

import json
import os
import signal
import sys

import numpy as np
import pytest

import hf_elmo_cli as cli
from hf_elmo import ElmoConfig, ElmoTokenizer, Embedder, embed, kernels
from hf_elmo.embedding import on_ray
from hf_elmo.embedding.on_ray import embed_on_ray
from hf_elmo.embedding.shards import ShardFolder

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

    class Fragile(on_ray.ShardWorker):
        """The first worker to come to its third shard is killed by it."""

        shards = 0

        def __call__(self, row):
            self.shards += 1
            if self.shards == 3 and not died.exists():
                died.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(row)

    monkeypatch.setattr(on_ray, "ShardWorker", Fragile)
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
    """What ran for a batch of ten rows."""
    with kernels.record() as ran:
        embed(checkpoint, ["a b c"] * 10)
    return str(ran)


def test_a_run_that_failed_computes_the_other_shards(ray, checkpoint, texts, tmp_path, capsys):
    bad = tmp_path / "texts" / "b.jsonl"
    good = bad.read_text()
    bad.write_text(good + "{\n")
    command = ["embed", checkpoint, str(tmp_path / "texts"), str(tmp_path / "out"), "--engine", "ray"]
    command += ["--workers", "1", "--shard-rows", "10", "--layers", "all", "--pooling", "mean"]
    assert cli.main(command) == 1
    assert "b.jsonl, line 51: malformed JSON" in capsys.readouterr().err.splitlines()[-1]
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
    assert "exists; choose another name, or overwrite=True (--overwrite)" in capsys.readouterr().err


def test_a_folder_that_another_run_writes_is_refused(ray, checkpoint, texts, tmp_path):
    output = tmp_path / "out"
    with (
        ShardFolder.at(output).prepared({"model": "another"}, False, False),
        pytest.raises(BlockingIOError, match="is being written by process"),
    ):
        embed_on_ray(checkpoint, tmp_path / "texts", output, workers=1, restart=True, progress=False)
    with pytest.raises(ValueError, match="interrupted run that differs: hf_elmo was None"):
        embed_on_ray(checkpoint, tmp_path / "texts", output, workers=1, progress=False)


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


def test_without_ray_the_error_says_what_to_install(checkpoint, texts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(ImportError, match=r'the engine ray needs ray, .*pip install "hf-elmo\[ray\]"'):
        embed_on_ray(checkpoint, tmp_path / "texts", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--workers", "2"], "--workers goes with --engine ray"),
        (["--shard-rows", "2"], "--shard-rows goes with --engine ray"),
        (["--engine", "ray", "--window", "9"], "--window goes with --engine local"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_options_of_the_other_engine_are_refused(options, says, capsys):
    with pytest.raises(SystemExit):
        cli.main(["embed", "in.txt", "out", *options])
    assert says in capsys.readouterr().err
