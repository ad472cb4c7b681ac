"""Evaluation: its mode for a block, and batches of texts of similar length."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from ..kernels import enabled


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode for a block that runs it over rows; afterwards, each module has the mode that
    it had before. ValueError if the kernel "int8" is enabled."""
    if "int8" in enabled():
        raise ValueError(
            "int8 rounds small batches alone, so the numbers of a row would depend on its batch: it is for calls of a "
            "model. Leave it out of HF_ELMO_KERNELS and kernels.use here."
        )
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """The indices of rows in batches of rows of similar length, with at most `batch_tokens` positions each, padding
    included; a longer row is a batch of its own."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[row] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
