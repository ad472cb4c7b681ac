"""The choice among backends: by name, in order, with a reason for each refusal; and what it must not change."""

import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import hf_elmo
from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer, kernels
from hf_elmo.kernels import BACKENDS, lstm_c, native
from hf_elmo.kernels.registry import describe_environment
from hf_elmo.modeling_elmo import LstmCall, bilstm_layer
from tests.lstm_layers import random_layer, reference

from . import machine

NAMES = {backend.name for backends in BACKENDS.values() for backend in backends}


def call_of(rows: int, dtype: torch.dtype = torch.float32, **changes) -> LstmCall:
    inputs, state, weights = random_layer([rows, rows], dtype, sizes=(32, 128, 96), **changes)
    return LstmCall(inputs, [rows, rows], *state, weights, 3.0, 3.0)


def layer(call: LstmCall) -> torch.Tensor:
    state = call.hidden, call.cell
    return bilstm_layer(call.inputs, call.batch_sizes, state, call.weights, call.cell_clip, call.proj_clip)[0]


def expected(call: LstmCall) -> torch.Tensor:
    state = call.hidden, call.cell
    return reference(call.inputs, call.batch_sizes, state, call.weights, call.cell_clip, call.proj_clip)[0]


def arguments_of(label: str, model: ElmoModel) -> tuple[str, tuple]:
    """An operation of the backend, and arguments that it supports."""
    name, _, dtype = label.partition(" ")
    dtype = torch.bfloat16 if dtype or name == "fused-tiles" else torch.float32
    weights, words = model.to(dtype).char_encoder.plain_weights(), torch.ones(3, 50, dtype=torch.int64)
    call = call_of(3 if name == "small-batch" else 9, dtype)
    if name == "training":
        call.inputs.requires_grad_()
    if name == "character-tables":
        model.unfreeze_bilm()
    arguments = {
        "cell-c": ("cell", (call.inputs, call.cell)),
        "word-cache": ("word-vectors", (weights, words)),
        "character-tables": ("character-maxima", (weights, words, torch.ones(3, dtype=torch.int64))),
    }
    return arguments.get(name, ("lstm", (call,)))


@pytest.mark.parametrize("label", machine.NEEDS)
def test_a_backend_that_this_machine_can_run_takes_what_suits_it(model: ElmoModel, label: str) -> None:
    machine.require(label)
    operation, arguments = arguments_of(label, model)
    (backend,) = (backend for backend in BACKENDS[operation] if backend.name == label.partition(" ")[0])
    with kernels.use(backend.name):
        assert backend.supports(*arguments) is None


def test_the_machine_knows_all_backends() -> None:
    assert {label.partition(" ")[0] for label in machine.NEEDS} == NAMES


def test_the_first_that_supports_a_call_runs_it() -> None:
    order = [backend.name for backend in BACKENDS["lstm"]]
    for rows in (1, 9):
        chosen, (name, refused) = kernels.choose("lstm", call_of(rows)), kernels.explain("lstm", call_of(rows))
        assert name == (chosen and chosen.name)
        assert list(refused) == order[: order.index(name) if name else len(order)]
        assert all(refused.values())


@pytest.mark.parametrize(("seconds", "chosen"), [((1.0, 2.0), "fused"), ((2.0, 1.0), "packed")])
def test_the_faster_one_of_this_machine_runs(monkeypatch, tmp_path, seconds, chosen) -> None:
    machine.require("fused bfloat16")
    monkeypatch.setattr(native, "cache_folder", lambda: tmp_path)
    call = call_of(9, torch.bfloat16)
    for measured in (list(seconds), None):  # the second time the file has the answer
        native._measurements.cache_clear()
        monkeypatch.setattr(lstm_c, "_measure", lambda kind, call, measured=measured: measured)
        with kernels.use("fused", "packed"):
            assert kernels.choose("lstm", call).name == chosen
    with kernels.use("fused"):  # the only one runs, however fast it is
        assert kernels.choose("lstm", call).name == "fused"
    native._measurements.cache_clear()


@pytest.mark.parametrize("setting", ["off", "packed", "packed, cell-c", "on", ""])
def test_the_environment_chooses(monkeypatch, setting: str) -> None:
    monkeypatch.setenv("HF_ELMO_KERNELS", setting)
    chosen = {"off": set(), "packed": {"packed"}, "packed, cell-c": {"packed", "cell-c"}}.get(setting, NAMES)
    assert kernels.enabled() == chosen
    with kernels.use("training"):  # a block of code comes before it
        assert kernels.enabled() == {"training"}
    assert kernels.enabled() == chosen


