"""A figure of the scoreboard, and how much of it is chance."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import bootstrap

import hf_elmo

Model = tuple[hf_elmo.ElmoModel, hf_elmo.ElmoTokenizer]


class Figure(NamedTuple):
    """What a test measured: an accuracy in percent, or a rank correlation."""

    test: str
    what: str
    value: float
    spread: float  # the standard deviation over resampled items (bootstrap), or the standard error over folds


def figure(test: str, what: str, *items: Sequence, of: Callable[..., Any] | None = None) -> Figure:
    """The figure `of` the items with its spread; by default the percentage of items that are right."""
    data = [np.asarray(item, dtype=float) * (1 if of else 100) for item in items]
    statistic = of or np.mean
    options = {"paired": True, "vectorized": of is None, "batch": 50, "n_resamples": 1000 if of is None else 200}
    found = bootstrap(data, statistic, method="percentile", rng=np.random.default_rng(0), **options)
    return Figure(test, what, float(statistic(*data)), float(found.standard_error))


def over_folds(test: str, what: str, scores: Sequence[float]) -> Figure:
    """The mean percentage over the folds of a cross-validation, with its standard error."""
    return Figure(test, what, 100 * float(np.mean(scores)), 100 * float(np.std(scores, ddof=1) / len(scores) ** 0.5))
