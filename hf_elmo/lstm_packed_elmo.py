"""Matrix products with weights laid out for oneDNN once, not at each product: the CPU.

`torch.nn.functional.linear` brings the weight into the library's own layout at each call. In a recurrence, where the
same weight meets one small batch of rows after another, that can cost as much as the product itself.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Product = Callable[..., Tensor]
Kept = TypeVar("Kept")

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


def packed_product(weights: tuple[Tensor, ...], dtype: torch.dtype, rows: int) -> Product:
    """A product with weights `[out, in]` side by side, `[out, sum of in]`, in `dtype`: as [`pack`] returns, kept."""
    few_rows = dtype == torch.float32 and rows < FEW_ROWS

    def make(*weights: Tensor) -> Product:
        return pack(torch.cat(weights, dim=1), few_rows)

    return kept(weights, dtype, f"product, few rows: {few_rows}", make)


def kept(weights: tuple[Tensor, ...], dtype: torch.dtype, name: str, make: Callable[..., Kept]) -> Kept:
    """What `make` makes of the weights in `dtype`, under a name for each way of making it.

    It is kept as long as the first of the weights lives, outside the module (so neither in a state dict nor in a copy),
    and is made again when one of them has changed.
    """
    with _lock:
        of_first = _packed.setdefault(weights[0], {})
        made_from, made = of_first.get(len(weights), (None, None))
        if made_from is None or not is_unchanged(weights, made_from):
            of_first[len(weights)] = made_from, made = identity(weights), {}
        if (dtype, name) not in made:
            made[dtype, name] = make(*(weight.detach().to(dtype) for weight in weights))
        return made[dtype, name]


def pack(weight: Tensor, few_rows: bool = False) -> Product:
    """`(x [rows, in], added [out] or [rows, out] or None) -> x @ weight.T + added`, in the type of `weight`.

    `few_rows`: in the layout that is faster for these.
    """
    if few_rows:
        transposed = weight.t().contiguous()
        return lambda x, added=None: torch.mm(x, transposed) if added is None else torch.addmm(added, x, transposed)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    linear, linear_add = torch.ops.mkldnn._linear_pointwise, torch.ops.mkldnn._linear_pointwise.binary

    def product(x: Tensor, added: Tensor | None = None) -> Tensor:
        if added is None or added.dim() == 1:
            return linear(x, packed, added, "none", [], "")
        return linear_add(x, added, packed, None, "add")

    return product


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