@pytest.mark.parametrize("setting", ["fast", "packed,of", "off,packed"])
def test_unknown_names_are_refused(monkeypatch, setting: str) -> None:
    with pytest.raises(ValueError, match="HF_ELMO_KERNELS"), kernels.use(*setting.split(",")):
        pass
    monkeypatch.setenv("HF_ELMO_KERNELS", setting)
    with pytest.raises(ValueError, match="HF_ELMO_KERNELS"):
        kernels.choose("lstm", call_of(9))


def test_kernels_are_imported_when_they_are_needed() -> None:
    script = "import sys, hf_elmo.modeling_elmo; print([name for name in sys.modules if 'hf_elmo.kernels' in name])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- what backends must leave to PyTorch -------------------------------------------------------------------------------


def scaled(scale: torch.Tensor, call: LstmCall) -> torch.Tensor:
    return layer(call._replace(weights=[own._replace(weight_hh=scale * own.weight_hh) for own in call.weights]))


@pytest.mark.parametrize("rows", [2, 9])
def test_forward_mode_differentiation_keeps_its_tangents(rows: int) -> None:
    call, scale = call_of(rows, torch.float64), torch.tensor(0.7, dtype=torch.float64)
    with torch.no_grad():
        _, tangent = torch.func.jvp(lambda x: scaled(x, call), (scale,), (torch.ones_like(scale),))
        step = 1e-6
        difference = (scaled(scale + step, call) - scaled(scale - step, call)) / (2 * step)
        torch.testing.assert_close(tangent, difference, rtol=1e-5, atol=1e-7)
        call = call_of(rows)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(call.inputs, torch.ones_like(call.inputs))
            result = layer(call._replace(inputs=dual))
            assert torch.autograd.forward_ad.unpack_dual(result).tangent.abs().max() > 1e-3


def test_transforms_modes_and_subclasses_see_every_operation() -> None:
    class Subclass(torch.Tensor):
        pass

    call = call_of(9)
    with torch.no_grad():
        rows = torch.func.vmap(lambda scale: scaled(scale, call))(torch.tensor([0.5, 1.0]))
        torch.testing.assert_close(rows[1], expected(call), rtol=0, atol=1e-6)
        with FlopCounterMode(display=False) as counter:
            layer(call)
        weights = [own._replace(weight_ih=own.weight_ih.as_subclass(Subclass)) for own in call.weights]
        with kernels.record() as ran:
            result = layer(call._replace(weights=weights))
    words, (width, size, cells) = call.inputs.shape[1], (32, 128, 96)
    assert counter.get_total_flops() == 2 * words * 2 * (4 * cells * (width + size) + size * cells)
    torch.testing.assert_close(result.as_subclass(torch.Tensor), expected(call), rtol=0, atol=1e-6)
    assert not ran


def test_a_penalty_on_gradients_is_refused_by_kernels_and_right_without() -> None:
    def penalty(*names: str) -> torch.Tensor:
        call = call_of(2, torch.float64)
        weight = call.weights[0].weight_hr.requires_grad_()
        with kernels.use(*names):
            (gradient,) = torch.autograd.grad(layer(call).square().sum(), weight, create_graph=True)
        gradient.square().sum().backward()
        return weight.grad

    assert penalty("off").abs().sum() > 0
    with pytest.raises(RuntimeError, match="create_graph"):
        penalty("training", "cell-c")


# -- what a user sees --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freeze", [True, False], ids=["frozen", "trained"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_describe_names_what_then_runs(training: bool, freeze: bool) -> None:
    sizes = {"hidden_size": 128, "cell_size": 96, "char_filters": [[1, 16]]}
    model = ElmoForSequenceClassification(ElmoConfig(**sizes, num_labels=2, freeze_bilm=freeze)).train(training)
    said = dict(line.partition(": ")[::2] for line in kernels.describe(model).split("\n"))
    batch = ElmoTokenizer()(["a b c"] * 32, return_tensors="pt")
    with torch.set_grad_enabled(training), kernels.record() as ran:
        model(**batch)
    for operation in ("lstm", "word-vectors" if freeze or not training else "character-maxima"):
        name = said[f"{'training' if training else '32 sentences'}, {operation}"]
        assert {backend for of, backend in ran if of == operation} == {name} - {"plain PyTorch"}


def test_the_environment_names_versions_the_library_and_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ELMO_KERNELS", "off")
    rows = dict(line.split("  ", 1) for line in describe_environment().splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    for library in ("hf-elmo", "torch", "transformers", "tokenizers", "numpy"):
        assert f"{library} {version(library)}" in rows["libraries"].split(", ")
    assert hf_elmo.__file__.startswith(rows["hf_elmo is in"])
    assert (rows["HF_HUB_OFFLINE"], rows["HF_ELMO_KERNELS"]) == ("1", "off")
    if machine.compiler() is not None:
        assert not rows["kernels in C"].startswith("none")
        assert {"instruction set", "threads of the kernels"} <= rows.keys()
