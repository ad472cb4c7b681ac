"""
The ELMo inside a task's model of AllenNLP (`model.tar.gz`): its biLM, as the task left it, and the scalar mix and gamma
that each use of it learned. The rest of the task's model is left behind; of a projection in ELMo's embedder, which is
part of the vectors that the task saw, the record, the card and a warning say so.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from transformers.utils import logging

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .allennlp import COPY, Dataset, Row
from .allennlp_options import config_from_options, read_json, read_options
from .archives import opened, packed
from .checkpoint import model_of, require_dtype, write_checkpoint
from .download import PUBLISHED_MODELS
from .output import require_absent
from .published import SCRIPTS
from .torch_modules import Names, module_rows, read_pickle, read_rows

logger = logging.get_logger(f"transformers.{__name__}")

NAMES = Names("_token_embedder.", "char_conv_", "_highways._layers.", "_projection", "_elmo_lstm.")
CHARACTERS = "_token_embedder._char_embedding_weights"
USE = re.compile(rf"(.*?)_elmo_lstm\.{re.escape(CHARACTERS)}")
# Of an ELMo, but no weights: the boundaries' characters, and the vectors of words that it was told to keep.
DERIVED = re.compile(r"_(beginning|end)_of_sentence_characters$|^_word_embedding\.weight$")
CONFIG, WEIGHTS = "config.json", "weights.th"
# An ELMo's part of a task's configuration has one of these types, or one of these keys. An embedder's class may stand
# with its package; since AllenNLP 1.0 it has default files, those of "original".
EMBEDDERS = ("elmo_token_embedder", "ElmoTokenEmbedder")
ELMO_TYPES, ELMO_KEYS = (*EMBEDDERS, "elmo", "Elmo"), {"options_file", "num_output_representations"}
DEFAULT_OPTIONS = PUBLISHED_MODELS["original"].options
# Published models by their options, but for those whose file has everybody's name; others' may be that of several.
PUBLISHED_OPTIONS = {PurePosixPath(model.options): name for name, model in PUBLISHED_MODELS.items()}
PUBLISHED_OPTIONS = {options: name for options, name in PUBLISHED_OPTIONS.items() if options.name != "options.json"}
# What the options of all of AllenNLP's published models say and no tensor does.
PUBLISHED = {"activation": "relu", "max_characters_per_token": 50, "cell_clip": 3.0, "proj_clip": 3.0}


class Use(NamedTuple):
    """A place in the task's model that holds an ELMo."""

    prefix: str
    bilm: dict[str, np.ndarray]
    mixes: list[tuple[np.ndarray, np.ndarray]]  # scalars and gamma of each


class Part(NamedTuple):
    """A part of a task's configuration that describes an ELMo."""

    keys: tuple[str, ...]  # that lead to it, below "model"
    settings: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.settings.get("type")).rpartition(".")[2]

    @property
    def name(self) -> str:
        return ".".join(("model", *self.keys))


class Archived(NamedTuple):
    """
    The ELMo of a task's model.

    Attributes:
        config: its configuration.
        arrays: float32 arrays by state-dict key, those of the scalar mixes included.
        mixes: the names of the scalar mixes in the task's model, in the order of the arrays' rows.
        files: that it was read from.
        scripts: of the text that it read, where the archive names a published model; else none.
        left_behind: the shapes of the tensors by which the task projected its vectors, by their names.
    """

    config: ElmoConfig
    arrays: dict[str, np.ndarray]
    mixes: list[str]
    files: list[Path]
    scripts: list[str]
    left_behind: dict[str, list[int]]


