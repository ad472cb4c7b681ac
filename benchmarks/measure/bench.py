"""What all sections share: settings, plan, implementations and models."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from .processes import Engine, Worker, loaded_workers
from .rows import Row
from .text import first_lines, read_sentences, repeat_to

AnyRow = TypeVar("AnyRow", bound=Row)


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Args:
        shapes: of `make_weights.py`.
        threads: the first is the one that targets are measured with.
        sentences: sizes of the corpora.
        largest: (shape, threads, sentences): the largest corpus of a shape and number of threads, where it is limited.
        rounds: of all engines in turn, on the first number of threads; one round on the others.
        peer_words: how many words a peer embeds for a rate, by shape.
        finetuning: shapes, and whether the biLM is trained.
        heads: shapes, and whether the biLM under a head is frozen, stored or trained.
        seconds: for each engine, round and cell of a repeated call.
        latency_words: lengths of single sentences.
        lines: sizes of the corpora of "Size of the corpus".
        repeated: sentences of "Repetition of words".
        memory_lines, memory_words: two sizes of a corpus, and of a document, each.
    """

    shapes: tuple[str, ...] = ("small", "original")
    threads: tuple[int, ...] = (2, 1)
    sentences: tuple[int, ...] = (512, 4096)
    largest: tuple[tuple[str, int, int], ...] = (("original", 1, 512),)
    rounds: int = 2
    peer_words: tuple[tuple[str, int], ...] = (("small", 3200), ("original", 3200))
    finetuning: tuple[tuple[str, bool], ...] = (("small", False), ("small", True), ("original", False))
    heads: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("small", ("frozen", "stored", "trained")),
        ("original", ("frozen", "stored")),
    )
    seconds: float = 0.7
    latency_words: tuple[int, ...] = (5, 25, 100)
    lines: tuple[int, ...] = (1_000, 10_000, 100_000)
    repeated: int = 2048
    memory_lines: tuple[int, ...] = (10_000, 1_000_000)
    memory_words: tuple[int, ...] = (2_000, 200_000)

    def rounds_with(self, threads: int) -> int:
        """How many rounds there are on a number of threads."""
        return self.rounds if threads == self.threads[0] else 1

    def corpora(self, shape: str, threads: int) -> list[int]:
        """The sizes of the corpora for a shape and a number of threads."""
        limits = {(name, number): size for name, number, size in self.largest}
        return [size for size in self.sentences if size <= limits.get((shape, threads), size)]


FULL = Plan()
QUICK = Plan(
    shapes=("small",),
    threads=(1,),
    sentences=(24,),
    rounds=1,
    peer_words=(("small", 100),),
    finetuning=(("small", False), ("small", True)),
    heads=(("small", ("frozen", "stored", "trained")),),
    seconds=0.01,
    latency_words=(5, 25),
    lines=(100, 300),
    repeated=32,
    memory_lines=(500, 1_000),
    memory_words=(200, 1_000),
)


@dataclass(frozen=True)
class Settings:
    """What the command line says.

    Args:
        allennlp_python, simple_elmo_python: interpreters of the peers' environments, or `None`.
        shared: the folder with `peers/`.
        text: tokenized paragraphs, one a line.
        large_text: a folder of text, for larger corpora.
        work: the folder where models are made and kept for later runs.
    """

    allennlp_python: str | None
    simple_elmo_python: str | None
    shared: Path
    text: Path
    large_text: Path
    work: Path
    before: Path | None = None


