"""The recurrence: every faster way against `lstm_layer_reference`, in outputs, final state and gradients."""

import copy
import gc
import pickle
import threading
from itertools import accumulate, pairwise

import pytest
import torch
import torch._dynamo.testing
from torch.utils.checkpoint import checkpoint

from hf_elmo import lstm_c_elmo, lstm_elmo, lstm_packed_elmo
from hf_elmo.lstm_c_elmo import c_cell
from hf_elmo.lstm_cell_elmo import TORCH_CELL
from hf_elmo.lstm_elmo import LstmWeights, bilstm_layer, lstm_layer, lstm_layer_reference
from hf_elmo.lstm_scan_elmo import bilstm_layer_padded

INPUT, PROJECTED, CELL = 7, 5, 11
BATCHES = {
    "one word": [1],
    "one step": [3],
    "one row": [1, 1, 1, 1],
    "rows ending": [6, 6, 4, 3, 3, 1],
    "window": [4, 4, 4],
}
CLIPS = {"no clip": (None, None), "both clips": (0.5, 0.4), "cell clip": (0.5, None), "projection clip": (None, 0.3)}
# Relative to the largest value of a tensor: a few roundings of the type. A bfloat16 has 8 bits, and a value that it
# puts on the other side of a clip changes a gradient altogether: it is compared without clips, float32 with them.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.bfloat16: 4e-2}

needs_c = pytest.mark.skipif(lstm_c_elmo.load() is None, reason="no C compiler here")


@pytest.fixture(params=[pytest.param("c", marks=needs_c), "torch"])
def cell(request, monkeypatch) -> str:
    """Each backend of the cell in turn."""
    if request.param == "torch":
        monkeypatch.setattr(lstm_elmo, "c_cell", lambda gates, state: None)
    return request.param


def random_layer(
    batch_sizes, dtype=torch.float32, directions=2, projected=True, seed=0, sizes=(INPUT, PROJECTED, CELL)
):
    """Inputs, state and weights, large enough that the clips above take part. `sizes`: input, P and C."""
    torch.manual_seed(seed)
    width, size, cell = sizes
    size = size if projected else cell
    state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    inputs = torch.randn(directions, sum(batch_sizes), width, dtype=dtype)
    state = (
        0.5 * torch.randn(directions, batch_sizes[0], size, dtype=dtype),
        torch.randn(directions, batch_sizes[0], cell, dtype=state_dtype),
    )
    weights = [
        LstmWeights(
            0.8 * width**-0.5 * torch.randn(4 * cell, width, dtype=dtype),
            0.9 * size**-0.5 * torch.randn(4 * cell, size, dtype=dtype),
            0.3 * torch.randn(4 * cell, dtype=dtype),
            1.6 * cell**-0.5 * torch.randn(size, cell, dtype=dtype) if projected else None,
        )
        for _ in range(directions)
    ]
    return inputs, state, weights


def reference(inputs, batch_sizes, state, weights, cell_clip=None, proj_clip=None):
    """`bilstm_layer` by `lstm_layer_reference`, one direction after the other."""
    layers = [
        lstm_layer_reference(x, batch_sizes, (h, c), *w, cell_clip, proj_clip)
        for x, h, c, w in zip(inputs, *state, weights, strict=True)
    ]
    outputs, states = zip(*layers, strict=True)
    return torch.stack(outputs), tuple(torch.stack(parts) for parts in zip(*states, strict=True))


def everything(function, inputs, batch_sizes, state, weights, *clips):
    """Outputs, final state, and the gradients of inputs, state and weights for a random loss over all of the former."""
    leaves = [inputs, *state, *(tensor for w in weights for tensor in w if tensor is not None)]
    leaves = [tensor.detach().clone().requires_grad_() for tensor in leaves]
    inputs, h, c, *rest = leaves
    rest = iter(rest)
    weights = [LstmWeights(*(None if tensor is None else next(rest) for tensor in w)) for w in weights]
    outputs, state = function(inputs, batch_sizes, (h, c), weights, *clips)
    generator = torch.Generator().manual_seed(1)
    results = outputs, *state
    loss = sum((x.double() * torch.randn(x.shape, generator=generator, dtype=torch.float64)).sum() for x in results)
    return [x.detach() for x in results] + list(torch.autograd.grad(loss, leaves))


