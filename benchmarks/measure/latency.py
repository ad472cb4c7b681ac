"""How long one sentence takes."""

import statistics
from collections.abc import Iterator
from itertools import chain

from .bench import Bench
from .processes import Answers, ask_in_turn
from .rows import LatencyRow, Row
from .text import running_text

MINUTES = 4


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each shape, number of threads, length and engine."""
    plan, ours = bench.plan, [*bench.ours, *bench.ours_constant, *bench.ours_plain, *bench.before]
    engines = [*ours, *bench.allennlp, *bench.simple_elmo]
    for shape in plan.shapes:
        for threads in plan.threads:
            with bench.workers(engines, shape, threads) as workers:
                for words in plan.latency_words:
                    sentence = running_text(bench.all_sentences, words)
                    for answers in ask_in_turn(
                        workers, plan.rounds_with(threads), "latency", sentence=sentence, seconds=plan.seconds
                    ):
                        engine = answers.engine.name
                        row = LatencyRow(shape=shape, threads=threads, words=words, engine=engine)
                        yield bench.fill(row, lambda answers=answers: {"milliseconds": _median_ms(answers)})


def _median_ms(answers: Answers) -> float:
    return 1000 * statistics.median(chain.from_iterable(answers.all()))