def read_archive(source: str | Path, options: str | Path | None = None, use: str | None = None) -> Archived:
    """
    Read the ELMo of a task's model.

    Args:
        source: the folder with `config.json` and `weights.th`.
        options: the ELMo's `options.json`; by default the one in the archive, or, where the archive names one of
            AllenNLP's published models, or leaves out the files of its embedder, what those have in common.
        use: the prefix of the tensors of the ELMo wanted, where there are several with different biLMs or that differ
            in do_layer_norm.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: there is no ELMo in it, a setting of it is not what it should be, or a file.
    """
    folder = Path(source)
    settings, state = read_json(folder / CONFIG), read_pickle(folder / WEIGHTS)
    uses = _uses(state, str(folder / WEIGHTS))
    if not uses:
        raise ValueError(f"{folder / WEIGHTS} holds no ELMo: no such tensors.")
    prefixes = ", ".join(repr(one.prefix) for one in uses)
    if use is not None:
        uses = [one for one in uses if one.prefix.rstrip(".") == use.rstrip(".")]
        if not uses:
            raise ValueError(f"{folder / WEIGHTS} holds no ELMo named {use!r}, but {prefixes}.")
    elif not all(_same(one.bilm, uses[0].bilm) for one in uses):
        raise ValueError(
            f"{folder / WEIGHTS} holds several ELMos that differ, {prefixes}: choose one by its name, use (--use NAME)."
        )
    mixes = [mix for one in uses for mix in one.mixes]
    names = [f"{one.prefix}scalar_mix_{number}" for one in uses for number in range(len(one.mixes))]
    bilm = uses[0].bilm
    fields = {
        "char_vocab_size": len(bilm[CHARACTERS]),
        "char_projection": True,
        "cell_projection": True,
        "num_scalar_mixes": max(1, len(mixes)),
        "scalar_mix_layer_norm": _layer_norm(settings, uses, folder),
    }
    found, files = _options(folder, settings, bilm, options)
    config = config_from_options(found, **fields)
    arrays = bilm_arrays(config, bilm, str(folder / WEIGHTS))
    if mixes:
        scalars, gammas = zip(*mixes, strict=True)
        if any(len(one) != config.num_hidden_layers + 1 for one in scalars):
            raise ValueError(f"{folder / WEIGHTS}: a scalar mix has not one weight for each of the biLM's layers.")
        arrays |= {"scalar_mix.scalars": np.stack(scalars), "scalar_mix.gamma": np.concatenate(gammas)}
    left_behind = {name: shape for one in uses for name, shape in _projection(state, one, config.hidden_size).items()}
    files = [folder / CONFIG, folder / WEIGHTS, *files]
    return Archived(config, arrays, names, files, _scripts(settings), left_behind)


