"""Evaluation: its mode for a block, and batches of texts of similar length."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn

from ..kernels import enabled

# For each model, of each block that it is in, the modules that were in training mode when it began: all of the first's.
_EVALUATED: WeakKeyDictionary[nn.Module, list[list[nn.Module]]] = WeakKeyDictionary()
_LOCK = threading.Lock()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode for a block that runs it over rows; after the last block, also of other
    threads, each module has the mode that it had before. ValueError if the kernel "int8" is enabled."""
    if "int8" in enabled():
        raise ValueError("int8 makes numbers depend on the batch: leave it out of HF_ELMO_KERNELS and kernels.use here")
    with _LOCK:
        blocks = _EVALUATED.setdefault(model, [])
        blocks.append([module for module in model.modules() if module.training])
        model.eval()
    try:
        yield
    finally:
        with _LOCK:
            for module in blocks.pop():
                module.training = True


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """The indices of rows in batches of at most `batch_tokens` positions, padding included, or of one longer row."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[row] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
