"""Pictures of similarities and of vectors in the plane, as SVG whose text the browser sets in its own fonts."""

from __future__ import annotations

import io
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..analysis.geometry import LayerSimilarities, WordPlane
from ..optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colors, which color-blind people tell apart, less yellow, which is too pale on white; and a mark with
# each, so that no difference is one of color alone.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P")
INK, PALE = "#222222", "#DDDDDD"
FONT_SIZE = 10
GAPS = (5.0, 14.0, 24.0)  # between a point and its label; the larger ones with a line
LEADER = {"arrowstyle": "-", "color": "#888888", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
SETTINGS = {
    "text.parse_math": False,  # a dollar in a word is a dollar
    "svg.fonttype": "none",  # text stays text: any script, in the fonts of the reader
    "svg.hashsalt": "hf-elmo",  # the same picture is the same file
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": FONT_SIZE,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#777777",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


def draw_similarities(similarities: LayerSimilarities) -> str:
    """
    A bar for each layer's similarity, and a line for what other pairs of words have, as SVG.

    Raises:
        ImportError: matplotlib is not installed.
    """
    first, second = similarities.words
    values, others = similarities.layers, similarities.others
    places = np.arange(len(values))

    def draw(axes: Axes) -> None:
        axes.set_axisbelow(True)
        axes.grid(axis="y", color=PALE)
        axes.bar(places, values, width=0.5, color=COLORS[0], label=f"“{first}” and “{second}”")
        if not np.isnan(others).any():
            axes.hlines(
                others, places - 0.38, places + 0.38, COLORS[1], "dashed", linewidth=2, label="mean of all other pairs"
            )
        for place, value in zip(places, values, strict=True):
            text = axes.annotate(f"{value:.2f}", (place, max(value, 0)), (0, 4), textcoords="offset points")
            text.set(ha="center", fontweight="bold", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.set_xticks(places, ["layer 0\n(characters)", *(f"layer {layer}\n(LSTM)" for layer in places[1:])])
        lowest = min(values.min(), np.nanmin(others, initial=0), 0)
        axes.set(ylabel="cosine similarity", ylim=(lowest * 1.1, 1.1), xlim=(-0.6, len(values) - 0.4))
        handles, names = axes.get_legend_handles_labels()
        axes.figure.legend(handles[::-1], names[::-1], loc="outside upper left", ncols=2, frameon=False)

    layers = ", ".join(f"layer {layer} {value:.2f}" for layer, value in enumerate(values))
    return _as_svg(draw, (6.4, 3.8), f"cosine similarity of {first} and {second}: {layers}")


def draw_plane(plane: WordPlane) -> str:
    """
    A mark and a label for each word, colors and marks by sentence, as SVG; what occurs several times is bold.

    Raises:
        ImportError: matplotlib is not installed.
    """
    words = [word for sentence in plane.sentences for word in sentence]
    counts = Counter(word.casefold() for word in words)
    points = np.concatenate(plane.points)

    def draw(axes: Axes) -> None:
        axes.set_axisbelow(True)
        axes.grid(color=PALE)
        for number, (sentence, own) in enumerate(zip(plane.sentences, plane.points, strict=True)):
            look = {"color": COLORS[number % len(COLORS)], "marker": MARKS[number % len(MARKS)]}
            label = _shortened(f"{number + 1}: {' '.join(sentence)}")
            axes.scatter(*own.T, s=36, edgecolors="white", linewidths=0.6, zorder=2, label=label, **look)
        for axis, name, share in zip("xy", ("first", "second"), plane.explained, strict=True):
            axes.set(**{f"{axis}label": f"{name} principal component ({share:.0%} of the variance)"})
        axes.margins(0.15)
        axes.set_aspect("equal", adjustable="datalim")
        axes.figure.legend(loc="outside upper left", frameon=False)
        axes.figure.draw_without_rendering()  # places of points on the paper are known after it
        on_paper = axes.transData.transform(points) * 72 / axes.figure.dpi
        bold = [counts[word.casefold()] > 1 for word in words]
        for word, point, place, heavy in zip(words, points, places_of_labels(on_paper, words), bold, strict=True):
            text = axes.annotate(word, point, place.offset, textcoords="offset points", zorder=3, arrowprops=LEADER)
            text.set_fontweight("bold" if heavy else "normal")
            text.arrow_patch.set_visible(place.gap > GAPS[0])

    height = 6 + 0.22 * len(plane.sentences)
    return _as_svg(draw, (9.5, height), f"{len(words)} words of {len(plane.sentences)} sentences in the plane")


class LabelPlace(NamedTuple):
    """Where a label stands: the distance of its lower left corner from its point, and the gap between them."""

    offset: tuple[float, float]
    gap: float


def places_of_labels(points: np.ndarray, labels: Sequence[str], size: float = FONT_SIZE) -> list[LabelPlace]:
    """
    Where to write the labels of points so that few of them cover each other, or a point: for each, in turn, the place
    around its point where it covers least of what is there.

    Args:
        points: `[labels, 2]`, in the unit of `size`.
        size: of the font.
    """
    taken = np.concatenate((points - 3, points + 3), axis=1)  # left, bottom, right, top
    places = []
    for number, (point, label) in enumerate(zip(points, labels, strict=True)):
        width = size * sum(1.1 if unicodedata.east_asian_width(letter) in "WF" else 0.66 for letter in label)
        best = np.inf
        for place in _around(width, size):
            x, y = place.offset
            box = np.array((x, y, x + width, y + size)) + np.tile(point, 2)
            sides = np.minimum(taken[:, 2:], box[2:]) - np.maximum(taken[:, :2], box[:2])
            covered = np.prod(np.clip(sides, 0, None), axis=1)
            covered[number] = 0
            if covered.sum() < best - 1e-9:
                best, chosen, taken_there = covered.sum(), place, box
        places.append(chosen)
        taken = np.vstack((taken, taken_there))
    return places


def _around(width: float, height: float) -> Iterator[LabelPlace]:
    """Places beside, above, below and diagonally off a point, then the same further away."""
    for gap in GAPS:
        left, below, middle = -width - gap, -height - gap, -width / 2
        yield from (LabelPlace((x, -height / 3), gap) for x in (gap, left))
        yield from (LabelPlace((middle, y), gap) for y in (gap, below))
        yield from (LabelPlace((x, y), gap) for x in (gap, left) for y in (gap * 0.6, below * 0.8))


def _shortened(text: str, longest: int = 90) -> str:
    return text if len(text) <= longest else text[: longest - 4].rsplit(" ", 1)[0] + " ..."


def _as_svg(draw, size: tuple[float, float], description: str) -> str:
    """What `draw` draws on the axes of a figure of `size` inches, for a page: as wide as there is room."""
    matplotlib = import_optional("matplotlib.figure", "drawing", '"hf-elmo[explore]"')
    from matplotlib.figure import Figure

    file = io.StringIO()
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")  # matplotlib's font lacks it, the reader's need not
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        figure.savefig(file, format="svg", metadata={"Date": None})
    _, start, rest = file.getvalue().partition("<svg ")
    label, look = escape(description, quote=True), "display:block;margin:0 auto;max-width:100%;height:auto"
    return f'{start}role="img" aria-label="{label}" style="{look}" {rest}'
