"""Reads AllenNLP's PyTorch modules, which ELMoForManyLangs uses, too, and a model that AllenNLP trained for a task
(`model.tar.gz`): with its head, or its biLM and mixes alone; then record and model card name what is left behind."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.modeling_elmo import SUFFIXES

from .allennlp import COPY, Entry, read_options, read_sizes, read_tensors
from .allennlp_tasks import read_head
from .checkpoint import NamedArrays, Source
from .files import find_files, read_json
from .published import PUBLISHED

logger = logging.get_logger(f"transformers.{__name__}")

# [2 * filters, ...] <-> (carry, transform), two halves. AllenNLP stores the transform and the gate of the carried
# input. `carry` in this package, as in bilm-tf, is the gate of the transform, so it has the opposite sign.
HIGHWAY = (
    lambda stacked: (-np.split(stacked, 2)[1], np.split(stacked, 2)[0]),
    lambda carry, transform: (np.concatenate([transform, -carry]),),
)


def module_table(convolution: str, highways: str, projection: str, lstm: str) -> list[Entry]:
    """The entries of all tensors of AllenNLP's modules, with these names, except embeddings, which differ."""
    entries = []
    for part in ("weight", "bias"):
        gates = [f"char_encoder.highways.{{i}}.{gate}.{part}" for gate in ("carry", "transform")]
        entries += [
            Entry([f"{convolution}{{i}}.{part}"], [f"char_encoder.convolutions.{{i}}.{part}"], COPY),
            Entry([f"{highways}._layers.{{i}}.{part}"], gates, HIGHWAY),
            Entry([f"{projection}.{part}"], [f"char_encoder.projection.{part}"], COPY),
        ]
    for direction, suffix in zip(("forward", "backward"), SUFFIXES, strict=True):
        cell = f"{lstm}.{direction}_layer_{{i}}"
        layer = "bilm.layers.{i}.lstm"
        parts = {"input_linearity.weight": "weight_ih", "state_linearity.weight": "weight_hh"}
        parts |= {"state_linearity.bias": "bias", "state_projection.weight": "weight_hr"}
        entries += [Entry([f"{cell}.{one}"], [f"{layer}.{ours}{suffix}"], COPY) for one, ours in parts.items()]
    return entries


def read_pickle(path: Path) -> NamedArrays:
    """The tensors by name in a file of `torch.save`. A pickle with other objects is rejected; its code does not run."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: (tensor.float() if tensor.is_floating_point() else tensor).numpy() for name, tensor in state.items()}


CHARACTERS = "_token_embedder._char_embedding_weights"
NAMES = ("_token_embedder.char_conv_", "_token_embedder._highways", "_token_embedder._projection", "_elmo_lstm")
TABLE = [Entry([CHARACTERS], ["char_encoder.embedding.weight"], COPY), *module_table(*NAMES)]
USE = re.compile(rf"(.*?)_elmo_lstm\.{re.escape(CHARACTERS)}")
# Tensors of an ELMo that are not weights: the characters of the boundaries, and cached vectors of words.
DERIVED = re.compile(r"_(beginning|end)_of_sentence_characters$|^_word_embedding\.weight$")
# A part of a task's configuration that has one of these types or keys describes an ELMo. An embedder's type may be a
# class name with its package. Since AllenNLP 1.0 the default files of an embedder are those of `ORIGINAL`.
EMBEDDERS = ("elmo_token_embedder", "ElmoTokenEmbedder")
ORIGINAL = PUBLISHED["original"]
ELMO_KEYS = {"options_file", "options_files", "num_output_representations"}  # the second is of several languages


def bilm_arrays(state: NamedArrays, where: str) -> NamedArrays:
    """[`read_tensors`] of AllenNLP's tensors by name, without the prefix `_elmo_lstm.`; ignores what is no weight."""
    weights = {name: array for name, array in state.items() if not DERIVED.search(name)}
    return read_tensors(TABLE, weights, where)


def read_archive(
    folder: Path, options: str | Path | None = None, use: str | None = None, bilm_only: bool = False
) -> Source:
    """A task's model, a folder with `config.json` and `weights.th`; with `bilm_only` or `use` that of [`read_elmo`]."""
    settings = read_json(folder / "config.json")
    source, left = read_elmo(folder, settings, read_pickle(folder / "weights.th"), options, use)
    if bilm_only or use is not None:
        source.left_behind = {name: list(array.shape) for name, array in left.items()}
        return source
    return read_head(folder, settings, left, source)


