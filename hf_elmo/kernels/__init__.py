"""Faster ways to compute what `modeling_elmo.py` computes in plain PyTorch.

`HF_ELMO_KERNELS` in the environment, or [`use`] for a block of code, restricts the choice: `off`, or names of backends.
[`describe`] and `hf-elmo env` show which backends run, and why the backends that are asked before them do not.
"""

from . import character_tables, lstm_c, lstm_onednn, word_cache  # noqa: F401, each registers its backends
from .registry import BACKENDS, INTERFACE, choose, describe, enabled, explain, record, use
from .tensors import clear_cache

__all__ = ["BACKENDS", "INTERFACE", "choose", "clear_cache", "describe", "enabled", "explain", "record", "use"]
