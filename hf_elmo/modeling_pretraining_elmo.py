"""The language models of ELMo: the sampled and the full softmax, ElmoForPreTraining."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel, Packing, State, count_labels, product_dtype, refuse_unknown

ROWS_AT_ONCE = 256  # the number of hidden vectors whose logits are in memory at once, on a CPU
WORDS_AT_ONCE = 8192  # the number of words of the vocabulary whose logits are in memory at once


class SampledWords(NamedTuple):
    """Negative words drawn without repetition from the log-uniform distribution over `vocab_size` words."""

    ids: Tensor  # [num_sampled] int64, in the order drawn
    num_tries: int  # all draws, with repetitions
    vocab_size: int

    def log_expected_count(self, word_ids: Tensor) -> Tensor:
        """The log of the expected count of each word in a sample (float32, the shape of `word_ids`).

        The expected count of a word of probability p is 1 - (1 - p)^num_tries, its probability to be in the sample. As
        in TensorFlow, it is num_tries * p instead if no draw was a repetition.
        """
        probability = log_uniform_probability(word_ids, self.vocab_size)
        if self.num_tries == len(self.ids):
            expected = probability * self.num_tries
        else:
            expected = -torch.expm1(self.num_tries * torch.log1p(-probability))
        return expected.log().float()


def log_uniform_probability(word_ids: Tensor, vocab_size: int) -> Tensor:
    """P(k) = (log(k + 2) - log(k + 1)) / log(vocab_size + 1): Zipf's law for words by descending count (float64)."""
    return torch.log1p(1.0 / (word_ids.double() + 1.0)) / math.log(vocab_size + 1)


def sample_words(
    num_sampled: int, vocab_size: int, device: Any = None, generator: torch.Generator | None = None
) -> SampledWords:
    """Draws `num_sampled` (less than `vocab_size`) different words one by one, as TensorFlow's
    `log_uniform_candidate_sampler(unique=True)` does: repetitions are discarded but counted."""
    # The index of the first draw of each word. Drawing continues until enough distinct words have appeared.
    first = torch.full((vocab_size,), torch.iinfo(torch.int64).max, device=device)
    draws = 0
    drawn = 2 * num_sampled
    while True:
        uniform = torch.rand(drawn, dtype=torch.float64, device=device, generator=generator)
        # floor(e^(u * log(n + 1))) - 1 has the log-uniform distribution; rounding may give n, hence the clamp.
        words = (torch.exp(uniform * math.log(vocab_size + 1)).long() - 1).clamp_(0, vocab_size - 1)
        first.scatter_reduce_(0, words, torch.arange(draws, draws + drawn, device=device), "amin")
        draws += drawn
        draw, ids = first.topk(num_sampled, largest=False)
        last = int(draw[-1])
        if last < draws:
            return SampledWords(ids, last + 1, vocab_size)
        drawn = draws  # doubles the number of draws


def rows_at_once(hidden: Tensor) -> int:
    return ROWS_AT_ONCE if hidden.is_cpu else 32 * ROWS_AT_ONCE  # a GPU has no cache to fill, but waits for launches


