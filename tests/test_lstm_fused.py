"""Many rows in C, products and cells at the same time: equal to the reference, whatever the machine multiplies with."""

import functools

import pytest
import torch

from hf_elmo import lstm_cpu_elmo, lstm_fused_c_elmo
from hf_elmo.c_library_elmo import compile_library
from hf_elmo.lstm_elmo import bilstm_layer
from tests.test_lstm import CLIPS, assert_near, changed_in_place, changed_through_data, random_layer, reference
from tests.test_lstm_few import flat

library = lstm_fused_c_elmo.load()
pytestmark = pytest.mark.skipif(library is None, reason="no C compiler, or no AVX-512 here")

SIZES = 32, 128, 96  # input, P and C: blocks that are full, all different
BATCHES = {
    "fewest rows": [8] * 3,
    "one tile": [16, 16],
    "rows ending": [37, 37, 20, 17, 16, 9, 8, 1],
    "one word": [19],
}
KINDS = {
    "float32": ("f32", torch.float32, 3e-6),
    "pairs of bfloat16": ("split", torch.float32, 6e-5),
    "bfloat16": ("bf16", torch.bfloat16, 2e-2),
    "bfloat16 without tiles": ("bf16", torch.bfloat16, 2e-2),
}


@functools.cache
def library_without_tiles():
    if not library.has_tiles:
        return library
    source, flag = lstm_fused_c_elmo.SOURCE, lstm_fused_c_elmo.WITHOUT_TILES
    return lstm_fused_c_elmo.declare(compile_library(source, flag))


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch) -> tuple[str, torch.dtype, float]:
    """Each kind of product that this machine has: its name, the type of its inputs, and the error that it may have."""
    name, dtype, tolerance = KINDS[request.param]
    if "without tiles" in request.param:
        monkeypatch.setattr(lstm_fused_c_elmo, "load", library_without_tiles)
    if not hasattr(lstm_fused_c_elmo.load(), f"layer_{name}"):
        pytest.skip("this machine has no such instructions")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "split" else "highest")
    yield name, dtype, tolerance
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """The kind of product, at each time that the C code ran."""
    seen, run_layer = [], lstm_fused_c_elmo.run_layer

    def counted(kind, *arguments):
        seen.append(kind)
        run_layer(kind, *arguments)

    monkeypatch.setattr(lstm_cpu_elmo, "run_layer", counted)
    return seen


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
def test_equals_reference(kind, calls, batch_sizes, clips):
    name, dtype, tolerance = kind
    inputs, state, weights = random_layer(batch_sizes, dtype, sizes=SIZES)
    before = [part.clone() for part in state]
    found = flat(bilstm_layer(inputs, batch_sizes, state, weights, *clips))
    assert_near(found, flat(reference(inputs, batch_sizes, state, weights, *clips)), tolerance)
    assert calls == [name]
    assert all(torch.equal(part, was) for part, was in zip(state, before, strict=True))


@pytest.mark.parametrize("directions", [1, 3])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_any_number_of_directions_groups_and_threads(kind, calls, threads, monkeypatch, directions, number):
    monkeypatch.setattr(lstm_fused_c_elmo, "GROUP_ROWS", 16)
    threads(number)
    sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(sizes, kind[1], directions, sizes=SIZES)
    arguments = inputs, sizes, state, weights, 0.5, 0.4
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind[2])
    assert len(calls) == 1


def test_from_how_many_rows_on(kind, calls):
    fewest = lstm_fused_c_elmo.FEWEST_ROWS[kind[0]]
    for rows in (fewest, fewest - 1):
        inputs, state, weights = random_layer([rows] * 4, kind[1], sizes=SIZES)
        arguments = inputs, [rows] * 4, state, weights, 0.5, 0.4
        assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind[2])
    assert calls == [kind[0]]


def test_sums_of_more_numbers_than_are_added_at_a_time(kind):
    sizes = [18, 11, 9]
    inputs, state, weights = random_layer(sizes, kind[1], sizes=(224, 192, 320))
    arguments = inputs, sizes, state, weights, 0.5, 0.4
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind[2])


def test_a_row_gives_the_same_bits_among_others(kind):
    inputs, state, weights = random_layer([40] * 4, kind[1], sizes=SIZES)
    whole = bilstm_layer(inputs, [40] * 4, state, weights, 0.5, 0.4)[0].unflatten(1, (4, 40))
    rows = slice(21, 30)
    some = inputs.unflatten(1, (4, 40))[:, :, rows].flatten(1, 2)
    alone = bilstm_layer(some, [9] * 4, tuple(part[:, rows] for part in state), weights, 0.5, 0.4)[0]
    assert torch.equal(alone.unflatten(1, (4, 9)), whole[:, :, rows])


