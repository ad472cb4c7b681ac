"""What all heads share: inputs, the words that a head reads, encoders, and the base classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import logging

from .configuration_elmo import BOUNDARY_ID, FIRST_VECTOR_ID, IGNORE_INDEX, UNKNOWN_ID, ElmoConfig
from .modeling_elmo import (
    ElmoConvolution,
    ElmoModel,
    ElmoPreTrainedModel,
    ElmoScalarMix,
    Packing,
    State,
    align_left,
    count_labels,
    distinct_rows,
    scatter,
    token_masks,
)

logger = logging.get_logger(f"transformers.{__name__}")


def require(name: str, argument: Tensor | None) -> Tensor:
    """The argument; raises ValueError if it is missing."""
    if argument is None:
        raise ValueError(f"{name} is missing: the model needs it with these inputs (see the documentation of forward).")
    return argument


@dataclass
class ElmoInputs:
    """The inputs that all heads have in common: each field is an argument of their `forward`. Positions are words and
    sentence boundaries. ELMo reads one of `input_ids`, `inputs_embeds` and `bilm_layers`. `word_vector_ids` are read if
    `config.word_vectors_vocab_size` is set, `word_characters` if `config.word_characters` is. If
    `config.use_elmo=False`, ELMo's input is not required, but `word_vector_ids` are.

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
        word_characters: `[batch, positions, longest]`, Unicode numbers of the characters of words, which are not cut,
            then zeros. The tokenizer returns them with `word_characters=True` or `"bytes"`.
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
    word_characters: Tensor | None = None
    bilm_layers: Tensor | None = None
    output_hidden_states: bool | None = None

    @property
    def masks(self) -> tuple[Tensor, Tensor]:
        """The [`token_masks`]: the positions that are not padding, and the boundaries, `[batch, positions]`, bool."""
        vectors = self.inputs_embeds if self.bilm_layers is None else self.bilm_layers
        if self.input_ids is None and self.word_vector_ids is None:
            require("input_ids", vectors)
        return token_masks(self.attention_mask, self.special_tokens_mask, self.input_ids, vectors, self.word_vector_ids)


class ElmoText:
    """What a head reads of one text of each row: the words, and the boundaries if the head `reads_boundaries`; and its
    part of `word_vector_ids` and `word_characters`, `[batch, words, ...]`."""

    def __init__(self, is_read: Tensor, *inputs: Tensor | None) -> None:
        self.is_read = is_read  # [batch, positions], bool
        self.mask = self.align(is_read)  # [batch, words], bool, what is read, at the left end of each row
        self.word_vector_ids, self.word_characters = (x if x is None else self.align(x) for x in inputs)

    def align(self, values: Tensor) -> Tensor:
        """Values `[batch, positions, ...]` to those of what is read, `[batch, words, ...]`."""
        return align_left(values, self.is_read)[0]

    def place(self, values: Tensor) -> Tensor:
        """Values `[batch, words, ...]` of what is read to `[batch, positions, ...]`, zeros elsewhere."""
        return scatter(values[self.mask], self.is_read)


@dataclass
class ElmoTexts:
    """The text, or both texts, of each row, and the output of the biLM: what a head reads."""

    texts: Sequence[ElmoText]
    layers: Sequence[Tensor] = ()  # of the tokens of all texts, each [packed, 2P]; none without ELMo
    packing: Packing | None = None  # of these tokens
    hidden_states: tuple[Tensor, ...] | None = None  # if they are asked for, the layers, each [batch, positions, 2P]
    alignment: Tensor | None = None  # the biLM's, which belongs to its language: a head has none


