"""ELMo, from leaf to root: character CNN, biLM, scalar mix, model, task heads (Peters et al. 2018)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .char_c_elmo import can_train, trained_maxima
from .configuration_elmo import ElmoConfig
from .lstm_elmo import LstmWeights, bilstm_layer
from .lstm_scan_elmo import bilstm_layer_padded
from .packing_elmo import Packing, distinct_rows
from .word_vectors_elmo import kept_vectors

# Character ids that this file must know; the tokenizer makes them (tokenization_elmo.py).
WORD_PADDING_ID = 261

State = tuple[Tensor, Tensor]


@dataclass
class ElmoModelOutput(ModelOutput):
    """What [`ElmoModel`] returns; padded positions are zero everywhere.

    Args:
        last_hidden_state: `[batch, words, 2P]`, the (first) scalar mix.
        pooler_output: `[batch, 2P]`, its mean over the words, sentence boundaries and padding left out.
        hidden_states: the `num_hidden_layers + 1` layers of the biLM, each `[batch, words, 2P]`; layer 0 is `[x; x]`,
            the word's vector twice, layer j is `[forward_j; backward_j]`. With `output_hidden_states=True`.
        state: `h [num_hidden_layers, 2, batch, P]` and `c [num_hidden_layers, 2, batch, C]` (axis 1: forward,
            backward), for the next call's `state=`.
        scalar_mixes: `num_scalar_mixes` mixes, each `[batch, words, 2P]`, where there are several.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    # Attributes, but no items of the output and of its tuple: pipelines take every item apart by the batch's rows.
    state: ClassVar[State | None] = None
    scalar_mixes: ClassVar[tuple[Tensor, ...] | None] = None


# -- the word's vector from its characters (paper, section 3.4; Kim et al. 2016) ---------------------------------------


class ElmoLinear(nn.Linear):
    """A linear layer of the biLM itself, whose initial weights are those of the original code."""

    def __init__(self, in_features: int, out_features: int, initial_bias: float = 0.0) -> None:
        super().__init__(in_features, out_features)
        self.initial_bias = initial_bias


