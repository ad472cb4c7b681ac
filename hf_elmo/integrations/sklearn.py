"""A scikit-learn transformer that turns texts into vectors."""

import math
import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..embedding.workers import Embedder, checkpoint_fingerprint
from ..utils.extras import extra_needed

with extra_needed("train"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin


@dataclass(eq=False, repr=False)
class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turns each text into one vector, in a scikit-learn pipeline. Nothing is fitted; a process loads the model once.
    The names of the features are `elmovectorizer0`, `elmovectorizer1`, ...

    Args:
        model, layers, pooling, dtype, device, batch_tokens, pretokenized: as for [`Embedder`], pooled: "mean" or "max".
    """

    model: str | os.PathLike | None = None
    _: KW_ONLY
    layers: str | int = "mix"
    pooling: str = "mean"
    dtype: str | None = None
    device: str | None = None
    batch_tokens: int | None = None
    pretokenized: bool = False

    def __getstate__(self) -> dict[str, Any]:  # `Pipeline(memory=...)` finds stored results by it
        return super().__getstate__() | {"fingerprint": checkpoint_fingerprint(self.model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if checkpoint_fingerprint(self.model) != state["fingerprint"]:
            raise ValueError(f"model {self.model!r} has changed since the vectorizer was saved: restore its old files")

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def _n_features_out(self) -> int:  # read by ClassNamePrefixFeaturesOutMixin, and by the wrapper of `transform`
        return math.prod(Embedder(**self.get_params()).embed([""]).result().shape[1:])

    def fit(self, texts: Iterable[str | list[str]], y: Any = None) -> "ElmoVectorizer":
        """Does nothing; returns `self`."""
        return self

    def transform(self, texts: Iterable[str | list[str]]) -> np.ndarray:
        """The vectors of texts: `[texts, hidden_size]`, or with `layers="all"` `[texts, layers * hidden_size]`."""
        vectors = Embedder(**self.get_params()).embed(texts).result()
        return vectors.reshape(len(vectors), math.prod(vectors.shape[1:]))
