"""The layers of a frozen biLM, computed once for a data set and read back in every epoch."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from .. import __version__
from ..evaluation import evaluation_mode
from ..modeling_tasks_elmo import ElmoTaskModel
from ..optional import import_optional
from ..words_elmo import scatter_rows
from .heads import batches_by_length

if TYPE_CHECKING:
    from datasets import Dataset

STORED_TYPES = {"float16": "float16", "bfloat16": "uint16", "float32": "float32"}  # Arrow has no bfloat16: its bits


def store_layers(
    model: ElmoTaskModel,
    dataset: Dataset,
    dtype: str = "float16",
    folder: str | os.PathLike | None = None,
    batch_size: int = 64,
    batch_tokens: int = 4096,
) -> Dataset:
    """
    A data set with the layers of the model's frozen biLM, `bilm_layers`, in place of `input_ids`.

    With a frozen biLM its layers are constants of the data; the mix and the head learn from what is stored. Training is
    the same as on `input_ids`, up to the rounding of `dtype`, and costs what the head costs. Heads of the very same
    biLM share a stored data set; those of another one refuse it, where texts have boundaries, by the vector of `<S>`.
    The result is memory-mapped from an Arrow file, which is found again for the same data, weights and `dtype`.

    Args:
        model: one with a head, whose biLM is frozen.
        dataset: a `datasets.Dataset` with the tokenizer's `input_ids`, not padded: the collator pads.
        dtype: `"float16"`, `"bfloat16"` or `"float32"`: 2 or 4 bytes for each of the `(num_hidden_layers + 1) * 2P`
            numbers of a word.
        folder: where the file goes; by default where `datasets` keeps the data set, in memory if that is in memory.
        batch_size: rows that are read and written together.
        batch_tokens: words, boundaries and padding that are computed together, unless a single text has more.

    Returns:
        the data set in numpy's format (which widens numbers as it reads them), with the columns `length` (for batches
        of like length) and `special_tokens_mask` (which positions are boundaries); the others stay.
        `DataCollatorWithPadding` and [`TaggingCollator`] pad it.

    Raises:
        ValueError: the biLM is not frozen, there is none, `dtype` is unknown or too small for a layer, `input_ids` are
            missing or padded, the data set has no rows, or `batch_tokens` is below 1.
        ImportError: datasets is not installed.
    """
    datasets = import_optional("datasets", "store_layers", '"hf-elmo[train]"')
    _check(model, dataset, dtype, batch_tokens)
    dataset = dataset.with_format(None)  # rows of any format are read as lists, and all columns
    config = model.config
    features = dataset.features.copy()
    del features["input_ids"]
    shape = None, config.num_hidden_layers + 1, config.hidden_size
    features["bilm_layers"] = datasets.Array3D(shape, STORED_TYPES[dtype])
    features["length"] = datasets.Value("int64")
    features["special_tokens_mask"] = datasets.Sequence(datasets.Value("int8"))
    fingerprint = _fingerprint(model, dataset, dtype)
    file = None
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = str(Path(folder, f"layers-{fingerprint}.arrow"))
    with evaluation_mode(model):
        stored = dataset.map(
            lambda rows, numbers: _compute(model, rows, numbers, dtype, batch_tokens),
            batched=True,
            with_indices=True,
            batch_size=batch_size,
            writer_batch_size=batch_size,
            remove_columns=["input_ids"],
            features=features,
            cache_file_name=file,
            new_fingerprint=fingerprint,
            desc="Computing the biLM's layers",
        )
    return stored.with_format("numpy")


def _check(model: ElmoTaskModel, dataset: Dataset, dtype: str, batch_tokens: int) -> None:
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens is {batch_tokens}, but must be 1 or more.")
    if dtype not in STORED_TYPES:
        raise ValueError(f"dtype is {dtype!r}, but must be one of {', '.join(STORED_TYPES)}.")
    if not isinstance(model, ElmoTaskModel) or not model.config.use_elmo:
        raise ValueError(
            f"{type(model).__name__} has no layers for a head: give a model with a head and use_elmo=True."
        )
    model.require_frozen_bilm()
    if "input_ids" not in dataset.column_names:
        raise ValueError(f"the data set has {', '.join(dataset.column_names)}, but no input_ids: tokenize it first.")
    if not len(dataset):
        raise ValueError("the data set has no rows, so there is nothing to store: give one that has.")


def _compute(
    model: ElmoTaskModel, texts: dict[str, list], numbers: list[int], dtype: str, batch_tokens: int
) -> dict[str, list]:
    """The columns of some texts, whose `input_ids` are nested lists `[words, row_length]`, and their numbers."""
    rows = [np.asarray(text, dtype=np.int64).reshape(-1, model.config.row_length) for text in texts["input_ids"]]
    for number, row, mask in zip(numbers, rows, texts.get("attention_mask", [True] * len(rows)), strict=True):
        if not (row.any(1).all() and np.all(mask)):
            raise ValueError(
                f"row {number} of the data set holds padding, which would be read as words: tokenize without padding, "
                "the collator pads."
            )
    layers: dict[int, np.ndarray] = {}
    for batch in batches_by_length([len(row) for row in rows], batch_tokens):
        layers |= zip(batch, _layers(model, [rows[row] for row in batch], dtype), strict=True)
    boundaries = model.config.bos_token_id, model.config.eos_token_id
    return {
        "bilm_layers": [layers[row] for row in range(len(rows))],
        "length": [len(row) for row in rows],
        "special_tokens_mask": [np.isin(row[:, 1], boundaries).astype(np.int8) for row in rows],
    }


@torch.no_grad()
def _layers(model: ElmoTaskModel, rows: list[np.ndarray], dtype: str) -> list[np.ndarray]:
    """Of each of a batch of rows `[words, row_length]` what is stored: `[words, num_hidden_layers + 1, 2P]`."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    input_ids = torch.from_numpy(scatter_rows(np.concatenate(rows), mask)).to(model.device)
    layers = model.bilm_layers(input_ids, torch.from_numpy(mask).to(model.device))
    stored = layers.to(getattr(torch, dtype)).cpu()
    if dtype == "float16" and not stored.isfinite().all() and layers.isfinite().all():
        raise ValueError("a layer holds numbers over 65504, which float16 has not: use dtype='bfloat16'.")
    values = stored.view(torch.uint16).numpy() if dtype == "bfloat16" else stored.numpy()
    return [value[:length] for value, length in zip(values, lengths, strict=True)]


def _fingerprint(model: ElmoTaskModel, dataset: Dataset, dtype: str) -> str:
    """Of all that the layers depend on: the data, the biLM's weights and configuration, how they are computed."""
    digest = hashlib.sha256()
    config = model.config.to_dict()
    fields = "cell_clip", "proj_clip", "use_skip_connections", "char_activation"
    parts = [__version__, dataset._fingerprint, dtype, str(model.dtype), *(str(config[field]) for field in fields)]
    parts.append(str(model.reads_text_pairs))
    digest.update("\n".join(parts).encode())
    for name, weight in model.elmo.state_dict().items():
        if not name.startswith("scalar_mix."):
            digest.update(name.encode() + str(tuple(weight.shape)).encode())
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:32]
