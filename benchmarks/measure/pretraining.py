"""Words a second of a training step of the language models."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from .bench import Bench
from .processes import Answers, Worker
from .rows import PretrainingRow, Row
from .text import word_windows

MINUTES = 2
ROWS, WINDOW = 128, 20
SAMPLED = {"mini": 4096, "small": 8192}


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each shape and engine; the vocabulary is that of the model that ships."""
    threads = bench.plan.threads[0]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("\n".join(bench.all_sentences), encoding="utf-8")
        for shape in SAMPLED:
            with bench.workers(
                [*bench.ours, *bench.ours_plain, *bench.before, *bench.allennlp], shape, threads
            ) as workers:
                for answers in _in_turn(bench, workers, shape, text):
                    softmax = f"{SAMPLED[shape]:,} of 40,000" if answers.engine.is_ours else "none"
                    row = PretrainingRow(shape=shape, engine=answers.engine.name, threads=threads, softmax=softmax)
                    yield bench.fill(row, lambda answers=answers: _rate(answers))


def _in_turn(bench: Bench, workers: list[Worker], shape: str, text: Path) -> list[Answers]:
    """Every worker's steps, in rounds; peers take windows of words, ours the text."""
    seconds, all_answers = 2 * bench.plan.seconds, {}
    # With the two boundaries that AllenNLP adds, each of its windows has as many positions as ours.
    windows = word_windows(bench.all_sentences, ROWS, WINDOW - 2)
    vocabulary = str(bench.checkpoint("mini"))
    for _ in range(bench.plan.rounds):
        for worker in workers:
            if worker.engine.is_ours:
                call = {"name": "pretraining", "text": str(text), "vocabulary": vocabulary}
                call["num_sampled"] = SAMPLED[shape]
            else:
                call = {"name": "bilm_step", "windows": windows}
            all_answers.setdefault(worker, Answers(worker.engine)).ask(worker.call, **call, seconds=seconds)
    return list(all_answers.values())


def _rate(answers: Answers) -> dict[str, float]:
    return {"words_per_second": ROWS * WINDOW / min(answer["seconds"] for answer in answers.all())}
