"""The figures that the project set out to reach, and whether it reached them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from .results import Results, find

THREADS, SENTENCES = 2, 512
FLOAT32, BFLOAT16 = "hf_elmo float32", "hf_elmo bfloat16"
OWN_BATCHES = "its own"
LARGEST_DIFFERENCE = "largest absolute difference, float32 with precision high, float32"
SMALLEST_COSINE = "smallest cosine, bfloat16, float32"
LINES, DOCUMENT = "lines of 5 words", "words of one document"
SPEEDUPS = {("original", FLOAT32): 2.7, ("original", BFLOAT16): 10, ("small", FLOAT32): 7, ("small", BFLOAT16): 14}
LATENCIES = {("original", FLOAT32): 2.5, ("original", BFLOAT16): 7, ("small", FLOAT32): 3}
PRETRAINING = {FLOAT32: 3.5, BFLOAT16: 9}


class Target(NamedTuple):
    """A figure to reach: description, format, whether more is better, the bound, and the measured figure, if any."""

    what: str
    style: str
    at_least: bool
    bound: float
    value: float | None

    def cells(self) -> list[str]:
        """What, the bound, the figure, and the verdict."""
        bound = f"{'≥' if self.at_least else '≤'} {self.bound:{self.style}}"
        if self.value is None:
            return [self.what, bound, "–", "not measured"]
        reached = self.value >= self.bound if self.at_least else self.value <= self.bound
        verdict = f"{'reached' if reached else '**missed**'}: {self.value / self.bound:.2f} × the target"
        return [self.what, bound, f"{self.value:{self.style}}", verdict]


def targets(results: Results) -> Iterator[Target]:
    """All of them, in the order of the table."""
    for (shape, engine), bound in SPEEDUPS.items():
        peers, name = ("AllenNLP",), "AllenNLP at its best"
        if shape == "small":
            peers, name = ("AllenNLP", "simple_elmo"), "the best peer"
        what = f"{shape}, {engine.split()[1]}: × {name}"
        yield Target(what, ".2f", True, bound, _speedup(results, shape, engine, peers))
    what = "original, float32: × AllenNLP as sentences come"
    value = _speedup(results, "original", FLOAT32, ("AllenNLP",), order="as they come")
    yield Target(what, ".2f", True, 4.3, value)
    value = _first(results, "agreement", "value", what=SMALLEST_COSINE)
    yield Target("bfloat16: smallest cosine with float32, the model that ships", ".5f", True, 0.999, value)
    for shape, engine in SPEEDUPS:
        value = _first(results, "arithmetic", "share", shape=shape, engine=engine, threads=THREADS)
        what = f"LSTM's arithmetic, {shape}, {engine.split()[1]}: share of torch.mm"
        yield Target(what, ".0%", True, 0.75, value)
    for (shape, engine), bound in LATENCIES.items():
        where = {"shape": shape, "threads": THREADS, "words": 25}
        ours = _first(results, "latency", "milliseconds", engine=engine, **where)
        theirs = _first(results, "latency", "milliseconds", engine="AllenNLP", **where)
        what = f"one sentence of 25 words, {shape}, {engine.split()[1]}: × AllenNLP"
        yield Target(what, ".2f", True, bound, _ratio(theirs, ours))
    for engine in (FLOAT32, BFLOAT16):
        rows = find(results, "repetition", shape="small", engine=engine, run="second")
        value = next((row["character_share"] for row in rows if row["different"] == row["sentences"]), None)
        what = f"character CNN, second pass, small, {engine.split()[1]}: share of the time"
        yield Target(what, ".1%", False, 0.03, value)
    for engine, bound in PRETRAINING.items():
        names = (engine, "AllenNLP")
        rates = [_first(results, "pretraining", "words_per_second", shape="small", engine=name) for name in names]
        what = f"pretraining step, small, {engine.split()[1]}: × AllenNLP's biLM alone"
        yield Target(what, ".2f", True, bound, _ratio(*rates))
    for what, kind in (
        ("memory of 1,000,000 lines: × that of 10,000", LINES),
        ("memory of a document of 200,000 words: × that of 2,000", DOCUMENT),
    ):
        rows = {row["size"]: row["peak_mb"] for row in find(results, "memory", engine=FLOAT32, what=kind)}
        value = _ratio(rows[max(rows)], rows[min(rows)]) if len(rows) > 1 else None
        yield Target(what, ".3f", False, 1.1, value)


def _first(results: Results, kind: str, column: str, **values: Any) -> float | None:
    return next((row[column] for row in find(results, kind, **values)), None)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _speedup(results: Results, shape: str, engine: str, peers: tuple[str, ...], order: str = "") -> float | None:
    """Our rate over the best rate of the peers, in any arrangement of this order and on any corpus.

    A peer is measured on few batches of each corpus, and a disturbance affects only some of them: its best rate counts.
    """
    rows = list(find(results, "embedding", shape=shape, threads=THREADS))
    ours = [row["words_per_second"] for row in rows if row["engine"] == engine and row["sentences"] == SENTENCES]
    theirs = [row["words_per_second"] for row in rows if row["engine"] in peers and row["arrangement"].endswith(order)]
    return _ratio(max(ours, default=None), max(theirs, default=None))
