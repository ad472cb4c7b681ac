"""Cost by the size of a corpus and by the repetition of its words; peak memory from a file to a file."""

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from .bench import COMPACT, Bench
from .processes import Engine, Job, Row, Worker, run_in_turn
from .targets import DOCUMENT, LINES
from .text import count_words, make_batches, repeat_to, running_text

REPETITIONS = (1, 4, 16)


def measure(bench: Bench) -> Iterator[Row]:
    """Corpora of growing size; corpora of one size with fewer and fewer distinct sentences."""
    threads, lines = bench.plan.threads[0], bench.lines(bench.plan.lines[-1])
    with bench.workers(bench.all_ours, COMPACT, threads) as workers:
        for count in bench.plan.lines:
            jobs = []
            for worker in workers:
                labels = {"kind": "scaling", "engine": worker.engine.name, "lines": count}
                jobs.append(Job(labels, partial(_pooled, worker, lines[:count])))
            yield from run_in_turn(jobs)
    with bench.workers(bench.ours, bench.plan.shapes[0], threads) as workers:
        for times in REPETITIONS:
            for worker in workers:
                yield from _two_passes(bench, worker, times)


def _distinct_words(sentences: Sequence[str]) -> int:
    return len({word for sentence in sentences for word in sentence.split()})


def _pooled(worker: Worker, lines: list[str]) -> Row:
    words, seconds = count_words(lines), worker.call("pooled", lines=lines)["seconds"]
    counts = {"words": words, "distinct": _distinct_words(lines)}
    return {**counts, "seconds": seconds, "words_per_second": words / seconds}


def _two_passes(bench: Bench, worker: Worker, times: int) -> Iterator[Row]:
    """The two rows of a corpus in which each sentence occurs `times` times."""
    count = bench.plan.repeated
    text = repeat_to(bench.sentences(count // times), count)
    labels = {"kind": "repetition", "shape": bench.plan.shapes[0], "engine": worker.engine.name, "sentences": count}
    labels |= {"different": count // times, "distinct": _distinct_words(text)}
    passes = cache(lambda: worker.call("two_passes", sentences=text))

    def values(place: int) -> Row:
        rate = count_words(text) / passes()[place]["seconds"]
        return {"words_per_second": rate, "character_share": passes()[place]["character_share"]}

    yield from run_in_turn(
        [Job({**labels, "run": run}, partial(values, place)) for place, run in enumerate(("first", "second"))]
    )


def measure_memory(bench: Bench) -> Iterator[Row]:
    """A row for each size of a corpus and of a document, each in a new process."""
    text = " ".join(bench.all_sentences).split()
    lines = [" ".join(words) for words in make_batches(text, 5, by_length=False) if len(words) == 5]
    with tempfile.TemporaryDirectory() as name:
        folder, jobs = Path(name), []
        with Worker(bench.ours[0], threads=bench.plan.threads[0]) as worker:
            worker.call("make_tiny_model", folder=str(folder / "model"))
        for engine in (bench.ours[0], bench.ours_plain[0]):
            embed = partial(_embed_file, engine, bench.plan.threads[0], folder)
            for size in bench.plan.memory_lines:
                labels = {"kind": "memory", "engine": engine.name, "what": LINES, "size": size}
                jobs.append(Job(labels, partial(embed, lines, size, "mean")))
            for size in bench.plan.memory_words:
                labels = {"kind": "memory", "engine": engine.name, "what": DOCUMENT, "size": size}
                jobs.append(Job(labels, partial(embed, [running_text(bench.all_sentences, size)], 1, "none")))
        yield from run_in_turn(jobs)


def _embed_file(engine: Engine, threads: int, folder: Path, lines: list[str], count: int, pooling: str) -> Row:
    source = folder / "text.txt"
    with source.open("w", encoding="utf-8") as file:
        file.writelines(f"{lines[place % len(lines)]}\n" for place in range(count))
    paths = {"folder": folder / "model", "source": source, "output": folder / "vectors.safetensors"}
    with Worker(engine, threads) as worker:
        options = {name: str(path) for name, path in paths.items()}
        answer = worker.call("embed_file", **options, threads=threads, pooling=pooling)
        return {"words": answer["words"], "seconds": answer["seconds"], "peak_mb": worker.peak_mb}
