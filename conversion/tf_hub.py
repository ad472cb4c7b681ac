"""
TF-Hub's `google/elmo`, versions 1 to 3: a SavedModel whose variables are those of bilm-tf, with the weights of its
scalar mix. TensorFlow itself reads the variables; the graph is not run.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .allennlp import key_table
from .allennlp_options import config_from_options
from .archives import opened, packed
from .bilm_tf import read_variables
from .checkpoint import model_of, require_dtype, write_checkpoint
from .output import require_absent
from .torch_modules import read_rows

MIX = {"aggregation/weights": "scalar_mix.scalars", "aggregation/scaling": "scalar_mix.gamma"}
CELL = re.compile(r"RNN_(?P<direction>[01])/.*?cell_?(?P<layer>\d+)/(?:.*/)?lstm_?cell/(?P<part>.+)", re.IGNORECASE)
PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
NOT_WEIGHTS = re.compile(r"(^|/)global_step$")


def dataset_name(variable: str) -> str:
    """The name, in the hdf5 format, of a variable of the module; under what name the module was saved is left out."""
    name = re.sub(r"^(.*/)?(?=(bilm|aggregation)/)", "", variable).removeprefix("bilm/")
    if match := CELL.fullmatch(name):
        part = PARTS.get(match["part"], match["part"])
        return f"RNN_{match['direction']}/RNN/MultiRNNCell/Cell{match['layer']}/LSTMCell/{part}"
    return name


def tensors_from_module(variables: Mapping[str, np.ndarray]) -> tuple[ElmoConfig, dict[str, np.ndarray]]:
    """
    The configuration and the tensors of the module's variables. Its sizes are those of the variables, and what these do
    not say is that of the published "original" model, which it is.

    Args:
        variables: all of the SavedModel, by name.

    Returns:
        The configuration and float32 arrays by state-dict key, those of the scalar mix included.

    Raises:
        ValueError: a variable is missing, unknown, of a shape that does not fit, or not finite.
    """
    arrays = {dataset_name(name): array for name, array in variables.items() if not NOT_WEIGHTS.search(name)}
    config = config_from_options(_options(arrays), char_vocab_size=len(arrays["char_embed"]) + 1)
    mix = {}
    for name, target in MIX.items():
        wanted = config.num_hidden_layers + 1 if name == "aggregation/weights" else 1
        values = arrays.pop(name, None)
        if values is None or np.size(values) != wanted or not np.isfinite(values).all():
            raise ValueError(f"the SavedModel has no {name!r} of {wanted} finite numbers: it is not TF-Hub's ELMo.")
        mix[target] = np.asarray(values, np.float32).reshape((1, wanted) if wanted > 1 else (1,))
    rows = key_table(config)
    optional = {dataset.name for row in rows for dataset in row.datasets if dataset.optional}
    if unread := optional & arrays.keys():
        raise ValueError(f"the SavedModel has {min(unread)!r}, which a module of these sizes has not.")
    return config, read_rows(rows, arrays, "the SavedModel") | mix


def _options(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    filters = {int(name.rpartition("_")[2]): array for name, array in arrays.items() if "CNN/W_cnn_" in name}
    layers = {int(match[1]) for name in arrays if (match := re.search(r"RNN_0/.*/Cell(\d+)/", name))}
    last = arrays.get("CNN_proj/W_proj", arrays.get("RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0", np.zeros(0)))
    bias = arrays.get("RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B", np.zeros(0))
    shapes = [array.ndim for array in filters.values()] or [0]
    if arrays.get("char_embed", np.zeros(0)).ndim != 2 or set(shapes) != {4} or last.ndim != 2 or not bias.size:
        names = ", ".join(sorted(arrays)[:4]) or "none"
        raise ValueError(f"the SavedModel has not the variables of TF-Hub's ELMo, but {names}.")
    return {
        "lstm": {
            "dim": bias.size // 4,
            "projection_dim": last.shape[1],
            "n_layers": len(layers),
            "cell_clip": 3,
            "proj_clip": 3,
            "use_skip_connections": True,
        },
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": arrays["char_embed"].shape[1]},
            "filters": [[filters[number].shape[1], filters[number].shape[3]] for number in sorted(filters)],
            "max_characters_per_token": 50,
            "n_highway": sum(bool(re.fullmatch(r"CNN_high_\d+/W_carry", name)) for name in arrays),
        },
    }


def convert_saved_model(
    source: str | Path, out: str | Path, *, dtype: str = "float32", word_splitting: str = "whitespace"
) -> Path:
    """
    Write TF-Hub's ELMo as a folder for the Hub, with the weights of its mix. `pooler_output` is its output `default`,
    `last_hidden_state` its `elmo`.

    Args:
        source: the SavedModel's folder, or an archive of it, as the hub serves it.
        out: the folder to write; it must not exist.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the tokenizer splits text; the module's signature `default` splits at whitespace.

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` exists.
        FileNotFoundError, ValueError: there are no variables, or as [`tensors_from_module`].
        ImportError: tensorflow is not installed.
    """
    require_dtype(dtype)
    require_absent(Path(out))
    with opened(source, lambda name: name.startswith("variables.")) as folder:
        prefix = next((path.with_suffix("") for path in sorted(folder.rglob("variables.index"))), None)
        if prefix is None:
            raise FileNotFoundError(f"{source} holds no variables/variables.index: it is no SavedModel.")
        config, arrays = tensors_from_module(read_variables(prefix))
        tokenizer = ElmoTokenizer(word_splitting=word_splitting, max_word_length=config.max_word_length)
        files = packed(source) + sorted(prefix.parent.glob("variables.*"))
        return write_checkpoint(out, model_of(config, arrays, dtype), tokenizer, files, "TF-Hub's SavedModel")
