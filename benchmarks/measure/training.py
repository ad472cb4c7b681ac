"""Steps a second of fine-tuning, of the heads of tasks and of pretraining."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from .bench import COMPACT, Bench
from .processes import Row, run_in_turn
from .text import count_words, word_windows

BATCH = 32  # sentences of a step
ROWS, WINDOW = 128, 20  # of a step of pretraining
SAMPLED = {COMPACT: 4096}  # words of the sampled softmax; other shapes: 8192


def measure_finetuning(bench: Bench) -> Iterator[Row]:
    """A row for each shape, biLM and engine; the biLM is trained in the first shape alone."""
    plan, threads, text = bench.plan, bench.plan.threads[0], bench.sentences(BATCH)
    rates = partial(_rates, count_words(text))
    for shape in plan.shapes:
        with bench.workers([*bench.all_ours, *bench.allennlp], shape, threads) as workers:
            for unfrozen in (False, True)[: 2 if shape == plan.shapes[0] else 1]:
                labels = {"kind": "finetuning", "shape": shape, "bilm": "trained" if unfrozen else "frozen"}
                options = {"sentences": text, "unfrozen": unfrozen, "seconds": 2 * plan.seconds}
                jobs = [worker.job(labels, "finetuning", rates, **options) for worker in workers]
                yield from run_in_turn(jobs, plan.rounds)


def _rates(words: int, answers: list[Row]) -> Row:
    """Steps, and words, a second of the fastest round."""
    seconds = min(answer["seconds"] for answer in answers)
    return {"steps_per_second": 1 / seconds, "words_per_second": words / seconds}


def measure_heads(bench: Bench) -> Iterator[Row]:
    """A row for each shape, head, biLM and engine."""
    plan, threads, text = bench.plan, bench.plan.threads[0], bench.sentences(BATCH)
    rates = partial(_rates, count_words(text))
    for shape in plan.shapes:
        with bench.workers([*bench.ours, *bench.ours_plain, *bench.allennlp], shape, threads) as workers:
            for head in ("classifier", "tagger"):
                for bilm in ("frozen", "stored", "trained")[: 3 if shape == plan.shapes[0] else 2]:
                    labels = {"kind": "head", "shape": shape, "head": head, "bilm": bilm}
                    options = {"sentences": text, "head": head, "bilm": bilm, "seconds": 2 * plan.seconds}
                    able = [worker for worker in workers if worker.engine.is_ours or bilm != "stored"]
                    jobs = [worker.job(labels, "head_step", rates, **options) for worker in able]
                    yield from run_in_turn(jobs, plan.rounds)


def measure_pretraining(bench: Bench) -> Iterator[Row]:
    """A row for each shape and engine; the vocabulary is that of the model that ships."""
    threads, vocabulary = bench.plan.threads[0], str(bench.checkpoint(COMPACT))
    # With the two boundaries that AllenNLP adds, each of its windows has as many positions as ours.
    windows = word_windows(bench.all_sentences, ROWS, WINDOW - 2)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("\n".join(bench.all_sentences), encoding="utf-8")
        for shape in dict.fromkeys((COMPACT, bench.plan.shapes[0])):
            sampled = SAMPLED.get(shape, 8192)
            labels = {"kind": "pretraining", "shape": shape, "softmax": "none"}
            options = {"text": str(text), "vocabulary": vocabulary, "num_sampled": sampled}
            seconds = 2 * bench.plan.seconds
            with bench.workers([*bench.all_ours, *bench.allennlp], shape, threads) as workers:
                jobs = []
                for worker in workers:
                    if worker.engine.is_ours:
                        ours = {**labels, "softmax": f"{sampled:,} of 40,000"}
                        jobs.append(worker.job(ours, "pretraining", _words_per_second, **options, seconds=seconds))
                    else:
                        call = {"windows": windows, "seconds": seconds}
                        jobs.append(worker.job(labels, "bilm_step", _words_per_second, **call))
                yield from run_in_turn(jobs, bench.plan.rounds)


def _words_per_second(answers: list[Row]) -> Row:
    return {"words_per_second": ROWS * WINDOW / min(answer["seconds"] for answer in answers)}
