"""ELMo, from leaf to root: biLM, scalar mix, model (Peters et al. 2018); the characters are in characters_elmo.py."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import ModelOutput, logging

from .arguments_elmo import model_forward
from .backends_elmo import is_plain
from .characters_elmo import ElmoCharacterEncoder
from .configuration_elmo import WORD_BEGIN_ID, WORD_END_ID, WORD_PADDING_ID, ElmoConfig
from .lstm_elmo import LstmWeights, State, bilstm_layer, bilstm_layer_padded
from .packing_elmo import Packing, compact, mean_over, require_state, unpadded_mask, words_mask
from .scalar_mix_elmo import ElmoScalarMix

logger = logging.get_logger(f"transformers.{__name__}")
FLOAT32_INSTEAD = "load them with dtype=torch.float32 (and train with fp16=True or bf16=True for mixed precision)."


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
        scalar_mixes: `num_scalar_mixes` mixes, each `[batch, words, 2P]`, where there are several, else `None`.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None

    # `state` and `scalar_mixes` are attributes, but no items of the output: pipelines take items apart by batch rows.
    def __getattr__(self, name: str) -> object:
        lost = " A wrapper that rebuilds outputs (accelerate, DDP) kept its items only: call the model inside of it."
        raise AttributeError(f"this {type(self).__name__} has no {name}." + lost * (name in ("state", "scalar_mixes")))


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
        weights = [layer.weights for layer in (self, *beside)]
        return bilstm_layer(inputs, batch_sizes, state, weights, self.cell_clip, self.proj_clip)

    @property
    def weights(self) -> LstmWeights:
        """The parameters as functions take them."""
        return LstmWeights(self.weight_ih, self.weight_hh, self.bias, self.weight_hr)


class ElmoBiLM(nn.Module):
    """A forward and a backward stack of LSTM layers over the same word vectors; they share nothing else."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.forward_layers = nn.ModuleList(ElmoLSTMLayer(config) for _ in range(config.num_hidden_layers))
        self.backward_layers = nn.ModuleList(ElmoLSTMLayer(config) for _ in range(config.num_hidden_layers))
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.use_skip_connections = config.use_skip_connections
        self.hidden_size, self.cell_size = config.projection_size, config.cell_size
        starts = [torch.zeros(config.num_hidden_layers, 2, size) for size in (self.hidden_size, self.cell_size)]
        self.initial_hidden, self.initial_cell = map(nn.Parameter, starts) if config.settled_start else (None, None)

    def train(self, mode: bool = True) -> "ElmoBiLM":
        """A frozen biLM is no part of the training: it stays without dropout."""
        return super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))

    @torch.compiler.disable  # as bilstm_layer: a graph would hold one list of batch sizes only
    def forward(self, words: Tensor, packing: Packing, state: State | None = None) -> tuple[list[Tensor], State]:
        """Both directions of a batch, each over words of its own in the order in which it reads them.

        Args:
            words: `[2, packed, P]`, the forward direction's word vectors and the backward direction's.
            packing: where words stand in the batch; the same for both.
            state: as in [`ElmoModelOutput`]; [`initial_state`] when `None`.

        Returns:
            each layer's output `[2, packed, P]`, and the state after each row's last word; a row without words keeps
            its state.
        """
        state = self.initial_state(packing.shape[0], words) if state is None else state
        before = state if packing.in_order else tuple(part[:, :, packing.rows] for part in state)
        stacks = self.forward_layers, self.backward_layers
        outputs, after = self._run(stacks, words, packing.batch_sizes, before)
        after = tuple(new.to(old.dtype) for old, new in zip(before, after, strict=True))
        if packing.in_order:
            return outputs, after
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
            before, weights = (state[0][number].to(x.dtype), state[1][number]), [layer.weights for layer in pair]
            output, layer_state = bilstm_layer_padded(x, masks, before, weights, pair[0].cell_clip, pair[0].proj_clip)
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
            state: `h [layers, rows, P]` and `c [layers, rows, C]`, the longest row first; as in `forward` when `None`.

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
        """Zeros, or the weights' own start, on the device of `like`: `h` of its type, `c` in float32 at least."""
        shape, wide = (len(self.forward_layers), 2, batch), torch.promote_types(like.dtype, torch.float32)
        state = like.new_zeros(*shape, self.hidden_size), like.new_zeros(*shape, self.cell_size, dtype=wide)
        if self.initial_hidden is None:
            return state
        own = self.initial_hidden, self.initial_cell
        return tuple(zeros + row[:, :, None].to(zeros) for zeros, row in zip(state, own, strict=True))

    def _run(
        self, stacks: Sequence[nn.ModuleList], x: Tensor, batch_sizes: Sequence[int], state: State
    ) -> tuple[list[Tensor], State]:
        """Stacks of layers side by side: `x [stacks, packed, P]`, `state` `[layers, stacks, rows, size]`."""
        outputs, after = [], []
        for number, layers in enumerate(zip(*stacks, strict=True)):
            x = self.dropout(x)
            output, layer_state = self._call(layers, x, batch_sizes, (state[0][number], state[1][number]))
            # The recurrent state is the layer's own output; the sum goes up the stack only.
            x = output + x if self.use_skip_connections and number > 0 else output
            outputs.append(x)
            after.append(layer_state)
        return outputs, tuple(torch.stack(parts) for parts in zip(*after, strict=True))

    @staticmethod
    def _call(
        layers: Sequence[ElmoLSTMLayer], x: Tensor, batch_sizes: Sequence[int], state: State
    ) -> tuple[Tensor, State]:
        """The layers of all directions in one call, or in a call each where one is more than its weights or watched."""
        if all(is_plain(layer, ElmoLSTMLayer) for layer in layers) and not nn.modules.module._has_any_global_hook():
            return layers[0](x, batch_sizes, state, layers[1:])
        each = [slice(direction, direction + 1) for direction in range(len(layers))]
        parts = [
            layer(x[own], batch_sizes, (state[0][own], state[1][own])) for layer, own in zip(layers, each, strict=True)
        ]
        hidden, cell = zip(*(part[1] for part in parts), strict=True)
        return torch.cat([part[0] for part in parts]), (torch.cat(hidden), torch.cat(cell))


