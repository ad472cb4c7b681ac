"""Draws the pictures of the site into docs/_static: `python docs/draw.py [FOLDER]`.

A function marked with `picture` returns a figure, 7 inches wide; NAME.svg is what NAME draws.
"""

import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import hf_elmo
from hf_elmo.modeling_tagging_elmo import allowed_transitions

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
BLUE, ORANGE, GREEN, GREY = "#cfe3f2", "#f9dcc4", "#cdeae0", "#e6e6e6"
Boxes = dict[
    str, tuple[float, float, str, str]
]  # by name: the middle in inches, the text, the color


def picture(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    PICTURES.append(draw)
    return draw


@cache
def shipped() -> tuple[hf_elmo.ElmoModel, hf_elmo.ElmoTokenizer]:
    return hf_elmo.load_model()


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A drawing of boxes and arrows in units of its own; a unit is as wide as it is high."""
    figure, ax = plt.subplots(figsize=(7, 7 * height / width))
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")
    return figure, ax


def box(
    ax: Axes, x: float, y: float, width: float, height: float, text: str = "", color: str = PALE
) -> None:
    ax.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor="0.35", linewidth=0.8))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center")


def arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], color: str = "0.35"
) -> None:
    ax.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "shrinkA": 0, "shrinkB": 0}
    )


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
        ax.text(
            x + 0.75,
            0.3,
            word,
            ha="center",
            va="center",
            fontweight="bold" if word == "bank" else "normal",
        )
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
    """How much a sentence's vectors change if another one was read before, in each direction."""
    model, tokenizer = shipped()
    sentence = "The children sat upon the bank and watched the stream for an hour ."
    words = sentence.split()
    inputs, before = (
        tokenizer([text], is_split_into_words=True, return_tensors="pt")
        for text in (words, ["Prices", "rose", "by", "two", "per", "cent", "in", "May", "."])
    )
    with torch.no_grad():
        zeros = model(**inputs, output_hidden_states=True).hidden_states[2][0]
        read = model(**before, use_cache=True).state
        carried = model(**inputs, state=read, output_hidden_states=True).hidden_states[2][0]
    figure, ax = plt.subplots()
    halves = (carried - zeros).unflatten(1, (2, -1)).norm(dim=2) / zeros.unflatten(1, (2, -1)).norm(
        dim=2
    )
    names = ["<S>", *words, "</S>"]
    places = np.arange(len(names))
    for half, name, color, shift in (
        (0, "forward half", FORWARD, -0.2),
        (1, "backward half", BACKWARD, 0.2),
    ):
        ax.bar(
            places + shift,
            halves[:, half],
            0.4,
            color=color,
            edgecolor="0.35",
            linewidth=0.5,
            label=name,
        )
    ax.set_xticks(places, names, rotation=45, ha="right")
    ax.set_ylabel("relative change of the vector, layer 2")
    ax.legend(frameon=False)
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
                    box(
                        ax,
                        left + step * 1.05,
                        4.7 - row * 1.2,
                        1,
                        1,
                        "",
                        FORWARD if step < length else "0.93",
                    )
    for step in range(15):
        rows = sum(length > step for length in lengths)
        ax.text(18.5 + step * 1.05, 0.3, str(rows), ha="center", va="center")
    ax.text(17.3, 0.3, "rows a step", ha="right", va="center")
    return figure


@picture
def senses() -> Figure:
    """Uses of a word in the plane of `word_plane`, each with its sentence, for two senses."""
    river = [
        "They pulled the boat up on the bank of the river.",
        "The children sat on the bank of the stream.",
    ]
    river += ["The river rose over its bank in the night.", "They climbed up the steep bank."]
    river += ["Trees grew along the bank of the stream.", "The cattle came down the bank to drink."]
    money = ["The bank lent him a thousand pounds.", "The bank failed and he lost his money."]
    money += ["My bank closes at four.", "The central bank raised interest rates."]
    money += ["The president of the bank resigned.", "He works for a bank in London."]
    points = np.concatenate(hf_elmo.word_plane(None, river + money, "bank").points) * [-2.2, 1.6]
    figure, ax = plt.subplots(figsize=(7, 2.4))
    for sentences, part, x, color in (
        (river, points[:6], 15, "#0072B2"),
        (money, points[6:], -15, "#D55E00"),
    ):
        ax.scatter(*part.T, s=40, color=color)
        line = {
            "arrowstyle": "-",
            "color": "0.7",
            "shrinkA": 2,
            "shrinkB": 4,
            "relpos": (x < 0, 0.5),
        }
        for y, place in zip(np.linspace(5, -5, 6), part[:, 1].argsort()[::-1], strict=True):
            how = {
                "ha": "left" if x > 0 else "right",
                "va": "center",
                "color": color,
                "arrowprops": line,
            }
            ax.annotate(sentences[place], part[place], (x, y), **how)
    ax.set(xlim=(-56, 56), ylim=(-6, 6))
    ax.set_axis_off()
    return figure


def flow(
    height: float, boxes: Boxes, arrows: str, optional: str = "", notes: Boxes | None = None
) -> Figure:
    """Boxes joined by arrows, such as "words>mix mix>head"; optional boxes are dashed."""
    figure, axes = plt.subplots(figsize=(7, height))
    axes.set(xlim=(0, 7), ylim=(0, height))
    axes.set_axis_off()
    drawn = {}
    for name, (x, y, text, color) in boxes.items():
        line = "dashed" if name in optional.split() else "solid"
        style = {
            "boxstyle": "round,pad=0.5",
            "facecolor": color,
            "edgecolor": "#555555",
            "linestyle": line,
        }
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
        "colors": (
            5.2,
            0.35,
            "orange: trained    blue: frozen by default    dashed: if you like",
            "#555555",
        ),
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
                axes.plot(
                    (x, x + 1), (before, after), color=color, linewidth=width, zorder=1 + is_best
                )
    axes.plot((2, 3), (3, 1), color="#D55E00", linestyle="dashed", linewidth=2, zorder=2)
    axes.text(
        2.95, 0.62, "I-PER after O: not allowed", color="#B04A00", fontsize=9, ha="center", zorder=4
    ).set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
    for x, y in product(range(len(words)), range(len(labels))):
        axes.scatter(
            x, y, s=70, color="#0072B2" if path[x] == y else "white", edgecolors="#555555", zorder=3
        )
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
            axes.barh(
                y,
                end - first - 0.08,
                height=0.6,
                left=first + 0.04,
                color=color,
                edgecolor="#555555",
            )
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
        axes.plot(
            first + radius * (1 - np.cos(angles)),
            0.25 + 0.9 * np.sin(angles),
            color=color,
            linewidth=2,
        )
        for place in (first, last):
            axes.text(
                place,
                0,
                words[place],
                ha="center",
                va="center",
                color=color,
                fontweight="bold",
                fontsize=11,
            )
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
def network() -> Figure:
    boxes = {
        "words": (0.6, 1.2, "words", GREY),
        "bilm": (1.7, 1.2, "biLM,\n3 layers", BLUE),
        "first": (3.0, 1.75, "mix 1", ORANGE),
        "second": (3.0, 0.65, "mix 2", ORANGE),
        "encoder": (4.2, 1.75, "your encoder", ORANGE),
        "output": (5.6, 1.2, "your output layer", ORANGE),
    }
    return flow(
        2.3, boxes, "words>bilm bilm>first bilm>second first>encoder encoder>output second>output"
    )


def main(folder: Path = Path(__file__).parent / "_static") -> None:
    folder.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw in PICTURES:
            figure = draw()
            figure.savefig(folder / f"{draw.__name__}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
