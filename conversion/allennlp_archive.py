"""
Reads the tensors of AllenNLP's PyTorch modules (ELMoForManyLangs uses these modules, too), and the ELMo in a model that
AllenNLP trained for a task (`model.tar.gz`): the biLM with the weights after this training, and the learned mixes.

The rest of a task's model is not converted. If the task's model projects ELMo's vectors (`projection_dim`), this
projection is not converted either, but the conversion record, the model card and a warning name it.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers.utils import logging

from hf_elmo.configuration_elmo import ElmoConfig

from .allennlp import Arrays, Dataset, Row, Transform, one_to_one, read_options, read_rows
from .checkpoint import SCALAR_MIX, Source
from .files import find_files, read_json
from .published import ALLENNLP, PUBLISHED

logger = logging.get_logger(f"transformers.{__name__}")


class Names(NamedTuple):
    """Prefixes of tensor names; those of convolutions, highway layers and the projection follow `token_embedder`."""

    token_embedder: str
    convolution: str
    highways: str
    projection: str
    lstm: str


def split_highway(stacked: np.ndarray) -> Arrays:
    """[2 * filters, ...] -> (carry, transform), two halves. AllenNLP stores the transform and the gate of the carried
    input. `carry` in this package, as in bilm-tf, is the gate of the transform, so it has the opposite sign."""
    transform, gate = np.split(stacked, 2)
    return -gate, transform


HIGHWAY = Transform(split_highway)


def module_rows(config: ElmoConfig, names: Names) -> list[Row]:
    """The rows of all tensors except the embeddings of characters and words, which differ between the formats.
    `config` has both projections, as AllenNLP's modules always do."""
    filters, cell, size = config.num_filters, config.cell_size, config.projection_size
    rows, embedder, inputs = [], names.token_embedder, filters + (config.word_embedding_size or 0)
    tensors = {f"{embedder}{names.projection}": ("char_encoder.projection", (size, inputs))}
    for i, (width, num_filters) in enumerate(config.char_filters):
        shape = num_filters, config.char_embedding_size, width
        tensors[f"{embedder}{names.convolution}{i}"] = f"char_encoder.convolutions.{i}", shape
    for name, (target, shape) in tensors.items():
        rows.append(one_to_one(f"{name}.weight", shape, f"{target}.weight"))
        rows.append(one_to_one(f"{name}.bias", shape[:1], f"{target}.bias"))
    for i in range(config.num_highway_layers):
        target = f"char_encoder.highways.{i}"
        for part, shape in (("weight", (2 * filters, filters)), ("bias", (2 * filters,))):
            dataset = Dataset(f"{embedder}{names.highways}{i}.{part}", shape)
            rows.append(Row((dataset,), (f"{target}.carry.{part}", f"{target}.transform.{part}"), HIGHWAY))
    parts = {
        "input_linearity.weight": ((4 * cell, size), "weight_ih"),
        "state_linearity.weight": ((4 * cell, size), "weight_hh"),
        "state_linearity.bias": ((4 * cell,), "bias"),
        "state_projection.weight": ((size, cell), "weight_hr"),
    }
    for direction, layer in itertools.product(("forward", "backward"), range(config.num_hidden_layers)):
        name, target = f"{names.lstm}{direction}_layer_{layer}", f"bilm.{direction}_layers.{layer}"
        rows += [one_to_one(f"{name}.{part}", shape, f"{target}.{to}") for part, (shape, to) in parts.items()]
    return rows


