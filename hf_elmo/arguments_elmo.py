"""What all models' `forward` share: `return_dict`, a word on arguments without effect, and the reading of masks."""

import difflib
import inspect
from collections.abc import Callable, Sequence
from functools import wraps

import torch
from torch import Tensor, nn
from transformers.utils import TransformersKwargs, can_return_tuple, logging

logger = logging.get_logger(f"transformers.{__name__}")

# What Trainer, pipelines, PEFT, tokenizers and hf_elmo.encode_questions (`piece`) hand to a model, whether it reads it
# or not.
NOT_READ = frozenset(TransformersKwargs.__annotations__) | {
    "cache_position",
    "head_mask",
    "length",
    "offset_mapping",
    "overflow_to_sample_mapping",
    "past_key_values",
    "piece",
    "return_dict",
    "return_loss",
    "special_tokens_mask",
    "task_ids",
    "token_type_ids",
    "use_cache",
    "word_vector_ids",
}


def model_forward(forward: Callable) -> Callable:
    """A model's `forward` as transformers calls it: with `return_dict`, and with arguments for other models, which it
    leaves aside in its `**kwargs`. Any argument that is neither its own nor one of those is most likely misspelled: it
    is warned of once."""
    own = [name for name, one in inspect.signature(forward).parameters.items() if one.kind is not one.VAR_KEYWORD]
    known = NOT_READ.union(own)

    @can_return_tuple
    @wraps(forward)
    def checked(self: nn.Module, *args: object, **kwargs: object) -> object:
        if not torch.compiler.is_compiling() and not kwargs.keys() <= known:
            _warn(self, forward.__qualname__, own, {name: kwargs[name] for name in kwargs if name not in known})
        return forward(self, *args, **kwargs)

    return checked


def _warn(model: nn.Module, forward: str, own: list[str], given: dict[str, object]) -> None:
    loss = own_loss_function(model)  # which may read what is left
    of_loss = () if loss is None else inspect.signature(loss).parameters
    for name, value in given.items():
        if value is not None and name not in of_loss:
            nearest = difflib.get_close_matches(name, own, n=1)
            meant = f"; did you mean {nearest[0]}?" if nearest else "."
            logger.warning_once(f"{forward} has no argument {name} (it has no effect){meant}")


def own_loss_function(model: nn.Module) -> Callable | None:
    """The `loss_function` that was set on a model: by a user, or a classifier's default. One that is a module itself
    never reaches transformers' property of that name."""
    return model._modules.get("loss_function", getattr(model, "_loss_function", None))


def require_no_loss_function(model: nn.Module) -> None:
    """Refuses (ValueError) a `loss_function` that was set on a model whose loss is more than one of its logits."""
    if own_loss_function(model) is not None:
        raise ValueError(
            f"loss_function of {type(model).__name__} is set, but its loss is its own: call it without labels, and "
            "compute yours from its outputs."
        )


def as_mask(name: str, mask: Tensor, shape: Sequence[int]) -> Tensor:
    """The mask that is the argument `name`, in bool.

    Raises:
        ValueError: it has another shape, or numbers to be added to scores, 0 for words: that is the contrary, and so is
            one of floating-point zeros alone.
    """
    if mask.shape != shape:
        shapes = f"{list(mask.shape)}, but must be {list(shape)}"
        raise ValueError(f"{name} has the shape {shapes}: one number for each position.")
    if torch.compiler.is_compiling() or not mask.is_floating_point() or not mask.numel():
        return mask.bool()
    if (mask < 0).any() or (name == "attention_mask" and not mask.any()):
        holds = f"{mask.min().item():g}" if (mask < 0).any() else "nothing but 0.0"
        raise ValueError(
            f"{name} holds {holds}, as one to be added to scores does, but must hold 1 and 0, as the tokenizer makes "
            "it."
        )
    return mask.bool()


__all__ = ["as_mask", "model_forward", "own_loss_function", "require_no_loss_function"]
