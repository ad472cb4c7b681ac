"""
AllenNLP's and bilm-tf's format, `weights.hdf5` beside `options.json`, read into our tensors and written from them.

[`key_table`] defines the format: one row for each hdf5 dataset, with its shape, the tensors it becomes and the named
transform between the two. Reading and writing use the same rows; both refuse what the table does not name.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hf_elmo.configuration_elmo import ElmoConfig

from .allennlp_options import CHARACTER_ROWS, config_from_options, options_from_config, read_options
from .hdf5 import ModelFileError, import_h5py, stored_datasets

if TYPE_CHECKING:
    import h5py

Arrays = tuple[np.ndarray | None, ...]

# Tensors of an ElmoModel that the format does not store: read, they have their initial values; an export omits them.
LEFT_OUT = ("scalar_mix.scalars", "scalar_mix.gamma")


class Transform(NamedTuple):
    """`read` turns datasets into tensors, `write` tensors into datasets; `None` is an optional dataset's absence."""

    read: Callable[..., Arrays]
    write: Callable[..., Arrays]


class Dataset(NamedTuple):
    """A dataset of the hdf5 file. An optional one may be absent."""

    name: str
    shape: tuple[int, ...]
    optional: bool = False


class Row(NamedTuple):
    """One line of the table: hdf5 datasets, the state-dict keys they become, and how."""

    datasets: tuple[Dataset, ...]
    targets: tuple[str, ...]
    transform: Transform


def add_padding_row(characters: np.ndarray) -> Arrays:
    """[rows, dim] -> [rows + 1, dim]: row 0, the padded position, is zero."""
    return (np.concatenate([np.zeros_like(characters[:1]), characters]),)


def drop_padding_row(embedding: np.ndarray) -> Arrays:
    """[rows + 1, dim] -> [rows, dim]; readers of the format add the zero row."""
    if embedding[0].any():
        raise ValueError("Row 0 of char_encoder.embedding.weight must be zero: it marks a padded position.")
    return (embedding[1:],)


def transpose(weight: np.ndarray) -> Arrays:
    """TensorFlow multiplies from the right: [in, out] <-> [out, in]."""
    return (weight.T,)


def copy(array: np.ndarray) -> Arrays:
    """A tensor that is the same in both formats."""
    return (array,)


def read_convolution(kernel: np.ndarray) -> Arrays:
    """[1, width, dim, filters] of TensorFlow's 2-D convolution -> [filters, dim, width]."""
    return (kernel[0].transpose(2, 1, 0),)


def write_convolution(weight: np.ndarray) -> Arrays:
    """[filters, dim, width] -> [1, width, dim, filters]."""
    return (weight.transpose(2, 1, 0)[None],)


def swap_gates(gates: np.ndarray) -> np.ndarray:
    """TensorFlow's i, j, f, o along the first axis <-> torch's i, f, g, o (g is j)."""
    first, second, third, fourth = np.split(gates, 4)
    return np.concatenate([first, third, second, fourth])


def read_lstm_kernel(kernel: np.ndarray) -> Arrays:
    """One matrix [input + output, 4C] -> two, [4C, input] for the input and [4C, output] for the output before."""
    return tuple(np.split(swap_gates(kernel.T), 2, axis=1))


def write_lstm_kernel(weight_ih: np.ndarray, weight_hh: np.ndarray) -> Arrays:
    """The inverse of [`read_lstm_kernel`]."""
    return (swap_gates(np.concatenate([weight_ih, weight_hh], axis=1)).T,)


def read_lstm_bias(bias: np.ndarray, remainder: np.ndarray | None) -> Arrays:
    """TensorFlow adds 1 to the forget gate while it runs; here the 1 is part of the bias."""
    gate_i, gate_f, gate_g, gate_o = np.split(swap_gates(bias), 4)
    gate_f = gate_f + 1
    if remainder is not None:
        gate_f = gate_f + remainder
    return (np.concatenate([gate_i, gate_f, gate_g, gate_o]),)


