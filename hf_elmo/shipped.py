"""Loading a checkpoint by its name, by default a small English model that ships with the package."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from huggingface_hub import constants, try_to_load_from_cache
from safetensors import SafetensorError
from transformers.utils import logging

from .configuration_elmo import ElmoConfig
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .out_of_memory import is_out_of_memory
from .tokenization_elmo import ElmoTokenizer

logger = logging.get_logger(f"transformers.{__name__}")

NAME = "elmo-compact-en"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
BAD_TEXT = (JSONDecodeError, UnicodeDecodeError)
TOO_LARGE = ("allocate memory", "size calculation overflowed")  # of errors that are none of torch's own for memory
CHECKPOINTS = Path(__file__).parent / "checkpoints"  # each in a folder of its name
FOLDER = CHECKPOINTS / NAME


def load_default(language_model: bool = False) -> tuple[ElmoModel, ElmoTokenizer]:
    """
    The model elmo-compact-en and its tokenizer, on the CPU and without network; its card is in the folder `FOLDER`.

    The weights are stored in float16 and computed with in float32.

    Args:
        language_model: with the softmax over words, as an `ElmoForPreTraining`: for perplexity, probabilities and
            substitutes.

    Raises:
        OSError: the package was installed without its checkpoint.
    """
    return load_model(language_model=language_model, device="cpu")


def load_model(
    name: str | os.PathLike | None = None,
    language_model: bool = False,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> tuple[ElmoModel, ElmoTokenizer]:
    """
    A model and its tokenizer.

    Args:
        name: a folder, the name of a model that ships (those in `CHECKPOINTS`) or one on the Hub; by default the
            model that ships as `FOLDER`.
        language_model: with the softmax over words, as an `ElmoForPreTraining`.
        dtype: of the weights; by default the one that the checkpoint names, float32 for those that ship.
        device: by default a GPU where there is one.

    Raises:
        OSError: there is no such checkpoint, or the package was installed without its own.
        ValueError: the folder is no checkpoint, and the message says what it is; or the checkpoint has no softmax.
    """
    model = load_weights(name, language_model, dtype, device)
    return model, load_tokenizer(model.name_or_path)


def load_tokenizer(name: str | os.PathLike) -> ElmoTokenizer:
    """The tokenizer of [`load_model`] without its model. Where its files are missing, a warning and the default one."""
    with named(name) as place:
        tokenizer = ElmoTokenizer.from_pretrained(place)
    file = "tokenizer_config.json"
    found = os.path.join(place, file) if os.path.isdir(place) else try_to_load_from_cache(place, file)
    if not (isinstance(found, str) and os.path.isfile(found)):
        logger.warning(
            f"{name} has no {file}: its texts are split as ElmoTokenizer() splits them ({tokenizer.word_splitting!r}), "
            "though the model may have read others. Save its own tokenizer there."
        )
    return tokenizer


def tokenizer_of(model: ElmoPreTrainedModel) -> ElmoTokenizer:
    """The tokenizer of the folder that a model was loaded from, or a new one."""
    if model.name_or_path:
        return load_tokenizer(model.name_or_path)
    return ElmoTokenizer(max_word_length=model.config.max_word_length)  # of bytes: another model's is refused


def load_weights(
    name: str | os.PathLike | None = None,
    language_model: bool = False,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> ElmoModel:
    """The model of [`load_model`] without its tokenizer."""
    if name is None:
        if not (FOLDER / "config.json").is_file():
            raise OSError(f"{FOLDER} holds no checkpoint, so this copy of hf_elmo is not whole: install it again.")
        name, dtype = FOLDER, dtype or torch.float32
    model_class = ElmoModel
    if language_model:
        from .modeling_pretraining_elmo import ElmoForPreTraining as model_class

        with named(name) as place:
            vocab_size = ElmoConfig.from_pretrained(place).vocab_size
        if vocab_size is None:
            raise _no_softmax(name)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return load_checkpoint(model_class, name, dtype=dtype or "auto").to(device)


def load_checkpoint(
    model_class: type[ElmoPreTrainedModel], name: str | os.PathLike, *, may_lack: tuple[str, ...] = (), **kwargs: Any
) -> ElmoPreTrainedModel:
    """
    `model_class.from_pretrained(name, **kwargs)` for a checkpoint that must be whole.

    Args:
        may_lack: prefixes of the names of tensors that may be missing, and are initialized.

    Raises:
        ValueError: a file is damaged, or lacks a tensor (transformers would initialize it and go on).
        OSError: there is no such checkpoint.
    """
    with named(name) as place:
        model, report = model_class.from_pretrained(place, output_loading_info=True, **kwargs)
    missing = sorted(key for key in report["missing_keys"] if not key.startswith(may_lack))
    if missing and all(key.startswith("lm_head.") for key in missing):
        raise _no_softmax(name)
    if missing:
        raise ValueError(f"{name} has no tensor {missing[0]!r} ({len(missing)} such): download or copy it again.")
    return model


def _no_softmax(name: str | os.PathLike) -> ValueError:
    return ValueError(
        f"{name} is an ELMo without its softmax over words, so it is no language model: take a checkpoint "
        "that hf-elmo pretrain wrote, or hf-elmo convert from a training's TensorFlow checkpoint (AllenNLP's and other "
        "files have none)."
    )


def located(name: str | os.PathLike) -> str:
    """The folder of a model that ships, for its name, unless a folder is called so; any other name as it is."""
    name = os.fspath(name)
    if not os.path.lexists(name) and HUB_NAME.fullmatch(name) and (CHECKPOINTS / name / "config.json").is_file():
        return str(CHECKPOINTS / name)
    return name


@contextmanager
def named(name: str | os.PathLike) -> Iterator[str]:
    """
    For a block that loads a checkpoint from the place that it is given, where the name is [`located`]. The block's
    errors name the folder that does not exist, is no checkpoint or has a damaged file, and say so where the Hub cannot
    be reached.

    Args:
        name: a folder, the name of a model that ships or one on the Hub.

    Raises:
        FileNotFoundError: it is a path, and there is no such folder.
        ValueError: it is a folder or a file, but no checkpoint, and the message says what it is; or a file of it is
            damaged, or of other sizes than asked for.
        MemoryError: it does not fit into memory.
        OSError: it is neither a folder nor a model on the Hub, or the Hub cannot be reached.
    """
    name = located(name)
    if os.path.lexists(name):
        _require_checkpoint(name)
    elif not HUB_NAME.fullmatch(name):
        raise FileNotFoundError(f"model {name!r} does not exist: give the folder of a checkpoint or a name on the Hub.")
    try:
        yield name
    except OSError as error:
        if os.path.isdir(name):
            raise
        reason = (
            "HF_HUB_OFFLINE is set, and it is not cached" if constants.HF_HUB_OFFLINE else str(error).split("\n")[0]
        )
        raise OSError(
            f"model {name!r} does not exist as a folder, nor could it be had from the Hub: {reason}"
        ) from error
    except Exception as error:
        if isinstance(error, (ValueError, ImportError)) and not isinstance(error, BAD_TEXT):
            raise
        if not os.path.isdir(name) and try_to_load_from_cache(name, "config.json") is None:  # no file of it is here
            reason = shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")
            raise OSError(
                f"model {name!r} does not exist as a folder, nor could it be had from the Hub: {reason}"
            ) from error
        raise _explained(name, error) from error


def _explained(name: str, error: Exception) -> Exception:
    """What a library raised while it loaded a checkpoint, with what it means and what to do."""
    reason = shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")
    if is_out_of_memory(error) or any(sign in reason.lower() for sign in TOO_LARGE):
        return MemoryError(
            f"{name} does not fit into memory: free some, take a smaller dtype or model, and see that the sizes in "
            f"config.json are right. {reason}"
        )
    if isinstance(error, RuntimeError) and "have other shapes than" in reason:
        return ValueError(
            f"{name} has other sizes than asked for: leave out the sizes that were given with it; if none were, its "
            f"config.json and its weights are of two models: copy both again. {reason}"
        )
    # tokenizers raises nothing more specific than Exception, and transformers a KeyError for a JSON file without a part
    # of it; what is nested too deeply is no JSON of ours.
    if isinstance(error, (SafetensorError, KeyError, RecursionError, *BAD_TEXT)) or type(error) is Exception:
        return ValueError(f"{name} cannot be loaded, a file of it is damaged: download or copy it again. {reason}")
    return ValueError(
        f"{name} cannot be loaded: what was given with it, or config.json or another file of it, has a value that "
        f"cannot be. {reason}"
    )


def _require_checkpoint(path: str) -> None:
    if os.path.isfile(os.path.join(path, "config.json")):
        return
    from .conversion.recognize import recognize  # its package imports this module

    found = recognize(path)
    what = found.message or f"{path} is not converted yet: hf-elmo convert makes a checkpoint of it."
    raise ValueError(f"model {path!r} is no folder of a checkpoint with config.json. {what}")


__all__ = ["load_default", "load_model"]
