"""Evaluation mode for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switches a model to evaluation mode; after the block each of its modules has its own mode back.

    Raises:
        ValueError: the model's weights are not in memory, so that what reads them beside its `forward` cannot work.
    """
    if any(weight.is_meta for weight in model.parameters()):
        raise ValueError(
            f"weights of the {type(model).__name__} are offloaded (on the device meta), but this function reads them "
            "from memory: load the model without offloading, or call it yourself."
        )
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