class Bench:
    """The state of one run."""

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self.settings, self.plan = settings, plan
        settings.work.mkdir(parents=True, exist_ok=True)

    @cached_property
    def all_sentences(self) -> list[str]:
        """All sentences of the text."""
        return read_sentences(self.settings.text)

    def sentences(self, number: int) -> list[str]:
        """The first sentences of the text, repeated where it has fewer."""
        return repeat_to(self.all_sentences, number)

    def lines(self, number: int) -> list[str]:
        """Lines of the large text."""
        return repeat_to(first_lines(self.settings.large_text, number), number)

    @property
    def ours(self) -> list[Engine]:
        """hf_elmo in both dtypes."""
        return [
            Engine(f"hf_elmo {dtype}", sys.executable, "ours.py", {"dtype": dtype}) for dtype in ("float32", "bfloat16")
        ]

    @property
    def ours_plain(self) -> list[Engine]:
        """The same on PyTorch alone: what a checkpoint computes where hf_elmo is not installed."""
        off = {"HF_ELMO_KERNELS": "off"}
        return [replace(engine, name=f"{engine.name}, without kernels", environment=off) for engine in self.ours]

    @property
    def ours_constant(self) -> list[Engine]:
        """The same in a block of `hf_elmo.kernels.constant_weights`, where weights are not compared at each call."""
        return [
            replace(
                engine,
                name=f"{engine.name}, constant weights",
                arguments={**engine.arguments, "constant_weights": True},
            )
            for engine in self.ours
        ]

    @property
    def before(self) -> list[Engine]:
        """Another checkout of hf_elmo in both number types, if one is given: an earlier commit, by its own workers."""
        folder = self.settings.before
        if folder is None:
            return []
        python, script = str(folder / ".venv" / "bin" / "python"), str(folder / "benchmarks" / "workers" / "ours.py")
        return [replace(engine, name=f"{engine.name}, before", python=python, script=script) for engine in self.ours]

    @property
    def ours_high(self) -> Engine:
        """hf_elmo in float32, with PyTorch's setting "high" for matrix products."""
        arguments = {"dtype": "float32", "precision": "high"}
        return Engine("hf_elmo float32, precision high", sys.executable, "ours.py", arguments)

    @property
    def allennlp(self) -> list[Engine]:
        """AllenNLP, where an environment with it is given."""
        return self._peer("AllenNLP", self.settings.allennlp_python, "peer_allennlp.py")

    @property
    def simple_elmo(self) -> list[Engine]:
        """simple_elmo, where an environment with it is given."""
        legacy = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        return self._peer("simple_elmo", self.settings.simple_elmo_python, "peer_simple_elmo.py", legacy)

    def _peer(self, name: str, python: str | None, script: str, environment: dict | None = None) -> list[Engine]:
        peers = {"peers": str(self.settings.shared / "peers")}
        return [] if python is None else [Engine(name, python, script, peers, environment or {})]

    @contextmanager
    def workers(self, engines: list[Engine], shape: str, threads: int) -> Iterator[list[Worker]]:
        """A process for each engine with the model of a shape (of `make_weights.py`, or `mini`) loaded."""
        with loaded_workers([(engine, self.folder(engine, shape)) for engine in engines], threads) as workers:
            yield workers

    def folder(self, engine: Engine, shape: str) -> Path:
        """The model of a shape in the format that an engine reads."""
        return self.checkpoint(shape) if engine.is_ours else self.weights(shape)

    def weights(self, shape: str) -> Path:
        """AllenNLP's two files, of random weights or of a model that ships, and simple_elmo's name for them."""
        folder = self.settings.work / f"{shape}-weights"
        if not (folder / "model.hdf5").exists():
            shutil.rmtree(folder, ignore_errors=True)
            if shape == "mini":
                from hf_elmo.conversion import export
                from hf_elmo.shipped import CHECKPOINTS

                export(CHECKPOINTS / "elmo-mini-en", folder)
            else:
                script = self.settings.shared / "peers" / "make_weights.py"
                subprocess.run([sys.executable, str(script), str(folder), "--size", shape], check=True)
            (folder / "model.hdf5").hardlink_to(folder / "weights.hdf5")
        return folder

    def checkpoint(self, shape: str) -> Path:
        """Ours of the same weights; for `mini` one that ships."""
        from hf_elmo.conversion import convert
        from hf_elmo.shipped import CHECKPOINTS

        if shape == "mini":
            return CHECKPOINTS / "elmo-mini-en"
        folder, source = self.settings.work / f"{shape}-checkpoint", self.weights(shape)
        if not (folder / "config.json").exists():
            convert(source / "options.json", source / "weights.hdf5", folder)
        return folder

    def fill(self, row: AnyRow, measure: Callable[[], dict[str, Any]]) -> AnyRow:
        """The row with the values of `measure`, or with its error; it is printed."""
        try:
            row = replace(row, **measure())
        except Exception as error:  # a missing number must not cost the others
            row = row.failed(error)
        self.show(row)
        return row

    @staticmethod
    def show(row: Row) -> None:
        """One line on the terminal."""
        tqdm.write("  " + "  ".join(text for text in row.cells().values() if text != "–"))