def assert_near(found, expected, tolerance):
    """Each tensor of one type, and within `tolerance` of the largest expected value."""
    assert [x.dtype for x in found] == [x.dtype for x in expected]
    errors = [
        ((x - y).abs().max() / y.abs().max().clamp(min=1e-6)).item() for x, y in zip(found, expected, strict=True)
    ]
    assert max(errors) <= tolerance, errors


@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "unprojected"])
@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_equals_reference(cell, dtype, batch_sizes, projected, clips):
    layer = random_layer(batch_sizes, dtype, projected=projected)
    arguments = layer[0], batch_sizes, *layer[1:], *clips
    assert_near(everything(bilstm_layer, *arguments), everything(reference, *arguments), TOLERANCE[dtype])


@pytest.mark.parametrize("batch_sizes", BATCHES.values(), ids=BATCHES)
def test_one_direction_equals_reference(batch_sizes):
    inputs, state, weights = random_layer(batch_sizes, directions=1)

    def one(inputs, batch_sizes, state, weights, *clips):
        outputs, (h, c) = lstm_layer(inputs[0], batch_sizes, (state[0][0], state[1][0]), *weights[0], *clips)
        return outputs[None], (h[None], c[None])

    arguments = inputs, batch_sizes, state, weights, 0.5, 0.4
    assert_near(everything(one, *arguments), everything(reference, *arguments), TOLERANCE[torch.float32])


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "bfloat16 weights"])
def test_bfloat16_products_and_float32_state(cell, autocast):
    """As near to float32 as the reference in bfloat16 is, and in its types."""
    batch_sizes = BATCHES["rows ending"]
    layer = random_layer(batch_sizes, torch.bfloat16)
    exact = everything(reference, *(x.float() for x in layer[:1]), batch_sizes, *as_float32(*layer[1:]))
    if autocast:
        layer = layer[0].float(), *as_float32(*layer[1:])
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = everything(bilstm_layer, layer[0], batch_sizes, *layer[1:])
        slow = everything(reference, layer[0], batch_sizes, *layer[1:])
    assert found[0].dtype == torch.bfloat16
    assert found[2].dtype == torch.float32
    assert_near(found, slow, TOLERANCE[torch.bfloat16])
    assert_near([x.float() for x in found], exact, TOLERANCE[torch.bfloat16])


def as_float32(state, weights):
    return tuple(x.float() for x in state), [LstmWeights(*(x.float() for x in w)) for w in weights]


def test_float16(cell):
    batch_sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(batch_sizes)
    half = [LstmWeights(*(x.half() for x in w)) for w in weights]
    found = everything(bilstm_layer, inputs.half(), batch_sizes, (state[0].half(), state[1]), half)
    exact = everything(reference, inputs, batch_sizes, state, weights)
    assert found[0].dtype == torch.float16
    assert_near([x.float() for x in found], exact, 1e-2)


def test_gradient_passes_at_the_clip_and_not_beyond(cell):
    """A full forget gate and an empty input gate carry a cell that stands exactly at the bound: as `torch.clamp`."""
    saturated = torch.tensor([-200.0, 200.0, 0.0, 0.0]).repeat_interleave(CELL)
    weights = [LstmWeights(torch.zeros(4 * CELL, INPUT), torch.zeros(4 * CELL, CELL), saturated, None)]
    c = torch.linspace(-1, 1, CELL).reshape(1, 1, CELL).requires_grad_()
    bound = c[0, 0, -2].item()
    _, (_, last) = bilstm_layer(torch.zeros(1, 2, INPUT), [1, 1], (torch.zeros(1, 1, CELL), c), weights, bound)
    last.sum().backward()
    assert c.grad.flatten().tolist() == [0.0] + [1.0] * (CELL - 2) + [0.0]


@needs_c
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
    for backend in (c_cell(gates, before), TORCH_CELL):
        cells, hidden = torch.empty(directions, 5, size)[:, 1:4], torch.empty(directions, rows, size, dtype=dtype)
        total = gates.clone()
        backend.forward(total, recurrent, before, 0.9, 0.5, cells, hidden)
        carried, grad_gates = grad_cell.clone(), torch.empty(directions, rows, 4 * size, dtype=dtype)
        backend.backward(total, before, 0.9, 0.5, cells, grad_hidden, carried, grad_gates)
        found.append((total, cells, hidden, carried, grad_gates))
    for x, y in zip(*found, strict=True):
        # In C the sum of the gates' halves is rounded to bfloat16 only where it is kept, not where it is used.
        tolerance = {"rtol": 2e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 2e-6, "atol": 1e-6}
        torch.testing.assert_close(x, y, **tolerance)


