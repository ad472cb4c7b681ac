"""The one place that chooses: by name, in order, and with a reason for each refusal."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import hf_elmo
from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoModel,
    ElmoTokenizer,
    backends_elmo,
    kernels,
)
from hf_elmo.kernels import BACKENDS, NAMES, native
from hf_elmo.lstm_elmo import LstmCall, bilstm_layer
from tests.conftest import TINY
from tests.lstm_layers import random_layer, reference

needs_native = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))


def call_of(rows: int, dtype: torch.dtype = torch.float32, **changes) -> LstmCall:
    inputs, state, weights = random_layer([rows, rows], dtype, sizes=(32, 128, 96), **changes)
    return LstmCall(inputs, [rows, rows], *state, weights, 3.0, 3.0)


def test_names_are_unique_and_modules_exist() -> None:
    backends = [backend for group in BACKENDS.values() for backend in group]
    assert len({backend.name for backend in backends}) == len(backends) == len(NAMES)
    folder = Path(kernels.__file__).parent
    for backend in backends:
        source = (folder / f"{backend.module}.py").read_text()
        assert "def supports(" in source
        assert "def run(" in source


@needs_native  # without a library nothing serves one row
def test_the_first_that_supports_a_call_runs_it() -> None:
    with torch.no_grad():
        for rows in (1, 9):
            chosen = kernels.choose("lstm", call_of(rows))
            name, refused = kernels.explain("lstm", call_of(rows))
            assert chosen is not None
            assert chosen.name == name
            before = [backend.name for backend in BACKENDS["lstm"]]
            assert list(refused) == before[: before.index(name)]
            assert all(isinstance(reason, str) and reason for reason in refused.values())


@pytest.mark.parametrize("setting", ["off", "packed", "packed, cell-c", "on", ""])
def test_the_environment_chooses(monkeypatch, setting: str) -> None:
    monkeypatch.setenv("HF_ELMO_KERNELS", setting)
    expected = {"off": set(), "packed": {"packed"}, "packed, cell-c": {"packed", "cell-c"}}.get(setting, set(NAMES))
    assert kernels.enabled() == expected
    with kernels.use("training"):  # a block of code goes before it
        assert kernels.enabled() == {"training"}
    assert kernels.enabled() == expected


@pytest.mark.parametrize("setting", ["fast", "packed,of", "off,packed"])
def test_unknown_names_are_refused(monkeypatch, setting: str) -> None:
    with pytest.raises(ValueError, match=r"fast|of.*word-cache"), kernels.use(*setting.split(",")):
        pass
    monkeypatch.setenv("HF_ELMO_KERNELS", setting)
    with pytest.raises(ValueError, match="HF_ELMO_KERNELS"):
        kernels.choose("lstm", call_of(9))


def test_blocks_nest_and_end_with_an_error() -> None:
    with kernels.use("off"):
        with pytest.raises(RuntimeError), kernels.use("packed"):
            raise RuntimeError
        assert kernels.enabled() == set()
    assert kernels.enabled() == NAMES


def test_a_block_is_its_own_threads_affair() -> None:
    seen = []
    with kernels.use("off"):
        thread = threading.Thread(target=lambda: seen.append(kernels.enabled()))
        thread.start()
        thread.join()
    assert seen == [NAMES]


def test_where_no_backend_supports_a_call_pytorch_computes_it() -> None:
    call = call_of(9)
    with kernels.use("cuda", "cell-triton"), kernels.record() as ran:
        found, _ = bilstm_layer(call.inputs, call.batch_sizes, (call.hidden, call.cell), call.weights, 3.0, 3.0)
    expected, _ = reference(call.inputs, call.batch_sizes, (call.hidden, call.cell), call.weights, 3.0, 3.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert not ran


def test_files_of_another_version_of_the_calls_do_without(monkeypatch) -> None:
    monkeypatch.setattr(kernels, "INTERFACE", kernels.INTERFACE + 1)
    backends_elmo._kernels.cache_clear()
    try:
        assert backends_elmo.find_backend("lstm", call_of(9)) is None
    finally:
        monkeypatch.undo()
        backends_elmo._kernels.cache_clear()
    assert backends_elmo.find_backend("lstm", call_of(9)) is not None


# -- what backends may not touch ---------------------------------------------------------------------------------------


def layer_outputs(weight: torch.Tensor, call: LstmCall) -> torch.Tensor:
    weights = [own._replace(weight_hh=weight * own.weight_hh) for own in call.weights]
    return bilstm_layer(call.inputs, call.batch_sizes, (call.hidden, call.cell), weights, 0.5, 0.4)[0]


@pytest.mark.parametrize("rows", [2, 9])
def test_forward_mode_differentiation_keeps_its_tangents(rows: int) -> None:
    call, scale = call_of(rows, torch.float64), torch.tensor(0.7, dtype=torch.float64)
    with torch.no_grad():
        _, tangent = torch.func.jvp(lambda x: layer_outputs(x, call), (scale,), (torch.ones_like(scale),))
        step = 1e-6
        expected = (layer_outputs(scale + step, call) - layer_outputs(scale - step, call)) / (2 * step)
    torch.testing.assert_close(tangent, expected, rtol=1e-5, atol=1e-7)
    assert tangent.abs().max() > 1e-3


@pytest.mark.parametrize("rows", [2, 9])
def test_dual_tensors_keep_their_tangents_in_float32(rows: int) -> None:
    call = call_of(rows)
    with torch.no_grad(), torch.autograd.forward_ad.dual_level(), kernels.record() as ran:
        dual = torch.autograd.forward_ad.make_dual(call.inputs, torch.ones_like(call.inputs))
        found, _ = bilstm_layer(dual, call.batch_sizes, (call.hidden, call.cell), call.weights)
        tangent = torch.autograd.forward_ad.unpack_dual(found).tangent
    assert tangent is not None
    assert tangent.abs().max() > 1e-3
    assert not ran


def test_transforms_and_modes_see_every_operation() -> None:
    call = call_of(9)
    with torch.no_grad():
        rows = torch.func.vmap(lambda scale: layer_outputs(scale, call))(torch.tensor([0.5, 1.0]))
        torch.testing.assert_close(rows[1], layer_outputs(torch.tensor(1.0), call), rtol=0, atol=1e-6)
        with FlopCounterMode(display=False) as counter:
            bilstm_layer(call.inputs, call.batch_sizes, (call.hidden, call.cell), call.weights)
    words, (width, size, cells) = call.inputs.shape[1], (32, 128, 96)
    assert counter.get_total_flops() == 2 * words * 2 * (4 * cells * (width + size) + size * cells)


def test_a_tensor_subclass_is_left_to_pytorch() -> None:
    class Own(torch.Tensor):
        pass

    call = call_of(9)
    weights = [own._replace(weight_ih=own.weight_ih.as_subclass(Own)) for own in call.weights]
    with torch.no_grad(), kernels.record() as ran:
        found, _ = bilstm_layer(call.inputs, call.batch_sizes, (call.hidden, call.cell), weights, 3.0, 3.0)
    expected, _ = bilstm_layer(call.inputs, call.batch_sizes, (call.hidden, call.cell), call.weights, 3.0, 3.0)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), expected, rtol=0, atol=1e-6)
    assert not ran


# -- what a user sees --------------------------------------------------------------------------------------------------


def test_describe_says_what_would_run_and_why_not_the_others(model: ElmoModel) -> None:
    text = kernels.describe(model)
    assert text.count("LSTM, ") == 3
    assert "not cuda: inputs are on cpu, not on cuda" in text
    with kernels.use("off"):
        off = kernels.describe(model)
    assert off.count("plain PyTorch") == 5
    model.unfreeze_bilm()
    with kernels.use("off"):
        assert kernels.describe(model).count("plain PyTorch") == 6
    model.freeze_bilm()
    assert "not packed: switched off" in off
    model.char_encoder.highways[0].register_forward_hook(lambda *_: None)
    assert "not word-cache: a ElmoHighway has a hook" in kernels.describe(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_describe_tells_what_a_call_then_does(dtype: torch.dtype) -> None:
    config = hf_elmo.ElmoConfig(hidden_size=128, cell_size=96, char_filters=[[1, 16]], vocab_size=9)
    model = ElmoForPreTraining(config).eval().to(dtype)
    text = kernels.describe(model).split("\n")
    batch = ElmoTokenizer()(["a b c"] * 32, return_tensors="pt")
    with torch.no_grad(), kernels.record() as ran:
        model(**batch)
    says = next(line for line in text if line.startswith("LSTM, 32 sentences")).partition(": ")[2]
    assert {name for operation, name in ran if operation == "lstm"} == {says} - {"plain PyTorch"}
    says = next(line for line in text if line.startswith("words, inference")).partition(": ")[2]
    assert {name for operation, name in ran if operation == "word-vectors"} == {says} - {"plain PyTorch"}


@pytest.mark.parametrize("freeze", [True, False], ids=["frozen", "trained"])
def test_describe_tells_what_a_step_of_training_then_does(freeze: bool) -> None:
    sizes = {"hidden_size": 128, "cell_size": 96, "char_filters": [[1, 16]]}
    model = ElmoForSequenceClassification(ElmoConfig(**sizes, num_labels=2, freeze_bilm=freeze)).train()
    said = dict(line.partition(": ")[::2] for line in kernels.describe(model).split("\n") if line[0] != " ")
    words = "words, inference and training" if freeze else "character convolutions, training"
    lstm = "LSTM, training of a head, the biLM frozen" if freeze else "LSTM, training"
    batch = ElmoTokenizer()(["a b c"] * 32, return_tensors="pt")
    with kernels.record() as ran:
        model(**batch, labels=torch.zeros(32, dtype=torch.int64)).loss.backward()
    assert {name for operation, name in ran if operation == "lstm"} == {said[lstm]} - {"plain PyTorch"}
    assert {name for operation, name in ran if operation not in ("lstm", "cell")} == {said[words]} - {"plain PyTorch"}


def test_kernels_are_imported_when_they_are_needed() -> None:
    script = "import sys, hf_elmo.modeling_elmo; print([name for name in sys.modules if 'hf_elmo.kernels' in name])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_block_that_names_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="names no backend"), kernels.use():
        pass


def test_describe_of_a_head_without_elmo() -> None:
    config = ElmoConfig(**TINY, use_elmo=False, word_vectors_vocab_size=9)
    assert kernels.describe(ElmoForSequenceClassification(config)) == "use_elmo is False: the model has no biLM."


def test_a_penalty_on_gradients_is_refused_by_kernels_and_right_without() -> None:
    def penalty(*names: str) -> torch.Tensor:
        call = call_of(2, torch.float64)
        weight = call.weights[0].weight_hr.requires_grad_()
        with kernels.use(*names):
            outputs, _ = bilstm_layer(call.inputs, call.batch_sizes, (call.hidden, call.cell), call.weights, 3.0, 3.0)
            (gradient,) = torch.autograd.grad(outputs.square().sum(), weight, create_graph=True)
        gradient.square().sum().backward()
        return weight.grad

    assert penalty("off").abs().sum() > 0
    with pytest.raises(RuntimeError, match="the kernels have no second derivative"):
        penalty("training", "cell-c")
