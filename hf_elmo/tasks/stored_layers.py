"""Stored layers: the layers of a frozen biLM, computed once for a data set, and batches of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchEncoding, DataCollatorWithPadding

from .. import __version__
from ..modeling_heads_elmo import ElmoTaskModel
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import evaluation_mode
from ..utils.extras import extra_needed
from ..utils.text import local_path
from .task import batches

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

ROWS = 64  # computed and written together
STORED_TYPES = {"float16": "float16", "bfloat16": "uint16", "float32": "float32"}  # bfloat16 is stored as its bits
# The columns that have a value for each position, and their value at padding.
PADDING = dict.fromkeys(("input_ids", "bilm_layers", "attention_mask", "token_type_ids", "word_vector_ids"), 0)
PADDING |= {"special_tokens_mask": 1, "speaker_ids": 0}


def store_layers(
    model: ElmoTaskModel,
    dataset: Dataset | DatasetDict,
    dtype: str = "float16",
    folder: str | os.PathLike | None = None,
    batch_tokens: int = 4096,
) -> Dataset | DatasetDict:
    """
    Compute the layers of a model's frozen biLM once for a data set.

    The column `bilm_layers` replaces `input_ids`. Training on it gives the same model as training on `input_ids`, up to
    the rounding of `dtype`, at the cost of the head alone; scalar mixes are still learned. All heads on the same biLM
    can share a stored data set; for a head on another biLM the collator raises an error.
    The result is memory-mapped from an Arrow file, which later calls with the same data, weights and `dtype` reuse.

    Args:
        model: a model with a head whose biLM is frozen.
        dataset: a `datasets.Dataset` or `DatasetDict` with the `input_ids` of the tokenizer, not padded.
        dtype: `"float16"`, `"bfloat16"` or `"float32"`: 2 or 4 bytes for each of the `(num_hidden_layers + 1) * 2P`
            values of a word.
        folder: the folder of the Arrow files; by default the cache of `datasets`, or, if `dataset` is in memory, memory
            (each call computes the layers again).
        batch_tokens: the most words, boundaries and padding to compute at once; a longer text is computed alone.

    Returns:
        the data set in numpy format with the columns `bilm_layers`, `length` (to group rows by length) and
        `special_tokens_mask` (which positions are boundaries); other columns are kept. [`LayersCollator`],
        [`TaggingCollator`] and [`CoreferenceCollator`] pad its rows, given the model.

    Raises:
        ValueError: the biLM is not frozen, a row is padded, or a value does not fit into float16.
    """
    with extra_needed():
        from datasets import Array3D, DatasetDict, Sequence, Value

    if isinstance(dataset, DatasetDict):
        return DatasetDict({k: store_layers(model, part, dtype, folder, batch_tokens) for k, part in dataset.items()})
    model.require_frozen_bilm()
    dataset = dataset.with_format(None)  # rows of any format are read as lists, with all columns
    features = dataset.features.copy()
    del features["input_ids"]
    shape = None, model.config.num_hidden_layers + 1, model.config.hidden_size
    features["bilm_layers"] = Array3D(shape, STORED_TYPES[dtype])
    features["length"] = Value("int64")
    features["special_tokens_mask"] = Sequence(Value("int8"))
    fingerprint = _fingerprint(model, dataset, dtype)
    file = None if folder is None else str(Path(local_path(folder), f"layers-{fingerprint}.arrow"))
    with evaluation_mode(model):
        stored = dataset.map(
            lambda texts, indices: _compute(model, texts, indices, dtype, batch_tokens),
            batched=True,
            with_indices=True,
            batch_size=ROWS,
            writer_batch_size=ROWS,
            remove_columns=["input_ids"],
            features=features,
            cache_file_name=file,
            new_fingerprint=fingerprint,
            desc="Computing the biLM's layers",
        )
    return stored.with_format("numpy")


@torch.no_grad()
def _compute(
    model: ElmoTaskModel, texts: dict[str, list], indices: list[int], dtype: str, batch_tokens: int
) -> dict[str, list]:
    """The new columns for some rows of the data set, whose `input_ids` are nested lists `[words, row_length]`."""
    rows = [np.asarray(text, dtype=np.int64).reshape(-1, model.config.row_length) for text in texts["input_ids"]]
    for index, row, mask in zip(indices, rows, texts.get("attention_mask", [True] * len(rows)), strict=True):
        if not (row.any(1).all() and np.all(mask)):
            raise ValueError(f"row {index} of the dataset is padded: tokenize without padding; the collator pads.")

    lengths, boundaries = list(map(len, rows)), (model.config.bos_token_id, model.config.eos_token_id)
    stored: list[Any] = [None] * len(rows)
    for batch in batches(lengths, batch_tokens):
        input_ids = pad_sequence([torch.from_numpy(rows[index]) for index in batch], batch_first=True)
        layers = model.bilm_layers(input_ids.to(model.device))
        values = layers.to(getattr(torch, dtype)).cpu()
        if dtype == "float16" and not values.isfinite().all() and layers.isfinite().all():
            raise ValueError("a layer has values over 65504, which dtype='float16' cannot hold: use dtype='bfloat16'.")
        values = values.view(torch.uint16) if dtype == "bfloat16" else values
        for index, value in zip(batch, values.numpy(), strict=True):
            stored[index] = value[: lengths[index]]
    return {
        "bilm_layers": stored,
        "length": lengths,
        "special_tokens_mask": [np.isin(row[:, 1], boundaries).astype(np.int8) for row in rows],
    }


def _fingerprint(model: ElmoTaskModel, dataset: Dataset, dtype: str) -> str:
    """A hash of all that the layers depend on: the data, the biLM's weights and configuration, the precision."""
    config = model.config.to_dict()
    fields = "cell_clip", "proj_clip", "use_skip_connections", "char_activation"
    settings = [__version__, dataset._fingerprint, dtype, model.dtype, model.reads_text_pairs]
    digest = hashlib.sha256(repr([*settings, *(config[field] for field in fields)]).encode())
    for name, weight in model.elmo.state_dict().items():
        if not name.startswith("scalar_mix."):
            digest.update(f"{name} {list(weight.shape)}".encode())
            digest.update(weight.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


def begin_of(model: ElmoTaskModel | None, tokenizer: ElmoTokenizer) -> Tensor | None:
    """The forward halves of the layers of `<S>`, `[layers, P]`, by which the owner of stored layers is recognized: no
    word precedes `<S>`, so that they depend on the biLM's weights alone. `None` without a model or its biLM."""
    if model is None or not model.config.use_elmo:
        return None
    with evaluation_mode(model), torch.no_grad():
        begin = torch.tensor([[tokenizer.convert_tokens_to_ids(str(tokenizer.bos_token))]], device=model.device)
        layers = model.elmo(begin, output_hidden_states=True, return_dict=True).hidden_states
        return torch.stack(layers)[:, 0, 0, : model.config.projection_size].float().cpu()


class LayersCollator(DataCollatorWithPadding):
    """transformers' `DataCollatorWithPadding`, which also pads rows of [`store_layers`]. These need `model`, which will
    read them: a ValueError is raised if they are layers of another biLM. `options` are those of transformers."""

    def __init__(self, tokenizer: ElmoTokenizer, model: ElmoTaskModel | None = None, **options: Any) -> None:
        super().__init__(tokenizer, **options)
        self.begin = begin_of(model, tokenizer)

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> BatchEncoding:
        batch = pad_rows(self.tokenizer, features, self.begin, self.padding, self.max_length, self.pad_to_multiple_of)
        if "label" in batch:
            batch["labels"] = batch.pop("label")
        return batch


def pad_rows(
    tokenizer: ElmoTokenizer,
    rows: Sequence[Mapping[str, Any]],
    begin: Tensor | None,
    padding: bool | str = True,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    **padding_of: int,
) -> BatchEncoding:
    """Pads rows as `tokenizer.pad` does, also rows of [`store_layers`], where `bilm_layers` replaces `input_ids`; these
    are compared with `begin`, the result of [`begin_of`]. The columns in `PADDING` and `padding_of` have a value for
    each position; otherwise a ValueError is raised."""
    padding_of = {**PADDING, **padding_of}
    column = next(name for name in ("input_ids", "bilm_layers", "word_vector_ids") if name in rows[0])
    lengths = [len(row[column]) for row in rows]
    length = max([*lengths, (max_length or 0) if padding == "max_length" else 0])
    length += -length % (pad_to_multiple_of or 1)
    inside = np.arange(length) < np.array(lengths)[:, None]
    inside = inside if tokenizer.padding_side == "right" else inside[:, ::-1]
    rows = [{"attention_mask": np.ones(own, np.int64), **row} for row, own in zip(rows, lengths, strict=True)]
    batch = {}
    for name in rows[0]:
        values = [np.asarray(row[name]) for row in rows]
        if name in padding_of:
            if list(map(len, values)) != lengths:
                found = f"{name} has {list(map(len, values))} values in rows of {lengths} positions"
                raise ValueError(f"{found}, boundaries included: align labels with tokenizer.align_labels.")
            flat = np.concatenate([value for value in values if len(value)])
            array = np.full((*inside.shape, *flat.shape[1:]), padding_of[name], flat.dtype)
            array[inside] = flat
        else:
            array = np.stack(values)
        tensor = torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else array)
        if name == "bilm_layers" and not tensor.is_floating_point():  # numpy format may widen the bits of bfloat16
            tensor = tensor.to(torch.uint16).view(torch.bfloat16)
        batch[name] = tensor
    if "bilm_layers" in batch:
        at_begin = torch.from_numpy(inside & (inside.cumsum(1) == 1))
        at_begin &= batch.get("special_tokens_mask", torch.zeros(())).bool()
        _require_own(batch["bilm_layers"][at_begin].float(), begin)
    return BatchEncoding(batch)


def _require_own(layers: Tensor, begin: Tensor | None) -> None:
    """Compares the layers of `<S>`, `[rows, layers, 2P]`, with `begin`. Relative to its norm, a vector changes by 0.004
    if it is rounded to bfloat16, and by about 1 with another biLM."""
    if begin is None:
        raise ValueError("bilm_layers need the model that reads them: pass it to the collator.")
    if not ((layers[..., : begin.shape[1]] - begin).norm(dim=2) <= 0.05 * begin.norm(dim=1)).all():
        raise ValueError("bilm_layers belong to another biLM: store the layers of this biLM (store_layers).")
