"""LSTM layers without gradients by each backend, called directly, against the reference; and the cell in C. With
HF_ELMO_CFLAGS="-include emulated.h", those for AVX-512 and AMX run, too. (tests/test_lstm.py has the training.)"""

from typing import NamedTuple
from unittest.mock import Mock

import pytest
import torch

from hf_elmo import kernels
from hf_elmo.kernels import lstm_c, native
from hf_elmo.kernels.backends import WITHOUT_GRADIENTS
from hf_elmo.kernels.lstm_onednn import run_cell
from hf_elmo.modeling_elmo import LstmCall, LstmWeights
from tests.kernels import machine
from tests.test_lstm import CLIPS, assert_near, random_call, reference

BACKENDS = {backend.name: backend for backend in WITHOUT_GRADIENTS["lstm"]}


class Kind(NamedTuple):
    """A way to compute a layer: the backend, the types of inputs and of weights."""

    backend: str
    inputs: torch.dtype = torch.float32
    weights: torch.dtype = torch.float32
    tolerance: float = 3e-6
    rows: int = 40


HALF, BFLOAT16 = (torch.float32, torch.bfloat16, 3e-6), (torch.bfloat16, torch.bfloat16, 2e-2)
KINDS = {
    "fused": Kind("fused"),
    "fused, weights of bfloat16": Kind("fused", *HALF),
    "fused, bfloat16": Kind("fused", *BFLOAT16),
    "fused, tiles": Kind("fused", *BFLOAT16),
    "fused, bfloat16 without its products": Kind("fused", *BFLOAT16),
    "small-batch": Kind("small-batch", rows=6),
    "small-batch, weights of bfloat16": Kind("small-batch", *HALF, rows=6),
    "small-batch, bfloat16": Kind("small-batch", *BFLOAT16, rows=6),
    # Rounding moves a gate by 1 % of its spread, the farthest of thousands by 5 %; clips are at half of the spread.
    "int8": Kind("int8", tolerance=8e-2, rows=6),
    "int8, weights of bfloat16": Kind("int8", torch.float32, torch.bfloat16, 8e-2, rows=6),
    "int8, bfloat16": Kind("int8", torch.bfloat16, torch.bfloat16, 8e-2, rows=6),
}
# The others are skipped once, by `test_calls_that_it_leaves_to_others`; the gate runs them on emulated instructions.
HERE = [name for name in KINDS if machine.missing(name) is None]
SIZES = 32, 128, 96  # input, P and C: they fill the blocks of each backend
LARGE = 32, 512, 2048  # a direction of more than 8 megabytes: a small batch reads one after the other
BATCHES = {
    "rows ending": lambda most: [most, most, most - 3, most // 2, 2, 1, 1],
    "one word": lambda most: [most],
    "window": lambda most: [most - 1] * 4,
}


@pytest.fixture(params=HERE)
def kind(request, monkeypatch) -> Kind:
    machine.require(request.param)
    request_tiles, tiles = lstm_c._has_tiles, "tiles" in request.param
    monkeypatch.setattr(lstm_c, "_has_tiles", lambda: tiles and (request_tiles() or True))  # True where emulated
    if "without" in request.param:
        monkeypatch.setattr(lstm_c, "BF16", lstm_c.HALF)
    return KINDS[request.param]


def layer(kind: Kind, sizes: list[int], shape=SIZES, **options) -> LstmCall:
    call = random_call(sizes, sizes=shape, **options)
    weights = [LstmWeights(*(x if x is None else x.to(kind.weights) for x in own)) for own in call.weights]
    return call._replace(inputs=call.inputs.to(kind.inputs), hidden=call.hidden.to(kind.inputs), weights=weights)


def run(kind: Kind, call: LstmCall) -> list[torch.Tensor]:
    with torch.no_grad():
        outputs, state = BACKENDS[kind.backend].run(call)
    return [outputs, *state]


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_equals_reference(kind, batch, clips):
    call = layer(kind, batch(kind.rows))._replace(cell_clip=clips[0], proj_clip=clips[1])
    before = call.hidden.clone(), call.cell.clone()
    assert_near(run(kind, call), reference(call), kind.tolerance)
    assert all(map(torch.equal, before, (call.hidden, call.cell)))


@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-20])
def test_small_cells_keep_their_relative_precision(kind, size):
    call = layer(kind, [kind.rows] * 3)
    weights = [own._replace(bias=own.bias * size) for own in call.weights]
    state = {"hidden": call.hidden * size, "cell": call.cell * size}
    call = call._replace(inputs=call.inputs * size, weights=weights, **state)
    assert_near(run(kind, call), reference(call), kind.tolerance)