def read_pickle(path: Path) -> dict[str, np.ndarray]:
    """The tensors, by name, of a file written by `torch.save`. A pickle with other objects is rejected, and its code
    does not run."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: (tensor.float() if tensor.is_floating_point() else tensor).numpy() for name, tensor in state.items()}


NAMES = Names("_token_embedder.", "char_conv_", "_highways._layers.", "_projection", "_elmo_lstm.")
CHARACTERS = "_token_embedder._char_embedding_weights"
USE = re.compile(rf"(.*?)_elmo_lstm\.{re.escape(CHARACTERS)}")
# Tensors of an ELMo that are not weights: the characters of the boundaries, and cached vectors of words.
DERIVED = re.compile(r"_(beginning|end)_of_sentence_characters$|^_word_embedding\.weight$")
# A part of a task's configuration that has one of these types or keys describes an ELMo. An embedder's type may be a
# class name with its package. Since AllenNLP 1.0 the default files of an embedder are the files of "original".
EMBEDDERS = ("elmo_token_embedder", "ElmoTokenEmbedder")
ELMO_TYPES = (*EMBEDDERS, "elmo", "Elmo")
ELMO_KEYS = {"options_file", "options_files", "num_output_representations"}  # the second is of several languages


def bilm_arrays(config: ElmoConfig, state: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """[`read_rows`] of the tensors of AllenNLP's modules by name (without the prefix `_elmo_lstm.`), among which those
    that are not weights are ignored."""
    shape = (config.char_vocab_size, config.char_embedding_size)
    rows = [one_to_one(CHARACTERS, shape, "char_encoder.embedding.weight"), *module_rows(config, NAMES)]
    return read_rows(rows, {name: array for name, array in state.items() if not DERIVED.search(name)}, where)


class Use(NamedTuple):
    """A module of the task's model that is an ELMo: the prefix of its tensors, its biLM, and the scalars `[layers]` and
    gamma `[1]` of each of its scalar mixes."""

    prefix: str
    bilm: dict[str, np.ndarray]
    mixes: list[tuple[np.ndarray, np.ndarray]]


def read_archive(folder: Path, options: str | Path | None = None, use: str | None = None) -> Source:
    """
    The ELMo in a task's model.

    Args:
        folder: a folder with `config.json` and `weights.th`.
        options: the ELMo's `options.json`; by default the options file in the folder. If there is none and the
            configuration names a published model of AllenNLP, its options are used, with sizes from the tensors.
        use: the prefix of the tensors of the ELMo to convert, if the model has several ELMos that differ.
    """
    weights = folder / "weights.th"
    settings = read_json(folder / "config.json")
    state = read_pickle(weights)
    uses = list(_uses(state))
    names = [one.prefix for one in uses]
    if not names:
        raise ValueError(
            f"{weights} has no ELMo. Other language models of AllenNLP (language_model, bidirectional_lm), which it "
            "trained in PyTorch, have other layers and cannot be converted."
        )
    uses = [one for one in uses if use is None or one.prefix.rstrip(".") == use.rstrip(".")]
    if not uses:
        raise ValueError(f"{weights} has no ELMo {use}; its ELMos are {names}.")
    bilm, parts = uses[0].bilm, list(_parts(settings.get("model")))
    same = (one.bilm.keys() == bilm.keys() and all(np.array_equal(one.bilm[n], bilm[n]) for n in bilm) for one in uses)
    if not all(same):
        raise ValueError(f"{weights} has several different ELMos: {names}. Choose one with use=NAME.")
    fields, files = _fields(folder, parts, bilm, options)
    fields |= {"char_vocab_size": len(bilm[CHARACTERS]), "char_projection": True, "cell_projection": True}
    mixes = [mix for one in uses for mix in one.mixes]
    config = ElmoConfig(**fields, num_scalar_mixes=max(1, len(mixes)), scalar_mix_layer_norm=_layer_norm(parts))
    arrays = bilm_arrays(config, bilm, str(weights))
    # An embedder for several languages multiplies the mix of each by a matrix of its own.
    aligning = re.sub(r"elmo_(\w+)\.$", r"aligning_\1.weight", uses[0].prefix)
    if aligning in state:
        config.scalar_mix_alignment, arrays["scalar_mix.alignment"] = True, state[aligning]
    if mixes:
        scalars, gammas = zip(*mixes, strict=True)
        arrays |= {SCALAR_MIX[0]: np.stack(scalars), SCALAR_MIX[1]: np.concatenate(gammas)}
    left_behind = {name: shape for one in uses for name, shape in _projection(state, one, config.hidden_size).items()}
    if left_behind:
        logger.warning(
            f"The task projects ELMo's vectors with {left_behind}, which are not converted: the checkpoint gives the "
            f"vectors before that projection, of size {config.hidden_size}."
        )
    names = [f"{one.prefix}scalar_mix_{number}" for one in uses for number in range(len(one.mixes))]
    files, kind = [folder / "config.json", weights, *files], "the archive of a task's model of AllenNLP"
    return Source(kind, config, arrays, files, scalar_mixes=names, left_behind=left_behind)


def _uses(state: Mapping[str, np.ndarray]) -> Iterator[Use]:
    def below(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}

    for prefix in [match[1] for name in state if (match := USE.fullmatch(name))]:
        bilm = {name: array for name, array in below(f"{prefix}_elmo_lstm.").items() if not DERIVED.search(name)}
        mix, mixes = below(f"{prefix}scalar_mix_"), []
        for number in range(len({name.partition(".")[0] for name in mix})):
            layers = sum(name.startswith(f"{number}.scalar_parameters.") for name in mix)
            scalars = np.concatenate([mix[f"{number}.scalar_parameters.{layer}"] for layer in range(layers)])
            mixes.append((scalars, mix[f"{number}.gamma"]))
        yield Use(prefix, bilm, mixes)


def _projection(state: Mapping[str, np.ndarray], use: Use, size: int) -> dict[str, list[int]]:
    """Names and shapes of the weights with which an embedder projects ELMo's vectors, if there is a projection."""
    if not use.prefix.endswith("._elmo."):  # outside of an embedder, `_projection` may be any other layer
        return {}
    names = [f"{use.prefix.removesuffix('_elmo.')}_projection.{part}" for part in ("weight", "bias")]
    shapes = {name: list(state[name].shape) for name in names if name in state}
    return shapes if len(shapes) == 2 and shapes[names[0]][1:] == [size] else {}


