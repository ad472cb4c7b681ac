"""Words per second beside transformers' encoders, of the shapes that people use."""

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from .bench import Bench
from .processes import Engine, Job, Row, Worker, run_in_turn, start_workers
from .text import count_words

SHAPES = {"MiniLM-L6": (6, 384, 12), "DistilBERT": (6, 768, 12), "BERT-base": (12, 768, 12)}
BATCH_SIZES = (32, 128)
LINES = 200_000  # of the text that the vocabulary of word pieces is learned from
RUNTIMES = {"torch": ("PyTorch", ("float32", "bfloat16")), "onnxruntime": ("ONNX Runtime", ("float32",))}


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each shape of ELMo, and for each encoder, dtype and runtime, measured in turn."""
    threads, sentences = bench.plan.threads[0], bench.sentences(bench.plan.sentences[0])
    vocabulary = _tokenizer(bench)
    engines: list[tuple[Engine, Path]] = []
    labels: list[tuple[str, str, str]] = []
    for shape in bench.plan.shapes:
        for runtime, ours in (("hf_elmo", bench.ours), ("hf_elmo, without kernels", bench.ours_plain)):
            engines += [(engine, bench.checkpoint(shape)) for engine in ours]
            labels += [(f"ELMo {shape}", runtime, engine.arguments["dtype"]) for engine in ours]
    for shape, (layers, hidden, heads) in list(SHAPES.items())[: None if bench.plan.rounds > 1 else 1]:
        for runtime, (title, dtypes) in RUNTIMES.items():
            for dtype in dtypes:
                options = {"layers": layers, "hidden": hidden, "heads": heads, "dtype": dtype, "runtime": runtime}
                engines.append((Engine(shape, sys.executable, "peer_transformers.py", options), vocabulary))
                labels.append((shape, title, dtype))
    with start_workers(engines, threads) as workers:
        jobs = []
        for worker, (encoder, runtime, dtype) in zip(workers, labels, strict=True):
            row = {"kind": "encoder", "encoder": encoder, "runtime": runtime, "dtype": dtype, "threads": threads}
            row["words"] = count_words(sentences)
            jobs.append(Job(row, partial(_embed, worker, sentences), partial(_rate, row["words"])))
        yield from run_in_turn(jobs, bench.plan.rounds)


def _embed(worker: Worker, sentences: list[str]) -> Row:
    """A round: ELMo makes its own batches, the others take the better of two sizes."""
    if worker.engine.is_ours:
        return worker.call("embed", batches=[sentences])
    answers = [worker.call("embed", sentences=sentences, batch_size=size) for size in BATCH_SIZES]
    return min(answers, key=lambda answer: answer["seconds"])


def _rate(words: int, answers: list[Row]) -> Row:
    best = min(answers, key=lambda answer: answer["seconds"])
    tokens = {"tokens": best["tokens"]} if "tokens" in best else {}
    return {**tokens, "words_per_second": words / best["seconds"]}


def _tokenizer(bench: Bench) -> Path:
    """A folder with a WordPiece tokenizer that was trained on the large text and the text itself."""
    folder = bench.arguments.work / "word-pieces"
    if not (folder / "tokenizer.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        text = folder / "text.txt"
        text.write_text("\n".join([*bench.lines(LINES), *bench.all_sentences]), encoding="utf-8")
        with Worker(Engine("word pieces", sys.executable, "peer_transformers.py"), threads=1) as worker:
            worker.call("make_tokenizer", text=str(text), folder=str(folder))
    return folder
