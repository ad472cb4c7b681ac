"""Draws the pictures of the site into docs/_static: `python docs/draw.py [FOLDER]`.

A function marked with `picture` returns a figure; NAME.svg is what the function NAME draws. A figure is 7 inches wide.
"""

import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import hf_elmo

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
PALE, FORWARD, BACKWARD, MIX = "#fdf0c4", "#a8cbea", "#f4bf9b", "#bfe0b4"


def picture(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    PICTURES.append(draw)
    return draw


@cache
def shipped() -> tuple[hf_elmo.ElmoModel, hf_elmo.ElmoTokenizer]:
    return hf_elmo.load_default()


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A drawing of boxes and arrows in units of its own; a unit is as wide as it is high."""
    figure, ax = plt.subplots(figsize=(7, 7 * height / width))
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")
    return figure, ax


def box(ax: Axes, x: float, y: float, width: float, height: float, text: str = "", color: str = PALE) -> None:
    ax.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor="0.35", linewidth=0.8))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center")


def boxes(ax: Axes, texts: list[tuple[float, float, str]], width: float, color: str) -> None:
    """Boxes of `width`, as high as their texts, at their centers."""
    for x, y, text in texts:
        height = 0.34 + 0.26 * text.count("\n")
        box(ax, x - width / 2, y - height / 2, width, height, text, color)


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], color: str = "0.35") -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "shrinkA": 0, "shrinkB": 0})


@picture
def characters() -> Figure:
    """A word's characters, two windows, the maximum, highway layers and the projection."""
    figure, ax = canvas(14, 8.2)
    marks = ["begin", *"bank", "end"]
    for place, mark in enumerate(marks):
        box(ax, 0.3 + 1.2 * place, 0.2, 1.2, 0.8, mark, "white")
        box(ax, 0.3 + 1.2 * place, 1.4, 1.2, 0.8, "16", PALE)
        arrow(ax, (0.9 + 1.2 * place, 1.0), (0.9 + 1.2 * place, 1.4))
    for number, (width, filters) in enumerate(shipped()[0].config.char_filters):
        y = 2.7 + 1.1 * number
        box(ax, 0.3, y, 1.2 * width, 0.7, f"width {width}" if width > 1 else "1", FORWARD)
        ax.text(6.6, y + 0.35, f"{filters} filters", va="center")
        box(ax, 9.1, y, 1.6, 0.7, f"max: {filters}", BACKWARD)
        arrow(ax, (8.3, y + 0.35), (9.1, y + 0.35))
        arrow(ax, (10.7, y + 0.35), (11.3, 4.5 + 0.3 * number))
    box(ax, 11.3, 4.3, 2.5, 1.5, "512: two\nhighway layers", PALE)
    arrow(ax, (12.55, 4.3), (12.55, 2.6))
    box(ax, 11.3, 1.6, 2.5, 1.0, "vector of 256", MIX)
    return figure


@picture
def directions() -> Figure:
    """The layers of both directions over a sentence, and the mix."""
    figure, ax = canvas(14, 8.6)
    words = ["<S>", "the", "bank", "of", "England", "</S>"]
    for place, word in enumerate(words):
        x = 2.2 + 2 * place
        ax.text(x + 0.75, 0.3, word, ha="center", va="center", fontweight="bold" if word == "bank" else "normal")
        box(ax, x, 0.9, 1.5, 0.7, "", PALE)
        for y, below in (2.1, 1.6), (4.3, 2.8):
            box(ax, x, y, 0.7, 0.7, "", FORWARD)
            arrow(ax, (x + 0.35, below), (x + 0.35, y))
            box(ax, x + 0.8, y + 0.9, 0.7, 0.7, "", BACKWARD)
            arrow(ax, (x + 1.15, below + (0.9 if y > 4 else 0)), (x + 1.15, y + 0.9))
            if place:
                arrow(ax, (x - 1.3, y + 0.35), (x, y + 0.35))
                arrow(ax, (x + 0.8, y + 1.25), (x - 0.5, y + 1.25))
    for y, name in (0.9, "layer 0"), (2.55, "layer 1"), (4.75, "layer 2"):
        ax.text(0.2, y + 0.35, name, va="center")
    x = 2.2 + 2 * words.index("bank")
    arrow(ax, (x + 0.75, 5.9), (x + 0.75, 6.9))
    box(ax, x - 1.2, 6.9, 3.9, 0.9, "mix of the three layers: 512", MIX)
    box(ax, 9.2, 7.6, 0.5, 0.5, "", FORWARD)
    ax.text(9.9, 7.85, "forward: reads to the right", va="center")
    box(ax, 9.2, 6.8, 0.5, 0.5, "", BACKWARD)
    ax.text(9.9, 7.05, "backward: reads to the left", va="center")
    return figure


@picture
def state() -> Figure:
    """How far a sentence's vectors are from those after another sentence, in each direction."""
    model, tokenizer = shipped()
    words = [
        "The",
        "children",
        "sat",
        "upon",
        "the",
        "bank",
        "and",
        "watched",
        "the",
        "stream",
        "for",
        "an",
        "hour",
        ".",
    ]
    inputs, before = (
        tokenizer([text], is_split_into_words=True, return_tensors="pt")
        for text in (words, ["Prices", "rose", "by", "two", "per", "cent", "in", "May", "."])
    )
    with torch.no_grad():
        zeros = model(**inputs, output_hidden_states=True).hidden_states[2][0]
        read = model(**before, use_cache=True).state
        carried = model(**inputs, state=read, output_hidden_states=True).hidden_states[2][0]
    figure, ax = plt.subplots()
    halves = (carried - zeros).unflatten(1, (2, -1)).norm(dim=2) / zeros.unflatten(1, (2, -1)).norm(dim=2)
    names = ["<S>", *words, "</S>"]
    places = np.arange(len(names))
    for half, name, color, shift in (0, "forward half", FORWARD, -0.2), (1, "backward half", BACKWARD, 0.2):
        ax.bar(places + shift, halves[:, half], 0.4, color=color, edgecolor="0.35", linewidth=0.5, label=name)
    ax.set_xticks(places, names, rotation=45, ha="right")
    ax.set_ylabel("relative change of the vector, layer 2")
    ax.legend(frameon=False)
    return figure


@picture
def senses() -> Figure:
    """The accuracies of the model's card, by layer."""
    card = Path(hf_elmo.path("elmo-compact-en"), "README.md").read_text(encoding="utf-8")
    figure, ax = plt.subplots(figsize=(7, 3))
    rows = "most frequent", "layer 0", "layer 1", "layer 2", "mean of all"
    places = np.arange(len(rows))
    for word, color, shift in ("line", FORWARD, -0.2), ("interest", BACKWARD, 0.2):
        found = [re.search(rf"\| senses of \*{word}\*, {row} \|.*\| ([\d.]+)% \|\n", card)[1] for row in rows]
        bars = ax.bar(
            places + shift, [*map(float, found)], 0.4, color=color, edgecolor="0.35", linewidth=0.5, label=word
        )
        ax.bar_label(bars, fontsize=8)
    ax.set_xticks(places, ["most frequent\nsense", *rows[1:]])
    ax.set(ylabel="accuracy, %", ylim=(0, 110))
    ax.legend(frameon=False, loc="upper left", ncols=2)
    return figure


@picture
def packing() -> Figure:
    """A padded batch, and its rows at each step once it is packed."""
    lengths = [15, 10, 5, 4]  # the batch of the page, longest first
    figure, ax = canvas(34.5, 7.5)
    order = [0, 2, 1, 3]  # as they come
    for left, title, rows in (
        (0, "padded: 60 positions", [lengths[number] for number in order]),
        (18, "packed: 34 positions", lengths),
    ):
        ax.text(left, 6.6, title)
        for row, length in enumerate(rows):
            for step in range(15):
                if step < length or left == 0:
                    box(ax, left + step * 1.05, 4.7 - row * 1.2, 1, 1, "", FORWARD if step < length else "0.93")
    for step in range(15):
        rows = sum(length > step for length in lengths)
        ax.text(18.5 + step * 1.05, 0.3, str(rows), ha="center", va="center")
    ax.text(17.3, 0.3, "rows a step", ha="right", va="center")
    return figure


@picture
def time() -> Figure:
    """The shares of the time that `benchmarks/speed.py` measured."""
    results = Path(__file__).parent.parent / "benchmarks" / "results" / "results.json"
    rows = [row for row in json.loads(results.read_text())["embedding"]["rows"] if row["kind"] == "split"]
    rows = [row for row in rows if "high" not in row["engine"]][::-1]
    names = [f"{row['shape']}, {row['engine'].split()[1]}" for row in rows]
    figure, ax = plt.subplots(figsize=(7, 2.4))
    left = np.zeros(len(rows))
    parts = ("characters", "character CNN", PALE), ("lstm", "LSTM", FORWARD), ("rest", "rest", "0.85")
    for key, label, color in (("tokenizing", "tokenizing", "0.2"), *parts):
        shares = 100 * np.array([row[key] for row in rows])
        bars = ax.barh(names, shares, left=left, color=color, edgecolor="0.35", linewidth=0.5, label=label)
        ax.bar_label(bars, [f"{share:.0f}%" if share > 4 else "" for share in shares], label_type="center")
        left += shares
    ax.set(xlim=(0, 100), xlabel="share of the time, %")
    figure.legend(loc="outside upper right", ncols=4, frameon=False)
    return figure


@picture
def two_senses() -> Figure:
    """What examples/two_senses.py prints."""
    river, stream, money = (
        "They pulled the boat up on the bank of the river .",
        "The children sat upon the bank and watched the stream .",
        "She had left all her money in the bank in London .",
    )
    model, _ = hf_elmo.load_default()
    similar = hf_elmo.layer_similarities(model, [river, stream, money], "bank", pretokenized=True).matrix[:, 0]
    figure, axes = plt.subplots(figsize=(7, 3))
    for number, sentence, color in ((1, stream, "#1f77b4"), (2, money, "#d95f02")):
        cosines = similar[:, number]
        axes.plot(["layer 0", "layer 1", "layer 2"], cosines, marker="o", color=color, label=sentence)
        for layer, cosine in enumerate(cosines):
            place = {"xytext": (0, -15), "textcoords": "offset points", "ha": "center", "color": color}
            axes.annotate(f"{cosine:.2f}", (layer, cosine), **place)
    axes.set(ylabel="cosine similarity", ylim=(0.7, 1.02), title=f"Similarity to \u201cbank\u201d in: {river}")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, -0.02))
    return figure


