"""Few rows in C: each thread runs a direction by itself, equal to the reference."""

import pytest
import torch

from hf_elmo import lstm_cpu_elmo, lstm_few_c_elmo
from hf_elmo.lstm_elmo import bilstm_layer
from tests.test_lstm import CLIPS, assert_near, changed_in_place, changed_through_data, reference
from tests.test_lstm import random_layer as layer_of_any_size

pytestmark = pytest.mark.skipif(lstm_few_c_elmo.load() is None, reason="no C compiler here")

# Sizes that fill whole blocks, all different.
INPUT, PROJECTED, CELL = 13, 64, 48
BATCHES = {
    "one row": [1] * 5,
    "one word": [1],
    "rows ending": [7, 7, 4, 3, 1, 1],
    "two directions of a window": [3] * 4,
}


@pytest.fixture
def calls(monkeypatch) -> list[list[int]]:
    """The sizes of the steps, at each time that the C code ran some."""
    seen, run_few = [], lstm_few_c_elmo.run_few

    def counted(sizes, *arguments):
        seen.append(sizes)
        run_few(sizes, *arguments)

    monkeypatch.setattr(lstm_cpu_elmo, "run_few", counted)
    return seen


def random_layer(batch_sizes, dtype=torch.float32, directions=2, projected=True, cell=CELL):
    return layer_of_any_size(batch_sizes, dtype, directions, projected, sizes=(INPUT, PROJECTED, cell))


def flat(result):
    outputs, state = result
    return [outputs, *state]


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "unprojected"])
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.bfloat16, 2e-2)])
def test_equals_reference(calls, dtype, tolerance, batch_sizes, projected, clips):
    cell = CELL if projected else 64
    inputs, state, weights = random_layer(batch_sizes, dtype, projected=projected, cell=cell)
    before = [part.clone() for part in state]
    found = flat(bilstm_layer(inputs, batch_sizes, state, weights, *clips))
    assert_near(found, flat(reference(inputs, batch_sizes, state, weights, *clips)), tolerance)
    assert calls == [batch_sizes]
    assert all(torch.equal(part, was) for part, was in zip(state, before, strict=True))


@pytest.mark.parametrize("directions", [1, 3])
def test_any_number_of_directions(calls, directions):
    layer = random_layer([2, 2, 1], directions=directions)
    arguments = layer[0], [2, 2, 1], *layer[1:], 0.5, 0.4
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert calls


def test_in_pieces_of_many_words(calls, monkeypatch):
    monkeypatch.setattr(lstm_cpu_elmo, "CHUNK_ROWS", 4)
    layer = random_layer([3, 3, 3, 2, 1, 1])
    arguments = layer[0], [3, 3, 3, 2, 1, 1], *layer[1:], 0.5, 0.4
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert calls == [[3, 3], [3, 2], [1, 1]]


def test_one_thread_for_each_direction(calls, threads):
    layer = random_layer([2, 1])
    arguments = layer[0], [2, 1], *layer[1:]
    threads(2)
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert len(calls) == 1
    threads(3)  # would have nothing to do
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias", "weight_hr"])
@pytest.mark.parametrize("change", [changed_in_place, changed_through_data])
def test_follows_the_weights(calls, name, change):
    layer = random_layer([2, 1])
    arguments = layer[0], [2, 1], *layer[1:]
    bilstm_layer(*arguments)
    change(getattr(layer[2][1], name))
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert len(calls) == 2


def test_sizes_that_fill_no_blocks_and_machines_without_a_compiler_go_another_way(calls, monkeypatch):
    layer = random_layer([2, 1], cell=50)
    arguments = layer[0], [2, 1], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    monkeypatch.setenv("HF_ELMO_C_CELL", "0")
    monkeypatch.setattr(lstm_few_c_elmo, "load", lstm_few_c_elmo.load.__wrapped__)
    layer = random_layer([2, 1])
    arguments = layer[0], [2, 1], *layer[1:]
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert not calls
