"""Matrix products with weights laid out for oneDNN once, not at each product: the CPU.

`torch.nn.functional.linear` brings the weight into the library's own layout at each call. In a recurrence, where the
same weight meets one small batch of rows after another, that can cost as much as the product itself.
"""

import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Product = Callable[..., Tensor]

# oneDNN chooses its layout for this many rows; it multiplies any number.
ROWS = 128
# With fewer rows than this a float32 product is faster on the plain transposed weight.
FEW_ROWS = 8
# Numbers of a weight that are compared with those it was packed from.
SAMPLES = 64

_packed: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_lock = threading.Lock()


def can_pack(x: Tensor) -> bool:
    """Whether products with tensors like `x` gain from a packed weight here."""
    if x.device.type != "cpu" or not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    return x.dtype == torch.float32 or (x.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def packed_product(weight: Tensor, dtype: torch.dtype, rows: int) -> Product:
    """`(x [rows, in], bias [out] or None) -> x @ weight.T + bias` for `weight [out, in]`, all in `dtype`.

    What is packed is kept as long as `weight` lives, outside the module (so neither in a state dict nor in a copy), and
    is packed again when the weight has changed.
    """
    layout = (dtype, dtype == torch.float32 and rows < FEW_ROWS)
    with _lock:
        made_from, layouts = _packed.get(weight, (None, None))
        if made_from is None or not is_unchanged((weight,), made_from):
            made_from, layouts = identity((weight,)), {}
            _packed[weight] = made_from, layouts
        if layout not in layouts:
            layouts[layout] = pack(weight.detach().to(dtype), few_rows=layout[1])
        return layouts[layout]


def pack(weight: Tensor, few_rows: bool = False) -> Product:
    """As `packed_product`, in the type of `weight`, and kept by the caller alone."""
    if few_rows:
        transposed = weight.t().contiguous()
        return lambda x, bias=None: torch.mm(x, transposed) if bias is None else torch.addmm(bias, x, transposed)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    linear = torch.ops.mkldnn._linear_pointwise
    return lambda x, bias=None: linear(x, packed, bias, "none", [], "")


def identity(weights: Sequence[Tensor]) -> tuple[list[tuple[int, int]], Tensor]:
    """What tells whether weights of one type are still those they were: see [`is_unchanged`]."""
    return _versions(weights), _samples(weights)


def is_unchanged(weights: Sequence[Tensor], made_from: tuple[list[tuple[int, int]], Tensor]) -> bool:
    """A write through `.data` does not count as a new version: a sample of the values catches it."""
    versions, samples = made_from
    return versions == _versions(weights) and torch.equal(samples, _samples(weights))


def _versions(weights: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(weight.data_ptr(), -1 if weight.is_inference() else weight._version) for weight in weights]


def _samples(weights: Sequence[Tensor]) -> Tensor:
    flat = [weight.detach().flatten() for weight in weights]
    return torch.cat([x[:: x.numel() // SAMPLES | 1] for x in flat])  # odd, so not always the same column
