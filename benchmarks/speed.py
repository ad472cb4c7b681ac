"""How fast hf_elmo is, beside AllenNLP and simple_elmo, with the same random weights: tables in Markdown.

    python benchmarks/speed.py --only embedding latency pretraining --allennlp-python PATH --simple-elmo-python PATH

PATH is the Python of an environment with that implementation; `peers/README.md` of the shared folder says how to make
one. A peer without PATH is left out. `--quick` measures README's table in about three minutes, with fewer words and
arrangements of a peer's batches. `--device cuda` runs hf_elmo on a GPU. `--before FOLDER` measures another checkout of
hf_elmo, with an environment .venv, beside this one. All engines are called in turn, so that other load on the machine
affects all alike. Needs `pip install -e ".[convert]" py-cpuinfo`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any

from common import ROOT, describe_machine, print_as_measured, read_sentences, shared_folder
from hf_elmo.checkpoints.loading import FOLDER
from hf_elmo.conversion import convert

Row = dict[str, Any]
WORKERS = ROOT / "benchmarks" / "workers"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
SENTENCES = 512  # of the corpus that is embedded
PEER_WORDS = {False: 3200, True: 1600}  # of it for a peer, about; with --quick
ARRANGEMENTS = list(product((True, False), (32, 128)))  # of a peer's batches: whether sorted by length, their size
LATENCY_WORDS = (5, 25, 100)
ROWS, WINDOW = 128, 20  # of a step of pretraining
ROUNDS = {False: 2, True: 1}  # with --quick


@dataclass
class Engine:
    """An implementation: its name, Python, worker script, further arguments of `load`, and environment variables."""

    name: str
    python: str
    script: Path
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.script.name == "ours.py"


class Worker:
    """A process that answers calls, a line of JSON each, with the model of a shape; a context manager ends it."""

    def __init__(self, engine: Engine, folder: Path, threads: int) -> None:
        self.engine = engine
        environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), **engine.environment}
        command = [engine.python, str(engine.script)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.call("load", folder=str(folder), threads=threads, **engine.arguments)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def call(self, name: str, **arguments: Any) -> Any:
        """The result of a function of the worker."""
        print(json.dumps({"call": name, "arguments": arguments}), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def list_engines(options: argparse.Namespace) -> list[Engine]:
    """hf_elmo in both dtypes, with and without kernels and of another checkout; the peers whose Python is given."""
    ours: list[tuple[str, str, dict[str, str]]] = [("hf_elmo {}", sys.executable, {})]
    if options.device == "cpu" and not options.quick:  # a GPU has no kernels
        ours.append(("hf_elmo {}, without kernels", sys.executable, {"HF_ELMO_KERNELS": "off"}))
    if options.before is not None:
        ours.append(("before {}", str(options.before / ".venv" / "bin" / "python"), {}))
    device = {} if options.device == "cpu" else {"device": options.device}  # an older checkout lacks the argument
    engines = [
        Engine(name.format(dtype), python, WORKERS / "ours.py", {"dtype": dtype} | device, environment)
        for name, python, environment in ours
        for dtype in ("float32", "bfloat16")
    ]
    if options.allennlp_python:
        peers = {"PEERS": str(options.shared / "peers")}
        engines.append(Engine("AllenNLP", options.allennlp_python, WORKERS / "peer_allennlp.py", {}, peers))
    if options.simple_elmo_python:
        legacy = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        engines.append(Engine("simple_elmo", options.simple_elmo_python, WORKERS / "peer_simple_elmo.py", {}, legacy))
    return engines


def make_models(shape: str, options: argparse.Namespace) -> tuple[Path, Path]:
    """Random weights of a shape as AllenNLP's files, which simple_elmo reads as model.hdf5, and our checkpoint."""
    weights, checkpoint = (options.work / f"{shape}-{kind}" for kind in ("weights", "checkpoint"))
    if not checkpoint.exists():
        script = options.shared / "peers" / "make_weights.py"
        subprocess.run([sys.executable, str(script), str(weights), "--size", shape], check=True)
        (weights / "model.hdf5").hardlink_to(weights / "weights.hdf5")
        convert(weights / "options.json", weights / "weights.hdf5", checkpoint)
    return weights, checkpoint


def in_turn(workers: Sequence[Worker], quick: bool, name: str, **arguments: Any) -> Iterator[tuple[str, float]]:
    """Each engine and the least of its seconds; all are called in turn in each round."""
    seconds = [[worker.call(name, **arguments) for worker in workers] for _ in range(ROUNDS[quick])]
    for worker, rounds in zip(workers, zip(*seconds, strict=True), strict=True):
        yield worker.engine.name, min(rounds)


