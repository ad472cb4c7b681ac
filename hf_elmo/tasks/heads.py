"""Loading a fine-tuned head by its name, and batches of rows of like length."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import torch
from transformers import AutoConfig

from ..configuration_tasks_elmo import FIRST_VECTOR_ID
from ..modeling_tasks_elmo import ElmoTaskModel
from ..shipped import named, tokenizer_of
from ..spelling import require_tokenizer
from ..tokenization_elmo import ElmoTokenizer

# The remedy where a result is no number, or none that is finite.
NOT_FINITE = (
    "The model's weights are not finite (its training diverged: take an earlier checkpoint, or train with a lower "
    "learning rate), or too large for its dtype: load it in float32 or bfloat16."
)


def load_head(
    heads: Sequence[type[ElmoTaskModel]],
    model: ElmoTaskModel | str | os.PathLike,
    tokenizer: ElmoTokenizer | None,
    device: str | torch.device | None,
) -> tuple[ElmoTaskModel, ElmoTokenizer]:
    """A model of one of the classes `heads`, or the one of a name or folder, and its tokenizer.

    Raises:
        ValueError: the model is of another class, or the tokenizer of another model, or without its words.
    """
    by_name = {head.__name__: head for head in heads}
    if isinstance(model, (str, os.PathLike)):
        with named(model) as place:
            found = AutoConfig.from_pretrained(place).architectures or ["no class"]
            if found[0] not in by_name:
                raise ValueError(
                    f"model {str(model)!r} is of {found[0]}, but a fine-tuned head is needed: {', '.join(by_name)}."
                )
            model = by_name[found[0]].from_pretrained(place)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if type(model).__name__ not in by_name:
        raise ValueError(f"model is of {type(model).__name__}, but a fine-tuned head is needed: {', '.join(by_name)}.")
    if tokenizer is None:
        tokenizer = tokenizer_of(model)
    require_tokenizer(model.config, tokenizer)
    _require_words(model, tokenizer)
    return model if device is None else model.to(device), tokenizer


def _require_words(model: ElmoTaskModel, tokenizer: ElmoTokenizer) -> None:
    """Refuses a tokenizer with another number of words than the model has vectors for (ValueError)."""
    rows = model.config.word_vectors_vocab_size
    if rows is not None and len(tokenizer.words or ()) + FIRST_VECTOR_ID != rows:
        raise ValueError(
            f"the tokenizer has {len(tokenizer.words or ()):,} words, the model has vectors of "
            f"{rows - FIRST_VECTOR_ID:,} (word_vectors_vocab_size - {FIRST_VECTOR_ID}): give the tokenizer that "
            "belongs to the model, or set its words (tokenizer.words)."
        )


def batches_of(model: ElmoTaskModel, lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """As [`batches_by_length`]; a single row each where a layer is normalized over all words of a call
    (`scalar_mix_layer_norm`): no row's result may depend on others."""
    alone = model.config.use_elmo and model.config.scalar_mix_layer_norm
    return ([number] for number in range(len(lengths))) if alone else batches_by_length(lengths, batch_tokens)


def batches_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """The indices of rows of these lengths in batches of like length, each of at most `batch_tokens` with its padding,
    or a single row."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[number] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    yield batch
