"""One space for several languages: a matrix behind the mix of each language's ELMo (Schuster et al. 2019)."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from hf_elmo.checkpoints.loading import ensure_loaded
from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.embedding.corpus import embed
from hf_elmo.modeling_elmo import ElmoModel
from hf_elmo.utils.extras import extra_needed

from .checkpoint import SCALAR_MIX, Source

Language = tuple[str | Path | ElmoModel, Sequence[str | Sequence[str]]]


def find_alignment(language: Language, target: Language, translations: Iterable[tuple[str, str]]) -> np.ndarray:
    """The orthogonal matrix `[2P, 2P]` that maps the vectors of a language's model to those of another's, for
    `convert`, by orthogonal Procrustes over the mean vectors of words and of their translations (Schuster et al. 2019,
    section 4).

    Args:
        language, target: each a model (or its folder or Hub id), whose mix gives the vectors, and texts.
        translations: pairs of a word and its translation, of which those are used that the texts have. With fewer pairs
            than 2P the matrix fits vectors only as far as they are sums of these words' vectors.
    """
    with extra_needed("train"):
        from scipy.linalg import orthogonal_procrustes

    means: list[dict[str, np.ndarray]] = []
    for model, texts in (language, target):
        model, tokenizer = ensure_loaded(model, None)
        vectors: dict[str, list[np.ndarray]] = {}
        split = tokenizer.split_into_words(texts)
        for words, rows in zip(split, embed(model, split, tokenizer=tokenizer, progress=False), strict=True):
            for word, row in zip(words, rows, strict=True):
                vectors.setdefault(word, []).append(row)
        means.append({word: np.mean(rows, axis=0, dtype=np.float64) for word, rows in vectors.items()})
    pairs = [(means[0][a], means[1][b]) for a, b in translations if a in means[0] and b in means[1]]
    if not pairs:
        raise ValueError("translations has no pair of words that are in the texts: give more pairs, or more texts")
    return orthogonal_procrustes(*map(np.stack, zip(*pairs, strict=True)))[0].T


def add_alignment(source: Source, path: Path, layer: int | None) -> None:
    """Adds the matrix W `[2P, 2P]` in a file, `.npy` or an array or tensor of `torch.save`, to a model: its mix x
    becomes W x. The mix is the given layer; by default the source's own mix, or else the fixed mean of all layers.
    Raises UnpicklingError if the file holds other objects."""
    # `torch.load` knows no arrays, and NumPy 2 has renamed the module of the function that makes them.
    rebuild, dtypes = np.zeros(1).__reduce__()[0], [np.dtype("float32"), np.dtype("float64")]
    names = [f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")]
    allowed = [np.ndarray, np.dtype, *map(type, dtypes), *((rebuild, name) for name in names)]
    with torch.serialization.safe_globals(allowed):
        matrix = np.load(path) if path.suffix == ".npy" else torch.load(path, "cpu", weights_only=True)
    layers = source.config.num_hidden_layers + 1
    weights = layer if layer is not None or SCALAR_MIX[0] in source.arrays else [1 / layers] * layers
    arrays = {key: x for key, x in source.arrays.items() if weights is None or key not in SCALAR_MIX}
    source.arrays = arrays | {"scalar_mix.alignment": np.asarray(matrix, np.float32)}
    source.config = ElmoConfig.from_dict(source.config.to_dict(), scalar_mix_alignment=True, layer_weights=weights)
    source.files.append(path)
