"""What the project set out to reach, and whether it did."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .embedding import LARGEST_DIFFERENCE, OWN, SMALLEST_COSINE
from .memory import DOCUMENT, LINES
from .results import Results
from .rows import (
    AgreementRow,
    ArithmeticRow,
    EmbeddingRow,
    LatencyRow,
    MemoryRow,
    PretrainingRow,
    RepetitionRow,
)

THREADS, SENTENCES = 2, 512
FLOAT32, BFLOAT16 = "hf_elmo float32", "hf_elmo bfloat16"


@dataclass(frozen=True)
class Target:
    """A figure to reach.

    Args:
        what: in words.
        bound: the figure.
        at_least: whether more is better; else less.
        style: how figures are written.
        measured: the figure from the results, `None` where a row is missing.
    """

    what: str
    bound: float
    at_least: bool
    style: str
    measured: Callable[[Results], float | None]

    def cells(self, results: Results) -> list[str]:
        """What, the bound, the figure, and the verdict."""
        value = self.measured(results)
        bound = f"{'≥' if self.at_least else '≤'} {self.bound:{self.style}}"
        if value is None:
            return [self.what, bound, "–", "not measured"]
        return [self.what, bound, f"{value:{self.style}}", self.verdict(value)]

    def verdict(self, value: float) -> str:
        """Reached or missed, and how far the figure is from the bound."""
        reached = value >= self.bound if self.at_least else value <= self.bound
        return f"{'reached' if reached else '**missed**'}: {value / self.bound:.2f} × the target"


def targets() -> Iterator[Target]:
    """All of them, in the order of the table."""
    yield Target("original, float32: × AllenNLP at its best", 2.7, True, ".2f", _speedup("original", FLOAT32))
    as_they_come = _speedup("original", FLOAT32, as_they_come=True)
    yield Target("original, float32: × AllenNLP as sentences come", 4.3, True, ".2f", as_they_come)
    yield Target("original, float32: difference from AllenNLP", 1e-5, False, ".1e", _difference)
    yield Target("original, bfloat16: × AllenNLP at its best", 10, True, ".2f", _speedup("original", BFLOAT16))
    yield Target("bfloat16: smallest cosine with float32, elmo-mini-en", 0.999, True, ".5f", _cosine)
    yield Target("small, float32: × the best peer", 7, True, ".2f", _speedup("small", FLOAT32, peers=None))
    yield Target("small, bfloat16: × the best peer", 14, True, ".2f", _speedup("small", BFLOAT16, peers=None))
    for shape in ("original", "small"):
        for engine in (FLOAT32, BFLOAT16):
            what = f"LSTM's arithmetic, {shape}, {engine.split()[1]}: share of torch.mm"
            yield Target(what, 0.75, True, ".0%", _share(shape, engine))
    for shape, engine, bound in (("original", FLOAT32, 2.5), ("original", BFLOAT16, 7), ("small", FLOAT32, 3)):
        what = f"one sentence of 25 words, {shape}, {engine.split()[1]}: × AllenNLP"
        yield Target(what, bound, True, ".2f", _latency(shape, engine))
    for engine in (FLOAT32, BFLOAT16):
        what = f"character CNN, second pass, small, {engine.split()[1]}: share of the time"
        yield Target(what, 0.03, False, ".1%", _second_pass(engine))
    for engine, bound in ((FLOAT32, 3.5), (BFLOAT16, 9)):
        what = f"pretraining step, small, {engine.split()[1]}: × AllenNLP's biLM alone"
        yield Target(what, bound, True, ".2f", _pretraining(engine))
    yield Target("memory of 1,000,000 lines: × that of 10,000", 1.1, False, ".3f", _memory(LINES))
    yield Target("memory of a document of 200,000 words: × that of 2,000", 1.1, False, ".3f", _memory(DOCUMENT))


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def _speedup(
    shape: str, engine: str, as_they_come: bool = False, peers: tuple[str, ...] | None = ("AllenNLP",)
) -> Callable[[Results], float | None]:
    """Our rate over the best of the peers (all where `peers` is `None`), in their best arrangement and corpus.

    A peer is measured on few batches of each corpus, and what disturbs one does not disturb another: its best counts.
    """

    def measured(results: Results) -> float | None:
        rows = list(results.find(EmbeddingRow, shape=shape, threads=THREADS))
        ours = [row.words_per_second for row in rows if row.engine == engine and row.sentences == SENTENCES]
        theirs = [
            row.words_per_second
            for row in rows
            if row.arrangement != OWN
            and (peers is None or row.engine in peers)
            and (not as_they_come or row.arrangement.endswith("as they come"))
        ]
        return _ratio(max(ours, default=None), max(theirs, default=None))

    return measured


def _difference(results: Results) -> float | None:
    rows = results.find(AgreementRow, what=LARGEST_DIFFERENCE, model="original, random")
    return next((row.value for row in rows), None)


def _cosine(results: Results) -> float | None:
    return next((row.value for row in results.find(AgreementRow, what=SMALLEST_COSINE)), None)


def _share(shape: str, engine: str) -> Callable[[Results], float | None]:
    return lambda results: next(
        (row.share for row in results.find(ArithmeticRow, shape=shape, engine=engine, threads=THREADS)), None
    )


def _latency(shape: str, engine: str) -> Callable[[Results], float | None]:
    def measured(results: Results) -> float | None:
        rows = results.find(LatencyRow, shape=shape, threads=THREADS, words=25)
        times = {row.engine: row.milliseconds for row in rows}
        return _ratio(times.get("AllenNLP"), times.get(engine))

    return measured


def _second_pass(engine: str) -> Callable[[Results], float | None]:
    def measured(results: Results) -> float | None:
        rows = results.find(RepetitionRow, shape="small", engine=engine, run="second")
        return next((row.character_share for row in rows if row.different == row.sentences), None)

    return measured


def _pretraining(engine: str) -> Callable[[Results], float | None]:
    def measured(results: Results) -> float | None:
        rates = {row.engine: row.words_per_second for row in results.find(PretrainingRow, shape="small")}
        return _ratio(rates.get(engine), rates.get("AllenNLP"))

    return measured


def _memory(what: str) -> Callable[[Results], float | None]:
    def measured(results: Results) -> float | None:
        rows = {row.size: row.peak_mb for row in results.find(MemoryRow, engine=FLOAT32, what=what)}
        return _ratio(rows[max(rows)], rows[min(rows)]) if len(rows) > 1 else None

    return measured
