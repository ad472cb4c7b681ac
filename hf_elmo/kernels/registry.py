"""Faster ways to compute what the modeling files compute in plain PyTorch, and the one place that chooses among them.

For each operation there is a list of backends, in the order in which they are asked: the first one that supports a call
runs it; where there is none, the modeling file's own PyTorch does. `HF_ELMO_KERNELS` in the environment, or [`use`] for
a block of code, restricts the choice: `off`, or names separated by commas.

A new backend is a module of this folder with `supports` and `run` (see [`Backend`]) and its line in `BACKENDS`.
"""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .backend import Backend

INTERFACE = 1  # of the calls that backends take; raised when one of them changes

BACKENDS: dict[str, tuple[Backend, ...]] = {
    # lstm_elmo.bilstm_layer: the directions of one layer over packed words
    "lstm": (
        Backend("fused-tiles", "cpu_fused_tiles"),
        Backend("fused", "cpu_fused"),
        Backend("small-batch", "cpu_small_batch"),
        Backend("packed", "cpu_packed"),
        Backend("cuda", "cuda_inference"),
        Backend("training", "training"),
    ),
    # one step of the cell and its gradient, where a backend of "lstm" has its products made by PyTorch
    "cell": (Backend("cell-c", "cell_c"), Backend("cell-triton", "cell_triton")),
    # ElmoCharacterEncoder.forward: words to vectors
    "word-vectors": (Backend("word-cache", "word_cache"),),
    # the maxima of the character convolutions, with gradients
    "character-maxima": (Backend("character-tables", "character_tables"),),
}

NAMES = frozenset(backend.name for backends in BACKENDS.values() for backend in backends)

_used: ContextVar[str | None] = ContextVar("hf_elmo.kernels", default=None)
_record: ContextVar[list[tuple[str, str]] | None] = ContextVar("hf_elmo.kernels.record", default=None)


def choose(operation: str, *arguments: Any) -> Backend | None:
    """The first backend that is switched on and supports the arguments; `None`: compute in plain PyTorch.

    Raises:
        ValueError: `HF_ELMO_KERNELS` names a backend that does not exist.
    """
    names = enabled()
    for backend in BACKENDS[operation]:
        if backend.name in names and backend.supports(*arguments) is None:
            if (record := _record.get()) is not None:
                record.append((operation, backend.name))
            return backend
    return None


def enabled() -> frozenset[str]:
    """The names of the backends that are switched on here."""
    setting = _used.get()
    return _parse(os.environ.get("HF_ELMO_KERNELS", "on") if setting is None else setting)


@functools.lru_cache(maxsize=64)
def _parse(setting: str) -> frozenset[str]:
    names = [name.strip() for name in setting.split(",") if name.strip()]
    if names in ([], ["on"]):
        return NAMES
    if names == ["off"]:
        return frozenset()
    if unknown := sorted(set(names) - NAMES):
        raise ValueError(
            f"HF_ELMO_KERNELS, or kernels.use, names {', '.join(unknown)}, but the backends are on, off, or some of "
            f"{', '.join(sorted(NAMES))}."
        )
    return frozenset(names)


@contextmanager
def use(*names: str) -> Iterator[None]:
    """Inside the block only these backends are asked: `use("off")`, `use("packed", "cell-c")`, or `use("on")` for all.

    Where none of them supports a call, plain PyTorch computes it. The block's own thread is meant; others follow
    `HF_ELMO_KERNELS`.

    Raises:
        ValueError: there is no backend of that name, or none is named.
    """
    if not names:
        raise ValueError('kernels.use() names no backend: say use("on") for all of them, use("off") for none.')
    setting = ",".join(names)
    _parse(setting)
    token = _used.set(setting)
    try:
        yield
    finally:
        _used.reset(token)


@contextmanager
def record() -> Iterator[list[tuple[str, str]]]:
    """A list of (operation, backend) that fills inside the block; what plain PyTorch computes is not in it."""
    chosen: list[tuple[str, str]] = []
    token = _record.set(chosen)
    try:
        yield chosen
    finally:
        _record.reset(token)


def explain(operation: str, *arguments: Any) -> tuple[str | None, dict[str, str]]:
    """The backend that would run, `None` for plain PyTorch, and why not each one before it."""
    names, refused = enabled(), {}
    for backend in BACKENDS[operation]:
        reason = "switched off" if backend.name not in names else backend.supports(*arguments)
        if reason is None:
            return backend.name, refused
        refused[backend.name] = reason
    return None, refused
