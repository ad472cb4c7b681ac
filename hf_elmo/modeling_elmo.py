"""ELMo (Peters et al. 2018), from parts to the whole: packing, LSTM, character CNN, scalar mix, ElmoModel.

A *token* is a word or a sentence boundary, as in the tokenizer's output; *words* are without the boundaries. A row of a
batch `[batch, positions]` has a token or padding at each position.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import ModelOutput, can_return_tuple, logging

from .configuration_elmo import BOS_ID, BOUNDARY_ID, EOS_ID, IGNORE_INDEX, WORD_PADDING_ID, ElmoConfig

logger = logging.get_logger(f"transformers.{__name__}")

INTERFACE = 3  # version of the interface to `hf_elmo.kernels`
SUFFIXES = "", "_reverse"  # of the names of parameters: of the forward and of the backward direction

State = tuple[Tensor, Tensor]


@cache
def _kernels() -> ModuleType | None:
    """The package of the faster backends, if a version of hf_elmo with this interface is installed."""
    try:
        from hf_elmo.kernels.backends import connect
    except ImportError:
        return None
    return connect(INTERFACE)


def find_backend(operation: str, *arguments: Any) -> Callable[[], Any] | None:
    """A function that computes the operation on these arguments faster than plain PyTorch, or `None`."""
    kernels = _kernels()
    return kernels and kernels.find(operation, *arguments)


# What tokenizers and Trainer pass to every model, and a model without a use for it does not read.
UNREAD = {"length", "num_items_in_batch", "special_tokens_mask", "token_type_ids", "word_characters", "word_vector_ids"}


def refuse_unknown(arguments: dict[str, Any]) -> None:
    """Raises TypeError for an argument that `forward` does not have, unless it asks for nothing, as PEFT's may."""
    for name, value in arguments.items():
        if value is not None and value is not False and name not in UNREAD:
            raise TypeError(f"forward() got an unexpected keyword argument {name!r}")


