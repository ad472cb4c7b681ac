"""A cache of what is derived from weights, such as a layout that a product reads faster: valid while they are the same.

It is stored outside of the module (so neither in a state dict nor in a copy of it), as long as its first weight lives.
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
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by their size

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
    """What `make` makes of the weights cast to `dtype`, `name` says in which layout.

    Made again when a weight has changed since.
    """
    with _lock:
        of_first = _made.setdefault(weights[0], {})
        entry = of_first.get((name, dtype))
    if entry is None or not entry.fits(weights):  # outside of the lock: threads may look, or make it, at the same time
        entry = Entry(weights, lambda: make(*(weight.detach().to(dtype) for weight in weights)))
        with _lock:
            of_first[name, dtype] = entry
    return entry.made


class Entry:
    """Something derived from weights, and the fingerprint of the weights that it was derived from."""

    def __init__(self, weights: Sequence[Tensor], make: Callable[[], Any]) -> None:
        # The fingerprint first: should somebody write while `make` reads, the next look finds a difference.
        self.forms, self.content = _forms(weights), _content(weights)
        self.made = make()

    def fits(self, weights: Sequence[Tensor]) -> bool:
        """Whether the weights are unchanged."""
        compared = _compared.get()
        if compared is not None and (key := (id(self), *map(id, weights))) in compared:
            return True
        same = self.forms == _forms(weights) and _is_same(self.content, weights)
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


def _forms(weights: Sequence[Tensor]) -> list[Any]:
    return [(weight.shape, weight.dtype, weight.stride()) for weight in weights]


def _content(weights: Sequence[Tensor]) -> list[int] | list[Tensor]:
    """A hash of the bytes of each weight, or copies where there is no hash."""
    if native.library() is None or not all(map(_is_dense, weights)):
        return [weight.detach().clone() for weight in weights]
    return _hashes(weights)


def _hashes(weights: Sequence[Tensor]) -> list[int]:
    """The hash of each weight, all in one call: a call costs as much as reading 100 KB."""
    number, sizes = len(weights), [weight.nbytes for weight in weights]
    hashes = (c_uint64 * number)()
    threads = max(1, min(torch.get_num_threads(), sum(sizes) // BYTES_PER_THREAD))
    function = native.function("fingerprints", c_void_p, c_void_p, c_long, c_void_p, c_int)
    function(native.pointers(weights), (c_long * number)(*sizes), number, hashes, threads)
    return list(hashes)


def _is_dense(weight: Tensor) -> bool:
    return weight.is_contiguous() or (weight.dim() == 2 and weight.t().is_contiguous())


def _is_same(content: list[int] | list[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether weights of the same forms have that content."""
    if isinstance(content[0], int):
        return content == _hashes(weights)
    return all(  # bits, so that NaN equals itself
        torch.equal(before.view(bits := INTEGERS[weight.itemsize]), weight.detach().view(bits))
        for before, weight in zip(content, weights, strict=True)
    )
