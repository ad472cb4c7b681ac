"""ElmoForPreTraining: its losses, sampled and full. (tests/pretraining/test_perplexity.py has its probabilities.)"""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from hf_elmo import ElmoForPreTraining, ElmoTokenizer, modeling_pretraining_elmo
from hf_elmo.modeling_pretraining_elmo import SampledWords, neighbor_labels, sample_words, sampled_softmax_nll
from tests.heads import batch_of, make

VOCAB_SIZE = 31


@pytest.fixture
def model() -> ElmoForPreTraining:
    return make("language models", num_sampled=11)


@pytest.fixture
def batch(tokenizer: ElmoTokenizer) -> dict[str, torch.Tensor]:
    return batch_of(tokenizer, "language models")


def test_loss_is_the_mean_of_both_directions_in_nats(model, batch):
    output = model(**batch, output_logits=True)
    both = output.forward_logits, output.backward_logits
    means = [cross_entropy(x.mT, labels) for x, labels in zip(both, batch["labels"].unbind(2), strict=True)]
    torch.testing.assert_close([output.forward_loss, output.backward_loss, output.loss], [*means, sum(means) / 2])
    nll, _ = model.word_nll(**batch)
    assert (nll[batch["labels"] == -100] == 0).all()
    torch.testing.assert_close(nll.sum() / (batch["labels"] != -100).sum(), output.loss)


