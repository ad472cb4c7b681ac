"""The character CNN: vectors as the modules compute them, cached ("word-cache") or trained ("character-tables")."""

import copy
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from threading import Event
from time import sleep
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import prune

from hf_elmo import kernels
from hf_elmo.kernels import character_tables, clear_cache, tensors, word_cache
from hf_elmo.kernels.tensors import CharacterWeights, cached_values
from hf_elmo.kernels.word_cache import WordVectors
from hf_elmo.modeling_elmo import ElmoCharacterEncoder
from hf_elmo.tokenization_elmo import words_to_character_ids
from tests.kernels import machine
from tests.test_lstm import record
from tests.test_modeling_numbers import ARCHITECTURES, make

WORDS = ["the", "cat", "", "a", "Ünïcödé", "日本語", "😀", "the", "aaaa", "x" * 47, "y" * 48, "z" * 90, "banana", "a"]
INFERENCE, TRAINING = [("word-vectors", "word-cache")], [("character-maxima", "character-tables")]
FILTERS = {
    "widths 1 to 7": [[1, 3], [2, 5], [3, 17], [4, 16], [5, 33], [6, 15], [7, 49]],
    "one filter": [[4, 1]],
    "as wide as a word": [[50, 5]],
    "widths in any order": [[5, 16], [2, 19], [3, 32]],
}
both = pytest.mark.parametrize("trained", [True, False], ids=["training", "inference"])


@pytest.fixture(autouse=True)
def ran(monkeypatch):
    """What runs where only these backends are enabled and no word is cached."""
    machine.require("C")
    monkeypatch.setattr(tensors, "_entries", type(tensors._entries)())
    with kernels.use("word-cache", "character-tables"), record() as ran:
        yield ran


def encoder_of(**changes: object) -> ElmoCharacterEncoder:
    return make(**changes)[0].char_encoder.requires_grad_()


@pytest.fixture
def encoder() -> ElmoCharacterEncoder:
    return encoder_of(char_filters=FILTERS["widths 1 to 7"])


def spelled(words: list[str] = WORDS, length: int = 50) -> Tensor:
    """Characters of words; those of `WORDS` with a row of padding and an empty one at the end."""
    ids = torch.from_numpy(words_to_character_ids(words, length))
    return ids if words is not WORDS else torch.cat((ids, torch.zeros_like(ids[:1]), torch.full_like(ids[:1], 261)))


def by_modules(encoder: ElmoCharacterEncoder, ids: Tensor) -> Tensor:
    with kernels.use("off"), torch.no_grad():
        return encoder(ids)


def gradients(encoder: nn.Module, ids: Tensor, off: bool = False, whole: bool = False) -> tuple[Tensor, dict]:
    """The words' vectors, and the gradients of a sum in which each number has a weight of its own, or a whole one."""
    encoder.zero_grad()
    with kernels.use("off" if off else "character-tables"):
        vectors = encoder(ids)
    weights = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1))
    weights = (8 * weights).round() if whole else weights
    (vectors * weights.to(vectors.dtype)).sum().backward()
    grads = {name: parameter.grad for name, parameter in encoder.named_parameters()}
    return vectors.detach(), {name: grad if grad is None else grad.clone() for name, grad in grads.items()}


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_gradients_are_those_of_the_modules(filters, activation: str, ran) -> None:
    encoder = encoder_of(char_filters=filters, char_activation=activation)
    for words in (WORDS, ["a"], ["z" * 90], ["the"] * 3):
        expected, expected_grads = gradients(copy.deepcopy(encoder).double(), spelled(words), off=True)
        ran.clear()
        result, grads = gradients(encoder, spelled(words))
        assert ran == TRAINING
        torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=2e-6)
        for name, grad in grads.items():
            size = max(1, expected_grads[name].abs().max().item())
            torch.testing.assert_close(grad.double(), expected_grads[name], rtol=1e-5, atol=2e-6 * size, msg=name)


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_the_first_of_equal_windows_has_the_gradient(filters) -> None:
    size = sum(number for _, number in filters)
    encoder = encoder_of(char_filters=filters, num_highway_layers=0, char_projection=False, hidden_size=2 * size)
    ids, generator = spelled(), torch.Generator().manual_seed(0)
    with torch.no_grad():  # small whole numbers: sums are exact, and often equal
        for parameter in encoder.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
        encoder.convolutions[0].bias[0] = 7  # so that the relu lets something through
    (result, grads), (expected, expected_grads) = (gradients(encoder, ids, off, whole=True) for off in (False, True))
    assert torch.equal(result, expected)
    torch.testing.assert_close(grads, expected_grads, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_types_are_rounded_no_more_than_by_the_modules(encoder, dtype: torch.dtype, ran) -> None:
    """Also gradients, which are of the weights' type. float32: under autocast to bfloat16."""
    exact, exact_grads = gradients(copy.deepcopy(encoder).double(), spelled(), off=True)
    encoder.to(dtype)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32)
    with autocast, torch.no_grad():
        vectors = encoder(spelled())
    with autocast:
        (result, grads), (plain, plain_grads) = (gradients(encoder, spelled(), off) for off in (False, True))
    assert ran == (dtype.itemsize == 2) * INFERENCE + (dtype != torch.float64) * TRAINING
    for found in (vectors, result):
        assert found.dtype == plain.dtype == (torch.bfloat16 if dtype == torch.float32 else dtype)
        assert (found - exact).norm() <= 1.1 * (plain - exact).norm()
    for name, grad in grads.items():
        assert grad.dtype == dtype
        error, of_modules = ((x.double() - exact_grads[name]).norm() for x in (grad, plain_grads[name]))
        half_a_unit = torch.finfo(dtype).eps / 2 * exact_grads[name].norm()  # the last rounding, which luck can undo
        assert error <= 1.1 * of_modules + half_a_unit, name


