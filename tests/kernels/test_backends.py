"""The choice among backends: by name, in order, with a reason for each refusal; and what it must not change."""

import platform
from functools import partial

import pytest
import torch
from torch.autograd import forward_ad, functional
from torch.utils.flop_counter import FlopCounterMode

from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoTokenizer, kernels
from hf_elmo.kernels import lstm_onednn, tensors
from hf_elmo.kernels.backends import NAMES
from hf_elmo.modeling_elmo import LstmCall
from tests.kernels import machine
from tests.test_lstm import compute, random_call, record, reference

ON = NAMES - {"int8"}
SETTINGS = {"off": set(), "fused": {"fused"}, "fused, int8": {"fused", "int8"}, "on": ON, "": ON}
SETTINGS["on,int8"] = NAMES
FIRST = [("on", 3, "small-batch"), ("on", 60, "fused"), ("on,int8", 3, "int8"), ("on,int8", 4, "small-batch")]


def call_of(rows: int, width: int = 32) -> LstmCall:
    return random_call([rows, rows], (3.0, 3.0), sizes=(width, 128, 96))


@pytest.mark.parametrize(("setting", "rows", "name"), FIRST)
def test_the_first_that_supports_a_call_runs_it(setting: str, rows: int, name: str) -> None:
    machine.require(name)
    call = call_of(rows, width=128)
    with kernels.use(*setting.split(",")):
        with torch.no_grad():
            found, refused = kernels.explain("lstm", call)
            assert found == name == kernels.choose("lstm", call).name
            order = [backend.name for backend in kernels.WITHOUT_GRADIENTS["lstm"]]
            assert list(refused) == order[: order.index(name)]
            assert all(refused.values())
        call.inputs.requires_grad_()
        assert kernels.choose("lstm", call).name == "onednn-training"


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_environment_and_a_block_of_code_choose(monkeypatch, setting: str) -> None:
    monkeypatch.setenv("HF_ELMO_KERNELS", setting)
    for names in ({"onednn-training"}, set()):  # a block of code comes before the environment
        with kernels.use(*names):
            assert kernels.enabled() == names
        assert kernels.enabled() == SETTINGS[setting]


@pytest.mark.parametrize("setting", ["fast", "off,fused"])
def test_unknown_names_are_errors(monkeypatch, setting: str) -> None:
    with pytest.raises(ValueError, match="HF_ELMO_KERNELS"), kernels.use(*setting.split(",")):
        pass
    monkeypatch.setenv("HF_ELMO_KERNELS", setting)
    with pytest.raises(ValueError, match="HF_ELMO_KERNELS"):
        kernels.choose("lstm", call_of(9))


def test_names_that_pytorch_lacks_mean_no(monkeypatch) -> None:
    """Its private ones are renamed: vllm-project/vllm#35673."""
    for name in ("avx2", "avx512", "avx512_bf16", "amx_tile"):
        monkeypatch.delattr(torch.cpu, f"_is_{name}_supported")
        assert not tensors.has(name)
    if platform.machine() in ("x86_64", "AMD64"):
        assert not lstm_onednn.multiplies_bfloat16.__wrapped__()
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert not lstm_onednn.multiplies_bfloat16.__wrapped__()
    call = call_of(40)
    assert not lstm_onednn.can_pack(call.inputs)
    torch.testing.assert_close(compute(call), reference(call), rtol=0, atol=2e-6)


def scaled(scale: torch.Tensor, call: LstmCall) -> torch.Tensor:
    return compute(call._replace(weights=[own._replace(weight_hh=scale * own.weight_hh) for own in call.weights]))[0]


@pytest.mark.parametrize("rows", [2, 40])
def test_forward_mode_differentiation_keeps_its_tangents(rows: int) -> None:
    call, scale, tangents = call_of(rows), torch.tensor(0.7), []
    for setting in ("on", "off"):
        with kernels.use(setting), torch.no_grad():
            tangents.append(torch.func.jvp(lambda x: scaled(x, call), (scale,), (torch.ones_like(scale),))[1])
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(call.inputs, torch.ones_like(call.inputs))
                result = compute(call._replace(inputs=dual))[0]
                tangents.append(forward_ad.unpack_dual(result).tangent)
    torch.testing.assert_close(tangents[:2], tangents[2:])
    assert min(tangent.abs().max() for tangent in tangents) > 1e-3


def test_transforms_modes_and_subclasses_see_every_operation() -> None:
    class Subclass(torch.Tensor):
        pass

    call = call_of(40)
    with torch.no_grad():
        rows = torch.func.vmap(lambda scale: scaled(scale, call))(torch.tensor([0.5, 1.0]))
        torch.testing.assert_close(rows[1], reference(call)[0], rtol=0, atol=1e-6)
        with FlopCounterMode(display=False) as counter:
            compute(call)
        weights = [own._replace(weight_ih=own.weight_ih.as_subclass(Subclass)) for own in call.weights]
        with record() as ran:
            result = compute(call._replace(weights=weights))[0]
    words, (width, size, cells) = call.inputs.shape[1], (32, 128, 96)
    assert counter.get_total_flops() == 2 * words * 2 * (4 * cells * (width + size) + size * cells)
    torch.testing.assert_close(result.as_subclass(torch.Tensor), reference(call)[0], rtol=0, atol=1e-6)
    assert not ran


def test_a_penalty_on_gradients_is_refused_by_kernels_and_right_without() -> None:
    def penalty(name: str) -> torch.Tensor:
        call = call_of(2)
        weight = call.weights[0].weight_hr.requires_grad_()
        with kernels.use(name):
            (gradient,) = torch.autograd.grad(compute(call)[0].square().sum(), weight, create_graph=True)
        gradient.square().sum().backward()
        return weight.grad

    assert penalty("off").abs().sum() > 0
    with pytest.raises(RuntimeError, match="create_graph"):
        penalty("onednn-training")


def test_gradients_of_several_outputs_at_once_are_refused_by_kernels_and_right_without() -> None:
    call = call_of(2)
    jacobian = partial(functional.jacobian, lambda x: compute(call._replace(inputs=x))[0][0, -1], call.inputs)
    with kernels.use("off"):
        torch.testing.assert_close(right := jacobian(vectorize=True), jacobian())
    torch.testing.assert_close(jacobian(), right, rtol=0, atol=1e-6)
    with pytest.raises(RuntimeError, match=r'vectorize.*use\("off"\)'):
        jacobian(vectorize=True)


@pytest.mark.parametrize("freeze", [True, False], ids=["frozen", "trained"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_describe_names_what_then_runs(training: bool, freeze: bool) -> None:
    sizes = {"hidden_size": 128, "cell_size": 96, "char_filters": [[1, 16]]}
    model = ElmoForSequenceClassification(ElmoConfig(**sizes, num_labels=2, freeze_bilm=freeze)).train(training)
    said = dict(line.partition(": ")[::2] for line in kernels.describe(model).split("\n"))
    batch = ElmoTokenizer()(["a b c"] * 32, return_tensors="pt")
    with torch.set_grad_enabled(training), record() as ran:
        model(**batch)
    for operation in ("lstm", "word-vectors" if freeze or not training else "character-maxima"):
        name = said[f"{'training' if training else '32 sentences'}, {operation}"]
        assert {backend for of, backend in ran if of == operation} == {name} - {"plain PyTorch"}
