"""What backends ask of tensors before they compute with them where PyTorch does not look."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode


def wants_gradient(tensors: Iterable[Tensor | None]) -> bool:
    """Whether autograd would record an operation on these."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def why_not_plain(tensors: Iterable[Tensor | None], device: str) -> str | None:
    """Why memory of these tensors may not be read and written directly, or `None`: subclasses, transforms of torch.func
    and modes that watch operations (a FLOP counter, say) would see nothing of it."""
    if (mode := _get_current_dispatch_mode()) is not None:
        return f"{type(mode).__name__} is active"
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.device.type != device:
            return f"a tensor is on {tensor.device}, not on {device}"
        if type(tensor) not in (Tensor, nn.Parameter):
            return f"a tensor is a {type(tensor).__name__}"
        if tensor.layout != torch.strided:
            return f"a tensor is {tensor.layout}"
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return "a transform of torch.func is active"
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            return "forward-mode differentiation"
    return None


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A `backward` of an `autograd.Function` that supports no double backward: where one is asked for (`create_graph`)
    it is refused, where `once_differentiable` may take it for a constant."""

    @wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the kernels have no second derivative: call backward without create_graph, or in a block of "
                'hf_elmo.kernels.use("off").'
            )
        return backward(ctx, *grads)

    return checked


def tensors_of(call) -> list[Tensor | None]:
    """All tensors of an `LstmCall`."""
    return [call.inputs, call.hidden, call.cell, *(tensor for own in call.weights for tensor in own)]


def why_not_inference(call, device: str) -> str | None:
    """Why an `LstmCall` is not one without gradients on plain tensors of that kind of device, or `None`."""
    if call.inputs.device.type != device:
        return f"inputs are on {call.inputs.device}, not on {device}"
    tensors = tensors_of(call)
    if wants_gradient(tensors):
        return "a gradient is wanted"
    return why_not_plain(tensors, device)
