"""Work that is killed with SIGKILL at seeded moments and started again, in processes that find everything imported."""

import functools
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# How often a test kills its work: few in the suite, hundreds by hand (ELMO_KILLS=300 pytest -k killed).
KILLS = int(os.environ.get("ELMO_KILLS", "3"))
PATIENCE = 300  # seconds until work that hangs is an error
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["hf_elmo.pretraining.recipe", "hf_elmo.conversion", "tests.kills"])


def run(log: Path, work: Callable[..., object], *arguments: Any, seconds: float = PATIENCE) -> tuple[bool, float]:
    """
    Starts `work(*arguments)` in a process and kills it after `seconds`.

    Args:
        log: a file that gets its output.
        work: a function of a module.

    Returns:
        Whether it ended by itself, and the seconds that it took. Raises AssertionError where it failed.
    """
    _warm_up()
    process = _processes.Process(target=_quietly, args=(log, work, *arguments))
    started = time.perf_counter()
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    took = time.perf_counter() - started
    assert process.exitcode in (0, -signal.SIGKILL), log.read_text()
    assert process.exitcode == 0 or seconds < PATIENCE, f"hangs:\n{log.read_text()}"
    return process.exitcode == 0, took


def run_with_kills(log: Path, seed: int, longest: float, work: Callable[..., object], *arguments: Any) -> int:
    """Starts the work again and again, killed at moments of the first `longest` seconds, and at last to its end.
    Returns how often a kill came before the end."""
    moments = random.Random(seed)
    kills = sum(not run(log, work, *arguments, seconds=moments.uniform(0, longest))[0] for _ in range(KILLS))
    run(log, work, *arguments)
    return kills


@functools.cache
def _warm_up() -> None:
    """Starts the server that imports everything once: its seconds are not the work's."""
    process = _processes.Process(target=os.getpid)
    process.start()
    process.join()


def _quietly(log: Path, work: Callable[..., object], *arguments: Any) -> None:
    # One thread and MKL's sums in one order, wherever the memory lies: the same numbers in each process.
    os.environ["MKL_CBWR"] = "COMPATIBLE"
    torch.set_num_threads(1)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115, open for as long as the process lives
    work(*arguments)
