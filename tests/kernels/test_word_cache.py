"""Word vectors without gradients: computed from tables, cached across calls, equal to what the modules compute."""

import copy
import gc
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils import prune

from hf_elmo import ElmoModel, kernels
from hf_elmo.characters_elmo import ElmoCharacterEncoder
from hf_elmo.kernels import native, weights, word_cache
from hf_elmo.kernels.cpu_packed import why_not_packed
from hf_elmo.kernels.word_cache import WordVectors
from hf_elmo.tokenization_elmo import words_to_character_ids
from tests.forks import exit_code
from tests.lstm_layers import CHANGES
from tests.test_modeling_numbers import ARCHITECTURES, make

pytestmark = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))

WORDS = ["the", "cat", "", "a", "Ünïcödé", "日本語", "😀", "the", "x" * 47, "y" * 48, "z" * 90, "a"]


@pytest.fixture
def encoder(model: ElmoModel) -> ElmoCharacterEncoder:
    return model.char_encoder


@pytest.fixture
def computed(monkeypatch) -> list[int]:
    """How many words were computed, at each time that some were."""
    numbers, compute = [], WordVectors._compute

    def counted(self, words, vectors):
        numbers.append(len(words))
        compute(self, words, vectors)

    monkeypatch.setattr(WordVectors, "_compute", counted)
    return numbers


def spelled(words: list[str], length: int = 50) -> Tensor:
    return torch.from_numpy(words_to_character_ids(words, length))


def by_modules(encoder: ElmoCharacterEncoder, ids: Tensor) -> Tensor:
    with torch.no_grad(), kernels.use("off"):
        return encoder(ids)


def cached_of(encoder: ElmoCharacterEncoder) -> WordVectors:
    """The cache of an encoder."""
    (entry,) = weights._made[encoder.embedding.weight].values()
    return entry.made


@pytest.fixture(autouse=True)
def ran() -> list[tuple[str, str]]:
    """What ran, where only this backend is on."""
    with kernels.use("word-cache"), kernels.record() as ran:
        yield ran


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_words_with_vectors_of_their_own(dtype: torch.dtype, computed: list[int], ran: list) -> None:
    """70,000 of them: more than the 16 bits of a character hold."""
    if reason := why_not_packed(torch.empty(0, dtype=dtype)):  # then the modules compute them
        pytest.skip(reason)
    model, _ = make(word_vocab_size=70_000, word_embedding_size=3, max_word_length=20)
    encoder = model.char_encoder.to(dtype)
    own = torch.tensor([[1], [4], [261], [65_797], [69_999], [4]])  # 65,797 is 261 in 16 bits
    ids = torch.cat((spelled(["the", "the", "the", "the", "x" * 30, "the"], 20), own), dim=1)
    for _ in range(2):
        with torch.no_grad():
            found = encoder(ids)
        tolerance = 1e-5 if dtype == torch.float32 else 0.1
        assert torch.allclose(found, by_modules(encoder, ids), atol=tolerance)
    assert computed == [5]
    assert ran == [("word-vectors", "word-cache")] * 2
    assert torch.equal(found[1], found[5])
    assert not torch.allclose(found[2], found[3], atol=1e-3)
    for column, message in ((20, "a word's id is outside of the vocabulary, 0 to 69999"), (5, "a character id")):
        wrong = ids.clone()
        wrong[0, column] = 70_000
        with pytest.raises(IndexError, match=message), torch.no_grad():
            encoder(wrong)


