"""Faster ways to compute what the modeling files compute in plain PyTorch; `registry.py` chooses among them.

`HF_ELMO_KERNELS` in the environment, or [`use`] for a block of code, restricts the choice: `off`, or names of backends.
[`describe`] and `hf-elmo env` say what would run, and why not something faster.
"""

from contextlib import AbstractContextManager
from typing import Any

from .registry import BACKENDS, INTERFACE, NAMES, choose, enabled, explain, record, use


def describe(model: Any) -> str:
    """Which backend each operation of a model would take, in inference and in training, and why not those before it."""
    from .report import describe_model

    return describe_model(model)


def constant_weights() -> AbstractContextManager[None]:
    """A block in which weights do not change: what was made of them is compared with them once, not at each call.

    For loops of short calls. A weight that is changed inside the block all the same may have no effect there.
    """
    from . import weights

    return weights.constant_weights()


__all__ = [
    "BACKENDS",
    "INTERFACE",
    "NAMES",
    "choose",
    "constant_weights",
    "describe",
    "enabled",
    "explain",
    "record",
    "use",
]
