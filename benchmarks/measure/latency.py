"""How long one sentence takes; and the exported graph in onnxruntime beside the model."""

import statistics
from collections.abc import Iterator
from itertools import chain

from .bench import COMPACT, Bench
from .processes import Row, run_in_turn
from .text import running_text


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each shape, number of threads, length and engine."""
    plan = bench.plan
    for shape in plan.shapes:
        for threads in plan.threads:
            with bench.workers([*bench.all_ours, *bench.allennlp, *bench.simple_elmo], shape, threads) as workers:
                for words in plan.latency_words:
                    options = {"sentence": running_text(bench.all_sentences, words), "seconds": plan.seconds}
                    labels = {"kind": "latency", "shape": shape, "words": words}
                    jobs = [worker.job(labels, "latency", _median, **options) for worker in workers]
                    yield from run_in_turn(jobs, plan.rounds if threads == plan.threads[0] else 1)


def _median(answers: list[list[float]]) -> Row:
    return {"milliseconds": 1000 * statistics.median(chain.from_iterable(answers))}


def measure_onnx(bench: Bench) -> Iterator[Row]:
    """A row for the model that ships and for the first shape, for each size of a batch."""
    threads, sentences = bench.plan.threads[0], bench.sentences(64)
    for shape in dict.fromkeys((COMPACT, bench.plan.shapes[0])):
        with bench.workers(bench.ours[:1], shape, threads) as (worker,):
            for batch in (1, 32):
                labels = {"kind": "onnx", "shape": shape, "batch": batch}
                yield from run_in_turn([worker.job(labels, "onnx", sentences=sentences, batch_size=batch, rounds=3)])
