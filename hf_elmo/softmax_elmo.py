"""The language models' softmax over words: sampled while training, full elsewhere, neither as one large matrix."""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

# Hidden vectors whose logits are in memory together: few stay in a processor's cache, a GPU wants many at a time.
ROWS_AT_ONCE, ROWS_AT_ONCE_ON_A_GPU = 256, 16384
WORDS_AT_ONCE = 8192  # words of the vocabulary whose logits are in memory together


class SampledWords(NamedTuple):
    """Negative words drawn without repetition from the log-uniform distribution over `vocab_size` words.

    `ids` `[num_sampled]` int64, in the order drawn; `num_tries` the draws it took, repetitions included.
    """

    ids: Tensor
    num_tries: int
    vocab_size: int

    def log_expected_count(self, word_ids: Tensor) -> Tensor:
        """The log of how often each word is expected in such a sample (float32, the shape of `word_ids`).

        With `num_tries` draws a word of probability p is in the sample with probability 1 - (1 - p)^num_tries. Where no
        draw was a repetition TensorFlow takes num_tries * p, and so does this.
        """
        probability = log_uniform_probability(word_ids, self.vocab_size)
        if self.num_tries == len(self.ids):
            expected = probability * self.num_tries
        else:
            expected = -torch.expm1(self.num_tries * torch.log1p(-probability))
        return expected.log().float()

    def columns(self) -> Tensor:
        """`[vocab_size]` int64: each word's place in the sample, -1 for those that are not in it."""
        places = torch.arange(len(self.ids), device=self.ids.device)
        return self.ids.new_full((self.vocab_size,), -1).scatter_(0, self.ids, places)


def log_uniform_probability(word_ids: Tensor, vocab_size: int) -> Tensor:
    """P(k) = (log(k + 2) - log(k + 1)) / log(vocab_size + 1): Zipf's law for words by falling count (float64)."""
    return torch.log1p(1.0 / (word_ids.double() + 1.0)) / math.log(vocab_size + 1)


def sample_words(
    num_sampled: int, vocab_size: int, device=None, generator: torch.Generator | None = None
) -> SampledWords:
    """
    Draws `num_sampled` different words as TensorFlow's `log_uniform_candidate_sampler(unique=True)` does: one after the
    other, repetitions thrown away but counted.

    Args:
        num_sampled: words wanted, fewer than `vocab_size`.
        vocab_size: words to draw from, sorted by falling count.
        device: where the ids are made.
        generator: source of randomness; torch's own by default.

    Raises:
        ValueError: `num_sampled` is not between 1 and `vocab_size`.
    """
    if not 1 <= num_sampled <= vocab_size:
        raise ValueError(
            f"num_sampled is {num_sampled}, but {vocab_size} words have 1 to {vocab_size} different negatives: "
            "lower num_sampled, or use the full softmax."
        )
    # The place of each word's first appearance among all draws; more are drawn until enough words have appeared.
    first = torch.full((vocab_size,), torch.iinfo(torch.int64).max, device=device)
    draws, drawn = 0, 2 * num_sampled
    while True:
        uniform = torch.rand(drawn, dtype=torch.float64, device=device, generator=generator)
        # floor(e^(u * log(n + 1))) - 1 has the distribution wanted; rounding may reach n, hence the bound.
        words = (torch.exp(uniform * math.log(vocab_size + 1)).long() - 1).clamp_(0, vocab_size - 1)
        first.scatter_reduce_(0, words, torch.arange(draws, draws + drawn, device=device), "amin")
        draws += drawn
        places, ids = first.sort(stable=True)
        last = int(places[num_sampled - 1])
        if last < draws:
            return SampledWords(ids[:num_sampled], last + 1, vocab_size)
        drawn = draws  # doubles the draws


def _without_autocast(forward):
    """Each type is chosen here: autocast would copy the exponentials to float32 in order to add them up."""

    @functools.wraps(forward)
    def inside(ctx, hidden, *arguments):
        with torch.autocast(hidden.device.type, enabled=False):
            return forward(ctx, hidden, *arguments)

    return inside