def write_lstm_bias(bias: np.ndarray) -> Arrays:
    """
    The bit-exact inverse of [`read_lstm_bias`]. Subtracting 1 from a float32 near 0 loses its last digits; they are
    stored in a dataset of their own, which other readers ignore and only a model trained here needs.
    """
    gate_i, gate_f, gate_g, gate_o = np.split(bias, 4)
    stored = gate_f - 1
    remainder = gate_f - (stored + 1)
    return swap_gates(np.concatenate([gate_i, stored, gate_g, gate_o])), remainder if remainder.any() else None


def identity_projection(size: int, with_bias: bool) -> Transform:
    """
    AllenNLP always projects, bilm-tf and this package only where the sizes differ. Without a projection an identity is
    written, which gives the same numbers; [`read_weights`] reads an exact identity as no projection.
    """

    def write() -> Arrays:
        weight = np.eye(size, dtype=np.float32)
        return (weight, np.zeros(size, dtype=np.float32)) if with_bias else (weight,)

    return Transform(lambda *_: (), write)


CHARACTER_EMBEDDING = Transform(add_padding_row, drop_padding_row)
CONVOLUTION = Transform(read_convolution, write_convolution)
TRANSPOSE = Transform(transpose, transpose)
COPY = Transform(copy, copy)
LSTM_KERNEL = Transform(read_lstm_kernel, write_lstm_kernel)
LSTM_BIAS = Transform(read_lstm_bias, write_lstm_bias)


def key_table(config: ElmoConfig, multi_rnn_cell: bool = True) -> list[Row]:
    """
    The table of a model's datasets and tensors.

    Args:
        config: the architecture; it decides how many rows there are, and their shapes.
        multi_rnn_cell: False for what bilm-tf dumps of a model with a single layer, whose cell's path has no
            `MultiRNNCell/Cell0`.
    """
    return _character_rows(config) + _projection_rows(config) + _lstm_rows(config, multi_rnn_cell)


def _character_rows(config: ElmoConfig) -> list[Row]:
    size = config.char_embedding_size
    embedding = Dataset("char_embed", (config.char_vocab_size - 1, size))
    rows = [Row((embedding,), ("char_encoder.embedding.weight",), CHARACTER_EMBEDDING)]
    for i, (width, number) in enumerate(config.char_filters):
        target = f"char_encoder.convolutions.{i}"
        rows.append(Row((Dataset(f"CNN/W_cnn_{i}", (1, width, size, number)),), (f"{target}.weight",), CONVOLUTION))
        rows.append(Row((Dataset(f"CNN/b_cnn_{i}", (number,)),), (f"{target}.bias",), COPY))
    filters = config.num_filters
    for i in range(config.num_highway_layers):
        for gate in ("carry", "transform"):
            target = f"char_encoder.highways.{i}.{gate}"
            weight = Dataset(f"CNN_high_{i}/W_{gate}", (filters, filters))
            rows.append(Row((weight,), (f"{target}.weight",), TRANSPOSE))
            rows.append(Row((Dataset(f"CNN_high_{i}/b_{gate}", (filters,)),), (f"{target}.bias",), COPY))
    return rows


def _projection_rows(config: ElmoConfig) -> list[Row]:
    absent = not config.char_projection
    weight = Dataset("CNN_proj/W_proj", (config.num_filters, config.projection_size), optional=absent)
    bias = Dataset("CNN_proj/b_proj", (config.projection_size,), optional=absent)
    if absent:
        return [Row((weight, bias), (), identity_projection(config.projection_size, with_bias=True))]
    target = "char_encoder.projection"
    return [Row((weight,), (f"{target}.weight",), TRANSPOSE), Row((bias,), (f"{target}.bias",), COPY)]


