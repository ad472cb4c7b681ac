"""How long importing, loading and the first call take, in new processes."""

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from import_time import STATEMENTS, seconds

from .bench import COMPACT, Bench, model_name
from .processes import Engine, Job, Row, Worker, run_in_turn
from .text import running_text


def measure(bench: Bench) -> Iterator[Row]:
    """Imports, models and first calls, each kind in turn."""
    rounds, shapes = 2 * bench.plan.rounds + 1, dict.fromkeys((COMPACT, *bench.plan.shapes))
    imports = [Job({"kind": "import", "statement": s}, partial(_import, s), _medians) for s in STATEMENTS.values()]
    yield from run_in_turn(imports, rounds)
    for shape in shapes:
        jobs = []
        for engine in (bench.ours[0], *bench.allennlp, *bench.simple_elmo):
            labels = {"kind": "loading", "model": model_name(shape), "engine": engine.name}
            jobs.append(Job(labels, partial(_load, bench, engine, shape), _medians))
        yield from run_in_turn(jobs, bench.plan.rounds)
    for shape in shapes:
        with tempfile.TemporaryDirectory() as full:
            _first_call(bench, shape, bench.ours[0], full)  # fills the cache of kernels
            jobs = []
            for kernels, engine, home in (
                ("compiled", bench.ours[0], None),
                ("cached", bench.ours[0], full),
                ("off", bench.ours_plain[0], full),
            ):
                labels = {"kind": "first call", "model": model_name(shape), "kernels": kernels}
                jobs.append(Job(labels, partial(_first_call, bench, shape, engine, home), _medians))
            yield from run_in_turn(jobs, rounds)


def _import(statement: str) -> Row:
    cpu, waited = seconds(statement)
    return {"cpu_seconds": cpu, "seconds": waited}


def _load(bench: Bench, engine: Engine, shape: str) -> Row:
    with Worker(engine, bench.plan.threads[0], bench.folder(engine, shape)) as worker:
        return worker.load()


def _first_call(bench: Bench, shape: str, engine: Engine, home: str | None) -> Row:
    """In a new process whose cache of compiled kernels is in `home`; `None`: in a new folder."""
    with tempfile.TemporaryDirectory() as empty:
        engine = replace(engine, environment={**engine.environment, "HF_HOME": home or empty})
        with Worker(engine, bench.plan.threads[0], bench.folder(engine, shape)) as worker:
            return worker.call("first_call", sentence=running_text(bench.all_sentences, 25))


def _medians(answers: list[Row]) -> Row:
    return {name: statistics.median(answer[name] for answer in answers) for name in answers[0]}
