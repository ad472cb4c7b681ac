"""A linear-chain conditional random field over labels (Lafferty et al. 2001; Lample et al. 2016).

torch has none, and what travels with a checkpoint may import nothing else; the tests compare this one with the
enumeration of all sequences.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

IMPOSSIBLE = -1e4  # added to a score; finite, so that where nothing is allowed there is still a best sequence
# What may follow a label that is inside a chunk of the same type, and what may begin one or stand outside.
_STARTS = {"IOB1": "I", "IOB2": "B", "BIOES": "BS"}
_CONTINUES = {"IOB1": "IB", "IOB2": "I", "BIOES": "IE"}
_OPEN = {"IOB1": "", "IOB2": "", "BIOES": "BI"}  # the chunk must go on after these


def allowed_transitions(labels: Sequence[str], scheme: str) -> tuple[list[bool], list[list[bool]], list[bool]]:
    """
    What a scheme allows: which labels may begin a sentence, which may follow which (`[before][after]`), which may end.

    Args:
        labels: `"O"`, or a prefix and a type, such as `"B-PER"`.
        scheme: `"IOB1"` (B only where a chunk of the same type touches), `"IOB2"` or `"BIOES"`.

    Raises:
        ValueError: a label is not of the scheme, or with these labels a sentence of one word has no tag.
    """
    prefixes = {"O", *_STARTS[scheme], *_CONTINUES[scheme]}
    parts = [(label.partition("-")[0], label.partition("-")[2]) for label in labels]
    for label, (prefix, _) in zip(labels, parts, strict=True):
        if prefix not in prefixes:
            known = ", ".join(sorted(prefixes))
            raise ValueError(
                f"label {label!r} is not of tagging_scheme {scheme!r}, whose labels begin with {known}: name the "
                "labels in id2label, or take another scheme (None allows every sequence)."
            )

    def may_follow(before: tuple[str, str], after: tuple[str, str]) -> bool:
        inside = before[0] != "O" and before[0] not in ("E", "S") and before[1] == after[1]
        if before[0] in _OPEN[scheme]:
            return inside and after[0] in _CONTINUES[scheme]
        return after[0] == "O" or after[0] in _STARTS[scheme] or (inside and after[0] in _CONTINUES[scheme])

    starts = [may_follow(("O", ""), after) for after in parts]
    ends = [prefix not in _OPEN[scheme] for prefix, _ in parts]
    if not any(start and end for start, end in zip(starts, ends, strict=True)):
        raise ValueError(
            f"tagging_scheme {scheme!r} allows none of the labels {', '.join(labels)} in a sentence of one word: add "
            "'O' to id2label."
        )
    return starts, [[may_follow(before, after) for after in parts] for before in parts], ends


class ElmoCRF(nn.Module):
    """Scores of sequences of labels: emission scores of words and transition scores of one label after another.

    All methods take `emissions [batch, words, labels]` and `mask [batch, words]`, the words of each row at its left end
    (`compact` of packing_elmo.py puts them there), and compute in float32 at least.

    Args:
        num_labels: how many there are.
        allowed: what [`allowed_transitions`] returns; `None` where every sequence is allowed.
        learned: whether one label after another has a score; else labels are independent but for what is allowed.
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
        """`log_likelihood` of `labels`, or `marginals`; without either `decode`. Hooks (offloading, pruning) see calls
        of the module, not of its methods."""
        if labels is not None:
            return self.log_likelihood(emissions, mask, labels)
        return self.marginals(emissions, mask) if marginals else self.decode(emissions, mask)

    def log_likelihood(self, emissions: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """`[batch]`, the log-probability of each row's labels `[batch, words]`; where one is -100, of all that it may
        be (Tsuboi et al. 2008). A row without words has 0."""
        known = labels >= 0
        if not (mask & ~known).any():  # one sequence a row: no sum over sequences
            return self._score(emissions, mask, labels) - self.log_partition(emissions, mask)
        every = torch.arange(emissions.shape[2], device=labels.device)
        possible = (labels[:, :, None] == every) | ~known[:, :, None]
        return self.log_partition(emissions, mask, possible) - self.log_partition(emissions, mask)

    def _score(self, emissions: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """`[batch]`, the score of each row's labels, all of which are known."""
        emissions, start, transitions, end = self._wide(emissions)
        if not mask.shape[1]:
            return emissions.sum((1, 2))
        labels = labels.masked_fill(~mask, 0)
        last = labels.gather(1, (mask.sum(1, keepdim=True) - 1).clamp(min=0))[:, 0]
        words = emissions.gather(2, labels[:, :, None])[:, :, 0].masked_fill(~mask, 0.0).sum(1)
        pairs = transitions[labels[:, :-1], labels[:, 1:]].masked_fill(~mask[:, 1:], 0.0).sum(1)
        return torch.where(mask[:, 0], start[labels[:, 0]] + words + pairs + end[last], 0.0)

    def log_partition(self, emissions: Tensor, mask: Tensor, possible: Tensor | None = None) -> Tensor:
        """`[batch]`, the logarithm of the sum of the exponential scores of all sequences, or of those whose labels are
        all `possible [batch, words, labels]`."""
        emissions, start, transitions, end = self._wide(emissions)
        if possible is not None:
            emissions = emissions.masked_fill(~possible, float("-inf"))
        if not mask.shape[1]:
            return emissions.sum((1, 2))
        score = start + emissions[:, 0]
        for step in range(1, mask.shape[1]):
            after = torch.logsumexp(score[:, :, None] + transitions, dim=1) + emissions[:, step]
            score = torch.where(mask[:, step, None], after, score)
        # A row without words: its first position is padding, whose score is not taken.
        return torch.where(mask[:, 0], torch.logsumexp(score + end, dim=1), 0.0)

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words]`, each row's best sequence among those that are allowed (Viterbi); -100 where no word is."""
        emissions, start, transitions, end = self._wide(emissions)
        if self.allowed is not None:
            start, transitions, end = (
                score.masked_fill(~torch.tensor(allowed, device=score.device), IMPOSSIBLE)
                for score, allowed in zip((start, transitions, end), self.allowed, strict=True)
            )
        if not mask.shape[1]:
            return mask.long()
        score, pointers = start + emissions[:, 0], []
        stay = torch.arange(len(start), device=score.device).expand_as(score)
        for step in range(1, mask.shape[1]):
            best, pointer = (score[:, :, None] + transitions).max(1)
            here = mask[:, step, None]
            score = torch.where(here, best + emissions[:, step], score)
            pointers.append(torch.where(here, pointer, stay))
        labels = [(score + end).argmax(1)]
        for pointer in reversed(pointers):
            labels.append(pointer.gather(1, labels[-1][:, None])[:, 0])
        return torch.stack(labels[::-1], dim=1).masked_fill(~mask, -100)

    def marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, labels]`, the probability of each label of each word; zero where no word is."""
        with torch.inference_mode(False), torch.enable_grad():
            emissions, mask = self._wide(emissions.detach().clone())[0].requires_grad_(), mask.clone()
            # The derivative of the log-partition by a score is the probability of what has that score.
            return torch.autograd.grad(self.log_partition(emissions, mask).sum(), emissions)[0]

    def _wide(self, emissions: Tensor) -> tuple[Tensor, ...]:
        emissions = emissions.to(torch.promote_types(emissions.dtype, torch.float32))
        if self.transitions is None:
            none = emissions.new_zeros(emissions.shape[2])
            return emissions, none, none.expand(len(none), -1), none
        return emissions, *(part.to(emissions) for part in (self.start, self.transitions, self.end))


__all__ = ["ElmoCRF", "allowed_transitions"]
