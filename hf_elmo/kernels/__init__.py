"""Faster ways to compute what `modeling_elmo.py` computes in plain PyTorch.

`HF_ELMO_KERNELS` in the environment, or [`use`] for a block of code, restricts the choice: `off`, or names of backends.
[`describe`] and `hf-elmo env` show which backends run, and why the backends that are asked before them do not.
"""

from .backends import WITH_GRADIENTS, WITHOUT_GRADIENTS, Backend, choose, describe, enabled, explain, use, watch
from .tensors import INTERFACE, clear_cache

__all__ = ["INTERFACE", "WITHOUT_GRADIENTS", "WITH_GRADIENTS", "Backend", "choose", "clear_cache"]
__all__ += ["describe", "enabled", "explain", "use", "watch"]