@pytest.mark.parametrize("changes", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_vectors_are_those_of_the_modules(changes: dict) -> None:
    model, _ = make(**changes)
    ids = spelled(WORDS, model.config.max_word_length)
    ids[3] = 0
    ids[4] = 261
    with torch.no_grad():
        found = model.char_encoder(ids[None])
    assert found.shape == (1, len(WORDS), model.config.projection_size)
    torch.testing.assert_close(found[0], by_modules(model.char_encoder, ids), rtol=0, atol=1e-6)


def test_bfloat16_is_rounded_no_more_than_by_the_modules() -> None:
    model, _ = make(dtype=torch.bfloat16)
    ids = spelled(WORDS)
    exact = by_modules(copy.deepcopy(model).double().char_encoder, ids)
    with torch.no_grad():
        found = model.char_encoder(ids)
    assert found.dtype == torch.bfloat16
    assert (found - exact).abs().max() <= 1.1 * (by_modules(model.char_encoder, ids) - exact).abs().max()


@pytest.mark.parametrize("words", [1, 2, 3, 7])
def test_a_word_has_the_same_bits_alone_and_among_others(encoder, words: int) -> None:
    ids = spelled(WORDS)
    with torch.no_grad():
        together = encoder(ids)
        weights._made.clear()
        apart = torch.cat([encoder(part) for part in ids.split(words)])
    assert torch.equal(apart, together)


@torch.no_grad()
@pytest.mark.parametrize("number", [1, 3])
def test_nor_do_they_depend_on_threads_and_the_filters_number(threads, number: int) -> None:
    """181 filters fill no vectors: the ends of rows lie anywhere in a tensor, and in a thread's share of it."""
    encoder = make(char_filters=[[1, 90], [2, 91]])[0].char_encoder
    ids = spelled([f"{n}-{n % 7}" for n in range(400)])
    threads(number)
    together = encoder(ids)
    weights._made.clear()
    threads(1)
    assert torch.equal(torch.cat([encoder(part) for part in ids.split(3)]), together)


@torch.no_grad()
def test_a_word_is_computed_once(encoder, computed: list[int]) -> None:
    first = encoder(spelled(WORDS))
    assert computed == [len(set(WORDS))]
    again = encoder(spelled([*reversed(WORDS), "dog"]))
    assert computed[1:] == [1]
    assert torch.equal(again[:-1].flip(0), first)


@torch.no_grad()
def test_what_is_kept_is_bounded(encoder, computed: list[int], monkeypatch) -> None:
    vector_and_key = encoder.size * 4 + word_cache.BYTES_OF_KEY
    monkeypatch.setattr(word_cache, "BYTES", 5 * vector_and_key)
    words = [str(number) for number in range(23)]
    ids = spelled(words)
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids), rtol=0, atol=1e-6)
    kept = cached_of(encoder)
    assert kept.vectors.shape == (5, encoder.size)
    assert len(kept.places) == 3  # of the last part
    assert sum(computed) == 23
    assert torch.equal(encoder(ids[[22, 0, 1]]), encoder(ids)[[22, 0, 1]])


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [name for name, _ in make()[0].char_encoder.named_parameters()])
def test_vectors_follow_the_weights(encoder, computed: list[int], name: str, change) -> None:
    ids = spelled(WORDS)
    with torch.no_grad():
        encoder(ids)
        change(encoder.get_parameter(name))
        after = encoder(ids)
    torch.testing.assert_close(after, by_modules(encoder, ids), rtol=0, atol=1e-6)
    assert len(computed) == 2


@torch.no_grad()
def test_vectors_follow_the_type(encoder) -> None:
    ids = spelled(WORDS)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float32):
        assert encoder.to(dtype)(ids).dtype == dtype
    torch.testing.assert_close(encoder(ids).double(), encoder.double()(ids), rtol=0, atol=0.02)


def test_gradients_reach_the_weights(encoder, computed: list[int]) -> None:
    encoder.requires_grad_(True)
    with torch.no_grad():
        encoder(spelled(WORDS))
    encoder(spelled(WORDS)).sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in encoder.parameters())
    assert len(computed) == 1


