"""The recurrence: plain PyTorch and the backends against `lstm_layer_reference`, in outputs, final state, gradients."""

from itertools import accumulate, pairwise

import pytest
import torch
import torch._dynamo.testing
from torch.utils.checkpoint import checkpoint

from hf_elmo import kernels
from hf_elmo.modeling_elmo import LstmWeights, bilstm_layer
from tests.lstm_layers import (
    BATCHES,
    CELL,
    CLIPS,
    INPUT,
    TOLERANCE,
    assert_near,
    everything,
    random_layer,
    reference,
)

WAYS = {"plain": "off", "onednn-training": "onednn-training"}


@pytest.fixture(params=WAYS)
def way(request) -> str:
    """Plain PyTorch, and the backend for training."""
    with kernels.use(WAYS[request.param]):
        yield request.param


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "unprojected"])
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
def test_equals_reference(way, batch_sizes, projected, clips):
    for dtype, directions in ((torch.float64, 2), (torch.float32, 2), (torch.float32, 1)):
        layer = random_layer(batch_sizes, dtype, directions, projected=projected)
        arguments = layer[0], batch_sizes, *layer[1:], *clips
        found, expected = everything(bilstm_layer, *arguments), everything(reference, *arguments)
        assert_near(found, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "bfloat16 weights"])
def test_bfloat16_products_and_float32_state(way, autocast):
    """As near to float32 as the reference in bfloat16 is, and in its types."""
    batch_sizes = BATCHES["rows ending"]
    layer = random_layer(batch_sizes, torch.bfloat16)
    exact = everything(reference, *(x.float() for x in layer[:1]), batch_sizes, *as_float32(*layer[1:]))
    if autocast:
        layer = layer[0].float(), *as_float32(*layer[1:])
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = everything(bilstm_layer, layer[0], batch_sizes, *layer[1:])
        slow = everything(reference, layer[0], batch_sizes, *layer[1:])
    assert found[0].dtype == torch.bfloat16
    assert found[2].dtype == torch.float32
    assert_near(found, slow, TOLERANCE[torch.bfloat16])
    assert_near([x.float() for x in found], exact, TOLERANCE[torch.bfloat16])


def as_float32(state, weights):
    return tuple(x.float() for x in state), [LstmWeights(*(x.float() for x in w)) for w in weights]


def test_float16(way):
    batch_sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(batch_sizes)
    half = [LstmWeights(*(x.half() for x in w)) for w in weights]
    found = everything(bilstm_layer, inputs.half(), batch_sizes, (state[0].half(), state[1]), half)
    exact = everything(reference, inputs, batch_sizes, state, weights)
    assert [x.dtype for x in found[:3]] == [torch.float16, torch.float16, torch.float32]
    assert_near([x.float() for x in found], exact, 1e-2)


def test_gradient_passes_at_the_clip_and_not_beyond(way):
    """A full forget gate and an empty input gate carry a cell that stands exactly at the bound. Without kernels the
    gradient there is that of `torch.clamp`: 1, and 0 from PyTorch 2.14 on."""
    saturated = torch.tensor([-200.0, 200.0, 0.0, 0.0]).repeat_interleave(CELL)
    weights = [LstmWeights(torch.zeros(4 * CELL, INPUT), torch.zeros(4 * CELL, CELL), saturated, None)]
    c = torch.linspace(-1, 1, CELL).reshape(1, 1, CELL).requires_grad_()
    bound = c[0, 0, -2].item()
    at_bound = torch.tensor(bound, requires_grad=True)
    at_bound.clamp(-bound, bound).backward()
    passed = at_bound.grad.item() if way == "plain" else 1.0
    _, (_, last) = bilstm_layer(torch.zeros(1, 2, INPUT), [1, 1], (torch.zeros(1, 1, CELL), c), weights, bound)
    last.sum().backward()
    assert c.grad.flatten().tolist() == [0.0, passed, *[1.0] * (CELL - 4), passed, 0.0]


def test_each_way_runs_what_it_names(way):
    layer = random_layer([2, 1])
    with kernels.record() as ran:
        everything(bilstm_layer, layer[0], [2, 1], *layer[1:])
    assert ran == ([] if way == "plain" else [("lstm", "onednn-training")])


