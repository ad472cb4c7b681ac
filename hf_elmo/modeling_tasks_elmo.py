"""Task heads over ELMo, from parts to wholes: poolings, encoders, CRF, base class, and the head of each task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import QuestionAnsweringModelOutput, SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import (
    BOUNDARY_ID,
    FIRST_VECTOR_ID,
    IGNORE_INDEX,
    SENTENCE_BEGIN_ID,
    SENTENCE_BEGIN_WORD_ID,
    SENTENCE_END_ID,
    UNKNOWN_ID,
    ElmoConfig,
)
from .modeling_elmo import (
    ElmoModel,
    ElmoPreTrainedModel,
    ElmoScalarMix,
    Packing,
    State,
    compact,
    expand,
    mean_over,
    refuse_unknown,
    words_mask,
)
from .pipeline_elmo import register as register_pipeline


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax over the scores on the last axis that `mask` (broadcast) selects; zero for scores not selected."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask


def attend(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """For each vector of `x [batch, n, size]`, the mean `[batch, n, size]` of the vectors of `y [batch, m, size]` that
    `mask [batch, m]` selects, weighted by the softmax of their dot products with the vector of `x`."""
    return masked_softmax(x @ y.mT, mask[:, None]) @ y


def max_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """The maximum `[batch, size]` of each row's vectors that `mask` selects; zero for a row without such vectors."""
    lowest = torch.finfo(vectors.dtype).min
    return vectors.masked_fill(~mask[:, :, None], lowest).amax(1) * mask.any(1, keepdim=True)


def last_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """The final states: forward half of `vectors` at the last position of `mask`, backward half at the first one."""
    forward, backward = vectors.chunk(2, dim=2)
    position = torch.arange(mask.shape[1], device=mask.device)
    last, first = (mask * position).argmax(1), mask.int().argmax(1)
    rows = torch.arange(mask.shape[0], device=mask.device)
    return torch.cat((forward[rows, last], backward[rows, first]), dim=1)


class RaggedLSTM(nn.LSTM):
    """A bidirectional `torch.nn.LSTM` over right-padded rows of different lengths."""

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, input_size]`, `[batch, words]` to `[batch, words, 2 * hidden_size]`, undefined at padding."""
        if not words.is_cpu or words.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            packing = Packing.of(mask)
            if not packing.batch_sizes:
                return words.new_zeros(*mask.shape, 2 * self.hidden_size)
            packed = PackedSequence(packing.pack(words), torch.tensor(packing.batch_sizes))
            return packing.pad(super().forward(packed)[0].data)
        # oneDNN needs padded rows; the backward pass of a PackedSequence allocates all steps' gradients at each step.
        # The backward direction reads a row's words in reverse order, then its padding.
        steps = torch.arange(mask.shape[1], device=mask.device)
        mirrored = torch.where(mask, mask.sum(1, keepdim=True) - 1 - steps, steps)[:, :, None]
        state = words.new_zeros(1, len(words), self.hidden_size)
        for layer in range(self.num_layers):
            words = nn.functional.dropout(words, self.dropout, self.training) if layer else words
            reversed_words = words.gather(1, mirrored.expand_as(words))
            outputs = []
            for weights, inputs in zip(self.all_weights[2 * layer :], (words, reversed_words), strict=False):
                outputs.append(torch.lstm(inputs, (state, state), weights, True, 1, 0.0, self.training, False, True)[0])
            outputs[1] = outputs[1].gather(1, mirrored.expand_as(outputs[1]))
            words = torch.cat(outputs, dim=2)
        return words


class ElmoBiLSTM(nn.Module):
    """A bidirectional LSTM over right-padded rows. Its output is zero at padding."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        between_layers = dropout if num_layers > 1 else 0.0
        self.dropout = nn.Dropout(dropout)
        self.lstm = RaggedLSTM(input_size, hidden_size, num_layers, bidirectional=True, dropout=between_layers)

    @torch.compiler.disable  # the lengths differ from batch to batch
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, input_size]` and `[batch, words]` to `[batch, words, 2 * hidden_size]`."""
        return self.lstm(self.dropout(vectors), mask).masked_fill(~mask[:, :, None], 0.0)


class ElmoHighwayLSTM(GradientCheckpointingLayer):
    """A unidirectional LSTM layer with a highway connection (Zhang et al. 2016; He et al. 2017, section 2.2):
    `h = r * (o * tanh(c)) + (1 - r) * W x`, where the gate `r` is computed like the other gates."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.hidden_size, self.dropout = hidden_size, dropout
        self.weight_ih = nn.Parameter(torch.empty(6 * hidden_size, input_size))  # i, f, g, o, r and the highway's W
        self.weight_hh = nn.Parameter(torch.empty(5 * hidden_size, hidden_size))  # i, f, g, o, r
        self.bias = nn.Parameter(torch.empty(6 * hidden_size))

    def forward(self, words: Tensor, batch_sizes: Sequence[int]) -> Tensor:
        """Packed words `[packed, input_size]`, in reading order, to `[packed, hidden_size]`."""
        *gates, highway = nn.functional.linear(words, self.weight_ih, self.bias).chunk(6, dim=1)
        # Under autocast, products have autocast's dtype, but the cell, a sum over words, has the dtype of the weights.
        hidden = highway.new_zeros(batch_sizes[0], self.hidden_size)
        cell = self.bias.new_zeros(hidden.shape)
        dropout_mask = nn.functional.dropout(torch.ones_like(hidden), self.dropout, self.training)
        weight_hh = self.weight_hh.T.to(hidden)
        steps = zip(*(part.split(batch_sizes) for part in (torch.cat(gates, dim=1), highway)), strict=True)
        outputs = []
        for step_gates, step_highway in steps:
            size = len(step_highway)  # rows that have ended are the last ones
            i, f, g, o, r = torch.addmm(step_gates, hidden[:size], weight_hh).chunk(5, dim=1)
            cell = f.sigmoid() * cell[:size] + i.sigmoid() * g.tanh()
            hidden = torch.lerp(step_highway, (o.sigmoid() * cell.tanh()).to(step_highway), r.sigmoid())
            hidden = hidden * dropout_mask[:size]
            outputs.append(hidden)
        return torch.cat(outputs)


class ElmoAlternatingLSTM(nn.Module):
    """Stacked LSTM layers that read forward and backward in turn, each over the output of the layer below (He et al.
    2017, section 2.2; Zhou and Xu 2015). The output is zero at positions that the mask leaves out."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, dropout: float, recurrent_dropout: float
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        sizes = [input_size, *[hidden_size] * (num_layers - 1)]
        self.layers = nn.ModuleList(ElmoHighwayLSTM(size, hidden_size, recurrent_dropout) for size in sizes)

    @torch.compiler.disable  # the packing differs from batch to batch
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, input_size]` and `[batch, words]` to `[batch, words, hidden_size]`."""
        packing = Packing.of(mask)
        if not packing.batch_sizes:
            return vectors.new_zeros(*mask.shape, self.layers[0].hidden_size)
        words = self.dropout(packing.pack(vectors))
        for index, layer in enumerate(self.layers):
            words = words if index == 0 else words.index_select(0, packing.reverse)
            words = layer(words, packing.batch_sizes)
        return packing.pad(words if len(self.layers) % 2 else words.index_select(0, packing.reverse))