def token_masks(
    attention_mask: Tensor | None,
    special_tokens_mask: Tensor | None,
    input_ids: Tensor | None,
    vectors: Tensor | None,
    word_vector_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The positions that are not padding, and those of `<S>` and `</S>`, both `[batch, positions]`, bool.

    Not padding are those that `attention_mask` marks; by default those whose `input_ids`, or else `word_vector_ids`,
    are not zero; without both, all positions of `vectors`. Boundaries are those that `special_tokens_mask` marks; by
    default those with their ids; without ids, the ends of each row. Padding may be marked as a boundary, too."""
    if torch.jit.is_tracing():  # the lengths of the example would be part of the trace
        raise RuntimeError("a trace is right for the lengths of its example only: use hf_elmo.conversion.export_onnx.")
    if input_ids is not None:
        is_token = (input_ids != 0).any(2)
        character = input_ids[:, :, 1]  # the only one, between the markers of a word's begin and end
        is_boundary = (character == BOS_ID) | (character == EOS_ID)
    elif word_vector_ids is not None:
        is_token = word_vector_ids != 0
        is_boundary = word_vector_ids == BOUNDARY_ID
    else:
        is_token = vectors.new_ones(vectors.shape[:2], dtype=torch.bool)
        is_boundary = None
    is_token = is_token if attention_mask is None else attention_mask.bool()
    is_boundary = is_boundary if special_tokens_mask is None else special_tokens_mask.bool()
    if is_boundary is None:
        position = is_token.cumsum(1)
        is_boundary = (position == 1) | (position == position[:, -1:])
    return is_token, is_boundary


def count_labels(labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """The number by which a sum of losses is divided: `num_items_in_batch`, if given (the number of labels of all
    accumulated steps), else the number of labels that are not -100. At least 1: 0 / 0 would make the weights NaN."""
    count = (labels != IGNORE_INDEX).sum() if num_items_in_batch is None else num_items_in_batch
    return torch.as_tensor(count, device=labels.device).clamp(min=1)


def mean_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """The mean `[batch, size]` of each row's vectors that `mask` selects; zero if it selects none."""
    weights = mask.to(vectors.dtype)
    return torch.bmm(weights[:, None], vectors)[:, 0] / weights.sum(1, keepdim=True).clamp(min=1)


def align_left(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Moves the values `[batch, positions, ...]` that `mask [batch, positions]` selects to the left end of their rows:
    `[batch, words, ...]`, padded with zeros to the longest row (but never empty), and their mask `[batch, words]`."""
    lengths = mask.sum(1)
    aligned = torch.arange(max(1, int(lengths.max())), device=mask.device) < lengths[:, None]
    indices = mask.flatten().nonzero().squeeze(1)
    return scatter(values.reshape(mask.numel(), *values.shape[2:]).index_select(0, indices), aligned), aligned


def scatter(values: Tensor, mask: Tensor) -> Tensor:
    """Puts `values [n, ...]`, row after row, where `mask [batch, positions]` is true; puts zeros elsewhere."""
    mask_of_values = mask.view(*mask.shape, *[1] * (values.dim() - 1))
    return values.new_zeros(*mask.shape, *values.shape[1:]).masked_scatter(mask_of_values, values)


def distinct_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of integers `[n, width]`, and the index `[n]` of each row among the distinct rows."""
    # Sorting hashes is far faster than sorting rows, which is left for when different rows have the same hash. The
    # factors are the powers of an odd constant modulo 2**64 (Knuth's multiplicative hashing): products wrap.
    factors = torch.full((rows.shape[1],), 6364136223846793005, device=rows.device).cumprod(0)
    hashes, index = torch.unique((rows * factors).sum(1), return_inverse=True)
    example = index.new_zeros(len(hashes)).scatter_(0, index, torch.arange(len(rows), device=rows.device))
    distinct = rows[example]
    if torch.equal(distinct[index], rows):
        return distinct, index
    return torch.unique(rows, dim=0, return_inverse=True)


@dataclass
class Packing:
    """The tokens of a batch `[batch, positions]`, packed: the first tokens of all rows, the longest row first, then the
    second tokens, and so on, as in `torch.nn.utils.rnn.PackedSequence`."""

    indices: Tensor  # [packed], the index of each packed token in the flattened batch
    reverse: Tensor  # [packed]; `packed[reverse]` has each row's tokens in the reading order of the backward direction
    batch_sizes: list[int]  # for each step (first tokens, second tokens, ...), the number of rows with a token there
    rows: Tensor  # the numbers of the rows (of all texts) that have tokens, the longest row first
    shape: tuple[int, int]  # (batch, positions)
    num_rows: int  # the number of rows, with those that have no tokens

    @classmethod
    @torch.compiler.disable  # the number of tokens depends on the values of the mask
    def of(cls, mask: Tensor) -> "Packing":
        """The packing of the positions in `mask` `[batch, positions]`; padding may be anywhere. A mask `[texts, batch,
        positions]` is of several texts in each row of the batch, which are packed as `texts * batch` rows."""
        shape = tuple(mask.shape[-2:])
        has_token = mask.flatten(0, -2).cpu()
        rows = has_token.sum(1).sort(descending=True, stable=True).indices
        rows = rows[has_token[rows].any(1)]
        # Of each token, row after row: its row (the place in `rows`), its position in the row, its step.
        row, position = has_token[rows].nonzero(as_tuple=True)
        step = has_token[rows].cumsum(1)[row, position] - 1
        batch_sizes = step.bincount()
        first = batch_sizes.cumsum(0) - batch_sizes  # the index of each step's first token
        reverse = first[row.bincount()[row] - 1 - step] + row
        # Several texts of a row have the same positions of the batch, hence the remainder.
        indices = (rows[row] * shape[1] + position) % math.prod(shape)
        order = step.argsort(stable=True)
        parts = indices[order], reverse[order], rows  # one copy to a GPU, which waits for the GPU
        indices, reverse, rows = torch.cat(parts).to(mask.device).split([len(part) for part in parts])
        return cls(indices, reverse, batch_sizes.tolist(), rows, shape, len(has_token))

    def join(self, directions: Tensor) -> Tensor:
        """Concatenates both directions `[2, packed, P]`, each in its reading order, to `[packed, 2P]` in text order."""
        forward, backward = directions
        return torch.cat((forward, backward.index_select(0, self.reverse)), dim=1)

    def pack(self, padded: Tensor) -> Tensor:
        """`[batch, positions, ...]` to `[packed, ...]`."""
        return padded.reshape(math.prod(self.shape), *padded.shape[2:])[self.indices]

    @torch.compiler.disable  # otherwise compiled again for each `shape`
    def pad(self, packed: Tensor) -> Tensor:
        """`[packed, size]` to `[batch, positions, size]`, zeros at padding."""
        padded = packed.new_zeros(math.prod(self.shape), packed.shape[1])
        return padded.index_copy_(0, self.indices, packed).view(*self.shape, packed.shape[1])


class LstmWeights(NamedTuple):
    """The parameters of one direction of one layer, with gate order and names as in `torch.nn.LSTM`. In this file, C is
    the size of a direction's cell (`config.cell_size`), P the size of its output (`config.projection_size`)."""

    weight_ih: Tensor  # [4C, input]
    weight_hh: Tensor  # [4C, P]
    bias: Tensor  # [4C]
    weight_hr: Tensor | None  # [P, C]; None: no projection, P == C


class LstmCall(NamedTuple):
    """The arguments of [`bilstm_layer`] as backends get them: `inputs`, `hidden` and `cell` already have the dtypes of
    the computation; the backend casts the weights."""

    inputs: Tensor  # [directions, packed, input], for each direction in its reading order
    hidden: Tensor  # [directions, rows, P], before the first step
    cell: Tensor  # [directions, rows, C], before the first step
    batch_sizes: Sequence[int]  # the number of rows of each step, positive and in descending order
    weights: Sequence[LstmWeights]  # of each direction, with the same shapes for all directions
    cell_clip: float | None  # bound on the absolute value of the cell
    proj_clip: float | None  # bound on the absolute value of the projected output


def clip(x: Tensor, bound: float | None) -> Tensor:
    """`x` with its absolute value bounded, or `x` itself without a bound."""
    if bound is None:
        return x
    # The gradient of `hardtanh` is one operation instead of five, each of which takes as long as a launch on a GPU.
    return x.clamp(-bound, bound) if x.is_cpu else nn.functional.hardtanh(x, -bound, bound)


@torch.compiler.disable  # of a layer that is compiled by itself, a graph would be valid for one list of batch sizes
def bilstm_layer(
    x: Tensor,
    state: State,
    batch_sizes: Sequence[int],
    weights: Sequence[LstmWeights],
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Tensor, State]:
    """Runs independent LSTMs over inputs with the same packing: the directions of one layer of a biLM (Peters et al.
    2018, section 3.1).

    `c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g))`, `h = clip(W_hr (sigmoid(o) * tanh(c)))`, with a bound for each;
    without a projection `h` is not clipped, as in TensorFlow's `LSTMCell`. The gates are in the order i, f, g, o of
    `torch.nn.LSTM`; the forget bias of 1 that TensorFlow adds is part of `bias`.

    Products are computed in the dtype of `x`, or in the autocast dtype if autocast is on, but in float32 if the
    device has no instructions for this dtype. The cell state is in float32 or float64.

    The arguments are those of [`LstmCall`]: `x` is `inputs`, `state` is `hidden` and `cell`. Returns outputs
    `[directions, packed, P]`, and the state after the last step of each row.
    """
    dtype = product_dtype(x)
    computed = dtype if has_instructions(dtype, x.device) else torch.float32
    hidden = state[0].to(computed)
    cell = state[1].to(torch.promote_types(computed, torch.float32))
    call = LstmCall(x.to(computed), hidden, cell, batch_sizes, weights, cell_clip, proj_clip)
    with torch.autocast(x.device.type, enabled=False):
        backend = find_backend("lstm", call)
        outputs, (hidden, cell) = backend() if backend else lstm_directions(call)
    return outputs.to(dtype), (hidden.to(dtype), cell)


def product_dtype(inputs: Tensor) -> torch.dtype:
    # The callers turn autocast off, and cast the factors of their products to this dtype themselves.
    device = inputs.device.type
    if torch.is_autocast_enabled(device) and inputs.dtype != torch.float64:  # autocast leaves float64 alone
        return torch.get_autocast_dtype(device)
    return inputs.dtype


def has_instructions(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the device has instructions for matrix products in `dtype`; a CPU without them is many times slower."""
    if device.type != "cpu" or dtype.itemsize > 2:
        return True
    kernels = _kernels()
    has = getattr(torch.cpu, "get_capabilities", dict)()  # from PyTorch 2.11 on
    has_bfloat16 = kernels.multiplies_bfloat16() if kernels else has.get("avx512_bf16") or has.get("bf16")
    return dtype == torch.bfloat16 and bool(has_bfloat16)


def lstm_directions(call: LstmCall) -> tuple[Tensor, State]:
    """[`bilstm_layer`] in plain PyTorch, for every device, gradients of any order and forward-mode differentiation: one
    product gives the input's part of all gates, then each step adds the part of the state."""
    if call.inputs.is_cpu and len(call.weights) > 1:  # faster one direction at a time, and copies no weights
        parts = zip(call.inputs.split(1), call.hidden.split(1), call.cell.split(1), call.weights, strict=True)
        each = [lstm_directions(LstmCall(x, h, c, call.batch_sizes, [own], *call[5:])) for x, h, c, own in parts]
        both, states = zip(*each, strict=True)
        return torch.cat(both), tuple(map(torch.cat, zip(*states, strict=True)))
    hidden = call.hidden
    cell = call.cell
    weights = stack_directions(call.weights, call.inputs.dtype)
    input_half = torch.baddbmm(weights.bias.unsqueeze(1), call.inputs, weights.weight_ih.mT)
    outputs = []
    finished = []
    for gates in input_half.split(list(call.batch_sizes), dim=1):
        if (size := gates.shape[1]) < hidden.shape[1]:  # the last rows have ended
            finished.append((hidden[:, size:], cell[:, size:]))
            hidden = hidden[:, :size]
            cell = cell[:, :size]
        hidden, cell = lstm_step(gates, hidden, cell, weights, (call.cell_clip, call.proj_clip))
        outputs.append(hidden)
    finished.append((hidden, cell))
    return torch.cat(outputs, dim=1), tuple(torch.cat(rows[::-1], dim=1) for rows in zip(*finished, strict=True))


def stack_directions(weights: Sequence[LstmWeights], dtype: torch.dtype) -> LstmWeights:
    """The weights, stacked along a new first axis of directions; the weights of a single direction are not copied."""
    columns = zip(*([w if w is None else w.to(dtype)[None] for w in own] for own in weights), strict=True)
    return LstmWeights(*(own[0] if own[0] is None or len(own) == 1 else torch.cat(own) for own in columns))


def lstm_step(input_half: Tensor, hidden: Tensor, cell: Tensor, weights: LstmWeights, clips: Sequence) -> State:
    """One step of all directions: from `input_half [directions, rows, 4C]` and a state to the next state. `clips` are
    the bounds of the cell state and of the projected output."""
    gates = torch.baddbmm(input_half, hidden, weights.weight_hh.mT).to(cell.dtype)
    # One operation on all gates, of which the result for g is not used, is faster than one on each of the others.
    i, f, _, o = gates.sigmoid().chunk(4, dim=2)
    g = gates.narrow(2, 2 * cell.shape[2], cell.shape[2]).tanh()
    cell = clip((f * cell).addcmul_(i, g), clips[0])
    hidden = (o * cell.tanh()).to(hidden.dtype)
    if weights.weight_hr is not None:
        hidden = clip(torch.bmm(hidden, weights.weight_hr.mT), clips[1])
    return hidden, cell


class ElmoHighway(nn.Module):
    """`g * relu(transform(x)) + (1 - g) * x`, where `g = sigmoid(carry(x))` (Srivastava et al. 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.carry = nn.Linear(size, size)
        self.transform = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class ElmoConvolution(nn.Conv1d):
    """A convolution over words' characters: `[words, char_embedding_size, characters]` to `[words, filters, windows]`.
    On a GPU it is a matrix product. cuDNN would make a plan for each new number of words, which takes longer than the
    computation, and would round the factors to TF32."""

    def forward(self, characters: Tensor) -> Tensor:
        if characters.is_cpu:
            return super().forward(characters)
        size = self.in_channels
        windows = characters.mT.flatten(1).unfold(1, self.kernel_size[0] * size, size)  # [words, windows, width * size]
        return nn.functional.linear(windows, self.weight.mT.flatten(1), self.bias).mT


class ElmoCharacterEncoder(nn.Module):
    """A word's vector from its characters: convolutions, maximum over positions, highway layers, projection (Peters et
    al. 2018, section 3.4; Kim et al. 2016). To it, a sentence boundary is a word of one character.

    If `config.word_vocab_size` is set, the projection reads the concatenation of an embedding of the whole word and the
    output of the highway layers (ELMoForManyLangs); the last id of a word's row is then the id of the word. Without
    filters, there are no modules for characters: the embedding of the word alone, projected or not, is its vector.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        sizes = config.char_vocab_size, config.char_embedding_size
        self.embedding = nn.Embedding(*sizes, padding_idx=0) if config.char_filters else None
        self.convolutions = nn.ModuleList(
            ElmoConvolution(config.char_embedding_size, filters, width) for width, filters in config.char_filters
        )
        self.highways = nn.ModuleList(ElmoHighway(config.num_filters) for _ in range(config.num_highway_layers))
        sizes = config.word_vocab_size, config.word_embedding_size  # both or none are set
        self.word_embedding = nn.Embedding(*sizes, padding_idx=0) if config.word_vocab_size else None
        size = config.num_filters + (config.word_embedding_size or 0)
        self.projection = nn.Linear(size, config.projection_size) if config.char_projection else None
        self.activation = torch.relu if config.char_activation == "relu" else torch.tanh
        self.size = config.projection_size
        self.widest = max([width for width, _ in config.char_filters], default=0)
        self.character_columns = slice(None) if self.word_embedding is None else slice(-1)
        self.words_at_once = 4096  # bounds the memory of the convolutions; more words at once are not faster
        self.lengths_together = 4  # the number of adjacent lengths that are padded to the same length

    def forward(self, character_ids: Tensor) -> Tensor:
        """Ids `[..., characters]` to vectors `[..., P]`; the vector of each distinct word is computed once."""
        if self.embedding is None:  # faster than to find the distinct words
            return self._project(None, character_ids)
        words = character_ids.flatten(0, -2)
        if not len(words):
            return self.embedding.weight.new_zeros(*character_ids.shape[:-1], self.size)
        if backend := find_backend("word-vectors", self, words):
            return backend().unflatten(0, character_ids.shape[:-1])
        words, index = distinct_rows(words)
        characters = words[:, self.character_columns].contiguous()
        steps = torch.arange(1, characters.shape[1] + 1, device=words.device)
        lengths = ((characters != WORD_PADDING_ID) * steps).amax(1)
        if backend := find_backend("character-maxima", self, characters, lengths):
            vectors = self._project(self.activation(backend()), words)
        else:
            # Words of similar length are convolved together to save padding. Padding characters have a vector, too, and
            # take part in the maximum; all windows that contain only padding are equal, so one of them is enough.
            group, order = (lengths // self.lengths_together).sort(stable=True)
            parts = characters[order].split(torch.bincount(group.cpu()).tolist())
            chunks = []
            for number, part in enumerate(parts):
                chunks += part[:, : (number + 1) * self.lengths_together - 1 + self.widest].split(self.words_at_once)
            vectors = torch.cat([self._convolve(chunk) for chunk in chunks if len(chunk)])
            vectors = self._project(vectors, words[order])
            index = order.argsort()[index]
        return vectors.index_select(0, index).unflatten(0, character_ids.shape[:-1])

    def _convolve(self, characters: Tensor) -> Tensor:
        x = self.embedding(characters).transpose(1, 2)  # [words, char_embedding_size, characters]
        windows = [convolution(x) for convolution in self.convolutions]
        # The first of equal maxima gets the gradient, as in TensorFlow's pooling; `amax` is faster, but shares it.
        maxima = [y.max(2).values if y.requires_grad else y.amax(2) for y in windows]
        return self.activation(torch.cat(maxima, dim=1))

    def _project(self, filters: Tensor | None, words: Tensor) -> Tensor:
        for highway in self.highways:
            filters = highway(filters)
        if self.word_embedding is not None:
            of_words = self.word_embedding(words[..., -1])
            filters = of_words if filters is None else torch.cat((of_words, filters), dim=1)
        return filters if self.projection is None else self.projection(filters)


class ElmoLSTM(nn.Module):
    """A forward and a backward LSTM with projections (Sak et al. 2014), which share no parameters. The parameters of
    the backward LSTM end in `_reverse`, as in a bidirectional `torch.nn.LSTM`."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        size = config.projection_size
        cell = config.cell_size
        self.clips = config.cell_clip, config.proj_clip
        gates = {"weight_ih": (4 * cell, size), "weight_hh": (4 * cell, size), "bias": (4 * cell,)}
        shapes = gates | {"weight_hr": (size, cell) if config.cell_projection else None}
        for suffix in SUFFIXES:
            for name, shape in shapes.items():
                self.register_parameter(name + suffix, shape and nn.Parameter(torch.empty(shape)))

    def weights(self, direction: int) -> LstmWeights:
        """The parameters of the forward (0) or the backward (1) LSTM."""
        return LstmWeights(*(getattr(self, name + SUFFIXES[direction]) for name in LstmWeights._fields))

    def forward(
        self, x: Tensor, state: State, batch_sizes: Sequence[int], directions: Sequence[int]
    ) -> tuple[Tensor, State]:
        """Runs the LSTMs of some directions by [`bilstm_layer`]."""
        return bilstm_layer(x, state, batch_sizes, [self.weights(direction) for direction in directions], *self.clips)


class ElmoLayer(GradientCheckpointingLayer):
    """A layer of the biLM: dropout, both LSTMs and, after the first layer, a skip connection."""

    def __init__(self, config: ElmoConfig, is_first: bool) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.lstm = ElmoLSTM(config)
        self.has_skip_connection = config.use_skip_connections and not is_first

    def forward(
        self, x: Tensor, hidden: Tensor, cell: Tensor, batch_sizes: Sequence[int], directions: Sequence[int] = (0, 1)
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As [`ElmoBiLM.run`], for one layer. (A reentrant checkpoint computes no gradient for nested tensors, so the
        hidden and the cell state are two arguments and two results.)"""
        x = self.dropout(x)
        outputs, state = self.lstm(x, (hidden, cell), batch_sizes, directions)
        # The skip connection changes the output, which the next layer reads, but not the recurrent state.
        if self.has_skip_connection:
            outputs = outputs + x
        return outputs, *state


class ElmoBiLM(nn.Module):
    """A forward and a backward language model: stacked LSTM layers (Peters et al. 2018, section 3.1)."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ElmoLayer(config, not index) for index in range(config.num_hidden_layers))
        self.projection_size = config.projection_size
        self.cell_size = config.cell_size
        self.initial_hidden = self.initial_cell = None
        if config.settled_start:
            self.initial_hidden = nn.Parameter(torch.zeros(config.num_hidden_layers, 2, self.projection_size))
            self.initial_cell = nn.Parameter(torch.zeros(config.num_hidden_layers, 2, self.cell_size))

    def train(self, mode: bool = True) -> "ElmoBiLM":
        """As in PyTorch, but a frozen biLM stays in evaluation mode, without dropout."""
        return super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))

    def forward(self, vectors: Tensor, packing: Packing, state: State | None = None) -> tuple[list[Tensor], State]:
        """Runs both directions, as [`run`] does, over the rows of a batch, from a state as in [`ElmoModelOutput`], by
        default [`initial_state`]. A row without tokens keeps its state. Raises ValueError for another batch's state."""
        start = self.initial_state(packing.num_rows, vectors)
        state = start if state is None else state
        if [part.shape for part in state] != [part.shape for part in start]:
            shapes, expected = ([list(part.shape) for part in parts] for parts in (state, start))
            raise ValueError(f"state has the shapes {shapes}, not {expected}: rename it if it is a column of data.")
        before = tuple(part[:, :, packing.rows] for part in state)
        outputs, after = self.run(vectors, before, packing.batch_sizes)
        both = zip(state, after, strict=True)
        return outputs, tuple(old.index_copy(2, packing.rows, new.to(old.dtype)) for old, new in both)

    def initial_state(self, batch: int, like: Tensor) -> State:
        """Zeros, or the stored start, on the device of `like`: `h` in the dtype of `like`, `c` in at least float32."""
        shape = (len(self.layers), 2, batch)
        cell_type = torch.promote_types(like.dtype, torch.float32)
        state = like.new_zeros(*shape, self.projection_size), like.new_zeros(*shape, self.cell_size, dtype=cell_type)
        if self.initial_hidden is None:
            return state
        stored = self.initial_hidden, self.initial_cell
        return tuple(zeros + start[:, :, None].to(zeros) for zeros, start in zip(state, stored, strict=True))

    def run(
        self, x: Tensor, state: State, batch_sizes: Sequence[int], directions: Sequence[int] = (0, 1)
    ) -> tuple[list[Tensor], State]:
        """Runs the forward stack (0), the backward stack (1) or both over vectors `[directions, packed, P]`, those of a
        direction in its reading order (two directions may read different tokens), from the state `h [layers,
        directions, rows, P]` and `c [layers, directions, rows, C]`, the longest row first. Returns the output of each
        layer `[directions, packed, P]`, and the state after each row's last token."""
        if not batch_sizes:
            return [x for _ in self.layers], state
        outputs = []
        after = []
        for layer, hidden, cell in zip(self.layers, *state, strict=True):
            if layer.training and layer.gradient_checkpointing:
                x.requires_grad_()  # else a reentrant checkpoint computes no gradients
            x, *layer_state = layer(x, hidden, cell, batch_sizes, directions)
            outputs.append(x)
            after.append(layer_state)
        return outputs, tuple(torch.stack(parts) for parts in zip(*after, strict=True))


class ElmoScalarMix(nn.Module):
    """`gamma * sum_j softmax(scalars)_j * layer_j`, or a mix with fixed weights (Peters et al. 2018, section 3.2);
    times a fixed matrix (Schuster et al. 2019): its own if it is `aligned`, or one that `forward` is given."""

    def __init__(self, config: ElmoConfig, aligned: bool = False) -> None:
        super().__init__()
        self.layer_norm = config.scalar_mix_layer_norm
        self.fixed = config.layer_weights
        if self.fixed is None:
            self.scalars = nn.Parameter(torch.zeros(config.num_hidden_layers + 1))
            self.gamma = nn.Parameter(torch.ones(1))
        self.register_buffer("alignment", torch.eye(config.hidden_size) if aligned else None)

    def forward(self, layers: Sequence[Tensor], alignment: Tensor | None = None) -> Tensor:
        """Layers `[packed, 2P]`, without padding, to their mix, of the same shape."""
        alignment = self.alignment if alignment is None else alignment
        if self.layer_norm:
            layers = [normalize(layer) for layer in layers]
        if self.fixed is None:
            wide = torch.promote_types(self.scalars.dtype, torch.float32)
            weights = self.gamma * torch.softmax(self.scalars, dim=0, dtype=wide).to(self.gamma.dtype)
            mix = weights[0] * layers[0]
            for weight, layer in zip(weights[1:], layers[1:], strict=True):
                mix = torch.addcmul(mix, weight.to(mix.dtype), layer)  # multiplies and adds in one pass
        else:
            mix = sum(weight * layer for weight, layer in zip(self.fixed, layers, strict=True) if weight)
        return mix if alignment is None else nn.functional.linear(mix, alignment)


def normalize(layer: Tensor) -> Tensor:
    """Scales `[packed, size]` to mean 0, variance 1 over the batch, so that rows affect each other (as in AllenNLP)."""
    values = layer.to(torch.promote_types(layer.dtype, torch.float32))
    return ((values - values.mean()) * (values.var(correction=0) + 1e-12).rsqrt()).to(layer.dtype)


class ElmoPreTrainedModel(PreTrainedModel):
    """The base class of all ELMo models: initial weights, loading and saving, freezing."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    gradient_checkpointing = False  # so that heads without ELMo, which have no layer to checkpoint, raise no error
    _no_split_modules = ["ElmoCharacterEncoder", "ElmoBiLM"]  # noqa: RUF012
    # A checkpoint may have weights that the model does not have: the softmax, the settled start, a learned mix.
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\.", r"bilm\.initial_", r"mix(es\.\d+)?\.(scalars|gamma)$"]  # noqa: RUF012
    _trains_bilm = False  # from the start, whatever `config.freeze_bilm` says, which is for tasks
    custom_pipelines: ClassVar[dict] = {}  # of transformers, for code that is loaded from a checkpoint

    def post_init(self) -> None:
        super().post_init()
        self._freeze(self.config.freeze_bilm and not self._trains_bilm)

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Self:
        """As in transformers. Raises ValueError if a settled start is asked for, but missing."""
        model, info = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        model.source = {name: kwargs[name] for name in ("revision", "subfolder") if name in kwargs}  # of its tokenizer
        model.is_new = bool(info["missing_keys"] or info["mismatched_keys"])
        if any("bilm.initial_" in key for key in info["missing_keys"]):
            raise ValueError("settled_start is True, but the checkpoint has no start: compute it with hf_elmo.settle.")
        if not model._hf_peft_config_loaded:  # adapters have frozen what they adapt
            model._freeze(model.config.freeze_bilm and not cls._trains_bilm)  # loading has replaced the parameters
        return (model, info) if output_loading_info else model

    def save_pretrained(self, save_directory: str | PathLike, **kwargs: Any) -> None:
        """As in transformers. Also saves the source files of hf_elmo's classes, so that the checkpoint can be loaded
        where hf_elmo is not installed."""
        # A configuration that was loaded with another class may still name what belongs to the other class.
        own = self.is_remote_code()
        for name in ("scalar_mix_alignment", "settled_start"):  # of a biLM from elsewhere, `head.elmo = other`
            setattr(self.config, name, getattr(self.base_model.config, name))
        self.config.auto_map = {"AutoModel": "modeling_elmo.ElmoModel"} if own else None
        vars(self.config)["custom_pipelines"] = self.custom_pipelines if own else {}
        current = type(self)
        # transformers saves the source file and the name of the class, of which `fully_shard` makes one of PyTorch's.
        self.__class__ = next(each for each in current.__mro__ if not each.__module__.startswith("torch."))
        try:
            super().save_pretrained(save_directory, **kwargs)
        finally:
            self.__class__ = current

    @classmethod
    def is_remote_code(cls) -> bool:
        """Whether transformers saves the class's source file: for hf_elmo's classes, not for a user's subclass."""
        return "_auto_class" in vars(next(each for each in cls.__mro__ if not each.__module__.startswith("torch.")))

    def freeze_bilm(self, frozen: bool = True) -> None:
        """Freezes the character CNN and the biLM (or trains them if not `frozen`), and sets `config.freeze_bilm`."""
        self.config.freeze_bilm = frozen
        self._freeze(frozen)

    def _freeze(self, frozen: bool) -> None:
        elmo = self.base_model
        for module in (elmo.char_encoder, elmo.bilm):
            for weight in module.parameters():
                weight.requires_grad_(not frozen and weight.is_floating_point())  # quantized weights may be integers
            module.train(self.training)
        # Heads have mixes of their own, language models none. DistributedDataParallel refuses parameters without use.
        for mix in (elmo.scalar_mix, *elmo.further_mixes):
            mix.requires_grad_(elmo is self)

    def enable_input_require_grads(self) -> None:
        """Does nothing: what is checkpointed makes its input require gradients, so a frozen biLM computes none."""

    def resize_token_embeddings(self, *_: object, **__: object) -> nn.Embedding:
        """Returns the embedding of characters unchanged: its rows are characters, not words that could be added."""
        return self.get_input_embeddings()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The initial weights of the original code, bilm-tf's training.py."""
        encoder = getattr(self.base_model, "char_encoder", None)  # a head may have no ELMo
        if encoder and module in (encoder.embedding, encoder.word_embedding):
            rows = torch.empty_like(module.weight)
            if self.config.char_filters:
                rows.uniform_(-1.0, 1.0)
            else:  # vectors of words, of a length of about 1 as in ELMoForManyLangs
                rows.normal_(std=1 / math.sqrt(module.embedding_dim))
            rows[0] = 0.0  # padded positions
            init.copy_(module.weight, rows)
        elif isinstance(module, ElmoConvolution):
            if self.config.char_activation == "relu":
                init.uniform_(module.weight, -0.05, 0.05)
            else:
                init.normal_(module.weight, std=math.sqrt(1 / module.weight[0].numel()))
            init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
            is_carry = any(module is highway.carry for highway in encoder.highways)
            init.constant_(module.bias, -2.0 if is_carry else 0.0)
        elif isinstance(module, ElmoLSTM):
            for weights in map(module.weights, range(len(SUFFIXES))):
                # TensorFlow keeps both weights in one matrix, and the default bound (Glorot) depends on its size.
                cell4, size = weights.weight_hh.shape
                bound = math.sqrt(6 / (2 * size + cell4))
                init.uniform_(weights.weight_ih, -bound, bound)
                init.uniform_(weights.weight_hh, -bound, bound)
                bias = torch.zeros_like(weights.bias)
                bias[cell4 // 4 : cell4 // 2] = 1.0  # the forget gate
                init.copy_(weights.bias, bias)
                if weights.weight_hr is not None:
                    init.xavier_uniform_(weights.weight_hr)
        elif isinstance(module, ElmoScalarMix):
            if module.fixed is None:
                init.zeros_(module.scalars)
                init.ones_(module.gamma)
            if module.alignment is not None:
                init.copy_(module.alignment, torch.eye(len(module.alignment), device=module.alignment.device))
        elif hasattr(module, "reset_parameters"):  # a module of a user's head, with PyTorch's initial weights
            module.reset_parameters()
        else:
            super()._init_weights(module)


@dataclass
class ElmoModelOutput(ModelOutput):
    """The output of [`ElmoModel`], zero at padded positions. P is `config.projection_size`, C is `config.cell_size`.

    Args:
        last_hidden_state: `[batch, positions, 2P]`, the scalar mix, or the first one if there are several.
        pooler_output: `[batch, 2P]`, the mean of this mix over the words, without sentence boundaries and padding.
        hidden_states: if `output_hidden_states=True`, the `num_hidden_layers + 1` layers of the biLM, each
            `[batch, positions, 2P]`; layer 0 is `[x; x]`, a token's vector twice, layer j `[forward_j; backward_j]`.
        scalar_mixes: if `config.num_scalar_mixes > 1`, all `num_scalar_mixes` mixes, each `[batch, positions, 2P]`.
        state: if `use_cache=True`, `h [num_hidden_layers, 2, batch, P]` and `c [num_hidden_layers, 2, batch, C]`
            (axis 1: forward, backward), to pass as the `state` of the next call.
        layers: if `packing` is given, in place of the mixes: the `num_hidden_layers + 1` layers, each `[packed, 2P]`.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    scalar_mixes: tuple[Tensor, ...] | None = None
    state: tuple[Tensor, Tensor] | None = None
    layers: tuple[Tensor, ...] | None = None


class ElmoModel(ElmoPreTrainedModel):
    """ELMo without a head: from character ids to one vector for each word (Peters et al. 2018).

    A call starts from a zero state (or the stored start of `config.settled_start`) unless `state` is given, so the same
    input gives the same output, alone or in a batch. (AllenNLP and bilm-tf carry the state from call to call. To
    reproduce their numbers, pass the `state` of each output to the next call.)

    `model(**tokenizer(texts, padding=True, return_tensors="pt")).last_hidden_state` has the vector of each word."""

    _auto_class = "AutoModel"
    packing_type: ClassVar[type[Any]] = Packing  # another one for exports
    __call__: Callable[..., "ElmoModelOutput"]

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.char_encoder = ElmoCharacterEncoder(config)
        self.bilm = ElmoBiLM(config)
        self.scalar_mix = ElmoScalarMix(config, aligned=config.scalar_mix_alignment)
        self.further_mixes = nn.ModuleList(ElmoScalarMix(config) for _ in range(config.num_scalar_mixes - 1))
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of characters, or of words in a word-level model."""
        return self.char_encoder.embedding or self.char_encoder.word_embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        setattr(self.char_encoder, "embedding" if self.config.char_filters else "word_embedding", value)

    def masks_of(
        self, ids: Tensor | None, mask: Tensor | None, vectors: Tensor | None, special: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The [`token_masks`] of `input_ids` or `inputs_embeds`, with masks. Raises ValueError as `forward`."""
        if (ids is None) == (vectors is None):
            raise ValueError("input_ids and inputs_embeds are both given or both missing: pass exactly one of them.")
        name, inputs = ("input_ids", ids) if vectors is None else ("inputs_embeds", vectors)
        size = self.config.row_length if vectors is None else self.config.projection_size
        if inputs.dim() != 3 or inputs.shape[2] != size:
            raise ValueError(f"{name} has the shape {list(inputs.shape)}, but must have [batch, positions, {size}].")
        if mask is not None and mask.shape != inputs.shape[:2]:
            raise ValueError(f"attention_mask has the shape {list(mask.shape)}, unlike {name}.")
        return token_masks(mask, special, ids, vectors)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        use_cache: bool | None = None,
        packing: Packing | None = None,
        backward_input_ids: Tensor | None = None,
        **kwargs: object,
    ) -> ElmoModelOutput:
        r"""
        Args:
            input_ids: `[batch, positions, characters]`, the character ids of words and sentence boundaries; zeros are
                padding. (If `config.word_vocab_size` is set, the last number of a position is the word's id.)
            attention_mask: `[batch, positions]`, 1 for words and boundaries, 0 for padding on either side. By default,
                1 at positions whose `input_ids` are not all zero; with `inputs_embeds`, 1 everywhere.
            inputs_embeds: `[batch, positions, P]`, the output of the character encoder, in place of `input_ids`.
            state: the `state` of the last call's output, to continue from there, as in a document read in pieces.
            special_tokens_mask: `[batch, positions]`, 1 for positions that `pooler_output` leaves out. By default the
                sentence boundaries in `input_ids`; with `inputs_embeds` the first and last token of a row.
            output_hidden_states: whether to return the biLM's layers.
            use_cache: whether to return the `state` for the next call.
            packing: the tokens to read, in place of `attention_mask`, by a head that mixes the packed `layers` itself.
            backward_input_ids: as in [`ElmoForPreTraining`].

        Raises:
            ValueError: `input_ids` and `inputs_embeds` are both given or both missing, or a tensor has a wrong shape.
        """
        refuse_unknown(kwargs)
        mask, boundaries = self.masks_of(input_ids, attention_mask, inputs_embeds, special_tokens_mask)
        read = self.packing_type.of(mask) if packing is None else packing
        tokens = read.pack(input_ids if inputs_embeds is None else inputs_embeds)
        order = torch.arange(tokens.shape[0], device=tokens.device)
        indices = torch.stack((order, read.reverse))
        if backward_input_ids is not None:  # in one call, so that a word that both directions read is computed once
            if (shape := backward_input_ids.shape[:2]) != read.shape:
                raise ValueError(f"backward_input_ids begins with the axes {[*shape]}, not {[*read.shape]}.")
            tokens = torch.cat((tokens, read.pack(backward_input_ids)))
            indices = torch.stack((order, order + len(order)))
            read = replace(read, reverse=order)
        layers, state = self.read_directions(tokens, indices, read, state)
        layers = [read.join(layer) for layer in layers]
        state = state if use_cache else None
        hidden_states = None
        if self.config.output_hidden_states if output_hidden_states is None else output_hidden_states:
            hidden_states = tuple(map(read.pad, layers))
            if torch.is_grad_enabled():  # go on with the returned tensors: `retain_grad` would give them no gradient
                layers = list(map(read.pack, hidden_states))
        if packing is not None:
            return ElmoModelOutput(hidden_states=hidden_states, state=state, layers=tuple(layers))
        alignment = self.scalar_mix.alignment
        mixes = tuple(read.pad(mix(layers, alignment)) for mix in (self.scalar_mix, *self.further_mixes))
        pooled = mean_over(mixes[0], mask & ~boundaries)
        return ElmoModelOutput(mixes[0], pooled, hidden_states, mixes if len(mixes) > 1 else None, state)

    @torch.compiler.disable  # the packing differs from batch to batch, and so do the distinct words
    def read_directions(
        self, tokens: Tensor, indices: Tensor, packing: Packing, state: State | None = None
    ) -> tuple[list[Tensor], State]:
        """The biLM's `num_hidden_layers + 1` layers, each `[2, packed, P]`, each direction in its reading order, and
        the state, from `tokens`: character ids `[n, characters]` or vectors `[n, P]`. `indices [2, packed]` say which
        of them the forward and the backward direction read, in reading order."""
        if tokens.is_floating_point():  # (a replica of DataParallel has no parameters, hence no dtype)
            vectors = tokens.to(self.get_input_embeddings().weight.dtype)
        else:
            vectors = self.char_encoder(tokens.long())
        vectors = vectors.index_select(0, indices.flatten()).unflatten(0, indices.shape)
        layers, state = self.bilm(vectors, packing, state)
        return [vectors, *layers], state

    def word_representations(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: object
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """ELMo as a layer of another network: the vectors of the words, without the sentence boundaries. Takes the
        arguments of `forward`, except `inputs_embeds`. Returns `num_scalar_mixes` mixes `[batch, words, 2P]`, with the
        words at the left end of each row, padded with zeros; and the mask `[batch, words]` of the words."""
        mask, boundaries = self.masks_of(input_ids, attention_mask, None, kwargs.get("special_tokens_mask"))
        output = self(input_ids, mask, **{**kwargs, "return_dict": True})
        aligned = [align_left(mix, mask & ~boundaries) for mix in output.scalar_mixes or (output.last_hidden_state,)]
        return tuple(mix for mix, _ in aligned), aligned[0][1]
