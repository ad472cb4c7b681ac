"""Word vectors without gradients: computed from tables, cached across calls, equal to what the modules compute."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from hf_elmo import ElmoModel, kernels
from hf_elmo.kernels import clear_cache, word_cache
from hf_elmo.kernels.tensors import cached_values
from hf_elmo.kernels.word_cache import WordVectors, row_highway, row_product
from hf_elmo.modeling_elmo import ElmoCharacterEncoder
from hf_elmo.tokenization_elmo import words_to_character_ids
from tests.lstm_layers import CHANGES
from tests.test_modeling_numbers import ARCHITECTURES, make

from . import machine

WORDS = ["the", "cat", "", "a", "Ünïcödé", "日本語", "😀", "the", "x" * 47, "y" * 48, "z" * 90, "a"]
RAN = ("word-vectors", "word-cache")


@pytest.fixture
def encoder(model: ElmoModel) -> ElmoCharacterEncoder:
    return model.char_encoder


def known() -> int:
    """The number of words whose vectors are cached."""
    return sum(len(value.places) for value in cached_values() if isinstance(value, WordVectors))


@pytest.fixture(autouse=True)
def ran(request):
    """What runs where only this backend is enabled, and nothing is cached before."""
    machine.require("word-cache")
    word_cache.clear()
    with kernels.use("word-cache"), kernels.record() as ran:
        yield ran
    if ran:
        request.node.user_properties.append(("backend", "word-cache"))


def spelled(words: list[str], length: int = 50) -> Tensor:
    return torch.from_numpy(words_to_character_ids(words, length))


@torch.no_grad()
def by_modules(encoder: ElmoCharacterEncoder, ids: Tensor) -> Tensor:
    with kernels.use("off"):
        return encoder(ids)


@pytest.mark.parametrize("changes", ARCHITECTURES.values(), ids=ARCHITECTURES)
@torch.no_grad()
def test_vectors_are_those_of_the_modules(changes: dict, ran) -> None:
    model, _ = make(**changes)
    ids = spelled(WORDS, model.config.max_word_length)
    ids[3], ids[4] = 0, 261
    result = model.char_encoder(ids[None])
    assert ran == [RAN]
    assert result.shape == (1, len(WORDS), model.config.projection_size)
    torch.testing.assert_close(result[0], by_modules(model.char_encoder, ids), rtol=0, atol=1e-6)


@torch.no_grad()
def test_words_with_vectors_of_their_own(ran: list) -> None:
    """70,000 of them: more than the 16 bits of a character hold."""
    encoder = make(word_vocab_size=70_000, word_embedding_size=3, max_word_length=20)[0].char_encoder
    own = torch.tensor([[1], [4], [261], [65_797], [69_999], [4]])  # 65,797 is 261 in 16 bits
    ids = torch.cat((spelled(["the", "the", "the", "the", "x" * 30, "the"], 20), own), dim=1)
    for _ in range(2):
        result = encoder(ids)
        assert torch.allclose(result, by_modules(encoder, ids), atol=1e-5)
    assert known() == 5
    assert ran == [RAN] * 2
    assert torch.equal(result[1], result[5])
    assert not torch.allclose(result[2], result[3], atol=1e-3)
    for column, what in ((20, "word"), (5, "character")):
        wrong = ids.clone()
        wrong[0, column] = 70_000
        with pytest.raises(IndexError, match=what):
            encoder(wrong)


def test_bfloat16_is_rounded_no_more_than_by_the_modules(request, ran) -> None:
    machine.require("word-cache, bfloat16")
    encoder, ids = make(dtype=torch.bfloat16)[0].char_encoder, spelled(WORDS)
    exact = by_modules(copy.deepcopy(encoder).double(), ids)
    with torch.no_grad():
        result = encoder(ids)
    assert ran == [RAN]
    request.node.user_properties.append(("backend", "word-cache, bfloat16"))
    assert result.dtype == torch.bfloat16
    assert (result - exact).abs().max() <= 1.1 * (by_modules(encoder, ids) - exact).abs().max()


@torch.no_grad()
@pytest.mark.parametrize("number", [1, 3])
def test_a_word_has_the_same_bits_alone_and_among_others(threads, number: int) -> None:
    """181 filters do not fill whole vector registers: rows end anywhere in a tensor and in a thread's part of it."""
    encoder = make(char_filters=[[1, 90], [2, 91]])[0].char_encoder
    ids = spelled([f"{n}-{n % 7}" for n in range(400)])
    threads(number)
    together = encoder(ids)
    clear_cache(encoder)
    threads(1)
    assert torch.equal(torch.cat([encoder(part) for part in ids.split(3)]), together)