class ElmoTaskEncoder(nn.Module):
    """The encoder of a head. It reads `[x; ELMo]`. With `config.elmo_at_output`, a second mix of ELMo is concatenated
    to the output of the encoder (Peters et al. 2018, section 3.3).

    `sizes` are the sizes of the parts of the output: the output of the LSTM and, if used, the second mix. Each part has
    a forward and a backward half, except the output of an alternating LSTM.
    """

    def __init__(self, config: ElmoConfig, input_size: int) -> None:
        super().__init__()
        hidden = config.encoder_hidden_size
        biattentive, alternating = (config.encoder_type == name for name in ("biattentive", "alternating"))
        self.feedforward = nn.Linear(input_size, hidden) if biattentive else None
        layers = hidden if biattentive else input_size, hidden, config.encoder_num_layers, config.encoder_dropout
        if alternating:
            self.bilstm = ElmoAlternatingLSTM(*layers, config.encoder_recurrent_dropout)
        else:
            self.bilstm = ElmoBiLSTM(*layers)
        self.dropout = nn.Dropout(config.encoder_dropout)
        self.sizes = [hidden if alternating else 2 * hidden]
        if config.elmo_at_output and config.use_elmo:
            self.sizes.append(config.hidden_size)

    def forward(self, vectors: Tensor, mask: Tensor, output_mix: Tensor | None = None) -> Tensor:
        """Vectors `[batch, words, input_size]`, mask `[batch, words]` and, with `config.elmo_at_output`, the second mix
        of ELMo `[batch, words, 2P]` to `[batch, words, sum(sizes)]`."""
        if self.feedforward is not None:
            vectors = torch.relu(self.feedforward(self.dropout(vectors)))
        encoded = self.bilstm(vectors, mask)
        return encoded if output_mix is None else torch.cat((encoded, self.dropout(output_mix)), dim=2)


class ElmoAttentionPooling(nn.Module):
    """The mean of word vectors, weighted by the softmax of learned scores (Lin et al. 2017; McCann et al. 2017)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.score = nn.Linear(size, 1)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, size]` and `[batch, words]` to `[batch, size]`; zero for a row without words."""
        weights = masked_softmax(self.score(vectors).squeeze(2), mask)
        return torch.bmm(weights[:, None], vectors)[:, 0]