class ElmoHighway(nn.Module):
    """`g * relu(transform(x)) + (1 - g) * x`, where `g = sigmoid(carry(x))` (Srivastava et al. 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.carry = ElmoLinear(size, size, initial_bias=-2.0)
        self.transform = ElmoLinear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class ElmoCharacterEncoder(nn.Module):
    """A word's vector from its characters: convolutions, maximum over positions, highway layers, projection."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.char_vocab_size, config.char_embedding_size, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_embedding_size, number, width) for width, number in config.char_filters
        )
        self.highways = nn.ModuleList(ElmoHighway(config.num_filters) for _ in range(config.num_highway_layers))
        self.projection = ElmoLinear(config.num_filters, config.projection_size) if config.char_projection else None
        self.activation = torch.relu if config.char_activation == "relu" else torch.tanh
        self.size = config.projection_size
        self.words_at_once = 4096  # bounds the memory of the convolutions; more at once are no faster
        self.lengths_together = 4  # words whose lengths differ by less are padded to the same length

    @torch.compiler.disable  # its shapes follow from the words, which differ from batch to batch
    def forward(self, character_ids: Tensor) -> Tensor:
        """`[..., characters]` to `[..., P]`; each distinct word is computed once.

        Without gradients on the CPU the vectors are kept, and a word that was met before costs next to nothing.
        """
        words = character_ids.flatten(0, -2)
        vectors = kept_vectors(self, words, WORD_PADDING_ID)
        if vectors is None:
            distinct, number = distinct_rows(words)
            vectors = self.encode(distinct).index_select(0, number)
        return vectors.unflatten(0, character_ids.shape[:-1])

    def encode(self, words: Tensor) -> Tensor:
        """The vectors `[words, P]` of distinct words; short ones go together, so that few positions are in vain."""
        if not len(words):
            return self.embedding.weight.new_zeros(0, self.size)
        lengths = ((words != WORD_PADDING_ID) * torch.arange(1, words.shape[1] + 1, device=words.device)).amax(1)
        if can_train(self.embedding, self.convolutions):
            maxima = trained_maxima(words, lengths, self.embedding, self.convolutions)
            return self._mix_filters(self.activation(maxima))
        group, order = (lengths // self.lengths_together).sort(stable=True)
        parts = words[order].split(torch.bincount(group).tolist())
        vectors = torch.cat(
            [
                self._convolve(some[:, : self._positions((number + 1) * self.lengths_together - 1)])
                for number, part in enumerate(parts)
                for some in part.split(self.words_at_once)
                if len(some)
            ]
        )
        return self._mix_filters(vectors).index_select(0, order.argsort())

    def encode_all(self, character_ids: Tensor) -> Tensor:
        """As `forward`, over all characters at once: for `torch.export`, whose graph must not depend on the words."""
        distinct, number = torch.unique(character_ids.flatten(0, -2), dim=0, return_inverse=True)
        vectors = self._mix_filters(self._convolve(distinct))
        return vectors.index_select(0, number).unflatten(0, character_ids.shape[:-1])

    def _mix_filters(self, vectors: Tensor) -> Tensor:
        for highway in self.highways:
            vectors = highway(vectors)
        return vectors if self.projection is None else self.projection(vectors)

    def _positions(self, longest: int) -> int:
        # Padding characters have a learned vector and take part in the maximum. All windows of padding alone are
        # equal, so one of them for each width is as good as all.
        return longest + max(convolution.kernel_size[0] for convolution in self.convolutions)

    def _convolve(self, words: Tensor) -> Tensor:
        x = self.embedding(words).transpose(1, 2)  # [words, char_embedding_size, characters]
        return self.activation(torch.cat([_maximum(convolution(x)) for convolution in self.convolutions], dim=1))


def _maximum(x: Tensor) -> Tensor:
    """`[n, m, positions]` to `[n, m]`; the gradient goes to the first of equals, as in TensorFlow's pooling."""
    # amax is the faster one, but not its gradient, which is shared among equals.
    return x.max(2).values if x.requires_grad else x.amax(2)


# -- the bidirectional language model (paper, section 3.1) -------------------------------------------------------------


class ElmoLSTMLayer(GradientCheckpointingLayer):
    """One direction of one layer: an LSTM with a projection (Sak et al. 2014), its cell and its output clipped."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        size, cell = config.projection_size, config.cell_size
        self.weight_ih = nn.Parameter(torch.empty(4 * cell, size))
        self.weight_hh = nn.Parameter(torch.empty(4 * cell, size))
        self.bias = nn.Parameter(torch.empty(4 * cell))
        self.weight_hr = nn.Parameter(torch.empty(size, cell)) if config.cell_projection else None
        self.cell_clip, self.proj_clip = config.cell_clip, config.proj_clip

    def forward(
        self, inputs: Tensor, batch_sizes: Sequence[int], state: State, beside: Sequence["ElmoLSTMLayer"] = ()
    ) -> tuple[Tensor, State]:
        """Packed words `[directions, packed, P]` to the same shape, and the state after each row's last word.

        Layers that run `beside` this one, on the further directions of `inputs`, share its products.
        """
        if not batch_sizes:
            return inputs, state
        weights = [LstmWeights(x.weight_ih, x.weight_hh, x.bias, x.weight_hr) for x in (self, *beside)]
        return bilstm_layer(inputs, batch_sizes, state, weights, self.cell_clip, self.proj_clip)


class ElmoBiLM(nn.Module):
    """A forward and a backward stack of LSTM layers over the same word vectors; they share nothing else."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.forward_layers = nn.ModuleList(ElmoLSTMLayer(config) for _ in range(config.num_hidden_layers))
        self.backward_layers = nn.ModuleList(ElmoLSTMLayer(config) for _ in range(config.num_hidden_layers))
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.use_skip_connections = config.use_skip_connections

    def train(self, mode: bool = True) -> "ElmoBiLM":
        """A frozen biLM is no part of the training: it stays without dropout."""
        return super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))

    @torch.compiler.disable  # as bilstm_layer: a graph would hold one list of batch sizes only
    def forward(self, vectors: Tensor, packing: Packing, state: State | None = None) -> tuple[list[Tensor], State]:
        """
        Args:
            vectors: `[packed, P]`, the words' vectors.
            packing: where they stand in the batch.
            state: as in [`ElmoModelOutput`]; zeros when `None`.

        Returns:
            `num_hidden_layers + 1` layers, each `[packed, 2P]`, and the state after each row's last word; a row without
            words keeps its state.
        """
        reverse = packing.reverse
        words, state = self.run(torch.stack((vectors, vectors.index_select(0, reverse))), packing, state)
        layers = [torch.cat((vectors, vectors), dim=1)]
        layers += [torch.cat((forward, backward.index_select(0, reverse)), dim=1) for forward, backward in words]
        return layers, state

    @torch.compiler.disable  # as forward
    def run(self, words: Tensor, packing: Packing, state: State | None = None) -> tuple[list[Tensor], State]:
        """Both directions of a batch, each over words of its own in the order in which it reads them.

        Args:
            words: `[2, packed, P]`, the forward direction's word vectors and the backward direction's.
            packing: where words stand in the batch; the same for both.
            state: as in [`ElmoModelOutput`]; zeros when `None`.

        Returns:
            each layer's output `[2, packed, P]`, and the state after each row's last word.
        """
        if state is None or packing.in_order:
            before = self.initial_state(len(packing.rows), words) if state is None else state
        else:
            before = tuple(part[:, :, packing.rows] for part in state)
        stacks = self.forward_layers, self.backward_layers
        outputs, after = self._run(stacks, words, packing.batch_sizes, before)
        after = tuple(new.to(old.dtype) for old, new in zip(before, after, strict=True))
        if packing.in_order:
            return outputs, after
        state = self.initial_state(packing.shape[0], words) if state is None else state
        return outputs, tuple(old.index_copy(2, packing.rows, new) for old, new in zip(state, after, strict=True))

    def run_padded(self, vectors: Tensor, mask: Tensor, state: State | None = None) -> tuple[list[Tensor], State]:
        """As `forward`, over padded words `[batch, words, P]` and their mask `[batch, words]`: for `torch.export`.

        Returns:
            `num_hidden_layers + 1` layers, each `[batch, words, 2P]`, zero where there is no word, and the state.
        """
        state = self.initial_state(vectors.shape[0], vectors) if state is None else state
        vectors = vectors * mask[:, :, None]
        x, masks = torch.stack((vectors, vectors.flip(1))), torch.stack((mask, mask.flip(1)))
        layers, after = [torch.cat((vectors, vectors), dim=2)], []
        for number, pair in enumerate(zip(self.forward_layers, self.backward_layers, strict=True)):
            weights = [(layer.weight_ih, layer.weight_hh, layer.bias, layer.weight_hr) for layer in pair]
            proj_clip = pair[0].proj_clip if pair[0].weight_hr is not None else None
            before = state[0][number].to(x.dtype), state[1][number]
            output, layer_state = bilstm_layer_padded(x, masks, before, weights, pair[0].cell_clip, proj_clip)
            x = output + x if self.use_skip_connections and number > 0 else output
            layers.append(torch.cat((x[0], x[1].flip(1)), dim=2))
            after.append(layer_state)
        return layers, tuple(torch.stack(parts) for parts in zip(*after, strict=True))

    def run_direction(
        self, direction: int, words: Tensor, batch_sizes: Sequence[int], state: State | None = None
    ) -> tuple[list[Tensor], State]:
        """One of the two stacks alone.

        Args:
            direction: 0 forward, 1 backward.
            words: `[packed, P]`, word vectors in the order in which this direction reads them.
            batch_sizes: rows of each step.
            state: `h [layers, rows, P]` and `c [layers, rows, C]`, the longest row first; zeros when `None`.

        Returns:
            each layer's output `[packed, P]`, and the state after each row's last word.
        """
        if state is None:
            rows = batch_sizes[0] if batch_sizes else 0
            state = tuple(part[:, direction] for part in self.initial_state(rows, words))
        stack = self.backward_layers if direction else self.forward_layers
        outputs, after = self._run((stack,), words[None], batch_sizes, tuple(part[:, None] for part in state))
        return [output[0] for output in outputs], tuple(part[:, 0] for part in after)

    def initial_state(self, batch: int, like: Tensor) -> State:
        """Zeros on the device of `like`: `h` of its type, `c` in float32 at least, as the recurrence keeps it."""
        layer, layers = self.forward_layers[0], len(self.forward_layers)
        hidden, cell = layer.weight_hh.shape[1], layer.weight_hh.shape[0] // 4
        wide = torch.promote_types(like.dtype, torch.float32)
        return like.new_zeros(layers, 2, batch, hidden), like.new_zeros(layers, 2, batch, cell, dtype=wide)

    def _run(
        self, stacks: Sequence[nn.ModuleList], x: Tensor, batch_sizes: Sequence[int], state: State
    ) -> tuple[list[Tensor], State]:
        """Stacks of layers side by side: `x [stacks, packed, P]`, `state` `[layers, stacks, rows, size]`."""
        outputs, after = [], []
        for number, (first, *others) in enumerate(zip(*stacks, strict=True)):
            x = self.dropout(x)
            output, layer_state = first(x, batch_sizes, (state[0][number], state[1][number]), others)
            # The recurrent state is the layer's own output; the sum goes up the stack only.
            x = output + x if self.use_skip_connections and number > 0 else output
            outputs.append(x)
            after.append(layer_state)
        return outputs, tuple(torch.stack(parts) for parts in zip(*after, strict=True))


