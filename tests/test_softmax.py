"""The sampled and the full softmax against independent computations in NumPy and PyTorch."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from hf_elmo import modeling_elmo
from hf_elmo.modeling_elmo import SampledWords, full_softmax_nll, sample_words, sampled_softmax_nll


@pytest.fixture
def problem() -> tuple[torch.Tensor, ...]:
    """hidden [13, 7], weight [61, 7], bias [61], targets [13], frequent words among them so that samples hit some."""
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias = (torch.randn(shape, generator=generator) for shape in ((13, 7), (61, 7), (61,)))
    targets = torch.tensor([0, 1, 2, 0, 60, 17, 33, 5, 4, 3, 59, 1, 8])
    return hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), targets


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_elmo, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(modeling_elmo, "WORDS_AT_ONCE", 23)


def tensorflow_probability(word: int, vocab_size: int) -> float:
    # tf.random.log_uniform_candidate_sampler's documentation
    return (math.log(word + 2) - math.log(word + 1)) / math.log(vocab_size + 1)


def numpy_sampled_nll(hidden, weight, bias, targets, sampled: SampledWords) -> np.ndarray:
    """tf.nn.sampled_softmax_loss, row by row in double precision."""

    def expected(word: int) -> float:
        return -math.expm1(sampled.num_tries * math.log1p(-tensorflow_probability(word, sampled.vocab_size)))

    hidden, weight, bias = (tensor.detach().double().numpy() for tensor in (hidden, weight, bias))
    losses = []
    for row, target in zip(hidden, targets.tolist(), strict=True):
        words = [target, *(word for word in sampled.ids.tolist() if word != target)]
        logits = [row @ weight[word] + bias[word] - math.log(expected(word)) for word in words]
        losses.append(np.log(np.sum(np.exp(logits))) - logits[0])
    return np.array(losses)


# -- the sampler -------------------------------------------------------------------------------------------------------


def test_sample_is_that_of_drawing_one_by_one_and_throwing_repetitions_away():
    vocab_size, num_sampled = 97, 13
    sampled = sample_words(num_sampled, vocab_size, generator=torch.Generator().manual_seed(5))
    uniform = torch.rand(2 * num_sampled, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    seen: list[int] = []
    tries = 0
    for value in uniform.tolist():
        if len(seen) == num_sampled:
            break
        tries += 1
        word = int(math.exp(value * math.log(vocab_size + 1))) - 1
        if word not in seen:
            seen.append(word)
    assert len(seen) == num_sampled
    assert sampled.ids.tolist() == seen
    assert sampled.num_tries == tries


def test_expected_counts_are_tensorflows():
    sampled = SampledWords(torch.arange(20), num_tries=57, vocab_size=400)
    words = torch.tensor([0, 1, 19, 399])
    expected = [math.log(1 - (1 - tensorflow_probability(word, 400)) ** 57) for word in words.tolist()]
    torch.testing.assert_close(sampled.log_expected_count(words), torch.tensor(expected))
    sampled = sampled._replace(num_tries=20)  # no draw was a repetition
    expected = [math.log(20 * tensorflow_probability(word, 400)) for word in words.tolist()]
    torch.testing.assert_close(sampled.log_expected_count(words), torch.tensor(expected))


def test_expected_counts_are_how_often_words_are_sampled():
    vocab_size, num_sampled, repeats = 200, 83, 600
    torch.manual_seed(7)
    counts, expected = np.zeros(vocab_size), np.zeros(vocab_size)
    for _ in range(repeats):
        sampled = sample_words(num_sampled, vocab_size)
        counts[sampled.ids.numpy()] += 1
        expected += sampled.log_expected_count(torch.arange(vocab_size)).exp().numpy()
    # The expected counts are an approximation themselves (num_tries is random).
    np.testing.assert_allclose(counts / repeats, expected / repeats, atol=0.09)


# -- the sampled softmax -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1, 16, 321])
def test_exponentials_are_those_of_the_definition(dtype: torch.dtype, size: int) -> None:
    torch.manual_seed(size)
    logits, truth = (torch.randn(5, size) * torch.tensor([[0.1], [1], [5], [30], [400]])).to(dtype), torch.randn(5) * 9
    hits = torch.tensor([-1, 0, size - 1, size // 2, -1])
    exact = logits.float()
    exact[hits >= 0, hits[hits >= 0]] = -math.inf
    top = torch.maximum(exact.amax(1), truth).to(dtype).float()  # subtracted in the type of the logits
    expected = (exact - top[:, None]).to(dtype).double().exp()
    found_top, total = modeling_elmo._exponentiate_(logits, truth, hits)
    assert torch.equal(found_top, top)
    torch.testing.assert_close(logits.double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=1e-37)
    target = (truth - top).double().exp()
    torch.testing.assert_close(total.double(), expected.sum(1) + target, rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_a_logit_of_nan_is_seen() -> None:
    logits = torch.randn(2, 37)
    logits[1, 5] = torch.nan
    _, total = modeling_elmo._exponentiate_(logits, torch.zeros(2), torch.full((2,), -1))
    assert total.isnan().tolist() == [False, True]


def test_sampled_loss_is_tensorflows(problem, small_blocks):
    torch.manual_seed(2)
    sampled = sample_words(19, 61)
    assert set(problem[3].tolist()) & set(sampled.ids.tolist()), "no accidental hit: the test would prove too little"
    total, nll = sampled_softmax_nll(*problem, sampled)
    expected = numpy_sampled_nll(*problem, sampled)
    np.testing.assert_allclose(nll.numpy(), expected, rtol=1e-5)
    assert total.item() == pytest.approx(expected.sum(), rel=1e-5)


def test_sampled_gradients_are_autograds(problem, small_blocks):
    hidden, weight, bias, targets = problem
    torch.manual_seed(2)
    sampled = sample_words(19, 61)
    (sampled_softmax_nll(*problem, sampled)[0] * 0.37).backward()
    gradients = [tensor.grad.clone() for tensor in problem[:3]]
    for tensor in problem[:3]:
        tensor.grad = None
    true = (hidden * weight[targets]).sum(1) + bias[targets] - sampled.log_expected_count(targets)
    negative = hidden @ weight[sampled.ids].T + bias[sampled.ids] - sampled.log_expected_count(sampled.ids)
    negative = negative.masked_fill(sampled.ids == targets[:, None], -math.inf)
    logits = torch.cat((true[:, None], negative), dim=1)
    (cross_entropy(logits, torch.zeros_like(targets), reduction="sum") * 0.37).backward()
    for tensor, gradient in zip(problem[:3], gradients, strict=True):
        torch.testing.assert_close(gradient, tensor.grad, rtol=1e-4, atol=1e-5)


def test_sampled_loss_under_autocast_is_close(problem):
    torch.manual_seed(2)
    sampled = sample_words(19, 61)
    _, exact = sampled_softmax_nll(*problem, sampled)
    with torch.autocast("cpu", torch.bfloat16):
        total, nll = sampled_softmax_nll(*problem, sampled)
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll, exact, rtol=0.02, atol=0.05)
    total.backward()
    assert all(tensor.grad.dtype == torch.float32 for tensor in problem[:3])


def test_large_logits_stay_finite(problem):
    hidden, weight, bias, targets = problem
    total, nll = sampled_softmax_nll(hidden * 60, weight * 60, bias, targets, sample_words(19, 61))
    total.backward()
    assert nll.isfinite().all()
    assert hidden.grad.isfinite().all()


# -- the full softmax --------------------------------------------------------------------------------------------------


def test_full_softmax_in_blocks_is_cross_entropy(problem, small_blocks):
    hidden, weight, bias, targets = problem
    weights = torch.linspace(0.1, 2.0, len(targets))  # a different gradient for each row
    nll = full_softmax_nll(*problem)
    (nll * weights).sum().backward()
    gradients = [tensor.grad.clone() for tensor in problem[:3]]
    for tensor in problem[:3]:
        tensor.grad = None
    expected = cross_entropy(hidden @ weight.T + bias, targets, reduction="none")
    (expected * weights).sum().backward()
    torch.testing.assert_close(nll, expected)
    for tensor, gradient in zip(problem[:3], gradients, strict=True):
        torch.testing.assert_close(gradient, tensor.grad)


def test_no_matrix_of_rows_by_vocabulary_is_made(problem, small_blocks, monkeypatch):
    sizes = []
    real = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: sizes.append(len(a) * b.shape[1]) or real(a, b))
    full_softmax_nll(*problem).sum().backward()
    assert max(sizes) <= max(5 * 23, 23 * 7)


def test_a_penalty_on_gradients_is_an_error(problem):
    """The loss's own backward pass has no gradient: the penalty would add nothing in silence."""
    hidden, weight, bias, targets = problem
    loss, _ = sampled_softmax_nll(hidden, weight, bias, targets, sample_words(5, len(weight)))
    with pytest.raises(RuntimeError):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_a_words_offset_is_not_rounded_to_bfloat16():
    """Each product is rounded, to one side as often as to the other; an offset that is would always be off by 0.015."""
    generator = torch.Generator().manual_seed(4)
    hidden, weight = (torch.randn(rows, 7, generator=generator).bfloat16() for rows in (4096, 61))
    sampled, targets = SampledWords(torch.tensor([3]), 1, 61), torch.full((4096,), 60)
    bias = torch.zeros(61)
    bias[3] = 5.0 + 2**-6 - 2**-12 + sampled.log_expected_count(torch.tensor([3]))
    bias[60] = sampled.log_expected_count(torch.tensor([60]))
    found, exact = (sampled_softmax_nll(x, weight.float(), bias, targets, sampled)[1] for x in (hidden, hidden.float()))
    assert abs((found - exact).mean()) < 3e-3
