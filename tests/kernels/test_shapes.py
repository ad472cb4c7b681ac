"""Shapes that C would misread are refused; types, strides and autocast change no number. (Also run with sanitizers.)"""

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hf_elmo import ElmoConfig, ElmoModel, kernels
from hf_elmo.modeling_elmo import LstmWeights, bilstm_layer
from tests.factories import TINY, small_model
from tests.test_lstm import random_call

CALLS = {"few rows": [3, 3, 1], "many rows": [9, 8], "one row": [1] * 4}
# Tensors of the same shape in other places of memory, beside which there is NaN.
LAYOUTS = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "a column of a table": lambda x: torch.stack((x, x * torch.nan), dim=-1)[..., 0],
    "at an odd offset": lambda x: torch.cat((x.new_tensor([torch.nan]), x.flatten()))[1:].view(x.shape),
    "one row, repeated": lambda x: x[:1].expand(x.shape) if x.dim() else x,
}
ENCODER = small_model(freeze_bilm=False).char_encoder
PARAMETERS = dict(ENCODER.named_parameters())


def reshape(data: st.DataObject, tensor: Tensor) -> Tensor:
    """A tensor of the same type with another shape: an axis more, less, longer or shorter."""
    shape = list(tensor.shape)
    axis = data.draw(st.integers(0, len(shape)))
    if axis == len(shape):
        shape = data.draw(st.sampled_from([shape[:-1], shape[::-1], [1, *shape], [*shape, 1]]))
    else:
        size = shape[axis]
        shape[axis] = data.draw(st.sampled_from([0, 1, size - 1, size + 1, size // 2, 2 * size, 4 * size]))
    assume(shape != list(tensor.shape))
    return torch.randn(shape).to(tensor)


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "inference"])
@pytest.mark.parametrize("batch_sizes", CALLS.values(), ids=CALLS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_layers(batch_sizes: list[int], trained: bool, data: st.DataObject) -> None:
    dtype, projected = data.draw(st.sampled_from([torch.float32, torch.bfloat16])), data.draw(st.booleans())
    inputs, h, c, _, weights, *_ = random_call(batch_sizes, dtype=dtype, projected=projected, sizes=(32, 128, 96))
    tensors = {"inputs": inputs.requires_grad_(trained), "h": h, "c": c}
    tensors |= {f"{name} {d}": x for d in (0, 1) for name, x in weights[d]._asdict().items() if x is not None}
    name = data.draw(st.sampled_from(["batch_sizes", *tensors]))
    if name == "batch_sizes":
        changed = data.draw(st.lists(st.integers(-1, 9), max_size=4))
        falls = changed == sorted(changed, reverse=True) and all(size > 0 for size in changed)
        assume(not falls or changed[:1] != batch_sizes[:1] or sum(changed) != sum(batch_sizes))  # other sentences
        batch_sizes = changed
    else:
        tensors[name] = reshape(data, tensors[name])
    weights = [LstmWeights(*(tensors.get(f"{field} {d}") for field in LstmWeights._fields)) for d in (0, 1)]
    with pytest.raises(ValueError):
        bilstm_layer(tensors["inputs"], (tensors["h"], tensors["c"]), batch_sizes, weights, 3.0, 3.0)


def drawn(data: st.DataObject, tensor: Tensor) -> Tensor:
    """The tensor in any type, with any strides, with a gradient or without."""
    tensor = tensor.to(data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64])))
    return data.draw(st.sampled_from([*LAYOUTS.values()]))(tensor).requires_grad_(data.draw(st.booleans()))


