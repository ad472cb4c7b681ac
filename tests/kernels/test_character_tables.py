"""The character convolutions in C while training: outputs and gradients equal to what the modules compute."""

import copy

import pytest
import torch
from torch import Tensor, nn

from hf_elmo import ElmoConfig, ElmoModel, kernels
from hf_elmo.characters_elmo import ElmoCharacterEncoder
from hf_elmo.kernels import character_tables, native
from hf_elmo.tokenization_elmo import words_to_character_ids
from tests.conftest import TINY

pytestmark = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))

WORDS = ["the", "cat", "", "a", "Ünïcödé", "日本語", "😀", "aaaa", "x" * 47, "y" * 48, "z" * 90, "banana"]
RAN = [("character-maxima", "character-tables")]
FILTERS = {
    "as published, in small": [[1, 4], [2, 8], [3, 25]],
    "widths 1 to 7": [[1, 3], [2, 5], [3, 17], [4, 16], [5, 33], [6, 15], [7, 49]],
    "one filter": [[4, 1]],
    "as wide as a word": [[50, 5]],
    "widths in any order": [[5, 16], [2, 19], [3, 32]],
}


@pytest.fixture(autouse=True)
def ran() -> list[tuple[str, str]]:
    """What ran, where only this backend is on."""
    with kernels.use("character-tables"), kernels.record() as ran:
        yield ran


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
    ids[3] = 0
    ids[4] = 261
    return ids


def gradients(encoder: ElmoCharacterEncoder, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The words' vectors, and the gradients of a sum in which each number has a weight of its own."""
    encoder.zero_grad()
    vectors = encoder(ids)
    weights = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1))
    (vectors * weights.to(vectors.dtype)).sum().backward()
    return vectors.detach(), {name: parameter.grad for name, parameter in encoder.named_parameters()}


