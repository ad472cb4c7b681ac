"""Plots of the results."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .results import Results, find
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
Row = dict[str, Any]
Series = dict[str, list[tuple[float, float]]]
Panel = tuple[str, Callable[["Axes"], None]]


def draw_plots(results: Results, folder: Path) -> dict[str, Path]:
    """Write a plot for each section that has rows for one; returns the files by the sections' names."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    files = {}
    for name, panels in _panels(results).items():
        if not panels:
            continue
        figure, axes = plt.subplots(
            1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False, layout="constrained"
        )
        for (title, paint), ax in zip(panels, axes[0], strict=True):
            ax.set_title(title, fontsize=10)
            ax.grid(axis="y", alpha=0.3)
            ax.set_axisbelow(True)
            paint(ax)
        files[name] = folder / f"{name}.png"
        figure.savefig(files[name], dpi=90)
        plt.close(figure)
    return files


def _panels(results: Results) -> dict[str, list[Panel]]:
    """The panels of each section's plot."""
    panels: dict[str, list[Panel]] = {}
    rates = "words a second"
    corpora = find(results, "embedding", threads=THREADS, sentences=SENTENCES)
    for shape, rows in _grouped(corpora, "{shape}").items():
        engines = _grouped(rows, "{engine}")
        best = {engine: max(row["words_per_second"] for row in some) for engine, some in engines.items()}
        title = f"{shape}, {SENTENCES} sentences, {THREADS} threads"
        panels.setdefault("embedding", []).append((title, _bars(best, rates)))
    for bilm, rows in _grouped(find(results, "finetuning", shape="small"), "{bilm}").items():
        values = {row["engine"]: row["steps_per_second"] for row in rows}
        painted = f"small, biLM {bilm}", _bars(values, "steps of 32 sentences a second")
        panels.setdefault("finetuning", []).append(painted)
    for shape, rows in _grouped(find(results, "pretraining"), "{shape}").items():
        values = {row["engine"]: row["words_per_second"] for row in rows}
        panels.setdefault("pretraining", []).append((shape, _bars(values, rates)))
    for shape, rows in _grouped(find(results, "latency", threads=THREADS), "{shape}").items():
        times = _points(rows, "{engine}", "words", "milliseconds")
        painted = f"{shape}, {THREADS} threads", _lines(times, "words of the sentence", "milliseconds")
        panels.setdefault("latency", []).append(painted)
    if sizes := _points(find(results, "scaling"), "{engine}", "lines", "seconds"):
        panels["scaling"] = [("the model that ships", _lines(sizes, "lines of the corpus", "seconds"))]
    repeated = find(results, "repetition", engine="hf_elmo float32")
    if shares := _points(repeated, "{run} pass", "distinct", "character_share"):
        axes = "distinct words", "share of the time in the character CNN"
        painted = "fewer distinct sentences (float32)", _lines(shares, *axes, ("linear", "linear"))
        panels.setdefault("scaling", []).append(painted)
    if memory := _points(find(results, "memory"), "{what}: {engine}", "size", "peak_mb"):
        axes = "size of the input (lines, or words)", "peak memory, MiB"
        panels["memory"] = [("file to file, a very small model", _lines(memory, *axes, ("log", "linear")))]
    return panels


def _grouped(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    """The rows by a name that is formatted from their values."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(name.format_map(row), []).append(row)
    return groups


def _points(rows: Iterable[Row], name: str, x: str, y: str) -> Series:
    return {title: [(row[x], row[y]) for row in some] for title, some in _grouped(rows, name).items()}


def _bars(values: dict[str, float], label: str) -> Callable[["Axes"], None]:
    """One bar for each engine, its number on top."""

    def paint(ax: "Axes") -> None:
        bars = ax.bar(list(values), list(values.values()), color=[COLORS[name] for name in values])
        ax.bar_label(bars, fmt="{:,.3g}" if max(values.values()) < 100 else "{:,.0f}", fontsize=8)
        ax.set_xticks(range(len(values)), [name.replace(" ", "\n") for name in values], fontsize=8)
        ax.set_ylabel(label)
        ax.margins(y=0.12)

    return paint


def _lines(series: Series, x: str, y: str, scales: Sequence[str] = ("log", "log")) -> Callable[["Axes"], None]:
    """One line for each name through its points; a linear vertical axis begins at 0."""

    def paint(ax: "Axes") -> None:
        from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

        for name, points in series.items():
            ax.plot(*zip(*sorted(points), strict=True), marker="o", label=name, color=COLORS.get(name))
        ax.set(xlabel=x, ylabel=y, xscale=scales[0], yscale=scales[1])
        if scales[0] == "log":
            ticks = sorted({place for points in series.values() for place, _ in points})
            ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            ax.xaxis.set_minor_formatter(NullFormatter())
        if scales[1] == "log":
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            ax.yaxis.set_minor_formatter(NullFormatter())
        else:
            ax.set_ylim(0, None)
        ax.legend(fontsize=8)

    return paint