@pytest.mark.parametrize("batch_sizes", CALLS.values(), ids=CALLS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_types_strides_and_autocast(batch_sizes: list[int], data: st.DataObject) -> None:
    """Gradients have the bits of those without autocast in the backward pass, where their own strides do not matter."""
    call = random_call(batch_sizes, projected=data.draw(st.booleans()), sizes=(32, 128, 96))
    size = data.draw(st.sampled_from([1, 1e-2, 1e-4]))  # of the cells
    inputs, *state = (drawn(data, size * x.flatten(1)).reshape(x.shape) for x in call[:3])
    weights = [own._replace(bias=size * own.bias) for own in call.weights]
    weights = [LstmWeights(*(x if x is None else drawn(data, x) for x in own)) for own in weights]
    leaves = [x for x in (inputs, *state, *(x for own in weights for x in own)) if x is not None and x.requires_grad]
    forward, found = data.draw(st.sampled_from([None, torch.bfloat16, torch.float16])), []
    for setting, backward, strided in (("on", False, False), ("on", True, True), ("off", False, False)):
        with kernels.use(setting), torch.autocast("cpu", forward or torch.bfloat16, enabled=forward is not None):
            outputs, after = bilstm_layer(inputs, state, batch_sizes, weights)
        results = [x.mT.contiguous().mT if strided else x for x in (outputs, *after)]
        grads = []
        if leaves:
            with torch.autocast("cpu", torch.bfloat16, enabled=backward):
                seeds = [torch.full((), 0.5, dtype=x.dtype).expand(x.shape) for x in results]  # no memory of their own
                grads = torch.autograd.grad(results, leaves, seeds, allow_unused=True)
        found.append([x for x in (outputs, *after, *grads) if x is not None])
    assert all(map(torch.equal, found[0], found[1]))
    for x, y in zip(found[0], found[2], strict=True):
        assert x.dtype == y.dtype
        assert (x.double() - y.double()).norm() <= 3e-2 * y.double().norm()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("trained", [True, False], ids=["trained", "inference"])
def test_parameters_in_any_layout(trained: bool, dtype: torch.dtype, layout: Callable[[Tensor], Tensor]) -> None:
    """In bfloat16, the maximum of two windows that differ by a rounding may have its gradient at the other."""
    torch.manual_seed(0)
    model = ElmoModel(ElmoConfig(**{**TINY, "hidden_size": 128, "cell_size": 96}, freeze_bilm=not trained)).to(dtype)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            module.register_parameter(name, nn.Parameter(layout(parameter.detach()), parameter.requires_grad))
    results = []
    for rows in (2, 20):
        for setting in ("on", "off"):
            model.zero_grad()
            with kernels.use(setting), torch.set_grad_enabled(trained):
                output = model(torch.randint(1, 262, (rows, 5, 50), generator=torch.Generator().manual_seed(1)))
            if trained:
                output.last_hidden_state.square().sum().backward()
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            results.append([output.last_hidden_state, *grads])
    for found, expected in (results[:2], results[2:]):
        for x, y in zip(found, expected, strict=True):
            assert (x.double() - y.double()).norm() <= (1e-5 if dtype == torch.float32 else 0.1) * y.double().norm()


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "inference"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_characters(trained: bool, data: st.DataObject) -> None:
    ids = torch.randint(1, 100, (3, data.draw(st.sampled_from([1, 2, 3, 50]))))
    name = data.draw(st.sampled_from(["", *PARAMETERS]))
    module, parameter = ENCODER.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
    if name:
        layout = data.draw(st.sampled_from([*LAYOUTS.values()]))
        setattr(module, parameter, nn.Parameter(layout(reshape(data, PARAMETERS[name].detach()))))
    results = []
    for setting in ("on", "off"):
        with kernels.use(setting), torch.set_grad_enabled(trained):
            try:
                results.append(ENCODER(ids))
            except (RuntimeError, IndexError):
                results.append(None)
    if name:
        setattr(module, parameter, PARAMETERS[name])
    assert (results[0] is None) == (results[1] is None)
    if results[0] is not None:
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_weights_converted_before_the_backward_pass() -> None:
    """The gradient is that of the weights of the forward pass: C does not read bfloat16 weights as float32."""
    gradients = []
    for converted in (False, True):
        encoder = small_model(freeze_bilm=False).char_encoder
        loss = encoder(torch.arange(1, 101).view(2, 50)).sum()
        weight = encoder.convolutions[0].weight
        weight.register_hook(lambda grad: gradients.append(grad))
        if converted:
            for parameter in encoder.convolutions.parameters():
                parameter.data = parameter.data.bfloat16()
        loss.backward()
    assert torch.equal(*gradients)
