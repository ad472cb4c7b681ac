"""Training on CUDA: the loops over steps recorded as CUDA graphs.

What costs time there is launching kernels, not running them: a step is a handful of a few microseconds each, and Python
needs longer than that to start one. The batches of a training all have the same shape, so its loops are recorded once
and replayed ([`GraphPool`]).
"""

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

logger = logging.get_logger(f"transformers.{__name__}")

Tensors = tuple[Tensor | None, ...]

# Of the device's memory, how much recorded graphs may hold.
SHARE_OF_MEMORY = 1 / 8
# With more rows than this a step's kernels run longer than it takes to start them.
MOST_ROWS = 1024
# Shapes that are remembered as having come once.
SHAPES_REMEMBERED = 256


class Graph:
    """A function of fixed tensors, recorded once and replayed on whatever they hold then.

    Args:
        function: works on CUDA tensors that stay where they are, without waiting for the device.
    """

    def __init__(self, function: Callable[[], Tensors]) -> None:
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):  # compiles kernels and makes workspaces, neither of which can be recorded
            function()
        here.wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self.outputs = function()

    def replay(self) -> Tensors:
        """The outputs, always the same tensors, with what the function makes of the inputs as they are now."""
        self._graph.replay()
        return self.outputs


class GraphedLoops:
    """The loops of one layer's forward and backward pass on tensors of their own.

    Args:
        forward: `(*inputs) -> saved`, everything that the backward pass needs, the outputs last.
        backward: `(inputs, saved, *grads) -> grad_gates`, for the gradients of outputs, hidden and cell, which it
            writes to.
        inputs: tensors like those to come; the second and third are hidden and cell.
        make: what records a function.
    """

    def __init__(
        self, forward: Callable[..., Tensors], backward: Callable[..., Tensor], inputs: Tensors, make: type = Graph
    ) -> None:
        self.inputs = tuple(None if x is None else torch.empty_like(x, requires_grad=False) for x in inputs)
        self._forward = make(lambda: forward(*self.inputs))
        saved = self._forward.outputs
        self._grads = tuple(torch.empty_like(x) for x in (saved[-1], *self.inputs[1:3]))
        self._backward = make(lambda: (backward(self.inputs, saved, *self._grads),))

    def forward(self, inputs: Tensors) -> Tensors:
        """What `forward` keeps, in this object's own tensors: the next call overwrites them."""
        _fill(self.inputs, inputs)
        return self._forward.replay()

    def backward(self, grads: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The gradient of the gates, and `grads` as `backward` leaves them, in this object's own tensors."""
        _fill(self._grads, grads)
        (grad_gates,) = self._backward.replay()
        return grad_gates, self._grads


class GraphPool:
    """Graphed loops by the shape of their tensors.

    One is taken from the forward pass to the end of the backward pass, as its tensors hold what was saved for it;
    as many are made of a shape as are in use at the same time: one for each layer of a biLM. A shape that comes for
    the first time gets none, so that batches which all differ record nothing. Where recording fails, nothing is
    recorded any more.

    Args:
        make: what records a function.
    """

    def __init__(self, make: type = Graph) -> None:
        self._make = make
        self.renew_lock()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._free: OrderedDict[Hashable, list[tuple[GraphedLoops, int]]] = OrderedDict()  # least recently used first
        self._bytes = 0
        self._failed = False

    def renew_lock(self) -> None:
        """A lock that nobody holds. The thread that has it may come again: the garbage collector, which gives loops
        back, runs anywhere."""
        self._lock = threading.RLock()

    def take(self, key: Hashable, size: int, limit: int, until: Tensor, *arguments: Any) -> GraphedLoops | None:
        """Loops for tensors of the shapes that `key` names, or `None` where there are none.

        Args:
            key: everything that a recorded loop depends on.
            size: bytes that the loops' tensors take.
            limit: bytes that all may take together.
            until: the loops are free again when this tensor is no more.
            *arguments: those of [`GraphedLoops`].
        """
        with self._lock:
            if self._failed:
                return None
            if key not in self._seen:
                self._seen[key] = None
                if len(self._seen) > SHAPES_REMEMBERED:
                    self._seen.popitem(last=False)
                return None
            self._seen.move_to_end(key)
            loops = self._free[key].pop()[0] if self._free.get(key) else None
            if loops is None and not self._make_room(size, limit):
                return None
        if loops is None:
            try:
                loops = GraphedLoops(*arguments, make=self._make)
            except RuntimeError as error:  # among them: the device's memory is full
                self._failed = True
                self._free.clear()
                logger.warning("The training loop cannot be recorded as a CUDA graph and runs without: %s", error)
                return None
        weakref.finalize(until, self._give_back, key, loops, size).atexit = False
        return loops

    def _make_room(self, size: int, limit: int) -> bool:
        while self._bytes + size > limit:
            key = next((key for key, free in list(self._free.items()) if free), None)
            if key is None:
                return False
            self._bytes -= self._free[key].pop(0)[1]
        self._bytes += size
        return True

    def _give_back(self, key: Hashable, loops: GraphedLoops, size: int) -> None:
        with self._lock:
            self._free.setdefault(key, []).append((loops, size))
            self._free.move_to_end(key)


_pool = GraphPool()

if hasattr(os, "register_at_fork"):  # another thread may have held the lock, and is not there in the child
    os.register_at_fork(after_in_child=_pool.renew_lock)


def take_graph(
    forward: Callable[..., Tensors],
    backward: Callable[..., Tensor],
    inputs: Tensors,
    settings: Hashable,
    until: Tensor,
) -> GraphedLoops | None:
    """Recorded loops for `inputs`, or `None` where the loops are better run as they are.

    Args:
        forward, backward: as in [`GraphedLoops`].
        inputs: `inputs [D, words, in]`, `hidden`, `cell`, and the weights.
        settings: what else the loops depend on: the batch sizes and the clips.
        until: the loops are free again when this tensor is no more.
    """
    x, cell = inputs[0], inputs[2]
    if cell.shape[1] > MOST_ROWS or torch.cuda.is_current_stream_capturing():
        return None
    shapes = tuple(None if tensor is None else (tensor.shape, tensor.dtype) for tensor in inputs)
    key = (x.device, torch.cuda.current_stream(x.device).cuda_stream, shapes, settings)
    words, cells = x.shape[0] * x.shape[1], cell.shape[-1]
    own = sum(tensor.nbytes for tensor in inputs if tensor is not None)
    # The gates and their gradient (4 cells each), the cell's outputs; the cells, in a type of their own.
    size = own + words * cells * (9 * x.itemsize + cell.itemsize)
    limit = int(torch.cuda.get_device_properties(x.device).total_memory * SHARE_OF_MEMORY)
    return _pool.take(key, size, limit, until, forward, backward, inputs)


def _fill(own: Tensors, given: Tensors) -> None:
    for mine, tensor in zip(own, given, strict=True):
        if mine is not None:
            mine.copy_(tensor)
