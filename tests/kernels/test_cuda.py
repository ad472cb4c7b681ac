"""The recurrence's ways on CUDA: their arithmetic on the CPU, and all of it on a GPU where there is one.

CUDA graphs need a GPU. On the CPU a stand-in that runs the function again, into the same tensors, shows that loops are
taken, filled, kept apart and given back as they must be.
"""

import gc
import os
import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hf_elmo.kernels import cuda_graphs, cuda_inference, training
from hf_elmo.kernels.cuda_graphs import GraphPool
from hf_elmo.lstm_elmo import LstmCall, LstmWeights, bilstm_layer
from tests.forks import exit_code
from tests.lstm_layers import BATCHES, CLIPS, TOLERANCE, assert_near, everything, random_layer, reference

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


class Again:
    """A graph's interface on the CPU: the same output tensors at each replay."""

    recorded = 0

    def __init__(self, function) -> None:
        Again.recorded += 1
        self.function, self.outputs = function, function()

    def replay(self):
        for mine, new in zip(self.outputs, self.function(), strict=True):
            if mine is not None:
                mine.copy_(new)
        return self.outputs


@pytest.fixture
def pool(monkeypatch) -> GraphPool:
    """Graphs on the CPU, each of size 1, three at most."""
    monkeypatch.setattr(Again, "recorded", 0)
    return GraphPool(Again)


def train(pool, inputs, batch_sizes, state, weights, cell_clip=None, proj_clip=None):
    """`bilstm_layer` by the training backend, its loops recorded in a pool (`None`: run as they are)."""

    def take(forward, backward, inputs, settings, until):
        key = tuple(None if x is None else (x.shape, x.dtype) for x in inputs), settings
        return None if pool is None else pool.take(key, 1, 3, until, forward, backward, inputs)

    call = LstmCall(inputs, batch_sizes, *state, weights, cell_clip, proj_clip)
    return training.run(call, take)


@pytest.mark.parametrize("projected", [True, False], ids=["projected", "not projected"])
@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS.keys())
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES.keys())
def test_inference_equals_reference(batch_sizes, clips, projected):
    inputs, state, weights = random_layer(batch_sizes, torch.float64, projected=projected)
    outputs, (hidden, cell) = cuda_inference.run(LstmCall(inputs, batch_sizes, *state, weights, *clips))
    expected, (hidden_after, cell_after) = reference(inputs, batch_sizes, state, weights, *clips)
    assert_near([outputs, hidden, cell], [expected, hidden_after, cell_after], TOLERANCE[torch.float64])


@pytest.mark.parametrize("projected", [True, False], ids=["projected", "not projected"])
@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS.keys())
def test_recorded_loops_equal_reference(pool, clips, projected):
    for seed in range(3):
        layer = random_layer([4, 4, 2], torch.float64, projected=projected, seed=seed)
        arguments = layer[0], [4, 4, 2], *layer[1:], *clips
        assert_near(
            everything(partial(train, pool), *arguments), everything(reference, *arguments), TOLERANCE[torch.float64]
        )
    assert Again.recorded == 2  # forward and backward, at the second of the three


def two_layers(layer, x, state, weights):
    first, _ = layer(x, [3, 3], state, weights, 0.5, 0.4)
    return layer(first, [3, 3], state, weights, 0.5, 0.4)[0]


def square_layer():
    torch.manual_seed(0)
    weights = [
        LstmWeights(*(torch.randn(shape, dtype=torch.float64) for shape in ((44, 5), (44, 5), (44,), (5, 11))))
        for _ in range(2)
    ]
    state = torch.randn(2, 3, 5, dtype=torch.float64), torch.randn(2, 3, 11, dtype=torch.float64)
    return torch.randn(2, 6, 5, dtype=torch.float64), state, weights