class ElmoPreTrainedModel(PreTrainedModel):
    """What all ELMo models share: the configuration, the initial weights, loading and saving."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    gradient_checkpointing = False  # a head without ELMo may have no layer that runs again: nothing to say, no error
    _logged_trainable = False
    _no_split_modules = ["ElmoCharacterEncoder", "ElmoLSTMLayer"]  # noqa: RUF012
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\.", r"bilm\.initial_"]  # noqa: RUF012, in a biLM's checkpoint

    def __init__(self, config: ElmoConfig) -> None:
        config.complete()
        super().__init__(config)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "_auto_class" not in vars(cls):  # a user's subclass: its source is not saved with the checkpoint
            cls._auto_class = None

    def post_init(self) -> None:
        super().post_init()
        self.set_trainable()

    @classmethod
    def from_pretrained(cls, *args: object, **kwargs: object) -> "ElmoPreTrainedModel":
        """As in transformers, but for two things. Loading makes new parameters, so what is not to be trained is said
        again. And mixes of another number than the checkpoint's are new ones: they belong to a task, not to the biLM.
        """
        wants_report, lenient = (kwargs.pop(n, False) for n in ("output_loading_info", "ignore_mismatched_sizes"))
        how = {"output_loading_info": True, "ignore_mismatched_sizes": True, **kwargs}
        try:
            model, report = super().from_pretrained(*args, **how)
        except TypeError as error:  # of the constructor, which transformers gives what is no field
            cls.config_class.warn_of_unknown({name: kwargs[name] for name in kwargs if f"'{name}'" in str(error)})
            raise
        if any("bilm.initial_" in name for name in report["missing_keys"]):
            raise ValueError("settled_start is True, but the checkpoint has no such state: hf_elmo.settle makes one.")
        others = [place for place in report["mismatched_keys"] if "scalar_mix." not in place[0]]
        if others and not lenient:
            raise RuntimeError(
                "the checkpoint's weights have other shapes than the configuration's: "
                + ", ".join(f"{name} {list(here)}, not {list(wanted)}" for name, here, wanted in sorted(others))
                + "; give the fields that it was saved with, or ignore_mismatched_sizes=True for new weights."
            )
        model.set_trainable()
        return (model, report) if wants_report else model

    def save_pretrained(self, *args: object, **kwargs: object) -> None:
        """As in transformers; the code goes along, so that the checkpoint loads where hf_elmo is not installed."""
        # The configuration may come from a checkpoint of another class, whose files are not written here.
        self.config.auto_map = {"AutoModel": "modeling_elmo.ElmoModel"} if self._auto_class else None
        super().save_pretrained(*args, **kwargs)

    def set_trainable(self) -> None:
        """Freezes the character CNN and the biLM, or not, as `config.freeze_bilm` says; the mix always learns."""
        self.base_model.train_bilm(not self.config.freeze_bilm)

    def freeze_bilm(self, frozen: bool = True) -> None:
        """Trains the scalar mix and a head only, the default; and says so in the configuration."""
        self.config.freeze_bilm = frozen
        self.set_trainable()

    def unfreeze_bilm(self) -> None:
        """Trains everything, and says so in the configuration."""
        self.freeze_bilm(False)

    def train(self, mode: bool = True) -> "ElmoPreTrainedModel":
        """As in PyTorch; the first time says how much there is to train, and warns of weights in float16."""
        if mode and not self._logged_trainable:
            self._logged_trainable = self.base_model._logged_trainable = True
            trained, all_ = (sum(x.numel() for x in self.parameters() if x.requires_grad or every) for every in (0, 1))
            logger.warning_once(f"{type(self).__name__}: {trained:,} of {all_:,} parameters are trained (freeze_bilm).")
        if mode and self.dtype == torch.float16:
            logger.warning_once("The weights are float16, in which training soon ends in NaN: " + FLOAT32_INSTEAD)
        return super().train(mode)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *_: object, **__: object) -> nn.Embedding:
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
        ids = torch.ones(2, 3, self.config.row_length, dtype=torch.int64, device=self.device)
        ids[:, :, 3 : self.config.max_word_length] = WORD_PADDING_ID
        ids[:, :, 1] = torch.tensor([self.config.bos_token_id, 98, self.config.eos_token_id], device=self.device)
        ids[:, :, 0], ids[:, :, 2], ids[1, 2] = WORD_BEGIN_ID, WORD_END_ID, 0
        return {"input_ids": ids}

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
        elif isinstance(module, nn.Linear) and hasattr(module, "initial_bias"):
            init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
            init.constant_(module.bias, module.initial_bias)
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

    A call starts from zero state (but for `config.settled_start`) unless `state=` is given, so the same input gives the
    same output whatever was read before, alone or in a batch. (AllenNLP and TensorFlow carry the state from call to
    call: to get their numbers, hand each output's `state` to the next call.)

    Example:

    ```python
    >>> from hf_elmo import ElmoModel, ElmoTokenizer

    >>> tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder)
    >>> output = model(**tokenizer(["A river bank.", "A savings bank."], padding=True, return_tensors="pt"))
    >>> output.last_hidden_state.shape  # sentences, words with <S> and </S>, 2P
    torch.Size([2, 6, 1024])
    ```"""

    _auto_class = "AutoModel"

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.char_encoder = ElmoCharacterEncoder(config)
        self.bilm = ElmoBiLM(config)
        self.scalar_mix = ElmoScalarMix(config)
        if config.layer_weights is not None:  # a checkpoint's learned mix has no place in a fixed one
            ignored = self._keys_to_ignore_on_load_unexpected
            self._keys_to_ignore_on_load_unexpected = [*ignored, r"scalar_mix\.(scalars|gamma)"]
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of characters."""
        return self.char_encoder.embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.char_encoder.embedding = value

    @model_forward
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
                padding. (With `config.word_vocab_size` the last number of a row is the word's id.)
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
        mask = unpadded_mask(self.config, input_ids, attention_mask, inputs_embeds)
        require_state(self.config, state, mask.shape[0])
        words = words_mask(self.config, mask, input_ids, special_tokens_mask)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if torch.compiler.is_exporting():
            return self._forward_padded(input_ids, inputs_embeds, mask, state, words, wanted)
        packing = Packing.of(mask)
        given = input_ids if inputs_embeds is None else inputs_embeds
        layers, state = self.read(given.flatten(0, 1)[packing.positions], packing, state)
        layers = [packing.join(layer) for layer in layers]
        hidden_states = None
        if wanted:
            hidden_states = tuple(packing.pad(layer) for layer in layers)
            if torch.is_grad_enabled():
                # Mixed from what is given back, so that a gradient on the way to the output is found there.
                layers = [layer.flatten(0, 1)[packing.positions] for layer in hidden_states]
        mixes = tuple(packing.pad(mix) for mix in self.scalar_mix(layers))
        return self._output(mixes, words, hidden_states, state)

    @torch.compiler.disable  # the packing differs from batch to batch, and so do the distinct words
    def read(
        self, words: Tensor, packing: Packing, state: State | None = None, numbers: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """
        From words to the layers of the biLM, packed.

        Args:
            words: `[n, characters]` integers, or word vectors `[n, P]`.
            packing: where words stand in the batch.
            state: as in `forward`.
            numbers: `[2, packed]`, which of `words` the forward and the backward direction read, in their order; by
                default `words` are the packed words, and each sentence is read from either end.

        Returns:
            `num_hidden_layers + 1` layers, each `[2, packed, P]`, the words of each direction in its order (layer 0:
            the words' vectors); and the state.
        """
        vectors = words.to(self.dtype) if words.is_floating_point() else self.char_encoder(words.long())
        if numbers is None:
            vectors = torch.stack((vectors, vectors.index_select(0, packing.reverse)))
        else:
            vectors = vectors.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
        layers, state = self.bilm(vectors, packing, state)
        return [vectors, *layers], state

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

    def word_representations(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: object
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """
        ELMo as a layer of another network: the vectors of the words alone, without the sentence boundaries.

        Takes what `forward` takes, the tokenizer's whole output, and learns with the network as `config` says.

        Returns:
            `num_scalar_mixes` mixes, each `[batch, words, 2P]`: the words of a row at its left end, zeros after them;
            and their mask `[batch, words]`.
        """
        output = self(input_ids, attention_mask, **{**kwargs, "return_dict": True})
        mask = unpadded_mask(self.config, input_ids, attention_mask, None)
        words = words_mask(self.config, mask, input_ids, kwargs.get("special_tokens_mask"))
        compacted = [compact(mix, words) for mix in output.scalar_mixes or (output.last_hidden_state,)]
        return tuple(mix for mix, _ in compacted), compacted[0][1]

    def train_bilm(self, trained: bool) -> None:
        """Lets the character CNN and the biLM learn, or leaves them as they are; the scalar mix learns in any case."""
        for module in (self.char_encoder, self.bilm):
            module.requires_grad_(trained)
            module.train(self.training)


__all__ = ["ElmoModel", "ElmoModelOutput", "ElmoPreTrainedModel"]
