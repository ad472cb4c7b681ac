"""Commands that are killed (SIGKILL) one to three times, each time before a file operation, and then run to their end:
to the bytes of an uninterrupted run. A seed repeats the kills."""

import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tqdm import tqdm

from tests.factories import contents

if not hasattr(os, "fork"):
    pytest.skip("no fork on this system", allow_module_level=True)

FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink")
KILLS = int(os.environ.get("ELMO_KILLS", "3"))  # runs that a test kills (by hand: ELMO_KILLS=300 pytest -k killed)
# A server without threads forks the commands: they find everything imported.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["hf_elmo.conversion", "hf_elmo.embedding.corpus", "hf_elmo.pretraining.recipe"])


def _run(arguments: list[str], folder: Path, kill_at: int, counted: Path) -> None:
    """Runs a command that kills itself before its `kill_at`-th file operation in `folder`; `counted` counts them."""
    from hf_elmo.cli import main

    # MKL's sums in one order, wherever the memory lies: the same numbers in each process.
    os.environ["MKL_CBWR"] = "COMPATIBLE"
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # by default a lock of multiprocessing, which a killed process never releases
    log = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def hook(event: str, values: tuple[Any, ...]) -> None:
        writes = event in FILE_EVENTS and (event != "open" or values[2] & (os.O_WRONLY | os.O_RDWR))
        if writes and str(values[0]).startswith(str(folder)):
            os.write(log, b".")
            if os.fstat(log).st_size == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    sys.exit(main(arguments))


def bytes_of(result: Path) -> dict[str, bytes]:
    """Notes of a training hold times, and its intermediate checkpoints are no part of its result."""
    files = {"": result.read_bytes()} if result.is_file() else contents(result)
    return {name: data for name, data in files.items() if not name.startswith(("checkpoint-", "trainer_state.json"))}


def run_with_kills(arguments: list[str], folder: Path, whole_at_once: bool = True, name: str = "result") -> None:
    """Runs a command `KILLS` times, each killed one to three times. OUT in `arguments` stands for the file or folder
    that the command writes, called `name`; `whole_at_once`: it appears when it is complete."""
    place, counted = folder / "killed", folder / "counted"
    result, generator = place / name, random.Random(0)

    def run(kill_at: int = 0) -> int:
        own = [argument.replace("OUT", str(result)) for argument in arguments]
        process = _processes.Process(target=_run, args=(own, place, kill_at, counted))
        process.start()
        process.join(120)
        return process.exitcode

    place.mkdir()
    assert run() == 0
    expected, operations = bytes_of(result), counted.stat().st_size
    for _ in range(KILLS):
        shutil.rmtree(place)
        place.mkdir()
        for _ in range(generator.choice((1, 1, 2, 3))):
            ended = run(generator.randint(1, operations))
            if ended == 0 or (whole_at_once and result.exists()):  # another run would refuse to overwrite it
                break
            assert ended == -signal.SIGKILL
        else:
            assert run() == 0
            assert [*place.iterdir()] == [result]
        assert bytes_of(result) == expected