def gradients(layer, state, weights, *inputs):
    """Each input's gradient, all their forward passes before the first backward pass, one of which comes twice."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    sums = [two_layers(layer, x, state, weights).square().sum() for x in leaves]
    sums[0].backward(retain_graph=True)
    for loss in sums:
        loss.backward()
    return [x.grad for x in leaves]


def test_what_a_backward_pass_needs_is_not_overwritten(pool):
    x, state, weights = square_layer()
    found = [gradients(partial(train, pool), state, weights, x, 2 * x, 3 * x) for _ in range(2)]
    expected = gradients(partial(train, None), state, weights, x, 2 * x, 3 * x)
    for some in found:
        assert_near(some, expected, TOLERANCE[torch.float64])
    assert Again.recorded == 2 * 3  # no more than the limit allows


def checkpointed(*arguments):
    return checkpoint(two_layers, *arguments, use_reentrant=False)


def hooked(*arguments):
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda x: x):
        return two_layers(*arguments)


@pytest.mark.parametrize("run", [checkpointed, hooked])
def test_what_hooks_save_is_not_overwritten(pool, run):
    x, state, weights = square_layer()

    def gradient(recorded):
        leaf = x.clone().requires_grad_()
        run(partial(train, recorded), leaf, state, weights).square().sum().backward()
        return [leaf.grad]

    two_layers(partial(train, pool), x.clone().requires_grad_(), state, weights)  # graphs are there from here on
    for _ in range(3):
        assert_near(gradient(pool), gradient(None), TOLERANCE[torch.float64])


def test_loops_are_free_again_after_the_backward_pass_or_without_one(pool):
    x, state, weights = square_layer()
    for _ in range(4):
        gradients(partial(train, pool), state, weights, x)
        two_layers(partial(train, pool), x.clone().requires_grad_(), state, weights)
        gc.collect()
    assert Again.recorded == 2 * 2  # one for each layer


def test_loops_of_another_shape_make_room(pool):
    for rows in (2, 3, 4, 5, 2):
        layer = random_layer([rows] * 3, torch.float64)
        for _ in range(2):
            everything(partial(train, pool), layer[0], [rows] * 3, *layer[1:], None, None)
    assert pool._bytes <= 3
    assert Again.recorded > 2 * 3


def test_where_recording_fails_the_loops_run_as_they_are():
    class Fails(Again):
        def __init__(self, function) -> None:
            raise RuntimeError("out of memory")

    layer = random_layer([4, 4, 2], torch.float64)
    arguments, pool = (layer[0], [4, 4, 2], *layer[1:], 0.5, 0.4), GraphPool(Fails)
    expected = everything(reference, *arguments)
    for _ in range(3):
        assert_near(everything(partial(train, pool), *arguments), expected, TOLERANCE[torch.float64])


def ends(work: Callable[[], object]) -> bool:
    """Whether `work` ends within seconds, in a child process."""
    child = os.fork()
    if child == 0:
        signal.alarm(5)  # ends a process that waits
        work()
        os._exit(0)
    return exit_code(child) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_does_not_inherit_a_lock_that_another_thread_holds():
    held, over = threading.Event(), threading.Event()

    def hold():
        with cuda_graphs._pool._lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert ends(lambda: cuda_graphs._pool._give_back("key", None, 1))
    finally:
        over.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_the_garbage_collector_may_give_loops_back_while_some_are_taken(pool):
    def work():
        with pool._lock:  # as `take` has it
            pool._give_back("key", None, 1)

    assert ends(work)


# -- on a GPU ----------------------------------------------------------------------------------------------------------


def on_gpu(function):
    """`function` with its tensors on the GPU, what it returns back on the CPU."""

    def moved(inputs, batch_sizes, state, weights, cell_clip, proj_clip):
        weights = [LstmWeights(*(None if x is None else x.cuda() for x in one)) for one in weights]
        outputs, after = function(
            inputs.cuda(), batch_sizes, tuple(part.cuda() for part in state), weights, cell_clip, proj_clip
        )
        return outputs.cpu(), tuple(part.cpu() for part in after)

    return moved


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES.keys())
def test_gpu_equals_reference(batch_sizes, dtype):
    for seed in range(3):  # the first as it is, then recorded
        layer = random_layer(batch_sizes, dtype, seed=seed)
        arguments = layer[0], batch_sizes, *layer[1:], None, None
        found = everything(on_gpu(bilstm_layer), *arguments)
        assert_near(found, everything(reference, *arguments), TOLERANCE.get(dtype, 1e-2))
        with torch.no_grad():
            outputs, state = on_gpu(bilstm_layer)(*arguments)
        assert_near([outputs, *state], found[:3], TOLERANCE.get(dtype, 1e-2))


@needs_gpu
def test_gpu_keeps_what_a_backward_pass_needs():
    x, state, weights = square_layer()
    x, state = x.float().cuda(), tuple(part.float().cuda() for part in state)
    weights = [LstmWeights(*(part.float().cuda() for part in one)) for one in weights]
    expected = gradients(partial(train, None), state, weights, x, 2 * x, 3 * x)
    for _ in range(2):
        found = gradients(bilstm_layer, state, weights, x, 2 * x, 3 * x)
        assert_near(found, expected, TOLERANCE[torch.float32])