def count_words(sentences: Sequence[str]) -> int:
    return sum(len(sentence.split()) for sentence in sentences)


def embedding(workers: Sequence[Worker], sentences: list[str], quick: bool) -> Iterator[Row]:
    """Words a second, all layers; ours makes its own batches, a peer's best arrangement of batches counts."""
    text = sentences[:SENTENCES]
    for engine, seconds in in_turn(
        [worker for worker in workers if worker.engine.is_ours], quick, "embed", batches=[text]
    ):
        yield {"engine": engine, "batches": "its own", "words a second": round(count_words(text) / seconds)}
    peers = [worker for worker in workers if not worker.engine.is_ours]
    for by_length, size in ARRANGEMENTS[: 2 if quick else 4] if peers else ():
        ordered = sorted(text, key=lambda sentence: len(sentence.split())) if by_length else text
        batches = [ordered[start : start + size] for start in range(0, len(text), size)]
        step = max(
            1, round(count_words(text) / PEER_WORDS[quick])
        )  # of the batches that are measured, evenly spaced ones
        sample = batches[min(step, len(batches)) // 2 :: step]
        words = sum(map(count_words, sample))
        for engine, seconds in in_turn(peers, quick, "embed", batches=sample):
            arrangement = f"{size}, {'by length' if by_length else 'as they come'}"
            yield {"engine": engine, "batches": arrangement, "words a second": round(words / seconds)}


def latency(workers: Sequence[Worker], sentences: list[str], quick: bool) -> Iterator[Row]:
    """Milliseconds for one sentence: text in, arrays of all layers out."""
    text = [word for sentence in sentences for word in sentence.split()]
    for words in LATENCY_WORDS:
        for engine, seconds in in_turn(workers, quick, "latency", sentence=" ".join(text[:words])):
            yield {"engine": engine, "words": words, "milliseconds": round(1000 * seconds, 2)}


def pretraining(workers: Sequence[Worker], sentences: list[str], quick: bool) -> Iterator[Row]:
    """Words a second of training steps: 128 x 20 words, 40,000 words in the softmax. AllenNLP's is the biLM alone."""
    words = (word for sentence in sentences for word in sentence.split())
    # With the two boundaries that AllenNLP adds, each of its windows has as many positions as ours.
    windows = [list(islice(words, WINDOW - 2)) for _ in range(ROWS)]
    able = [worker for worker in workers if worker.engine.name != "simple_elmo"]
    for engine, seconds in in_turn(able, quick, "pretraining", windows=windows, vocabulary=str(FOLDER)):
        yield {"engine": engine, "words a second": round(ROWS * WINDOW / seconds)}


SECTIONS = {section.__name__: section for section in (embedding, latency, pretraining)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the sections and prints a table of each, for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="sections [all; embedding with --quick]")
    parser.add_argument("--quick", action="store_true", help="README's table: one round, fewer engines and batches")
    parser.add_argument("--device", default="cpu", help="of hf_elmo [cpu]")
    parser.add_argument("--shapes", nargs="+", default=["small", "original"], help="[small original]")
    parser.add_argument("--threads", type=int, default=2, help="[2]")
    parser.add_argument("--allennlp-python", help="Python of an environment with AllenNLP 2.10.1")
    parser.add_argument("--simple-elmo-python", help="Python of an environment with simple_elmo 0.9.2")
    parser.add_argument("--before", type=Path, help="another checkout of hf_elmo")
    parser.add_argument("--shared", type=Path, default=shared_folder(), help="folder with peers/ and data/")
    parser.add_argument("--work", type=Path, default=ROOT / "outputs" / "benchmarks", help="folder of the models")
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    print(f"{describe_machine()}; {options.threads} threads")
    sentences = read_sentences(options.shared)
    for shape in options.shapes:
        weights, checkpoint = make_models(shape, options)
        with ExitStack() as stack:
            workers = [
                stack.enter_context(Worker(engine, checkpoint if engine.is_ours else weights, options.threads))
                for engine in list_engines(options)
            ]
            for name in options.only or (["embedding"] if options.quick else SECTIONS):
                print(f"\n{name}, shape {shape}\n", flush=True)
                print_as_measured(SECTIONS[name](workers, sentences, options.quick))


if __name__ == "__main__":
    main()