@picture
def convert() -> Figure:
    """Formats of files that become one checkpoint."""
    figure, axes = canvas(7, 3.7)
    sources = [
        "AllenNLP, flair\noptions.json, weights.hdf5",
        "AllenNLP's task models\nmodel.tar.gz",
        "bilm-tf, simple_elmo, NLPL\ncheckpoint, model.hdf5",
        "ELMoForManyLangs\nencoder.pkl, token_embedder.pkl",
        "TF-Hub, DeepPavlov\nSavedModel",
    ]
    places = [3.3 - 0.73 * n for n in range(len(sources))]
    boxes(axes, [(1.2, y, text) for y, text in zip(places, sources, strict=True)], 2.25, "#dbe9f6")
    boxes(axes, [(3.65, 1.84, "hf-elmo convert\ncompares each\ntensor")], 1.35, "#fde9c9")
    files = "model.safetensors\nconfig.json\ntokenizer files\nmodeling_elmo.py, ...\nREADME.md\nconversion.json"
    boxes(axes, [(5.95, 1.84, files)], 1.7, "#dcf0dc")
    for y in places:
        arrow(axes, (2.35, y), (2.95, 1.84 + (y - 1.84) * 0.2))
    arrow(axes, (4.35, 1.84), (5.07, 1.84))
    axes.text(5.95, 3.1, "a checkpoint of AutoModel", ha="center")
    return figure


