"""The LSTM cell in C against the one in PyTorch's operations."""

import pytest
import torch

from hf_elmo.kernels.lstm_onednn import run_cell

from . import machine

pytestmark = pytest.mark.skipif(machine.missing("C") is not None, reason="no C compiler")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equals_the_cell_of_pytorch(dtype):
    """Which computes float64; over the whole range of the gates, on rows of larger tensors."""
    rows, size = 3, 37
    torch.manual_seed(0)
    gates = (torch.randn(8, 4 * size) * 20).to(dtype)[2 : 2 + rows]
    before, grad_cell = torch.randn(2, rows, size)
    grad_hidden = torch.randn(rows, size).to(dtype)
    exact, own = gates.double().requires_grad_(), before.double().requires_grad_()
    i, f, g, o = exact.chunk(4, 1)
    kept = own.clamp(-0.9, 0.9)
    cell = f.sigmoid() * kept + i.sigmoid() * g.tanh()
    output, clipped = o.sigmoid() * cell.clamp(-0.5, 0.5).tanh(), cell.clamp(-0.5, 0.5)
    expected = torch.autograd.grad((output, clipped), (kept, exact), (grad_hidden.double(), grad_cell.double()))
    after, hidden = torch.empty(5, size)[1:4], torch.empty(rows, size, dtype=dtype)
    grad_gates, carried = torch.empty(rows, 4 * size, dtype=dtype), grad_cell.clone()
    given = {"gates": gates, "before": before, "cells": after}
    run_cell("forward", 0.9, 0.5, **given, hidden=hidden)
    run_cell("backward", 0.9, 0.5, **given, hidden=grad_hidden, grad_cell=carried, grad_gates=grad_gates)
    for x, y in zip((after, hidden, carried, grad_gates), (cell, output, *expected), strict=True):
        # In float32, where a gate saturates, 1 - g * g is off by twice g's error (1.2e-7), times gradients of up to 4.
        tolerance = {"rtol": 2e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 2e-6, "atol": 2e-6}
        torch.testing.assert_close(x.double(), y, **tolerance)


def test_near_zero_and_beyond_range():
    """tanh keeps its relative precision near zero; infinite gates saturate; NaN propagates."""
    gates = torch.tensor([0.0, 0.0, 1e-6, 0.0] + [torch.inf, -torch.inf, torch.inf, 0.0] + [torch.nan] * 4)
    after, hidden = torch.empty(2, 3, 1)
    run_cell("forward", None, None, gates=gates.reshape(3, 4), before=torch.zeros(3, 1), cells=after, hidden=hidden)
    torch.testing.assert_close(after[:2, 0], torch.tensor([0.5e-6, 1.0]), rtol=1e-6, atol=0)
    assert after[2, 0].isnan()
    assert hidden[2, 0].isnan()