def _lstm_rows(config: ElmoConfig, multi_rnn_cell: bool) -> list[Row]:
    cell, size = config.cell_size, config.projection_size
    rows = []
    for direction, layers in enumerate(("forward_layers", "backward_layers")):
        for layer in range(config.num_hidden_layers):
            path = cell_path(direction, layer, multi_rnn_cell)
            target = f"bilm.{layers}.{layer}"
            kernel = Dataset(f"{path}/W_0", (2 * size, 4 * cell))
            bias = Dataset(f"{path}/B", (4 * cell,))
            remainder = Dataset(f"{path}/B_forget_remainder", (cell,), optional=True)
            projection = Dataset(f"{path}/W_P_0", (cell, size), optional=not config.cell_projection)
            rows.append(Row((kernel,), (f"{target}.weight_ih", f"{target}.weight_hh"), LSTM_KERNEL))
            rows.append(Row((bias, remainder), (f"{target}.bias",), LSTM_BIAS))
            if config.cell_projection:
                rows.append(Row((projection,), (f"{target}.weight_hr",), TRANSPOSE))
            else:
                rows.append(Row((projection,), (), identity_projection(size, with_bias=False)))
    return rows


def cell_path(direction: int, layer: int, multi_rnn_cell: bool = True) -> str:
    """The hdf5 group of one LSTM cell; direction 0 is forward, 1 backward."""
    return f"RNN_{direction}/RNN/" + (f"MultiRNNCell/Cell{layer}/" if multi_rnn_cell else "") + "LSTMCell"


@contextmanager
def _open_weights(path: Path) -> Iterator["h5py.File"]:
    h5py = import_h5py()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such weights file.")
    if not h5py.is_hdf5(path):
        with path.open("rb") as file:
            start = file.read(24)
        raise ModelFileError(
            f"{path} is not an HDF5 file: it begins with {start!r}. A download that failed may have left an error page."
        )
    try:
        with h5py.File(path, "r") as file:
            yield file
    except ModelFileError:
        raise
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"{path} is truncated or damaged ({reason}). Download or copy it again.") from error


def _read_dataset(file: "h5py.File", dataset: Dataset) -> np.ndarray | None:
    """A dataset as float32, or None where an optional one is absent."""
    where = f"{file.filename}: dataset {dataset.name!r}"
    stored = file.get(dataset.name)
    if stored is None and dataset.optional:
        return None
    if not hasattr(stored, "shape"):
        raise ModelFileError(f"{where} is missing; the options ask for one of shape {dataset.shape}.")
    if stored.shape != dataset.shape:
        raise ModelFileError(f"{where} has shape {stored.shape}, but the options ask for {dataset.shape}.")
    if stored.dtype.kind != "f":
        raise ModelFileError(f"{where} holds {stored.dtype}, but weights are floating-point numbers.")
    try:
        array = stored[...].astype(np.float32)
    except OSError as error:
        raise ModelFileError(f"{where} cannot be read: the file is truncated or damaged ({error}).") from error
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        raise ModelFileError(f"{where} has {len(wrong)} values that are NaN or infinite, the first at {index}.")
    return array