class ElmoBiattention(nn.Module):
    """Attention of each text over the other text, or of a single text over itself, integrated by a BiLSTM and pooled in
    four ways: the biattentive classification network (McCann et al. 2017, section 5)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.integrator = ElmoBiLSTM(3 * size, hidden_size, dropout=dropout)
        self.attention = ElmoAttentionPooling(2 * hidden_size)

    def forward(self, texts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """One text or two, each `[batch, words, size]` with its mask, to `[batch, texts * 8 * hidden_size]`."""
        pooled = []
        for (x, mask), (y, other_mask) in zip(texts, texts[::-1], strict=True):
            attended = attend(x, y, other_mask)
            z = self.integrator(torch.cat((x, x - attended, x * attended), dim=2), mask)
            pooled += [max_over(z, mask), mean_over(z, mask), -max_over(-z, mask), self.attention(z, mask)]
        return torch.cat(pooled, dim=1)


class ElmoLocalInference(nn.Module):
    """Attention between the words of a premise and those of a hypothesis, composed by a BiLSTM and pooled: ESIM (Chen
    et al. 2017, sections 3.2 and 3.3)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.projection = nn.Linear(4 * size, hidden_size)
        self.composition = ElmoBiLSTM(hidden_size, hidden_size, dropout=dropout)

    def forward(self, texts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Two texts, each `[batch, words, size]` with its mask, to `[batch, 8 * hidden_size]`."""
        pooled = []
        for (x, mask), (y, other_mask) in zip(texts, texts[::-1], strict=True):
            attended = attend(x, y, other_mask)
            compared = torch.cat((x, attended, x - attended, x * attended), dim=2)
            composed = self.composition(torch.relu(self.projection(compared)), mask)
            pooled += [mean_over(composed, mask), max_over(composed, mask)]
        return torch.cat(pooled, dim=1)


class ElmoMaxout(nn.Module):
    """The maximum of four linear maps (Goodfellow et al. 2013), for the last layers of the biattentive network."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, output_size * 4)

    def forward(self, x: Tensor) -> Tensor:
        """`[batch, input_size]` to `[batch, output_size]`."""
        return self.linear(x).unflatten(1, (-1, 4)).amax(2)


IMPOSSIBLE = -1e4  # score of a forbidden start, transition or end; finite, so that there is always a best sequence
# For each scheme, prefixes that continue a chunk of the same type, that begin a chunk, that cannot end a chunk.
_CONTINUES = {"IOB1": "IB", "IOB2": "I", "BIOES": "IE"}
_BEGINS = {"IOB1": "I", "IOB2": "B", "BIOES": "BS"}
_OPEN = {"IOB1": "", "IOB2": "", "BIOES": "BI"}


def allowed_transitions(labels: Sequence[str], scheme: str) -> tuple[list[bool], list[list[bool]], list[bool]]:
    """The sequences that a tagging scheme allows: which labels may begin a sentence, which labels may follow each label
    (`[before][after]`), and which labels may end a sentence.

    Args:
        labels: names of labels, each `"O"`, or a prefix and a type, such as `"B-PER"`.
        scheme: `"IOB1"` (B only between two adjacent chunks of the same type), `"IOB2"` or `"BIOES"`.

    Raises:
        ValueError: a label has a prefix that the scheme does not have. (The label would never be predicted.)
    """
    prefixes = {"O", *_BEGINS[scheme], *_CONTINUES[scheme]}
    parts = [(label.partition("-")[0], label.partition("-")[2]) for label in labels]
    for label, (prefix, _) in zip(labels, parts, strict=True):
        if prefix not in prefixes:
            raise ValueError(f"id2label has {label!r}, but tagging_scheme {scheme!r} has only {sorted(prefixes)}.")

    def may_follow(before: tuple[str, str], after: tuple[str, str]) -> bool:
        in_chunk = before[0] not in ("O", "E", "S") and before[1] == after[1]
        if before[0] in _OPEN[scheme]:
            return in_chunk and after[0] in _CONTINUES[scheme]
        return after[0] == "O" or after[0] in _BEGINS[scheme] or (in_chunk and after[0] in _CONTINUES[scheme])

    starts = [may_follow(("O", ""), after) for after in parts]
    ends = [prefix not in _OPEN[scheme] for prefix, _ in parts]
    return starts, [[may_follow(before, after) for after in parts] for before in parts], ends


class ElmoCRF(nn.Module):
    """A linear-chain conditional random field: the score of a sequence of labels is the sum of an emission score for
    each word, a transition score for each pair of adjacent labels, and scores of the first and the last label.

    All methods take `emissions [batch, words, labels]` and `mask [batch, words]`, with the words at the left end of
    each row (`compact` of modeling_elmo.py puts them there), and compute in float32 at least.

    Args:
        allowed: the result of [`allowed_transitions`]; `None` to allow every sequence.
        learned: whether transitions, start and end have scores. If not, labels depend on each other only by `allowed`.
    """

    def __init__(self, num_labels: int, allowed: tuple[list, list, list] | None = None, learned: bool = True) -> None:
        super().__init__()
        shapes = {"transitions": (num_labels, num_labels), "start": (num_labels,), "end": (num_labels,)}
        for name, shape in shapes.items():  # transitions: [before, after]
            self.register_parameter(name, nn.Parameter(torch.empty(shape)) if learned else None)
        self.allowed = allowed

    def forward(
        self, emissions: Tensor, mask: Tensor, labels: Tensor | None = None, *, marginals: bool = False
    ) -> Tensor:
        """Calls `log_likelihood` with `labels`, else `marginals` or `decode`. (Only calls of a module run hooks.)"""
        if labels is not None:
            return self.log_likelihood(emissions, mask, labels)
        return self.marginals(emissions, mask) if marginals else self.decode(emissions, mask)

    def log_likelihood(self, emissions: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """`[batch]`, the log-probability of the labels `[batch, words]` of each row. A label of -100 is unknown: the
        probability is summed over all labels of the word (Tsuboi et al. 2008). A row without words has log(1) = 0."""
        possible = nn.functional.one_hot(labels.clamp(min=0), emissions.shape[2]).bool() | (labels < 0)[:, :, None]
        both = torch.cat((emissions.masked_fill(~possible, -torch.inf), emissions))
        of_labels, of_all = self.log_partition(both, mask.repeat(2, 1)).chunk(2)
        return of_labels - of_all

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch]`, the logarithm of the sum of the exponentiated scores of all sequences of labels."""
        emissions, start, transitions, end = self._in_float32(emissions)
        score = start + emissions[:, 0]
        for step in range(1, mask.shape[1]):
            next_score = torch.logsumexp(score[:, :, None] + transitions, dim=1) + emissions[:, step]
            score = torch.where(mask[:, step, None], next_score, score)
        return torch.where(mask[:, 0], torch.logsumexp(score + end, dim=1), 0.0)  # 0 for a row without words

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words]`, the best sequence of each row among those that are allowed (Viterbi); -100 at padding."""
        emissions, start, transitions, end = self._in_float32(emissions)
        if self.allowed is not None:
            start, transitions, end = (
                score.masked_fill(~torch.tensor(allowed, device=score.device), IMPOSSIBLE)
                for score, allowed in zip((start, transitions, end), self.allowed, strict=True)
            )
        score, pointers = start + emissions[:, 0], []
        stay = torch.arange(len(start), device=score.device).expand_as(score)
        for step in range(1, mask.shape[1]):
            best, pointer = (score[:, :, None] + transitions).max(1)
            in_row = mask[:, step, None]
            score = torch.where(in_row, best + emissions[:, step], score)
            pointers.append(torch.where(in_row, pointer, stay))
        labels = [(score + end).argmax(1)]
        for pointer in reversed(pointers):
            labels.append(pointer.gather(1, labels[-1][:, None])[:, 0])
        return torch.stack(labels[::-1], dim=1).masked_fill(~mask, IGNORE_INDEX)

    def marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, labels]`, the probability of each label of each word; zero at padding."""
        with torch.inference_mode(False), torch.enable_grad():
            emissions, mask = self._in_float32(emissions.detach().clone())[0].requires_grad_(), mask.clone()
            # The derivative of the log-partition with respect to an emission score is the probability of its label.
            return torch.autograd.grad(self.log_partition(emissions, mask).sum(), emissions)[0]

    def _in_float32(self, emissions: Tensor) -> tuple[Tensor, ...]:
        """Emissions, start, transition and end scores in float32, or in float64 if the emissions are."""
        emissions = emissions.to(torch.promote_types(emissions.dtype, torch.float32))
        if self.transitions is None:
            zeros = emissions.new_zeros(emissions.shape[2])
            return emissions, zeros, zeros.expand(len(zeros), -1), zeros
        return emissions, *(part.to(emissions) for part in (self.start, self.transitions, self.end))


@dataclass
class ElmoInputs:
    """The inputs that all heads have in common: each field is an argument of their `forward`. Positions are words and
    sentence boundaries. ELMo reads one of `input_ids`, `inputs_embeds` and `bilm_layers`. `word_vector_ids` are read if
    `config.word_vectors_vocab_size` is set. If `config.use_elmo=False`, they are the only required input.

    Args:
        input_ids: `[batch, positions, characters]`, as in [`ElmoModel`].
        attention_mask: `[batch, positions]`, 1 for words and boundaries, 0 for padding on either side. By default, the
            positions where `input_ids` or, without them, `word_vector_ids` are not zero; without both, all positions.
        inputs_embeds: `[batch, positions, P]`, the output of the character encoder, in place of `input_ids`.
        state: the state of the biLM after the preceding text, `model.elmo(..., use_cache=True).state`. Both texts of a
            pair start from it. [`ElmoForCoreferenceResolution`] does not read it.
        special_tokens_mask: `[batch, positions]`, 1 for sentence boundaries. By default, they are read from `input_ids`
            or `word_vector_ids`; without both, they are the unpadded ends of each row (an error for pairs of texts).
        word_vector_ids: `[batch, positions]`, ids of words, which the tokenizer returns if it has `words`.
        bilm_layers: `[batch, positions, num_hidden_layers + 1, 2P]` floats, the layers of this model's biLM that
            [`hf_elmo.store_layers`] has stored, in place of `input_ids`. The biLM must be frozen.
        output_hidden_states: whether to return the layers of the biLM.

    All heads also take `length`, which they do not read: Trainer drops the columns of a data set that are not arguments
    of `forward`, and groups rows by the column `length` (`train_sampling_strategy="group_by_length"`).
    """

    input_ids: Tensor | None = None
    attention_mask: Tensor | None = None
    inputs_embeds: Tensor | None = None
    state: State | None = None
    special_tokens_mask: Tensor | None = None
    word_vector_ids: Tensor | None = None
    bilm_layers: Tensor | None = None
    output_hidden_states: bool | None = None

    @property
    def mask(self) -> Tensor:
        """The positions that are not padding, `[batch, positions]`, bool."""
        if self.attention_mask is not None:
            return self.attention_mask.bool()
        if self.input_ids is not None:
            return (self.input_ids != 0).any(2)
        if self.word_vector_ids is not None:
            return self.word_vector_ids != 0
        vectors = self.inputs_embeds if self.bilm_layers is None else self.bilm_layers
        vectors = require("input_ids", vectors)
        return vectors.new_ones(vectors.shape[:2], dtype=torch.bool)

    @property
    def boundaries(self) -> Tensor | None:
        """The sentence boundaries, `[batch, positions]`, bool; `None` if no input marks them."""
        if self.special_tokens_mask is not None:
            return self.special_tokens_mask.bool()
        if self.input_ids is not None:
            marker = self.input_ids[:, :, 1]
            return (marker == SENTENCE_BEGIN_ID) | (marker == SENTENCE_END_ID)
        return None if self.word_vector_ids is None else self.word_vector_ids == BOUNDARY_ID


@dataclass
class TaskFeatures:
    """The input of the layers of a head, with the positions of [`ElmoInputs`]."""

    vectors: Tensor  # [batch, positions, size], the word vectors x and the mix of ELMo, `[x; ELMo]`
    output_mix: Tensor | None  # [batch, positions, 2P], the second mix of ELMo, if `config.elmo_at_output` is set
    mask: Tensor  # [batch, positions], true for words and boundaries
    words: Tensor  # [batch, positions], true for words
    text_ids: Tensor  # [batch, positions], 1 for the first text of a row, 2 for the second, 0 for padding
    hidden_states: tuple[Tensor, ...] | None = None  # the layers of the biLM, if they were asked for


def require(name: str, argument: Tensor | None) -> Tensor:
    """The argument; raises ValueError if it is missing."""
    if argument is None:
        raise ValueError(f"{name} is missing: the model needs it with these inputs (see the documentation of forward).")
    return argument


class ElmoWordVectors(nn.Embedding):
    """The embedding of words, learned or pretrained, that is concatenated to ELMo; zero for padding and boundaries."""


class ElmoTaskModel(ElmoPreTrainedModel):
    """The base class of all heads.

    A head reads `[x; ELMo]` (Peters et al. 2018, section 3.3): word vectors x (if `config.word_vectors_vocab_size` is
    set) and the mix of ELMo (if `config.use_elmo` is set). [`ElmoInputs`] lists the inputs of a head.

    Raises:
        ValueError: `config.encoder_type` is not one of the head's `encoder_types`.
    """

    encoder_types: tuple[str | None, ...] = (None,)
    reads_text_pairs = False  # whether each row holds two texts, which the biLM reads separately
    _owns_layers = False  # whether stored layers were compared with this biLM

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        if config.encoder_type not in self.encoder_types:
            raise ValueError(f"encoder_type is {config.encoder_type!r}, but must be one of {self.encoder_types}.")
        if config.use_elmo:
            self.elmo = ElmoModel(config)
        rows, size = config.word_vectors_vocab_size, config.word_vectors_size
        self.word_vectors = ElmoWordVectors(rows, size, padding_idx=0) if rows else None
        self.output_mix = ElmoScalarMix(config) if config.elmo_at_output and config.use_elmo else None
        self.vectors_size = (size if rows else 0) + (config.hidden_size if config.use_elmo else 0)
        if not config.use_elmo:  # the checkpoint of a biLM has weights that this model lacks
            self._keys_to_ignore_on_load_unexpected = [r"^(elmo|char_encoder|bilm|lm_head)\.", "mix"]

    def set_trainable(self) -> None:
        """Freezes the biLM if `config.freeze_bilm` is set, the word vectors if `config.freeze_word_vectors` is set."""
        self._owns_layers = False
        if self.config.use_elmo:
            super().set_trainable()
        if getattr(self, "word_vectors", None) is not None:
            self.word_vectors.requires_grad_(not self.config.freeze_word_vectors)

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of characters; without ELMo the embedding of words."""
        return self.elmo.get_input_embeddings() if self.config.use_elmo else self.word_vectors

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        if self.config.use_elmo:
            self.elmo.set_input_embeddings(value)
        else:
            self.word_vectors = value

    @torch.no_grad()
    def set_word_vectors(self, vectors: np.ndarray | Tensor) -> None:
        """Copies pretrained vectors `[words, word_vectors_size]`, in the order of the tokenizer's `words`, into the
        embedding of words; unknown words get the mean of these vectors."""
        weight = self.word_vectors.weight
        vectors = torch.as_tensor(vectors).to(weight)
        weight[FIRST_VECTOR_ID:] = vectors
        weight[UNKNOWN_ID] = vectors.mean(0)

    def task_features(self, inputs: ElmoInputs) -> TaskFeatures:
        """Computes the word vectors and ELMo of a batch.

        Raises:
            ValueError: rows hold one text but the head reads pairs, or two texts but the head reads single texts; or
                stored layers are integers (bits of bfloat16), or the biLM is not frozen; or an input is missing.
        """
        ids = None if self.word_vectors is None else require("word_vector_ids", inputs.word_vector_ids)
        mask = inputs.mask
        words = words_mask(self.config, mask, None, inputs.boundaries)
        text_ids = self._text_ids(inputs, mask)
        vectors = [] if ids is None else [self.word_vectors(ids) * (ids != BOUNDARY_ID)[:, :, None]]
        wanted = inputs.output_hidden_states
        wanted = self.config.output_hidden_states if wanted is None else wanted
        layers = output_mix = None
        if self.config.use_elmo and inputs.bilm_layers is not None:
            layers = self._read_layers(inputs.bilm_layers, mask, inputs.boundaries)
            vectors.append(_mix(self.elmo.scalar_mix, layers, mask))
        elif self.config.use_elmo:
            mix, layers = self._run_elmo(inputs, mask, text_ids, wanted or self.output_mix is not None)
            if self.reads_text_pairs and wanted and torch.is_grad_enabled():
                # As in ElmoModel, the mix is computed from the returned layers, so that these layers get a gradient.
                mix = _mix(self.elmo.scalar_mix, layers, mask)
            vectors.append(mix)
        if self.output_mix is not None:
            output_mix = _mix(self.output_mix, layers, mask)
        hidden_states = layers if wanted and inputs.bilm_layers is None else None
        return TaskFeatures(torch.cat(vectors, dim=2), output_mix, mask, words, text_ids, hidden_states)

    def encode(self, features: TaskFeatures, words: Tensor) -> tuple[Tensor, Tensor]:
        """Moves the words that `words` selects to the left and encodes them: `[batch, words, size]` and their mask."""
        vectors, inside = compact(features.vectors, words)
        if self.encoder is None:
            return vectors, inside
        output_mix = None if features.output_mix is None else compact(features.output_mix, words)[0]
        return self.encoder(vectors, inside, output_mix), inside

    def bilm_layers(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, special_tokens_mask: Tensor | None = None
    ) -> Tensor:
        """The layers `[batch, positions, num_hidden_layers + 1, 2P]`, which heads take in place of `input_ids`."""
        inputs = ElmoInputs(input_ids, attention_mask, special_tokens_mask=special_tokens_mask)
        layers = self._run_elmo(inputs, inputs.mask, self._text_ids(inputs, inputs.mask), all_layers=True)[1]
        return torch.stack(layers, dim=2)

    def regularize(self, loss: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """In training, adds `config.scalar_mix_l2` times the sum of the squared weights of all learned mixes, before
        their softmax (Peters et al. 2018, section 3.3). Each accumulated step adds a share, by its number of labels."""
        if not (self.training and self.config.scalar_mix_l2):
            return loss
        share = 1.0
        if num_items_in_batch is not None:
            share = (labels != IGNORE_INDEX).sum() / count_labels(labels, num_items_in_batch)
        mixes = [module for module in self.modules() if isinstance(module, ElmoScalarMix) and module.fixed is None]
        return loss + self.config.scalar_mix_l2 * share * sum(mix.scalars.square().sum() for mix in mixes)

    def require_frozen_bilm(self) -> None:
        """Raises ValueError if the biLM is not frozen: stored layers would not change with its weights."""
        parts = self.elmo.char_encoder, self.elmo.bilm
        if any(weight.requires_grad for part in parts for weight in part.parameters()):
            raise ValueError("bilm_layers need a frozen biLM, but its weights are trained: call model.freeze_bilm().")

    def _read_layers(self, layers: Tensor, mask: Tensor, boundaries: Tensor | None) -> tuple[Tensor, ...]:
        """The layers of the argument `bilm_layers`, each `[batch, positions, 2P]`, zero at padding. Raises ValueError
        if they are the bits of bfloat16, or if the biLM is not frozen or, at the first call, not theirs."""
        if not layers.is_floating_point():
            raise ValueError(f"bilm_layers have the dtype {layers.dtype}, not floats: use a collator of hf_elmo.")
        self.require_frozen_bilm()
        if boundaries is not None and not self._owns_layers:
            self._require_own_layers(layers[mask & boundaries & (mask.cumsum(1) == 1)])
            self._owns_layers = True
        layers = layers.to(self.get_input_embeddings().weight.dtype)
        return layers.masked_fill(~mask[:, :, None, None], 0.0).unbind(2)

    @torch.compiler.disable  # it reads values
    @torch.no_grad()
    def _require_own_layers(self, at_begin: Tensor) -> None:
        """Compares the stored layers of `<S>`, `[rows, layers, 2P]`: no word precedes `<S>`, so that the forward halves
        depend on weights alone. Relative to its norm, a vector changes by 0.004 if it is rounded to bfloat16, and by
        about 1 with another biLM."""
        begin = self.dummy_inputs["input_ids"][:1, :1]
        begin[:, :, self.config.max_word_length :] = SENTENCE_BEGIN_WORD_ID
        own = torch.stack(self.elmo(begin, output_hidden_states=True, return_dict=True).hidden_states)[:, 0, 0]
        own, stored = (x[..., : self.config.projection_size].float() for x in (own, at_begin))
        if not ((stored - own).norm(dim=2) <= 0.05 * own.norm(dim=1)).all():
            raise ValueError("bilm_layers belong to another biLM: store the layers of this biLM (store_layers).")

    def _text_ids(self, inputs: ElmoInputs, mask: Tensor) -> Tensor:
        """`[batch, positions]`, for each position the number of its text, from 1; 0 for padding."""
        if inputs.input_ids is not None:
            text_ids = ((inputs.input_ids[:, :, 1] == SENTENCE_BEGIN_ID) & mask).cumsum(1) * mask
        elif self.reads_text_pairs or inputs.boundaries is not None:  # each text has two boundaries
            text_ids = ((require("special_tokens_mask", inputs.boundaries) & mask).cumsum(1) + 1) // 2 * mask
        else:
            return mask.long()
        self.require_texts(text_ids)
        return text_ids

    @torch.compiler.disable  # it reads values
    def require_texts(self, text_ids: Tensor) -> None:
        """Raises ValueError unless each row holds one text, or two: otherwise, ELMo would read a pair as one text."""
        expected = 2 if self.reads_text_pairs else 1
        counts = text_ids.amax(1)
        if (counts > expected).any() or (expected == 2 and (counts < 2).any()):
            raise ValueError(
                f"each row of input_ids must hold {expected} texts, but the rows hold {counts.tolist()}: classifiers "
                "read pairs if classifier_text_pairs=True, question answering reads tokenizer(question, passage)."
            )

    def _run_elmo(
        self, inputs: ElmoInputs, mask: Tensor, text_ids: Tensor, all_layers: bool
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """The mix `[batch, positions, 2P]` and the layers of ELMo; texts of a pair are read as rows of one batch."""
        input_ids, inputs_embeds, state = inputs.input_ids, inputs.inputs_embeds, inputs.state
        if self.reads_text_pairs:
            mask = torch.cat((text_ids == 1, text_ids == 2))
            input_ids, inputs_embeds = (x if x is None else torch.cat((x, x)) for x in (input_ids, inputs_embeds))
            state = state and tuple(part.repeat(1, 1, 2, 1) for part in state)
        output = self.elmo(
            input_ids=input_ids,
            attention_mask=mask,
            inputs_embeds=inputs_embeds,
            state=state,
            output_hidden_states=all_layers,
            return_dict=True,
        )
        mix, layers = output.last_hidden_state, output.hidden_states
        if not self.reads_text_pairs:
            return mix, layers
        # `[2 * batch, ...]`, the first texts of all pairs and then the second ones, to `[batch, ...]`.
        mix, *sums = (rows.unflatten(0, (2, -1)).sum(0) for rows in (mix, *(layers or ())))
        return mix, tuple(sums) or None

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ElmoWordVectors):  # Ma and Hovy 2016, section 3.1
            bound = math.sqrt(3 / module.embedding_dim)
            vectors = torch.empty_like(module.weight).uniform_(-bound, bound)
            vectors[: BOUNDARY_ID + 1] = 0.0
            init.copy_(module.weight, vectors)
        elif isinstance(module, nn.Linear) and not hasattr(module, "initial_bias"):  # of the head, not of the biLM
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM):
            for name, parameter in module.named_parameters():
                if name.startswith("weight_ih"):
                    init.xavier_uniform_(parameter)
                elif name.startswith("weight_hh"):
                    init.orthogonal_(parameter)
                else:  # the two biases are added; one of them holds the 1 of the forget gate
                    forget = torch.zeros_like(parameter)
                    forget[module.hidden_size : 2 * module.hidden_size] = float(name.startswith("bias_ih"))
                    init.copy_(parameter, forget)
        elif isinstance(module, ElmoHighwayLSTM):  # each gate orthonormal (He et al. 2017, section 3.3)
            for weight in (module.weight_ih, module.weight_hh):
                gates = [nn.init.orthogonal_(torch.empty_like(gate)) for gate in weight.split(module.hidden_size)]
                init.copy_(weight, torch.cat(gates))
            bias = torch.zeros_like(module.bias)
            bias[module.hidden_size : 2 * module.hidden_size] = 1.0  # the forget gate
            init.copy_(module.bias, bias)
        elif isinstance(module, ElmoCRF):
            for parameter in module.parameters():
                init.uniform_(parameter, -0.1, 0.1)
        elif isinstance(module, ElmoTrilinear):  # like one linear layer over [x; y; x * y]
            bound = math.sqrt(6 / (3 * len(module.of_y) + 1))
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)
        else:
            super()._init_weights(module)


def _mix(mix: ElmoScalarMix, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
    """The first mix of padded layers; layer normalization needs the unpadded positions alone."""
    return expand(mix([layer[mask] for layer in layers])[0], mask) if mix.layer_norm else mix(layers)[0]


def count_labels(labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """The number by which a sum of losses is divided: `num_items_in_batch`, if given (the number of labels of all
    accumulated steps), else the number of labels that are not -100. At least 1: 0 / 0 would make the weights NaN."""
    count = (labels != IGNORE_INDEX).sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
    return count.clamp(min=1)


class ElmoForSequenceClassification(ElmoTaskModel):
    """Predicts a label, several labels or a number for each text, or for each pair of texts.

    `config.encoder_type` chooses the encoder: none, a BiLSTM, the biattentive classification network (McCann et al.
    2017) or ESIM (Chen et al. 2017). Without an encoder or with a BiLSTM, `config.classifier_pooling` pools the words.
    If `config.classifier_text_pairs` is set, each row holds two texts.
    """

    _auto_class = "AutoModelForSequenceClassification"
    encoder_types = (None, "bilstm", "biattentive", "esim")

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        hidden, dropout = config.encoder_hidden_size, config.encoder_dropout
        self.reads_text_pairs = config.classifier_text_pairs
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.encoder = ElmoTaskEncoder(config, self.vectors_size) if config.encoder_type else None
        self.parts = self.encoder.sizes if self.encoder else [self.vectors_size]
        self.interaction = self.attention = self.maxouts = self.dense = None
        if config.encoder_type == "biattentive":
            self.interaction = ElmoBiattention(sum(self.parts), hidden, dropout)
            size = 8 * hidden * (2 if self.reads_text_pairs else 1)
            self.maxouts = nn.ModuleList((ElmoMaxout(size, size // 2), ElmoMaxout(size // 2, size // 4)))
            size //= 4
        elif config.encoder_type == "esim":
            self.interaction = ElmoLocalInference(sum(self.parts), hidden, dropout)
            size = 8 * hidden
        else:
            size = sum(self.parts) * (4 if self.reads_text_pairs else 1)
            if config.classifier_pooling == "attention":
                self.attention = ElmoAttentionPooling(sum(self.parts))
        if config.classifier_hidden_size:
            self.dense = nn.Linear(size, config.classifier_hidden_size)
        self.classifier = nn.Linear(config.classifier_hidden_size or size, config.num_labels)
        self.loss_function = sequence_classification_loss
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            input_ids, ..., length: as in [`ElmoInputs`].
            labels: as in [`sequence_classification_loss`].
            num_items_in_batch: the number of labels of all accumulated steps; `None` for the mean over `labels`.

        Returns:
            `loss` (if `labels` are given), `logits [batch, num_labels]` and `hidden_states` (if asked for).

        Raises:
            ValueError: as in [`ElmoTaskModel.task_features`].
        """
        refuse_unknown(kwargs)
        texts = input_ids, attention_mask, inputs_embeds, state, special_tokens_mask
        features = self.task_features(ElmoInputs(*texts, word_vector_ids, bilm_layers, output_hidden_states))
        pooled = self._pool_texts(features)
        for layer in self.maxouts or ():
            pooled = layer(self.dropout(pooled))
        if self.dense is not None:
            pooled = torch.relu(self.dense(self.dropout(pooled)))
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels, logits, self.config, num_items_in_batch=num_items_in_batch)
            loss = self.regularize(loss, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=features.hidden_states)

    def _pool_texts(self, features: TaskFeatures) -> Tensor:
        """`[batch, size]`, one vector for each text or pair."""
        masks = [features.text_ids == 1, features.text_ids == 2] if self.reads_text_pairs else [features.mask]
        words = [features.words & mask for mask in masks]
        if self.encoder is None:  # words are not moved, so that the model can be exported
            pooled = [self._pool(features.vectors, *each) for each in zip(words, masks, strict=True)]
        else:
            texts = [self.encode(features, mask) for mask in words]
            if self.interaction is not None:
                return self.interaction(texts)
            pooled = [self._pool(encoded, inside, inside) for encoded, inside in texts]
        if len(pooled) == 1:
            return pooled[0]
        u, v = pooled
        return torch.cat((u, v, (u - v).abs(), u * v), dim=1)

    def _pool(self, vectors: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """`[batch, size]`, pooled as `config.classifier_pooling` says; zero for a text without words. `mask` selects
        the positions that the layer below read: words and, without an encoder, boundaries."""
        pool = {"mean": mean_over, "max": max_over, "attention": self.attention}.get(self.config.classifier_pooling)
        if pool is not None:
            return pool(vectors, words)
        return torch.cat([last_over(part, mask) for part in vectors.split(self.parts, dim=2)], dim=1)


def sequence_classification_loss(
    labels: Tensor, logits: Tensor, config: ElmoConfig, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """The loss that `config.problem_type` selects. It is exact under gradient accumulation, and zero without any label.

    As in transformers, an unset `config.problem_type` is set at the first call: regression for a model with one output,
    else a single label for integer labels, several labels for floats. transformers divides only the loss of single
    labels by `num_items_in_batch`; here all three losses are divided, so that accumulated steps add up to one batch.

    Args:
        labels: `[batch]` or `[batch, 1]` class numbers (single label); the shape of `logits` otherwise: zeros and ones
            (several labels), or any numbers (regression). -100 marks a missing label, except in a regression.
        logits: `[batch, num_labels]`.
        num_items_in_batch: the number of labels of all accumulated steps; `None` for the mean over `labels`.
    """
    labels = labels.to(logits.device)
    if config.problem_type is None:
        of_labels = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
        config.problem_type = "regression" if config.num_labels == 1 else of_labels
    # In float32: bfloat16 would round a label of 257 to 256, and float16 has no sum over 65,504.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if config.problem_type == "single_label_classification":
        total = nn.functional.cross_entropy(logits, labels.view(-1).long(), reduction="sum")
        return total / count_labels(labels, num_items_in_batch)
    labels = labels.view(logits.shape).to(logits.dtype)
    if config.problem_type == "regression":
        items = labels.numel() if num_items_in_batch is None else num_items_in_batch
        return nn.functional.mse_loss(logits, labels, reduction="sum") / count_labels(labels, items)
    known = (labels != IGNORE_INDEX).to(logits.dtype)
    total = nn.functional.binary_cross_entropy_with_logits(logits, labels, weight=known, reduction="sum")
    return total / count_labels(labels, num_items_in_batch)


@dataclass
class ElmoTokenClassifierOutput(ModelOutput):
    """The output of [`ElmoForTokenClassification`].

    Args:
        loss: if `labels` are given, the mean loss over the words that have a label.
        logits: `[batch, positions, num_labels]`, the scores of each word's labels, before a CRF; zero at boundaries and
            padding.
        tags: only in evaluation mode with a CRF or a tagging scheme. `[batch, positions]`, the best label sequence;
            -100 at boundaries and padding.
        hidden_states: if `output_hidden_states=True`, the layers of the biLM, each `[batch, positions, 2P]`.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    tags: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class ElmoForTokenClassification(ElmoTaskModel):
    """Predicts a label for each word. ELMo reads whole words, so each word has one position and one label.

    The classifier is linear, over ELMo or over an encoder (`config.encoder_type`), with or without a CRF
    (`config.tagging_crf`); predicted sequences obey `config.tagging_scheme`. The CRF is trained by the loss of
    `forward`, not by a loss that Trainer computes from the logits (`label_smoothing_factor`, `compute_loss_func`).

    The named entity tagger of Peters et al. 2018 (appendix; Lample et al. 2016) has `encoder_type="bilstm"`,
    `encoder_num_layers=2`, `tagging_crf=True`. Their semantic role labeler (appendix; He et al. 2017) has
    `encoder_type="alternating"`, `encoder_num_layers=8`, `encoder_recurrent_dropout=0.1`,
    `tagging_indicator_size=100`, `tagging_scheme="IOB2"`, and reads a row for each predicate.

    Raises:
        ValueError: a label of `config.id2label` does not belong to `config.tagging_scheme`.
    """

    _auto_class = "AutoModelForTokenClassification"
    encoder_types = (None, "bilstm", "alternating")
    custom_pipelines: ClassVar = {
        "token-classification": {
            "impl": "pipeline_elmo.ElmoTokenClassificationPipeline",
            "pt": ["AutoModelForTokenClassification"],
        }
    }

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        indicator_size = config.tagging_indicator_size or 0
        size = self.vectors_size + indicator_size
        self.indicator = nn.Embedding(2, indicator_size) if indicator_size else None
        self.encoder = ElmoTaskEncoder(config, size) if config.encoder_type else None
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(sum(self.encoder.sizes) if self.encoder else size, config.num_labels)
        self.crf, scheme = None, config.tagging_scheme
        if config.tagging_crf or scheme is not None:
            names = [config.id2label[label] for label in range(config.num_labels)]
            allowed = None if scheme is None else allowed_transitions(names, scheme)
            self.crf = ElmoCRF(config.num_labels, allowed, learned=config.tagging_crf)
        self.loss_function = token_classification_loss
        self.post_init()

    def save_pretrained(self, *args: object, **kwargs: object) -> None:
        """As in [`ElmoPreTrainedModel`], and names the pipeline in config.json (`custom_pipelines`)."""
        vars(self.config)["custom_pipelines"] = self.custom_pipelines if self.is_remote_code() else {}
        super().save_pretrained(*args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> ElmoTokenClassifierOutput:
        r"""
        Args:
            input_ids, ..., length: as in [`ElmoInputs`].
            token_type_ids: `[batch, positions]`, 1 for the word that the labels of the row refer to, such as the
                predicate of semantic roles, 0 elsewhere. Required with `config.tagging_indicator_size`, else not read.
            labels: `[batch, positions]`, as `tokenizer.align_labels` makes them: -100 for sentence boundaries, padding
                and words without a label. For a word without a label, a CRF sums over all possible labels.
            num_items_in_batch: the number of labels of all accumulated steps; `None` for the mean over `labels`.

        Raises:
            ValueError: `labels` has a label that is not at a word, or a label that `config.tagging_scheme` does not
                allow after the label of the preceding word; or as in [`ElmoTaskModel.task_features`].
        """
        refuse_unknown(kwargs)
        texts = input_ids, attention_mask, inputs_embeds, state, special_tokens_mask
        features = self.task_features(ElmoInputs(*texts, word_vector_ids, bilm_layers, output_hidden_states))
        if self.indicator is not None:
            indicator = self.indicator(require("token_type_ids", token_type_ids))
            features.vectors = torch.cat((features.vectors, indicator), dim=2)
        encoded, inside = self.encode(features, features.words)
        scores = self.classifier(self.dropout(encoded))
        logits = expand(scores[inside], features.words)
        loss = tags = None
        if labels is not None:
            word_labels = self._labels_of_words(labels, features.words)
            if self.config.tagging_crf:
                loss = -self.crf(scores, inside, word_labels).sum() / count_labels(labels, num_items_in_batch)
            else:
                loss = self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
            loss = self.regularize(loss, labels, num_items_in_batch)
        if self.crf is not None and not self.training:
            tags = torch.full_like(features.words, IGNORE_INDEX, dtype=torch.int64)
            tags = tags.masked_scatter(features.words, self.crf(scores, inside)[inside])
        return ElmoTokenClassifierOutput(loss, logits, tags, features.hidden_states)

    @torch.compiler.disable  # it reads values
    def _labels_of_words(self, labels: Tensor, words: Tensor) -> Tensor:
        """The labels at the positions that the mask `words` selects, moved to the left end of each row and padded with
        -100. Raises ValueError for labels at other positions, and for sequences that the tagging scheme forbids."""
        if ((labels != IGNORE_INDEX) & ~words).any():
            raise ValueError("labels must be -100 at <S>, </S> and padding, but are not: use tokenizer.align_labels.")
        labels, inside = compact(labels, words)
        labels = labels.masked_fill(~inside, IGNORE_INDEX)
        if self.crf is not None and self.crf.allowed is not None:
            may_follow = torch.tensor(self.crf.allowed[1], device=labels.device)
            before, after = labels[:, :-1], labels[:, 1:]
            wrong = (before >= 0) & (after >= 0) & ~may_follow[before.clamp(min=0), after.clamp(min=0)]
            if wrong.any():
                names = [self.config.id2label[part[wrong][0].item()] for part in (before, after)]
                raise ValueError(f"labels have {names[1]!r} after {names[0]!r}, which tagging_scheme does not allow.")
        return labels


register_pipeline()


def token_classification_loss(
    logits: Tensor, labels: Tensor, config: ElmoConfig, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """The mean cross-entropy of the labels `[batch, positions]` that are not -100, with `logits` of the shape `[batch,
    positions, num_labels]`: as in transformers, but zero without any label."""
    known = labels != IGNORE_INDEX
    wide = torch.promote_types(logits.dtype, torch.float32)
    total = nn.functional.cross_entropy(logits[known].to(wide), labels[known], reduction="sum")
    return total / count_labels(labels, num_items_in_batch)


class ElmoTrilinear(nn.Module):
    """Similarities of words, `w1 . x_i + w2 . y_j + w3 . (x_i * y_j)` with learned w (Seo et al. 2017, section 2).

    `of_x=False` leaves out the first term, which has no effect on a softmax over j.
    """

    def __init__(self, size: int, of_x: bool = True) -> None:
        super().__init__()
        self.of_x = nn.Parameter(torch.empty(size)) if of_x else None
        self.of_y = nn.Parameter(torch.empty(size))
        self.of_both = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """`[batch, n, size]` and `[batch, m, size]` to `[batch, n, m]`."""
        scores = (x * self.of_both) @ y.mT + (y @ self.of_y)[:, None]
        return scores if self.of_x is None else scores + (x @ self.of_x)[:, :, None]


class ElmoAttentionFlow(nn.Module):
    """Attention from the passage to the question and from the question to the passage: the attention flow layer (Seo et
    al. 2017, section 2; Clark and Gardner 2018)."""

    def __init__(self, size: int, output_size: int, dropout: float) -> None:
        super().__init__()
        self.similarity = ElmoTrilinear(size)
        self.projection = nn.Linear(4 * size, output_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, passage: Tensor, passage_mask: Tensor, question: Tensor, question_mask: Tensor) -> Tensor:
        """Passage `[batch, words, size]`, question `[batch, question words, size]` to `[batch, words, output_size]`."""
        passage, question = self.dropout(passage), self.dropout(question)
        scores = self.similarity(passage, question)
        to_question = masked_softmax(scores, question_mask[:, None]) @ question
        best = max_over(scores.mT, question_mask)
        to_passage = masked_softmax(best, passage_mask)[:, None] @ passage
        joined = torch.cat((passage, to_question, passage * to_question, passage * to_passage), dim=2)
        return torch.relu(self.projection(joined))


class ElmoSelfAttention(nn.Module):
    """Attention of each passage word over the other words, with a residual connection (Clark and Gardner 2018)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.bilstm = ElmoBiLSTM(size, hidden_size, dropout=dropout)
        self.similarity = ElmoTrilinear(2 * hidden_size, of_x=False)
        self.projection = nn.Linear(6 * hidden_size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, passage: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, size]` and `[batch, words]` to `[batch, words, size]`."""
        x = self.dropout(self.bilstm(passage, mask))
        others = mask[:, None] & ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        attended = masked_softmax(self.similarity(x, x), others) @ x
        return passage + torch.relu(self.projection(torch.cat((x, attended, x * attended), dim=2)))


class ElmoAnswerSpan(nn.Module):
    """Scores of the words as start and as end of the answer, the end conditioned on the start (Clark and Gardner 2018);
    with `config.allow_no_answer`, also the score of no answer."""

    def __init__(self, size: int, hidden_size: int, config: ElmoConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.start_bilstm = ElmoBiLSTM(size, hidden_size, dropout=config.encoder_dropout)
        self.end_bilstm = ElmoBiLSTM(size + 2 * hidden_size, hidden_size, dropout=config.encoder_dropout)
        self.start = nn.Linear(2 * hidden_size, 1, bias=False)  # a bias has no effect on a softmax over words
        self.end = nn.Linear(2 * hidden_size, 1, bias=False)
        self.attention = self.hidden = self.no_answer = None
        if config.allow_no_answer:
            self.attention = ElmoAttentionPooling(size)
            self.hidden = nn.Linear(4 * hidden_size + size, hidden_size)
            self.no_answer = nn.Linear(hidden_size, 1)

    def forward(self, passage: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """`[batch, words, size]` to scores of starts and ends, each `[batch, words]`, and of no answer, `[batch]`."""
        start_states = self.start_bilstm(passage, mask)
        end_states = self.end_bilstm(torch.cat((passage, start_states), dim=2), mask)
        start = self.start(self.dropout(start_states)).squeeze(2)
        end = self.end(self.dropout(end_states)).squeeze(2)
        if self.no_answer is None:
            return start, end, None
        pairs = ((start, start_states), (end, end_states))
        summaries = [(masked_softmax(scores, mask)[:, None] @ states)[:, 0] for scores, states in pairs]
        summaries.append(self.attention(passage, mask))
        hidden = torch.relu(self.hidden(self.dropout(torch.cat(summaries, dim=1))))
        return start, end, self.no_answer(hidden).squeeze(1)


class ElmoForQuestionAnswering(ElmoTaskModel):
    """Finds the words of a passage that answer a question: bidirectional attention flow with self-attention (Clark and
    Gardner 2018; Seo et al. 2017), as in Peters et al. 2018 (appendix), but with LSTMs in place of GRUs.

    Question and passage are the first and the second text of a row, `tokenizer(questions, passages, ...)`. The biLM,
    and then one BiLSTM, read each text separately; `config.elmo_at_output` concatenates ELMo to the BiLSTM's output.
    `config.encoder_dropout` is applied to the inputs of LSTMs and attentions, `config.classifier_dropout` to the inputs
    of the last layers. Memory grows with the square of the number of words in a passage: split long passages
    ([`hf_elmo.encode_questions`]).
    """

    _auto_class = "AutoModelForQuestionAnswering"
    encoder_types = (None, "attention_flow")  # two names of one encoder
    reads_text_pairs = True

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        hidden, dropout = config.encoder_hidden_size, config.encoder_dropout
        self.encoder = ElmoTaskEncoder(config, self.vectors_size)
        self.flow = ElmoAttentionFlow(sum(self.encoder.sizes), 2 * hidden, dropout)
        self.self_attention = ElmoSelfAttention(2 * hidden, hidden, dropout)
        self.span = ElmoAnswerSpan(2 * hidden, hidden, config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        piece: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> QuestionAnsweringModelOutput:
        r"""
        Args:
            input_ids, ..., length: as in [`ElmoInputs`].
            start_positions: `[batch]`, the position of the answer's first word in its row. Boundaries and question are
                counted, but padding is not, so that the padding side does not matter. 0 for no answer
                (`config.allow_no_answer`), -100 for a row without a label.
            end_positions: `[batch]`, the position of the answer's last word, counted in the same way.
            piece: not read. Trainer passes this column of [`hf_elmo.encode_questions`] to the metrics.
            num_items_in_batch: the number of labeled rows of all accumulated steps; `None` for the mean over the
                batch. (Trainer does not count these rows, but averages the steps. The result is the same if all steps
                have equally many labeled rows, as with [`hf_elmo.encode_questions`] and `labeled_only=True`.)

        Returns:
            `loss` (if positions are given): the negative log-probability of the answer among all pairs of a start and
            an end, and no answer. It is the sum of the losses of start and end; most transformers models take the mean.
            `start_logits` and `end_logits` `[batch, positions]`, with positions counted as above. All positions but
            those of the passage's words have the lowest number of the dtype, but with `config.allow_no_answer`,
            position 0 has half of the score of no answer. `hidden_states` (if asked for).

        Raises:
            ValueError: the answer is not in the passage; or as in [`ElmoTaskModel.task_features`].
        """
        refuse_unknown(kwargs)
        texts = input_ids, attention_mask, inputs_embeds, state, special_tokens_mask
        features = self.task_features(ElmoInputs(*texts, word_vector_ids, bilm_layers, output_hidden_states))
        in_passage = features.words & (features.text_ids == 2)
        question, question_mask = self.encode(features, features.words & (features.text_ids == 1))
        passage, passage_mask = self.encode(features, in_passage)
        passage = self.self_attention(self.flow(passage, passage_mask, question, question_mask), passage_mask)
        start, end, no_answer = self.span(passage, passage_mask)
        unpadded = torch.arange(in_passage.shape[1], device=in_passage.device) < features.mask.sum(1, keepdim=True)
        places = expand(in_passage[features.mask], unpadded)  # of the passage's words, with padding moved to the right
        start, end = (_place(scores[passage_mask], places, no_answer) for scores in (start, end))
        loss = None
        if start_positions is not None and end_positions is not None:
            starts, ends = (positions.view(-1).to(places.device) for positions in (start_positions, end_positions))
            loss = self._nll(start, end, places, starts, ends) / count_labels(starts, num_items_in_batch)
            loss = self.regularize(loss, starts, num_items_in_batch)
        return QuestionAnsweringModelOutput(loss, start, end, features.hidden_states)

    def _nll(self, start: Tensor, end: Tensor, places: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """The negative log-probability of the answers, summed over the rows that have a label."""
        labeled = starts != IGNORE_INDEX
        starts, ends = (positions.masked_fill(~labeled, 0)[:, None] for positions in (starts, ends))
        possible = (places.gather(1, starts) & places.gather(1, ends))[:, 0]
        start, end = (scores.to(torch.promote_types(scores.dtype, torch.float32)) for scores in (start, end))
        lowest = torch.finfo(start.dtype).min
        total = sum(scores.masked_fill(~places, lowest).logsumexp(1) for scores in (start, end))
        if self.config.allow_no_answer:
            total = torch.logaddexp(total, start[:, 0] + end[:, 0])
            possible |= (starts == 0)[:, 0] & (ends == 0)[:, 0]
        if not possible[labeled].all():  # the loss would be infinite, which Trainer does not log
            raise ValueError("start_positions and end_positions must be in the passage, or both 0 (allow_no_answer).")
        return (total - start.gather(1, starts)[:, 0] - end.gather(1, ends)[:, 0])[labeled].sum()


def _place(scores: Tensor, places: Tensor, no_answer: Tensor | None) -> Tensor:
    """Puts the scores of all passage words, row after row, at `places`, and `no_answer / 2` at position 0."""
    lowest = torch.finfo(scores.dtype).min
    logits = scores.new_full(places.shape, lowest).masked_scatter(places, scores)
    return logits if no_answer is None else torch.cat((no_answer[:, None] / 2, logits[:, 1:]), dim=1)