def by_modules(encoder: ElmoCharacterEncoder, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    with kernels.use("off"):
        vectors, grads = gradients(encoder, ids)
        return vectors, {name: grad if grad is None else grad.clone() for name, grad in grads.items()}


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_vectors_and_gradients_are_those_of_the_modules(filters, activation: str, ran) -> None:
    encoder = make(filters, char_activation=activation)
    expected, expected_grads = by_modules(copy.deepcopy(encoder).double(), spelled())
    assert not ran
    found, grads = gradients(encoder, spelled())
    assert ran == RAN
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-6)
    for name, grad in grads.items():
        size = expected_grads[name].abs().max().item()
        torch.testing.assert_close(grad.double(), expected_grads[name], rtol=1e-5, atol=2e-6 * size, msg=name)


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_the_first_of_equal_windows_has_the_gradient(filters) -> None:
    encoder = make(filters, num_highway_layers=0, char_projection=False, hidden_size=2 * sum(n for _, n in filters))
    with torch.no_grad():  # small whole numbers: sums are exact, and often equal
        for parameter in encoder.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
    weights = torch.randint(-3, 4, (len(WORDS), encoder.size))
    with torch.no_grad():
        encoder.convolutions[0].bias[0] = 7  # so that one at least is not all behind the relu
    results = []
    for plain in (True, False):
        with kernels.use("off" if plain else "character-tables"):
            encoder.zero_grad()
            vectors = encoder(spelled())
            (vectors * weights).sum().backward()
            results.append([vectors.detach(), *(parameter.grad for parameter in encoder.parameters())])
    for expected, found in zip(*results, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("words", [["a"], [""], ["z" * 90], ["a", "b"], ["the"] * 3])
def test_few_words(words: list[str], ran) -> None:
    encoder, ids = make(), torch.from_numpy(words_to_character_ids(words, 50))
    expected, expected_grads = by_modules(encoder, ids)
    found, grads = gradients(encoder, ids)
    assert ran == RAN
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for name, grad in grads.items():
        torch.testing.assert_close(grad, expected_grads[name], rtol=1e-4, atol=1e-5, msg=name)


def test_no_words() -> None:
    assert make()(spelled()[:0]).shape == (0, 11)


@pytest.mark.parametrize(
    "trained", [["embedding"], ["convolutions.2.weight"], ["convolutions.0.bias", "projection"], ["embedding", "high"]]
)
def test_only_some_parameters_are_trained(trained: list[str], ran) -> None:
    encoder = make()
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name.startswith(tuple(trained)))
    _, expected = by_modules(encoder, spelled())
    _, found = gradients(encoder, spelled())
    assert ran
    for name, grad in found.items():
        assert (grad is not None) == name.startswith(tuple(trained))
        if grad is not None:
            torch.testing.assert_close(grad, expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_padding_has_no_gradient() -> None:
    _, grads = gradients(make(), spelled())
    embedding = grads["embedding.weight"]
    assert not embedding[0].any()
    assert embedding[[257 + 2, 261, ord("a") + 1]].any(1).all()
    assert not embedding[ord("Q") + 1].any()  # in none of the words


@pytest.mark.parametrize("character", [262, -1])
def test_characters_outside_of_the_vocabulary_are_refused(character: int) -> None:
    ids = spelled()
    ids[1, 1] = character
    with pytest.raises(IndexError, match="outside of the vocabulary, 0 to 261"):
        make()(ids)


def test_nan_propagates() -> None:
    encoder = make(num_highway_layers=0)
    with torch.no_grad():
        encoder.embedding.weight[ord("t") + 1] = torch.nan
    vectors = encoder(torch.from_numpy(words_to_character_ids(["cat", "the", "dog"], 50)))
    assert vectors.isnan().all(1).tolist() == [True, True, False]


def test_the_number_of_threads_changes_nothing() -> None:
    encoder, results, before = make(), [], torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            lengths, parameters = (
                torch.full((len(WORDS),), 50),
                [encoder.embedding.weight, *encoder.convolutions.parameters()],
            )
            # the functions alone: products may depend on threads
            maxima = character_tables.run(spelled(), lengths, encoder.embedding, encoder.convolutions)
            results.append([maxima, *torch.autograd.grad(maxima.square().sum(), parameters)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))


def test_twice_the_same_result() -> None:
    encoder = make()
    first, grads = gradients(encoder, spelled())
    grads = {name: grad.clone() for name, grad in grads.items()}
    again, grads_again = gradients(encoder, spelled())
    assert torch.equal(first, again)
    assert all(torch.equal(grads[name], grads_again[name]) for name in grads)


# -- number types ------------------------------------------------------------------------------------------------------


def test_autocast_rounds_no_more_than_with_the_modules(ran) -> None:
    encoder = make()
    exact, exact_grads = by_modules(copy.deepcopy(encoder).double(), spelled())
    with torch.autocast("cpu", torch.bfloat16):
        plain, plain_grads = by_modules(encoder, spelled())
        found, grads = gradients(encoder, spelled())
    assert ran
    assert found.dtype == plain.dtype == torch.bfloat16
    assert (found - exact).norm() <= 1.1 * (plain - exact).norm()
    for name, grad in grads.items():
        assert grad.dtype == torch.float32
        error, of_modules = ((x.double() - exact_grads[name]).norm() for x in (grad, plain_grads[name]))
        assert error <= 1.2 * of_modules, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_weights_have_gradients_of_their_type(dtype: torch.dtype, ran) -> None:
    encoder = make().to(dtype)
    exact, exact_grads = by_modules(copy.deepcopy(encoder).double(), spelled())
    found, grads = gradients(encoder, spelled())
    assert ran
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=0.05)
    for name, grad in grads.items():
        assert grad.dtype == dtype
        torch.testing.assert_close(grad.double(), exact_grads[name], rtol=0, atol=0.05 * exact_grads[name].norm())


# -- where the modules must do it --------------------------------------------------------------------------------------


def test_without_a_gradient_for_the_convolutions(ran) -> None:
    encoder = make()
    with torch.no_grad():
        encoder(spelled())
    encoder.embedding.requires_grad_(False)
    encoder.convolutions.requires_grad_(False)
    gradients(encoder, spelled())
    assert not ran


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "register", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"]
)
@pytest.mark.parametrize("module", ["embedding", "convolutions.1"])
def test_hooks_are_called(module: str, register: str, ran) -> None:
    encoder, calls = make(), []
    hook = getattr(encoder.get_submodule(module), register)(lambda *_: calls.append(1))
    gradients(encoder, spelled())
    assert calls
    assert not ran
    hook.remove()
    gradients(encoder, spelled())
    assert ran


def test_adapters_and_parametrizations_take_part(ran) -> None:
    class Adapter(nn.Conv1d):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    encoder = make(num_highway_layers=0)
    plain, _ = gradients(encoder, spelled())
    ran.clear()
    adapter = Adapter(5, 5, 2)
    adapter.load_state_dict(encoder.convolutions[1].state_dict())
    changed = copy.deepcopy(encoder)
    changed.convolutions[1] = adapter
    assert not torch.allclose(gradients(changed, spelled())[0], plain, atol=1e-3)
    nn.utils.parametrizations.weight_norm(encoder.convolutions[1])
    with torch.no_grad():
        encoder.convolutions[1].parametrizations.weight.original0.mul_(2)
    assert not torch.allclose(gradients(encoder, spelled())[0], plain, atol=1e-3)
    assert not ran


def test_double_precision_is_kept(ran) -> None:
    assert gradients(make().double(), spelled())[0].dtype == torch.float64
    assert not ran
