"""The Triton kernels, in Triton's interpreter on the CPU: against PyTorch's operations, and inside the layer.

The interpreter is chosen when the kernels are defined, so each test runs in a process of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CELL = """
import torch
from hf_elmo.kernels import cell_triton
from hf_elmo.kernels.cell import TORCH_CELL

dtype = getattr(torch, {dtype!r})
directions, rows, size = 2, 3, 301  # more than one block of cells, the last one not full
torch.manual_seed(0)
gates = (torch.randn(directions, 8, 4 * size) * 5).to(dtype)[:, 2 : 2 + rows]
recurrent = torch.randn(directions, rows, 4 * size).to(dtype)
grad_hidden = torch.randn(directions, rows, size).to(dtype)
before, grad_cell = torch.randn(2, directions, rows, size)
for before_clip, cell_clip, added in ((None, None, recurrent), (0.9, 0.5, recurrent), (0.9, None, None)):
    found = []
    for backend in (cell_triton.run(gates, before), TORCH_CELL):
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
from hf_elmo import kernels
from hf_elmo.lstm_elmo import bilstm_layer
from tests.lstm_layers import BATCHES, assert_near, everything, random_layer, reference

batch_sizes = BATCHES["rows ending"]
for projected in (True, False):
    layer = random_layer(batch_sizes, projected=projected)
    arguments = layer[0], batch_sizes, *layer[1:], 0.5, 0.4
    with kernels.use("training", "cell-triton"), kernels.record() as ran:
        assert_near(everything(bilstm_layer, *arguments), everything(reference, *arguments), 3e-6)
    assert ran[:2] == [("lstm", "training"), ("cell", "cell-triton")], ran
"""


def run(script: str) -> None:
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_kernels_equal_torch_operations(dtype):
    run(CELL.format(dtype=dtype))


def test_layer_on_kernels_equals_reference():
    run(LAYER)
