"""What several heads share: poolings, encoders, inputs, the vectors that heads read, and the base class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

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
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel, ElmoScalarMix, Packing, State, compact, expand, words_mask


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
