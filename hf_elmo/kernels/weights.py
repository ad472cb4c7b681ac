"""A cache of what is derived from weights, such as a layout that a product reads faster: valid while they are the same.

It lies beside the module (so neither in a state dict nor in a copy of it), as long as the first of its weights lives.
PyTorch's version counter does not see every write (`weight.data[0] = 1`, NumPy views, inference tensors), so all bytes
of the weights are compared, at each call: by their fingerprint, computed in C at the speed of reading them, or where
there is no library in C with a copy of them. A loop that promises constant weights (`constant_weights`) compares once.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import c_int, c_long, c_uint64, c_void_p
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from . import native

Made = TypeVar("Made")

BYTES_PER_THREAD = 1 << 20  # of a fingerprint: fewer are not worth waking a thread

_made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_lock = threading.Lock()
# Within `constant_weights`: the fingerprints that have been compared.
_compared: ContextVar[set[tuple[int, ...]] | None] = ContextVar("hf_elmo.kernels.compared", default=None)


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # another thread may have held the lock, and is not there in the child
    os.register_at_fork(after_in_child=_new_lock)


def cached(weights: tuple[Tensor, ...], dtype: torch.dtype, name: str, make: Callable[..., Made]) -> Made:
    """What `make` makes of the weights cast to `dtype`, `name` being a way of making it.

    Made again when a weight has changed since.
    """
    with _lock:
        of_first = _made.setdefault(weights[0], {})
        entry = of_first.get((name, dtype))
    if entry is None or not entry.fits(weights):  # outside of the lock: threads may look, or make it, at the same time
        entry = Entry(weights, make(*(weight.detach().to(dtype) for weight in weights)))
        with _lock:
            of_first[name, dtype] = entry
    return entry.made


class Entry:
    """Something derived from weights, and the fingerprint of the weights that it was derived from."""

    def __init__(self, weights: Sequence[Tensor], made: Any) -> None:
        self.made = made
        self.fingerprint = fingerprint(weights)

    def fits(self, weights: Sequence[Tensor]) -> bool:
        """Whether the weights are unchanged."""
        compared = _compared.get()
        if compared is not None and (key := (id(self), *map(id, weights))) in compared:
            return True
        same = all(_is_same(before, weight) for before, weight in zip(self.fingerprint, weights, strict=True))
        if same and compared is not None:
            compared.add(key)
        return same


@contextmanager
def constant_weights() -> Iterator[None]:
    """As [`hf_elmo.kernels.constant_weights`] says."""
    token = _compared.set(set())
    try:
        yield
    finally:
        _compared.reset(token)


def fingerprint(weights: Sequence[Tensor]) -> list[tuple[Any, int | Tensor]]:
    """For each weight its shape and type, and a hash of its bytes, or a copy where there is no hash."""
    return [(_form(weight), _hash(weight)) for weight in weights]


def _form(weight: Tensor) -> Any:
    return weight.shape, weight.dtype, weight.stride()


def _hash(weight: Tensor) -> int | Tensor:
    if not _is_dense(weight) or native.library() is None:
        return weight.detach().clone()
    function = native.function("fingerprint", c_void_p, c_long, c_int, returns=c_uint64)
    threads = max(1, min(torch.get_num_threads(), weight.nbytes // BYTES_PER_THREAD))
    return function(weight.data_ptr(), weight.nbytes, threads)


def _is_dense(weight: Tensor) -> bool:
    return weight.is_contiguous() or (weight.dim() == 2 and weight.t().is_contiguous())


def _is_same(before: tuple[Any, int | Tensor], weight: Tensor) -> bool:
    form, content = before
    if form != _form(weight):
        return False
    if isinstance(content, Tensor):
        bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[weight.itemsize]
        return torch.equal(content.view(bits), weight.detach().view(bits))  # bits, so that NaN equals itself
    return content == _hash(weight)