@torch.no_grad()
def test_a_word_is_computed_once_until_it_is_forgotten(encoder) -> None:
    first = encoder(spelled(WORDS))
    assert known() == len(set(WORDS))
    second = encoder(spelled([*reversed(WORDS), "dog"]))
    assert known() == len(set(WORDS)) + 1
    assert torch.equal(second[:-1].flip(0), first)
    word_cache.clear()
    assert not known()
    assert torch.equal(encoder(spelled(WORDS)), first)


@torch.no_grad()
def test_the_memory_is_limited(encoder, monkeypatch) -> None:
    monkeypatch.setattr(word_cache, "BYTES", 5 * (encoder.size * 4 + word_cache.BYTES_OF_KEY))
    ids = spelled([str(number) for number in range(23)])
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids), rtol=0, atol=1e-6)
    assert 0 < known() <= 5
    assert torch.equal(encoder(ids[[22, 0, 1]]), encoder(ids)[[22, 0, 1]])


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [name for name, _ in make()[0].char_encoder.named_parameters()])
@torch.no_grad()
def test_vectors_follow_the_weights(encoder, name: str, change) -> None:
    ids = spelled(WORDS)
    encoder(ids)
    change(encoder.get_parameter(name))
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids), rtol=0, atol=1e-6)


def test_vectors_cached_in_inference_mode_serve_a_training(encoder) -> None:
    with torch.inference_mode():
        encoder(spelled(WORDS[:3]))
    encoder.requires_grad_(False)
    scale = torch.ones(encoder.size, requires_grad=True)
    (encoder(spelled(WORDS)) * scale).sum().backward()
    torch.testing.assert_close(scale.grad, by_modules(encoder, spelled(WORDS)).sum(0))


def test_threads_share_what_is_cached(encoder) -> None:
    ids = spelled([f"{number % 60}-{number % 7}" for number in range(400)])
    expected = by_modules(encoder, ids)

    @torch.no_grad()
    def one(start: int) -> Tensor:
        with kernels.use("word-cache"):
            return encoder(ids[start : start + 40])

    with ThreadPoolExecutor(4) as pool:
        for start, vectors in enumerate(pool.map(one, range(0, 400, 20))):
            torch.testing.assert_close(vectors, expected[20 * start : 20 * start + 40], rtol=0, atol=1e-6)


# -- what the modules compute, or change -------------------------------------------------------------------------------


class Adapter(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def with_hook(encoder: ElmoCharacterEncoder) -> None:
    encoder.highways[1].register_forward_hook(lambda module, inputs, output: 0.5 * output)


def with_adapter(encoder: ElmoCharacterEncoder) -> None:
    adapter = Adapter(*reversed(encoder.projection.weight.shape))
    adapter.weight, adapter.bias = encoder.projection.weight, encoder.projection.bias
    encoder.projection = adapter


def with_forward_of_the_instance(encoder: ElmoCharacterEncoder) -> None:
    forward = encoder.highways[0].forward
    encoder.highways[0].forward = lambda x: 2 * forward(x)


def pruned(encoder: ElmoCharacterEncoder) -> None:
    prune.l1_unstructured(encoder.projection, "weight", amount=0.3)


def with_another_activation(encoder: ElmoCharacterEncoder) -> None:
    encoder.activation = torch.sigmoid


CHANGED = [with_hook, with_adapter, with_forward_of_the_instance, pruned, with_another_activation]


@pytest.mark.parametrize("change", CHANGED)
@torch.no_grad()
def test_changed_modules_are_called(encoder, ran, change) -> None:
    ids = spelled(WORDS)
    before = encoder(ids)
    change(encoder)
    ran.clear()
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids), rtol=0, atol=1e-6)
    assert not torch.allclose(encoder(ids), before, atol=1e-4)
    assert not ran


