"""Places of packed words that several backends need (see `lstm_elmo.py`)."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor


def steps_of(batch_sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Where each step's words begin and end."""
    return list(pairwise(accumulate(batch_sizes, initial=0)))


def last_words(batch_sizes: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """The place of each row's last word among the packed words."""
    last: list[int] = []
    for start, end in reversed(steps_of(batch_sizes)):
        last.extend(range(start + len(last), end))
    return torch.tensor(last, device="cpu").to(device, non_blocking=True)
