"""A worker's side of the conversation: a JSON call a line on standard input, a JSON answer a line on standard output.

Standard library only, since it runs in the environments of all implementations.
"""

import json
import os
import resource
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def serve(functions: dict[str, Any]) -> None:
    """Answer `{"call": name, "arguments": {...}}` until standard input ends.

    An answer is `{"result": ..., "peak_mb": ...}`, with the most memory that this process has ever held, or
    `{"error": ...}`.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # text that libraries print is no answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": functions[request["call"]](**request["arguments"]), "peak_mb": peak_mb()}
        except Exception as error:  # the run goes on without this number
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def peak_mb() -> float:
    """The most memory that this process has held, in MiB."""
    # On Linux, ru_maxrss includes the memory of the process that started this one; VmHWM begins with this program.
    try:
        with open("/proc/self/status", encoding="utf-8") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**10
    except (FileNotFoundError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)


def seconds_of(call: Callable[[], Any]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def times_of(call: Callable[[], Any], seconds: float, least: int = 3) -> list[float]:
    """The seconds of each call, after a warm-up call: calls for about `seconds` in total, at least `least` calls."""
    call()
    times: list[float] = []
    while len(times) < least or sum(times) < seconds:
        times.append(seconds_of(call))
    return times


def median_of(call: Callable[[], Any], seconds: float, least: int = 3) -> float:
    """The median of `times_of`."""
    return statistics.median(times_of(call, seconds, least))
