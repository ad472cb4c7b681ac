"""Pretraining in one process with two threads and in two gloo processes with one each, and what the exchange costs.

    python benchmarks/pretrain_processes.py text.txt

The same updates each time, of 256 windows of 20 words in bfloat16 in the shape of elmo-compact-en: the rows of a batch
are divided among the processes. "all rows" exchanges the whole gradient of the softmax, "nothing of the softmax" none
of it (its processes drift apart: only the time counts). The runs take turns, and the best rate of each counts.

The second table is of reading alone: one pass over the text by one process and by two, each of which splits its part
into words and makes batches of them. The words that each reads in a second of CPU time are added up: the rate of
processes that have a core each, whatever else the machine does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining.data import PackedWindows
from hf_elmo.pretraining.text import TextFiles
from hf_elmo.pretraining.vocabulary import build_vocabulary

CONFIG = {"hidden_size": 512, "cell_size": 768, "num_sampled": 4096, "num_highway_layers": 2, "hidden_dropout": 0.0}
ROWS = 256
ENGINES = {  # processes, threads of each, what is exchanged of the softmax
    "1 process, 1 thread": (1, 1, "rows"),
    "1 process, 2 threads": (1, 2, "rows"),
    "2 processes, rows": (2, 1, "rows"),
    "2 processes, all rows": (2, 1, "all"),
    "2 processes, nothing of the softmax": (2, 1, "nothing"),
}

WORKER = """
import os, sys
import torch
from hf_elmo.pretraining import trainer
from hf_elmo_cli import main

def all_rows(parameters):
    for parameter in parameters:
        torch.distributed.all_reduce(parameter.grad.div_(torch.distributed.get_world_size()))

changed = {"all": all_rows, "nothing": lambda parameters: None}
trainer.mean_rows = changed.get(os.environ["EXCHANGED"], trainer.mean_rows)
sys.exit(main(sys.argv[1:]))
"""


def rate(text: Path, folder: Path, vocabulary: Path, engine: str, steps: int) -> float:
    """Words a second of the best tenth of a run."""
    processes, threads, exchanged = ENGINES[engine]
    worker = folder / "worker.py"
    worker.write_text(WORKER, encoding="utf-8")
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    command = [sys.executable, str(worker)]
    if processes > 1:
        command[1:1] = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--standalone"]
    command += ["pretrain", str(out), str(text), "--vocab", str(vocabulary), "--pretokenized", "--bf16", "--seed=1"]
    command += [f"--batch-size={ROWS // processes}", "--window=20", f"--steps={steps}", "--optim=adamw_torch_fused"]
    command += ["--learning-rate=0.001", f"--set=logging_steps={max(steps // 10, 1)}", "--set=save_strategy=no"]
    command += ["--set=use_cpu=true", "--set=disable_tqdm=true"]
    command += [f"--config={name}={json.dumps(value)}" for name, value in CONFIG.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "EXCHANGED": exchanged}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    history = json.loads((out / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    return max(entry["words_per_second"] for entry in history if "words_per_second" in entry)


def read(text: Path, vocabulary: Path, rank: int, processes: int) -> tuple[int, float]:
    """The words of a process's part, and in how many seconds of CPU time it splits them and makes batches of them."""
    tokenizer = ElmoTokenizer(vocab_file=str(vocabulary))
    how = {"batch_size": ROWS // processes, "window": 20, "rank": rank, "world_size": processes}
    start = time.process_time()
    windows = PackedWindows(TextFiles([text], tokenizer), tokenizer, **how)
    words = sum(batch["labels"][..., 0].numel() for batch in windows.one_pass())
    return words, time.process_time() - start


def reading_rate(text: Path, vocabulary: Path, processes: int) -> float:
    """Words a second of all processes together, each on a core of its own."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        parts = [pool.submit(read, text, vocabulary, rank, processes) for rank in range(processes)]
        return sum(words / seconds for words, seconds in (part.result() for part in parts))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path, help="tokenized text, a sentence a line")
    parser.add_argument("--steps", type=int, default=60, help="updates of a run [60]")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each [2]")
    args = parser.parse_args()
    best, reading = dict.fromkeys(ENGINES, 0.0), {1: 0.0, 2: 0.0}
    with tempfile.TemporaryDirectory() as name:
        vocabulary = Path(name, "vocab.txt")
        with args.text.open(encoding="utf-8") as lines:
            build_vocabulary((line.split() for line in lines), 40_000).save(vocabulary)
        for _ in range(args.rounds):
            for engine in ENGINES:
                best[engine] = max(best[engine], rate(args.text, Path(name), vocabulary, engine, args.steps))
            for processes in reading:
                reading[processes] = max(reading[processes], reading_rate(args.text, vocabulary, processes))
    print("| engine | words/s | of two threads |\n| --- | --- | --- |")
    for engine, words in best.items():
        print(f"| {engine} | {words:,.0f} | {words / best['1 process, 2 threads']:.2f} |")
    print("\n| processes that read | words/s | of one |\n| --- | --- | --- |")
    for processes, words in reading.items():
        print(f"| {processes} | {words:,.0f} | {words / reading[1]:.2f} |")


if __name__ == "__main__":
    main()
