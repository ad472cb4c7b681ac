"""What a task took of the biLM's layers: the learned weights of the mixes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..optional import import_optional
from ..scalar_mix_elmo import ElmoScalarMix

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def layer_weights(model: nn.Module) -> dict[str, tuple[list[float], float]]:
    """
    The weights of the layers in each mix of a model, which add up to 1 (unless they are fixed), and its gamma.

    Mixes are named `"input"` and `"output"`, several at one place by number, `"input 1"`, `"input 2"`.

    Raises:
        ValueError: the model has no mix.
    """
    found: dict[str, tuple[list[float], float]] = {}
    for name, module in model.named_modules():
        if isinstance(module, ElmoScalarMix):
            place = "output" if "output_mix" in name.split(".") else "input"
            if module.fixed is not None:
                found[place] = list(module.fixed), 1.0
                continue
            weights = torch.softmax(module.scalars.detach().float(), dim=1).tolist()
            gammas = module.gamma.detach().float().tolist()
            for number, own in enumerate(zip(weights, gammas, strict=True), start=1):
                found[place if len(weights) == 1 else f"{place} {number}"] = own
    if not found:
        raise ValueError(f"{type(model).__name__} has no mix of layers: without ELMo (use_elmo=False) there is none.")
    return found


def plot_layer_weights(
    model: nn.Module, axes: Axes | None = None, path: str | os.PathLike | None = None, title: str | None = None
) -> Axes:
    """
    Draw the weights that a task learned for the layers of the biLM (as figure 2 of Peters et al. 2018).

    Args:
        model: with or without a head.
        axes: where to draw; by default a new figure.
        path: a file to write the figure to, `.png`, `.svg` or `.pdf`.
        title: of the axes.

    Returns:
        matplotlib's axes: a group of bars for each mix.

    Raises:
        ValueError: the model has no mix.
        ImportError: matplotlib is not installed.
    """
    mixes = layer_weights(model)
    if axes is None:
        import_optional("matplotlib.figure", "plot_layer_weights", '"hf-elmo[plot]"')
        from matplotlib.figure import Figure

        axes = Figure(figsize=(5, 3), layout="constrained").subplots()
    width = 0.8 / len(mixes)
    for number, (name, (weights, gamma)) in enumerate(mixes.items()):
        places = [layer + (number - (len(mixes) - 1) / 2) * width for layer in range(len(weights))]
        bars = axes.bar(places, weights, width, label=f"{name} (gamma {gamma:.2f})")
        axes.bar_label(bars, fmt="%.2f", fontsize="small")
    layers = range(len(weights))
    axes.set_xticks(list(layers), ["characters" if layer == 0 else f"LSTM {layer}" for layer in layers])
    axes.set_ylabel("weight")
    axes.set_title(title or "")
    axes.legend()
    if path is not None:
        axes.figure.savefig(path)
    return axes
