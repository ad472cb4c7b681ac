"""As `cpu_fused`, on AMX tiles: bfloat16, and float32 as pairs of bfloat16 numbers.

The latter where `torch.set_float32_matmul_precision("high")` allows it: each number is the sum of two bfloat16 numbers,
16 bits in all, and a product three of theirs, as PyTorch describes that setting.
"""

import functools
from ctypes import c_int

import torch
from torch import Tensor

from ..lstm_elmo import LstmCall, State
from . import native
from .cpu_fused import run_kind, why_not_kind

KINDS = {torch.float32: "split_tiles", torch.bfloat16: "bf16_tiles"}


def supports(call: LstmCall) -> str | None:
    """Why the call cannot be computed so, or `None`."""
    kind = KINDS.get(call.inputs.dtype)
    if kind is None:
        return f"inputs are {call.inputs.dtype}, not float32 or bfloat16"
    if native.library() is not None and not _has_tiles():
        return "this processor has no AMX tiles, or the operating system does not permit them (arch_prctl)"
    if kind == "split_tiles" and _exact_products():
        return 'float32 products are exact: torch.set_float32_matmul_precision("high") would allow faster ones'
    return why_not_kind(kind, call)


def run(call: LstmCall) -> tuple[Tensor, State]:
    """`lstm_elmo.bilstm_layer` for calls that [`supports`] takes."""
    return run_kind(KINDS[call.inputs.dtype], call)


@functools.cache
def _has_tiles() -> bool:
    return hasattr(native.library(), "request_tiles") and bool(native.function("request_tiles", returns=c_int)())


def _exact_products() -> bool:
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # PyTorch's newer settings, one for each library, were used, and differ
        return torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee")
