"""Embedding files in one process with two threads, and with two workers of Ray with one each, on one machine.

    python benchmarks/embed_workers.py text.txt

Two corpora of the same lines, one of them three times as long, are embedded by the command `hf-elmo embed` into
Parquet. What the longer one costs more gives the rate; what remains of the shorter one's time is the start: Python,
Ray, the model, the first batches. Rounds take turns, and the best time of each counts.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from hf_elmo.shipped import NAME, located

THREADS, FILES, TIMES = 2, 8, 3
ENGINES = {f"1 process, {THREADS} threads": [], f"{THREADS} workers of Ray": ["--engine=ray", f"--workers={THREADS}"]}


def write_corpora(text: Path, lines: int, folder: Path) -> list[Path]:
    """Two folders of `FILES` files each: the first `lines` lines of a text, and `TIMES` as many."""
    with text.open(encoding="utf-8") as file:
        rows = [line for line, _ in zip(filter(str.strip, file), range(TIMES * lines), strict=False)]
    if len(rows) < TIMES * lines:
        sys.exit(f"{text} has {len(rows):,} lines that are not empty, {TIMES * lines:,} are needed: give fewer --lines")
    corpora = []
    for number in (lines, TIMES * lines):
        corpora.append(folder / str(number))
        corpora[-1].mkdir()
        for part in range(FILES):
            (corpora[-1] / f"{part}.txt").write_text("".join(rows[part:number:FILES]), encoding="utf-8")
    return corpora


def embedded(engine: str, corpus: Path, options: list[str], out: Path) -> tuple[float, int, int]:
    """Seconds, words and bytes of what a command writes. Without Ray all files are one input."""
    ray = ENGINES[engine]
    source = corpus if ray else corpus.with_suffix(".txt")
    if not source.exists():
        source.write_text("".join(file.read_text(encoding="utf-8") for file in sorted(corpus.iterdir())), "utf-8")
    output = out if ray else out.with_suffix(".parquet")
    command = [sys.executable, "-m", "hf_elmo", "embed", *options, *ray, "--overwrite", str(source), str(output)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.perf_counter() - start
    files = sorted(output.rglob("*.parquet")) if ray else [output]
    words = sum(len(row) for file in files for row in pq.read_table(file, columns=["words"])["words"])
    return seconds, words, sum(file.stat().st_size for file in files)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path, help="text, a sentence a line")
    parser.add_argument("--model", type=located, default=NAME, help=f"folder or name of an ELMo [{NAME}]")
    parser.add_argument("--dtype", default="float32", help="to compute in [float32]")
    parser.add_argument(
        "--lines", type=int, default=20_000, help=f"of the shorter corpus; the other has {TIMES} times as many"
    )
    parser.add_argument("--rounds", type=int, default=2, help="runs of each [2]")
    args = parser.parse_args()
    options = [str(args.model), f"--dtype={args.dtype}", "--pretokenized"]
    found: dict[str, list[tuple[float, int, int]]] = {}
    with tempfile.TemporaryDirectory() as name:
        corpora = write_corpora(args.text, args.lines, Path(name))
        for _ in range(args.rounds):
            for engine in ENGINES:
                runs = [embedded(engine, corpus, options, Path(name, "out")) for corpus in corpora]
                found[engine] = list(map(min, found.get(engine, runs), runs))
    print("| engine | words | seconds | words/s | start, s | bytes a word |\n" + "| --- " * 6 + "|")
    for engine, ((short, few, _), (long, many, size)) in found.items():
        rate = (many - few) / (long - short)
        cells = [f"{many:,}", f"{long:.1f}", f"{rate:,.0f}", f"{short - few / rate:.1f}", f"{size / many:,.0f}"]
        print(f"| {engine} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