def read_elmo(
    folder: Path, settings: dict[str, Any], state: NamedArrays, options: str | Path | None, use: str | None
) -> tuple[Source, NamedArrays]:
    """The ELMo in a task's model, from the content of its two files, and the tensors that are not the ELMo's; of
    several that differ, the one whose tensors have the prefix `use`. `options` is the ELMo's `options.json`, by default
    that in the folder, or else that of the published model of AllenNLP which the configuration names."""
    weights = folder / "weights.th"
    all_prefixes = [match[1] for name in state if (match := USE.fullmatch(name))]
    prefixes = [prefix for prefix in all_prefixes if use is None or prefix.rstrip(".") == use.rstrip(".")]
    if not prefixes:
        raise ValueError(f"{weights} has no ELMo {use or ''}; its ELMos are {all_prefixes}.")
    own = [f"{prefix}_elmo_lstm." for prefix in prefixes]
    bilm, *others = ({name.removeprefix(at): x for name, x in state.items() if name.startswith(at)} for at in own)
    for other in others:
        if other.keys() != bilm.keys() or not all(np.array_equal(other[name], bilm[name]) for name in bilm):
            raise ValueError(f"{weights} has several different ELMos: {prefixes}. Choose one with use=NAME.")
    parts = list(find_elmos(settings.get("model")))
    arrays = bilm_arrays(bilm, str(weights))
    fields, files = _fields(folder, parts, arrays, options)
    fields |= {"char_vocab_size": len(bilm[CHARACTERS]), "char_projection": True, "cell_projection": True}
    of_mixes = [name for prefix in prefixes for name in state if name.startswith(f"{prefix}scalar_mix_")]
    mixes = [name.removesuffix(".gamma") for name in of_mixes if name.endswith(".gamma")]
    if not parts:
        logger.warning("config.json describes no ELMo: if do_layer_norm was true, set the field scalar_mix_layer_norm.")
    layer_norm = {part.get("do_layer_norm") in (True, "true") for part in parts}  # null and "None" are false
    if len(layer_norm) > 1:
        raise ValueError("do_layer_norm differs between the ELMos of the task: set it to one value in config.json.")
    config = ElmoConfig(**fields, num_scalar_mixes=max(1, len(mixes)), scalar_mix_layer_norm=True in layer_norm)
    # An embedder for several languages multiplies the mix of each by a matrix of its own.
    aligning = re.sub(r"elmo_(\w+)\.$", r"aligning_\1.weight", prefixes[0])
    if aligning in state:
        config.scalar_mix_alignment = True
        arrays["scalar_mix.alignment"] = state[aligning]
    layers = range(config.num_hidden_layers + 1)
    for number, mix in enumerate(mixes):
        ours = f"further_mixes.{number - 1}" if number else "scalar_mix"
        arrays[f"{ours}.scalars"] = np.concatenate([state[f"{mix}.scalar_parameters.{layer}"] for layer in layers])
        arrays[f"{ours}.gamma"] = state[f"{mix}.gamma"]
    taken = (*own, *(f"{mix}." for mix in mixes), aligning)
    left = {name: array for name, array in state.items() if not name.startswith(taken)}
    files = [folder / "config.json", weights, *files]
    # Nearer than whitespace to spaCy, by which AllenNLP's Predictors split texts.
    return Source("the archive of a task's model of AllenNLP", config, arrays, files, "lm1b", scalar_mixes=mixes), left


def find_elmos(settings: Any) -> Iterator[dict[str, Any]]:
    """The parts of a task's configuration that describe ELMos, with the options file of an embedder by default."""
    if isinstance(settings, str):  # a type without settings
        settings = {"type": settings}
    if isinstance(settings, dict):
        is_embedder = str(settings.get("type")).rpartition(".")[2] in EMBEDDERS
        if is_embedder or not ELMO_KEYS.isdisjoint(settings):
            yield ({"options_file": ORIGINAL.files[0]} if is_embedder else {}) | settings
        settings = [value for key, value in settings.items() if key != "type"]
    if isinstance(settings, list):
        for value in settings:
            yield from find_elmos(value)


def _fields(
    folder: Path, parts: list[dict[str, Any]], arrays: NamedArrays, given: str | Path | None
) -> tuple[dict[str, Any], list[Path]]:
    """The fields of the ELMo's configuration that its options determine, and the files that hold the options."""
    inside = find_files(folder, "**/*options_file*") + find_files(folder, "**/options.json")
    files = inside if given is None else [Path(given)]
    contents = [read_options(file) for file in files]
    if any(content != contents[0] for content in contents):
        raise ValueError(f"{folder} has options files that differ: {files}. Choose one with elmo_options.")
    if contents:
        return contents[0], files
    named = {PurePosixPath(str(part["options_file"])).name for part in parts if "options_file" in part}
    # Many other models also name their file "options.json".
    of_allennlp = {PurePosixPath(model.files[0]).name for model in PUBLISHED.values() if model.hosts == ORIGINAL.hosts}
    if not named or not named <= of_allennlp - {"options.json"}:
        raise FileNotFoundError(f"{folder} lacks the ELMo's options (its files: {sorted(named)}): give elmo_options.")
    return read_sizes(arrays), []
