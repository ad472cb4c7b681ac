"""Many rows in C, products and cells at the same time: equal to the reference, whatever the machine multiplies with."""

from typing import NamedTuple

import pytest
import torch

from hf_elmo import kernels
from hf_elmo.kernels import cpu_fused, native
from hf_elmo.lstm_elmo import LstmCall, bilstm_layer
from tests.lstm_layers import CHANGES, CLIPS, assert_near, flat, random_layer, reference

pytestmark = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))

SIZES = 32, 128, 96  # input, P and C: blocks that are full, all different
BATCHES = {
    "fewest rows": [8] * 3,
    "one tile": [16, 16],
    "rows ending": [37, 37, 20, 17, 16, 9, 8, 1],
    "one word": [19],
}
# The backend and its kind of product, the type of its inputs, and the error that it may have.
KINDS = {
    "float32": ("fused", "f32", torch.float32, 3e-6),
    "pairs of bfloat16": ("fused-tiles", "split_tiles", torch.float32, 6e-5),
    "bfloat16": ("fused", "bf16", torch.bfloat16, 2e-2),
    "bfloat16 on tiles": ("fused-tiles", "bf16_tiles", torch.bfloat16, 2e-2),
}


class Kind(NamedTuple):
    """A kind of product that this machine has."""

    backend: str
    name: str
    dtype: torch.dtype
    tolerance: float
    ran: list  # what ran, where only this backend is on


def why_not(backend: str, dtype: torch.dtype) -> str | None:
    """Why a call that suits the backend is refused on this machine."""
    inputs, state, weights = random_layer([9, 8], dtype, sizes=SIZES)
    chosen = next(one for one in kernels.BACKENDS["lstm"] if one.name == backend)
    return chosen.supports(LstmCall(inputs, [9, 8], *state, weights, None, None))


def unsupported() -> dict[str, str]:
    """The kinds of product that this machine has not, and why."""
    precision, reasons = torch.get_float32_matmul_precision(), {}
    torch.set_float32_matmul_precision("high")  # asks for pairs of bfloat16
    for label, (backend, _, dtype, _) in KINDS.items():
        if native.library() is not None and (reason := why_not(backend, dtype)) is not None:
            reasons[label] = reason
    torch.set_float32_matmul_precision(precision)
    return reasons


MISSING = unsupported()


@pytest.mark.parametrize("label", sorted(MISSING) or [None])
def test_every_kind_of_product_runs_here(label):
    """Not so where the processor lacks instructions: then the summary lists the kinds that the others leave out."""
    if label is not None:
        pytest.skip(f"{label}: {MISSING[label]}")


@pytest.fixture(params=[label for label in KINDS if label not in MISSING])
def kind(request) -> Kind:
    """Each kind of product that this machine has."""
    backend, name, dtype, tolerance = KINDS[request.param]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "split_tiles" else "highest")
    with kernels.use(backend), kernels.record() as ran:
        yield Kind(backend, name, dtype, tolerance, ran)
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
def test_equals_reference(kind, batch_sizes, clips):
    inputs, state, weights = random_layer(batch_sizes, kind.dtype, sizes=SIZES)
    before = [part.clone() for part in state]
    found = flat(bilstm_layer(inputs, batch_sizes, state, weights, *clips))
    assert_near(found, flat(reference(inputs, batch_sizes, state, weights, *clips)), kind.tolerance)
    assert kind.ran == [("lstm", kind.backend)]
    assert all(torch.equal(part, was) for part, was in zip(state, before, strict=True))


@pytest.mark.parametrize("directions", [1, 3])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_any_number_of_directions_groups_and_threads(kind, threads, monkeypatch, directions, number):
    monkeypatch.setattr(cpu_fused, "GROUP_ROWS", 16)
    threads(number)
    sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(sizes, kind.dtype, directions, sizes=SIZES)
    arguments = inputs, sizes, state, weights, 0.5, 0.4
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    assert len(kind.ran) == 1


def test_from_how_many_rows_on(kind):
    fewest = cpu_fused.FEWEST_ROWS[kind.name]
    for rows in (fewest, fewest - 1):
        inputs, state, weights = random_layer([rows] * 4, kind.dtype, sizes=SIZES)
        arguments = inputs, [rows] * 4, state, weights, 0.5, 0.4
        assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    assert len(kind.ran) == 1


def test_sums_of_more_numbers_than_are_added_at_a_time(kind):
    sizes = [18, 11, 9]
    inputs, state, weights = random_layer(sizes, kind.dtype, sizes=(224, 192, 320))
    arguments = inputs, sizes, state, weights, 0.5, 0.4
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)