def test_what_is_no_number_stays_none_and_in_its_row(kind):
    inputs, state, weights = random_layer([10] * 3, kind[1], sizes=SIZES)
    right = bilstm_layer(inputs, [10] * 3, state, weights, 0.5, 0.4)[0].unflatten(1, (3, 10))
    inputs[:, 10 + 4, 7] = torch.nan
    found = bilstm_layer(inputs, [10] * 3, state, weights, 0.5, 0.4)[0].unflatten(1, (3, 10))
    assert found[:, 1:, 4].isnan().all()
    others = torch.arange(10) != 4
    assert torch.equal(found[:, :, others], right[:, :, others])


def test_gates_far_from_zero(kind):
    inputs, state, weights = random_layer([9] * 4, kind[1], sizes=SIZES)
    for own in weights:
        own.bias.mul_(1000)
    arguments = inputs, [9] * 4, state, weights, None, None
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), kind[2])


def test_beside_products_of_the_library(kind):
    """Both use the machine's tiles, whose shape is a state of the thread."""
    inputs, state, weights = random_layer([9] * 4, kind[1], sizes=SIZES)
    x = torch.randn(70, 90, dtype=torch.bfloat16)
    expected, product = bilstm_layer(inputs, [9] * 4, state, weights)[0], x @ x.T
    for _ in range(3):
        assert torch.equal(x @ x.T, product)
        assert torch.equal(bilstm_layer(inputs, [9] * 4, state, weights)[0], expected)


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias", "weight_hr"])
@pytest.mark.parametrize("change", [changed_in_place, changed_through_data])
def test_follows_the_weights(calls, name, change):
    layer = random_layer([9, 8], sizes=SIZES)
    arguments = layer[0], [9, 8], *layer[1:]
    bilstm_layer(*arguments)
    change(getattr(layer[2][1], name))
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert len(calls) == 2


@pytest.mark.skipif(library is None or not library.has_tiles, reason="no tiles here")
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
def test_sizes_that_fill_no_blocks_go_another_way(calls, sizes):
    layer = random_layer([9, 8], sizes=sizes)
    arguments = layer[0], [9, 8], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert not calls


def test_layers_without_projection_and_machines_without_a_compiler_go_another_way(calls, monkeypatch):
    layer = random_layer([9, 8], projected=False, sizes=SIZES)
    arguments = layer[0], [9, 8], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    monkeypatch.setenv("HF_ELMO_C_CELL", "0")
    monkeypatch.setattr(lstm_fused_c_elmo, "load", lstm_fused_c_elmo.load.__wrapped__)
    layer = random_layer([9, 8], sizes=SIZES)
    arguments = layer[0], [9, 8], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert not calls


def bad_layers(rows):
    """What does not fit together, by what the error names."""
    inputs, (h, c), weights = random_layer([rows, rows], sizes=SIZES)
    first, second = weights
    yield "c", (inputs, (h, c[:, : rows - 1]), weights)
    yield "c", (inputs, (h, c.to("meta")), weights)
    yield "h", (inputs, (h[:1], c), weights)
    yield "weight_hh of direction 0", (inputs, (h[:, :, 1:], c), weights)
    yield "weight_ih of direction 0", (inputs[:, :, 1:], (h, c), weights)
    yield "bias of direction 1", (inputs, (h, c), [first, second._replace(bias=second.bias[:1])])
    yield "weight_hr of direction 1", (inputs, (h, c), [first, second._replace(weight_hr=second.weight_hr.to("meta"))])
    yield "weights for 1", (inputs, (h, c), [first])


@pytest.mark.parametrize("rows", [12, 2])
def test_what_does_not_fit_is_refused(rows):
    for name, (inputs, state, weights) in bad_layers(rows):
        with pytest.raises(ValueError, match=name):
            bilstm_layer(inputs, [rows, rows], state, weights)


@pytest.mark.parametrize("rows", [12, 2])
def test_whatever_the_default_device_is(rows):
    layer = random_layer([rows, rows], sizes=SIZES)
    arguments = layer[0], [rows, rows], *layer[1:], 0.5, 0.4
    expected = flat(bilstm_layer(*arguments))
    with torch.device("meta"):
        found = flat(bilstm_layer(*arguments))
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def test_after_pytorchs_newer_settings_of_precision(monkeypatch):
    """Where these differ between libraries, PyTorch refuses to name one precision."""

    def mixed():
        raise RuntimeError("PyTorch is checking whether allow_tf32_new is enabled ... mix of the legacy and new APIs")

    layer = random_layer([9, 8], sizes=SIZES)
    arguments = layer[0], [9, 8], *layer[1:], 0.5, 0.4
    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
