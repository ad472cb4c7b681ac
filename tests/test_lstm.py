"""The recurrence with gradients against plain PyTorch. (kernels/test_lstm_backends.py has that without gradients.)"""

import pytest
import torch

from hf_elmo import kernels
from hf_elmo.modeling_elmo import LstmWeights, bilstm_layer
from tests.lstm_layers import BATCHES, CELL, CLIPS, assert_near, everything, random_layer, record, reference

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
        inputs, state, weights = random_layer(batch_sizes, directions=directions, projected=projected)
        arguments = inputs, state, batch_sizes, weights, *clips
        with kernels.use("onednn-training"), record() as ran:
            found = everything(bilstm_layer, *arguments)
        assert ran == [("lstm", "onednn-training")]
        assert_near(found, everything(reference, *arguments), 3e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "weights"])
def test_other_types_of_products_and_float32_state(way, dtype, autocast):
    """Without clips: a value that rounding puts on the other side of a clip changes a gradient altogether."""
    exact = random_layer(ENDING)
    layer = inputs, state, weights = random_layer(ENDING)
    if not autocast or dtype == torch.float64:
        cast = [LstmWeights(*(x.to(dtype) for x in own)) for own in weights]
        layer = inputs.to(dtype), (state[0].to(dtype), state[1]), cast
    with torch.autocast("cpu", torch.bfloat16 if dtype == torch.float64 else dtype, enabled=autocast):
        found = everything(bilstm_layer, *layer[:2], ENDING, layer[2])
    assert [x.dtype for x in found[:3]] == [dtype, dtype, torch.promote_types(dtype, torch.float32)]
    expected = everything(reference, *exact[:2], ENDING, exact[2])
    assert_near([x.float() for x in found], expected, 3e-6 if dtype == torch.float64 else 4e-2)


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
    inputs, state, weights = random_layer(ENDING)
    outputs, _ = bilstm_layer(inputs.requires_grad_(), state, ENDING, weights, 0.5, 0.4)
    assert torch.equal(*(torch.autograd.grad(outputs.sum(), inputs, retain_graph=True)[0] for _ in range(2)))