def test_a_batch_of_one_equals_a_batch_of_many(way):
    batch_sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(batch_sizes)
    outputs, after = bilstm_layer(inputs, batch_sizes, state, weights, 0.5, 0.4)
    starts = [start for start, _ in pairwise(accumulate(batch_sizes, initial=0))]
    for row in range(batch_sizes[0]):
        words = [start + row for start, size in zip(starts, batch_sizes, strict=True) if row < size]
        own_state = tuple(part[:, row : row + 1] for part in state)
        alone, alone_after = bilstm_layer(inputs[:, words], [1] * len(words), own_state, weights, 0.5, 0.4)
        torch.testing.assert_close(alone, outputs[:, words], rtol=0, atol=1e-6)
        torch.testing.assert_close(alone_after[0], after[0][:, row : row + 1], rtol=0, atol=1e-6)
        torch.testing.assert_close(alone_after[1], after[1][:, row : row + 1], rtol=0, atol=1e-6)


def test_state_carried_equals_one_pass(way):
    inputs, state, weights = random_layer([3] * 6)
    whole, after = bilstm_layer(inputs, [3] * 6, state, weights, 0.5, 0.4)
    first, between = bilstm_layer(inputs[:, :12], [3] * 4, state, weights, 0.5, 0.4)
    second, last = bilstm_layer(inputs[:, 12:], [3] * 2, between, weights, 0.5, 0.4)
    torch.testing.assert_close(torch.cat((first, second), dim=1), whole, rtol=0, atol=1e-6)
    torch.testing.assert_close(last, after, rtol=0, atol=1e-6)


def test_strides_of_inputs_and_gradients_do_not_matter(way):
    batch_sizes = BATCHES["window"]
    inputs, (h, c), weights = random_layer(batch_sizes, projected=False)
    odd = inputs.mT.contiguous().mT, h.mT.contiguous().mT, c.mT.contiguous().mT
    gradients = []
    for x, hidden, memory in ((inputs, h, c), odd):
        x = x.detach().requires_grad_()
        outputs, after = bilstm_layer(x, batch_sizes, (hidden, memory), weights, 0.5)
        loss = (outputs.mT.contiguous() ** 2).sum() + sum(part.transpose(0, 1).mT.contiguous().sum() for part in after)
        gradients.append(torch.autograd.grad(loss, x)[0])
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)


def test_checkpointed_and_backward_twice(way):
    batch_sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(batch_sizes)
    inputs.requires_grad_()
    outputs, _ = bilstm_layer(inputs, batch_sizes, state, weights, 0.5, 0.4)
    first, second = (torch.autograd.grad(outputs.sum(), inputs, retain_graph=True)[0] for _ in range(2))
    again, _ = checkpoint(bilstm_layer, inputs, batch_sizes, state, weights, 0.5, 0.4, use_reentrant=False)
    third = torch.autograd.grad(again.sum(), inputs)[0]
    assert torch.equal(first, second)
    assert torch.equal(first, third)


def test_inference_mode():
    inputs, state, weights = random_layer([3] * 4)
    expected = reference(inputs, [3] * 4, state, weights)[0]
    with torch.no_grad():
        torch.testing.assert_close(bilstm_layer(inputs, [3] * 4, state, weights)[0], expected, rtol=0, atol=1e-6)
    with torch.inference_mode():
        made_here = [LstmWeights(*(tensor.clone() for tensor in w)) for w in weights]
        for own in (weights, made_here):
            torch.testing.assert_close(bilstm_layer(inputs, [3] * 4, state, own)[0], expected, rtol=0, atol=1e-6)


def test_compiled_callers_compile_once(way):
    """The layer stays as it is inside a compiled function, whatever the lengths."""
    graphs = torch._dynamo.testing.CompileCounter()
    inputs, state, weights = random_layer([3, 3, 2, 1])

    @torch.compile(backend=graphs, dynamic=True)
    def double(inputs, batch_sizes):
        return bilstm_layer(2 * inputs, batch_sizes, state, weights, 0.5, 0.4)[0] + 1

    for batch_sizes in ([3, 3, 2, 1], [3, 2], [3, 1, 1]):
        words = inputs[:, : sum(batch_sizes)]
        expected = reference(2 * words, batch_sizes, state, weights, 0.5, 0.4)[0] + 1
        torch.testing.assert_close(double(words, batch_sizes), expected, rtol=0, atol=1e-6)
    assert graphs.frame_count <= 4


def test_autocast_leaves_float64_alone(way):
    batch_sizes = BATCHES["rows ending"]
    layer = random_layer(batch_sizes, torch.float64)
    expected = bilstm_layer(layer[0], batch_sizes, *layer[1:])
    with torch.autocast("cpu", torch.bfloat16):
        found = bilstm_layer(layer[0], batch_sizes, *layer[1:])
    torch.testing.assert_close(found, expected)
