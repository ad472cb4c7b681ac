"""A device without hardware, `gpu:0`, by PyTorch's backend in Python for the private device type. A mode runs each
operation on the CPU's tensors within, raises where CUDA would, and counts what a GPU spends its time on."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

# From PyTorch 2.13 on; beside a GPU, autograd would take the one for the other.
AVAILABLE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend") and not torch.cuda.is_available()
REASON = "this PyTorch has no backend in Python, or there is a GPU"
NAME = "gpu"
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}  # between devices
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}  # with indices of the CPU, too
NO_LAUNCHES = {aten._unsafe_view.default, aten.lift_fresh.default, aten.is_same_size.default}


def lstm_cell(inputs: Tensor, hidden: Tensor, cell: Tensor, *biases: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The cell of `nn.LSTM` in one launch, which the CPU does not have: h, c, and the gates' sums, for the gradient."""
    gates = sum(part for part in (inputs, hidden, *biases) if part is not None)
    i, f, g, o = gates.chunk(4, dim=1)
    after = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * after.tanh(), after, gates


def lstm_cell_backward(grad_h, grad_c, before: Tensor, after: Tensor, gates: Tensor, has_bias: bool):
    given = gates, torch.zeros_like(gates), None, None, before, after
    grads, _, grad_before, *_ = aten._thnn_differentiable_lstm_cell_backward(grad_h, grad_c, *given)
    return grads, grad_before, grads.sum(0) if has_bias else None


ON_DEVICES_ONLY = {
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
}


class OnDevice(Tensor):
    """A tensor of the device; `inner` has its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnDevice":
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        tensor = Tensor._make_wrapper_subclass(cls, inner.shape, device=torch.device(NAME, 0), **layout)
        tensor.inner = inner
        return tensor

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return EmulatedDevice.in_use.__torch_dispatch__(function, types, args, kwargs)  # in another thread

    def tolist(self) -> list:  # PyTorch's is not for subclasses
        return self.cpu().tolist()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.inner.untyped_storage()

    def __format__(self, form: str) -> str:
        return format(self.cpu(), form)

    def __reduce_ex__(self, protocol: int) -> Any:
        return self.detach().cpu().__reduce_ex__(protocol)


class EmulatedDevice(TorchDispatchMode):
    """Counts `launches`, the operations that are no views, and `waits`, those whose result the CPU needs to go on."""

    in_use: "EmulatedDevice"
    launches = waits = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, here, on_cpu = kwargs or {}, {}, []

        def inner(tensor: Tensor) -> Tensor:
            if isinstance(tensor, OnDevice):
                here[id(tensor.inner)] = tensor
                return tensor.inner
            if tensor.dim():
                on_cpu.append(tensor)
            return tensor

        inner_args, inner_kwargs = tree_map_only(Tensor, inner, (args, kwargs))
        target = torch.device(kwargs.get("device") or (NAME if here else "cpu")).type
        if not here and target != NAME:
            return function(*args, **kwargs)
        # Raise where CUDA would; scalars of the CPU may be operands.
        lengths = args[1] if function is aten._pack_padded_sequence.default else None
        if isinstance(lengths, OnDevice):
            raise RuntimeError(f"{function}: lengths must be on the CPU")
        indices = function in INDEXING and isinstance(args[0], OnDevice)
        if on_cpu and lengths is None and function not in COPIES and not indices:
            shapes = [list(x.shape) for x in on_cpu]
            raise RuntimeError(f"{function}: operands on {NAME}, and of shapes {shapes} on the CPU")
        if any(isinstance(value, torch.Generator) for value in kwargs.values()):
            raise RuntimeError(f"{function}: the generator is of the CPU")
        waits = torch.Tag.data_dependent_output in function.tags or torch.Tag.dynamic_output_shape in function.tags
        if function in INDEXING:
            waits = any(index is not None and index.dtype == torch.bool for index in args[1])
        elif function in COPIES:  # in both directions
            waits = target != NAME or not isinstance(args[0], OnDevice)
        self.waits += waits
        self.launches += not (function.is_view or function in NO_LAUNCHES or "empty" in str(function))
        if "device" in kwargs:
            inner_kwargs["device"] = torch.device("cpu")
        result = ON_DEVICES_ONLY.get(function, function)(*inner_args, **inner_kwargs)
        if target != NAME or (function is aten.copy_.default and not isinstance(args[0], OnDevice)):
            return result
        # An operation in place returns the tensor of its argument.
        return tree_map_only(Tensor, lambda x: here[id(x)] if id(x) in here else OnDevice(x), result)


class Backend(backend_registration._DummyBackendModule if AVAILABLE else object):
    """What PyTorch and accelerate ask of the module `torch.gpu`."""

    used = False

    def is_available(self) -> bool:
        return self.used

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, *_: Any) -> Tensor:  # `fork_rng` asks for it, also after the tests with the device
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, *_: Any) -> None:
        torch.set_rng_state(state)


@cache
def backend() -> Backend:
    module = Backend()
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=module)
    return module


def load(file: Any, map_location: Any = "cpu", loaded: Any = torch.load, **options: Any) -> Any:
    """`torch.load`; files have tensors of the CPU."""
    return tree_map_only(Tensor, lambda tensor: tensor.to(map_location), loaded(file, "cpu", **options))


def no_grad(mode: torch.inference_mode) -> None:
    mode.before = torch.is_grad_enabled()
    torch.set_grad_enabled(mode.before and not mode.mode)


@contextmanager
def emulated_device() -> Iterator[EmulatedDevice]:
    """Makes `gpu:0` the device of accelerate's and transformers' trainings, and counts what is run on it."""
    from accelerate.state import AcceleratorState, PartialState

    module, EmulatedDevice.in_use = backend(), EmulatedDevice()
    # Another thread would run the gradients of a device that was there at the first backward pass.
    with pytest.MonkeyPatch.context() as patch, EmulatedDevice.in_use, torch.autograd.set_multithreading_enabled(False):
        for state in (AcceleratorState, PartialState):
            patch.setattr(state, "_shared_state", {})
        patch.setenv("ACCELERATE_TORCH_DEVICE", f"{NAME}:0")
        patch.setattr(torch, "load", load)
        patch.setattr(torch.inference_mode, "__enter__", no_grad)  # inference mode has no views of subclasses
        patch.setattr(torch.inference_mode, "__exit__", lambda mode, *_: torch.set_grad_enabled(mode.before))
        patch.setattr(module, "used", True)
        # To `_is_plain`, the class of the weight is unknown.
        patch.setattr("hf_elmo.modeling_pretraining_elmo._is_plain", lambda layer: type(layer) is nn.Linear)
        torch._C._set_only_lift_cpu_tensors(True)  # so that the mode sees how `torch.tensor` gets to a device
        try:
            yield EmulatedDevice.in_use
        finally:
            torch._C._set_only_lift_cpu_tensors(False)
