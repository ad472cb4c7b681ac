"""Evaluation mode for the length of a block, and what may be evaluated."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn

# Of each model in a block, in any thread: how many blocks, and the modules that were in training before the first.
_in_blocks: WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]] = WeakKeyDictionary()
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # another thread may have held the lock, and is not there in the child
    os.register_at_fork(after_in_child=_after_fork)


def require_language_model(model: nn.Module) -> None:
    """Refuses (TypeError) a model without the softmax over words."""
    if not hasattr(model, "word_nll"):
        raise TypeError(
            f"model is a {type(model).__name__}, but only an ElmoForPreTraining has the softmax over words: load that "
            "class, or load_default and load_model with language_model=True."
        )


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switches a model to evaluation mode; after the block each of its modules has its own mode back. Of blocks in
    several threads the last one that ends gives it back.

    Raises:
        ValueError: the model's weights are not in memory, so that what reads them beside its `forward` cannot work.
    """
    if any(weight.is_meta for weight in model.parameters()):
        raise ValueError(
            f"weights of the {type(model).__name__} are offloaded (on the device meta), but this function reads them "
            "from memory: load the model without offloading, or call it yourself."
        )
    with _lock:
        blocks, training = _in_blocks.get(model, (0, []))
        training += [module for module in model.modules() if module.training]
        _in_blocks[model] = blocks + 1, training
        model.eval()
    try:
        yield
    finally:
        with _lock:
            blocks, training = _in_blocks.pop(model)
            if blocks > 1:
                _in_blocks[model] = blocks - 1, training
            else:
                for module in training:
                    module.training = True
