"""float32 weights as the products in C read them (`csrc/layout.c`): several times as fast as PyTorch's copy of a
permuted tensor, which a first call of a large model waits for."""

from ctypes import c_int, c_long, c_void_p

import torch
from torch import Tensor

from . import native
from .structs import LANES

NUMBERS_PER_THREAD = 1 << 18  # with fewer, waking another thread costs more than it does


def lay_out(weight: Tensor, blocks: int, groups: int, block_step: int, group_step: int) -> Tensor:
    """Rows side by side: `[blocks, depth, groups, LANES]` of `weight [rows, depth]`, float32.

    Group `g` of block `b` is the `LANES` rows from `b * block_step + g * group_step` on; rows that there are not are 0.
    """
    weight = weight.detach().contiguous()
    rows, depth = weight.shape
    laid_out = weight.new_empty(blocks, depth, groups, LANES)
    threads = max(1, min(torch.get_num_threads(), laid_out.numel() // NUMBERS_PER_THREAD))
    function = native.function("lay_out", *[c_void_p] * 2, *[c_long] * 6, c_int)
    sizes = rows, depth, blocks, groups, block_step, group_step
    function(weight.data_ptr(), laid_out.data_ptr(), *sizes, threads)
    return laid_out
