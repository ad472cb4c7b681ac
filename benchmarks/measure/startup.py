"""How long importing, loading and the first call take, in new processes; and how fast the tokenizer is."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from hf_elmo import ElmoTokenizer

from .bench import COMPACT, Bench, model_name
from .processes import Engine, Job, Row, Worker, run_in_turn
from .text import count_words, running_text

IMPORTS = "from transformers import AutoModel", "import hf_elmo"
TIMED = """
import time
start, cpu = time.perf_counter(), time.process_time()
{}
print(time.process_time() - cpu, time.perf_counter() - start)
"""
LINES = 128  # in a call of the tokenizer


def measure(bench: Bench) -> Iterator[Row]:
    """Imports, tokenizers, models and first calls, each kind in turn."""
    rounds, shapes = 2 * bench.plan.rounds + 1, dict.fromkeys((COMPACT, *bench.plan.shapes))
    imports = [Job({"kind": "import", "statement": s}, partial(_import, s), _medians) for s in IMPORTS]
    yield from run_in_turn(imports, rounds)
    jobs = []
    for splitting in ("lm1b", "whitespace"):
        for options, result in (({"padding": True, "return_tensors": "pt"}, "tensors"), ({}, "lists")):
            labels = {"kind": "tokenizer", "splitting": splitting, "result": result}
            jobs.append(Job(labels, partial(_tokenize, bench, ElmoTokenizer(splitting), options), _medians))
    yield from run_in_turn(jobs, rounds)
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
    """Processor time, which other work on the machine does not change, and wall time, without the start of Python."""
    said = subprocess.check_output([sys.executable, "-c", TIMED.format(statement)], text=True)
    return dict(zip(("cpu_seconds", "seconds"), map(float, said.split()), strict=True))


def _tokenize(bench: Bench, tokenizer: ElmoTokenizer, options: dict) -> Row:
    sentences, start = bench.all_sentences, time.perf_counter()
    for first in range(0, len(sentences), LINES):
        tokenizer(sentences[first : first + LINES], **options)
    return {"words_per_second": count_words(sentences) / (time.perf_counter() - start)}


def _load(bench: Bench, engine: Engine, shape: str) -> Row:
    with Worker(engine, bench.plan.threads[0], bench.folder(engine, shape)) as worker:
        return worker.load()


def _first_call(bench: Bench, shape: str, engine: Engine, home: str | None) -> Row:
    """The first call in a new process, whose cache of compiled kernels is in `home`, or, for `None`, a new folder."""
    with tempfile.TemporaryDirectory() as empty:
        engine = replace(engine, environment={**engine.environment, "HF_HOME": home or empty})
        with Worker(engine, bench.plan.threads[0], bench.folder(engine, shape)) as worker:
            return worker.call("first_call", sentence=running_text(bench.all_sentences, 25))


def _medians(answers: list[Row]) -> Row:
    return {name: statistics.median(answer[name] for answer in answers) for name in answers[0]}