def test_frozen_vectors_serve_a_training_even_if_kept_in_inference_mode(encoder, computed: list[int]) -> None:
    with torch.inference_mode():
        encoder(spelled(WORDS[:3]))
    encoder.requires_grad_(False)
    scale = torch.ones(encoder.size, requires_grad=True)
    vectors = encoder(spelled(WORDS))
    (vectors * scale).sum().backward()
    torch.testing.assert_close(scale.grad, by_modules(encoder, spelled(WORDS)).sum(0))
    assert len(computed) == 2


@torch.no_grad()
def test_modules_that_were_changed_are_run(encoder, computed: list[int]) -> None:
    class Adapter(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    ids = spelled(WORDS)
    plain = encoder(ids)
    hook = encoder.highways[1].register_forward_hook(lambda module, inputs, output: 0.5 * output)
    hooked = encoder(ids)
    hook.remove()
    assert torch.equal(encoder(ids), plain)
    adapter = Adapter(*reversed(encoder.projection.weight.shape))
    adapter.weight, adapter.bias = encoder.projection.weight, encoder.projection.bias
    encoder.projection = adapter
    torch.testing.assert_close(encoder(ids), 2 * plain, rtol=0, atol=1e-5)
    assert not torch.allclose(hooked, plain, atol=1e-3)
    assert len(computed) == 1


@pytest.mark.parametrize("name", [name for name, _ in make()[0].char_encoder.named_parameters()])
def test_forward_mode_differentiation_keeps_the_tangent_of_each_parameter(encoder, ran: list, name: str) -> None:
    ids, weight = spelled(WORDS), encoder.get_parameter(name).detach()
    torch.manual_seed(0)
    direction, tangents = torch.randn_like(weight), []
    with torch.no_grad(), forward_ad.dual_level():
        vectors = encoder(ids)  # which are kept, and have no tangent
        ran.clear()
        for setting in ("word-cache", "off"):
            dual = forward_ad.make_dual(weight, direction)
            with kernels.use(setting):
                found = torch.func.functional_call(encoder, {name: dual}, (ids,))
            tangents.append(forward_ad.unpack_dual(found).tangent)
            torch.testing.assert_close(found, vectors, rtol=0, atol=1e-6)
        assert not ran
        torch.testing.assert_close(*tangents)
        assert tangents[0].abs().max() > 1e-3
        step, doubled = 1e-6, copy.deepcopy(encoder).double()
        ends = [
            torch.func.functional_call(doubled, {name: weight.double() + sign * step * direction}, (ids,))
            for sign in (-1, 1)
        ]
    difference = (ends[1] - ends[0]) / (2 * step)
    torch.testing.assert_close(tangents[0].double(), difference, rtol=1e-3, atol=1e-4)


def test_under_autocast_the_modules_are_run(encoder) -> None:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert encoder(spelled(WORDS)).dtype == torch.bfloat16


@torch.no_grad()
def test_kept_as_long_as_the_encoder_and_out_of_copies(encoder) -> None:
    gc.collect()
    before = len(weights._made)
    names = list(encoder.state_dict())
    copies = [encoder]
    vectors = encoder(spelled(WORDS))
    copies += [copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))]
    assert len(weights._made) == before + 1
    assert list(encoder.state_dict()) == names
    assert all(torch.equal(copied(spelled(WORDS)), vectors) for copied in copies)


@torch.no_grad()
def test_let_go_with_the_encoder() -> None:
    encoder = make()[0].char_encoder
    encoder(spelled(WORDS))
    assert encoder.embedding.weight in weights._made
    gc.collect()
    before = len(weights._made)
    del encoder
    gc.collect()
    assert len(weights._made) == before - 1


@pytest.mark.parametrize("character", [262, 65536 + 98, -1])
def test_characters_outside_of_the_vocabulary_are_refused(encoder, character: int) -> None:
    ids = spelled(WORDS)
    ids[1, 1] = character
    with torch.no_grad(), pytest.raises(IndexError, match="out"):
        encoder(ids)


