"""Faster ways to the same numbers, where hf_elmo is installed; a checkpoint alone computes in plain PyTorch."""

from collections.abc import Callable
from functools import cache
from typing import Any

INTERFACE = 1  # of the calls that this checkpoint's files make: other versions of hf_elmo.kernels are left alone


@cache
def _kernels() -> Any:
    try:
        import hf_elmo.kernels as kernels
    except ImportError:
        return None
    return kernels if kernels.INTERFACE == INTERFACE else None


def find_backend(operation: str, *arguments: Any) -> Callable[..., Any] | None:
    """What computes the operation on these arguments faster than plain PyTorch, called with them; `None`: nothing."""
    kernels = _kernels()
    backend = kernels and kernels.choose(operation, *arguments)
    return backend and backend.run
