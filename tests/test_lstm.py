"""The recurrence with gradients against plain PyTorch. (kernels/test_lstm_backends.py has that without gradients.)"""

import pytest
import torch

from hf_elmo import kernels
from hf_elmo.modeling_elmo import LstmWeights, bilstm_layer
from tests.lstm_layers import BATCHES, CELL, CLIPS, assert_near, compute, everything, random_call, record, reference

ENDING = BATCHES["rows ending"]


@pytest.fixture(params=["off", "onednn-training"])
def way(request) -> str:
    """Plain PyTorch, and the backend for training."""
    with kernels.use(request.param):
        yield request.param


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "unprojected"])
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
def test_equals_plain_pytorch(batch_sizes, projected, clips):
    for directions in (2, 1):
        call = random_call(batch_sizes, clips, directions=directions, projected=projected)
        with kernels.use("onednn-training"), record() as ran:
            found = everything(compute, call)
        assert ran == [("lstm", "onednn-training")]
        assert_near(found, everything(reference, call), 3e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "weights"])
def test_other_types_of_products_and_float32_state(way, dtype, autocast):
    """Without clips: a value that rounding puts on the other side of a clip changes a gradient altogether."""
    call = exact = random_call(ENDING, (None, None))
    if not autocast or dtype == torch.float64:
        weights = [LstmWeights(*(x.to(dtype) for x in own)) for own in exact.weights]
        call = exact._replace(inputs=exact.inputs.to(dtype), hidden=exact.hidden.to(dtype), weights=weights)
    with torch.autocast("cpu", torch.bfloat16 if dtype == torch.float64 else dtype, enabled=autocast):
        found = everything(compute, call)
    assert [x.dtype for x in found[:3]] == [dtype, dtype, torch.promote_types(dtype, torch.float32)]
    tolerance = 3e-6 if dtype == torch.float64 else 4e-2
    assert_near([x.float() for x in found], everything(reference, exact), tolerance)


def test_gradient_passes_at_the_clip_and_not_beyond(way):
    """A full forget gate and an empty input gate carry a cell that stands exactly at the bound. Without kernels the
    gradient there is that of `torch.clamp`: 1, and 0 from PyTorch 2.14 on."""
    saturated = torch.tensor([-200.0, 200.0, 0.0, 0.0]).repeat_interleave(CELL)
    weights = [LstmWeights(torch.zeros(4 * CELL, 7), torch.zeros(4 * CELL, CELL), saturated, None)]
    c = torch.linspace(-1, 1, CELL).reshape(1, 1, CELL).requires_grad_()
    bound = c[0, 0, -2].item()
    at_bound = torch.tensor(bound, requires_grad=True)
    at_bound.clamp(-bound, bound).backward()
    passed = at_bound.grad.item() if way == "off" else 1.0
    _, (_, last) = bilstm_layer(torch.zeros(1, 2, 7), (torch.zeros(1, 1, CELL), c), [1, 1], weights, bound)
    last.sum().backward()
    assert c.grad.flatten().tolist() == [0.0, passed, *[1.0] * (CELL - 4), passed, 0.0]


def test_backward_twice(way):
    call = random_call(ENDING)
    call.inputs.requires_grad_()
    total = compute(call)[0].sum()
    assert torch.equal(*(torch.autograd.grad(total, call.inputs, retain_graph=True)[0] for _ in range(2)))
