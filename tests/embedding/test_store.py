"""Runs that stop, are killed or meet: an interrupted run resumes to the same vectors, and another one is refused."""

import multiprocessing
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
from huggingface_hub.utils import WeakFileLock

from hf_elmo import embed, kernels
from hf_elmo.utils import jobs
from tests.embedding.conftest import ROWS, close, initial_model
from tests.factories import whitespace_tokenizer, write_lines
from tests.kills import run_with_kills

OUT_OF_MEMORY = {
    "CUDA out of memory. Tried to allocate 2.00 GiB.": 18,
    "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9.": 3,
}


@pytest.mark.parametrize(("ending", "stops"), [(".safetensors", [0]), (".parquet", [1]), (".npz", [2, 0, 1])])
def test_a_stopped_run_resumes_to_the_same_bytes(tmp_path, model, stopped_after, stops, ending):
    source = write_lines(tmp_path / "in.txt", ROWS * 3)
    options = {"batch_tokens": 30, "shard_tokens": 25}
    whole, parts = tmp_path / f"whole{ending}", tmp_path / f"parts{ending}"
    embed(model, source, whole, **options)
    for shards in stops:
        calls = stopped_after(shards, model, source, parts, **options)
        assert not parts.exists()
    embed(model, source, parts, **options)
    assert sum(calls) < 3 * len(ROWS) or sum(stops) == 0  # finished shards are not computed again
    assert parts.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.txt", whole.name, parts.name])


@pytest.mark.parametrize("change", ["layers", "model", "tokenizer"])
def test_resuming_with_something_else_is_refused_unless_nothing_is_finished(tmp_path, model, stopped_after, change):
    changes = {"model": initial_model(seed=1, num_hidden_layers=3), "tokenizer": whitespace_tokenizer()}
    source, other = write_lines(tmp_path / "in.txt", ROWS), {change: changes.get(change, "all")}
    for shards in (1, 0):
        arguments = {"model": model, "inputs": source, "output": tmp_path / f"{shards}.npz", "shard_tokens": 20}
        stopped_after(shards, **arguments)
        if shards > 0:
            with pytest.raises(ValueError, match=f"{change}.*restart"):
                embed(**arguments | other)
            assert (tmp_path / "1.npz.parts").exists()
        embed(**arguments | other, restart=shards > 0)
        assert len(np.load(tmp_path / f"{shards}.npz")) == len(ROWS)


def test_another_folder_of_that_name_is_not_touched(tmp_path, model):
    mine = write_lines(tmp_path / "out.npz.parts" / "thesis.txt", ["mine"])
    for restart in (False, True):
        with pytest.raises(FileExistsError):
            embed(model, ROWS, tmp_path / "out.npz", restart=restart)
    assert mine.read_text() == "mine\n"


def test_rows_that_changed_are_computed_again(tmp_path, model, stopped_after, monkeypatch):
    source = write_lines(tmp_path / "in.txt", ROWS * 3)
    calls = stopped_after(4, model, source, tmp_path / "out.npz", shard_tokens=25)
    rows = [*ROWS[:-1], "other words", *ROWS, *ROWS, "one row more"]
    fingerprint = jobs.model_fingerprint  # between the two readings of the input
    monkeypatch.setattr(jobs, "model_fingerprint", lambda model: write_lines(source, rows) and fingerprint(model))
    assert embed(model, source, tmp_path / "out.npz", shard_tokens=25).rows == len(rows)
    assert 0 < sum(calls) < len(rows)  # shards of unchanged rows were kept
    close(np.load(tmp_path / "out.npz").values(), embed(model, rows))


def test_drafts_of_a_killed_run_are_removed_and_finished_rows_are_counted(tmp_path, model, stopped_after, capsys):
    output = tmp_path / "out.npz"
    stopped_after(2, model, ROWS, output, shard_tokens=20)
    draft = tmp_path / "out.npz.parts" / f"{jobs.DRAFT}a.arrow"
    draft.write_bytes(b"a part")
    stopped_after(0, model, ROWS, output, shard_tokens=20)
    assert not draft.exists()
    embed(model, ROWS, output, shard_tokens=20, progress=True)
    assert f"{len(ROWS)}/{len(ROWS)}" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_killed_at_any_moment_resume_to_the_same_file(tmp_path, checkpoint):
    source = write_lines(tmp_path / "in.txt", [f"{row} {n}" for n in range(6) for row in ROWS])
    options = ["--model", checkpoint, "--shard-tokens", "40", "--batch-tokens", "40"]  # some thirty shards
    run_with_kills(["embed", str(source), "OUT", *options], tmp_path, name="out.npz")


@pytest.mark.slow
def test_a_run_of_several_processes_resumes_when_one_is_killed(tmp_path, model):
    rows = [f"row {number} has words" for number in range(400)]
    alone, together = tmp_path / "alone.parquet", tmp_path / "together.parquet"
    with kernels.use("off"):
        embed(model, rows, alone, shard_tokens=10)
    parts = tmp_path / "together.parquet.parts"

    def kill() -> None:
        while not list(parts.glob("*.arrow")):
            time.sleep(0.01)
        multiprocessing.active_children()[0].kill()

    threading.Thread(target=kill).start()
    with kernels.use("off"):  # the workers, too: their vectors have the bits of plain PyTorch
        with pytest.raises(BrokenProcessPool):
            embed(model, rows, together, shard_tokens=10, workers=2)
        assert 0 < len(list(parts.glob("*.arrow"))) < 200
        assert embed(model, rows, together, shard_tokens=10, workers=2).rows == 400
    assert together.read_bytes() == alone.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.parquet", "together.parquet"]


def test_a_second_run_of_the_same_output_is_refused(tmp_path, model, monkeypatch):
    monkeypatch.setattr(jobs, "LOCK_SECONDS", 0.01)
    (tmp_path / "out.npz.parts").mkdir()
    with WeakFileLock(tmp_path / "out.npz.parts" / jobs.LOCK), pytest.raises(TimeoutError):
        embed(model, ["another"], tmp_path / "out.npz")


@pytest.mark.parametrize(("error", "words"), OUT_OF_MEMORY.items(), ids=["cuda", "cpu"])
def test_out_of_memory_halves_the_batch(model, monkeypatch, caplog, error, words):
    wanted, forward, sizes = embed(model, ROWS), model.char_encoder.forward, []

    def limited(character_ids):  # the character CNN fails over so many words, as torch does
        sizes.append(len(character_ids))
        if len(character_ids) > words:
            raise RuntimeError(error)
        return forward(character_ids)

    monkeypatch.setattr(model.char_encoder, "forward", limited)
    close(embed(model, ROWS), wanted)
    assert max(sizes) > words  # it was tried
    assert sizes[-1] <= words
    assert "out of memory" in caplog.text
    words = 0
    with pytest.raises(RuntimeError, match="memory"):
        embed(model, ROWS)
