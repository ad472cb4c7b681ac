"""How long importing and loading take."""

import statistics
from collections.abc import Iterator

from import_time import STATEMENTS, seconds

from .bench import Bench
from .processes import Answers, Engine, Worker
from .rows import ImportRow, LoadingRow, Row

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
