"""Inference on packed weights: equal to the reference, for any size and type that oneDNN multiplies."""

import pytest
import torch

from hf_elmo import kernels
from hf_elmo.kernels import cpu_packed, native
from hf_elmo.lstm_elmo import bilstm_layer
from tests.lstm_layers import CHANGES, CLIPS, assert_near, flat, random_layer, reference

pytestmark = pytest.mark.skipif(
    cpu_packed.why_not_packed(torch.zeros(1)) is not None, reason=str(cpu_packed.why_not_packed(torch.zeros(1)))
)

BATCHES = {
    "one step": [8],
    "fewest rows": [8, 8, 8],
    "rows ending": [20, 20, 9, 8, 7, 1, 1],
    "many rows": [131, 131, 130],
}


@pytest.fixture(params=["cell in C", "cell of PyTorch"], autouse=True)
def ran(request) -> list[tuple[str, str]]:
    """What ran, where only this backend is on."""
    if request.param == "cell in C" and native.library() is None:
        pytest.skip(native.reason())
    names = ["packed", "cell-c"] if request.param == "cell in C" else ["packed"]
    with kernels.use(*names), kernels.record() as ran:
        yield ran


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "unprojected"])
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.bfloat16, 2e-2)], ids=["f32", "bf16"])
def test_equals_reference(ran, dtype, tolerance, batch_sizes, projected, clips):
    inputs, state, weights = random_layer(batch_sizes, dtype, projected=projected)
    if cpu_packed.why_not_packed(inputs) is not None:
        pytest.skip(cpu_packed.why_not_packed(inputs))
    before = [part.clone() for part in state]
    found = flat(bilstm_layer(inputs, batch_sizes, state, weights, *clips))
    assert_near(found, flat(reference(inputs, batch_sizes, state, weights, *clips)), tolerance)
    assert ran[0] == ("lstm", "packed")
    assert all(torch.equal(part, was) for part, was in zip(state, before, strict=True))


def test_fewer_rows_go_another_way(ran):
    layer = random_layer([7, 7])
    arguments = layer[0], [7, 7], *layer[1:], 0.5, 0.4
    assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert not ran


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias", "weight_hr"])
def test_follows_the_weights(ran, name, change):
    rows = 20
    inputs, state, weights = random_layer([rows] * 4)
    before = bilstm_layer(inputs, [rows] * 4, state, weights)[0]
    change(getattr(weights[1], name))
    after = bilstm_layer(inputs, [rows] * 4, state, weights)[0]
    torch.testing.assert_close(after, reference(inputs, [rows] * 4, state, weights)[0], rtol=0, atol=1e-6)
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1])
    assert {backend for operation, backend in ran if operation == "lstm"} == {"packed"}


def test_float16_is_computed_in_float32(ran):
    inputs, state, weights = random_layer([9, 9, 4])
    half = [type(own)(*(x.half() for x in own)) for own in weights]
    found, _ = bilstm_layer(inputs.half(), [9, 9, 4], (state[0].half(), state[1]), half, 0.5, 0.4)
    exact = [type(own)(*(x.float() for x in own)) for own in half]
    expected, _ = reference(inputs.half().float(), [9, 9, 4], (state[0].half().float(), state[1]), exact, 0.5, 0.4)
    assert ran[0] == ("lstm", "packed")
    assert found.dtype == torch.float16
    assert (found - expected).abs().max() <= 2**-11 * expected.abs().max()  # one rounding, at the end