@pytest.mark.parametrize("kind", ["small-batch", "small-batch, weights of bfloat16"], indirect=True)
def test_without_a_projection(kind):
    call = layer(kind, [kind.rows, kind.rows, 2], (32, 0, 64), projected=False)
    assert_near(run(kind, call), reference(call), kind.tolerance)


@pytest.mark.parametrize("kind", ["int8", "int8, weights of bfloat16"], indirect=True)
def test_numbers_in_8_bits_are_off_by_no_more_than_their_rounding(kind):
    """In a step: a number moves by half of its scale, a sigmoid by a quarter of what its gate moves, a tanh by all."""
    call = layer(kind, [3])._replace(cell_clip=None, proj_clip=None)
    (outputs, _, cells), (right_outputs, _, right_cells) = run(kind, call), reference(call)
    for d, (ih, hh, _, hr) in enumerate(call.weights):
        scale, moved = torch.cat((ih, hh), 1).float().abs().amax(1) / 127, torch.zeros(3, len(ih))
        for x, weight in ((call.inputs[d], ih.float()), (call.hidden[d], hh.float())):
            of_x = x.abs().amax(1, keepdim=True) / 127
            moved += x.abs().sum(1, keepdim=True) * scale / 2 + of_x / 2 * weight.abs().sum(1)
            moved += scale * of_x / 4 * x.shape[1]
        i, f, g, o = moved.chunk(4, 1)
        of_cells = i / 4 + f / 4 * call.cell[d].abs() + g
        off = (cells - right_cells)[d].abs()
        assert (off <= of_cells + 1e-6).all()
        assert off.max() > 1e-3  # more than float32's or bfloat16's
        off = (outputs - right_outputs)[d].abs()
        assert (off <= (of_cells + o / 4) @ hr.float().abs().T + 1e-6).all()


@pytest.mark.parametrize(("directions", "sizes"), [(1, SIZES), (3, SIZES), (2, LARGE)], ids=str)
def test_any_number_of_directions_and_threads(kind, monkeypatch, directions, sizes):
    for name in ("F32", "HALF", "BF16", "TILES"):
        monkeypatch.setattr(lstm_c, name, getattr(lstm_c, name)._replace(group_rows=16))
    call = layer(kind, [kind.rows, kind.rows, 3], sizes, directions=directions)
    one = run(kind, call)
    assert_near(one, reference(call), kind.tolerance if sizes == SIZES else 2 * kind.tolerance)  # of long sums
    for number in (1, 2, 5):
        torch.set_num_threads(number)
        assert all(map(torch.equal, one, run(kind, call)))