@torch.no_grad()
def test_calls_for_the_modules(encoder, ran) -> None:
    """Under autocast, with weights of several types or of inference mode, and with a large vocabulary."""
    ids = spelled(WORDS)
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder(ids).dtype == torch.bfloat16
    large = make(char_vocab_size=70_000)[0].char_encoder
    many = spelled(["a", "b"])
    many[1, 1] = 69_999
    torch.testing.assert_close(large(many), by_modules(large, many))
    assert not torch.equal(*large(many))
    with torch.inference_mode():
        inside = make()[0].char_encoder
        torch.testing.assert_close(inside(ids), by_modules(inside, ids))
    assert not ran


@pytest.mark.parametrize("character", [262, 65536 + 98, -1])
@torch.no_grad()
def test_characters_outside_of_the_vocabulary_are_refused(encoder, character: int) -> None:
    ids = spelled(WORDS)
    ids[1, 1] = character
    with pytest.raises(IndexError, match="character id"):
        encoder(ids)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@torch.no_grad()
def test_nan_and_infinite_weights_give_what_the_modules_give(encoder, value: float) -> None:
    ids = spelled(WORDS)
    for parameter in encoder.parameters():
        before = parameter.view(-1)[-1].clone()
        parameter.view(-1)[-1] = value
        result, expected = encoder(ids), by_modules(encoder, ids)
        assert torch.equal(result.isfinite(), expected.isfinite())
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-5, equal_nan=True)
        parameter.view(-1)[-1] = before
    assert encoder(ids).isfinite().all()


# -- products and highways of rows -------------------------------------------------------------------------------------

SHAPES = {"one number": (1, 1), "a block": (64, 128), "no full block": (37, 5), "several": (130, 257)}
SHAPES["long"] = (70, 2048)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_product_is_exact_and_has_the_same_bits_for_any_rows_and_threads(shape, threads) -> None:
    columns, depth = shape
    torch.manual_seed(columns)
    x, weight, bias = torch.randn(113, depth), torch.randn(columns, depth), torch.randn(columns)
    product = row_product(weight, bias)
    threads(1)
    whole = product(x)
    exact = nn.functional.linear(x.double(), weight.double(), bias.double())
    # A sum of n products is rounded by n + 1 halves of a unit of the sum of their absolute values at most: chunks of
    # 128, which are added up by themselves, and the sum of the chunks.
    steps = min(128, depth) + depth // 128 + 2
    size = nn.functional.linear(x.abs().double(), weight.abs().double(), bias.abs().double())
    assert ((whole - exact).abs() <= steps * 2**-24 * size).all()
    for rows in (1, 2, 5, 7, 97):
        assert torch.equal(torch.cat([product(part) for part in x.split(rows)]), whole)
    unaligned = torch.empty(x.numel() + 1)[1:].view(x.shape).copy_(x)
    assert torch.equal(product(unaligned), whole)
    threads(3)
    assert torch.equal(product(x), whole)
    assert product(x[:0]).shape == (0, columns)


@pytest.mark.parametrize("columns", [1, 15, 16, 37, 64, 131])
def test_a_highway_is_exact_and_has_the_same_bits_for_any_rows_and_threads(columns: int, threads) -> None:
    torch.manual_seed(columns)
    x, carry, transform = 3 * torch.randn(3, 83, columns)
    carry[5], carry[6] = 90, -90  # where a sigmoid is 1, and nearly 0
    threads(1)
    whole = row_highway(x.clone(), carry, transform)
    gate = carry.double().sigmoid()
    exact = gate * transform.double().relu() + (1 - gate) * x.double()
    torch.testing.assert_close(whole.double(), exact, rtol=0, atol=2e-6)  # four roundings of numbers up to 12
    for rows in (1, 2, 7):
        parts = zip(x.split(rows), carry.split(rows), transform.split(rows), strict=True)
        assert torch.equal(torch.cat([row_highway(own.clone(), *others) for own, *others in parts]), whole)
    threads(5)
    assert torch.equal(row_highway(x.clone(), carry, transform), whole)