class RaggedLSTM(nn.LSTM):
    """A bidirectional `torch.nn.LSTM` over right-padded rows of different lengths."""

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, input_size]`, `[batch, words]` to `[batch, words, 2 * hidden_size]`, undefined at padding."""
        if not words.is_cpu or words.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            packing = Packing.of(mask | ~mask.any())  # without words, padding is read: parameters get gradients
            packed = nn.utils.rnn.PackedSequence(packing.pack(words), torch.tensor(packing.batch_sizes, device="cpu"))
            return packing.pad(super().forward(packed)[0].data)
        # oneDNN needs padded rows; the backward pass of a PackedSequence allocates all steps' gradients at each step.
        # The backward direction reads a row's words in reverse order, then its padding.
        steps = torch.arange(mask.shape[1], device=mask.device)
        mirrored = torch.where(mask, mask.sum(1, keepdim=True) - 1 - steps, steps)[:, :, None]
        state = words.new_zeros(1, len(words), self.hidden_size)
        for layer in range(self.num_layers):
            words = nn.functional.dropout(words, self.dropout, self.training) if layer else words
            inputs = words, words.gather(1, mirrored.expand_as(words))
            forward, backward = (
                torch.lstm(x, (state, state), weights, True, 1, 0.0, self.training, False, True)[0]
                for x, weights in zip(inputs, self.all_weights[2 * layer : 2 * layer + 2], strict=True)
            )
            words = torch.cat((forward, backward.gather(1, mirrored.expand_as(backward))), dim=2)
        return words


class ElmoBiLSTM(nn.Module):
    """A bidirectional LSTM over right-padded rows. Its output is zero at padding."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output_size = 2 * hidden_size
        between_layers = dropout if num_layers > 1 else 0.0  # else PyTorch warns
        self.lstm = RaggedLSTM(input_size, hidden_size, num_layers, bidirectional=True, dropout=between_layers)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, input_size]` and `[batch, words]` to `[batch, words, 2 * hidden_size]`."""
        return self.lstm(self.dropout(vectors), mask).masked_fill(~mask[:, :, None], 0.0)


class ElmoWordCharacters(nn.Module):
    """Features of a word beside ELMo, from its characters: the maxima of convolutions (Ma and Hovy 2016), or the last
    state of an LSTM (Lample et al. 2016). A convolution reads no padding: a word that is shorter gets zeros."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.characters = [ord(character) for character in config.word_characters]
        size = config.word_characters_size
        self.embedding = nn.Embedding(len(self.characters) + 2, size, padding_idx=0)  # padding, others, the characters
        hidden = config.word_characters_hidden_size
        filters = () if hidden else config.word_characters_filters
        self.widths = [width for width, _ in filters]
        self.convolutions = nn.ModuleList(ElmoConvolution(size, number, width) for width, number in filters)
        self.lstm = nn.LSTM(size, hidden) if hidden else None
        self.output_size = hidden or sum(number for _, number in filters)

    @torch.compiler.disable  # the shapes depend on the distinct words
    def forward(self, characters: Tensor) -> Tensor:
        """`[batch, words, longest]` to `[batch, words, output_size]`."""
        words, index = distinct_rows(characters.flatten(0, 1).long())
        known, order = torch.tensor(self.characters, device=words.device).sort()
        place = torch.searchsorted(known, words).clamp(max=len(known) - 1)
        ids = torch.where(known[place] == words, order[place] + 2, 1).masked_fill(words == 0, 0)
        lengths, order = (words != 0).sum(1).sort()
        parts = zip(ids[order].split(512), lengths.split(512), strict=True)  # of similar length, which saves padding
        features = torch.cat([self.encode(part[:, : max(1, own[-1])], own) for part, own in parts])
        return features[order.argsort()].index_select(0, index).unflatten(0, characters.shape[:2])

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The features `[words, output_size]` of words of these lengths, `[words, longest]`."""
        if self.lstm is not None:
            packing = Packing.of((ids != 0) | ~ids.any())  # without characters, padding is read
            sizes = torch.tensor(packing.batch_sizes, device="cpu")
            packed = nn.utils.rnn.PackedSequence(self.embedding(packing.pack(ids)), sizes)
            states = self.lstm(packed)[1][0][0]
            return states.new_zeros(len(ids), self.output_size).index_copy(0, packing.rows, states)
        x = self.embedding(nn.functional.pad(ids, (0, max(self.widths)))).mT
        maxima = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            windows = torch.relu(convolution(x))
            ends = torch.arange(width, width + windows.shape[2], device=ids.device)
            maxima.append((windows * (ends <= lengths[:, None])[:, None]).amax(2))
        return torch.cat(maxima, dim=1)


class ElmoTaskEncoder(nn.Module):
    """The encoder of a head, an LSTM over `[x; ELMo]`. `lstm` makes the LSTM from the size of its input, that of its
    cells, the number of layers and the dropout."""

    def __init__(self, config: ElmoConfig, input_size: int, lstm: Callable[..., nn.Module]) -> None:
        super().__init__()
        hidden = config.encoder_hidden_size
        self.feedforward = None
        if config.encoder_type == "biattentive":
            self.feedforward = nn.Linear(input_size, hidden)
            input_size = hidden
        self.bilstm = lstm(input_size, hidden, config.encoder_num_layers, config.encoder_dropout)
        self.dropout = nn.Dropout(config.encoder_dropout)

    def forward(self, vectors: Tensor, mask: Tensor, output_mix: Tensor | None) -> Tensor:
        """What [`ElmoHead.embed`] gives for a text to the encoded words `[batch, words, size]`."""
        if self.feedforward is not None:
            vectors = torch.relu(self.feedforward(self.dropout(vectors)))
        encoded = self.bilstm(vectors, mask)
        return encoded if output_mix is None else torch.cat((encoded, self.dropout(output_mix)), dim=2)


class ElmoHead(nn.Module):
    """The modules that a task adds to the biLM: all that is new in a model with a head. They are children of one
    module, so that PEFT saves all of them.

    A head reads `[x; ELMo]` (Peters et al. 2018, section 3.3): x are word vectors (if `config.word_vectors_vocab_size`
    is set) and [`ElmoWordCharacters`] (if `config.word_characters` is), ELMo is its mix (if `config.use_elmo` is).
    `extra_size` is the size of what its encoder reads beside them. `lstm` is the LSTM of the encoder; by default a
    BiLSTM if `config.encoder_type` is set, else none.
    """

    def __init__(self, config: ElmoConfig, extra_size: int = 0, lstm: Callable[..., nn.Module] | None = None) -> None:
        super().__init__()
        rows = config.word_vectors_vocab_size
        size = config.word_vectors_size
        self.word_vectors = nn.Embedding(rows, size, padding_idx=0) if rows else None
        self.word_characters = ElmoWordCharacters(config) if config.word_characters else None
        self.scalar_mix = ElmoScalarMix(config) if config.use_elmo else None
        self.output_mix = ElmoScalarMix(config) if config.elmo_at_output and config.use_elmo else None
        self.vectors_size = (size if rows else 0) + (config.hidden_size if config.use_elmo else 0)
        self.vectors_size += self.word_characters.output_size if config.word_characters else 0
        self.encoder = None
        self.sizes = [self.vectors_size + extra_size]  # of the parts of an encoded word
        if lstm is not None or config.encoder_type not in (None, "decomposable"):
            self.encoder = ElmoTaskEncoder(config, self.vectors_size + extra_size, lstm or ElmoBiLSTM)
            self.sizes = [self.encoder.bilstm.output_size] + [config.hidden_size] * (self.output_mix is not None)
        elif config.elmo_at_output:
            raise ValueError("elmo_at_output is True, but there is no output of an encoder: set encoder_type.")
        self.dropout = nn.Dropout(config.classifier_dropout)

    def embed(self, read: ElmoTexts) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """For each text what `encode` reads: `[x; ELMo]` `[batch, words, vectors_size]`, the mask `[batch, words]` and,
        with `config.elmo_at_output`, the second mix of ELMo `[batch, words, 2P]`."""
        both = self.scalar_mix, self.output_mix
        mixes = [mix and read.packing.pad(mix(read.layers, read.alignment)) for mix in both]
        embedded = []
        for text in read.texts:
            vectors, output_mix = (mix if mix is None else text.align(mix) for mix in mixes)
            parts = [] if vectors is None else [vectors]
            if self.word_characters is not None:
                parts.insert(0, self.word_characters(require("word_characters", text.word_characters)))
            if self.word_vectors is not None:
                parts.insert(0, self.word_vectors(require("word_vector_ids", text.word_vector_ids)))
            embedded.append((torch.cat(parts, dim=2), text.mask, output_mix))
        return embedded

    def encode(self, vectors: Tensor, mask: Tensor, output_mix: Tensor | None) -> Tensor:
        """The encoded words `[batch, words, sum(sizes)]` of a text; without an encoder its vectors."""
        return vectors if self.encoder is None else self.encoder(vectors, mask, output_mix)


class ElmoTaskModel(ElmoPreTrainedModel):
    """The base class of all models with a head: an [`ElmoModel`] `elmo` (if `config.use_elmo` is set), and an
    [`ElmoHead`] by the name that `head_name` says. [`ElmoInputs`] lists what all of them read. Raises ValueError if
    `config.encoder_type` is not one of the head's `encoder_types`."""

    head_name = "classifier"
    encoder_types: tuple[str | None, ...] = (None,)
    reads_text_pairs = False  # whether each row holds two texts, which the biLM reads separately
    reads_boundaries = False  # whether the head reads the vectors of `<S>` and `</S>`, too
    text_type: ClassVar[type[ElmoText]] = ElmoText  # another one for exports

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        if config.encoder_type not in self.encoder_types:
            raise ValueError(f"encoder_type is {config.encoder_type!r}, but must be one of {self.encoder_types}.")
        if not config.use_elmo and config.word_vectors_vocab_size is None:
            raise ValueError("use_elmo is False, but word_vectors_vocab_size is None: there is nothing to read.")
        self.num_labels = config.num_labels
        self.is_new = True  # the head, which then says at its first training step which learning rate it needs
        if config.use_elmo:
            self.elmo = ElmoModel(config)
        else:  # the checkpoint of a biLM has weights that this model lacks
            self._keys_to_ignore_on_load_unexpected = [r"^(elmo|char_encoder|bilm|lm_head|scalar_mix|further_mixes)\."]

    @property
    def head(self) -> ElmoHead:
        return getattr(self, self.head_name)

    def _freeze(self, frozen: bool) -> None:
        if self.config.use_elmo:
            super()._freeze(frozen)
        if self.head.word_vectors is not None:
            self.head.word_vectors.requires_grad_(not self.config.freeze_word_vectors)

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of characters; without ELMo the embedding of words."""
        return self.elmo.get_input_embeddings() if self.config.use_elmo else self.head.word_vectors

    @torch.no_grad()
    def set_word_vectors(self, vectors: np.ndarray | Tensor) -> None:
        """Copies pretrained vectors `[words, word_vectors_size]`, in the order of the tokenizer's `words`, into the
        embedding of words; unknown words get the mean of these vectors."""
        weight = self.head.word_vectors.weight
        weight[FIRST_VECTOR_ID:] = torch.as_tensor(vectors, device=weight.device).to(weight)
        weight[UNKNOWN_ID] = weight[FIRST_VECTOR_ID:].mean(0)

    @torch.compiler.disable  # it reads values, and the packing differs from batch to batch
    def read_words(self, inputs: ElmoInputs) -> ElmoTexts:
        """Runs the biLM over the text, or over both texts, of each row.

        Raises:
            ValueError: rows hold one text but the head reads pairs, or two texts but the head reads single texts; or
                stored layers are integers (bits of bfloat16), or the biLM is not frozen; or an input is missing.
        """
        if self.training and self.is_new and self.config.use_elmo and self.config.freeze_bilm:
            logger.warning_once("A new head on a frozen biLM needs a learning rate of about 1e-3, not Trainer's 5e-5.")
        mask, boundaries = inputs.masks
        masks = self._split_texts(mask, boundaries)
        texts = []
        for text in masks:
            is_read = text if self.reads_boundaries else text & ~boundaries
            texts.append(self.text_type(is_read, inputs.word_vector_ids, inputs.word_characters))
        if not self.config.use_elmo:
            return ElmoTexts(texts)
        return ElmoTexts(texts, *self._layers(inputs, masks), self.elmo.scalar_mix.alignment)

    def _split_texts(self, mask: Tensor, boundaries: Tensor) -> list[Tensor]:
        """The positions of the text, or of the first and the second text, of each row, each `[batch, positions]`."""
        number = ((boundaries & mask).cumsum(1) + 1) // 2  # each text has two boundaries
        expected = 1 + self.reads_text_pairs
        counts = (number * mask).amax(1)
        wrong = (counts > expected) | (counts < 2) & self.reads_text_pairs
        if not torch.compiler.is_compiling() and wrong.any():  # an exported graph reads no values
            readers = "question answering and, with classifier_text_pairs, classifiers read tokenizer(first, second)"
            raise ValueError(f"each row must hold {expected} texts, but the rows hold {counts.tolist()}: {readers}.")
        return [mask & (number == 1), mask & (number == 2)] if self.reads_text_pairs else [mask]

    def _layers(self, inputs: ElmoInputs, masks: list[Tensor]) -> tuple[Sequence[Tensor], Packing, tuple | None]:
        """The biLM's layers of the tokens in the masks, packed; their packing; if they are asked for, padded layers."""
        stored = inputs.bilm_layers
        carries = self.config.carry_state and stored is None
        packing, *others = map(self.elmo.packing_type.of, masks if carries else [torch.stack(masks)])
        if stored is not None:
            if not stored.is_floating_point():
                raise ValueError(f"bilm_layers have the dtype {stored.dtype}, not floats: use a collator of hf_elmo.")
            self.require_frozen_bilm()
            return packing.pack(stored).to(self.get_input_embeddings().weight.dtype).unbind(1), packing, None
        state = inputs.state
        if state is not None and not carries:  # of all texts
            state = tuple(part.repeat(1, 1, len(masks), 1) for part in state)
        how = {"attention_mask": inputs.attention_mask, "inputs_embeds": inputs.inputs_embeds, "return_dict": True}
        how |= {"output_hidden_states": inputs.output_hidden_states, "use_cache": carries}
        outputs = []
        for each in (packing, *others):  # `input_ids` not by its name, so that a hook before the call gets it
            output = self.elmo(inputs.input_ids, state=state, packing=each, **how)
            state = output.state
            outputs.append(output)
        if not others:
            return output.layers, packing, output.hidden_states
        packing = replace(packing, indices=torch.cat([each.indices for each in (packing, *others)]))
        layers = [torch.cat(parts) for parts in zip(*(each.layers for each in outputs), strict=True)]
        padded = zip(*(each.hidden_states or () for each in outputs), strict=True)  # zero in the other texts
        hidden_states = tuple(map(sum, padded))
        return [*map(packing.pack, hidden_states)] or layers, packing, hidden_states or None  # as in ElmoModel

    def require_frozen_bilm(self) -> None:
        """Raises ValueError if the biLM is not frozen: stored layers would not change with its weights."""
        for part in (self.elmo.char_encoder, self.elmo.bilm):
            if any(weight.requires_grad for weight in part.parameters()):
                raise ValueError("bilm_layers need a frozen biLM, but it is trained: call model.freeze_bilm().")

    def regularize(self, loss: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """In training, adds `config.scalar_mix_l2` times the sum of the squared weights of the head's learned mixes,
        before their softmax (Peters et al. 2018, section 3.3). Each accumulated step adds a share, by its number of
        labels."""
        if not (self.training and self.config.scalar_mix_l2):
            return loss
        count = count_labels(labels, num_items_in_batch)
        share = 1.0 if num_items_in_batch is None else (labels != IGNORE_INDEX).sum() / count
        mixes = [mix for mix in (self.head.scalar_mix, self.head.output_mix) if mix is not None and mix.fixed is None]
        return loss + self.config.scalar_mix_l2 * share * sum(mix.scalars.square().sum() for mix in mixes)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The initial weights of the head; the biLM has its own ([`ElmoPreTrainedModel`])."""
        if module is self.head.word_vectors:  # Ma and Hovy 2016, section 3.1
            bound = (3 / module.embedding_dim) ** 0.5
            vectors = torch.empty_like(module.weight).uniform_(-bound, bound)
            vectors[: BOUNDARY_ID + 1] = 0.0
            init.copy_(module.weight, vectors)
        elif isinstance(module, nn.Linear):
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
        elif self.config.use_elmo and module is self.head.scalar_mix:  # begins with what the biLM's checkpoint has
            for name, parameter in module.named_parameters():
                init.copy_(parameter, getattr(self.elmo.scalar_mix, name))
        else:
            super()._init_weights(module)
