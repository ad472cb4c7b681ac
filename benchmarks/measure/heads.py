"""Steps a second of the heads of tasks, their biLM frozen, stored or trained; and an epoch on stored layers."""

from collections.abc import Iterator

from .bench import Bench
from .finetuning import BATCH, rates
from .processes import ask_in_turn
from .rows import EpochRow, HeadRow, Row
from .text import count_words

MINUTES = 8
SENTENCES = 512  # of an epoch


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each shape, head, kind of training and engine; then the epochs of each shape."""
    plan, threads, text = bench.plan, bench.plan.threads[0], bench.sentences(BATCH)
    epoch = bench.sentences(min(SENTENCES, plan.sentences[0]))
    for shape, ways in plan.heads:
        with bench.workers([*bench.ours, *bench.ours_plain, *bench.allennlp], shape, threads) as workers:
            for head in ("classifier", "tagger"):
                for way in ways:
                    able = [worker for worker in workers if worker.engine.is_ours or way != "stored"]
                    arguments = {"sentences": text, "head": head, "bilm": way, "seconds": 2 * plan.seconds}
                    for answers in ask_in_turn(able, plan.rounds, "head_step", **arguments):
                        row = HeadRow(shape=shape, head=head, bilm=way, engine=answers.engine.name, threads=threads)
                        yield bench.fill(row, lambda answers=answers: rates(answers, count_words(text)))
            for worker in workers[:1]:
                row = EpochRow(shape=shape, engine=worker.engine.name, threads=threads, words=count_words(epoch))
                yield bench.fill(row, lambda worker=worker: worker.call("epochs", sentences=epoch, batch=BATCH))
