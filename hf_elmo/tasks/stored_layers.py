"""Stored layers: the layers of a frozen biLM, computed once for a data set, and batches of them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchEncoding, DataCollatorWithPadding

from ..configuration_elmo import BOS_ID, EOS_ID, VERSION
from ..modeling_elmo import scatter
from ..modeling_heads_elmo import ElmoInputs, ElmoTaskModel
from ..reading.files import local_path
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import batches, evaluation_mode
from ..utils.extras import extra_needed
from ..utils.fingerprints import model_fingerprint

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

ROWS = 64  # computed and written together
STORED_TYPES = {"float16": "float16", "bfloat16": "uint16", "float32": "float32"}  # bfloat16 is stored as its bits


def store_layers(
    model: ElmoTaskModel,
    dataset: "Dataset | DatasetDict",
    dtype: str = "float16",
    folder: str | os.PathLike | None = None,
    batch_tokens: int = 4096,
) -> "Dataset | DatasetDict":
    """Compute the layers of a model's frozen biLM once for a data set.

    The column `bilm_layers` replaces `input_ids`. Training on it gives the same model as training on `input_ids`, up to
    the rounding of `dtype`, at the cost of the head alone; scalar mixes are still learned. All heads on the same biLM
    can share a stored data set; for a head on another biLM the collator raises an error. The result is memory-mapped
    from an Arrow file, which later calls with the same data, weights and `dtype` reuse.

    Args:
        model: a model with a head whose biLM is frozen.
        dataset: a `datasets.Dataset` or `DatasetDict` with the `input_ids` of the tokenizer, not padded.
        dtype: `"float16"`, `"bfloat16"` or `"float32"`, of the `(num_hidden_layers + 1) * 2P` values of a word.
        folder: of the Arrow files; by default the cache of `datasets`, or memory, if `dataset` is in memory.
        batch_tokens: the most words, boundaries and padding to compute at once; a longer text is computed alone.

    Returns:
        the data set in numpy format with the columns `bilm_layers`, `length` (to group rows by length) and
        `special_tokens_mask` (which positions are boundaries); other columns are kept. [`LayersCollator`],
        [`TaggingCollator`] and [`CoreferenceCollator`] pad its rows, given the model.

    Raises:
        ValueError: the biLM is not frozen, a row is padded, or a value does not fit into float16.
    """
    with extra_needed("train"):
        from datasets import Array3D, Dataset, DatasetDict, Sequence, Value
        from datasets.fingerprint import Hasher

    if isinstance(dataset, DatasetDict):
        return DatasetDict({k: store_layers(model, part, dtype, folder, batch_tokens) for k, part in dataset.items()})
    model.require_frozen_bilm()
    dataset = dataset.with_format(None)  # rows of any format are read as lists, with all columns
    features = dataset.features.copy()
    del features["input_ids"]
    shape = None, model.config.num_hidden_layers + 1, model.config.hidden_size
    features |= {"bilm_layers": Array3D(shape, STORED_TYPES[dtype]), "length": Value("int64")}
    features["special_tokens_mask"] = Sequence(Value("int8"))
    if not len(dataset):  # `map` would return it as it is
        return Dataset.from_dict({name: [] for name in features}, features).with_format("numpy")
    how = model.reads_text_pairs, model.config.carry_state
    fingerprint = Hasher.hash((VERSION, dataset._fingerprint, dtype, model.dtype, *how, model_fingerprint(model.elmo)))
    with evaluation_mode(model), torch.autocast(model.device.type, enabled=False):
        stored = dataset.map(
            lambda texts, numbers: _compute(model, texts, numbers, dtype, batch_tokens),
            batched=True,
            with_indices=True,
            batch_size=ROWS,
            writer_batch_size=ROWS,
            remove_columns=["input_ids"],
            features=features,
            cache_file_name=None if folder is None else str(Path(local_path(folder), f"layers-{fingerprint}.arrow")),
            new_fingerprint=fingerprint,
            desc="Computing the biLM's layers",
        )
    return stored.with_format("numpy")


@torch.no_grad()
def _compute(model: ElmoTaskModel, texts: dict, numbers: list[int], dtype: str, batch_tokens: int) -> dict[str, list]:
    """The new columns for some rows of the data set, whose `input_ids` are nested lists `[words, row_length]`."""
    rows = [np.asarray(text, dtype=np.int64).reshape(-1, model.config.row_length) for text in texts["input_ids"]]
    for number, row in zip(numbers, rows, strict=True):
        if not row.any(1).all():
            raise ValueError(f"row {number} of the dataset is padded: tokenize without padding; the collator pads.")
    lengths = list(map(len, rows))
    stored: list[Any] = [None] * len(rows)
    for batch in batches(lengths, batch_tokens):
        input_ids = pad_sequence([torch.from_numpy(rows[index]) for index in batch], batch_first=True)
        inputs = ElmoInputs(input_ids.to(model.device), output_hidden_states=True)
        layers = torch.stack(model.read_words(inputs).hidden_states, dim=2)
        values = layers.to(getattr(torch, dtype)).cpu()
        if dtype == "float16" and not values.isfinite().all() and layers.isfinite().all():
            raise ValueError("a layer has values over 65504, which dtype='float16' cannot hold: use dtype='bfloat16'.")
        values = values.view(torch.uint16) if dtype == "bfloat16" else values
        for index, value in zip(batch, values.numpy(), strict=True):
            stored[index] = value[: lengths[index]]
    masks = [np.isin(row[:, 1], (BOS_ID, EOS_ID)).astype(np.int8) for row in rows]
    return {"bilm_layers": stored, "length": lengths, "special_tokens_mask": masks}


class LayersMixin:
    """What makes a collator of transformers pad rows of [`store_layers`], too, and compare their layers."""

    tokenizer: ElmoTokenizer

    def __init__(self, tokenizer: ElmoTokenizer, model: ElmoTaskModel | None = None, **options: Any) -> None:
        super().__init__(tokenizer, **options)  # type: ignore[call-arg]
        self.begin = None
        if model is not None and model.config.use_elmo:
            # The forward halves of the layers of `<S>`, `[layers, P]`, depend on the biLM's weights alone: its mark.
            begin = torch.tensor([[tokenizer.convert_tokens_to_ids(str(tokenizer.bos_token))]], device=model.device)
            with evaluation_mode(model), torch.no_grad():
                layers = model.elmo(begin, output_hidden_states=True, return_dict=True).hidden_states
            self.begin = torch.stack(layers)[:, 0, 0, : model.config.projection_size].float().cpu()

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> BatchEncoding:
        if "input_ids" in features[0]:
            return super().__call__(list(map(dict, features)))
        rows = list(map(dict, features))
        stored = [row.pop("bilm_layers") for row in rows if "bilm_layers" in row]
        for row, own in zip(rows, stored or [row["word_vector_ids"] for row in rows], strict=True):
            row["input_ids"] = np.zeros((len(own), self.tokenizer.row_length), np.int64)  # transformers pads the rest
        batch = super().__call__(rows)
        del batch["input_ids"]
        if stored:
            mask = batch["attention_mask"].bool()
            batch["bilm_layers"] = place(stored, mask)
            at_begin = mask & (mask.cumsum(1) == 1) & batch.get("special_tokens_mask", mask.new_zeros(())).bool()
            error = batch["bilm_layers"][at_begin][..., : self.begin.shape[1]].float().cpu() - self.begin
            # Relative to its norm, a vector changes by 0.004 by rounding to bfloat16, and by about 1 with another biLM.
            if not (error.norm(dim=2) <= 0.05 * self.begin.norm(dim=1)).all():
                raise ValueError("bilm_layers belong to another biLM: store the layers of this biLM (store_layers).")
        return batch


class LayersCollator(LayersMixin, DataCollatorWithPadding):
    """transformers' `DataCollatorWithPadding`, which also pads rows of [`store_layers`]. These need `model`, which will
    read them: a ValueError is raised if they are layers of another biLM. `options` are those of transformers."""


def place(rows: Sequence[Any], mask: Tensor) -> Tensor:
    """The values of rows at the positions of `mask`, else zeros. Layers that are no floats are bits of bfloat16."""
    values = torch.from_numpy(np.concatenate(list(map(np.asarray, rows))))
    if values.dim() == 3 and not values.is_floating_point():  # numpy format may widen the bits
        values = values.to(torch.uint16).view(torch.bfloat16)
    return scatter(values.to(mask.device), mask)
