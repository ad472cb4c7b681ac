"""Which words of a batch are computed, and in which order: distinct ones once, padding never."""

from dataclasses import dataclass

import torch
from torch import Tensor


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
