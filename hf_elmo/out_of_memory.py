"""Out of memory, as Python and PyTorch say it."""

import torch

SIGNS = ("out of memory", "can't allocate memory", "not enough memory")  # of PyTorch's allocators


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` is an out-of-memory error of Python, of torch or of one of its allocators."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in SIGNS)