def _exponentiate_(logits: Tensor, true_logits: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
    """Replaces the `logits [rows, sampled]` of the negatives in place with `e^(logit - top)`, and with 0 at accidental
    hits, `hits [rows]`: the column of the row's target among the negatives, or -1. Returns `top`, the largest logit of
    each row, and the sum of each row's exponentials, both `[rows]` float32 and including the target."""
    hit_rows = (hits >= 0).nonzero().squeeze(1)
    logits[hit_rows, hits[hit_rows]] = -math.inf
    top = torch.maximum(logits.amax(1).float(), true_logits).to(logits.dtype)
    exponentials = logits.sub_(top[:, None]).exp_()
    return top.float(), exponentials.sum(1).float() + (true_logits - top.float()).exp()


class _SampledSoftmax(torch.autograd.Function):
    """The sum of the negative log-likelihoods. The gradients are computed in the forward pass, a chunk of rows at a
    time, while its logits are in the cache: nothing of size rows x sampled is stored or computed twice."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, sampled, dtype):
        ids = sampled.ids
        column = targets.new_full((len(weight),), -1)
        column[ids] = torch.arange(len(ids), device=ids.device)  # the index of a word in the sample, or -1
        hidden32 = hidden.float()
        true_weight = weight[targets].float()
        true_logits = (hidden32 * true_weight).sum(1) + (bias[targets].float() - sampled.log_expected_count(targets))
        keys = _with_offset(weight[ids], bias[ids].float() - sampled.log_expected_count(ids), dtype)
        queries = torch.cat((hidden.to(dtype), hidden.new_ones(len(hidden), 2, dtype=dtype)), dim=1)
        hits = column[targets]
        nll = torch.empty_like(true_logits)
        grad_true = torch.empty_like(true_logits)
        grad_hidden = torch.empty_like(hidden32)
        grad_keys = torch.zeros_like(keys.t(), dtype=torch.float32, memory_format=torch.contiguous_format)
        at_once = rows_at_once(hidden) * 4 // keys.element_size()  # the same memory for every dtype
        for start in range(0, len(hidden), at_once):
            rows = slice(start, start + at_once)
            logits = torch.mm(queries[rows], keys.t())
            top, total = _exponentiate_(logits, true_logits[rows], hits[rows])
            nll[rows] = total.log() + top - true_logits[rows]
            grad_true[rows] = torch.expm1(-nll[rows])  # the true word's probability, minus 1
            grad_hidden[rows] = torch.mm(logits, keys)[:, :-2].float().div_(total[:, None])
            scaled = (queries[rows].float() / total[:, None]).to(dtype)
            grad_keys += torch.mm(scaled.t().contiguous(), logits)  # 20 % faster than the transposed product
        grad_hidden.addcmul_(grad_true[:, None], true_weight)
        ctx.save_for_backward(hidden, weight, bias, targets, ids, grad_hidden, grad_true, grad_keys)
        ctx.mark_non_differentiable(nll)
        return nll.sum(), nll

    @staticmethod
    def backward(ctx, grad_total, _):
        if torch.is_grad_enabled():  # create_graph=True: without this error, the gradient would be a constant
            raise RuntimeError("The sampled softmax has no second derivative: call backward without create_graph.")
        hidden, weight, bias, targets, ids, grad_hidden, grad_true, grad_keys = ctx.saved_tensors
        grad_true = grad_true * grad_total
        grad_keys = grad_keys * grad_total
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        grad_weight.index_add_(0, targets, grad_true[:, None] * hidden.float())
        grad_weight.index_add_(0, ids, grad_keys[:-2].t().contiguous())
        grad_bias = torch.zeros_like(bias, dtype=torch.float32)
        grad_bias.index_add_(0, targets, grad_true).index_add_(0, ids, grad_keys[-2])
        grads = (grad_hidden * grad_total, hidden), (grad_weight, weight), (grad_bias, bias)
        return *(grad.to(like.dtype) for grad, like in grads), None, None, None


def _with_offset(weight: Tensor, offset: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights `[words, size + 2]`, for queries that end with two ones, so that the product adds `offset`. One column is
    the offset rounded to `dtype`, the last the remainder: without it, bfloat16 would shift a logit by up to 0.03."""
    rounded = offset.to(dtype)
    rest = (offset - rounded.float()).to(dtype)
    return torch.cat((weight.to(dtype), rounded[:, None], rest[:, None]), dim=1)


def sampled_softmax_nll(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, sampled: SampledWords
) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood of `targets` by a sampled softmax with one sample for all rows, as in TensorFlow's
    `sampled_softmax_loss` (Jean et al. 2015), with which bilm-tf trains.

    The log of a word's expected count in the sample is subtracted from its logit, and a sampled word that is the target
    of a row does not count as a negative in this row.

    Args:
        hidden: `[rows, size]`, the input of the softmax.
        weight, bias: `[vocab_size, size]` and `[vocab_size]`, the parameters of the softmax.
        targets: `[rows]` int64 in 0 .. `vocab_size - 1`.
        sampled: from [`sample_words`].

    Returns:
        the sum over the rows, which has a gradient, and the values of the rows `[rows]` float32, without gradient.
    """
    dtype = product_dtype(hidden)
    with torch.autocast(hidden.device.type, enabled=False):  # autocast would copy the exponentials to float32
        return _SampledSoftmax.apply(hidden, weight, bias, targets, sampled, dtype)


def full_softmax_nll(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The negative log-likelihood of `targets` by the full softmax in nats, `[rows]` float32. The arguments are those
    of [`sampled_softmax_nll`]. The logits of one block of rows and words are in memory at a time, and are recomputed in
    the backward pass, so that memory does not grow with rows x vocabulary."""
    dtype = product_dtype(hidden)

    def log_total(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.mm(hidden.to(dtype), weight.to(dtype).t()).float().add_(bias).logsumexp(1)

    blocks = list(zip(weight.split(WORDS_AT_ONCE), bias.split(WORDS_AT_ONCE), strict=True))
    with torch.autocast(hidden.device.type, enabled=False):
        log_totals = [
            torch.stack([checkpoint(log_total, rows, *block, use_reentrant=False) for block in blocks]).logsumexp(0)
            for rows in hidden.split(rows_at_once(hidden))
        ]
        true_weight = nn.functional.embedding(targets, weight)
        true_logits = (hidden.to(dtype).float() * true_weight.to(dtype).float()).sum(1) + bias[targets].float()
    return torch.cat(log_totals) - true_logits


@dataclass
class ElmoForPreTrainingOutput(ModelOutput):
    """The output of [`ElmoForPreTraining`].

    Args:
        loss: if `labels` are given, the mean loss over the labels of both directions, in nats per word.
        forward_loss, backward_loss: if `labels` are given, the mean loss of each direction, in nats per word.
        forward_logits: `[batch, positions, vocab_size]`, at each position the logits of the word after it.
        backward_logits: `[batch, positions, vocab_size]`, at each position the logits of the word before it.
        hidden_states: if `output_hidden_states=True`, the layers of the biLM, as in [`ElmoModelOutput`].
        state: if `use_cache=True`, as in [`ElmoModelOutput`].
    """

    loss: Tensor | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None
    forward_logits: Tensor | None = None
    backward_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    state: State | None = None


class ElmoForPreTraining(ElmoPreTrainedModel):
    """A forward and a backward language model over one character CNN, with one softmax over words for both directions.
    `config.vocab_size` is required.

    The forward LM's output at position k predicts word k + 1 and has read the words up to k; the backward LM's output
    predicts word k - 1 and has read the words from k on. In training the softmax is sampled (`config.num_sampled`
    words, one sample for all words of a step) if `config.vocab_size` is larger; otherwise and in evaluation it is full.
    """

    _auto_class = "AutoModelForPreTraining"
    _trains_bilm = True

    def __init__(self, config: ElmoConfig) -> None:
        if config.vocab_size is None:
            raise ValueError("vocab_size is None: set it to the number of words in the language model's softmax.")
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.lm_head = nn.Linear(config.projection_size, config.vocab_size)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As in any ELMo, but the softmax's bias is the log of the probability with which the sampler draws each word:
        the model need not learn how frequent words are. (bilm-tf begins with zeros.)"""
        super()._init_weights(module)
        if module is self.lm_head:
            words = torch.arange(self.config.vocab_size, device=module.bias.device)
            init.copy_(module.bias, log_uniform_probability(words, self.config.vocab_size).log())

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        labels: Tensor | None = None,
        backward_input_ids: Tensor | None = None,
        output_logits: bool | None = None,
        output_hidden_states: bool | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> ElmoForPreTrainingOutput:
        r"""
        Args:
            input_ids, attention_mask, inputs_embeds, state: as in [`ElmoModel`].
            labels: `[batch, positions, 2]`, at each position the id of the word after it, which the forward LM
                predicts, and of the word before it, which the backward LM predicts; -100 for no label.
                [`neighbor_labels`] makes these labels.
            backward_input_ids: `[batch, positions, characters]`, the words of the backward LM in its reading order, if
                it reads other words than the forward LM. Each row has the same number of words as in `input_ids`. The
                labels, logits and hidden states of the backward LM are then in the same order.
            output_logits: whether to return the logits of the whole vocabulary; by default only without `labels`.
            output_hidden_states: whether to return the biLM's layers.
            use_cache: whether to return the `state` for the next call.
            num_items_in_batch: the number of labels of all accumulated steps, by which the loss is divided (Trainer
                passes it); by default the number of labels of this call.

        Raises:
            ValueError: `input_ids` and `inputs_embeds` are both given or both missing; a tensor has a wrong shape; a
                label is not a word's id; or the softmax is sampled and `lm_head` has an adapter, quantized weights,
                offloading or a hook.
        """
        refuse_unknown(kwargs)
        how = {"state": state, "backward_input_ids": backward_input_ids}
        how |= {"output_hidden_states": output_hidden_states, "use_cache": use_cache}
        packing, output = self._read(input_ids, attention_mask, inputs_embeds, **how)
        directions = output.layers[-1].chunk(2, dim=-1)
        losses = (None,) * 3 if labels is None else self._losses(directions, labels, packing, num_items_in_batch)
        with_logits = labels is None if output_logits is None else output_logits
        logits = [packing.pad(self.lm_head(x)) for x in directions] if with_logits else (None,) * 2
        return ElmoForPreTrainingOutput(*losses, *logits, hidden_states=output.hidden_states, state=output.state)

    @torch.no_grad()
    def word_nll(
        self,
        input_ids: Tensor,
        labels: Tensor,
        attention_mask: Tensor | None = None,
        state: State | None = None,
        backward_input_ids: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """The negative log-likelihood of each label in nats by the full softmax, `[batch, positions, 2]` float32, 0
        where the label is -100; and the state. The arguments are those of `forward`."""
        how = {"state": state, "backward_input_ids": backward_input_ids, "use_cache": True}
        packing, output = self._read(input_ids, attention_mask, None, output_hidden_states=False, **how)
        targets, predicted = self._targets(labels, packing)
        nll = self._full_nll(torch.cat(output.layers[-1].chunk(2, dim=1))[predicted], targets[predicted])
        nll = nll.new_zeros(len(targets)).index_copy(0, predicted, nll)
        return packing.pad(nll.view(2, -1).T), output.state

    def _read(self, input_ids: Tensor, mask: Tensor, vectors: Tensor, **how: Any) -> tuple[Packing, Any]:
        """The packing of a batch, and what the biLM gives for it; `how` are further arguments of [`ElmoModel`]."""
        packing = self.elmo.packing_type.of(self.elmo.masks_of(input_ids, mask, vectors)[0])
        how |= {"attention_mask": mask, "inputs_embeds": vectors, "packing": packing, "return_dict": True}
        return packing, self.elmo(input_ids, **how)

    def _targets(self, labels: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """The labels `[2 * packed]` of the forward LM, then of the backward LM; and the indices of those not -100."""
        if labels.shape != (*packing.shape, 2):  # those of other positions would be read
            raise ValueError(f"labels has the shape {list(labels.shape)}, but must have {[*packing.shape, 2]}.")
        targets = packing.pack(labels).T.flatten()
        size = self.config.vocab_size
        wrong = targets[(targets != IGNORE_INDEX) & ((targets < 0) | (targets >= size))]
        if len(wrong):  # a negative label would index from the end
            raise ValueError(f"labels has {wrong[0].item()}, but must hold 0 to {size - 1}, or -100 (no label).")
        return targets, (targets != IGNORE_INDEX).nonzero().squeeze(1)

    @torch.compiler.disable  # the numbers of sampled and of predicted words differ from step to step
    def _losses(
        self, directions: Sequence[Tensor], labels: Tensor, packing: Packing, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss to train on, and the mean loss of each direction, which has no gradient."""
        targets, predicted = self._targets(labels, packing)
        sampled = None
        if self.training and self.config.num_sampled < self.config.vocab_size:
            sampled = sample_words(self.config.num_sampled, self.config.vocab_size, targets.device)
        hidden = torch.cat([self.dropout(x) for x in directions])[predicted]
        if sampled is None:
            nll = self._full_nll(hidden, targets[predicted])
            total = nll.sum()
        elif _is_plain(self.lm_head):
            head = self.lm_head
            total, nll = sampled_softmax_nll(hidden, head.weight, head.bias, targets[predicted], sampled)
        else:
            raise ValueError("lm_head has an adapter, a quantized weight or a hook: train with num_sampled=vocab_size.")
        sums = nll.new_zeros(len(targets)).index_copy(0, predicted, nll.detach()).view(2, -1).sum(1)
        counts = (targets != IGNORE_INDEX).view(2, -1).sum(1).clamp(min=1)
        return total / count_labels(targets, num_items_in_batch), *(sums / counts)

    def _full_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        head = self.lm_head
        if _is_plain(head):
            return full_softmax_nll(hidden, head.weight, head.bias, targets)
        logits = head(hidden).float()
        return nn.functional.cross_entropy(logits, targets.to(logits.device), reduction="none").to(hidden.device)


def _is_plain(layer: nn.Linear) -> bool:
    """Whether calling the layer only multiplies by its own weights: no hook, offloading, adapter or quantization."""
    changed = any(value for name, value in vars(layer).items() if "forward" in name or "backward" in name)
    plain = type(layer) is nn.Linear and type(layer.weight) in (Tensor, nn.Parameter)
    return plain and not changed and not layer.weight.is_meta


def neighbor_labels(word_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """The labels of [`ElmoForPreTraining`] for sentences that both directions read.

    Args:
        word_ids: `[batch, positions]`, the ids in the vocabulary of words, `<S>` and `</S>`; -100 for no id.
        attention_mask: `[batch, positions]`, 0 for padding, on either side.

    Returns:
        `[batch, positions, 2]`: the word after each position and the word before it; -100 where there is none.
    """
    mask = torch.ones_like(word_ids) if attention_mask is None else attention_mask
    known = torch.where(mask != 0, word_ids, IGNORE_INDEX)
    none = known.new_full((len(known), 1), IGNORE_INDEX)
    labels = torch.stack((torch.cat((known[:, 1:], none), 1), torch.cat((none, known[:, :-1]), 1)), dim=2)
    return labels.masked_fill((mask == 0)[:, :, None], IGNORE_INDEX)
