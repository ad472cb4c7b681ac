"""Faster ways to compute what `modeling_elmo.py` computes in plain PyTorch.

`HF_ELMO_KERNELS` in the environment, or [`use`] for a block of code, restricts the choice: `off`, or names of backends.
[`describe`] and `hf-elmo env` show which backends run, and why the backends that are asked before them do not.
"""

from .backends import INTERFACE as INTERFACE
from .backends import WITH_GRADIENTS as WITH_GRADIENTS
from .backends import WITHOUT_GRADIENTS as WITHOUT_GRADIENTS
from .backends import Backend as Backend
from .backends import choose as choose
from .backends import describe as describe
from .backends import enabled as enabled
from .backends import explain as explain
from .backends import use as use
from .backends import watch as watch
from .tensors import clear_cache as clear_cache