# -- the layers, weighed (paper, section 3.2) --------------------------------------------------------------------------


class ElmoScalarMix(nn.Module):
    """`gamma * sum_j softmax(scalars)_j * layer_j`, once for each mix; or with weights that are fixed."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.layer_norm, self.fixed = config.scalar_mix_layer_norm, config.layer_weights
        if self.fixed is None:
            self.scalars = nn.Parameter(torch.zeros(config.num_scalar_mixes, config.num_hidden_layers + 1))
            self.gamma = nn.Parameter(torch.ones(config.num_scalar_mixes))

    def forward(self, layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Layers of `[packed, 2P]`, each word unpadded, to `num_scalar_mixes` mixes of that shape."""
        if self.layer_norm:
            layers = [self._normalise(layer) for layer in layers]
        if self.fixed is not None:
            return (sum(weight * layer for weight, layer in zip(self.fixed, layers, strict=True) if weight),)
        wide = torch.promote_types(self.scalars.dtype, torch.float32)
        weights = self.gamma[:, None] * torch.softmax(self.scalars, dim=1, dtype=wide).to(self.gamma.dtype)
        return tuple(self._sum(mix, layers) for mix in weights)

    @staticmethod
    def _sum(weights: Tensor, layers: Sequence[Tensor]) -> Tensor:
        (first, *others), (total, *layers) = weights.unbind(), layers
        total = first * total
        for weight, layer in zip(others, layers, strict=True):
            total = torch.addcmul(total, weight.to(total.dtype), layer)  # in one pass
        return total

    @staticmethod
    def _normalise(layer: Tensor) -> Tensor:
        # Over all unpadded positions of the batch, as in AllenNLP: the one option that makes a sentence's vectors
        # depend on its batch.
        if not len(layer):
            return layer
        values = layer.to(torch.promote_types(layer.dtype, torch.float32))
        return ((values - values.mean()) * (values.var(correction=0) + 1e-12).rsqrt()).to(layer.dtype)