def bilm_arrays(config: ElmoConfig, state: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """
    The biLM's arrays by state-dict key, from those by the names of AllenNLP's modules.

    Args:
        config: the architecture.
        state: arrays by their names below `_elmo_lstm.`; what is derived from others is left out.
        where: what errors call them.

    Raises:
        ValueError: as [`read_rows`].
    """
    shape = (config.char_vocab_size, config.char_embedding_size)
    characters = Row((Dataset(CHARACTERS, shape),), ("char_encoder.embedding.weight",), COPY)
    own = {name: array for name, array in state.items() if not DERIVED.search(name)}
    return read_rows([characters, *module_rows(config, NAMES)], own, where)


def _uses(state: Mapping[str, np.ndarray], where: str) -> list[Use]:
    prefixes = [match[1] for name in state if (match := USE.fullmatch(name))]
    return [
        Use(
            prefix,
            {name: array for name, array in _below(state, f"{prefix}_elmo_lstm.") if not DERIVED.search(name)},
            list(_mixes(dict(_below(state, f"{prefix}scalar_mix_")), f"{where}: {prefix}scalar_mix_")),
        )
        for prefix in prefixes
    ]


def _projection(state: Mapping[str, np.ndarray], use: Use, size: int) -> dict[str, list[int]]:
    """The tensors of the layer by which a use's embedder projects vectors of this size and their shapes, if any."""
    if not use.prefix.endswith("._elmo."):  # in a model itself `_projection` may be of anything
        return {}
    embedder = use.prefix.removesuffix("_elmo.")
    names = [f"{embedder}_projection.{part}" for part in ("weight", "bias")]
    shapes = {name: list(state[name].shape) for name in names if name in state}
    return shapes if len(shapes) == 2 and shapes[names[0]][1:] == [size] else {}


def _below(state: Mapping[str, np.ndarray], prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    return ((name.removeprefix(prefix), array) for name, array in state.items() if name.startswith(prefix))


def _mixes(state: Mapping[str, np.ndarray], where: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The scalars `[layers]` and gamma `[1]` of each mix, by number."""
    for number in range(len({name.partition(".")[0] for name in state})):
        layers = sum(name.startswith(f"{number}.scalar_parameters.") for name in state)
        names = [f"{number}.scalar_parameters.{layer}" for layer in range(layers)] + [f"{number}.gamma"]
        missing = [name for name in names if np.size(state.get(name)) != 1 or name not in state]
        if missing or layers == 0:
            raise ValueError(f"{where}{(missing or [number])[0]} is no number, as a scalar mix has it.")
        values = np.array([state[name].reshape(()) for name in names], np.float32)
        if not np.isfinite(values).all():
            raise ValueError(f"{where}{number} has values that are NaN or infinite.")
        yield values[:-1], values[-1:]


def _same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _parts(settings: Any, keys: tuple[str, ...] = ()) -> Iterator[Part]:
    """The parts that describe ELMos, of a task's configuration or of what is below these keys of it."""
    if isinstance(settings, str) and Part(keys, {"type": settings}).type in EMBEDDERS:
        yield Part(keys, {"type": settings})  # AllenNLP reads a type alone so
    elif isinstance(settings, dict):
        part = Part(keys, settings)
        if part.type in ELMO_TYPES or not ELMO_KEYS.isdisjoint(settings):
            yield part
        for key, value in settings.items():
            if key != "type":
                yield from _parts(value, (*keys, key))
    elif isinstance(settings, list):
        for number, value in enumerate(settings):
            yield from _parts(value, (*keys, str(number)))


def _layer_norm(settings: dict[str, Any], uses: list[Use], folder: Path) -> bool:
    """Whether these uses normalize the layers before they mix them."""
    where = folder / CONFIG
    parts = list(_parts(settings.get("model")))
    if not parts:
        logger.warning(
            f"The task's {CONFIG} names no ELMo, so do_layer_norm is taken for false: where it was true, set "
            "scalar_mix_layer_norm in the checkpoint's config.json."
        )
    given = {part.name: _normalizes(part, where) for part in parts}
    if len(set(given.values())) < 2:
        return True in given.values()
    of_keys = {_plain(part.keys): given[part.name] for part in parts}
    values = [next((of_keys[keys] for keys in _keys_of(one) if keys in of_keys), None) for one in uses]
    known = set(values) - {None}
    if len(known) == 1 and None not in values:
        return known.pop()
    if len(uses) > 1 and known:
        told = {True: "true", False: "false", None: "not known"}
        names = ", ".join(f"{one.prefix!r} ({told[value]})" for one, value in zip(uses, values, strict=True))
        raise ValueError(
            f"{folder / WEIGHTS} holds ELMos that differ in do_layer_norm, {names}: choose one by its name, use (--use "
            "NAME)."
        )
    names = ", ".join(f"{name} ({str(value).lower()})" for name, value in given.items())
    raise ValueError(
        f"{where} has ELMos that differ in do_layer_norm, {names}, and by its name {uses[0].prefix!r} is none of them: "
        "unpack the archive, give each its value there, and convert the folder."
    )


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    """Names of modules, or the keys after which AllenNLP names them, in one form."""
    return tuple(
        name.removeprefix("token_embedder_").removeprefix("_") for name in names if name not in ("", "token_embedders")
    )


def _keys_of(use: Use) -> list[tuple[str, ...]]:
    """The keys, in one form, at which a configuration may describe an ELMo: its own, or those of its embedder."""
    names = _plain(use.prefix.split("."))
    return [names, names[:-1]] if names[-1:] == ("elmo",) else [names]


def _normalizes(part: Part, where: Path) -> bool:
    """Its do_layer_norm as AllenNLP reads it: null is false, and of strings it takes those of JSON."""
    value = part.settings.get("do_layer_norm")
    if value is None or type(value) in (bool, int):
        return bool(value)
    if value not in ("true", "false", "None"):
        raise ValueError(f"{where}: {part.name}.do_layer_norm is {value!r:.100}, but must be true or false.")
    return value == "true"


def _options(
    folder: Path, settings: dict[str, Any], bilm: Mapping[str, np.ndarray], given: str | Path | None
) -> tuple[dict[str, Any], list[Path]]:
    """The ELMo's options: given, of the archive, or those of a published model; and the files that say them."""
    if given is not None:
        return read_options(given), [Path(given)]
    inside = sorted(file for file in folder.rglob("*") if _is_options(file.name))
    if inside:
        found = [read_options(file) for file in inside]
        if any(one != found[0] for one in found):
            raise ValueError(
                f"{folder} holds {len(found)} options files that differ: give the right one (--elmo-options)."
            )
        return found[0], inside
    named = {file.name for file in _named_options(settings)}
    if named and named <= {options.name for options in PUBLISHED_OPTIONS}:
        return _options_of_shapes(bilm), []
    raise FileNotFoundError(
        f"{folder / CONFIG} names {', '.join(sorted(named)) or 'no options file'}, which is not in the archive: give "
        "the options.json of its ELMo (--elmo-options)."
    )


def _named_options(settings: dict[str, Any]) -> set[PurePosixPath]:
    """The options files that a task's configuration names, the default of AllenNLP's embedder among them."""
    default = {"options_file": DEFAULT_OPTIONS}
    found = ((default if part.type in EMBEDDERS else {}) | part.settings for part in _parts(settings.get("model")))
    return {PurePosixPath(str(part["options_file"])) for part in found if "options_file" in part}


def _scripts(settings: dict[str, Any]) -> list[str]:
    """The scripts of the text that the task's published ELMos read; none where one is no published model, or may be one
    of several that read others."""
    read: set[str] = set()
    for file in _named_options(settings):
        models = [options for options in PUBLISHED_OPTIONS if options.name == file.name]
        in_folder = [options for options in models if options.parts[-2:] == file.parts[-2:]]
        scripts = {tuple(SCRIPTS[PUBLISHED_OPTIONS[options]]) for options in in_folder or models}
        if len(scripts) != 1:
            return []
        read.update(*scripts)
    return sorted(read)


def _is_options(name: str) -> bool:
    return name.endswith("options_file") or name == "options.json"


def _options_of_shapes(bilm: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The options of a published model, whose sizes are those of its tensors."""

    def numbered(pattern: str) -> list[np.ndarray]:
        found = {int(match[1]): bilm[name] for name in bilm if (match := re.fullmatch(pattern, name))}
        return [found[number] for number in sorted(found)]

    convolutions = numbered(r"_token_embedder\.char_conv_(\d+)\.weight")
    projections = numbered(r"_elmo_lstm\.forward_layer_(\d+)\.state_projection\.weight")
    if not convolutions or not projections or bilm[CHARACTERS].ndim != 2:
        raise ValueError("the archive's ELMo has no convolutions, or no LSTM: it is not whole.")
    return {
        "lstm": {
            "dim": projections[0].shape[1],
            "projection_dim": projections[0].shape[0],
            "n_layers": len(projections),
            "use_skip_connections": True,
            "cell_clip": PUBLISHED["cell_clip"],
            "proj_clip": PUBLISHED["proj_clip"],
        },
        "char_cnn": {
            "activation": PUBLISHED["activation"],
            "embedding": {"dim": bilm[CHARACTERS].shape[1]},
            "filters": [[weight.shape[2], weight.shape[0]] for weight in convolutions],
            "max_characters_per_token": PUBLISHED["max_characters_per_token"],
            "n_highway": len(numbered(r"_token_embedder\._highways\._layers\.(\d+)\.weight")),
        },
    }


def convert_archive(
    source: str | Path,
    out: str | Path,
    *,
    options: str | Path | None = None,
    use: str | None = None,
    dtype: str = "float32",
    word_splitting: str = "whitespace",
) -> Path:
    """
    Write the ELMo of a task's model of AllenNLP as a folder for the Hub: its biLM and the scalar mixes that it learned.
    A projection of its vectors (AllenNLP's `projection_dim`) is left behind, with a warning.

    Args:
        source: the `model.tar.gz`, or its folder unpacked.
        out: the folder to write; it must not exist.
        options, use: as in [`read_archive`].
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the tokenizer splits text, an argument of [`ElmoTokenizer`].

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` exists.
        FileNotFoundError, ValueError: as [`read_archive`], or an archive is not safe to open.
    """
    require_dtype(dtype)
    require_absent(Path(out))
    with opened(source, lambda name: name in (CONFIG, WEIGHTS) or _is_options(name)) as folder:
        found = read_archive(folder, options, use)
        told = {"scripts": found.scripts} if found.scripts else {}
        tokenizer = ElmoTokenizer(word_splitting=word_splitting, max_word_length=found.config.max_word_length, **told)
        model = model_of(found.config, found.arrays, dtype)
        how = {"source_format": "the archive of a task's model of AllenNLP", "scalar_mixes": found.mixes}
        how["left_behind"] = found.left_behind
        written = write_checkpoint(out, model, tokenizer, [*packed(source), *found.files], **how)
    if found.left_behind:
        tensors = ", ".join(f"{name} {shape}" for name, shape in found.left_behind.items())
        logger.warning(
            f"{source}: left behind is what projected ELMo's vectors in the task (projection_dim), {tensors}. "
            f"The checkpoint gives them as they were before, with {found.config.hidden_size} numbers."
        )
    return written
