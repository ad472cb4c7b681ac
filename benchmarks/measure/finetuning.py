"""Steps a second of a classifier, the biLM frozen and trained."""

from collections.abc import Iterator

from .bench import Bench
from .processes import Answers, ask_in_turn
from .rows import FinetuningRow, Row
from .text import count_words

MINUTES = 2
BATCH = 32


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each shape, kind of training and engine."""
    plan, threads, text = bench.plan, bench.plan.threads[0], bench.sentences(BATCH)
    for shape, unfrozen in plan.finetuning:
        with bench.workers([*bench.ours, *bench.ours_plain, *bench.before, *bench.allennlp], shape, threads) as workers:
            for answers in ask_in_turn(
                workers, plan.rounds, "finetuning", sentences=text, unfrozen=unfrozen, seconds=2 * plan.seconds
            ):
                bilm, engine = "trained" if unfrozen else "frozen", answers.engine.name
                row = FinetuningRow(shape=shape, bilm=bilm, engine=engine, threads=threads)
                yield bench.fill(row, lambda answers=answers: rates(answers, count_words(text)))


def rates(answers: Answers, words: int) -> dict[str, float]:
    """Steps, and words, a second of the fastest round."""
    seconds = min(answer["seconds"] for answer in answers.all())
    return {"steps_per_second": 1 / seconds, "words_per_second": words / seconds}
