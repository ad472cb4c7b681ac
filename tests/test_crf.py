"""The CRF against the enumeration of all sequences, and the schemes against a plain reading of them."""

import math
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from hf_elmo.modeling_tagging_elmo import ElmoCRF, allowed_transitions

NUM_LABELS, LENGTHS = 3, [4, 1, 0, 3]
MASK = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]


def make(num_labels: int = NUM_LABELS, scheme: tuple | None = None) -> ElmoCRF:
    torch.manual_seed(1)
    crf = ElmoCRF(num_labels, scheme).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def emissions(num_labels: int = NUM_LABELS, seed: int = 2) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(*MASK.shape, num_labels, dtype=torch.float64)


def enumerated(crf: ElmoCRF, row: Tensor, length: int) -> dict[tuple[int, ...], float]:
    """The score of each sequence of labels."""
    scores = {}
    for labels in product(range(len(crf.start)), repeat=length):
        total = crf.start[labels[0]] + crf.end[labels[-1]] + sum(row[i, label] for i, label in enumerate(labels))
        scores[labels] = (total + sum(crf.transitions[pair] for pair in pairwise(labels))).item()
    return scores


def test_the_likelihood_of_a_sequence() -> None:
    """A word without a label may have any."""
    crf, x = make(), emissions()
    for labels in ([[1, 0, 2, 2], [0], [], [0, 1, 2]], [[1, -100, 2, -100], [-100], [], [-100] * 3]):
        rows = torch.tensor([row + [-100] * (4 - len(row)) for row in labels])
        found = crf.log_likelihood(x, MASK, rows).exp().tolist()
        for row, own in enumerate(labels):
            weights = {key: math.exp(value) for key, value in enumerated(crf, x[row], len(own)).items()} if own else {}
            right = [w for key, w in weights.items() if all(b in (a, -100) for a, b in zip(key, own, strict=True))]
            assert found[row] == pytest.approx(sum(right) / sum(weights.values()) if own else 1)
    with pytest.raises(RuntimeError):  # a label that the model does not have
        crf.log_likelihood(x, MASK, torch.full(MASK.shape, NUM_LABELS))


@pytest.mark.parametrize("scheme", [None, "IOB1", "IOB2", "BIOES"])
def test_the_best_sequence_that_a_scheme_allows(scheme: str | None) -> None:
    labels = ["O", "B-x", "I-x", "E-x", "S-x"] if scheme == "BIOES" else ["O", "B-x", "I-x", "B-y", "I-y"]
    allowed, changed = scheme and allowed_transitions(labels, scheme), 0
    crf, unlearned = make(len(labels), allowed), ElmoCRF(len(labels), allowed, learned=False)
    assert not list(unlearned.parameters())
    for seed, (row, length) in product(range(2), enumerate(LENGTHS)):
        x = emissions(len(labels), seed)
        found = crf.decode(x, MASK)
        assert (found[row, length:] == -100).all()
        if length:
            scores = enumerated(crf, x[row], length)
            valid = {key: v for key, v in scores.items() if is_valid([labels[i] for i in key], scheme)}
            best = tuple(found[row, :length].tolist())
            assert best == max(valid, key=valid.get)
            changed += best != max(scores, key=scores.get)
            by_emissions = {key: sum(float(x[row, i, label]) for i, label in enumerate(key)) for key in valid}
            assert tuple(unlearned(x, MASK)[row, :length].tolist()) == max(by_emissions, key=by_emissions.get)
    assert bool(changed) == bool(scheme)


def is_valid(sequence: list[str], scheme: str | None) -> bool:
    """Whether a sequence is what some chunks are written as: read from the left, without a table of transitions."""
    inside, must_go_on = None, False
    for label in sequence:
        prefix, _, kind = label.partition("-")
        if scheme == "BIOES":
            if must_go_on != (prefix in "IE") or (must_go_on and kind != inside):
                return False
            inside, must_go_on = kind, prefix in "BI"
        elif (scheme == "IOB2" and prefix == "I") or (scheme == "IOB1" and prefix == "B"):
            if inside != kind:
                return False
        else:
            inside = None if prefix == "O" else kind
    return not must_go_on


def test_marginals() -> None:
    crf, x = make(), emissions()
    with torch.inference_mode():
        found = crf(x.float(), MASK, marginals=True)
    weights = {labels: math.exp(value) for labels, value in enumerated(crf, x[0].float(), 4).items()}
    for word, label in product(range(4), range(NUM_LABELS)):
        expected = sum(v for labels, v in weights.items() if labels[word] == label) / sum(weights.values())
        torch.testing.assert_close(found[0, word, label].item(), expected, atol=1e-5, rtol=1e-5)
    assert (found[~MASK] == 0).all()
