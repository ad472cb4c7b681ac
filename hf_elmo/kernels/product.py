"""float32 products and highways whose rows do not depend on each other, in C (`csrc/product.c`)."""

from collections.abc import Callable
from ctypes import c_int, c_long, c_void_p

import torch
from torch import Tensor, nn

from . import native
from .layout import lay_out
from .structs import LANES
from .structs import PRODUCT_COLUMNS as COLUMNS

ROWS_PER_THREAD = 16  # with fewer, waking another thread costs more than it does


def row_product(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    """`x [rows, in] -> x @ weight.T + bias`, float32: the same bits for a row alone and among any others.

    Args:
        weight: `[out, in]`.
        bias: `[out]`.
    """
    columns, depth = weight.shape
    number = -(-columns // COLUMNS)
    blocks = lay_out(weight, number, COLUMNS // LANES, COLUMNS, LANES)
    biases = nn.functional.pad(bias, (0, number * COLUMNS - columns)).contiguous()

    def product(x: Tensor) -> Tensor:
        x, sums = x.contiguous(), x.new_empty(len(x), columns)
        function = native.function("product", *[c_void_p] * 4, *[c_long] * 3, c_int)
        threads = max(1, min(torch.get_num_threads(), len(x) // ROWS_PER_THREAD))
        pointers = (tensor.data_ptr() for tensor in (x, blocks, biases, sums))
        function(*pointers, len(x), depth, columns, threads)
        return sums

    return product


def row_highway(x: Tensor, carry: Tensor, transform: Tensor) -> Tensor:
    """`g * relu(transform) + (1 - g) * x`, where `g = sigmoid(carry)`: the same bits for a row alone and among others.

    PyTorch's sigmoid gives what is left over whole vectors at the end of a tensor, or of a thread's share of it, other
    least significant bits.

    Args:
        x, carry, transform: `[rows, size]` float32; `x` is written over.
    """
    function = native.function("highway", *[c_void_p] * 3, *[c_long] * 2, c_int)
    threads = max(1, min(torch.get_num_threads(), len(x) // ROWS_PER_THREAD))
    tensors = x, carry.contiguous(), transform.contiguous()
    function(*(tensor.data_ptr() for tensor in tensors), *x.shape, threads)
    return x
