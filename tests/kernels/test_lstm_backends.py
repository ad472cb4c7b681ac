"""LSTM layers without gradients by each backend, against the reference. (tests/test_lstm.py has "training".)"""

from typing import NamedTuple

import pytest
import torch

from hf_elmo.kernels import lstm_c
from hf_elmo.modeling_elmo import LstmWeights, bilstm_layer
from tests.lstm_layers import CHANGES, CLIPS, assert_near, flat, random_layer, reference

from . import machine


class Kind(NamedTuple):
    """A way to compute a layer."""

    label: str  # in machine.NEEDS
    dtype: torch.dtype
    tolerance: float
    rows: int  # from 3 to 40
    others: tuple[str, ...] = ()
    precision: str = "highest"


FLOAT32, BFLOAT16 = (torch.float32, 3e-6), (torch.bfloat16, 2e-2)
KINDS = {
    "fused": Kind("fused", *FLOAT32, 40),
    "fused bfloat16": Kind("fused bfloat16", *BFLOAT16, 40),
    "pairs of bfloat16 on tiles": Kind("fused-tiles", torch.float32, 6e-5, 40, precision="high"),
    "bfloat16 on tiles": Kind("fused-tiles", *BFLOAT16, 40),
    "small batch": Kind("small-batch", *FLOAT32, 7),
    "small batch bfloat16": Kind("small-batch", *BFLOAT16, 7),
    "packed": Kind("packed", *FLOAT32, 40, ("cell-c",)),
    "packed, cell of PyTorch": Kind("packed", *FLOAT32, 40),
    "packed bfloat16": Kind("packed bfloat16", *BFLOAT16, 40, ("cell-c",)),
}
SAME_BITS = [name for name in KINDS if not name.startswith("packed")]  # alone, among other rows, on any threads
SIZES = 32, 128, 96  # input, P and C: they fill the blocks of each backend
BATCHES = {
    "rows ending": lambda most: [most, most, most - 3, most // 2, 2, 1, 1],
    "one word": lambda most: [most],
    "window": lambda most: [most - 1] * 4,
}


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def ran(request, kind):
    """What runs where the kind's backend is the only one."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(kind.precision)
    yield from machine.run_only(request, kind.label, *kind.others)
    torch.set_float32_matmul_precision(before)


def lstm_of(ran: list) -> list[str]:
    return [name for operation, name in ran if operation == "lstm"]


def name(kind: Kind) -> str:
    return kind.label.partition(" ")[0]


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_equals_reference(kind, ran, batch, clips):
    sizes = batch(kind.rows)
    inputs, state, weights = random_layer(sizes, kind.dtype, sizes=SIZES)
    before = [part.clone() for part in state]
    result = flat(bilstm_layer(inputs, sizes, state, weights, *clips))
    assert_near(result, flat(reference(inputs, sizes, state, weights, *clips)), kind.tolerance)
    assert lstm_of(ran) == [name(kind)]
    assert all(torch.equal(part, was) for part, was in zip(state, before, strict=True))


@pytest.mark.parametrize("kind", [KINDS["small batch"], KINDS["packed"]], ids=name)
def test_without_a_projection(kind, ran):
    sizes = [kind.rows, kind.rows, 2]
    arguments = (*with_sizes(random_layer(sizes, projected=False, sizes=(13, 0, 64)), sizes), 0.5, 0.4)
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    assert lstm_of(ran) == [name(kind)]


@pytest.mark.parametrize("directions", [1, 3])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_any_number_of_directions_and_threads(kind, ran, threads, monkeypatch, directions, number):
    monkeypatch.setattr(lstm_c, "GROUP_ROWS", 16)
    sizes = [kind.rows, kind.rows, 3]
    arguments = (*with_sizes(random_layer(sizes, kind.dtype, directions, sizes=SIZES), sizes), 0.5, 0.4)
    threads(1)
    one = flat(bilstm_layer(*arguments))
    threads(number)
    result = flat(bilstm_layer(*arguments))
    assert_near(result, flat(reference(*arguments)), kind.tolerance)
    assert lstm_of(ran) == [name(kind)] * 2
    if kind in map(KINDS.get, SAME_BITS):
        assert all(map(torch.equal, one, result))


def with_sizes(layer, sizes):
    inputs, state, weights = layer
    return inputs, sizes, state, weights


@pytest.mark.parametrize("kind", [KINDS[one] for one in SAME_BITS], ids=SAME_BITS)
def test_a_row_has_the_same_bits_among_others(kind, ran):
    rows, some = kind.rows, slice(kind.rows // 2, kind.rows // 2 + min(9, kind.rows // 2))
    inputs, state, weights = random_layer([rows] * 4, kind.dtype, sizes=SIZES)
    whole = bilstm_layer(inputs, [rows] * 4, state, weights, 0.5, 0.4)[0].unflatten(1, (4, rows))
    part = inputs.unflatten(1, (4, rows))[:, :, some]
    number = part.shape[2]
    alone = bilstm_layer(part.flatten(1, 2), [number] * 4, tuple(x[:, some] for x in state), weights, 0.5, 0.4)[0]
    assert torch.equal(alone.unflatten(1, (4, number)), whole[:, :, some])
    assert lstm_of(ran) == [name(kind)] * 2


def test_nan_propagates_and_stays_in_its_row(kind, ran):
    rows = kind.rows
    inputs, state, weights = random_layer([rows] * 3, kind.dtype, sizes=SIZES)
    right = bilstm_layer(inputs, [rows] * 3, state, weights, 0.5, 0.4)[0].unflatten(1, (3, rows))
    inputs[:, rows + 4, 7] = torch.nan
    result = bilstm_layer(inputs, [rows] * 3, state, weights, 0.5, 0.4)[0].unflatten(1, (3, rows))
    assert result[:, 1:, 4].isnan().all()
    others = torch.arange(rows) != 4
    assert torch.equal(result[:, :, others], right[:, :, others])


@pytest.mark.parametrize("weight", ["weight_ih", "weight_hh", "bias", "weight_hr"])
@pytest.mark.parametrize("change", CHANGES)
def test_follows_the_weights(kind, ran, weight, change):
    sizes = [kind.rows, kind.rows - 1]
    arguments = with_sizes(random_layer(sizes, kind.dtype, sizes=SIZES), sizes)
    bilstm_layer(*arguments)
    change(getattr(arguments[3][1], weight))
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    assert lstm_of(ran) == [name(kind)] * 2


def test_large_gates_and_long_sums(kind, ran):
    """More numbers than are added at a time, and more words than a small batch multiplies at a time."""
    sizes = [kind.rows] * 40
    arguments = (*with_sizes(random_layer(sizes, kind.dtype, sizes=(224, 192, 320)), sizes), 0.5, 0.4)
    for own in arguments[3]:
        own.bias[::2].mul_(1000)
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 2 * kind.tolerance)
    assert lstm_of(ran) == [name(kind)]


def test_calls_that_it_does_not_support_are_computed_by_pytorch(kind, ran):
    other_rows = 9 if kind.label == "small-batch" else 2
    calls = [([other_rows, 1], {"sizes": SIZES}), ([kind.rows], {"dtype": torch.float64, "sizes": SIZES})]
    if not kind.label.startswith("packed"):
        calls += [([kind.rows, 1], {"sizes": (31, 65, 50)})]  # fill no blocks
    for sizes, options in calls:
        options = {"dtype": kind.dtype, **options}
        arguments = with_sizes(random_layer(sizes, **options), sizes)
        assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    with torch.inference_mode():
        arguments = with_sizes(random_layer([kind.rows] * 2, kind.dtype, sizes=SIZES), [kind.rows] * 2)
        assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    assert not lstm_of(ran)


@pytest.mark.parametrize("kind", [KINDS["small batch"], KINDS["packed"]], ids=name)
def test_float16_is_computed_in_float32(kind, ran):
    rows = kind.rows
    inputs, state, weights = random_layer([rows, rows, 4], sizes=SIZES)
    half = [LstmWeights(*(x.half() for x in own)) for own in weights]
    result, _ = bilstm_layer(inputs.half(), [rows, rows, 4], (state[0].half(), state[1]), half, 0.5, 0.4)
    exact = [LstmWeights(*(x.float() for x in own)) for own in half]
    arguments = inputs.half().float(), [rows, rows, 4], (state[0].half().float(), state[1]), exact
    expected, _ = reference(*arguments, 0.5, 0.4)
    assert lstm_of(ran) == [name(kind)]
    assert result.dtype == torch.float16
    assert (result - expected).abs().max() <= 2**-11 * expected.abs().max()  # one rounding, at the end


@pytest.mark.parametrize("kind", [KINDS["bfloat16 on tiles"]], ids=["tiles"])
def test_products_of_pytorch_may_use_the_tiles_in_between(kind, ran):
    inputs, state, weights = random_layer([9] * 4, kind.dtype, sizes=SIZES)
    x = torch.randn(70, 90, dtype=torch.bfloat16)
    expected, product = bilstm_layer(inputs, [9] * 4, state, weights)[0], x @ x.T
    for _ in range(3):
        assert torch.equal(x @ x.T, product)
        assert torch.equal(bilstm_layer(inputs, [9] * 4, state, weights)[0], expected)


@pytest.mark.parametrize("kind", [KINDS["small batch"]], ids=["small batch"])
def test_small_batches_without_onednn(kind, ran):
    arguments = with_sizes(random_layer([2, 1], sizes=SIZES), [2, 1])
    with torch.backends.mkldnn.flags(enabled=False):
        assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert lstm_of(ran) == ["small-batch"]
