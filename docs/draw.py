"""Draws the pictures of the site into docs/_static: `python docs/draw.py [FOLDER]`.

A function marked with `picture` returns a figure; NAME.svg is what the function NAME draws. A figure is 7 inches wide.
"""

import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import hf_elmo
from hf_elmo.modeling_tasks_elmo import allowed_transitions

ROOT = Path(__file__).parent.parent
PICTURES: list[Callable[[], Figure]] = []
STYLE = {
    "figure.figsize": (7, 3.5),
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "hf_elmo",  # the same bytes each time
}


def picture(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    PICTURES.append(draw)
    return draw


BLUE, ORANGE, GREEN, GREY = "#cfe3f2", "#f9dcc4", "#cdeae0", "#e6e6e6"
Boxes = dict[str, tuple[float, float, str, str]]  # by name: the middle in inches, the text, the color


def flow(height: float, boxes: Boxes, arrows: str, optional: str = "", notes: Boxes | None = None) -> Figure:
    """Boxes joined by arrows, such as "words>mix mix>head"; dashed are those that a user may leave out."""
    figure, axes = plt.subplots(figsize=(7, height))
    axes.set(xlim=(0, 7), ylim=(0, height))
    axes.set_axis_off()
    drawn = {}
    for name, (x, y, text, color) in boxes.items():
        line = "dashed" if name in optional.split() else "solid"
        style = {"boxstyle": "round,pad=0.5", "facecolor": color, "edgecolor": "#555555", "linestyle": line}
        drawn[name] = axes.text(x, y, text, ha="center", va="center", bbox=style, zorder=2)
    figure.draw_without_rendering()
    for arrow in arrows.split():
        start, end = arrow.split(">")
        style = {"arrowstyle": "->", "color": "#555555", "shrinkA": 1, "shrinkB": 1}
        style |= {"patchA": drawn[start].get_bbox_patch(), "patchB": drawn[end].get_bbox_patch()}
        axes.annotate("", boxes[end][:2], boxes[start][:2], arrowprops=style)
    for x, y, text, color in (notes or {}).values():
        axes.text(x, y, text, ha="center", va="center", color=color, fontsize=8)
    return figure


@picture
def bank() -> Figure:
    sentences = [
        "They pulled the boat up on the bank of the river .",
        "The children sat upon the bank and watched the stream .",
        "She had left all her money in the bank in London .",
        "He opened an account at the bank to save his money .",
    ]
    figure = Figure(figsize=(7, 7.5), layout="constrained")
    above, below = figure.subplots(2, 1)
    hf_elmo.plot_similarities(hf_elmo.layer_similarities(None, sentences, "bank"), axes=above)
    hf_elmo.plot_word_plane(hf_elmo.word_plane(None, sentences, "bank"), axes=below)
    return figure


@picture
def classifier() -> Figure:
    boxes = {
        "words": (0.6, 1.3, "words", GREY),
        "bilm": (1.7, 1.3, "biLM,\n3 layers", BLUE),
        "mix": (2.75, 1.3, "scalar\nmix", ORANGE),
        "encoder": (3.85, 1.3, "encoder", ORANGE),
        "pooling": (5.0, 1.3, "pooling", ORANGE),
        "linear": (6.3, 1.3, "linear\nlayer", ORANGE),
        "vectors": (1.7, 0.35, "word vectors", ORANGE),
    }
    notes = {
        "bilm": (1.7, 1.85, "freeze_bilm", "#555555"),
        "encoder": (3.85, 1.85, "encoder_type", "#555555"),
        "pooling": (5.0, 1.85, "classifier_pooling", "#555555"),
        "linear": (6.3, 1.85, "num_labels", "#555555"),
        "colors": (5.2, 0.35, "orange: trained    blue: frozen by default    dashed: if you like", "#555555"),
    }
    arrows = "words>bilm bilm>mix mix>encoder encoder>pooling pooling>linear words>vectors vectors>encoder"
    return flow(2.1, boxes, arrows, "encoder vectors", notes)


@picture
def tagger() -> Figure:
    words, labels = ["Anna", "Smith", "sleeps", "in", "Rome"], ["B-LOC", "I-PER", "B-PER", "O"]
    path = [2, 1, 3, 3, 0]
    _, allowed, _ = allowed_transitions(labels, "IOB2")
    figure, axes = plt.subplots(figsize=(7, 2.6))
    for x in range(len(words) - 1):
        for before, after in product(range(len(labels)), repeat=2):
            is_best = path[x : x + 2] == [before, after]
            if allowed[before][after]:
                color, width = ("#0072B2", 3) if is_best else ("#cccccc", 0.8)
                axes.plot((x, x + 1), (before, after), color=color, linewidth=width, zorder=1 + is_best)
    axes.plot((2, 3), (3, 1), color="#D55E00", linestyle="dashed", linewidth=2, zorder=2)
    axes.text(2.95, 0.62, "I-PER after O: not allowed", color="#B04A00", fontsize=9, ha="center", zorder=4).set_bbox(
        {"facecolor": "white", "edgecolor": "none", "pad": 1}
    )
    for x, y in product(range(len(words)), range(len(labels))):
        axes.scatter(x, y, s=70, color="#0072B2" if path[x] == y else "white", edgecolors="#555555", zorder=3)
    axes.set_xticks(range(len(words)), words)
    axes.set_yticks(range(len(labels)), labels)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    axes.margins(0.05, 0.12)
    return figure


@picture
def answer() -> Figure:
    boxes = {
        "question": (0.7, 1.9, "question", GREY),
        "passage": (0.7, 0.7, "passage", GREY),
        "elmo1": (1.75, 1.9, "ELMo", BLUE),
        "elmo2": (1.75, 0.7, "ELMo", BLUE),
        "lstm1": (2.8, 1.9, "BiLSTM", ORANGE),
        "lstm2": (2.8, 0.7, "BiLSTM", ORANGE),
        "flow": (4.0, 1.3, "attention\nflow", ORANGE),
        "self": (5.15, 1.3, "self-\nattention", ORANGE),
        "start": (6.35, 1.9, "start", GREEN),
        "end": (6.35, 0.7, "end", GREEN),
    }
    arrows = "question>elmo1 passage>elmo2 elmo1>lstm1 elmo2>lstm2 lstm1>flow lstm2>flow flow>self self>start"
    notes = {
        "same": (
            2.0,
            1.3,
            "the same weights for both;\nelmo_at_output: ELMo once more\nbeside the BiLSTM's output",
            "#555555",
        )
    }
    return flow(2.5, boxes, f"{arrows} self>end start>end", notes=notes)


@picture
def roles() -> Figure:
    words = ["Emma", "said", "David", "broke", "the", "cup", "."]
    rows = {
        "said": (1.15, [(0, 1, "ARG0"), (1, 2, "V"), (2, 6, "ARG1")]),
        "broke": (-0.35, [(2, 3, "ARG0"), (3, 4, "V"), (4, 6, "ARG1")]),
    }
    figure, axes = plt.subplots(figsize=(7, 1.9))
    for place, word in enumerate(words):
        axes.text(place + 0.5, 0.4, word, ha="center", va="center", fontsize=12)
    for predicate, (y, spans) in rows.items():
        axes.text(-0.15, y, predicate, ha="right", va="center", style="italic")
        for first, end, role in spans:
            color = {"ARG0": BLUE, "V": GREY, "ARG1": ORANGE}[role]
            axes.barh(y, end - first - 0.08, height=0.6, left=first + 0.04, color=color, edgecolor="#555555")
            axes.text((first + end) / 2, y, role, ha="center", va="center")
    axes.set(xlim=(-0.9, len(words)), ylim=(-0.8, 1.6))
    axes.set_axis_off()
    return figure


@picture
def coreference() -> Figure:
    words = ["Alice", "met", "Robert", "in", "the", "garden", ".", "She", "thanked", "him", "."]
    figure, axes = plt.subplots(figsize=(7, 1.6))
    for color, first, last in (("#0072B2", 0, 7), ("#D55E00", 2, 9)):
        radius = (last - first) / 2
        angles = np.linspace(0, np.pi, 60)
        axes.plot(first + radius * (1 - np.cos(angles)), 0.25 + 0.9 * np.sin(angles), color=color, linewidth=2)
        for place in (first, last):
            axes.text(place, 0, words[place], ha="center", va="center", color=color, fontweight="bold", fontsize=11)
    for place, word in enumerate(words):
        if place not in (0, 2, 7, 9):
            axes.text(place, 0, word, ha="center", va="center", fontsize=11)
    axes.set(xlim=(-0.6, 10.4), ylim=(-0.3, 1.3))
    axes.set_axis_off()
    return figure


@picture
def word_vectors() -> Figure:
    boxes = {
        "word": (0.7, 1.1, '"bank" in its\nsentence', GREY),
        "bilm": (2.3, 1.65, "biLM, 3 layers", BLUE),
        "mix": (3.8, 1.65, "ELMo, 512", ORANGE),
        "table": (2.3, 0.55, "table of words", ORANGE),
        "x": (3.8, 0.55, "x, 50", ORANGE),
        "both": (5.1, 1.1, "[x; ELMo]\n562", GREEN),
        "head": (6.3, 1.1, "head", ORANGE),
    }
    return flow(2.2, boxes, "word>bilm bilm>mix word>table table>x mix>both x>both both>head")


@picture
def stored_layers() -> Figure:
    results = json.loads((ROOT / "benchmarks/results/results.json").read_text(encoding="utf-8"))["heads"]
    rows = {
        (row["shape"], row["head"], row["bilm"]): row["steps_per_second"]
        for row in results["rows"]
        if row["engine"] == "hf_elmo float32"
    }
    groups = list(product(("small", "original"), ("classifier", "tagger")))
    figure, axes = plt.subplots(figsize=(7, 2.8))
    kinds = (("frozen", "computed at each step", "#0072B2", -0.2), ("stored", "stored once", "#D55E00", 0.2))
    for bilm, label, color, shift in kinds:
        values = [rows[*group, bilm] for group in groups]
        bars = axes.bar([place + shift for place in range(4)], values, 0.38, color=color, label=label)
        axes.bar_label(bars, fmt="%.1f")
    axes.set_xticks(range(4), [f"{head},\n{shape} shape" for shape, head in groups])
    axes.set_ylabel("steps a second")
    axes.margins(y=0.12)
    axes.legend(frameon=False)
    return figure


@picture
def network() -> Figure:
    boxes = {
        "words": (0.6, 1.2, "words", GREY),
        "bilm": (1.7, 1.2, "biLM,\n3 layers", BLUE),
        "first": (3.0, 1.75, "mix 1", ORANGE),
        "second": (3.0, 0.65, "mix 2", ORANGE),
        "encoder": (4.2, 1.75, "your encoder", ORANGE),
        "output": (5.6, 1.2, "your output layer", ORANGE),
    }
    return flow(2.3, boxes, "words>bilm bilm>first bilm>second first>encoder encoder>output second>output")


def main(folder: Path = Path(__file__).parent / "_static") -> None:
    folder.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw in PICTURES:
            figure = draw()
            figure.savefig(folder / f"{draw.__name__}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