@needs_c
def test_c_cell_near_zero_and_beyond_range():
    """tanh keeps its relative precision near zero; infinite gates saturate; what is not a number stays so."""
    gates = torch.tensor([0.0, 0.0, 1e-6, 0.0] + [torch.inf, -torch.inf, torch.inf, 0.0] + [torch.nan] * 4)
    gates = gates.reshape(1, 3, 4)
    cells, hidden = torch.empty(2, 1, 3, 1)
    c_cell(gates, cells).forward(gates, torch.zeros(1, 3, 4), torch.zeros(1, 3, 1), None, None, cells, hidden)
    torch.testing.assert_close(cells[0, :2, 0], torch.tensor([0.5e-6, 1.0]), rtol=1e-6, atol=0)
    assert cells[0, 2, 0].isnan()
    assert hidden[0, 2, 0].isnan()


def test_batch_of_one_equals_batch_of_many(cell):
    batch_sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(batch_sizes)
    outputs, after = bilstm_layer(inputs, batch_sizes, state, weights, 0.5, 0.4)
    starts = [start for start, _ in pairwise(accumulate(batch_sizes, initial=0))]
    for row in range(batch_sizes[0]):
        words = [start + row for start, size in zip(starts, batch_sizes, strict=True) if row < size]
        own_state = tuple(part[:, row : row + 1] for part in state)
        alone, alone_after = bilstm_layer(inputs[:, words], [1] * len(words), own_state, weights, 0.5, 0.4)
        torch.testing.assert_close(alone, outputs[:, words], rtol=0, atol=1e-6)
        torch.testing.assert_close(alone_after[0], after[0][:, row : row + 1], rtol=0, atol=1e-6)
        torch.testing.assert_close(alone_after[1], after[1][:, row : row + 1], rtol=0, atol=1e-6)


def test_same_call_twice_is_equal_to_the_bit(cell):
    batch_sizes = BATCHES["rows ending"]
    layer = random_layer(batch_sizes)
    first, second = (everything(bilstm_layer, layer[0], batch_sizes, *layer[1:], 0.5, 0.4) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


def test_state_carried_equals_one_pass(cell):
    inputs, state, weights = random_layer([3] * 6)
    whole, after = bilstm_layer(inputs, [3] * 6, state, weights, 0.5, 0.4)
    first, between = bilstm_layer(inputs[:, :12], [3] * 4, state, weights, 0.5, 0.4)
    second, last = bilstm_layer(inputs[:, 12:], [3] * 2, between, weights, 0.5, 0.4)
    torch.testing.assert_close(torch.cat((first, second), dim=1), whole, rtol=0, atol=1e-6)
    torch.testing.assert_close(last, after, rtol=0, atol=1e-6)


def test_without_gradients_equals_with(cell):
    batch_sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(batch_sizes)
    outputs, after = bilstm_layer(inputs.requires_grad_(), batch_sizes, state, weights, 0.5, 0.4)
    assert outputs.requires_grad
    with torch.no_grad():
        plain, plain_after = bilstm_layer(inputs, batch_sizes, state, weights, 0.5, 0.4)
    torch.testing.assert_close(plain, outputs.detach(), rtol=0, atol=1e-6)
    torch.testing.assert_close(plain_after, tuple(x.detach() for x in after), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["inputs", "h", "c", "weight_ih", "weight_hh", "bias", "weight_hr"])
def test_gradient_of_one_alone(name):
    batch_sizes = BATCHES["rows ending"]
    inputs, (h, c), weights = random_layer(batch_sizes)
    own = {"inputs": inputs, "h": h, "c": c, **weights[1]._asdict()}[name].requires_grad_()
    gradients = []
    for function in (bilstm_layer, reference):
        outputs, _ = function(inputs, batch_sizes, (h, c), weights, 0.5, 0.4)
        gradients.append(torch.autograd.grad(outputs.square().sum(), own)[0])
    assert_near(gradients[:1], gradients[1:], TOLERANCE[torch.float32])


def test_strides_of_inputs_and_gradients_do_not_matter(cell):
    batch_sizes = BATCHES["window"]
    inputs, (h, c), weights = random_layer(batch_sizes, projected=False)
    odd = inputs.mT.contiguous().mT, h.mT.contiguous().mT, c.mT.contiguous().mT
    gradients = []
    for x, hidden, memory in ((inputs, h, c), odd):
        x = x.detach().requires_grad_()
        outputs, after = bilstm_layer(x, batch_sizes, (hidden, memory), weights, 0.5)
        loss = (outputs.mT.contiguous() ** 2).sum() + sum(part.transpose(0, 1).mT.contiguous().sum() for part in after)
        gradients.append(torch.autograd.grad(loss, x)[0])
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)


