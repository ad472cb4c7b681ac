"""Words per second beside transformers' own encoders, of the shapes that people use."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .bench import Bench
from .processes import Answers, Engine, Worker, loaded_workers
from .rows import EncoderRow, Row
from .text import count_words

MINUTES = 10
SHAPES = {"MiniLM-L6": (6, 384, 12), "DistilBERT": (6, 768, 12), "BERT-base": (12, 768, 12)}
BATCH_SIZES = (32, 128)
LINES = 200_000  # that word pieces are learned from
RUNTIMES = {"PyTorch": ("torch", ("float32", "bfloat16")), "ONNX Runtime": ("onnxruntime", ("float32",))}


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each shape of ELMo, each encoder, number type and runtime, measured in turn."""
    threads = bench.plan.threads[0]
    sentences = bench.sentences(bench.plan.sentences[0])
    pieces = _tokenizer(bench)
    loaded: list[tuple[Engine, Path]] = []
    names: list[tuple[str, str, str]] = []
    for shape in bench.plan.shapes:
        for runtime, engines in (("hf_elmo", bench.ours), ("hf_elmo, without kernels", bench.ours_plain)):
            for engine in engines:
                loaded.append((engine, bench.checkpoint(shape)))
                names.append((f"ELMo {shape}", runtime, engine.arguments["dtype"]))
    for shape, (layers, hidden, heads) in list(SHAPES.items())[: None if bench.plan.rounds > 1 else 1]:
        for title, (runtime, dtypes) in RUNTIMES.items():
            for dtype in dtypes:
                options = {"layers": layers, "hidden": hidden, "heads": heads, "dtype": dtype, "runtime": runtime}
                loaded.append((Engine(shape, sys.executable, "peer_transformers.py", options), pieces))
                names.append((shape, title, dtype))
    with loaded_workers(loaded, threads) as workers:
        answers = [Answers(worker.engine) for worker in workers]
        for _ in range(bench.plan.rounds):
            for worker, answer in zip(workers, answers, strict=True):
                answer.ask(_embed, worker, sentences)
    for (encoder, runtime, dtype), answer in zip(names, answers, strict=True):
        row = EncoderRow(encoder=encoder, runtime=runtime, dtype=dtype, threads=threads, words=count_words(sentences))
        yield bench.fill(row, lambda answer=answer: _rate(answer, count_words(sentences)))


def _embed(worker: Worker, sentences: list[str]) -> dict[str, Any]:
    """A round: ELMo makes its own batches, the others take the better of two sizes."""
    if worker.engine.is_ours:
        return worker.call("embed", batches=[sentences])
    found = [worker.call("embed", sentences=sentences, batch_size=size) for size in BATCH_SIZES]
    return min(found, key=lambda answer: answer["seconds"])


def _rate(answers: Answers, words: int) -> dict[str, Any]:
    best = min(answers.all(), key=lambda answer: answer["seconds"])
    return {"tokens": best.get("tokens"), "words_per_second": words / best["seconds"]}


def _tokenizer(bench: Bench) -> Path:
    """A folder with a WordPiece tokenizer that read the large text and the text itself."""
    folder = bench.settings.work / "word-pieces"
    if not (folder / "tokenizer.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        text = folder / "text.txt"
        text.write_text("\n".join([*bench.lines(LINES), *bench.all_sentences]), encoding="utf-8")
        with Worker(Engine("word pieces", sys.executable, "peer_transformers.py"), threads=1) as worker:
            worker.call("make_tokenizer", text=str(text), folder=str(folder))
    return folder
