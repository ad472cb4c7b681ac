"""What a check is: numbered cases, each made from the seed and its number alone, and the count of what they gave."""

import contextlib
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

Case = Callable[[random.Random], Counter]


class Fault(AssertionError):
    """What a case found, in words."""


@dataclass(frozen=True)
class Check:
    """A kind of cases.

    Args:
        name: on the command line.
        prepare: a context for an empty folder that gives the function of a case; that one takes the case's own
            generator, and returns what it counted or raises.
        cases: how many by default.
    """

    name: str
    prepare: Callable[[Path], AbstractContextManager[Case]]
    cases: int


@dataclass
class Result:
    """What a check's cases gave: their number, what they counted, and the faults by the number of their case."""

    cases: int = 0
    counts: Counter = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0


def run(check: Check, seed: int, cases: int, first: int = 0, budget: float | None = None) -> Result:
    """Run the cases `first` to `first + cases`, or as many as `budget` seconds allow: at least one."""
    result, start = Result(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hf_elmo-harness-") as folder, check.prepare(Path(folder)) as case:
        for number in range(first, first + cases):
            if result.cases and budget is not None and time.monotonic() - start > budget:
                break
            try:
                result.counts += case(random.Random(f"{check.name} {seed} {number}"))
            except Exception as error:
                result.faults[number] = describe(error)
            result.cases += 1
    result.seconds = time.monotonic() - start
    return result


def describe(error: Exception) -> str:
    """A fault's own words; an error that nobody expected with the place it comes from."""
    if isinstance(error, Fault):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:300]!r} at {Path(place.filename).name}:{place.lineno} in {place.name}"


def report(check: Check, seed: int, result: Result) -> str:
    """A line, and one for each fault, with the options that repeat it."""
    counts = ", ".join(f"{number:,} {label}" for label, number in sorted(result.counts.items()))
    lines = [f"{check.name}: {result.cases:,} cases of seed {seed}: {counts}; {len(result.faults)} faults"]
    lines[0] += f" ({result.seconds:.0f} s)"
    for number, fault in result.faults.items():
        lines.append(f"  {check.name} --seed {seed} --first {number} --cases 1: {fault}")
    return "\n".join(lines)


def without_preparation(case: Case) -> Callable[[Path], AbstractContextManager[Case]]:
    """For checks whose cases need nothing that was made before."""
    return lambda folder: contextlib.nullcontext(case)


def require_same(what: str, found: object, expected: object) -> None:
    """Raises Fault where two values differ, with both, or of two lists with what differs first."""
    if found != expected:
        if isinstance(found, list) and isinstance(expected, list):
            same = [one == other for one, other in zip(found, expected, strict=False)]
            at = same.index(False) if False in same else len(same)
            what, found, expected = f"{what}, from {at} on", found[at : at + 9], expected[at : at + 9]
        raise Fault(f"{what}: found {found!r:.300}, expected {expected!r:.300}")


@contextlib.contextmanager
def described(what: str) -> Iterator[None]:
    """Inside the block a fault's words begin with `what`."""
    try:
        yield
    except Fault as fault:
        raise Fault(f"{what}: {fault}") from fault
