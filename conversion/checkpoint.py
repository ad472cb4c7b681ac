"""Writes a model as a checkpoint folder: as a whole or not at all, and compared with its source."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import ModelCard

from hf_elmo import names
from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.model_cards import make_card
from hf_elmo.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from hf_elmo.modeling_pretraining_elmo import ElmoForPreTraining
from hf_elmo.reading.files import local_path, open_file
from hf_elmo.tokenization_elmo import CharacterVocabulary, ElmoTokenizer

NamedArrays = dict[str, np.ndarray]
# Tensors of an ElmoModel that most formats do not store; without them the scalar mix is the plain average.
SCALAR_MIX = ("scalar_mix.scalars", "scalar_mix.gamma")


@dataclass
class Source:
    """A model read from the files of another format."""

    format: str  # its name, for the model card and the record
    config: ElmoConfig
    # Float32 arrays by the state-dict keys of an `ElmoModel`, and of the head of the class that `config.architectures`
    # names. The scalar mix may be absent; with `lm_head.weight` and `lm_head.bias` it is an `ElmoForPreTraining`.
    arrays: NamedArrays
    files: list[Path]  # those that were read
    word_splitting: str = "whitespace"
    characters: CharacterVocabulary | None = None  # of a model that reads Unicode characters, with its words
    # A file of the words of the softmax or of those that are embedded; without either, kept as `softmax_vocab.txt`.
    vocabulary: Path | None = None
    scalar_mixes: list[str] = field(default_factory=list)  # their names in the source
    # Names and shapes of tensors of the source that are not converted.
    left_behind: dict[str, list[int]] = field(default_factory=dict)
    tokenizer: dict[str, Any] = field(default_factory=dict)  # further arguments of the tokenizer of a head
    words: list[str] | None = None  # that have a vector beside ELMo


def new_model(config: ElmoConfig) -> ElmoPreTrainedModel:
    """A model of random weights, of the class in `architectures`; by default what its `vocab_size` tells."""
    default = "ElmoModel" if config.vocab_size is None else "ElmoForPreTraining"
    return getattr(names, (config.architectures or [default])[0])(config)


def model_of(config: ElmoConfig, arrays: NamedArrays, dtype: str = "float32") -> Any:
    """The model with the arrays of a [`Source`]; ValueError if they are not those of its class, or if one is not
    finite, or too large for `dtype`."""
    model = new_model(config)
    prefix = "" if isinstance(model, ElmoModel) else "elmo."
    tensors = {key: tensor for key, tensor in model.state_dict().items() if key.endswith((".scalars", ".gamma"))}
    for key, array in arrays.items():
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype))
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{key} has values that are NaN or infinite, or too large for {dtype}.")
        tensors[key if key.startswith(("lm_head.", "classifier.", "qa_outputs.")) else prefix + key] = tensor
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).split("\n\t")[1]
        how = "of an archive with such a head, convert the biLM alone with bilm_only=True"
        raise ValueError(f"{type(model).__name__} cannot have these tensors: {first} ({how})") from error
    return model.to(getattr(torch, dtype)).eval()


def add_alignment(source: Source, path: Path, layer: int | None) -> None:
    """Adds the matrix W `[2P, 2P]` in a file, `.npy` or an array or tensor of `torch.save`, to a model (Schuster et al.
    2019): its mix x becomes W x. The mix is the given layer; by default the source's own, or else the mean of all
    layers. Raises UnpicklingError if the file holds other objects."""
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


def write_checkpoint(out: Path, source: Source, dtype: str, word_splitting: str | None, page: ModelCard | None) -> Path:
    """Writes a model as the folder `out`, with the arguments of [`convert`]; the model card includes the page."""
    model = model_of(source.config, source.arrays, dtype)
    splitting = word_splitting or source.word_splitting
    embeds_words = source.config.word_vocab_size is not None and source.characters is None
    has_words = embeds_words or isinstance(model, ElmoForPreTraining)
    further = {"embeds_words": embeds_words, "vocab_file": str(source.vocabulary) if has_words else None}
    tokenizer = ElmoTokenizer(splitting, source.config.max_word_length, **further, **source.tokenizer)
    tokenizer.words = source.words
    tokenizer.character_vocab = source.characters
    digests = []
    for file in source.files:
        with file.open("rb") as opened:
            digests.append((file.name, hashlib.file_digest(opened, "sha256").hexdigest()))  # names without folders
    record = {
        "converted_with": f"hf_elmo {version('hf-elmo')}",
        "source_format": source.format,
        "sources": [{"file": name, "sha256": digest} for name, digest in digests],
        "scalar_mixes": source.scalar_mixes,
        "left_behind": source.left_behind,
        "dtype": dtype,
        "compared": f"read back, every tensor equals its source's value in {dtype}",
    }
    fields = record | {"sources": digests, "config": model.config, "parameters": model.num_parameters()}
    fields |= {"word_splitting": splitting, "learned_mix": bool(np.any(source.arrays.get(SCALAR_MIX[0], 0)))}
    record = {name: value for name, value in record.items() if value}
    with new_path(out) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        content = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        (folder / "conversion.json").write_text(content, encoding="utf-8")
        if source.vocabulary is not None and not has_words:
            with open_file(source.vocabulary) as words:
                (folder / "softmax_vocab.txt").write_bytes(words.read())
        make_card(out.resolve().name, page, **fields).save(folder / "README.md")
        written = type(model).from_pretrained(folder, dtype="auto").state_dict()
        torch.testing.assert_close(written, dict(model.state_dict()), rtol=0, atol=0)
    return out


def require_absent(out: Path) -> None:
    """Raises FileExistsError if `out` exists, and ValueError if it is an address."""
    local_path(out)
    if os.path.lexists(out):
        raise FileExistsError(f"{out} exists: remove it, or choose another name.")


@contextmanager
def new_path(out: Path) -> Iterator[Path]:
    """The path of a file or folder to write, which becomes `out` at the end of the block. If the block raises an
    exception, it is removed; what a killed run left is removed first. Raises FileExistsError if `out` exists."""
    require_absent(out)
    folder = out.with_name(f".{out.name}.partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder / out.name
        os.replace(folder / out.name, out)
    finally:
        shutil.rmtree(folder)
