"""Children of `os.fork` that a test waits for, but not for ever: one that hangs is the fault that is looked for."""

import os
import signal
import time

import pytest

if not hasattr(os, "fork"):
    pytest.skip("no fork on this system", allow_module_level=True)


def exit_code(child: int, seconds: float = 60) -> int:
    """How a forked process ended; one that has not ended after so many seconds is killed, and has -9."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
