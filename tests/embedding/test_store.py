"""Runs that stop, are killed or meet: an interrupted run resumes to the same vectors, and another one is refused."""

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import torch

from hf_elmo import embed
from hf_elmo.embedding import corpus
from hf_elmo.embedding.engine import CorpusEncoder

from ..factories import whitespace_tokenizer, write_lines
from ..forks import exit_code
from ..kills import KILLS
from .helpers import ROWS, Stopped, close, initial_model, read


@pytest.mark.parametrize(("ending", "stops"), [(".safetensors", [0]), (".parquet", [1]), (".npz", [2, 0, 1])])
def test_a_stopped_run_resumes_to_the_same_bytes(tmp_path, model, stop_after, stops, ending):
    source = write_lines(tmp_path / "in.txt", ROWS * 3)
    options = {"batch_tokens": 30, "window": 25}
    whole, parts = tmp_path / f"whole{ending}", tmp_path / f"parts{ending}"
    embed(model, source, whole, **options)
    for windows in stops:
        stop_after(windows)
        with pytest.raises(Stopped):
            embed(model, source, parts, **options)
        assert not parts.exists()
    calls = stop_after(1000)
    embed(model, source, parts, **options)
    assert sum(calls) < 3 * len(ROWS) or sum(stops) == 0  # finished windows are not computed again
    assert parts.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.txt", whole.name, parts.name])


@pytest.mark.parametrize("change", ["layers", "rows", "model", "tokenizer"])
def test_resuming_with_something_else_is_refused(tmp_path, model, stop_after, change):
    source = write_lines(tmp_path / "in.txt", ROWS)
    arguments = {"model": model, "inputs": source, "output": tmp_path / "out.npz", "window": 20}
    stop_after(1)
    with pytest.raises(Stopped):
        embed(**arguments)
    if change == "rows":
        write_lines(source, [*ROWS[:-1], "other words"])
    changes = {
        "layers": "all",
        "model": initial_model(seed=1, num_hidden_layers=3),
        "tokenizer": whitespace_tokenizer(),
    }
    arguments |= {change: changes[change]} if change in changes else {}
    stop_after(1000)
    with pytest.raises(ValueError, match=f"{change}.*restart"):
        embed(**arguments)
    assert (tmp_path / "out.npz.parts").exists()
    embed(**arguments, restart=True)
    assert len(read(tmp_path / "out.npz")) == len(ROWS)


def test_another_folder_of_that_name_is_not_touched(tmp_path, model):
    write_lines(tmp_path / "out.npz.parts" / "thesis.txt", ["mine"])
    for restart in (False, True):
        with pytest.raises(FileExistsError):
            embed(model, ROWS, tmp_path / "out.npz", restart=restart)
    assert (tmp_path / "out.npz.parts" / "thesis.txt").read_text() == "mine\n"


def test_finished_work_that_is_none_does_not_block_other_settings(tmp_path, model, stop_after):
    stop_after(0)
    with pytest.raises(Stopped):
        embed(model, ROWS, tmp_path / "out.npz")
    stop_after(1000)
    embed(model, ROWS, tmp_path / "out.npz", layers=0)
    close(read(tmp_path / "out.npz"), embed(model, ROWS, layers=0))


@pytest.mark.parametrize("change", ["other words", "one row more", "one row fewer"])
def test_input_that_changes_while_it_is_embedded_is_refused(tmp_path, model, monkeypatch, change):
    source = write_lines(tmp_path / "in.txt", ROWS)
    changed = {"other words": [*ROWS[:-1], "x"], "one row more": [*ROWS, "x"], "one row fewer": ROWS[:-1]}[change]
    prepare = corpus.prepare  # loads the model, between the two readings of the input
    monkeypatch.setattr(corpus, "prepare", lambda *given: (write_lines(source, changed), prepare(*given))[1])
    with pytest.raises(ValueError, match="input"):
        embed(model, source, tmp_path / "out.npz", window=20)
    monkeypatch.undo()
    embed(model, source, tmp_path / "out.npz", restart=True)
    close(read(tmp_path / "out.npz"), embed(model, changed))


# -- runs in processes -------------------------------------------------------------------------------------------------


