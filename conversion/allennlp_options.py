"""AllenNLP's and bilm-tf's `options.json`, read into an ElmoConfig and written from one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.configuration_tasks_elmo import MOST_LAYERS

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
# No model comes near these; a file that asks for more would take all memory or all time before it is found wrong.
MOST_CHARACTERS, MOST_SIZE = 10_000, 1 << 20
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
        options = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
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


def read_json(path: Path) -> dict[str, Any]:
    """
    The object in a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, or not an object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a {type(value).__name__}, but expected is an object.")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; two values of one key are refused."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"an object has a key twice, its keys are {[key for key, _ in pairs]!r:.200}")
    return found


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
    characters = cnn.get("n_characters", 262)
    if type(characters) is not int or characters not in (*CHARACTER_ROWS, CHARACTER_ROWS[-1] + 1):
        raise ValueError(f"char_cnn.n_characters is {characters!r:.100}, but ELMo's models have 262.")
    skip = lstm.get("use_skip_connections", False)
    if type(skip) is not bool:
        raise ValueError(f"lstm.use_skip_connections is {skip!r:.100}, but must be true or false.")
    highways = 0 if cnn.get("n_highway") is None else cnn["n_highway"]
    words = cnn["max_characters_per_token"]
    return ElmoConfig(
        char_embedding_size=integer("char_cnn.embedding.dim", cnn["embedding"]["dim"]),
        char_filters=filters(cnn["filters"]),
        char_activation=activation(cnn["activation"]),
        num_highway_layers=integer("char_cnn.n_highway", highways, least=0, most=MOST_LAYERS),
        max_word_length=integer("char_cnn.max_characters_per_token", words, least=3, most=MOST_CHARACTERS),
        hidden_size=2 * integer("lstm.projection_dim", lstm["projection_dim"]),
        cell_size=integer("lstm.dim", lstm["dim"]),
        num_hidden_layers=integer("lstm.n_layers", lstm.get("n_layers", 1), most=MOST_LAYERS),
        cell_clip=clip("lstm.cell_clip", lstm.get("cell_clip")),
        proj_clip=clip("lstm.proj_clip", lstm.get("proj_clip")),
        use_skip_connections=skip,
        **fields,
    )


def integer(key: str, value: Any, least: int = 1, most: int = MOST_SIZE) -> int:
    """A whole number of an options file, checked; `key` names it in errors, as in the functions below."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{key} is {value!r:.100}, but must be a whole number, {least} to {most:,}.")
    return value


def clip(key: str, value: Any) -> float | None:
    """A bound for clipping, checked; `None` for none."""
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value < 1e38:
        raise ValueError(f"{key} is {value!r:.100}, but must be a number over 0, or null for no clipping.")
    return float(value)


def filters(value: Any, key: str = "char_cnn.filters") -> list[list[int]]:
    """Pairs of width and number, checked."""
    pairs = value if isinstance(value, list) else []
    if not 0 < len(pairs) <= MOST_LAYERS or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"{key} is {value!r:.100}, but must be a list of [width, number], 1 to {MOST_LAYERS} of them.")
    for width, number in pairs:
        integer(f"{key}: a width", width, most=MOST_CHARACTERS)
        integer(f"{key}: a number", number)
    return pairs


def activation(value: Any, key: str = "char_cnn.activation") -> str:
    """The name of an activation, checked."""
    if value not in ("relu", "tanh"):
        raise ValueError(f'{key} is {value!r:.100}, but must be "relu" or "tanh".')
    return value


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
