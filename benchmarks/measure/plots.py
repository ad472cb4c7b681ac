"""Plots of the results."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .results import Results
from .rows import EmbeddingRow, FinetuningRow, LatencyRow, MemoryRow, PretrainingRow, RepetitionRow, ScalingRow
from .targets import SENTENCES, THREADS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    "hf_elmo float32": "tab:blue",
    "hf_elmo bfloat16": "tab:cyan",
    "hf_elmo float32, precision high": "tab:purple",
    "hf_elmo float32, without kernels": "tab:green",
    "hf_elmo bfloat16, without kernels": "tab:olive",
    "hf_elmo float32, before": "tab:gray",
    "hf_elmo bfloat16, before": "tab:brown",
    "AllenNLP": "tab:orange",
    "simple_elmo": "tab:red",
}
Panel = tuple[str, Callable[["Axes"], None]]


def draw_plots(results: Results, folder: Path) -> dict[str, Path]:
    """Write a plot for each section that has rows for one; returns the files by the sections' names."""
    panels = {
        "embedding": _embedding(results),
        "latency": _latency(results),
        "finetuning": _finetuning(results),
        "pretraining": _pretraining(results),
        "scaling": _scaling(results),
        "memory": _memory(results),
    }
    files = {name: folder / f"{name}.png" for name in panels if panels[name]}
    for name, file in files.items():
        _draw(panels[name], file)
    return files


def _draw(panels: Sequence[Panel], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False, layout="constrained")
    for (title, paint), ax in zip(panels, axes[0], strict=True):
        ax.set_title(title, fontsize=10)
        ax.grid(axis="y", alpha=0.3)
        ax.set_axisbelow(True)
        paint(ax)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _bars(values: dict[str, float], label: str) -> Callable[["Axes"], None]:
    """One bar for each engine, its number on top."""

    def paint(ax: "Axes") -> None:
        bars = ax.bar(list(values), list(values.values()), color=[COLORS[name] for name in values])
        ax.bar_label(bars, fmt="{:,.3g}" if max(values.values()) < 100 else "{:,.0f}", fontsize=8)
        ax.set_xticks(range(len(values)), [name.replace(" ", "\n") for name in values], fontsize=8)
        ax.set_ylabel(label)
        ax.margins(y=0.12)

    return paint


def _lines(series: dict[str, list[tuple[float, float]]], x: str, y: str, scale: str) -> Callable[["Axes"], None]:
    """One line for each name through its points, both axes of the scale."""

    def paint(ax: "Axes") -> None:
        for name, points in series.items():
            ax.plot(*zip(*sorted(points), strict=True), marker="o", label=name, color=COLORS.get(name))
        ax.set(xlabel=x, ylabel=y, xscale=scale, yscale=scale)
        if scale == "log":
            _write_out(ax)
        ax.legend(fontsize=8)

    return paint


def _write_out(ax: "Axes") -> None:
    """Numbers in full on logarithmic axes: each point's size below it, and 1, 2, 5 of each power of ten beside."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    sizes = sorted({x for line in ax.get_lines() for x in line.get_xdata()})
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())


def _embedding(results: Results) -> list[Panel]:
    panels = []
    for shape in ("small", "original"):
        best: dict[str, float] = {}
        for row in results.find(EmbeddingRow, shape=shape, threads=THREADS, sentences=SENTENCES):
            best[row.engine] = max(best.get(row.engine, 0.0), row.words_per_second)
        if best:
            panels.append((f"{shape}, {SENTENCES} sentences, {THREADS} threads", _bars(best, "words a second")))
    return panels


def _latency(results: Results) -> list[Panel]:
    panels = []
    for shape in ("small", "original"):
        series: dict[str, list[tuple[float, float]]] = {}
        for row in results.find(LatencyRow, shape=shape, threads=THREADS):
            series.setdefault(row.engine, []).append((row.words, row.milliseconds))
        if series:
            panels.append(
                (f"{shape}, {THREADS} threads", _lines(series, "words of the sentence", "milliseconds", "log"))
            )
    return panels


def _finetuning(results: Results) -> list[Panel]:
    panels = []
    for bilm in ("frozen", "trained"):
        rates = {row.engine: row.steps_per_second for row in results.find(FinetuningRow, shape="small", bilm=bilm)}
        if rates:
            panels.append((f"small, biLM {bilm}", _bars(rates, "steps of 32 sentences a second")))
    return panels


def _pretraining(results: Results) -> list[Panel]:
    panels = []
    for shape in ("mini", "small"):
        rates = {row.engine: row.words_per_second for row in results.find(PretrainingRow, shape=shape)}
        if rates:
            panels.append((shape, _bars(rates, "words a second")))
    return panels


def _scaling(results: Results) -> list[Panel]:
    panels, sizes, shares = [], {}, {}
    for row in results.find(ScalingRow):
        sizes.setdefault(row.engine, []).append((row.lines, row.seconds))
    if sizes:
        panels.append(("elmo-mini-en", _lines(sizes, "lines of the corpus", "seconds", "log")))
    for row in results.find(RepetitionRow, engine="hf_elmo float32"):
        shares.setdefault(f"{row.run} pass", []).append((row.distinct, 100 * row.character_share))
    if shares:
        title = "one size, fewer different sentences (small, float32)"
        panels.append((title, _lines(shares, "distinct words", "% of the time in the character CNN", "linear")))
    return panels


def _memory(results: Results) -> list[Panel]:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in results.find(MemoryRow):
        series.setdefault(f"{row.what}: {row.engine}", []).append((row.size, row.peak_mb))
    if not series:
        return []

    def paint(ax: "Axes") -> None:
        _lines(series, "size of the input (lines, or words)", "peak memory, MiB", "log")(ax)
        ax.set(yscale="linear", ylim=(0, None))

    return [("file to file, a very small model", paint)]