def started(said: Path, function: Callable[..., None], *arguments: object) -> int:
    """The id of a new process in which a function runs; the message of its error goes to the file `said`."""
    process = os.fork()
    if process:
        return process
    try:
        function(*arguments)
        os._exit(0)
    except BaseException as error:
        said.write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(1)


@pytest.mark.slow
def test_runs_killed_at_any_moment_resume_to_the_same_file(tmp_path, model):
    source = write_lines(tmp_path / "in.txt", [f"{row} {n}" for n in range(6) for row in ROWS])
    moments, said, output, whole = random.Random(0), tmp_path / "said", tmp_path / "new" / "out.npz", tmp_path / "a.npz"

    def run(output: Path) -> None:
        embed(model, source, output, window=40, batch_tokens=40)  # some thirty windows

    start = time.monotonic()
    assert exit_code(started(said, run, whole)) == 0, said.read_text()
    seconds = time.monotonic() - start
    for _ in range(KILLS):
        process = started(said, run, output)
        time.sleep(moments.uniform(0, seconds) * moments.uniform(0, 1))
        os.kill(process, signal.SIGKILL)
        assert exit_code(process) in (0, -signal.SIGKILL), said.read_text()
        if output.exists():
            close(read(output), read(whole))
            output.unlink()
    assert exit_code(started(said, run, output)) == 0, said.read_text()
    close(read(output), read(whole))
    assert [path.name for path in output.parent.iterdir()] == [output.name]


@pytest.mark.slow
def test_a_run_of_several_processes_resumes_when_one_is_killed(tmp_path, model):
    rows = [f"row {number} has words" for number in range(400)]
    alone, together = tmp_path / "alone.parquet", tmp_path / "together.parquet"
    embed(model, rows, alone, window=10)
    parts = tmp_path / "together.parquet.parts"

    def kill() -> None:
        while not list(parts.glob("*.arrow")):
            time.sleep(0.01)
        multiprocessing.active_children()[0].kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(BrokenProcessPool):
        embed(model, rows, together, window=10, workers=2)
    thread.join()
    assert 0 < len(list(parts.glob("*.arrow"))) < 200
    assert embed(model, rows, together, window=10, workers=2).rows == 400
    assert together.read_bytes() == alone.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.parquet", "together.parquet"]


def test_a_second_run_of_the_same_output_is_refused(tmp_path, model, monkeypatch):
    encode, refused, said = CorpusEncoder.encode, [], tmp_path / "said"

    def meanwhile(self, rows, window):
        if not refused:
            refused.append(exit_code(started(said, embed, model, ["another"], tmp_path / "out.npz")))
        encode(self, rows, window)

    monkeypatch.setattr(CorpusEncoder, "encode", meanwhile)
    embed(model, ROWS, tmp_path / "out.npz", window=20)
    assert refused == [1]
    assert said.read_text().startswith("Timeout")
    monkeypatch.undo()
    close(read(tmp_path / "out.npz"), embed(model, ROWS))


# -- memory that runs out ----------------------------------------------------------------------------------------------


@pytest.fixture
def small_memory(monkeypatch):
    """A function that lets the character CNN fail, as torch does, over so many words."""
    errors = {
        "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        "cpu": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9."),
        "other": RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    }

    def arrange(model, words: int, kind: str = "cuda") -> list[int]:
        forward, sizes = model.char_encoder.forward, []

        def limited(character_ids):
            sizes.append(len(character_ids))
            if len(character_ids) > words:
                raise errors[kind]
            return forward(character_ids)

        monkeypatch.setattr(model.char_encoder, "forward", limited)
        return sizes

    return arrange


@pytest.mark.parametrize(("kind", "words"), [("cuda", 33), ("cpu", 3)])
def test_out_of_memory_halves_the_batch(model, small_memory, caplog, words, kind):
    wanted = embed(model, ROWS)
    sizes = small_memory(model, words, kind)
    close(embed(model, ROWS), wanted)
    assert max(sizes) > words  # it was tried
    assert sizes[-1] <= words
    assert "out of memory" in caplog.text
    small_memory(model, 0)
    with pytest.raises(MemoryError):
        embed(model, ROWS)
    small_memory(model, 0, "other")
    with pytest.raises(RuntimeError, match="mat1"):
        embed(model, ROWS)
