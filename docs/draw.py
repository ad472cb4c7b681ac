"""Draws the pictures of the site into docs/_static: `python docs/draw.py [FOLDER]`.

A function marked with `picture` returns a figure; NAME.svg is what the function NAME draws. A figure is 7 inches wide.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

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


def boxes(axes: Axes, texts: list[tuple[float, float, str]], width: float, color: str) -> None:
    """Rounded boxes with a text each, `width` units wide, at their centers."""
    style = {"boxstyle": "round,pad=0.02,rounding_size=0.08", "facecolor": color, "edgecolor": "#444444"}
    for x, y, text in texts:
        height = 0.34 + 0.26 * text.count("\n")
        axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, **style))
        axes.text(x, y, text, ha="center", va="center")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "#444444", "shrinkA": 2, "shrinkB": 2})


def empty(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure without axes, of `width` by `height` units of an inch."""
    figure, axes = plt.subplots(figsize=(width, height))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


@picture
def convert() -> Figure:
    """Formats of files that become one checkpoint."""
    figure, axes = empty(7, 3.7)
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
    figure, axes = empty(7, 1.5)
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
    figure, axes = empty(7, 2.3)
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
