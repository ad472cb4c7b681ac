"""Poolings: one vector from the vectors of a text's words, for the heads that read whole texts."""

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax over the scores on the last axis that `mask` (broadcast) selects; zero for scores not selected."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask


def max_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """The maximum `[batch, size]` of each row's vectors that `mask` selects; zero for a row without such vectors."""
    lowest = torch.finfo(vectors.dtype).min
    return vectors.masked_fill(~mask[:, :, None], lowest).amax(1) * mask.any(1, keepdim=True)


def last_over(vectors: Tensor, mask: Tensor) -> Tensor:
    """The final states: forward half of `vectors` at the last position of `mask`, backward half at the first one."""
    forward, backward = vectors.chunk(2, dim=2)
    position = torch.arange(mask.shape[1], device=mask.device)
    last = (mask * position).argmax(1)
    first = mask.int().argmax(1)
    rows = torch.arange(mask.shape[0], device=mask.device)
    return torch.cat((forward[rows, last], backward[rows, first]), dim=1)


class ElmoAttentionPooling(nn.Module):
    """The mean of word vectors, weighted by the softmax of learned scores (Lin et al. 2017; McCann et al. 2017)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scores = nn.Linear(size, 1)  # PEFT takes what ends in `score` for a classifier

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, size]` and `[batch, words]` to `[batch, size]`; zero for a row without words."""
        weights = masked_softmax(self.scores(vectors).squeeze(2), mask)
        return torch.bmm(weights[:, None], vectors)[:, 0]
