"""Draws the pictures of the site into docs/_static: `python docs/draw.py [FOLDER]`.

A function marked with `picture` returns a figure; NAME.svg is what the function NAME draws. A figure is 7 inches wide.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

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


def picture(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    PICTURES.append(draw)
    return draw


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


def main(folder: Path = Path(__file__).parent / "_static") -> None:
    folder.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw in PICTURES:
            figure = draw()
            figure.savefig(folder / f"{draw.__name__}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