def _number_of_characters(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The number of characters, from the tensor: `n_characters` of the options is 261 in training, 262 in inference."""
    if "char_embed" not in shapes:
        raise ModelFileError(f"{path}: dataset 'char_embed' is missing; ELMo's words are read from their characters.")
    rows = (*shapes["char_embed"], 0)[0]
    if rows not in CHARACTER_ROWS:
        raise ModelFileError(
            f"{path}: dataset 'char_embed' has {rows} rows, but bytes and markers make 261 (with padding 262): "
            "another set of characters needs another tokenizer."
        )
    return rows


def _is_identity(file: "h5py.File", weight: Dataset, bias: Dataset | None = None) -> bool:
    """Whether an optional projection is absent or the identity."""
    matrix = _read_dataset(file, weight)
    if matrix is None:
        return True
    offset = None if bias is None else _read_dataset(file, bias)
    return np.array_equal(matrix, np.eye(len(matrix))) and (offset is None or not offset.any())


def _find_projections(file: "h5py.File", config: ElmoConfig, multi_rnn_cell: bool) -> dict[str, bool]:
    """Whether there are projections where the sizes do not require them: the file decides."""
    found = {"char_projection": bool(config.char_projection), "cell_projection": bool(config.cell_projection)}
    for row in key_table(config, multi_rnn_cell):
        if not row.targets and not _is_identity(file, *row.datasets):
            found["char_projection" if row.datasets[0].name.startswith("CNN_proj") else "cell_projection"] = True
    return found


def _config(path: str | Path, options: Mapping[str, Any], **fields: Any) -> ElmoConfig:
    try:
        return config_from_options(options, **fields)
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from error


def read_weights(options_path: str | Path, weights_path: str | Path) -> tuple[ElmoConfig, dict[str, np.ndarray]]:
    """
    Read a model in AllenNLP's format.

    Args:
        options_path: the `options.json`.
        weights_path: the `weights.hdf5`.

    Returns:
        The configuration, and float32 arrays by state-dict key: all of an `ElmoModel` but those of [`LEFT_OUT`].

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: a file is not of its format, truncated or damaged; a dataset is missing, unknown, of another shape
            or type than the options say, stored elsewhere (see `hdf5.stored_datasets`), or has values that are NaN or
            infinite; an option is unknown or impossible.
        ImportError: h5py is not installed.
    """
    options, weights_path = read_options(options_path), Path(weights_path)
    with _open_weights(weights_path) as file:
        shapes = {name: dataset.shape for name, dataset in stored_datasets(file).items()}
        rows = _number_of_characters(weights_path, shapes)
        multi_rnn_cell = f"{cell_path(0, 0, multi_rnn_cell=False)}/W_0" not in shapes
        config = _config(options_path, options, char_vocab_size=rows + 1)
        projections = _find_projections(file, config, multi_rnn_cell)
        config = _config(options_path, options, char_vocab_size=rows + 1, **projections)
        tensors: dict[str, np.ndarray] = {}
        unread = set(shapes)
        for row in key_table(config, multi_rnn_cell):
            arrays = row.transform.read(*[_read_dataset(file, dataset) for dataset in row.datasets])
            tensors.update(zip(row.targets, arrays, strict=True))
            unread -= {dataset.name for dataset in row.datasets}
    if unread:
        raise ModelFileError(
            f"{weights_path}: unexpected dataset {min(unread)!r} ({len(unread)} such): are these its options?"
        )
    return config, tensors


def write_weights(folder: str | Path, config: ElmoConfig, tensors: Mapping[str, np.ndarray]) -> None:
    """
    Write `options.json` and `weights.hdf5` into a folder: the inverse of [`read_weights`], bit by bit.

    Args:
        folder: an existing folder.
        config: the architecture.
        tensors: float32 arrays by state-dict key, as [`read_weights`] returns them.

    Raises:
        ValueError: the model has characters, a tensor or a value that the format cannot store.
        ImportError: h5py is not installed.
    """
    folder, h5py = Path(folder), import_h5py()
    if config.char_units != "bytes":
        raise ValueError(f"char_units is {config.char_units!r}, but AllenNLP's models read bytes.")
    if config.char_vocab_size - 1 not in CHARACTER_ROWS:
        raise ValueError(f"char_vocab_size is {config.char_vocab_size}, but AllenNLP's models have 262 (or 263).")
    left = dict(tensors)
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for row in key_table(config):
            missing = [target for target in row.targets if target not in left]
            if missing:
                raise ValueError(f"The model has no tensor {missing[0]!r}, which AllenNLP's format requires.")
            arrays = row.transform.write(*[left.pop(target) for target in row.targets])
            for dataset, array in zip(row.datasets, arrays, strict=True):
                if array is not None:
                    _require_array(dataset, array)
                    file.create_dataset(dataset.name, data=array)
    if left:
        remedy = " Load the model with settled_start=False." if "bilm.initial_hidden" in left else ""
        raise ValueError(f"AllenNLP's format cannot store tensor {min(left)!r} of the model.{remedy}")
    (folder / "options.json").write_text(json.dumps(options_from_config(config), indent=2) + "\n", encoding="utf-8")


def _require_array(dataset: Dataset, array: np.ndarray) -> None:
    if array.shape != dataset.shape:
        raise ValueError(f"Dataset {dataset.name!r} would have shape {array.shape}, not {dataset.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"Dataset {dataset.name!r} would get NaN or infinity.")
