"""The cell in C against the one in PyTorch's operations."""

import pytest
import torch

from hf_elmo.kernels import cell_c, choose, native, use
from hf_elmo.kernels.cell import TORCH_CELL

pytestmark = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_c_cell_equals_torch_cell(dtype):
    """Over the whole range of the gates, on slices of larger tensors."""
    directions, rows, size = 2, 3, 37
    torch.manual_seed(0)
    gates = (torch.randn(directions, 8, 4 * size) * 20).to(dtype)[:, 2 : 2 + rows]
    recurrent = torch.randn(directions, rows, 4 * size).to(dtype)
    before, grad_cell = torch.randn(2, directions, rows, size)
    grad_hidden = torch.randn(directions, rows, size).to(dtype)
    found = []
    for backend in (cell_c.run(gates, before), TORCH_CELL):
        cells, hidden = torch.empty(directions, 5, size)[:, 1:4], torch.empty(directions, rows, size, dtype=dtype)
        total = gates.clone()
        backend.forward(total, recurrent, before, 0.9, 0.5, cells, hidden)
        carried, grad_gates = grad_cell.clone(), torch.empty(directions, rows, 4 * size, dtype=dtype)
        backend.backward(total, before, 0.9, 0.5, cells, grad_hidden, carried, grad_gates)
        found.append((total, cells, hidden, carried, grad_gates))
    for x, y in zip(*found, strict=True):
        # In C the sum of the gates' halves is rounded to bfloat16 only where it is kept, not where it is used. In
        # float32, where a gate saturates, 1 - g * g is off by twice g's error: two units in the last place, 1.2e-7,
        # here and in PyTorch. Times gradients up to 4, and as compilers differ in what they fuse: 2e-6.
        tolerance = {"rtol": 2e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 2e-6, "atol": 2e-6}
        torch.testing.assert_close(x, y, **tolerance)


def test_c_cell_near_zero_and_beyond_range():
    """tanh keeps its relative precision near zero; infinite gates saturate; NaN propagates."""
    gates = torch.tensor([0.0, 0.0, 1e-6, 0.0] + [torch.inf, -torch.inf, torch.inf, 0.0] + [torch.nan] * 4)
    gates = gates.reshape(1, 3, 4)
    cells, hidden = torch.empty(2, 1, 3, 1)
    cell_c.run(gates, cells).forward(gates, torch.zeros(1, 3, 4), torch.zeros(1, 3, 1), None, None, cells, hidden)
    torch.testing.assert_close(cells[0, :2, 0], torch.tensor([0.5e-6, 1.0]), rtol=1e-6, atol=0)
    assert cells[0, 2, 0].isnan()
    assert hidden[0, 2, 0].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_nan_has_nan_for_a_gradient(dtype):
    gates = torch.zeros(1, 2, 20, dtype=dtype)
    gates[0, 1, 3] = torch.nan  # an input gate of the second row
    before, grad_cell = torch.ones(1, 2, 5), torch.ones(1, 2, 5)
    cells, hidden = torch.empty(1, 2, 5), torch.empty(1, 2, 5, dtype=dtype)
    cell = cell_c.run(gates, before)
    cell.forward(gates, None, before, None, 3.0, cells, hidden)
    grad_gates = torch.empty_like(gates)
    cell.backward(gates, before, None, 3.0, cells, torch.ones_like(hidden), grad_cell, grad_gates)
    assert cells.isnan().nonzero().tolist() == [[0, 1, 3]]
    assert hidden.isnan().nonzero().tolist() == [[0, 1, 3]]
    assert grad_gates[0, 1, 3].isnan()
    assert not grad_gates[0, 0].isnan().any()


def test_is_chosen_for_what_it_supports():
    gates, state = torch.zeros(1, 2, 20), torch.zeros(1, 2, 5)
    with use("on"):
        assert choose("cell", gates, state).name == "cell-c"
    assert "float64" in cell_c.supports(gates.double(), state.double())
    assert "meta" in cell_c.supports(gates.to("meta"), state)
    with use("off"):
        assert choose("cell", gates, state) is None