def test_a_row_has_the_same_bits_among_others(kind):
    rows = kind.rows
    call = layer(kind, [rows] * 4)
    together = run(kind, call)[0].unflatten(1, (4, rows))
    for some in (slice(rows // 2, rows - 1), slice(1, 2)):
        inputs = call.inputs.unflatten(1, (4, rows))[:, :, some]
        part = {"hidden": call.hidden[:, some], "cell": call.cell[:, some], "batch_sizes": [inputs.shape[2]] * 4}
        alone = run(kind, call._replace(inputs=inputs.flatten(1, 2), **part))[0]
        assert torch.equal(alone.unflatten(1, inputs.shape[1:3]), together[:, :, some])


@pytest.mark.parametrize("kind", [name for name in HERE if name.startswith("fused")], indirect=True)
def test_one_long_row_among_short_ones(kind, monkeypatch):
    """Its last steps are those of a small batch, with the same bits; not on tiles, whose sums have another order."""
    call = layer(kind, [*[40] * 3, 20, 5, *[3] * 4, *[1] * 60])
    monkeypatch.setattr(native, "run", Mock(side_effect=native.run))
    split = run(kind, call)
    fields = native.run.call_args.kwargs
    assert (fields["many"] < fields["steps"]) == (not lstm_c._has_tiles())
    monkeypatch.setattr(lstm_c, "TAIL_STEPS", 100)
    assert all(map(torch.equal, split, run(kind, call)))
    few = layer(kind, [1] * 100)  # no step has many rows: benchmarks/choice.py asks for such a call
    assert_near(run(kind, few), reference(few), kind.tolerance)


def test_nan_propagates_and_stays_in_its_row(kind):
    rows = kind.rows
    call = layer(kind, [rows] * 3)
    right = run(kind, call)[0].unflatten(1, (3, rows))
    call.inputs[:, rows + 4, 7] = torch.nan
    result = run(kind, call)[0].unflatten(1, (3, rows))
    assert result[:, 1:, 4].isnan().all()
    others = torch.arange(rows) != 4
    assert torch.equal(result[:, :, others], right[:, :, others])


def test_follows_each_weight(kind):
    call = layer(kind, [kind.rows, kind.rows - 1])
    for weight in call.weights[1]:
        run(kind, call)
        weight.mul_(0.5)
        assert_near(run(kind, call), reference(call), kind.tolerance)


def test_large_gates_and_long_sums(kind):
    call = layer(kind, [kind.rows] * 40, (224, 192, 320))
    for own in call.weights:
        own.bias[::2].mul_(1000)
    assert_near(run(kind, call), reference(call), 2 * kind.tolerance)


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_calls_that_it_leaves_to_others(kind):
    backend = BACKENDS[kind.backend]
    assert backend.why_not(layer(kind, [1 if kind.backend in ("small-batch", "int8") else 40])) is None
    calls = [layer(kind, [kind.rows])._replace(inputs=torch.zeros(2, kind.rows, 32, dtype=torch.float64))]
    calls.append(layer(kind, [kind.rows, 1], (31, 65, 50)))  # fill no blocks
    with torch.inference_mode():
        calls.append(layer(kind, [kind.rows]))
        assert all(map(backend.why_not, calls))


@pytest.mark.parametrize(("rows", "name"), [(3, "small-batch"), (4, "fused")])
@pytest.mark.parametrize("kind", ["fused, tiles"], indirect=True)
def test_tiles_compute_four_rows_and_more(kind, rows, name):
    for width in (128, 512):  # without tiles, the number of rows grows with the width
        assert kernels.explain("lstm", layer(kind, [rows] * 2, (width, 128, 96)))[0] == name


@pytest.mark.parametrize("kind", ["fused, tiles"], indirect=True)
def test_products_of_pytorch_may_use_the_tiles_in_between(kind):
    call, x = layer(kind, [20] * 4), torch.randn(70, 90, dtype=torch.bfloat16)
    first, product = run(kind, call)[0], x @ x.T
    for _ in range(3):
        assert torch.equal(x @ x.T, product)
        assert torch.equal(run(kind, call)[0], first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_cell_in_c_equals_that_of_pytorch(dtype):
    machine.require("C")
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
    # In float32, where a gate saturates, 1 - g * g is off by twice g's error (1.2e-7), times gradients of up to 4.
    tolerance = {"rtol": 2e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 2e-6, "atol": 2e-6}
    found = [x.double() for x in (after, hidden, carried, grad_gates)]
    torch.testing.assert_close(found, [cell, output, *expected], **tolerance)


def test_the_cell_in_c_near_zero_and_beyond_range():
    """tanh keeps its relative precision near zero; infinite gates saturate; NaN propagates."""
    machine.require("C")
    gates = torch.tensor([0.0, 0.0, 1e-6, 0.0] + [torch.inf, -torch.inf, torch.inf, 0.0] + [torch.nan] * 4)
    after, hidden = torch.empty(2, 3, 1)
    run_cell("forward", None, None, gates=gates.reshape(3, 4), before=torch.zeros(3, 1), cells=after, hidden=hidden)
    torch.testing.assert_close(after[:2, 0], torch.tensor([0.5e-6, 1.0]), rtol=1e-6, atol=0)
    assert after[2, 0].isnan()
    assert hidden[2, 0].isnan()
