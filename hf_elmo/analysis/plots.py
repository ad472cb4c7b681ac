"""Pictures of how vectors of words lie, by matplotlib."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from .similarity import LayerSimilarities, WordPlane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colors, which color-blind people tell apart, without yellow, which is too pale on white; and a marker
# with each, so that no difference is one of color alone.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#888888")
MARKERS = ("o", "s", "^", "D", "v", "P")
LABEL_OFFSETS = [(x, y) for gap in (5, 14, 24) for x, y in ((gap, -3), (gap, gap), (gap, -gap - 6), (-gap, gap))]


def plot_similarities(similarities: LayerSimilarities, axes: Axes | None = None, layer: int | None = None) -> Axes:
    """
    Draw what [`layer_similarities`] found: of two sentences a bar for each layer, beside the mean of other pairs of
    words; of more, or with `layer`, the matrix of the similarities in one layer.

    Args:
        similarities: of the words of sentences.
        axes: where to draw; by default a new figure, `axes.figure`.
        layer: of the matrix; by default the last one.
    """
    axes = axes or new_axes(6.4, 4)
    uses, values, others = similarities.uses, similarities.layers, similarities.others
    if len(uses) > 2 or layer is not None:
        layer = len(values) - 1 if layer is None else layer
        matrix = similarities.matrix[layer]
        axes.imshow(matrix, cmap="Blues", vmax=1)
        for (row, column), value in np.ndenumerate(matrix):
            color = "white" if value > (matrix.min() + 1) / 2 else "black"
            axes.text(
                column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=min(8, 52 / len(uses))
            )
        axes.set_xticks(range(len(uses)), range(1, len(uses) + 1))
        axes.set_yticks(range(len(uses)), [f"{number}: {use}" for number, use in enumerate(uses, start=1)])
        axes.set_title(f"cosine similarity, layer {layer}", fontsize="medium")
        return axes
    places = np.arange(len(values))
    bars = axes.bar(places, values, width=0.5, color=COLORS[0], label=" – ".join(f"“{use}”" for use in uses))
    axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontweight="bold")
    if not np.isnan(others).any():
        label = "mean of all other pairs"
        axes.hlines(others, places - 0.38, places + 0.38, COLORS[1], "dashed", linewidth=2, label=label)
    axes.set_xticks(places, ["layer 0\n(characters)", *(f"layer {layer}\n(LSTM)" for layer in places[1:])])
    axes.set(ylabel="cosine similarity", ylim=(min(values.min(), np.nanmin(others, initial=0), 0) * 1.1, 1.1))
    return legend_above(axes)


def plot_word_plane(plane: WordPlane, axes: Axes | None = None) -> Axes:
    """
    Draw what [`word_plane`] found: a marker and a label for each word, colors and markers by sentence. Words that occur
    more than once are bold.

    Args:
        plane: of words.
        axes: where to draw; by default a new figure, `axes.figure`.
    """
    axes = axes or new_axes(9.5, 6 + 0.22 * len(plane.sentences))
    labels = [label for own in plane.labels for label in own]
    counts = Counter(label.casefold() for label in labels)
    for index, (sentence, points) in enumerate(zip(plane.sentences, plane.points, strict=True)):
        color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
        label, most = f"{index + 1}: {' '.join(sentence)}", int(9 * axes.figure.get_size_inches()[0])
        label = label if len(label) <= most else f"{label[:most]} ..."
        axes.scatter(*points.T, s=36, c=color, marker=marker, label=label)
    shares = [f"component {n} ({share:.0%} of the variance)" for n, share in enumerate(plane.explained, start=1)]
    axes.set(**dict(zip(("xlabel", "ylabel"), shares, strict=True)), aspect="equal", adjustable="datalim")
    axes.margins(0.15)
    legend_above(axes)
    axes.figure.draw_without_rendering()  # places of points on the paper are known after it
    points = np.concatenate(plane.points)
    on_paper = axes.transData.transform(points) * 72 / axes.figure.dpi
    for label, point, offset in zip(labels, points, _label_offsets(on_paper), strict=True):
        text = axes.annotate(label, point, offset, textcoords="offset points")
        text.set_fontweight("bold" if counts[label.casefold()] > 1 else "normal")
    return axes


def _label_offsets(points: np.ndarray) -> list[tuple[int, int]]:
    """The offset of each point's label: the first one that is 12 points away from other points and labels, or else the
    one that is farthest from them."""
    labels, offsets = np.empty((0, 2)), []
    for index, point in enumerate(points):
        near = np.concatenate((np.delete(points, index, axis=0), labels))
        distances = [min(np.abs(point + offset - near).max(axis=1).min(), 12) for offset in LABEL_OFFSETS]
        offsets.append(LABEL_OFFSETS[int(np.argmax(distances))])
        labels = np.concatenate((labels, [point + offsets[-1], point + offsets[-1] + (20, 0)]))
    return offsets


def new_axes(width: float, height: float) -> Axes:
    """The axes of a new figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").subplots()


def legend_above(axes: Axes, **how: object) -> Axes:
    """The axes with a legend that covers nothing of what is drawn."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, **how)
    return axes