def _parts(settings: Any) -> Iterator[dict[str, Any]]:
    """The parts of a task's configuration that describe ELMos."""
    if isinstance(settings, str) and _type({"type": settings}) in EMBEDDERS:
        yield {"type": settings}  # a type without settings
    elif isinstance(settings, dict):
        if _type(settings) in ELMO_TYPES or not ELMO_KEYS.isdisjoint(settings):
            yield settings
        settings = [value for key, value in settings.items() if key != "type"]
    if isinstance(settings, list):
        for value in settings:
            yield from _parts(value)


def _type(settings: Mapping[str, Any]) -> str:
    """The registered name or the class name, without the package."""
    return str(settings.get("type")).rpartition(".")[2]


def _layer_norm(parts: list[dict[str, Any]]) -> bool:
    """Whether the ELMos normalize the layers before mixing: `do_layer_norm`, which only the configuration has."""
    if not parts:
        logger.warning(
            "The task's config.json describes no ELMo, so do_layer_norm is assumed to be false. If it was true, set "
            "scalar_mix_layer_norm to true in the checkpoint's config.json."
        )
    values = {part.get("do_layer_norm") in (True, "true") for part in parts}  # null and "None" are false
    if len(values) > 1:
        raise ValueError("do_layer_norm differs between the ELMos of the task: set it to one value in config.json.")
    return True in values


def _fields(
    folder: Path, parts: list[dict[str, Any]], bilm: Mapping[str, np.ndarray], given: str | Path | None
) -> tuple[dict[str, Any], list[Path]]:
    """The fields of the ELMo's configuration that its options determine, and the files that hold the options."""
    inside = find_files(folder, "**/*options_file*") + find_files(folder, "**/options.json")
    files = inside if given is None else [Path(given)]
    contents = [read_options(file) for file in files]
    if any(content != contents[0] for content in contents):
        raise ValueError(f"{folder} has options files that differ: {files}. Choose one with elmo_options.")
    if contents:
        return contents[0], files
    default = {"options_file": PUBLISHED["original"].files[0]}
    settings = [(default if _type(part) in EMBEDDERS else {}) | part for part in parts]
    named = {PurePosixPath(str(one["options_file"])).name for one in settings if "options_file" in one}
    # Many other models also name their file "options.json".
    of_allennlp = {PurePosixPath(model.files[0]).name for model in PUBLISHED.values() if model.hosts == ALLENNLP}
    if not named or not named <= of_allennlp - {"options.json"}:
        raise FileNotFoundError(
            f"the archive does not hold the ELMo's options (config.json names {sorted(named)}): give the file as "
            "elmo_options."
        )
    return _fields_of_shapes(bilm), []


def _fields_of_shapes(bilm: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The sizes of the tensors; all other fields are those of the published models, ElmoConfig's defaults."""

    def shapes(pattern: str) -> list[tuple[int, ...]]:
        return [array.shape for name, array in bilm.items() if re.fullmatch(pattern, name)]

    projections = shapes(r"_elmo_lstm\.forward_layer_\d+\.state_projection\.weight")
    return {
        "char_embedding_size": bilm[CHARACTERS].shape[1],
        "char_filters": [[width, number] for number, _, width in shapes(r"_token_embedder\.char_conv_\d+\.weight")],
        "num_highway_layers": len(shapes(r"_token_embedder\._highways\._layers\.\d+\.weight")),
        "num_hidden_layers": len(projections),
        "cell_size": projections[0][1],
        "hidden_size": 2 * projections[0][0],
    }