def test_the_same_bits_on_any_number_of_threads_and_each_time(encoder) -> None:
    results, lengths = [], torch.full((len(spelled()),), 50)
    for number in (1, 1, 2, 5):
        torch.set_num_threads(number)
        # the functions alone: other products may depend on threads
        maxima = character_tables.run(CharacterWeights.of(encoder), spelled(), lengths)
        parameters = encoder.embedding.weight, *encoder.convolutions.parameters()
        results.append([maxima, *torch.autograd.grad(maxima.square().sum(), parameters)])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("changes", ARCHITECTURES, ids=str)
@torch.no_grad()
def test_vectors_are_those_of_the_modules(changes: dict, ran) -> None:
    model, _ = make(**changes)
    length, widest = model.config.max_word_length, max(width for width, _ in model.config.char_filters)
    for width in (length, max(length - 1, widest), length):
        ids = spelled(WORDS, length)[:, :width]
        result = model.char_encoder(ids[None])
        torch.testing.assert_close(result, by_modules(model.char_encoder, ids)[None], rtol=0, atol=1e-6)
    assert ran == INFERENCE * 3


@torch.no_grad()
def test_words_with_vectors_of_their_own(ran) -> None:
    """70,000 of them: more than the 16 bits of a character hold."""
    encoder = encoder_of(word_vocab_size=70_000, word_embedding_size=3, max_word_length=20)
    own = torch.tensor([[1], [4], [261], [65_797], [69_999], [4]])  # 65,797 is 261 in 16 bits
    ids = torch.cat((spelled(["the", "the", "the", "the", "x" * 30, "the"], 20), own), dim=1)
    for _ in range(2):
        result = encoder(ids)
        assert torch.allclose(result, by_modules(encoder, ids), atol=1e-5)
    assert known() == 5
    assert ran == INFERENCE * 2
    assert torch.equal(result[1], result[5])
    assert not torch.allclose(result[2], result[3], atol=1e-3)
    ids[0, 20] = 70_000
    with pytest.raises(IndexError, match="word"):
        encoder(ids)


def known() -> int:
    """The number of words whose vectors are cached."""
    return sum(len(value.row_of) for value in cached_values() if isinstance(value, WordVectors))


@torch.no_grad()
def test_the_memory_is_limited(encoder, monkeypatch) -> None:
    monkeypatch.setattr(word_cache, "BYTES", 5 * (encoder.size * 4 + word_cache.BYTES_OF_KEY))
    ids = spelled([str(number) for number in range(23)])
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids), rtol=0, atol=1e-6)
    assert 0 < known() <= 5


@torch.no_grad()
def test_a_write_through_data_is_noticed(ran) -> None:
    """transformers' idiom `model.get_input_embeddings().weight.data[118] += 1`. The filters have 77 KB."""
    encoder = encoder_of(char_filters=[[1, 32], [2, 64], [3, 400]], word_vocab_size=5_000, word_embedding_size=32)
    ids = torch.cat((spelled(["u", "the", "u", "cat"]), torch.tensor([[1], [4], [2], [4]])), dim=1)
    rows, bias = (encoder.embedding.weight[118], encoder.word_embedding.weight[4]), encoder.highways[0].carry.bias[7]
    for part in (*rows, bias, encoder.convolutions[2].weight[16]):
        before = encoder(ids)
        part.data += 1
        after = encoder(ids)
        torch.testing.assert_close(after, by_modules(encoder, ids), rtol=0, atol=1e-5)
        assert not torch.allclose(after, before, atol=1e-3)
    assert ran == INFERENCE * 8


def test_vectors_cached_in_inference_mode_serve_a_training(encoder) -> None:
    with torch.inference_mode():
        encoder(spelled(WORDS[:3]))
    encoder.requires_grad_(False)
    scale = torch.ones(encoder.size, requires_grad=True)
    (encoder(spelled()) * scale).sum().backward()
    torch.testing.assert_close(scale.grad, by_modules(encoder, spelled()).sum(0))


