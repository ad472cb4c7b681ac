"""How long importing and loading take."""

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace

from import_time import STATEMENTS, seconds

from .bench import Bench
from .processes import Answers, Engine, Worker
from .rows import FirstCallRow, ImportRow, LoadingRow, Row
from .text import running_text

MINUTES = 3


def measure(bench: Bench) -> Iterator[Row]:
    """Imports, then models, each in new processes in turn."""
    rounds = 2 * bench.plan.rounds + 1
    for statement in STATEMENTS.values():
        yield bench.fill(ImportRow(statement=statement), lambda statement=statement: _import(statement, rounds))
    engines = [bench.ours[0], *bench.allennlp, *bench.simple_elmo]
    for shape in ("mini", *bench.plan.shapes):
        loads = [Answers(engine) for engine in engines]
        for _ in range(bench.plan.rounds):
            for answers in loads:
                answers.ask(_load, bench, answers.engine, shape)
        for answers in loads:
            model = "elmo-mini-en" if shape == "mini" else f"{shape}, random"
            row = LoadingRow(model=model, engine=answers.engine.name)
            yield bench.fill(row, lambda answers=answers: _medians(answers.all()))
    for shape in ("mini", *bench.plan.shapes):
        yield from _first_calls(bench, shape)


def _first_calls(bench: Bench, shape: str) -> Iterator[FirstCallRow]:
    """The first call with an empty cache of kernels, with a full one, and without kernels."""
    with tempfile.TemporaryDirectory() as full:
        kinds = {"compiled": None, "cached": full, "off": full}
        answers = {kind: Answers(bench.ours[0]) for kind in kinds}
        _first_call(bench, shape, "cached", full)  # fills it
        for _ in range(2 * bench.plan.rounds + 1):
            for kind, home in kinds.items():
                answers[kind].ask(_first_call, bench, shape, kind, home)
        for kind in kinds:
            row = FirstCallRow(model="elmo-mini-en" if shape == "mini" else f"{shape}, random", kernels=kind)
            yield bench.fill(row, lambda kind=kind: _medians(answers[kind].all()))


def _first_call(bench: Bench, shape: str, kind: str, home: str | None) -> dict[str, float]:
    """In a new process whose cache is in `home`; `None`: in a new folder."""
    threads, engine = bench.plan.threads[0], bench.ours_plain[0] if kind == "off" else bench.ours[0]
    with tempfile.TemporaryDirectory() as empty:
        engine = replace(engine, environment={**engine.environment, "HF_HOME": home or empty})
        with Worker(engine, threads) as worker:
            folder = bench.folder(engine, shape)
            worker.call("load", folder=str(folder), threads=threads, **engine.arguments)
            return worker.call("first_call", sentence=running_text(bench.all_sentences, 25))


def _import(statement: str, rounds: int) -> dict[str, float]:
    times = [seconds(statement) for _ in range(rounds)]
    cpu, waited = map(statistics.median, zip(*times, strict=True))
    return {"cpu_seconds": cpu, "seconds": waited}


def _load(bench: Bench, engine: Engine, shape: str) -> dict[str, float]:
    threads, folder = bench.plan.threads[0], bench.folder(engine, shape)
    with Worker(engine, threads) as worker:
        return worker.call("load", folder=str(folder), threads=threads, **engine.arguments)


def _medians(loads: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(times[name] for times in loads) for name in loads[0]}
