"""Faster ways to the same numbers, where hf_elmo is installed; a checkpoint alone computes in plain PyTorch."""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor, nn

INTERFACE = 1  # of the calls that this checkpoint's files make: other versions of hf_elmo.kernels are left alone


@cache
def _kernels() -> Any:
    try:
        import hf_elmo.kernels as kernels
    except ImportError:
        return None
    return kernels if kernels.INTERFACE == INTERFACE else None


def is_plain(module: nn.Module, kind: type) -> bool:
    """Whether calling a module does no more than `kind.forward` with weights that can be read: no hook, offloading,
    adapter, parametrization or quantization."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    weights = all(type(weight) in (Tensor, nn.Parameter) and not weight.is_meta for weight in module.parameters())
    return type(module) is kind and "forward" not in vars(module) and not any(hooks) and weights


def find_backend(operation: str, *arguments: Any) -> Callable[..., Any] | None:
    """What computes the operation on these arguments faster than plain PyTorch, called with them; `None`: nothing."""
    kernels = _kernels()
    backend = kernels and kernels.choose(operation, *arguments)
    return backend and backend.run
