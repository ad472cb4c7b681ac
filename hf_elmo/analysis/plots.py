"""Plots: similarities, words as points in the plane, and the weights that a task learned for the layers."""

from __future__ import annotations

import math
from collections import Counter
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from ..modeling_elmo import ElmoScalarMix
from ..utils.extras import extra_needed
from .similarity import LayerSimilarities, WordPlane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colors, which color-blind people can tell apart, without yellow, too pale on white; and markers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#888888")
MARKERS = ("o", "s", "^", "D", "v", "P")


def plot_similarities(similarities: LayerSimilarities, axes: Axes | None = None, layer: int | None = None) -> Axes:
    """Draw the result of [`layer_similarities`]: for two sentences a bar for each layer and a line at the mean of other
    pairs of words; for more sentences, or with `layer`, the matrix of the similarities in one layer.

    Args:
        axes: where to draw; by default the axes of a new figure (`axes.figure`).
        layer: the layer of the matrix; by default the last layer.
    """
    axes = axes or new_axes(6.4, 4)
    length = int(6 * axes.figure.get_figwidth())  # of the use of a word: a longer one would leave no room for the bars
    uses = [use if len(use) <= length else f"{use[: length - 1]}…" for use in similarities.uses]
    values = similarities.layers
    others = similarities.others
    if len(uses) > 2 or layer is not None:
        layer = len(values) - 1 if layer is None else layer
        matrix = similarities.matrix[layer]
        axes.imshow(matrix, cmap="Blues", vmax=1)
        for (row, column), value in np.ndenumerate(matrix):
            color = "white" if value > (matrix.min() + 1) / 2 else "black"
            size = min(8, 52 / len(uses))
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=size)
        axes.set_xticks(range(len(uses)), range(1, len(uses) + 1))
        labels = [f"{number}: {use}" for number, use in enumerate(uses, start=1)]
        axes.set_yticks(range(len(uses)), labels, parse_math=False)  # a "$" is no formula
        axes.set_title(f"cosine similarity, layer {layer}", fontsize="medium")
        return axes
    places = np.arange(len(values))
    between = " – " if sum(map(len, uses)) <= length else " –\n"
    bars = axes.bar(places, values, width=0.5, color=COLORS[0], label=between.join(f"“{use}”" for use in uses))
    axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontweight="bold")
    if not np.isnan(others).any():
        label = "mean of all other pairs"
        axes.hlines(others, places - 0.38, places + 0.38, COLORS[1], "dashed", linewidth=2, label=label)
    axes.set_xticks(places, ["layer 0\n(characters)", *(f"layer {layer}\n(LSTM)" for layer in places[1:])])
    axes.set(ylabel="cosine similarity", ylim=(min(values.min(), np.nanmin(others, initial=0), 0) * 1.1, 1.1))
    return legend_above(axes)


def plot_word_plane(plane: WordPlane, axes: Axes | None = None) -> Axes:
    """Draw the result of [`word_plane`] on `axes`, by default those of a new figure (`axes.figure`): a marker for each
    word, one for each sentence, and labels of as many words and sentences as can be read. Repeated words are bold."""
    with extra_needed("plot"):
        from adjustText import adjust_text

    axes = axes or new_axes(9.5, 6 + 0.22 * len(plane.sentences))
    counts = Counter(label.casefold() for own in plane.labels for label in own)
    texts = []
    width, height = axes.figure.get_size_inches()
    every = math.ceil(sum(map(len, plane.labels)) / (width * height))  # one label for each square inch
    for index, (sentence, labels, points) in enumerate(zip(plane.sentences, plane.labels, plane.points, strict=True)):
        color = COLORS[index % len(COLORS)]
        marker = MARKERS[index % len(MARKERS)]
        legend = shorten(f"{index + 1}: {' '.join(sentence)}", int(9 * width) - 10, placeholder=" ...")
        axes.scatter(*points.T, s=36, c=color, marker=marker, label=legend if index < 2 * height else None)
        for label, point in [*zip(labels, points, strict=True)][-index % every :: every]:
            weight = "bold" if counts[label.casefold()] > 1 else "normal"
            texts.append(axes.text(point[0], point[1], label, fontweight=weight, in_layout=False, parse_math=False))
    shares = [f"component {n} ({share:.0%} of the variance)" for n, share in enumerate(plane.explained, start=1)]
    axes.set(**dict(zip(("xlabel", "ylabel"), shares, strict=True)), aspect="equal", adjustable="datalim")
    axes.margins(0.15)
    legend_above(axes).figure.draw_without_rendering()  # the labels are placed in the final layout
    adjust_text(texts, ax=axes, iter_lim=100, arrowprops={"arrowstyle": "-", "color": "gray"})
    return axes


def new_axes(width: float, height: float) -> Axes:
    """The axes of a new figure, whose width and height are in inches."""
    with extra_needed("plot"):
        from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").subplots()


def legend_above(axes: Axes, **how: object) -> Axes:
    for text in axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, **how).get_texts():
        text.set_parse_math(False)
    return axes


def layer_weights(model: nn.Module) -> dict[str, tuple[list[float], float]]:
    """For each scalar mix of a model, the weights of the layers, and gamma. Learned weights add up to 1. Keys are
    `"input"` and `"output"`; several mixes at one place are numbered, `"input 1"`, `"input 2"`."""
    mixes: dict[str, list[tuple[list[float], float]]] = {"input": [], "output": []}
    for name, mix in getattr(model, "head", model).named_modules():  # a head does not read the mix of its biLM
        if isinstance(mix, ElmoScalarMix):
            own = mixes["output" if "output_mix" in name.split(".") else "input"]
            if mix.fixed is None:
                own.append((torch.softmax(mix.scalars.detach().float(), dim=0).tolist(), mix.gamma.item()))
            else:
                own.append((list(mix.fixed), 1.0))
    return {f"{at} {n}" if len(own) > 1 else at: mix for at, own in mixes.items() for n, mix in enumerate(own, start=1)}


def plot_layer_weights(model: nn.Module, axes: Axes | None = None) -> Axes:
    """Draw the layers' weights that a task learned (as figure 2 of Peters et al. 2018), by default in a new figure."""
    mixes = layer_weights(model)
    axes = axes or new_axes(5, 3)
    width = 0.8 / len(mixes)
    for index, (name, (weights, gamma)) in enumerate(mixes.items()):
        places = [layer + (index - (len(mixes) - 1) / 2) * width for layer in range(len(weights))]
        bars = axes.bar(places, weights, width, label=f"{name} (gamma {gamma:.2f})")
        axes.bar_label(bars, fmt="%.2f", fontsize="small")
    layers = range(len(weights))
    axes.set_xticks(list(layers), ["characters" if layer == 0 else f"LSTM {layer}" for layer in layers])
    axes.margins(y=0.12)  # leaves room for the number above the highest bar
    axes.set_ylabel("weight")
    return legend_above(axes, ncols=2)
