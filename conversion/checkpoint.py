"""Checkpoint folders for the Hub: written completely or not at all, and compared with their source."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import ModelCard
from transformers import PreTrainedModel

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.model_cards import make_card, write_card
from hf_elmo.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from hf_elmo.shipped import load_checkpoint
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .allennlp import LEFT_OUT, read_weights, write_weights
from .download import SHA256, download_published, published_model, sha256
from .hdf5 import import_h5py
from .output import new_folder, require_absent, require_equal
from .published import SCRIPTS, default_word_splitting, page, require_sizes
from .record import make_record, write_record
from .vocabularies import copy_vocabulary, scripts_in

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(options: str | Path, weights: str | Path, dtype: str = "float32") -> ElmoModel:
    """
    An ElmoModel in memory from AllenNLP's two files.

    Args:
        options: the `options.json`.
        weights: the `weights.hdf5`.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: a file is not what it should be (see `allennlp.read_weights`), or a weight is too large for `dtype`.
        ImportError: h5py is not installed.
    """
    require_dtype(dtype)
    return model_of(*read_weights(options, weights), dtype)


def model_of(config: ElmoConfig, arrays: Mapping[str, np.ndarray], dtype: str = "float32") -> ElmoModel:
    """
    The model of a configuration and of arrays by state-dict key; a scalar mix that is not among them is the mean.

    Raises:
        ValueError: a weight is too large for `dtype`.
        RuntimeError: an array is missing, or is none of the model's.
    """
    model = ElmoModel(config)
    start = {key: tensor for key, tensor in model.state_dict().items() if key in LEFT_OUT}
    tensors = {key: _cast(key, array, dtype) for key, array in arrays.items()}
    model.load_state_dict(start | tensors, strict=True)
    return model.to(DTYPES[dtype]).eval()


def convert(
    options: str | Path,
    weights: str | Path,
    out: str | Path,
    *,
    dtype: str = "float32",
    word_splitting: str = "lm1b",
    about: ModelCard | None = None,
    vocabulary: str | Path | None = None,
    digest: str | None = None,
    archive: str | Path | None = None,
    published: str | None = None,
) -> Path:
    """
    Write AllenNLP's model as a folder for the Hub: safetensors, configuration, tokenizer, model card, and the code with
    which it loads where hf_elmo is not installed. The folder is read back and compared with the source, tensor by
    tensor; `conversion.json` and the metadata of the safetensors have the names and SHA-256 of the source's files.

    Args:
        options: the `options.json`.
        weights: the `weights.hdf5`.
        out: the folder to write; it must not exist. It appears once everything is written and compared.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the checkpoint's tokenizer splits text, an argument of [`ElmoTokenizer`].
        about: a page about the model, whose text and metadata go into the model card.
        vocabulary: the words that the language models were trained with, also `.gz`. The softmax over them is not in
            these files; they are copied as `softmax_vocab.txt`, to train another one. The tokenizer warns of words in
            scripts that they have none of.
        digest: the SHA-256 that the weights file must have, in hexadecimal digits. Nothing else tells whether a bit of
            a weight has flipped; without it the card says so.
        archive: that the files were taken from, for the record.
        published: the name of the published model that they are of: they must have its sizes, and the digest of its
            weights where that is known.

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` exists.
        FileNotFoundError, ValueError, ImportError: as [`load`]; the vocabulary is not one of bilm-tf.
    """
    out = Path(out)
    require_absent(out)
    digest = digest or (SHA256.get(published_model(published).weights) if published else None)
    require_digest(Path(weights), digest)
    model = load(options, weights, dtype)
    require_sizes(model.config, published)
    scripts = {*SCRIPTS.get(published or "", ()), *(() if vocabulary is None else scripts_in(vocabulary))}
    told = {"scripts": sorted(scripts)} if scripts else {}
    tokenizer = ElmoTokenizer(word_splitting=word_splitting, max_word_length=model.config.max_word_length, **told)
    sources = [file for file in (archive, options, weights, vocabulary) if file is not None]
    with new_folder(out) as folder:
        write_files(folder, out, model, tokenizer, sources, about, compared=digest is not None)
        if vocabulary is not None:
            copy_vocabulary(vocabulary, folder / "softmax_vocab.txt")
        _compare_with_source(folder, options, weights, dtype)
    return out


def write_checkpoint(
    out: str | Path,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sources: Iterable[str | Path],
    source_format: str,
    about: ModelCard | None = None,
    scalar_mixes: Sequence[str] = (),
    left_behind: Mapping[str, Sequence[int]] | None = None,
) -> Path:
    """
    Write a model and its tokenizer as [`convert`] does; read them back and compare them, tensor by tensor.

    Args:
        out: the folder to write; it must not exist.
        model: in the type that the folder gets.
        tokenizer: the one that spells words as the model reads them.
        sources: the files that they were made from; the model card has their names and SHA-256.
        source_format: the format that they are of, for the model card.
        about: a page about the model, for the model card.
        scalar_mixes: the names that its scalar mixes have in the source, for the record and the model card.
        left_behind: the names and shapes of tensors that projected its vectors in the source, for these two as well.

    Raises:
        FileExistsError: `out` exists.
    """
    out = Path(out)
    with new_folder(out) as folder:
        beside = {"scalar_mixes": scalar_mixes, "left_behind": left_behind}
        write_files(folder, out, model, tokenizer, sources, about, source_format, **beside)
        written = ElmoModel.from_pretrained(folder, dtype="auto")
        for field in inspect.get_annotations(ElmoConfig):
            require_equal(f"config.{field}", getattr(model.config, field), getattr(written.config, field))
        source, state = model.state_dict(), written.state_dict()
        for key in source.keys() | state.keys():
            require_equal(key, source.get(key), state.get(key))
        read = ElmoTokenizer.from_pretrained(folder)
        for field in ("word_splitting", "max_word_length", "char_units"):
            require_equal(f"the tokenizer's {field}", getattr(tokenizer, field), getattr(read, field))
        if tokenizer.character_vocab is not None:
            for field in ("characters", "words"):
                entries = (getattr(one.character_vocab, field) for one in (tokenizer, read))
                require_equal(f"the tokenizer's {field}", *entries)
    return out


def write_files(
    folder: Path,
    out: Path,
    model: ElmoPreTrainedModel,
    tokenizer: ElmoTokenizer,
    sources: Iterable[str | Path],
    about: ModelCard | None = None,
    source_format: str = "AllenNLP's format",
    compared: bool = False,
    scalar_mixes: Sequence[str] = (),
    left_behind: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """
    Write all of a converted checkpoint's files into `folder`, before they are compared with their source.

    Args:
        folder: where to write.
        out: the name that the folder gets, which the card has for its title.
        model, tokenizer, sources, source_format, about, scalar_mixes, left_behind: as in [`write_checkpoint`].
        compared: whether the digest of the weights was compared with a known one.
    """
    dtype = str(model.dtype).removeprefix("torch.")
    record = make_record(sources, source_format, dtype, scalar_mixes, left_behind)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_record(folder, record)
    state = model.base_model.state_dict()
    card = make_card(
        out.resolve().name,
        about,
        config=model.config,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        dtype=dtype,
        sources=[(source["file"], source["sha256"]) for source in record["sources"]],
        source_format=source_format,
        compared=compared,
        word_splitting=tokenizer.word_splitting,
        scalar_mixes=scalar_mixes,
        left_behind=left_behind,
        learned_mix=any(bool(state[key].any()) for key in LEFT_OUT[:1] if key in state),
    )
    write_card(folder, card)


def convert_published(
    model: str,
    out: str | Path,
    *,
    files: Sequence[str | Path] = (),
    dtype: str = "float32",
    word_splitting: str | None = None,
    cache_dir: str | Path | None = None,
    digest: str | None = None,
) -> Path:
    """
    Download a published model in AllenNLP's format and convert it.

    Args:
        model: `"small"`, `"medium"`, `"original"`, `"original-5.5b"`, `"portuguese"`, `"pubmed"` or `"seqvec"`.
        out: the folder to write; it must not exist.
        files: the options and the weights of a copy, which are converted instead of a download.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the checkpoint's tokenizer splits text, an argument of [`ElmoTokenizer`]; by default
            `"lm1b"`, and for `"seqvec"` `"characters"`: each residue is a word.
        cache_dir: where the downloaded files are kept, in a folder of the model's name; by default huggingface_hub's
            assets folder.
        digest: as in [`convert`]; by default the known one of the model, where there is one.

    Returns:
        `out`.

    Raises:
        ValueError: there is no such model, or what was downloaded or given is not what it should be.
        ConnectionError: the files cannot be downloaded.
        FileExistsError, ImportError: as [`convert`].
    """
    published_model(model)  # everything that can fail before the download
    import_h5py()
    require_dtype(dtype)
    require_absent(Path(out))
    word_splitting = word_splitting or default_word_splitting(model)
    options, weights = files or download_published(model, cache_dir)
    how = {"about": page(model), "published": model, "digest": digest}
    return convert(options, weights, out, dtype=dtype, word_splitting=word_splitting, **how)


def export(model: str | Path | PreTrainedModel, out: str | Path) -> Path:
    """
    Write the biLM of a model as AllenNLP's `options.json` and `weights.hdf5`, which AllenNLP, bilm-tf and simple_elmo
    read. Converted back, it gives the same tensors bit by bit (a model in half precision: the same values, as float32).

    The scalar mix, task heads and the softmax of the language model are not part of the format and are left out.
    AllenNLP itself refuses a model without skip connections; bilm-tf reads it.

    Args:
        model: an ElmoModel or a model with a head over one, or the folder or Hub id of either.
        out: the folder to write; it must not exist.

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` exists.
        ValueError: the model is not an ELMo, or has something that the format cannot store, such as other characters.
        ImportError: h5py is not installed.
    """
    out = Path(out)
    require_absent(out)
    if not isinstance(model, PreTrainedModel):
        model = load_checkpoint(ElmoModel, model)
    if model.config.model_type != ElmoConfig.model_type:
        raise ValueError(f"model is a {type(model).__name__}, but only ELMo models have AllenNLP's format.")
    state = model.base_model.state_dict()
    arrays = {key: tensor.float().cpu().numpy() for key, tensor in state.items() if key not in LEFT_OUT}
    with new_folder(out) as folder:
        write_weights(folder, model.config, arrays)
        _, written = read_weights(folder / "options.json", folder / "weights.hdf5")
        for key in arrays.keys() | written.keys():
            require_equal(key, arrays.get(key), written.get(key))
    return out


def require_dtype(dtype: str) -> None:
    """Raises ValueError where weights cannot be stored in `dtype`."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, but must be one of {', '.join(DTYPES)}.")


def _cast(key: str, array: np.ndarray, dtype: str) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array)).to(DTYPES[dtype])
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{key} has a value of {np.abs(array).max():g}, too large for {dtype}: use bfloat16, float32.")
    return tensor


def require_digest(weights: Path, digest: str | None) -> None:
    """Raises ValueError where a file has not the SHA-256 that is asked for."""
    if digest is not None and (found := sha256(weights)) != digest.lower():
        raise ValueError(f"{weights} has the SHA-256 {found}, not {digest}: it is damaged, download or copy it again.")


def _compare_with_source(folder: Path, options: str | Path, weights: str | Path, dtype: str) -> None:
    """Reload a checkpoint and compare it with the files it was made from, read again."""
    config, arrays = read_weights(options, weights)
    model = ElmoModel.from_pretrained(folder, dtype="auto")
    for field in inspect.get_annotations(ElmoConfig):
        require_equal(f"config.{field}", getattr(config, field), getattr(model.config, field))
    state = {key: tensor for key, tensor in model.state_dict().items() if key not in LEFT_OUT}
    for key in state.keys() | arrays.keys():
        source = _cast(key, arrays[key], dtype) if key in arrays else None
        require_equal(key, source, state.get(key))
