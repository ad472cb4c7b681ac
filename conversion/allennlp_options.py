"""AllenNLP's and bilm-tf's `options.json`, read into an ElmoConfig and written from one."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_elmo.configuration_elmo import ElmoConfig

# 256 bytes and five markers. Our character ids are one higher, so that 0 can mark a padded position; a file whose
# training already counted that row has one row more, which no character uses.
CHARACTER_ROWS = (261, 262)

# Options of bilm-tf's training. None of them changes the vectors, so they are ignored.
TRAINING_OPTIONS = frozenset(
    {
        "all_clip_norm_val",
        "batch_size",
        "dropout",
        "learning_rate",
        "n_epochs",
        "n_negative_samples_batch",
        "n_tokens_vocab",
        "n_train_tokens",
        "sample_softmax",
        "unroll_steps",
    }
)
# Options that would change the model with any other value.
FIXED_OPTIONS = {"bidirectional": True, "share_embedding_softmax": False}


def read_options(path: str | Path) -> dict[str, Any]:
    """
    Read `options.json` and check that every entry is one this version knows.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, an entry is missing or unknown, or the model is of a kind that is not ELMo's.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such options file.")
    try:
        options = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): pass the options.json that came with the weights.") from error
    if not isinstance(options, dict):
        raise ValueError(f"{path} holds a {type(options).__name__}; expected is an object with lstm and char_cnn.")
    if "char_cnn" not in options and "n_tokens_vocab" in options:
        raise ValueError(f"{path} has no char_cnn: a model over word embeddings, not characters, is not ELMo's.")
    for key, value in FIXED_OPTIONS.items():
        if options.get(key, value) != value:
            raise ValueError(f"{path}: {key} is {options[key]!r}, but ELMo's models have {value!r}.")
    _require_keys(path, "", options, {"lstm", "char_cnn"}, TRAINING_OPTIONS | FIXED_OPTIONS.keys())
    optional = {"cell_clip", "proj_clip", "use_skip_connections", "n_layers"}
    _require_keys(path, "lstm", options["lstm"], {"dim", "projection_dim"}, optional)
    required = {"activation", "embedding", "filters", "max_characters_per_token"}
    _require_keys(path, "char_cnn", options["char_cnn"], required, {"n_highway", "n_characters"})
    _require_keys(path, "char_cnn.embedding", options["char_cnn"]["embedding"], {"dim"}, set())
    return options


def _require_keys(path: Path, where: str, found: Any, required: set[str], optional: set[str] | frozenset[str]) -> None:
    prefix = f"{where}." if where else ""
    if not isinstance(found, dict):
        raise ValueError(f"{path}: {where} is {found!r}; expected is an object with {', '.join(sorted(required))}.")
    for key in sorted(required - found.keys()):
        raise ValueError(f"{path}: {prefix}{key} is missing.")
    for key in sorted(found.keys() - required - optional):
        known = ", ".join(prefix + name for name in sorted(required | optional))
        raise ValueError(f"{path}: {prefix}{key} is an option that this version does not know (it knows {known}).")


def config_from_options(options: Mapping[str, Any], **fields: Any) -> ElmoConfig:
    """
    The configuration that options describe.

    Args:
        options: as [`read_options`] returns them. Absent entries have bilm-tf's defaults: `n_layers` 1, no clips, no
            skip connections, no highway layers.
        fields: those that only the weights determine: `char_vocab_size`, `char_projection`, `cell_projection`.

    Raises:
        ValueError: an entry has a value that no model can have.
    """
    lstm, cnn = options["lstm"], options["char_cnn"]
    if cnn.get("n_characters", 262) not in (*CHARACTER_ROWS, CHARACTER_ROWS[-1] + 1):
        raise ValueError(f"char_cnn.n_characters is {cnn['n_characters']!r}, but ELMo's models have 262.")
    skip = lstm.get("use_skip_connections", False)
    if type(skip) is not bool:
        raise ValueError(f"lstm.use_skip_connections is {skip!r}, but must be true or false.")
    return ElmoConfig(
        char_embedding_size=_integer("char_cnn.embedding.dim", cnn["embedding"]["dim"]),
        char_filters=_filters(cnn["filters"]),
        char_activation=_activation(cnn["activation"]),
        num_highway_layers=_integer("char_cnn.n_highway", cnn.get("n_highway") or 0, least=0),
        max_word_length=_integer("char_cnn.max_characters_per_token", cnn["max_characters_per_token"], least=3),
        hidden_size=2 * _integer("lstm.projection_dim", lstm["projection_dim"]),
        cell_size=_integer("lstm.dim", lstm["dim"]),
        num_hidden_layers=_integer("lstm.n_layers", lstm.get("n_layers", 1)),
        cell_clip=_clip("lstm.cell_clip", lstm.get("cell_clip")),
        proj_clip=_clip("lstm.proj_clip", lstm.get("proj_clip")),
        use_skip_connections=skip,
        **fields,
    )


def _integer(key: str, value: Any, least: int = 1) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{key} is {value!r}, but must be a whole number, {least} or more.")
    return value


def _clip(key: str, value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError(f"{key} is {value!r}, but must be a number over 0, or null for no clipping.")
    return float(value)


def _filters(filters: Any) -> list[list[int]]:
    pairs = filters if isinstance(filters, list) else []
    if not pairs or not all(isinstance(p, list) and len(p) == 2 and all(type(n) is int for n in p) for p in pairs):
        raise ValueError(f"char_cnn.filters is {filters!r}, but must be a list of [width, number].")
    return pairs


def _activation(activation: Any) -> str:
    if activation not in ("relu", "tanh"):
        raise ValueError(f'char_cnn.activation is {activation!r}, but must be "relu" or "tanh".')
    return activation


def options_from_config(config: ElmoConfig) -> dict[str, Any]:
    """The `options.json` of a configuration, with every entry that AllenNLP and bilm-tf read."""
    proj_clip = config.proj_clip
    if not config.cell_projection and proj_clip is not None and proj_clip < 1:
        # The clip applies to a projection only, but AllenNLP would apply it after the identity. A clip of 1 or more has
        # no effect there: an output without projection is between -1 and 1.
        proj_clip = None
    return {
        "lstm": {
            "use_skip_connections": config.use_skip_connections,
            "projection_dim": config.projection_size,
            "cell_clip": config.cell_clip,
            "proj_clip": proj_clip,
            "dim": config.cell_size,
            "n_layers": config.num_hidden_layers,
        },
        "char_cnn": {
            "activation": config.char_activation,
            "filters": config.char_filters,
            "n_highway": config.num_highway_layers,
            "embedding": {"dim": config.char_embedding_size},
            "n_characters": config.char_vocab_size,
            "max_characters_per_token": config.max_word_length,
        },
    }
