"""Draws the pictures of vectors into docs/_static: `python docs/draw.py [FOLDER]`. The other
pictures there are written by hand, or by the code of a page.

Each function of PICTURES returns a figure, 7 inches wide; NAME.svg is what NAME draws.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

import hf_elmo

STYLE = {"figure.facecolor": "white", "figure.constrained_layout.use": True, "font.size": 9}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False}
STYLE |= {"svg.hashsalt": "hf_elmo"}  # the same bytes each time
RIVER = (
    "They pulled the boat up on the bank of the river.",
    "The children sat on the bank of the stream.",
    "The river rose over its bank in the night.",
    "They climbed up the steep bank.",
    "Trees grew along the bank of the stream.",
    "The cattle came down the bank to drink.",
)
MONEY = (
    "The bank lent him a thousand pounds.",
    "The bank failed and he lost his money.",
    "My bank closes at four.",
    "The central bank raised interest rates.",
    "The president of the bank resigned.",
    "He works for a bank in London.",
)


def senses() -> Figure:
    """Uses of a word in the plane of `word_plane`, each beside its sentence, for two senses."""
    points = np.concatenate(hf_elmo.word_plane(None, [*RIVER, *MONEY], "bank").points)
    points *= [-11, 5] / np.abs(points).max(axis=0)
    figure, ax = plt.subplots(figsize=(7, 2.4))
    for uses, part, x, color in (
        (RIVER, points[:6], 15, "#0072B2"),
        (MONEY, points[6:], -15, "#D55E00"),
    ):
        ax.scatter(*part.T, s=40, color=color)
        line = {
            "arrowstyle": "-",
            "color": "0.7",
            "shrinkA": 2,
            "shrinkB": 4,
            "relpos": (x < 0, 0.5),
        }
        how = {
            "ha": "left" if x > 0 else "right",
            "va": "center",
            "color": color,
            "arrowprops": line,
        }
        for y, place in zip(np.linspace(5, -5, 6), part[:, 1].argsort()[::-1], strict=True):
            ax.annotate(uses[place], part[place], (x, y), **how)
    ax.set(xlim=(-56, 56), ylim=(-6, 6))
    ax.set_axis_off()
    return figure


def state() -> Figure:
    """How much a sentence's vectors change if another one was read before, in each direction."""
    model, tokenizer = hf_elmo.load_model()
    text = "The children sat upon the bank and watched the stream for an hour."
    inputs = tokenizer(text, return_tensors="pt")
    before = tokenizer("Prices rose by two per cent in May.", return_tensors="pt")
    with torch.no_grad():
        read = model(**before, use_cache=True).state
        zeros, carried = (
            model(**inputs, state=start, output_hidden_states=True).hidden_states[2][0]
            for start in (None, read)
        )
    change, size = (
        vectors.unflatten(1, (2, -1)).norm(dim=2) for vectors in (carried - zeros, zeros)
    )
    figure, ax = plt.subplots(figsize=(7, 3.5))
    places = np.arange(len(zeros))
    for half, name, fill in (0, "forward half", "#a8cbea"), (1, "backward half", "#f4bf9b"):
        style = {"color": fill, "edgecolor": "0.35", "linewidth": 0.5}
        ax.bar(places + 0.4 * half - 0.2, (change / size)[:, half], 0.4, label=name, **style)
    ax.set_xticks(places, inputs.tokens(), rotation=45, ha="right")
    ax.set_ylabel("relative change of the vector, layer 2")
    ax.legend(frameon=False)
    return figure


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


PICTURES = (senses, state, bank)


def main(folder: Path = Path(__file__).parent / "_static") -> None:
    with plt.rc_context(STYLE):
        for draw in PICTURES:
            draw().savefig(folder / f"{draw.__name__}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
