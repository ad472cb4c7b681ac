"""
ELMo as AllenNLP's PyTorch modules store it, which ELMoForManyLangs took over: the table of their tensors, and of ours.

The rows are those of [`allennlp`]: a tensor of the file, the state-dict keys it becomes, and the transform between.
"""

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hf_elmo.configuration_elmo import ElmoConfig

from .allennlp import COPY, Arrays, Dataset, Row, Transform


class Names(NamedTuple):
    """The prefixes of a format's tensors: of the characters' part, a convolution in it, its highway layers, its
    projection, and the LSTM."""

    token_embedder: str
    convolution: str
    highways: str
    projection: str
    lstm: str


def split_highway(stacked: np.ndarray) -> Arrays:
    """Two halves along the first axis: what is added, and the gate, which lets through the input and not what is added:
    with the other sign it is our carry gate."""
    transform, gate = np.split(stacked, 2)
    return -gate, transform


def join_highway(carry: np.ndarray, transform: np.ndarray) -> Arrays:
    """The inverse of [`split_highway`]."""
    return (np.concatenate([transform, -carry]),)


HIGHWAY = Transform(split_highway, join_highway)


def module_rows(config: ElmoConfig, names: Names) -> list[Row]:
    """
    The rows of all tensors but the embeddings of characters and words, in which the formats differ.

    Args:
        config: the architecture; AllenNLP's modules always have both projections.
        names: the prefixes.
    """
    rows, filters, at = [], config.num_filters, names.token_embedder
    for i, (width, number) in enumerate(config.char_filters):
        of, to = f"{at}{names.convolution}{i}", f"char_encoder.convolutions.{i}"
        shape = (number, config.char_embedding_size, width)
        rows += [_copy(f"{of}.weight", shape, f"{to}.weight"), _copy(f"{of}.bias", (number,), f"{to}.bias")]
    for i in range(config.num_highway_layers):
        to = f"char_encoder.highways.{i}"
        for part, shape in (("weight", (2 * filters, filters)), ("bias", (2 * filters,))):
            dataset = Dataset(f"{at}{names.highways}{i}.{part}", shape)
            rows.append(Row((dataset,), (f"{to}.carry.{part}", f"{to}.transform.{part}"), HIGHWAY))
    size, read = config.projection_size, filters + (config.word_embedding_size or 0)
    rows.append(_copy(f"{at}{names.projection}.weight", (size, read), "char_encoder.projection.weight"))
    rows.append(_copy(f"{at}{names.projection}.bias", (size,), "char_encoder.projection.bias"))
    for direction in ("forward", "backward"):
        for layer in range(config.num_hidden_layers):
            of, to = f"{names.lstm}{direction}_layer_{layer}.", f"bilm.{direction}_layers.{layer}."
            cell = config.cell_size
            rows.append(_copy(f"{of}input_linearity.weight", (4 * cell, size), f"{to}weight_ih"))
            rows.append(_copy(f"{of}state_linearity.weight", (4 * cell, size), f"{to}weight_hh"))
            rows.append(_copy(f"{of}state_linearity.bias", (4 * cell,), f"{to}bias"))
            rows.append(_copy(f"{of}state_projection.weight", (size, cell), f"{to}weight_hr"))
    return rows


def _copy(name: str, shape: tuple[int, ...], target: str) -> Row:
    return Row((Dataset(name, shape),), (target,), COPY)


def read_rows(rows: Iterable[Row], arrays: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """
    Float32 arrays by state-dict key.

    Args:
        rows: the table.
        arrays: all tensors of the file or files.
        where: what errors call them.

    Raises:
        ValueError: a tensor is missing, unknown, of another shape or type than the table's, or not finite.
    """
    left, found = dict(arrays), {}
    for row in rows:
        values = [_take(left, dataset, where) for dataset in row.datasets]
        found.update(zip(row.targets, row.transform.read(*values), strict=True))
    if left:
        raise ValueError(f"{where}: unexpected tensor {min(left)!r} ({len(left)} such): is this its configuration?")
    return found


def _take(arrays: dict[str, np.ndarray], dataset: Dataset, where: str) -> np.ndarray | None:
    if dataset.optional and dataset.name not in arrays:
        return None
    if dataset.name not in arrays:
        raise ValueError(f"{where}: tensor {dataset.name!r} is missing; it should have the shape {dataset.shape}.")
    array = arrays.pop(dataset.name)
    if array.shape != dataset.shape:
        raise ValueError(f"{where}: tensor {dataset.name!r} has shape {array.shape}, but should have {dataset.shape}.")
    if array.dtype.kind != "f":
        raise ValueError(f"{where}: tensor {dataset.name!r} holds {array.dtype}, not floating-point numbers.")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise ValueError(
            f"{where}: tensor {dataset.name!r} has values that are NaN, infinite or too large for float32."
        )
    return array


def read_pickle(path: str | Path) -> dict[str, np.ndarray]:
    """
    The tensors of a file that `torch.save` wrote. Nothing but tensors is read: a pickle that would run code is refused.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or holds anything else.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is no file of tensors alone, or is damaged; nothing was run ({reason}).") from error
    if not (isinstance(state, dict) and all(isinstance(tensor, torch.Tensor) for tensor in state.values())):
        raise ValueError(f"{path} holds a {type(state).__name__}, but expected are tensors by name.")
    return {
        str(name): tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()
        for name, tensor in state.items()
    }
