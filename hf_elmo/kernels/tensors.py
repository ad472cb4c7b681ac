"""What backends share: conditions on tensors, positions of packed words, and a cache of values computed from weights.

A cached value is used again if each weight has the same storage, address, version counter, shape and type, and the same
numbers where they are compared, since the counter does not count writes through `weight.data` or NumPy: all numbers of
weights of up to `WHOLE` bytes (the embedding of characters, biases), a number of each row up to `EACH_ROW` bytes
(convolutions), and `SPANS` spans of `SPAN` numbers of larger weights, which notice writes of the whole weight or of one
in a thousand of its numbers, but not always of some rows: see [`clear_cache`].
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

INTERFACE = 3  # the version of what `modeling_elmo.py` uses of this package
# The named tuples of modeling_elmo.py, which finds this package.
LstmCall: TypeAlias = Any
LstmWeights: TypeAlias = Any

Made = TypeVar("Made")
State = tuple[Tensor, Tensor]

HOOKS = "forward", "forward_pre", "backward", "backward_pre"  # of a module
OWN = "ElmoConvolution", "ElmoHighway"  # classes of modeling_elmo.py
WHOLE = 1 << 16  # bytes
EACH_ROW = 1 << 19
SPANS = 32
SPAN = 64


class CharacterWeights(NamedTuple):
    """The parameters of a `modeling_elmo.ElmoCharacterEncoder`."""

    embedding: Tensor  # [vocabulary, size]; row 0 is padding and has no gradient
    convolutions: Sequence[tuple[Tensor, Tensor]]  # weight [filters, size, width] and bias of each
    highways: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]]  # carry's weight and bias, transform's weight and bias
    projection: tuple[Tensor, Tensor] | None  # weight [P, filters] and bias
    word_embedding: Tensor | None  # [words, size]; if it is not None, a word's row ends with the word's id
    activation: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, encoder: nn.Module) -> CharacterWeights | None:
        """The parameters, or `None` if modules must be called (see [`is_plain`])."""
        modules = [encoder.embedding, *encoder.convolutions, *encoder.highways]
        modules += [layer for highway in encoder.highways for layer in (highway.carry, highway.transform)]
        modules += [layer for layer in (encoder.word_embedding, encoder.projection) if layer is not None]
        of_all = (getattr(nn.modules.module, f"_global_forward_{name}hooks", None) for name in ("", "pre_"))
        if any(of_all) or not all(map(is_plain, modules)):
            return None
        return cls(
            encoder.embedding.weight,
            [(layer.weight, layer.bias) for layer in encoder.convolutions],
            [(x.carry.weight, x.carry.bias, x.transform.weight, x.transform.bias) for x in encoder.highways],
            None if encoder.projection is None else (encoder.projection.weight, encoder.projection.bias),
            None if encoder.word_embedding is None else encoder.word_embedding.weight,
            encoder.activation,
        )


def is_plain(module: nn.Module) -> bool:
    """Whether calling a part of an encoder only runs the `forward` of its class on its parameters, without hooks,
    offloading, adapters, parametrizations or quantization. Only then can they be used without calling the module."""
    own = vars(module)  # all modules are asked at each call, which public functions would make twice as long
    if type(module) not in (nn.Embedding, nn.Linear) and type(module).__name__ not in OWN:
        return False
    if "forward" in own or any(own.get(f"_{name}_hooks") for name in HOOKS):  # accelerate replaces `forward`
        return False
    parameters = [p for p in own["_parameters"].values() if p is not None]
    return all(type(p) in (Tensor, nn.Parameter) and not p.is_meta for p in parameters)


def require_shapes(call: LstmCall) -> None:
    """Raises ValueError if shapes do not agree: kernels in C read memory by them, and PyTorch would broadcast some."""
    directions, words, width = call.inputs.shape
    size = call.hidden.shape[-1]
    cells = call.cell.shape[-1]
    sizes = list(call.batch_sizes)
    if not sizes or sizes[-1] < 1 or sizes != sorted(sizes, reverse=True) or sum(sizes) != words:
        raise ValueError(f"batch_sizes are {sizes}, but must be positive, in descending order, and sum to {words}.")
    if len(call.weights) != directions:
        raise ValueError(f"inputs are for {directions} directions, but weights for {len(call.weights)}.")
    shapes = [(directions, sizes[0], size), (directions, sizes[0], cells)]
    shapes += [(4 * cells, width), (4 * cells, size), (4 * cells,), (size, cells)] * directions
    names = ["h", "c", *call.weights[0]._fields * directions]
    tensors = call.hidden, call.cell, *(tensor for weights in call.weights for tensor in weights)
    for name, tensor, shape in zip(names, tensors, shapes, strict=True):
        if tensor is None and size != cells:
            raise ValueError(f"without a projection, h must have the size of c, {cells}, but has the size {size}.")
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} has the shape {list(tensor.shape)}, but must have the shape {list(shape)}.")


def has(name: str) -> bool:
    """Whether PyTorch says that the processor has instructions, by a private function, which may be missing."""
    return bool(getattr(torch.cpu, f"_is_{name}_supported", bool)())


def tensors_of(arguments: Iterable[Any]) -> Iterator[Tensor]:
    """All tensors of nested tuples and lists."""
    for value in arguments:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_of(value)


def why_not_plain(tensors: Iterable[Tensor]) -> str | None:
    """Why the memory of these tensors may not be read directly, or `None` if it may. Tensor subclasses, transforms of
    `torch.func`, forward-mode differentiation and dispatch modes (`FlopCounterMode`) do not see what a kernel does."""
    if (mode := _get_current_dispatch_mode()) is not None:
        return f"{type(mode).__name__} is active"
    for tensor in tensors:
        if not tensor.is_cpu or tensor.layout != torch.strided or type(tensor) not in (Tensor, nn.Parameter):
            return f"a tensor is a {type(tensor).__name__} on {tensor.device}, {tensor.layout}"
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return "a transform of torch.func is active"
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            return "forward-mode differentiation"
    return None


def why_not_cached(weights: Iterable[Tensor]) -> str | None:
    """Why values computed from these weights cannot be cached, or `None` if they can."""
    for weight in weights:
        if weight.is_inference():
            return "weights were made in inference mode, so PyTorch does not count their changes"
        if not weight.is_contiguous():
            return "a weight is not contiguous"
    return None


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates the `backward` of an `autograd.Function`: it runs without autocast, since gradients have the types of
    the forward pass, and a call with `create_graph=True` or under `vmap` raises RuntimeError. (`once_differentiable`
    would return a constant if none of the incoming gradients requires a gradient.)"""

    @wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled() or not all(map(torch._C._has_storage, grads)):  # under vmap, they have no memory
            how = 'is_grads_batched or vectorize, or run the model in a block of hf_elmo.kernels.use("off")'
            raise RuntimeError(f"the kernels have first derivatives alone: call backward without create_graph, {how}")
        with torch.autocast("cpu", enabled=False):
            return backward(ctx, *grads)

    return checked


