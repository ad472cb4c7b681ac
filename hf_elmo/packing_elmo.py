"""Which words of a batch are computed, and in which order: distinct ones once, padding never."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .arguments_elmo import as_mask
from .configuration_elmo import ElmoConfig


def unpadded_mask(
    config: ElmoConfig, input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None
) -> Tensor:
    """The unpadded positions `[batch, words]`, bool, of a call's arguments.

    Raises:
        ValueError: an argument is missing, given twice, or has a shape or a type that does not fit.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("ElmoModel takes input_ids or inputs_embeds: give one of the two.")
    name, given = ("input_ids", input_ids) if inputs_embeds is None else ("inputs_embeds", inputs_embeds)
    last = config.row_length if inputs_embeds is None else config.projection_size
    if given.dim() != 3 or given.shape[2] != last:
        raise ValueError(
            f"{name} has the shape {list(given.shape)}, but must be [batch, words, {last}]. ElmoTokenizer, with the "
            f"model's max_word_length={config.max_word_length}, makes it with padding=True, "
            'return_tensors="pt"; one sentence alone is a batch of one.'
        )
    if input_ids is not None and input_ids.is_floating_point():
        raise ValueError(f"input_ids are {input_ids.dtype}, but must be integers; word vectors go to inputs_embeds.")
    if attention_mask is None:
        return given.new_ones(given.shape[:2], dtype=torch.bool) if input_ids is None else (input_ids != 0).any(2)
    return as_mask("attention_mask", attention_mask, given.shape[:2])


def require_state(config: ElmoConfig, state: tuple[Tensor, Tensor] | None, batch: int) -> None:
    """Refuses a state that does not fit the batch (ValueError)."""
    layers, size, cell = config.num_hidden_layers, config.projection_size, config.cell_size
    expected = [[layers, 2, batch, size], [layers, 2, batch, cell]]
    if state is not None and [list(part.shape) for part in state] != expected:
        raise ValueError(
            f"state has the shapes {[list(part.shape) for part in state]}, but this batch needs {expected}: "
            "[layers, 2, batch, size] for h and c. A state goes with the rows it came from."
        )


def require_labels(labels: Tensor, size: int) -> None:
    """Raises ValueError for a label that is not 0 to `size` - 1 nor -100: indexing would take it from the end."""
    wrong = labels[(labels != -100) & ((labels < 0) | (labels > size - 1))]
    if len(wrong):
        raise ValueError(f"labels has {wrong[0].item()}, but must hold 0 to {size - 1}, or -100 where there is none.")


def words_mask(
    config: ElmoConfig, mask: Tensor, input_ids: Tensor | None, special_tokens_mask: Tensor | None = None
) -> Tensor:
    """The positions `[batch, words]`, bool, of `mask` that are words and not sentence boundaries.

    Raises:
        ValueError: `special_tokens_mask` has another shape than `mask`.
    """
    if special_tokens_mask is not None:
        return mask & ~as_mask("special_tokens_mask", special_tokens_mask, mask.shape)
    if input_ids is not None:
        marker = input_ids[:, :, 1]
        return mask & (marker != config.bos_token_id) & (marker != config.eos_token_id)
    number = mask.cumsum(1)
    return mask & (number > 1) & (number < number[:, -1:])


def mean_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """The mean `[batch, size]` of `[batch, words, size]` over `mask` `[batch, words]`; zero where it is empty."""
    weights = mask.to(vectors.dtype)
    return torch.bmm(weights[:, None], vectors)[:, 0] / weights.sum(1, keepdim=True).clamp(min=1)