def test_a_row_gives_the_same_bits_among_others(kind):
    inputs, state, weights = random_layer([40] * 4, kind.dtype, sizes=SIZES)
    whole = bilstm_layer(inputs, [40] * 4, state, weights, 0.5, 0.4)[0].unflatten(1, (4, 40))
    rows = slice(21, 30)
    some = inputs.unflatten(1, (4, 40))[:, :, rows].flatten(1, 2)
    alone = bilstm_layer(some, [9] * 4, tuple(part[:, rows] for part in state), weights, 0.5, 0.4)[0]
    assert torch.equal(alone.unflatten(1, (4, 9)), whole[:, :, rows])


def test_nan_propagates_and_stays_in_its_row(kind):
    inputs, state, weights = random_layer([10] * 3, kind.dtype, sizes=SIZES)
    right = bilstm_layer(inputs, [10] * 3, state, weights, 0.5, 0.4)[0].unflatten(1, (3, 10))
    inputs[:, 10 + 4, 7] = torch.nan
    found = bilstm_layer(inputs, [10] * 3, state, weights, 0.5, 0.4)[0].unflatten(1, (3, 10))
    assert found[:, 1:, 4].isnan().all()
    others = torch.arange(10) != 4
    assert torch.equal(found[:, :, others], right[:, :, others])


def test_gates_far_from_zero(kind):
    inputs, state, weights = random_layer([9] * 4, kind.dtype, sizes=SIZES)
    for own in weights:
        own.bias.mul_(1000)
    arguments = inputs, [9] * 4, state, weights, None, None
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)


def test_beside_products_of_the_library(kind):
    """Both use the machine's tiles, whose shape is a state of the thread."""
    inputs, state, weights = random_layer([9] * 4, kind.dtype, sizes=SIZES)
    x = torch.randn(70, 90, dtype=torch.bfloat16)
    expected, product = bilstm_layer(inputs, [9] * 4, state, weights)[0], x @ x.T
    for _ in range(3):
        assert torch.equal(x @ x.T, product)
        assert torch.equal(bilstm_layer(inputs, [9] * 4, state, weights)[0], expected)


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias", "weight_hr"])
@pytest.mark.parametrize("change", CHANGES)
def test_follows_the_weights(kind, name, change):
    layer = random_layer([9, 8], kind.dtype, sizes=SIZES)
    arguments = layer[0], [9, 8], *layer[1:]
    bilstm_layer(*arguments)
    change(getattr(layer[2][1], name))
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    assert len(kind.ran) == 2


@pytest.mark.skipif("pairs of bfloat16" in MISSING, reason=MISSING.get("pairs of bfloat16", ""))
@pytest.mark.parametrize("kind", ["pairs of bfloat16"], indirect=True)
def test_pairs_of_bfloat16_are_far_nearer_than_single_ones(kind):
    inputs, state, weights = random_layer([12] * 5, torch.float32, sizes=SIZES)
    exact = reference(inputs.double(), [12] * 5, tuple(x.double() for x in state), double(weights))[0]
    pairs = bilstm_layer(inputs, [12] * 5, state, weights)[0]
    with torch.autocast("cpu", torch.bfloat16):
        single = bilstm_layer(inputs, [12] * 5, state, weights)[0]
    assert (pairs - exact).abs().max() < (single - exact).abs().max() / 100


def double(weights):
    return [type(own)(*(x.double() for x in own)) for own in weights]


@pytest.mark.parametrize("sizes", [(31, 64, 96), (32, 65, 96), (32, 64, 80)], ids=["input", "P", "C"])
def test_sizes_that_fill_no_blocks_go_another_way(kind, sizes):
    layer = random_layer([9, 8], kind.dtype, sizes=sizes)
    arguments = layer[0], [9, 8], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    assert not kind.ran


def test_layers_without_projection_go_another_way(kind):
    layer = random_layer([9, 8], kind.dtype, projected=False, sizes=SIZES)
    arguments = layer[0], [9, 8], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind.tolerance)
    assert not kind.ran


def test_whatever_the_default_device_is(kind):
    layer = random_layer([12, 12], kind.dtype, sizes=SIZES)
    arguments = layer[0], [12, 12], *layer[1:], 0.5, 0.4
    expected = flat(bilstm_layer(*arguments))
    with torch.device("meta"):
        found = flat(bilstm_layer(*arguments))
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    assert len(kind.ran) == 2


def test_after_pytorchs_newer_settings_of_precision(monkeypatch):
    """Where these differ between libraries, PyTorch refuses to name one precision."""

    def mixed():
        raise RuntimeError("PyTorch is checking whether allow_tf32_new is enabled ... mix of the legacy and new APIs")

    layer = random_layer([9, 8], sizes=SIZES)
    arguments = layer[0], [9, 8], *layer[1:], 0.5, 0.4
    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
