"""Peak memory of embedding a file into a file: a small and a large corpus, a short and a long row."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from .bench import Bench
from .processes import Engine, Worker
from .rows import MemoryRow, Row
from .text import running_text

MINUTES = 6
LINES, DOCUMENT = "lines of 5 words", "words of one document"
WORDS_OF_A_LINE = 5


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each size, each in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Worker(bench.ours[0], threads=bench.plan.threads[0]) as worker:
            worker.call("make_tiny_model", folder=str(folder / "model"))
        for engine in (bench.ours[0], bench.ours_plain[0]):
            embed = partial(_embed, engine, bench, folder)
            for size in bench.plan.memory_lines:
                row = MemoryRow(engine=engine.name, what=LINES, size=size)
                yield bench.fill(row, partial(embed, size, _write_lines, pooling="mean"))
            for size in bench.plan.memory_words:
                row = MemoryRow(engine=engine.name, what=DOCUMENT, size=size)
                yield bench.fill(row, partial(embed, size, _write_document, pooling="none"))


def _embed(
    engine: Engine, bench: Bench, folder: Path, size: int, write: Callable[[Bench, int, Path], None], pooling: str
) -> dict[str, float]:
    files = {"folder": folder / "model", "source": folder / "text.txt", "output": folder / "vectors.safetensors"}
    write(bench, size, files["source"])
    paths, threads = {name: str(path) for name, path in files.items()}, bench.plan.threads[0]
    with Worker(engine, threads) as worker:
        answer = worker.call("embed_file", **paths, threads=threads, pooling=pooling)
        return {**answer, "peak_mb": worker.peak_mb}


def _write_lines(bench: Bench, number: int, path: Path) -> None:
    """The text in lines of `WORDS_OF_A_LINE` words, repeated up to `number` lines."""
    words = " ".join(bench.all_sentences).split()
    starts = range(0, len(words) - WORDS_OF_A_LINE, WORDS_OF_A_LINE)
    lines = [" ".join(words[start : start + WORDS_OF_A_LINE]) for start in starts]
    with path.open("w", encoding="utf-8") as file:
        for place in range(number):
            file.write(f"{lines[place % len(lines)]}\n")


def _write_document(bench: Bench, number: int, path: Path) -> None:
    path.write_text(running_text(bench.all_sentences, number) + "\n", encoding="utf-8")
