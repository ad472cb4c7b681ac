"""A worker's side of the conversation: a JSON call a line on standard input, a JSON answer a line on standard output.

It runs in the environments of all implementations, so it needs the standard library only.
"""

import json
import os
import sys
import timeit
from collections.abc import Callable
from typing import Any

SECONDS = 0.7  # for which a call is repeated, at least


def serve(functions: dict[str, Any]) -> None:
    """Answers `{"call": name, "arguments": {...}}` with the function's result until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # text that libraries print is no answer
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(functions[request["call"]](**request["arguments"])), file=answers, flush=True)


def seconds_of(call: Callable[[], Any]) -> float:
    """The median time of a call, after a warm-up; without torch, the least of a few."""
    try:
        import torch
        from torch.utils.benchmark import Timer
    except ImportError:
        return min(timeit.repeat(call, number=1, repeat=4)[1:])
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=SECONDS).median