@torch.no_grad()
def test_nan_propagates_from_any_weight(encoder) -> None:
    ids = spelled(WORDS)
    for parameter in encoder.parameters():
        before = parameter.data.view(-1)[-1].clone()
        parameter.data.view(-1)[-1] = torch.nan
        assert torch.equal(encoder(ids).isnan(), by_modules(encoder, ids).isnan())
        parameter.data.view(-1)[-1] = before
    assert not encoder(ids).isnan().any()


@torch.no_grad()
def test_an_infinite_weight_gives_what_the_modules_give(encoder) -> None:
    ids = spelled(WORDS)
    encoder.convolutions[0].weight.data[0, 0, 0] = torch.inf
    found, expected = encoder(ids), by_modules(encoder, ids)
    assert torch.equal(found.isfinite(), expected.isfinite())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5, equal_nan=True)


@torch.no_grad()
def test_another_activation_is_run_by_the_modules(encoder, ran) -> None:
    ids = spelled(WORDS)
    plain = encoder(ids)
    encoder.activation = torch.sigmoid
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids))
    assert not torch.allclose(encoder(ids), plain, atol=1e-3)
    encoder.activation = torch.tanh
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids), rtol=0, atol=1e-6)
    assert ran == 2 * [("word-vectors", "word-cache")]


@torch.no_grad()
def test_a_forward_of_an_instance_is_called(encoder) -> None:
    ids, module = spelled(WORDS), encoder.highways[0]
    before, forward = encoder(ids), module.forward
    module.forward = lambda x: 2 * forward(x)
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids))
    assert not torch.allclose(encoder(ids), before, atol=1e-3)


@torch.no_grad()
def test_a_pruned_weight_takes_part(encoder) -> None:
    ids = spelled(WORDS)
    before = encoder(ids)
    prune.l1_unstructured(encoder.projection, "weight", amount=0.3)
    torch.testing.assert_close(encoder(ids), by_modules(encoder, ids), rtol=0, atol=1e-6)
    assert not torch.allclose(encoder(ids), before, atol=1e-4)


@torch.no_grad()
def test_vectors_follow_the_precision_of_products(encoder, computed: list[int]) -> None:
    ids, before = spelled(WORDS), torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "medium", "highest"):
            torch.set_float32_matmul_precision(precision)
            encoder(ids)
    finally:
        torch.set_float32_matmul_precision(before)
    assert len(computed) == 2


@torch.no_grad()
def test_more_characters_than_16_bits_count_are_left_to_the_modules() -> None:
    model, _ = make(char_vocab_size=70_000)
    ids = spelled(["a", "b"])
    ids[1, 1] = 69_999
    torch.testing.assert_close(model.char_encoder(ids), by_modules(model.char_encoder, ids))
    assert not torch.equal(*model.char_encoder(ids))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@torch.no_grad()
def test_a_fork_goes_on_although_another_thread_was_at_work(encoder) -> None:
    ids = spelled(WORDS)
    expected = encoder(ids)
    with cached_of(encoder).lock:
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            os._exit(0 if torch.allclose(encoder(ids), expected, atol=1e-6) else 1)
    assert exit_code(child) == 0


def test_threads_share_what_is_kept(encoder) -> None:
    ids = spelled([f"{number % 60}-{number % 7}" for number in range(400)])
    expected = by_modules(encoder, ids)

    def one(start: int) -> Tensor:
        with torch.no_grad(), kernels.use("word-cache"):
            return encoder(ids[start : start + 40])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(0, 400, 20)))
    for start, vectors in zip(range(0, 400, 20), found, strict=True):
        torch.testing.assert_close(vectors, expected[start : start + 40], rtol=0, atol=1e-6)


def test_weights_of_several_types_are_the_modules(encoder: ElmoCharacterEncoder) -> None:
    encoder.requires_grad_(False).projection.to(torch.float64)
    assert word_cache.supports(encoder, spelled(WORDS)) == "weights are of several types"
