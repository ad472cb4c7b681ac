"""The character convolutions in C while training: outputs and gradients equal to what the modules compute."""

import copy

import pytest
import torch
from torch import Tensor

from hf_elmo import ElmoConfig, ElmoModel, kernels
from hf_elmo.kernels import character_tables
from hf_elmo.modeling_elmo import ElmoCharacterEncoder
from hf_elmo.tokenization_elmo import words_to_character_ids
from tests.conftest import TINY

from . import machine

WORDS = ["the", "cat", "", "a", "Ünïcödé", "日本語", "😀", "aaaa", "x" * 47, "y" * 48, "z" * 90, "banana"]
RAN = [("character-maxima", "character-tables")]
FILTERS = {
    "widths 1 to 7": [[1, 3], [2, 5], [3, 17], [4, 16], [5, 33], [6, 15], [7, 49]],
    "one filter": [[4, 1]],
    "as wide as a word": [[50, 5]],
    "widths in any order": [[5, 16], [2, 19], [3, 32]],
}


@pytest.fixture(autouse=True)
def ran(request):
    """What runs where only this backend is enabled."""
    machine.require("character-tables")
    with kernels.use("character-tables"), kernels.record() as ran:
        yield ran
    if ran:
        request.node.user_properties.append(("backend", "character-tables"))


def make(filters: list[list[int]] = FILTERS["widths 1 to 7"], **changes: object) -> ElmoCharacterEncoder:
    torch.manual_seed(5)
    encoder = ElmoModel(ElmoConfig(**{**TINY, "char_filters": filters, "freeze_bilm": False, **changes})).char_encoder
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn(parameter.shape) * parameter[0].numel() ** -0.5)
        encoder.embedding.weight[0] = 0
    return encoder


def spelled(words: list[str] = WORDS) -> Tensor:
    ids = torch.from_numpy(words_to_character_ids(words, 50))
    if words is WORDS:
        ids[3], ids[4] = 0, 261
    return ids


def gradients(encoder: ElmoCharacterEncoder, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The words' vectors, and the gradients of a sum in which each number has a weight of its own."""
    encoder.zero_grad()
    vectors = encoder(ids)
    weights = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1))
    (vectors * weights.to(vectors.dtype)).sum().backward()
    grads = {name: parameter.grad for name, parameter in encoder.named_parameters()}
    return vectors.detach(), {name: grad if grad is None else grad.clone() for name, grad in grads.items()}


def by_modules(encoder: ElmoCharacterEncoder, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    with kernels.use("off"):
        return gradients(encoder, ids)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_vectors_and_gradients_are_those_of_the_modules(filters, activation: str, ran) -> None:
    encoder = make(filters, char_activation=activation)
    for words in (WORDS, ["a"], ["z" * 90], ["the"] * 3):
        expected, expected_grads = by_modules(copy.deepcopy(encoder).double(), spelled(words))
        ran.clear()
        result, grads = gradients(encoder, spelled(words))
        assert ran == RAN
        torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=2e-6)
        for name, grad in grads.items():
            size = max(1, expected_grads[name].abs().max().item())
            torch.testing.assert_close(grad.double(), expected_grads[name], rtol=1e-5, atol=2e-6 * size, msg=name)


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_the_first_of_equal_windows_has_the_gradient(filters) -> None:
    encoder = make(filters, num_highway_layers=0, char_projection=False, hidden_size=2 * sum(n for _, n in filters))
    with torch.no_grad():  # small whole numbers: sums are exact, and often equal
        for parameter in encoder.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
        encoder.convolutions[0].bias[0] = 7  # so that the relu lets something through
    expected, expected_grads = by_modules(encoder, spelled())
    result, grads = gradients(encoder, spelled())
    assert torch.equal(result, expected)
    for name, grad in grads.items():
        torch.testing.assert_close(grad, expected_grads[name], rtol=1e-6, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "trained", [["embedding"], ["convolutions.2.weight"], ["convolutions.0.bias", "projection"], ["embedding", "high"]]
)
def test_only_some_parameters_are_trained(trained: list[str], ran) -> None:
    encoder = make()
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name.startswith(tuple(trained)))
    _, expected = by_modules(encoder, spelled())
    _, grads = gradients(encoder, spelled())
    assert ran
    for name, grad in grads.items():
        assert (grad is not None) == name.startswith(tuple(trained))
        if grad is not None:
            torch.testing.assert_close(grad, expected[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("character", [262, -1])
def test_characters_outside_of_the_vocabulary_are_refused(character: int) -> None:
    ids = spelled()
    ids[1, 1] = character
    with pytest.raises(IndexError, match="character id"):
        make()(ids)


def test_nan_propagates() -> None:
    encoder = make(num_highway_layers=0)
    with torch.no_grad():
        encoder.embedding.weight[ord("t") + 1] = torch.nan
    assert encoder(spelled(["cat", "the", "dog"])).isnan().all(1).tolist() == [True, True, False]


def test_the_same_bits_on_any_number_of_threads_and_each_time(threads) -> None:
    encoder, results = make(), []
    lengths = torch.full((len(WORDS),), 50)
    for number in (1, 1, 2, 5):
        threads(number)
        # the functions alone: other products may depend on threads
        maxima = character_tables.run(encoder.plain_weights(), spelled(), lengths)
        parameters = encoder.embedding.weight, *encoder.convolutions.parameters()
        results.append([maxima, *torch.autograd.grad(maxima.square().sum(), parameters)])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_autocast_rounds_no_more_than_with_the_modules(ran) -> None:
    encoder = make()
    exact, exact_grads = by_modules(copy.deepcopy(encoder).double(), spelled())
    with torch.autocast("cpu", torch.bfloat16):
        plain, plain_grads = by_modules(encoder, spelled())
        result, grads = gradients(encoder, spelled())
    assert ran
    assert result.dtype == plain.dtype == torch.bfloat16
    assert (result - exact).norm() <= 1.1 * (plain - exact).norm()
    for name, grad in grads.items():
        assert grad.dtype == torch.float32
        error, of_modules = ((x.double() - exact_grads[name]).norm() for x in (grad, plain_grads[name]))
        assert error <= 1.2 * of_modules, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_weights_have_gradients_of_their_type(dtype: torch.dtype, ran) -> None:
    encoder = make().to(dtype)
    exact, exact_grads = by_modules(copy.deepcopy(encoder).double(), spelled())
    result, grads = gradients(encoder, spelled())
    assert bool(ran) == (dtype != torch.float64)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=0.05)
    for name, grad in grads.items():
        assert grad.dtype == dtype
        torch.testing.assert_close(grad.double(), exact_grads[name], rtol=0, atol=0.05 * exact_grads[name].norm())


# -- where the modules compute it --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "register", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"]
)
@pytest.mark.parametrize("module", ["embedding", "convolutions.1", "highways.0.carry"])
def test_hooks_are_called(module: str, register: str, ran) -> None:
    encoder, calls = make(), []
    hook = getattr(encoder.get_submodule(module), register)(lambda *_: calls.append(1))
    gradients(encoder, spelled())
    assert calls
    assert not ran
    hook.remove()
    gradients(encoder, spelled())
    assert ran
