"""What all sections share: the plan, the implementations and the models."""

import shutil
import subprocess
import sys
from argparse import Namespace
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from .processes import Engine, Worker, start_workers
from .text import cut_sentences, first_lines, repeat_to

COMPACT = "compact"  # the model that ships; other shapes are those of `make_weights.py`


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Args:
        shapes: the first is also the shape of the sections that measure one shape.
        threads: targets are measured with the first number of threads, in all rounds; the others run in one round.
        sentences: sizes of the corpora.
        rounds: of all engines in turn.
        peer_words: how many words a peer embeds for a rate.
        seconds: for each engine, round and row of a repeated call.
        latency_words: lengths of single sentences.
        lines: sizes of the corpora of "Size of the corpus".
        repeated: sentences of "Repetition of words".
        memory_lines, memory_words: two sizes of a corpus, and of a document.
    """

    shapes: tuple[str, ...] = ("small", "original")
    threads: tuple[int, ...] = (2, 1)
    sentences: tuple[int, ...] = (512, 4096)
    rounds: int = 2
    peer_words: int = 3200
    seconds: float = 0.7
    latency_words: tuple[int, ...] = (5, 25, 100)
    lines: tuple[int, ...] = (1_000, 10_000, 100_000)
    repeated: int = 2048
    memory_lines: tuple[int, ...] = (10_000, 1_000_000)
    memory_words: tuple[int, ...] = (2_000, 200_000)


FULL = Plan()
QUICK = Plan(
    shapes=("small",),
    threads=(1,),
    sentences=(24,),
    rounds=1,
    peer_words=100,
    seconds=0.01,
    latency_words=(5, 25),
    lines=(100, 300),
    repeated=32,
    memory_lines=(500, 1_000),
    memory_words=(200, 1_000),
)


class Bench:
    """The state of one run: the plan, and `arguments` of the command line."""

    def __init__(self, arguments: Namespace, plan: Plan) -> None:
        self.arguments, self.plan = arguments, plan
        arguments.work.mkdir(parents=True, exist_ok=True)

    @cached_property
    def all_sentences(self) -> list[str]:
        """All sentences of the text."""
        return cut_sentences(self.arguments.text.read_text(encoding="utf-8").splitlines())

    def sentences(self, count: int) -> list[str]:
        """The first sentences of the text, repeated where it has fewer."""
        return repeat_to(self.all_sentences, count)

    def lines(self, count: int) -> list[str]:
        """Lines of the large text."""
        return repeat_to(first_lines(self.arguments.large_text, count), count)

    @property
    def ours(self) -> list[Engine]:
        """hf_elmo in both dtypes."""
        return [Engine(f"hf_elmo {dtype}", sys.executable, "ours.py", {"dtype": dtype}) for dtype in DTYPES]

    @property
    def ours_plain(self) -> list[Engine]:
        """hf_elmo on PyTorch alone, as a checkpoint computes where hf_elmo is not installed."""
        off = {"HF_ELMO_KERNELS": "off"}
        return [replace(engine, name=f"{engine.name}, without kernels", environment=off) for engine in self.ours]

    @property
    def ours_high(self) -> Engine:
        """hf_elmo in float32, with PyTorch's setting "high" for matrix products."""
        arguments = {"dtype": "float32", "precision": "high"}
        return Engine("hf_elmo float32, precision high", sys.executable, "ours.py", arguments)

    @property
    def before(self) -> list[Engine]:
        """An earlier commit of hf_elmo in both dtypes, by the workers of its checkout, if one is given."""
        folder = self.arguments.before
        if folder is None:
            return []
        python, script = str(folder / ".venv" / "bin" / "python"), str(folder / "benchmarks" / "workers" / "ours.py")
        return [replace(engine, name=f"{engine.name}, before", python=python, script=script) for engine in self.ours]

    @property
    def all_ours(self) -> list[Engine]:
        """hf_elmo with and without kernels, and the earlier commit."""
        return [*self.ours, *self.ours_plain, *self.before]

    @property
    def allennlp(self) -> list[Engine]:
        """AllenNLP, where an environment with it is given."""
        peers = {"PEERS": str(self.arguments.shared / "peers")}
        return self._peer("AllenNLP", self.arguments.allennlp_python, "peer_allennlp.py", peers)

    @property
    def simple_elmo(self) -> list[Engine]:
        """simple_elmo, where an environment with it is given."""
        legacy = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        return self._peer("simple_elmo", self.arguments.simple_elmo_python, "peer_simple_elmo.py", legacy)

    def _peer(self, name: str, python: str | None, script: str, environment: dict[str, str]) -> list[Engine]:
        return [] if python is None else [Engine(name, python, script, {}, environment)]

    def workers(self, engines: list[Engine], shape: str, threads: int) -> AbstractContextManager[list[Worker]]:
        """A process for each engine with the model of a shape."""
        return start_workers([(engine, self.folder(engine, shape)) for engine in engines], threads)

    def folder(self, engine: Engine, shape: str) -> Path:
        """The model of a shape in the format that an engine reads."""
        return self.checkpoint(shape) if engine.is_ours else self.weights(shape)

    def weights(self, shape: str) -> Path:
        """AllenNLP's two files, and simple_elmo's name for the second."""
        folder = self.arguments.work / f"{shape}-weights"
        if not (folder / "model.hdf5").exists():
            shutil.rmtree(folder, ignore_errors=True)
            if shape == COMPACT:
                from hf_elmo.conversion import export

                export(self.checkpoint(COMPACT), folder)
            else:
                script = self.arguments.shared / "peers" / "make_weights.py"
                subprocess.run([sys.executable, str(script), str(folder), "--size", shape], check=True)
            (folder / "model.hdf5").hardlink_to(folder / "weights.hdf5")
        return folder

    def checkpoint(self, shape: str) -> Path:
        """The checkpoint of the same weights."""
        from hf_elmo.conversion import convert
        from hf_elmo.loading import FOLDER

        if shape == COMPACT:
            return FOLDER
        folder, source = self.arguments.work / f"{shape}-checkpoint", self.weights(shape)
        if not (folder / "config.json").exists():
            convert(source / "options.json", source / "weights.hdf5", folder)
        return folder


DTYPES = ("float32", "bfloat16")


def model_name(shape: str) -> str:
    """What tables call the model of a shape."""
    return "elmo-compact-en" if shape == COMPACT else f"{shape}, random"
