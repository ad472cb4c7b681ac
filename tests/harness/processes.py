"""Child processes that begin where this one is, with everything imported, and whose end is looked at."""

import contextlib
import io
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hf_elmo.cli import main


class Ended(NamedTuple):
    """How a child ended: its exit status, negative for a signal, and what it said on standard error."""

    status: int
    said: str


def command_line(
    arguments: list[str], folder: Path, before: Callable[[], None] = lambda: None, **limits: int
) -> "Child":
    """`hf-elmo` in a child. `before` is called there; `limits`: see [`fork`]."""

    def work() -> int:
        before()
        return main(arguments)

    return fork(work, folder, **limits)


class Child:
    """A process that was forked."""

    def __init__(self, pid: int, log: Path, deadline: float) -> None:
        self.pid, self.log, self.deadline = pid, log, deadline

    def wait(self) -> Ended:
        """Until it ends; one that takes too long is killed."""
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return Ended(os.waitstatus_to_exitcode(status), self.log.read_text(errors="replace"))
            if time.monotonic() > self.deadline:
                self.kill()
                os.waitpid(self.pid, 0)
                return Ended(-signal.SIGALRM, f"it did not end in time\n{self.log.read_text(errors='replace')}")
            time.sleep(0.001)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def fork(work: Callable[[], int], folder: Path, seconds: int = 120, memory: int | None = None) -> Child:
    """A child that runs `work` and ends with what that returns, or with 70 and a traceback where it raises.

    Args:
        work: what to do.
        folder: for what it says.
        seconds: it is killed after these.
        memory: bytes that it may have beside those of this process.
    """
    log = folder / "standard-error"
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return Child(pid, log, time.monotonic() + seconds)
    status = 70
    try:
        with (
            log.open("w", buffering=1) as file,
            contextlib.redirect_stderr(file),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            os.dup2(file.fileno(), 2)
            try:
                if memory is not None:
                    pages = int(Path("/proc/self/statm").read_text().split()[0])
                    most = pages * resource.getpagesize() + memory
                    resource.setrlimit(resource.RLIMIT_AS, (most, most))
                status = work()
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 1
            except BaseException:
                import traceback

                traceback.print_exc()
    finally:
        os._exit(status)