def compact(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """What `mask` `[batch, positions]` names of `values` `[batch, positions, ...]`, at the left end of each row in its
    order: `[batch, words, ...]`, as long as the longest row, zeros after its end; and the mask of that."""
    if torch.compiler.is_exporting():
        raise ValueError("heads with an encoder, taggers and word_representations move words, which is not exported.")
    lengths = mask.sum(1)
    longest = int(lengths.max()) if len(lengths) else 0
    inside = torch.arange(longest, device=mask.device) < lengths[:, None]
    return expand(values[mask], inside), inside


def expand(packed: Tensor, mask: Tensor) -> Tensor:
    """`[words, ...]`, row after row, where `mask` `[batch, positions]` is; zeros elsewhere."""
    return packed.new_zeros(*mask.shape, *packed.shape[1:]).masked_scatter(
        mask.view(*mask.shape, *[1] * (packed.dim() - 1)), packed
    )


def distinct_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of `[n, width]` integers, and the number `[n]` of each row among them."""
    # Sorting numbers is far cheaper than sorting rows, so rows are compared by a hash; two rows that share one are rare
    # enough to pay for the exact way then.
    factors = _hash_factors(rows.shape[1], rows.device)
    _, number = torch.unique((rows * factors).sum(1), return_inverse=True)
    some_row = torch.arange(len(rows), device=rows.device)
    example = number.new_zeros(int(number.max()) + 1 if len(rows) else 0).scatter_(0, number, some_row)
    distinct = rows[example]
    if torch.equal(distinct[number], rows):
        return distinct, number
    return torch.unique(rows, dim=0, return_inverse=True)


def _hash_factors(width: int, device: torch.device) -> Tensor:
    # Powers of an odd constant modulo 2**64 (Knuth's multiplicative hashing), wrapped into int64.
    powers, power = [], 1
    for _ in range(width):
        power = power * 6364136223846793005 % 2**64
        powers.append(power - 2**64 if power >= 2**63 else power)
    return torch.tensor(powers, dtype=torch.int64, device=device)


@dataclass
class Packing:
    """Where the unpadded words of a batch `[batch, words]` stand when packed (see lstm_elmo.py).

    Args:
        positions: `[packed]`, each packed word's place in the flattened batch.
        reverse: `[packed]`, for each packed word the one at the same distance from its sentence's other end.
        batch_sizes: rows of each step.
        rows: `[rows that have words]`, the batch's rows, longest first.
        shape: `(batch, words)`.
        in_order: whether `rows` are all rows as they come.
    """

    positions: Tensor
    reverse: Tensor
    batch_sizes: list[int]
    rows: Tensor
    shape: tuple[int, int]
    in_order: bool = False

    @classmethod
    @torch.compiler.disable  # the number of words is known from the mask's values alone
    def of(cls, mask: Tensor) -> "Packing":
        """The packing of the words that `mask` `[batch, words]` names, wherever padding stands."""
        batch, words = mask.shape
        lengths = mask.sum(1).cpu()
        rows = lengths.sort(descending=True, stable=True).indices
        rows = rows[lengths[rows] > 0]
        if not len(rows):
            nothing = torch.zeros(0, dtype=torch.int64, device=mask.device)
            return cls(nothing, nothing, [], nothing, (batch, words))
        rows_here = rows.to(mask.device)
        batch_sizes, *parts = _time_major(lengths[rows])
        row, step, reverse = (part.to(mask.device) for part in parts)
        # The words of each row, moved to its left end and in order: their places in the flattened batch.
        places = (~mask[rows_here]).to(torch.uint8).argsort(dim=1, stable=True) + rows_here[:, None] * words
        in_order = torch.equal(rows, torch.arange(batch))
        return cls(places[row, step], reverse, batch_sizes, rows_here, (batch, words), in_order)

    @classmethod
    def of_lengths(cls, lengths: list[int], device: torch.device) -> "Packing":
        """The packing of rows of so many words, 1 or more and never rising, padded on the right."""
        batch_sizes, row, step, reverse = _time_major(torch.tensor(lengths))
        positions, rows, shape = row * lengths[0] + step, torch.arange(len(lengths)), (len(lengths), lengths[0])
        return cls(positions.to(device), reverse.to(device), batch_sizes, rows.to(device), shape, in_order=True)

    def row_by_row(self) -> Tensor:
        """`[2, packed]`: row after row, where each word stands as the forward and as the backward direction reads."""
        order = self.positions.argsort()
        return torch.stack((order, self.reverse[order]))

    def join(self, directions: Tensor) -> Tensor:
        """`[2, packed, P]`, each direction's words in its own order, to `[packed, 2P]`: both halves of each word."""
        forward, backward = directions
        return torch.cat((forward, backward.index_select(0, self.reverse)), dim=1)

    @torch.compiler.disable  # `shape` holds numbers, each of which would be compiled for
    def pad(self, packed: Tensor) -> Tensor:
        """`[packed, size]` laid out as `[batch, words, size]`, zeros where there is no word."""
        padded = packed.new_zeros(self.shape[0] * self.shape[1], packed.shape[1])
        return padded.index_copy_(0, self.positions, packed).view(*self.shape, packed.shape[1])


def _time_major(lengths: Tensor) -> tuple[list[int], Tensor, Tensor, Tensor]:
    """Of rows with `lengths` that never rise: the rows of each step, and each packed word's row, step and `reverse`."""
    inside = torch.arange(int(lengths[0]))[:, None] < lengths
    step, row = inside.nonzero(as_tuple=True)
    batch_sizes = inside.sum(1)
    first = batch_sizes.cumsum(0) - batch_sizes
    return batch_sizes.tolist(), row, step, first[lengths[row] - 1 - step] + row