def test_labels_are_the_neighbors():
    words = torch.tensor([[0, 7, 8, 1], [0, 9, 1, 5]])
    labels = neighbor_labels(words, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
    assert labels[..., 0].tolist() == [[7, 8, 1, -100], [9, 1, -100, -100]]
    assert labels[..., 1].tolist() == [[-100, 0, 7, 8], [-100, 0, 9, -100]]
    left = neighbor_labels(torch.tensor([[5, 0, 9, 1]]), torch.tensor([[0, 1, 1, 1]]))
    assert left[..., 0].tolist() == [[-100, 9, 1, -100]]
    assert left[..., 1].tolist() == [[-100, -100, 0, 9]]


def test_training_samples_the_softmax_and_evaluation_does_not(model, batch):
    full = [model.eval()(**batch).loss.item() for _ in range(2)]
    sampled = [model.train()(**batch).loss.item() for _ in range(2)]
    assert full[0] == full[1]
    assert sampled[0] != sampled[1]
    model.config.num_sampled = VOCAB_SIZE
    assert model(**batch).loss.item() == pytest.approx(full[0], rel=1e-5)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_labels_and_words_that_do_not_fit(model, batch, training):
    """Indexing would take -1 from the end of the vocabulary; -100 is no label."""
    model.train(training)
    for value in (-1, -101, VOCAB_SIZE):
        wrong = {**batch, "labels": batch["labels"].clone()}
        wrong["labels"][0, 1, 1] = value
        for call in (model, model.word_nll):
            with pytest.raises(ValueError, match="labels"):
                call(**wrong)
    with pytest.raises(ValueError, match="labels has the shape"):
        model(**{**batch, "labels": batch["labels"][:, 1:]})
    with pytest.raises(ValueError, match="backward_input_ids"):
        model(batch["input_ids"], backward_input_ids=batch["input_ids"][:, 1:])
    output = model(**{**batch, "labels": torch.full_like(batch["labels"], -100)})
    assert [output.loss, output.forward_loss, output.backward_loss] == [0, 0, 0]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(modeling_pretraining_elmo, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(modeling_pretraining_elmo, "WORDS_AT_ONCE", 23)


@pytest.fixture
def problem() -> tuple[torch.Tensor, ...]:
    """hidden [13, 7], weight [61, 7], bias [61], targets [13], frequent words among them so that samples hit some."""
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias = (torch.randn(shape, generator=generator) for shape in ((13, 7), (61, 7), (61,)))
    targets = torch.tensor([0, 1, 2, 0, 60, 17, 33, 5, 4, 3, 59, 1, 8])
    return hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), targets


@pytest.fixture
def sampled(problem: tuple[torch.Tensor, ...]) -> SampledWords:
    torch.manual_seed(2)
    sampled = sample_words(19, 61)
    assert set(problem[3].tolist()) & set(sampled.ids.tolist()), "no accidental hit: the tests would prove too little"
    return sampled


def gradients(problem: tuple[torch.Tensor, ...], loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(loss, problem[:3])


def test_sample_is_that_of_drawing_one_by_one_and_throwing_repetitions_away() -> None:
    vocab_size, num_sampled = 97, 13
    sampled = sample_words(num_sampled, vocab_size, generator=torch.Generator().manual_seed(5))
    uniform = torch.rand(2 * num_sampled, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    draws = [int(math.exp(value * math.log(vocab_size + 1))) - 1 for value in uniform.tolist()]
    tries = next(tries for tries in range(len(draws)) if len(set(draws[:tries])) == num_sampled)
    assert sampled.ids.tolist() == list(dict.fromkeys(draws[:tries]))
    assert sampled.num_tries == tries


@pytest.mark.parametrize("repetitions", [True, False])
def test_sampled_loss_and_gradients_are_tensorflows(problem, sampled, repetitions: bool) -> None:
    sampled = sampled if repetitions else sampled._replace(num_tries=19)
    total, nll = sampled_softmax_nll(*problem, sampled)
    exact = [tensor.detach().double().requires_grad_() for tensor in problem[:3]]
    (hidden, weight, bias), expected = exact, []
    for row, target in zip(hidden, problem[3].tolist(), strict=True):
        words = [target, *(word for word in sampled.ids.tolist() if word != target)]
        # The chance of a draw is that of tf.random.log_uniform_candidate_sampler's documentation.
        chances = [(math.log(word + 2) - math.log(word + 1)) / math.log(61 + 1) for word in words]
        counts = [1 - (1 - p) ** sampled.num_tries if repetitions else 19 * p for p in chances]
        logits = weight[words] @ row + bias[words] - torch.tensor(counts).double().log()
        expected.append(logits.logsumexp(0) - logits[0])
    torch.testing.assert_close(nll, torch.stack(expected).float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(total, sum(expected).float(), rtol=1e-5, atol=0)
    wanted = tuple(gradient.float() for gradient in torch.autograd.grad(sum(expected) * 0.37, exact))
    torch.testing.assert_close(gradients(problem, total * 0.37), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="second derivative"):  # a penalty on gradients would add nothing in silence
        torch.autograd.grad(sampled_softmax_nll(*problem, sampled)[0], problem[0], create_graph=True)


def test_sampled_loss_under_autocast_is_close(problem, sampled) -> None:
    _, exact = sampled_softmax_nll(*problem, sampled)
    with torch.autocast("cpu", torch.bfloat16):
        total, nll = sampled_softmax_nll(*problem, sampled)
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll, exact, rtol=0.02, atol=0.05)
    assert all(gradient.dtype == torch.float32 for gradient in gradients(problem, total))


def test_large_logits_stay_finite_and_nan_is_seen(problem, sampled) -> None:
    hidden, weight, bias, targets = problem
    total, nll = sampled_softmax_nll(hidden * 60, weight * 60, bias, targets, sampled)
    assert nll.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(problem, total))
    rows = torch.arange(13) == 5
    _, nll = sampled_softmax_nll(hidden.masked_fill(rows[:, None], math.nan), weight, bias, targets, sampled)
    assert nll.isnan().equal(rows)


def test_a_words_offset_is_not_rounded_to_bfloat16() -> None:
    """Each product is rounded, to one side as often as to the other; an offset that is would always be off by 0.015."""
    generator = torch.Generator().manual_seed(4)
    hidden, weight = (torch.randn(rows, 7, generator=generator).bfloat16() for rows in (4096, 61))
    sampled, targets = SampledWords(torch.tensor([3]), 1, 61), torch.full((4096,), 60)
    bias = torch.zeros(61)
    bias[3] = 5.0 + 2**-6 - 2**-12 + sampled.log_expected_count(torch.tensor([3]))
    bias[60] = sampled.log_expected_count(torch.tensor([60]))
    found, exact = (sampled_softmax_nll(x, weight.float(), bias, targets, sampled)[1] for x in (hidden, hidden.float()))
    assert abs((found - exact).mean()) < 3e-3


def test_full_softmax_in_blocks_is_cross_entropy(problem) -> None:
    hidden, weight, bias, targets = problem
    weights = torch.linspace(0.1, 2.0, len(targets))  # a different gradient for each row
    nll = modeling_pretraining_elmo.full_softmax_nll(*problem)
    expected = cross_entropy(hidden @ weight.T + bias, targets, reduction="none")
    torch.testing.assert_close(nll, expected)
    found = gradients(problem, (nll * weights).sum())
    torch.testing.assert_close(found, gradients(problem, (expected * weights).sum()))