def _exponentiate_(logits: Tensor, true_logits: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
    """In place, each row of logits becomes `e^(logit - top)`, 0 at its hit.

    Args:
        logits: `[rows, sampled]`, of the negatives.
        true_logits: `[rows]` float32.
        hits: `[rows]` int64, accidental hits: where the row's target is among the negatives, -1 where it is not.

    Returns:
        `top`, the largest logit of each row, and the sum of its exponentials with that of the target, both `[rows]`
        float32.
    """
    hit_rows = (hits >= 0).nonzero().squeeze(1)
    logits[hit_rows, hits[hit_rows]] = -math.inf
    top = torch.maximum(logits.amax(1).float(), true_logits).to(logits.dtype)
    exponentials = logits.sub_(top[:, None]).exp_()
    return top.float(), exponentials.sum(1).float() + (true_logits - top.float()).exp()


class _SampledSoftmax(torch.autograd.Function):
    """Sum of the negative log-likelihoods, and its gradients, chunk by chunk over the rows.

    The gradients are made during the forward pass, while a chunk's logits are still in the cache: nothing of size
    rows x sampled is kept or computed twice.
    """

    @staticmethod
    @_without_autocast
    def forward(ctx, hidden, weight, bias, targets, sampled, dtype):
        ids, column = sampled.ids, sampled.columns()
        hidden32, true_weight = hidden.float(), weight[targets].float()
        true_logits = (hidden32 * true_weight).sum(1) + (bias[targets].float() - sampled.log_expected_count(targets))
        keys = _with_offset(weight[ids], bias[ids].float() - sampled.log_expected_count(ids), dtype)
        queries = torch.cat((hidden.to(dtype), hidden.new_ones(len(hidden), 2, dtype=dtype)), dim=1)
        hits = column[targets]
        nll, grad_true = torch.empty_like(true_logits), torch.empty_like(true_logits)
        grad_hidden = torch.empty_like(hidden32)
        grad_keys = torch.zeros_like(keys.t(), dtype=torch.float32, memory_format=torch.contiguous_format)
        at_once = _rows_at_once(hidden) * 4 // keys.element_size()  # as much memory in every type
        for start in range(0, len(hidden), at_once):
            rows = slice(start, start + at_once)
            logits = torch.mm(queries[rows], keys.t())
            top, total = _exponentiate_(
                logits, true_logits[rows], hits[rows]
            )  # a row's target is none of its negatives
            nll[rows] = total.log() + top - true_logits[rows]
            grad_true[rows] = torch.expm1(-nll[rows])  # the true word's probability, minus 1
            grad_hidden[rows] = torch.mm(logits, keys)[:, :-2].float().div_(total[:, None])
            scaled = (queries[rows].float() / total[:, None]).to(dtype)
            grad_keys += torch.mm(scaled.t().contiguous(), logits)  # a fifth faster than its transpose
        grad_hidden.addcmul_(grad_true[:, None], true_weight)
        ctx.save_for_backward(hidden, weight, bias, targets, ids, grad_hidden, grad_true, grad_keys)
        ctx.mark_non_differentiable(nll)
        return nll.sum(), nll

    @staticmethod
    def backward(ctx, grad_total, _):
        _require_first_order()
        hidden, weight, bias, targets, ids, grad_hidden, grad_true, grad_keys = ctx.saved_tensors
        grad_true, grad_keys = grad_true * grad_total, grad_keys * grad_total
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        grad_weight.index_add_(0, targets, grad_true[:, None] * hidden.float())
        grad_weight.index_add_(0, ids, grad_keys[:-2].t().contiguous())
        grad_bias = torch.zeros_like(bias, dtype=torch.float32)
        grad_bias.index_add_(0, targets, grad_true).index_add_(0, ids, grad_keys[-2])
        grads = (grad_hidden * grad_total, hidden), (grad_weight, weight), (grad_bias, bias)
        return *(grad.to(like.dtype) for grad, like in grads), None, None, None


def _with_offset(weight: Tensor, offset: Tensor, dtype: torch.dtype) -> Tensor:
    """`[words, size + 2]`: with two ones at a query's end the product adds `offset`. Its value and what rounding it to
    `dtype` leaves over are two columns, since bfloat16 alone would shift a logit by up to 0.03."""
    rounded = offset.to(dtype)
    rest = (offset - rounded.float()).to(dtype)
    return torch.cat((weight.to(dtype), rounded[:, None], rest[:, None]), dim=1)


def sampled_softmax_nll(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, sampled: SampledWords
) -> tuple[Tensor, Tensor]:
    """
    The sampled softmax's negative log-likelihood of `targets`: TensorFlow's `sampled_softmax_loss` (Jean et al. 2015;
    bilm-tf trained with it), one sample for all rows.

    From each logit the log of the word's expected count in the sample is subtracted, and a sampled word that is a row's
    target does not count among that row's negatives.

    Args:
        hidden: `[rows, size]` what the softmax reads.
        weight: `[vocab_size, size]`.
        bias: `[vocab_size]`.
        targets: `[rows]` int64 in 0 .. `vocab_size - 1`.
        sampled: from `sample_words`.

    Returns:
        the sum over the rows, which has a gradient, and the rows' values `[rows]` float32, which have none.
    """
    return _SampledSoftmax.apply(hidden, weight, bias, targets, sampled, _product_dtype(hidden))


def _require_first_order() -> None:
    if torch.is_grad_enabled():  # create_graph=True, as for a penalty on gradients, which would be a constant
        raise RuntimeError("the softmax's loss has no second derivative: call backward without create_graph.")


class _FullSoftmax(torch.autograd.Function):
    """Negative log-likelihood of each row. Logits exist for one block of rows and words at a time; the backward pass
    makes them again."""

    @staticmethod
    @_without_autocast
    def forward(ctx, hidden, weight, bias, targets, dtype):
        low_hidden, low_weight = hidden.to(dtype), weight.to(dtype)
        true_logits = (low_hidden.float() * low_weight[targets].float()).sum(1) + bias[targets].float()
        log_total = torch.full_like(true_logits, -math.inf)
        for rows, words in _blocks(len(hidden), len(weight), _rows_at_once(hidden)):
            logits = torch.mm(low_hidden[rows], low_weight[words].t()).float().add_(bias[words])
            log_total[rows] = torch.logaddexp(log_total[rows], logits.logsumexp(1))
        ctx.save_for_backward(hidden, weight, bias, targets, log_total)
        ctx.dtype = dtype
        return log_total - true_logits

    @staticmethod
    def backward(ctx, grad_nll):
        _require_first_order()
        hidden, weight, bias, targets, log_total = ctx.saved_tensors
        low_hidden, low_weight = hidden.to(ctx.dtype), weight.to(ctx.dtype)
        grad_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        grad_bias = torch.zeros_like(bias, dtype=torch.float32)
        for rows, words in _blocks(len(hidden), len(weight), _rows_at_once(hidden)):
            logits = torch.mm(low_hidden[rows], low_weight[words].t()).float().add_(bias[words])
            grad_logits = logits.sub_(log_total[rows, None]).exp_()
            inside = (targets[rows] >= words.start) & (targets[rows] < words.stop)
            row = inside.nonzero().squeeze(1)
            grad_logits[row, targets[rows][row] - words.start] -= 1.0
            grad_logits *= grad_nll[rows, None]
            grad_bias[words] += grad_logits.sum(0)
            low_grad = grad_logits.to(ctx.dtype)
            grad_hidden[rows] += torch.mm(low_grad, low_weight[words]).float()
            grad_weight[words] += torch.mm(low_grad.t(), low_hidden[rows]).float()
        return grad_hidden.to(hidden.dtype), grad_weight.to(weight.dtype), grad_bias.to(bias.dtype), None, None


def full_softmax_nll(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """
    The full softmax's negative log-likelihood of `targets` in nats, `[rows]` float32: plain cross entropy, in blocks,
    so that memory does not grow with rows x vocabulary.

    Args:
        hidden: `[rows, size]` what the softmax reads.
        weight, bias: `[vocab_size, size]`, `[vocab_size]`.
        targets: `[rows]` int64 in 0 .. `vocab_size - 1`.
    """
    return _FullSoftmax.apply(hidden, weight, bias, targets, _product_dtype(hidden))


def _blocks(rows: int, words: int, at_once: int):
    for row in range(0, rows, at_once):
        for word in range(0, words, WORDS_AT_ONCE):
            yield slice(row, min(row + at_once, rows)), slice(word, min(word + WORDS_AT_ONCE, words))


def _rows_at_once(hidden: Tensor) -> int:
    return ROWS_AT_ONCE if hidden.device.type == "cpu" else ROWS_AT_ONCE_ON_A_GPU


def _product_dtype(hidden: Tensor) -> torch.dtype:
    # Autocast does not reach into an autograd function, so its choice for products is asked for here.
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
