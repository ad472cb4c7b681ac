"""Cost by the size of a corpus, and by the repetition of its words."""

from collections.abc import Iterator, Sequence

from .bench import Bench
from .processes import Worker
from .rows import RepetitionRow, Row, ScalingRow
from .text import count_words, repeat_to

MINUTES = 3
REPETITIONS = (1, 4, 16)


def measure(bench: Bench) -> Iterator[Row]:
    """Corpora of growing size; corpora of one size with fewer and fewer distinct sentences."""
    threads = bench.plan.threads[0]
    lines = bench.lines(bench.plan.lines[-1])
    with bench.workers([*bench.ours, *bench.ours_plain, *bench.before], "mini", threads) as workers:
        for number in bench.plan.lines:
            for worker in workers:
                row = ScalingRow(engine=worker.engine.name, lines=number)
                yield bench.fill(row, lambda worker=worker, number=number: _pooled(worker, lines[:number]))
    with bench.workers(bench.ours, bench.plan.shapes[0], threads) as workers:
        for times in REPETITIONS:
            for worker in workers:
                yield from _two_passes(bench, worker, times)


def distinct_words(sentences: Sequence[str]) -> int:
    """The number of distinct words of a text."""
    return len({word for sentence in sentences for word in sentence.split()})


def _pooled(worker: Worker, lines: list[str]) -> dict[str, float]:
    words, seconds = count_words(lines), worker.call("pooled", lines=lines)["seconds"]
    rate = words / seconds
    return {"words": words, "distinct": distinct_words(lines), "seconds": seconds, "words_per_second": rate}


def _two_passes(bench: Bench, worker: Worker, times: int) -> Iterator[RepetitionRow]:
    """The two rows of a corpus in which each sentence occurs `times` times."""
    number = bench.plan.repeated
    text = repeat_to(bench.sentences(number // times), number)
    labels = {"shape": bench.plan.shapes[0], "engine": worker.engine.name, "sentences": number}
    rows = [RepetitionRow(**labels, different=number // times, run=run) for run in ("first", "second")]
    words, passes = count_words(text), []

    def of_pass(place: int) -> dict[str, float]:
        if not passes:
            passes.extend(worker.call("two_passes", sentences=text))
        rate = words / passes[place]["seconds"]
        share = passes[place]["character_share"]
        return {"distinct": distinct_words(text), "words_per_second": rate, "character_share": share}

    for place, row in enumerate(rows):
        yield bench.fill(row, lambda place=place: of_pass(place))
