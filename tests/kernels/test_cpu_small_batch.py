"""A small batch in C: equal to the reference, for any number of directions and threads."""

import pytest
import torch

from hf_elmo import kernels
from hf_elmo.kernels import cpu_small_batch, native
from hf_elmo.lstm_elmo import bilstm_layer
from tests.lstm_layers import CHANGES, CLIPS, assert_near, flat, reference
from tests.lstm_layers import random_layer as layer_of_any_size

pytestmark = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))

# Sizes that fill whole blocks, all different.
INPUT, PROJECTED, CELL = 13, 64, 48
BATCHES = {
    "one row": [1] * 5,
    "one word": [1],
    "rows ending": [7, 7, 4, 3, 1, 1],
    "two directions of a window": [3] * 4,
}


RAN = [("lstm", "small-batch")]


@pytest.fixture(autouse=True)
def ran() -> list[tuple[str, str]]:
    """What ran, where only this backend is on."""
    with kernels.use("small-batch"), kernels.record() as ran:
        yield ran


def random_layer(batch_sizes, dtype=torch.float32, directions=2, projected=True, cell=CELL):
    return layer_of_any_size(batch_sizes, dtype, directions, projected, sizes=(INPUT, PROJECTED, cell))


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "unprojected"])
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.bfloat16, 2e-2)])
def test_equals_reference(ran, dtype, tolerance, batch_sizes, projected, clips):
    cell = CELL if projected else 64
    inputs, state, weights = random_layer(batch_sizes, dtype, projected=projected, cell=cell)
    before = [part.clone() for part in state]
    found = flat(bilstm_layer(inputs, batch_sizes, state, weights, *clips))
    assert_near(found, flat(reference(inputs, batch_sizes, state, weights, *clips)), tolerance)
    assert ran == RAN
    assert all(torch.equal(part, was) for part, was in zip(state, before, strict=True))


@pytest.mark.parametrize("directions", [1, 3])
def test_any_number_of_directions(ran, directions):
    layer = random_layer([2, 2, 1], directions=directions)
    arguments = layer[0], [2, 2, 1], *layer[1:], 0.5, 0.4
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert ran == RAN


def test_in_pieces_of_many_words(ran):
    sizes = [7] * 40 + [3] * 20 + [1]
    layer = random_layer(sizes)
    arguments = layer[0], sizes, *layer[1:], 0.5, 0.4
    assert sum(sizes) > cpu_small_batch.WORDS_AT_ONCE
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert ran == RAN


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("directions", [1, 2, 3])
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "unprojected"])
def test_any_number_of_threads_gives_the_same_bits(ran, threads, number, directions, projected):
    """Fewer than directions, as many, several for each, and some that have nothing to do."""
    layer = random_layer([3, 2, 2, 1], directions=directions, projected=projected, cell=CELL if projected else 64)
    arguments = layer[0], [3, 2, 2, 1], *layer[1:], 0.5, 0.4
    threads(1)
    expected = flat(bilstm_layer(*arguments))
    threads(number)
    assert all(torch.equal(x, y) for x, y in zip(flat(bilstm_layer(*arguments)), expected, strict=True))
    assert_near(expected, flat(reference(*arguments)), 3e-6)
    assert ran == 2 * RAN


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias", "weight_hr"])
@pytest.mark.parametrize("change", CHANGES)
def test_follows_the_weights(ran, name, change):
    layer = random_layer([2, 1])
    arguments = layer[0], [2, 1], *layer[1:]
    bilstm_layer(*arguments)
    change(getattr(layer[2][1], name))
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert ran == 2 * RAN


def test_nan_propagates_and_stays_in_its_row(ran):
    inputs, state, weights = random_layer([3] * 3)
    right = bilstm_layer(inputs, [3] * 3, state, weights, 0.5, 0.4)[0].unflatten(1, (3, 3))
    inputs[:, 3 + 1, 7] = torch.nan
    found = bilstm_layer(inputs, [3] * 3, state, weights, 0.5, 0.4)[0].unflatten(1, (3, 3))
    assert found[:, 1:, 1].isnan().all()
    assert torch.equal(found[:, :, [0, 2]], right[:, :, [0, 2]])
    assert ran == 2 * RAN


def test_where_onednn_is_off(ran):
    layer = random_layer([2, 1])
    arguments = layer[0], [2, 1], *layer[1:], 0.5, 0.4
    with torch.backends.mkldnn.flags(enabled=False):
        found = flat(bilstm_layer(*arguments))
    assert_near(found, flat(reference(*arguments)), 3e-6)
    assert ran == RAN


def test_what_it_does_not_take_goes_another_way(ran):
    layer = random_layer([2, 1], cell=50)  # fills no blocks
    arguments = layer[0], [2, 1], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    layer = random_layer([8, 1])  # many rows
    arguments = layer[0], [8, 1], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert not ran