@picture
def own_language() -> Figure:
    """The steps from raw text to the Hub, with the command of each."""
    figure, axes = canvas(7, 1.5)
    steps = [
        ("raw text", "prepare.py"),
        ("sentences", "hf-elmo vocab"),
        ("vocabulary", "hf-elmo pretrain"),
        ("checkpoint", "hf-elmo push"),
        ("the Hub", ""),
    ]
    places = [0.6 + 1.45 * n for n in range(len(steps))]
    boxes(axes, [(x, 1.0, name) for x, (name, _) in zip(places, steps, strict=True)], 0.92, "#dbe9f6")
    for x, (_, command) in zip(places[:-1], steps, strict=False):
        arrow(axes, (x + 0.48, 1.0), (x + 0.97, 1.0))
        axes.text(x + 0.72, 1.3, command, ha="center", fontsize=8.5)
    axes.text(places[3], 0.35, "hf-elmo perplexity, neighbors, explore", ha="center", fontsize=8.5)
    arrow(axes, (places[3], 0.8), (places[3], 0.48))
    return figure


@picture
def workers() -> Figure:
    """Files that workers read, and the shards that they write."""
    figure, axes = canvas(7, 2.3)
    rows = [1.85, 1.15, 0.45]
    columns = {"files of text": (0.9, "#dbe9f6"), "workers": (3.5, "#fde9c9"), "one folder of shards": (6.1, "#dcf0dc")}
    names = (["a.jsonl", "b.jsonl", "c.jsonl"], ["Embedder + model"] * 3, ["Parquet files"] * 3)
    for (title, (x, color)), texts in zip(columns.items(), names, strict=True):
        boxes(axes, [(x, y, text) for y, text in zip(rows, texts, strict=True)], 1.5, color)
        axes.text(x, 2.18, title, ha="center", weight="bold")
    for y in rows:
        for other in rows:
            arrow(axes, (1.67, y), (2.73, other))
        arrow(axes, (4.27, y), (5.33, y))
    return figure


def main(folder: Path = Path(__file__).parent / "_static") -> None:
    folder.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw in PICTURES:
            figure = draw()
            figure.savefig(folder / f"{draw.__name__}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
