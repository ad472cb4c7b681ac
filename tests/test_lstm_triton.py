"""The Triton kernels, in Triton's interpreter on the CPU: against PyTorch's operations, and inside the layer.

The interpreter is chosen when the kernels are defined, so each test runs in a process of its own.
"""

import os
import subprocess
import sys

import pytest

CELL = """
import torch
from hf_elmo.lstm_cell_elmo import TORCH_CELL
from hf_elmo.lstm_triton_elmo import triton_cell

dtype = getattr(torch, {dtype!r})
directions, rows, size = 2, 3, 301  # more than one block of cells, the last one not full
torch.manual_seed(0)
gates = (torch.randn(directions, 8, 4 * size) * 5).to(dtype)[:, 2 : 2 + rows]
recurrent = torch.randn(directions, rows, 4 * size).to(dtype)
grad_hidden = torch.randn(directions, rows, size).to(dtype)
before, grad_cell = torch.randn(2, directions, rows, size)
for before_clip, cell_clip, added in ((None, None, recurrent), (0.9, 0.5, recurrent), (0.9, None, None)):
    found = []
    for backend in (triton_cell(gates, before), TORCH_CELL):
        cells, hidden = torch.empty(directions, 5, size)[:, 1:4], torch.empty(directions, rows, size, dtype=dtype)
        total, carried = gates.clone(), grad_cell.clone()
        grad_gates = torch.empty(directions, rows, 4 * size, dtype=dtype)
        backend.forward(total, added, before, before_clip, cell_clip, cells, hidden)
        backend.backward(total, before, before_clip, cell_clip, cells, grad_hidden, carried, grad_gates)
        found.append((total, cells, hidden, carried, grad_gates))
    for x, y in zip(*found):
        tolerance = dict(rtol=2e-6, atol=1e-6) if dtype == torch.float32 else dict(rtol=2e-2, atol=1e-2)
        torch.testing.assert_close(x, y, **tolerance)
"""

LAYER = """
import torch
from hf_elmo import lstm_elmo
from hf_elmo.lstm_triton_elmo import triton_cell
from tests.test_lstm import BATCHES, assert_near, everything, random_layer, reference

lstm_elmo.c_cell = triton_cell
batch_sizes = BATCHES["rows ending"]
for projected in (True, False):
    layer = random_layer(batch_sizes, projected=projected)
    arguments = layer[0], batch_sizes, *layer[1:], 0.5, 0.4
    assert_near(everything(lstm_elmo.bilstm_layer, *arguments), everything(reference, *arguments), 3e-6)
"""


def run(script: str) -> None:
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([sys.executable, "-c", script], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_kernels_equal_torch_operations(dtype):
    run(CELL.format(dtype=dtype))


def test_layer_on_kernels_equals_reference():
    run(LAYER)
