"""The implementations, each in a process and, for the peers, an environment of its own."""

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKERS = Path(__file__).resolve().parent.parent / "workers"
LONGEST_CALL = 900  # seconds, after which a worker is taken to hang


class WorkerError(RuntimeError):
    """A worker could not answer; the message is the worker's own."""


@dataclass(frozen=True)
class Engine:
    """An implementation in a dtype.

    Args:
        name: in the tables.
        python: the interpreter of its environment.
        script: the file in `workers/` that runs there, or the path of another one.
        arguments: of its call `load`, beside folder and threads.
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


class Worker:
    """A process that answers calls; a context manager ends it."""

    def __init__(self, engine: Engine, threads: int) -> None:
        self.engine = engine
        self.peak_mb = 0.0
        self._broken: str | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, closed with the worker
        command = [engine.python, str(WORKERS / engine.script)]
        environment = {**os.environ, **_thread_limits(threads), **engine.environment}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def call(self, name: str, **arguments: Any) -> Any:
        """What the worker returns.

        Raises:
            WorkerError: it failed, died or hangs.
        """
        self.post(name, **arguments)
        return self.answer()

    def post(self, name: str, **arguments: Any) -> None:
        """Send a call; `answer` receives its result."""
        if self._broken is None:
            try:
                self._process.stdin.write(json.dumps({"call": name, "arguments": arguments}).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                self._broken = f"the worker has ended: {self._last_words()}"

    def answer(self) -> Any:
        """The answer to the oldest call without one."""
        if self._broken is None and not select.select([self._process.stdout], [], [], LONGEST_CALL)[0]:
            self._broken = f"no answer in {LONGEST_CALL} s"
            self._process.kill()
        line = b"" if self._broken else self._process.stdout.readline()
        if not line:
            self._broken = self._broken or f"the worker has ended: {self._last_words()}"
            raise WorkerError(self._broken)
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        self.peak_mb = answer["peak_mb"]
        return answer["result"]

    def load(self) -> dict[str, float]:
        """The answer to a posted `load`; if it failed, every later call raises the same error."""
        try:
            return self.answer()
        except WorkerError as error:
            self._broken = f"loading: {error}"
            raise WorkerError(self._broken) from error

    def _last_words(self) -> str:
        self._process.wait(timeout=10)
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'without a word'} (status {self._process.returncode})"


def _thread_limits(threads: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    return dict.fromkeys((*names, "RAYON_NUM_THREADS"), str(threads))


@contextmanager
def loaded_workers(engines: Sequence[tuple[Engine, Path]], threads: int) -> Iterator[list[Worker]]:
    """A worker for each engine, with the model of its folder, all loaded at the same time.

    The calls of a worker that cannot load raise its error.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(engine, threads)) for engine, _ in engines]
        for worker, (engine, folder) in zip(workers, engines, strict=True):
            worker.post("load", folder=str(folder), threads=threads, **engine.arguments)
        for worker in workers:
            try:
                worker.load()
            except WorkerError:
                continue
        yield workers


@dataclass
class Answers:
    """The answers of an engine in several rounds, or its error."""

    engine: Engine
    given: list[Any] = field(default_factory=list)
    error: WorkerError | None = None

    def ask(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """One more call, unless an earlier one failed."""
        if self.error is None:
            try:
                self.given.append(call(*arguments, **options))
            except WorkerError as error:
                self.error = error

    def all(self) -> list[Any]:
        """Every answer, or the error."""
        if self.error is not None:
            raise self.error
        return self.given


def ask_in_turn(workers: Sequence[Worker], rounds: int, name: str, **arguments: Any) -> list[Answers]:
    """The same call to each worker in turn, in several rounds, so that other load on the machine affects all alike."""
    answers = [Answers(worker.engine) for worker in workers]
    for _ in range(rounds):
        for worker, answer in zip(workers, answers, strict=True):
            answer.ask(worker.call, name, **arguments)
    return answers