def test_checkpointed_and_backward_twice(cell):
    batch_sizes = BATCHES["rows ending"]
    inputs, state, weights = random_layer(batch_sizes)
    inputs.requires_grad_()
    outputs, _ = bilstm_layer(inputs, batch_sizes, state, weights, 0.5, 0.4)
    first, second = (torch.autograd.grad(outputs.sum(), inputs, retain_graph=True)[0] for _ in range(2))
    again, _ = checkpoint(bilstm_layer, inputs, batch_sizes, state, weights, 0.5, 0.4, use_reentrant=False)
    third = torch.autograd.grad(again.sum(), inputs)[0]
    assert torch.equal(first, second)
    assert torch.equal(first, third)


def test_callers_in_threads(cell):
    batch_sizes = BATCHES["rows ending"]
    layers = [random_layer(batch_sizes, seed=seed) for seed in range(4)]
    expected = [bilstm_layer(x, batch_sizes, state, weights, 0.5, 0.4)[0] for x, state, weights in layers]
    found = [None] * len(layers)

    def work(number):
        inputs, state, weights = layers[number]
        for _ in range(5):
            found[number] = bilstm_layer(inputs, batch_sizes, state, weights, 0.5, 0.4)[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(layers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("words", "rows", "batch_sizes"),
    [(4, 3, [3, 2]), (5, 2, [3, 2]), (5, 2, [2, 3]), (0, 0, [])],
    ids=["words", "state", "rising", "empty"],
)
def test_sizes_that_do_not_fit_are_refused(words, rows, batch_sizes):
    _, _, weights = random_layer([3])
    state = torch.zeros(2, rows, PROJECTED), torch.zeros(2, rows, CELL)
    with pytest.raises(ValueError, match="batch_sizes"):
        bilstm_layer(torch.zeros(2, words, INPUT), batch_sizes, state, weights)


@pytest.mark.parametrize("setting", [{"HF_ELMO_C_CELL": "0"}, {"CC": "no-such-compiler"}], ids=["off", "no compiler"])
def test_works_without_c(monkeypatch, setting):
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(lstm_c_elmo, "load", lstm_c_elmo.load.__wrapped__)
    inputs, state, weights = random_layer([3, 2])
    assert c_cell(inputs, state[1]) is None
    found, _ = bilstm_layer(inputs, [3, 2], state, weights)
    torch.testing.assert_close(found, reference(inputs, [3, 2], state, weights)[0], rtol=0, atol=1e-6)


def changed_in_place(weight):
    with torch.no_grad():
        weight.mul_(0.5)


def changed_through_data(weight):
    weight.data.mul_(0.5)


def given_new_data(weight):
    weight.data = weight.data * 0.5


@pytest.mark.parametrize("rows", [3, 20], ids=["few rows", "many rows"])
@pytest.mark.parametrize("change", [changed_in_place, changed_through_data, given_new_data])
@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias", "weight_hr"])
def test_packed_weights_follow_the_weight(name, change, rows):
    inputs, state, weights = random_layer([rows] * 4)
    before = bilstm_layer(inputs, [rows] * 4, state, weights)[0]
    change(getattr(weights[1], name))
    after = bilstm_layer(inputs, [rows] * 4, state, weights)[0]
    torch.testing.assert_close(after, reference(inputs, [rows] * 4, state, weights)[0], rtol=0, atol=1e-6)
    assert torch.equal(after[0], before[0])
    assert not torch.allclose(after[1], before[1], atol=1e-3)


def test_packed_weights_live_as_long_as_the_weight_and_stay_out_of_copies():
    inputs, state, weights = random_layer([3] * 4)
    module = torch.nn.ParameterList([torch.nn.Parameter(tensor) for tensor in weights[0]])
    gc.collect()  # weights of models that are gone already
    kept = len(lstm_packed_elmo._packed)
    with torch.no_grad():
        outputs, _ = lstm_layer(inputs[0], [3] * 4, (state[0][0], state[1][0]), *module, 0.5, 0.4)
        assert len(lstm_packed_elmo._packed) == kept + 3
        for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            again, _ = lstm_layer(inputs[0], [3] * 4, (state[0][0], state[1][0]), *copied, 0.5, 0.4)
            assert torch.equal(again, outputs)
    assert set(module.state_dict()) == {"0", "1", "2", "3"}
    del module, copied
    gc.collect()
    assert len(lstm_packed_elmo._packed) == kept


def test_inference_mode():
    inputs, state, weights = random_layer([3] * 4)
    expected = reference(inputs, [3] * 4, state, weights)[0]
    with torch.inference_mode():
        made_here = [LstmWeights(*(tensor.clone() for tensor in w)) for w in weights]
        for own in (weights, made_here):
            torch.testing.assert_close(bilstm_layer(inputs, [3] * 4, state, own)[0], expected, rtol=0, atol=1e-6)


class Padded(torch.nn.Module):
    """A layer on padded words, the backward direction on the flipped ones, as a model exports it."""

    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.ParameterList([tensor for w in weights for tensor in w if tensor is not None])

    def forward(self, inputs, mask, h, c):
        weights = [
            (*w, None)[:4] for w in (self.weights[: len(self.weights) // 2], self.weights[len(self.weights) // 2 :])
        ]
        both = torch.stack((inputs, inputs.flip(1))), torch.stack((mask, mask.flip(1)))
        outputs, state = bilstm_layer_padded(*both, (h, c), weights, 0.5, 0.4)
        return outputs[0], outputs[1].flip(1), *state


@pytest.fixture(scope="module", params=[True, False], ids=["projected", "unprojected"])
def exported(request):
    """The layer exported once, for any number of rows and words."""
    inputs, (h, c), weights = random_layer([3] * 4, projected=request.param)
    rows, words = torch.export.Dim("rows", min=2), torch.export.Dim("words", min=2)
    axes = {0: rows, 1: words}
    example = inputs[0].reshape(4, 3, INPUT).transpose(0, 1), torch.ones(3, 4, dtype=torch.bool), h, c
    shapes = {"inputs": axes, "mask": axes, "h": {1: rows}, "c": {1: rows}}
    return torch.export.export(Padded(weights), example, dynamic_shapes=shapes).module(), weights


@pytest.mark.parametrize("side", ["right", "left"])
def test_exported_scan_equals_reference(exported, side):
    """At another number of rows and words than it was exported with, whichever side the padding is on."""
    layer, weights = exported
    lengths = [6, 4, 4, 1, 2]
    torch.manual_seed(5)
    inputs = torch.randn(5, 6, INPUT)
    position = torch.arange(6) if side == "right" else torch.arange(5, -1, -1)
    mask = position < torch.tensor(lengths)[:, None]
    h, c = 0.5 * torch.randn(2, 5, weights[0].weight_hh.shape[1]), torch.randn(2, 5, CELL)
    forward, backward, h_after, c_after = layer(inputs, mask, h, c)
    for row, length in enumerate(lengths):
        sentence = inputs[row, mask[row]]
        both = torch.stack((sentence, sentence.flip(0)))
        own = h[:, row : row + 1], c[:, row : row + 1]
        expected, after = reference(both, [1] * length, own, weights, 0.5, 0.4)
        found = torch.stack((forward[row, mask[row]], backward[row, mask[row]].flip(0)))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close((h_after[:, row : row + 1], c_after[:, row : row + 1]), after, rtol=0, atol=1e-6)
    assert not forward[~mask].any()
    assert not backward[~mask].any()


def test_compiled_callers_compile_once(cell):
    """The layer stays as it is inside a compiled function, whatever the lengths."""
    graphs = torch._dynamo.testing.CompileCounter()
    inputs, state, weights = random_layer([3, 3, 2, 1])

    @torch.compile(backend=graphs, dynamic=True)
    def double(inputs, batch_sizes):
        return bilstm_layer(2 * inputs, batch_sizes, state, weights, 0.5, 0.4)[0] + 1

    for batch_sizes in ([3, 3, 2, 1], [3, 2], [3, 1, 1]):
        words = inputs[:, : sum(batch_sizes)]
        expected = reference(2 * words, batch_sizes, state, weights, 0.5, 0.4)[0] + 1
        torch.testing.assert_close(double(words, batch_sizes), expected, rtol=0, atol=1e-6)
    assert graphs.frame_count <= 4
