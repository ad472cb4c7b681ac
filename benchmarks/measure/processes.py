"""The implementations, each in a process and, for the peers, an environment of its own."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from .tables import cells

Row = dict[str, Any]
WORKERS = Path(__file__).resolve().parents[1] / "workers"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
THREADS += ("RAYON_NUM_THREADS",)


class WorkerError(RuntimeError):
    """A worker could not answer; the message is the worker's."""


@dataclass(frozen=True)
class Engine:
    """An implementation in a dtype.

    Args:
        name: in the tables.
        python: the interpreter of its environment.
        script: the file in `workers/` that runs there, or the path of another one.
        arguments: of its call `load`, besides folder and threads.
        environment: variables of the process.
    """

    name: str
    python: str
    script: str
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Whether it is hf_elmo."""
        return Path(self.script).name == "ours.py"


def last_answer(answers: list[Any]) -> Any:
    """The answer of the last round."""
    return answers[-1]


class Job(NamedTuple):
    """A row to measure: its labels, what is called in each round, and the row's values from all rounds' answers."""

    labels: Row
    call: Callable[[], Any]
    values: Callable[[list[Any]], Row] = last_answer


class Worker:
    """A process that answers calls; a context manager ends it. Its first call loads the model of `folder`, if any."""

    def __init__(self, engine: Engine, threads: int, folder: Path | None = None) -> None:
        self.engine, self.threads, self.folder = engine, threads, folder
        self.peak_mb = 0.0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, closed with the worker
        command = [engine.python, str(WORKERS / engine.script)]
        environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), **engine.environment}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._log, env=environment)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def load(self) -> dict[str, float]:
        """Seconds of importing the libraries and of loading the model."""
        folder, self.folder = str(self.folder), None
        return self.call("load", folder=folder, threads=self.threads, **self.engine.arguments)

    def call(self, name: str, **arguments: Any) -> Any:
        """Call a function of the worker, and return its result.

        Raises:
            WorkerError: the call failed, or the process has ended.
        """
        if self.folder is not None:
            self.load()
        try:
            self._process.stdin.write(json.dumps({"call": name, "arguments": arguments}).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline() or "null")
        except BrokenPipeError:
            answer = None
        if answer is None:
            self._process.wait(timeout=10)
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise WorkerError(f"the process has ended with status {self._process.returncode}: {last}")
        if "error" in answer:
            raise WorkerError(answer["error"])
        self.peak_mb = answer["peak_mb"]
        return answer["result"]

    def job(self, labels: Row, name: str, values: Callable[[list[Any]], Row] = last_answer, **arguments: Any) -> Job:
        """A row of this engine whose rounds are calls of `name`."""
        labels = {**labels, "engine": self.engine.name, "threads": self.threads}
        return Job(labels, lambda: self.call(name, **arguments), values)


@contextmanager
def start_workers(engines: Sequence[tuple[Engine, Path]], threads: int) -> Iterator[list[Worker]]:
    """A worker for each engine and the folder of its model."""
    with ExitStack() as stack:
        yield [stack.enter_context(Worker(engine, threads, folder)) for engine, folder in engines]


def run_in_turn(jobs: Sequence[Job], rounds: int = 1) -> Iterator[Row]:
    """The rows of all jobs, called in turn in each round, so that other load on the machine affects all alike.

    The row of a job that fails has the error in place of values. Each row is printed.
    """
    answers: list[list[Any]] = [[] for _ in jobs]
    failures: dict[int, str] = {}
    for _ in range(rounds):
        for place, job in enumerate(jobs):
            if place not in failures:
                try:
                    answers[place].append(job.call())
                except Exception as error:  # a missing number must not cost the others
                    failures[place] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    for place, job in enumerate(jobs):
        values = {"failure": failures[place]} if place in failures else job.values(answers[place])
        row = {**job.labels, **values}
        tqdm.write("  " + "  ".join(cells(row).values()))
        yield row