def test_threads_share_what_is_cached(encoder, monkeypatch) -> None:
    compute = WordVectors._compute
    monkeypatch.setattr(WordVectors, "_compute", lambda *arguments: sleep(0.01) or compute(*arguments))

    @torch.no_grad()
    def one(ids: Tensor) -> Tensor:
        with kernels.use("word-cache"):
            return encoder(ids)

    ids = spelled([str(number % 150) for number in range(400)])
    with ThreadPoolExecutor(4) as pool:
        found = torch.cat([*pool.map(one, ids.split(20))])
    torch.testing.assert_close(found, by_modules(encoder, ids), rtol=0, atol=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without forks")
def test_a_fork_while_another_thread_computes(encoder, monkeypatch) -> None:
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    begun, go_on, compute = Event(), Event(), WordVectors._compute
    monkeypatch.setattr(WordVectors, "_compute", lambda *x: (begun.set(), go_on.wait(), compute(*x)))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(by_cache := torch.no_grad()(lambda: encoder(spelled())))
        begun.wait()
        child = get_context("fork").Process(target=lambda: (go_on.set(), by_cache()))
        child.start()
        child.join(20)
        child.kill()
        go_on.set()
    assert child.exitcode == 0


class Adapter(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


CHANGED = {
    "a hook after a highway": lambda e: e.highways[1].register_forward_hook(lambda module, inputs, y: 0.5 * y),
    "a hook before a convolution": lambda e: e.convolutions[1].register_forward_pre_hook(lambda module, x: 2 * x[0]),
    "a hook after the embedding": lambda e: e.embedding.register_forward_hook(lambda module, inputs, y: 0.5 * y),
    "an adapter": lambda e: setattr(e.projection, "__class__", Adapter),
    "a forward of its own": lambda e: setattr(e.highways[0], "forward", lambda x: 2 * x),
    "pruned": lambda e: prune.l1_unstructured(e.projection, "weight", amount=0.3),
    "another activation": lambda e: setattr(e, "activation", torch.sigmoid),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
@both
def test_changed_modules_are_called(encoder, ran, change: Callable, trained: bool) -> None:
    with torch.set_grad_enabled(trained):
        before = encoder(spelled())
        change(encoder)
        ran.clear()
        result = encoder(spelled())
    torch.testing.assert_close(result, by_modules(encoder, spelled()), rtol=0, atol=1e-6)
    assert not torch.allclose(result, before, atol=1e-4)
    assert not ran or (trained and change is CHANGED["another activation"])  # which comes after the maxima


def test_hooks_of_all_modules_and_of_gradients_are_called(encoder, ran) -> None:
    of_all, of_gradients = Mock(return_value=None), Mock(return_value=None)
    with torch.no_grad(), register_module_forward_hook(of_all):
        encoder(spelled())
    assert {*encoder.convolutions, encoder.projection} <= {call.args[0] for call in of_all.call_args_list}
    encoder.highways[0].carry.register_full_backward_hook(of_gradients)
    gradients(encoder, spelled())
    assert of_gradients.called
    assert not ran


@torch.no_grad()
def test_calls_for_the_modules(ran) -> None:
    large = encoder_of(char_vocab_size=70_000)
    many = spelled(["a", "b"])
    many[1, 1] = 69_999
    torch.testing.assert_close(large(many), by_modules(large, many))
    assert not torch.equal(*large(many))
    with torch.inference_mode():
        inside = encoder_of()
        torch.testing.assert_close(inside(spelled()), by_modules(inside, spelled()))
    assert not ran


@pytest.mark.parametrize("character", [262, 65536 + 98, -1])
@both
def test_characters_outside_of_the_vocabulary_are_refused(encoder, character: int, trained: bool) -> None:
    ids = spelled()
    ids[1, 1] = character
    with pytest.raises(IndexError, match="character id"), torch.set_grad_enabled(trained):
        encoder(ids)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@both
def test_nan_and_infinite_weights_give_what_the_modules_give(encoder, value: float, trained: bool, ran) -> None:
    for parameter in encoder.parameters():
        last = parameter.detach().view(-1)[-1:]
        before = last.clone()
        last.fill_(value)
        with torch.set_grad_enabled(trained):
            result, expected = encoder(spelled()), by_modules(encoder, spelled())
        assert torch.equal(result.isfinite(), expected.isfinite())
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-5, equal_nan=True)
        last.copy_(before)
    assert set(ran) == set(TRAINING if trained else INFERENCE)


@pytest.mark.parametrize("filters", [[[1, 1]], [[1, 90], [2, 91]], [[1, 348], [3, 676]]], ids=["1", "181", "1024"])
@torch.no_grad()
def test_a_word_has_the_same_bits_alone_and_among_others(filters: list) -> None:
    """Also where filters fill no vector registers: rows end anywhere in a tensor and in a thread's part of it."""
    encoder = encoder_of(char_filters=filters)
    ids = spelled([f"{n}-{n % 7}" for n in range(59)])
    torch.set_num_threads(3)
    together, exact = encoder(ids), by_modules(copy.deepcopy(encoder).double(), ids)
    torch.testing.assert_close(together.double(), exact, rtol=0, atol=3e-6 * exact.abs().max().item())
    torch.set_num_threads(1)
    for rows in (1, 7, 40):
        clear_cache(encoder)
        assert torch.equal(torch.cat([encoder(part) for part in ids.split(rows)]), together)