def aliases(*tensors: Tensor | None) -> list[Tensor | None]:
    """The tensors for `save_for_backward`, with their memory and version counters. It would save parameters themselves,
    to which `model.half()` before `backward()` gives other memory, of another size."""
    return [tensor if tensor is None else tensor.detach() for tensor in tensors]


def steps_of(batch_sizes: Sequence[int]) -> list[slice]:
    """The packed words of each step."""
    return [slice(*ends) for ends in pairwise(accumulate(batch_sizes, initial=0))]


def last_words(batch_sizes: Sequence[int]) -> Tensor:
    """The position of each row's last word among the packed words."""
    last: list[int] = []
    for step in reversed(steps_of(batch_sizes)):
        last.extend(range(step.start + len(last), step.stop))
    return torch.tensor(last, device="cpu")


class _Entry(NamedTuple):
    state: list[tuple[ref, int, int, torch.Size, torch.dtype]]
    samples: list[tuple[np.ndarray, bytes]]  # for each weight: a view of numbers, and their bytes when `value` was made
    value: Any


# By the storage of the first weight, an object that lives as long as its memory; a later one at its address differs.
# (Weak references to weights would block `torch.utils.swap_tensors`; a module would copy and save the values.) No value
# may refer to the memory of a weight, which may be in the same storage.
_entries: WeakKeyDictionary[torch.UntypedStorage, dict[Hashable, _Entry]] = WeakKeyDictionary()


def get_cached(weights: Sequence[Tensor], name: Hashable, make: Callable[[], Made]) -> Made:
    """The value of `make()`, computed again only after one of the weights has changed, and kept while the storage of
    the first exists; `name` tells apart the values of weights, for which `why_not_cached` must return `None`."""
    state = [(ref(x.untyped_storage()), x.data_ptr(), x._version, x.shape, x.dtype) for x in weights]
    storage = weights[0].untyped_storage()
    key = name, weights[0].data_ptr()
    entry = _entries.get(storage, {}).get(key)
    if entry is not None and entry.state == state:
        if all(view.tobytes() == content for view, content in entry.samples):
            return entry.value
        _entries.clear()  # who writes one weight without its counter may have written others, in other places
    samples = [(view, view.tobytes()) for view in map(_sample, weights)]
    entry = _Entry(state, samples, make())
    _entries.setdefault(storage, {})[key] = entry
    return entry.value


def cached_values() -> list[Any]:
    """All values in the cache."""
    return [entry.value for entries in _entries.values() for entry in entries.values()]


def clear_cache(model: nn.Module) -> None:
    """Drop everything that was computed from the model's weights and cached.

    Call it after writing some rows, or fewer than one number in a thousand, of an LSTM, a highway layer or a projection
    through `weight.data` or NumPy: such writes may not be noticed.
    """
    for weight in model.parameters():
        _entries.pop(weight.untyped_storage(), None)


def _sample(weight: Tensor) -> np.ndarray:
    """A view of the numbers of a weight that are compared, valid as long as the weight has the same address."""
    memory = (ctypes.c_char * weight.nbytes).from_address(weight.data_ptr())
    numbers = np.frombuffer(memory, f"u{weight.itemsize}")
    if weight.nbytes <= EACH_ROW:
        return numbers if weight.nbytes <= WHOLE else numbers[:: weight[0].numel() + 1]  # another column in each row
    step = (len(numbers) - SPAN) // (SPANS - 1)  # the last span is at the end
    return np.lib.stride_tricks.sliding_window_view(numbers, SPAN)[::step]
