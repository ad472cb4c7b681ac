"""Child processes that find everything imported, and whose end is looked at.

A server forks them, which has no threads: not this process, whose threads a child would wait for in vain.
"""

import contextlib
import io
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from hf_elmo.cli import main

MODULES = ["hf_elmo.conversion", "hf_elmo.embedding.corpus", "hf_elmo.pretraining.recipe", "tests.harness.__main__"]
FAILED = 70  # the exit status after an error that nobody caught
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(MODULES)


class Ended(NamedTuple):
    """How a child ended: its exit status, negative for a signal, and what it said on standard error."""

    status: int
    said: str


class Child:
    """A process that was started."""

    def __init__(self, process: ForkServerProcess, log: Path, seconds: float) -> None:
        self.process, self.log, self.deadline = process, log, time.monotonic() + seconds

    def wait(self) -> Ended:
        """Until it ends; one that takes too long is killed."""
        self.process.join(max(0.0, self.deadline - time.monotonic()))
        in_time = self.process.exitcode is not None
        if not in_time:
            self.kill()
            self.process.join()
        said = self.log.read_text(errors="replace") if self.log.exists() else ""
        if not in_time:
            return Ended(-signal.SIGALRM, f"it did not end in time\n{said}")
        return Ended(self.process.exitcode, said)

    def kill(self) -> None:
        self.process.kill()


def start(
    log: Path, work: Callable[..., int], *arguments: Any, seconds: float = 120, memory: int | None = None
) -> Child:
    """A child that runs `work(*arguments)` and ends with what that returns, or with `FAILED` and a traceback.

    Args:
        log: a file for what it says on standard error.
        work: a function of a module.
        seconds: it is killed after these.
        memory: bytes that it may have beside those of the server.
    """
    log.unlink(missing_ok=True)
    process = _processes.Process(target=_run, args=(log, memory, work, *arguments))
    process.start()
    return Child(process, log, seconds)


def command_line(arguments: list[str], folder: Path, **limits: Any) -> Child:
    """`hf-elmo` in a child that says what it says in a file of `folder`; `limits`: see [`start`]."""
    return start(folder / "standard-error", main, arguments, **limits)


def warm_up() -> None:
    """Starts the server, which imports everything once: its seconds are not those of a child."""
    process = _processes.Process(target=os.getpid)
    process.start()
    process.join()


def _run(log: Path, memory: int | None, work: Callable[..., int], *arguments: Any) -> None:
    # One thread and MKL's sums in one order, wherever the memory lies: the same numbers in each process.
    os.environ["MKL_CBWR"] = "COMPATIBLE"
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # by default one of multiprocessing, which a killed process leaves behind
    status = FAILED
    with log.open("w", buffering=1) as file, contextlib.redirect_stderr(file):
        os.dup2(file.fileno(), 2)
        try:
            if memory is not None:
                _limit_memory(memory)
            with contextlib.redirect_stdout(io.StringIO()):
                status = work(*arguments)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
    sys.exit(status)


def _limit_memory(memory: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
