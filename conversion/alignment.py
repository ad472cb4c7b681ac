"""One space for several languages: a matrix behind the mix of each language's ELMo (Schuster et al. 2019)."""

from pathlib import Path

import numpy as np
import torch

from hf_elmo.configuration_elmo import ElmoConfig

from .checkpoint import SCALAR_MIX, Source


def add_alignment(source: Source, path: Path, layer: int | None) -> None:
    """Adds the matrix W `[2P, 2P]` in a file, `.npy` or an array or tensor of `torch.save`, to a model: its mix x
    becomes W x. The mix is the given layer; by default the source's own mix, or else the fixed mean of all layers.
    Raises UnpicklingError if the file holds other objects."""
    # `torch.load` knows no arrays, and NumPy 2 has renamed the module of the function that makes them.
    rebuild = np.zeros(1).__reduce__()[0]
    dtypes = [np.dtype("float32"), np.dtype("float64")]
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