# -- models ------------------------------------------------------------------------------------------------------------


class ElmoPreTrainedModel(PreTrainedModel):
    """What all ELMo models share: the configuration, the initial weights, loading and saving."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _no_split_modules = ["ElmoCharacterEncoder", "ElmoLSTMLayer"]  # noqa: RUF012
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]  # noqa: RUF012, a pretrained biLM may bring its softmax

    def post_init(self) -> None:
        super().post_init()
        self.set_trainable()

    @classmethod
    def from_pretrained(cls, *args: object, **kwargs: object) -> "ElmoPreTrainedModel":
        """As in transformers. Loading makes new parameters, so what is not to be trained is said again."""
        loaded = super().from_pretrained(*args, **kwargs)
        (loaded[0] if isinstance(loaded, tuple) else loaded).set_trainable()
        return loaded

    def set_trainable(self) -> None:
        """Freezes the parameters that the configuration leaves out of the training: none of them here."""

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, *args: object, **kwargs: object
    ) -> nn.Embedding:
        """The embedding of characters, whose number is part of the format: any other is refused.

        Raises:
            ValueError: `new_num_tokens` is another number.
        """
        embedding = self.get_input_embeddings()
        if new_num_tokens not in (None, embedding.num_embeddings):
            raise ValueError(
                f"new_num_tokens is {new_num_tokens}, but ELMo reads {embedding.num_embeddings} characters, whatever "
                "the words: no word needs an embedding. Another softmax: ElmoForPreTraining.change_vocabulary."
            )
        return embedding

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """Two sentences of three words, the second padded."""
        input_ids = torch.full((2, 3, self.config.max_word_length), WORD_PADDING_ID, device=self.device)
        input_ids[:, :, 0] = 259
        input_ids[:, :, 1] = torch.tensor([self.config.bos_token_id, 98, self.config.eos_token_id], device=self.device)
        input_ids[:, :, 2] = 260
        input_ids[1, 2] = 0
        return {"input_ids": input_ids}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The initial weights of the original code, bilm-tf's training.py. (transformers hands in leaves only.)"""
        if isinstance(module, nn.Embedding):
            characters = torch.empty_like(module.weight).uniform_(-1.0, 1.0)
            characters[0] = 0.0  # padded positions
            init.copy_(module.weight, characters)
        elif isinstance(module, nn.Conv1d):
            if self.config.char_activation == "relu":
                init.uniform_(module.weight, -0.05, 0.05)
            else:
                init.normal_(module.weight, std=math.sqrt(1 / module.weight[0].numel()))
            init.zeros_(module.bias)
        elif isinstance(module, ElmoLinear):
            init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
            init.constant_(module.bias, module.initial_bias)
        elif isinstance(module, nn.Linear):  # of a task's head
            init.xavier_uniform_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, ElmoLSTMLayer):
            self._init_lstm(module)
        elif isinstance(module, ElmoScalarMix) and module.fixed is None:
            init.zeros_(module.scalars)
            init.ones_(module.gamma)

    @staticmethod
    def _init_lstm(layer: ElmoLSTMLayer) -> None:
        # TensorFlow keeps both halves in one matrix, and its default (Glorot) looks at that matrix.
        cell4, size = layer.weight_hh.shape
        bound = math.sqrt(6 / (2 * size + cell4))
        init.uniform_(layer.weight_ih, -bound, bound)
        init.uniform_(layer.weight_hh, -bound, bound)
        forget_gate = torch.zeros_like(layer.bias)
        forget_gate[cell4 // 4 : cell4 // 2] = 1.0
        init.copy_(layer.bias, forget_gate)
        if layer.weight_hr is not None:
            init.xavier_uniform_(layer.weight_hr)


class ElmoModel(ElmoPreTrainedModel):
    r"""
    ELMo without a head: text, as character ids, to one vector a word (Peters et al. 2018).

    A call starts from zero state unless `state=` is given, so the same input gives the same output whatever was read
    before, alone or in a batch. (AllenNLP and TensorFlow carry the state from call to call: to get their numbers, hand
    each output's `state` to the next call.)

    Example:

    ```python
    >>> from hf_elmo import ElmoModel, ElmoTokenizer

    >>> tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder)
    >>> output = model(**tokenizer(["A river bank.", "A savings bank."], padding=True, return_tensors="pt"))
    >>> output.last_hidden_state.shape  # sentences, words with <S> and </S>, 2P
    torch.Size([2, 6, 1024])
    ```"""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.char_encoder = ElmoCharacterEncoder(config)
        self.bilm = ElmoBiLM(config)
        self.scalar_mix = ElmoScalarMix(config)
        if config.layer_weights is not None:  # a checkpoint's learned mix has no place in a fixed one
            self._keys_to_ignore_on_load_unexpected = [r"^lm_head\.", r"scalar_mix\.(scalars|gamma)"]
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of characters."""
        return self.char_encoder.embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.char_encoder.embedding = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: object,
    ) -> ElmoModelOutput:
        r"""
        Args:
            input_ids: `[batch, words, characters]` character ids, sentence boundaries included; a row of zeros is
                padding.
            attention_mask: `[batch, words]`, 1 for words and boundaries, 0 for padding, on either side. By default
                every position whose `input_ids` are not all zero.
            inputs_embeds: `[batch, words, P]`, word vectors in place of `input_ids`.
            state: what the last call returned, to go on from there: long documents in pieces, or AllenNLP's numbers.
            special_tokens_mask: `[batch, words]`, 1 for positions that `pooler_output` leaves out. By default the
                sentence boundaries: read from `input_ids`; with `inputs_embeds` each row's first and last position.
            output_hidden_states: whether to return the biLM's layers.

        Raises:
            ValueError: an input is missing, given twice, or has a shape that does not fit.
        """
        mask = self.check_inputs(input_ids, attention_mask, inputs_embeds)
        self.check_state(state, mask.shape[0])
        words = self.words_of(mask, input_ids, special_tokens_mask)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if torch.compiler.is_exporting():
            return self._forward_padded(input_ids, inputs_embeds, mask, state, words, wanted)
        packing = Packing.of(mask)
        if input_ids is not None:
            vectors = self.char_encoder(input_ids.flatten(0, 1)[packing.positions].long())
        else:
            vectors = inputs_embeds.flatten(0, 1)[packing.positions].to(self.dtype)
        layers, state = self.bilm(vectors, packing, state)
        hidden_states = None
        if wanted:
            hidden_states = tuple(packing.pad(layer) for layer in layers)
            if torch.is_grad_enabled():
                # Mixed from what is given back, so that a gradient on the way to the output is found there.
                layers = [layer.flatten(0, 1)[packing.positions] for layer in hidden_states]
        mixes = tuple(packing.pad(mix) for mix in self.scalar_mix(layers))
        return self._output(mixes, words, hidden_states, state)

    def _forward_padded(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        mask: Tensor,
        state: State | None,
        words: Tensor,
        output_hidden_states: bool,
    ) -> ElmoModelOutput:
        """`forward` in a graph for any batch and length: every position is computed, padding included."""
        if self.config.scalar_mix_layer_norm:
            raise ValueError("scalar_mix_layer_norm is on, but a mix that depends on its batch is not exported.")
        vectors = inputs_embeds if input_ids is None else self.char_encoder.encode_all(input_ids)
        layers, state = self.bilm.run_padded(vectors, mask, state)
        hidden_states = tuple(layers) if output_hidden_states else None
        return self._output(self.scalar_mix(layers), words, hidden_states, state)

    @staticmethod
    def _output(
        mixes: tuple[Tensor, ...], words: Tensor, hidden_states: tuple[Tensor, ...] | None, state: State
    ) -> ElmoModelOutput:
        output = ElmoModelOutput(mixes[0], mean_over(mixes[0], words), hidden_states)
        output.state = state
        output.scalar_mixes = mixes if len(mixes) > 1 else None
        return output

    def check_inputs(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None
    ) -> Tensor:
        """Refuses what does not fit; returns the mask `[batch, words]` of unpadded positions, bool."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("ElmoModel takes input_ids or inputs_embeds: give one of the two.")
        name, given = ("input_ids", input_ids) if inputs_embeds is None else ("inputs_embeds", inputs_embeds)
        last = self.config.max_word_length if inputs_embeds is None else self.config.projection_size
        if given.dim() != 3 or given.shape[2] != last:
            raise ValueError(
                f"{name} has the shape {list(given.shape)}, but must be [batch, words, {last}]. ElmoTokenizer makes it "
                'with padding=True, return_tensors="pt"; one sentence alone is a batch of one.'
            )
        if input_ids is not None and input_ids.is_floating_point():
            raise ValueError(
                f"input_ids are {input_ids.dtype}, but must be integers; word vectors go to inputs_embeds."
            )
        if attention_mask is None:
            return given.new_ones(given.shape[:2], dtype=torch.bool) if input_ids is None else (input_ids != 0).any(2)
        if attention_mask.shape != given.shape[:2]:
            shapes = f"{list(attention_mask.shape)}, but must be {list(given.shape[:2])}"
            raise ValueError(f"attention_mask has the shape {shapes}: one number for each word of {name}.")
        return attention_mask.bool()

    def check_state(self, state: State | None, batch: int) -> None:
        layers, size, cell = self.config.num_hidden_layers, self.config.projection_size, self.config.cell_size
        expected = [[layers, 2, batch, size], [layers, 2, batch, cell]]
        if state is not None and [list(part.shape) for part in state] != expected:
            raise ValueError(
                f"state has the shapes {[list(part.shape) for part in state]}, but this batch needs {expected}: "
                "[layers, 2, batch, size] for h and c. A state goes with the rows it came from."
            )

    def words_of(self, mask: Tensor, input_ids: Tensor | None, special_tokens_mask: Tensor | None = None) -> Tensor:
        """The positions `[batch, words]`, bool, of `mask` that are words and not sentence boundaries."""
        if special_tokens_mask is not None:
            if special_tokens_mask.shape != mask.shape:
                shapes = f"{list(special_tokens_mask.shape)}, but must be {list(mask.shape)}"
                raise ValueError(f"special_tokens_mask has the shape {shapes}: one number for each position.")
            return mask & ~special_tokens_mask.bool()
        if input_ids is not None:
            marker = input_ids[:, :, 1]
            return mask & (marker != self.config.bos_token_id) & (marker != self.config.eos_token_id)
        number = mask.cumsum(1)
        return mask & (number > 1) & (number < number[:, -1:])

    def train_bilm(self, trained: bool) -> None:
        """Lets the character CNN and the biLM learn, or leaves them as they are; the scalar mix learns in any case."""
        for module in (self.char_encoder, self.bilm):
            module.requires_grad_(trained)
            module.train(self.training)


def mean_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """The mean `[batch, size]` of `[batch, words, size]` over `mask` `[batch, words]`; zero where it is empty."""
    weights = mask.to(vectors.dtype)
    return torch.bmm(weights[:, None], vectors)[:, 0] / weights.sum(1, keepdim=True).clamp(min=1)


class ElmoTaskModel(ElmoPreTrainedModel):
    """An ELMo with a task's head on it, the biLM frozen while `config.freeze_bilm`."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo = ElmoModel(config)

    def set_trainable(self) -> None:
        self.elmo.train_bilm(not self.config.freeze_bilm)

    def freeze_bilm(self) -> None:
        """Trains the scalar mix and the head only, and says so in the configuration."""
        self.config.freeze_bilm = True
        self.set_trainable()

    def unfreeze_bilm(self) -> None:
        """Trains everything, and says so in the configuration."""
        self.config.freeze_bilm = False
        self.set_trainable()


class ElmoForSequenceClassification(ElmoTaskModel):
    """A label, several labels or a number for each text, from a pooled ELMo (`config.classifier_pooling`)."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        size = config.classifier_hidden_size
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.dense = nn.Linear(config.hidden_size, size) if size else None
        self.classifier = nn.Linear(size or config.hidden_size, config.num_labels)
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
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: object,
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            labels: `[batch]` class numbers, `[batch, num_labels]` zeros and ones for several labels at once, or floats
                `[batch, num_labels]` floats for regression; `config.problem_type` says which, else it is read from
                `labels`.

        The others are those of [`ElmoModel`].

        Returns:
            `loss` (with `labels`), `logits [batch, num_labels]`, `hidden_states`.
        """
        output = self.elmo(
            input_ids, attention_mask, inputs_embeds, state, special_tokens_mask, output_hidden_states, return_dict=True
        )
        mask = self.elmo.check_inputs(input_ids, attention_mask, inputs_embeds)
        pooled = self._pool(output, mask, self.elmo.words_of(mask, input_ids, special_tokens_mask))
        if self.dense is not None:
            pooled = torch.relu(self.dense(self.dropout(pooled)))
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels, logits, self.config, **kwargs)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=output.hidden_states)

    def _pool(self, output: ElmoModelOutput, mask: Tensor, words: Tensor) -> Tensor:
        """`[batch, 2P]` as `config.classifier_pooling` says; zero for a text without words."""
        vectors = output.last_hidden_state
        if self.config.classifier_pooling == "mean" or not vectors.shape[1]:
            return output.pooler_output
        if self.config.classifier_pooling == "max":
            lowest = torch.finfo(vectors.dtype).min
            return vectors.masked_fill(~words[:, :, None], lowest).amax(1) * words.any(1, keepdim=True)
        forward, backward = vectors.chunk(2, dim=2)
        position = torch.arange(mask.shape[1], device=mask.device)
        last, first = (mask * position).argmax(1), mask.int().argmax(1)
        rows = torch.arange(mask.shape[0], device=mask.device)
        return torch.cat((forward[rows, last], backward[rows, first]), dim=1)


def sequence_classification_loss(
    labels: Tensor, logits: Tensor, config: ElmoConfig, num_items_in_batch: Tensor | int | None = None, **kwargs: object
) -> Tensor:
    """The loss that `config.problem_type` names (else the type of `labels`), exact under gradient accumulation.

    transformers' own loss divides by `num_items_in_batch` for a single label only; here all three kinds do, so that the
    steps that Trainer accumulates add up to one large batch.

    Args:
        labels: `[batch]` integers (single label), `[batch, num_labels]` zeros and ones (several), or floats
            (regression).
        logits: `[batch, num_labels]`.
        num_items_in_batch: the labels of all accumulated steps; `None` for the mean over `labels`.
    """
    if config.problem_type is None:
        several = "single_label_classification" if not labels.is_floating_point() else "multi_label_classification"
        config.problem_type = "regression" if config.num_labels == 1 else several
    labels = labels.to(logits.device)
    if config.problem_type == "single_label_classification":
        total = nn.functional.cross_entropy(logits, labels.view(-1), reduction="sum")
    elif config.problem_type == "regression":
        total = nn.functional.mse_loss(logits.view(-1), labels.view(-1).to(logits.dtype), reduction="sum")
    else:
        total = nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return total / ((labels != -100).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)


__all__ = ["ElmoForSequenceClassification", "ElmoModel", "ElmoModelOutput", "ElmoPreTrainedModel"]
