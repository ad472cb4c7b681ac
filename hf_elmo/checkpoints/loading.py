"""Loading a model and its tokenizer by name; by default the small English model that ships with the package."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, overload

import torch
from transformers import AutoConfig, PreTrainedModel
from transformers.utils import cached_file, find_adapter_config_file, logging

from .. import names
from ..configuration_elmo import FIRST_VECTOR_ID, ElmoConfig
from ..modeling_elmo import ElmoModel, ElmoPreTrainedModel
from ..modeling_heads_elmo import ElmoTaskModel
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..tokenization_elmo import ElmoTokenizer
from ..utils.spelling import require_tokenizer

logger = logging.get_logger(f"transformers.{__name__}")

Dtype = str | torch.dtype | None
Device = str | torch.device | None
NAME = "elmo-compact-en"
FOLDER = Path(__file__).with_name(NAME)
# The class that an adapter of PEFT is for, by the type of its task; of other types, the adapter names the class.
ADAPTED = {"SEQ_CLS": "ElmoForSequenceClassification", "TOKEN_CLS": "ElmoForTokenClassification"}
ADAPTED["QUESTION_ANS"] = "ElmoForQuestionAnswering"


def path(name: str = NAME) -> str:
    """The folder of the model that ships with hf_elmo, for `from_pretrained` of every class, `pipeline` and other
    libraries: given only its name, they would look for it on the Hub. Raises ValueError for any other name."""
    if name != NAME:
        raise ValueError(f"name is {name!r}, but the only model that ships is {NAME}.")
    return str(FOLDER)


@overload
def load_model(
    name: str | os.PathLike | None = None, language_model: Literal[False] = False, **options: Any
) -> tuple[ElmoModel, ElmoTokenizer]: ...
@overload
def load_model(
    name: str | os.PathLike | None = None, *, language_model: Literal[True], **options: Any
) -> tuple[ElmoForPreTraining, ElmoTokenizer]: ...
def load_model(
    name: str | os.PathLike | None = None, language_model: bool = False, dtype: Dtype = None, device: Device = "cpu"
) -> tuple[Any, ElmoTokenizer]:
    """An `ElmoModel`, or an `ElmoForPreTraining`, and its tokenizer.

    Args:
        name: a folder, a name on the Hub, or that of the model that ships with hf_elmo (the default, without network).
        language_model: return an `ElmoForPreTraining`, whose softmax perplexity and substitutes need.
        dtype: the type of the weights; by default the type that config.json names.
        device: the device of the model; with `None` a GPU if there is one.

    Raises:
        OSError: there is no such checkpoint.
        ValueError: `language_model` is set, and the checkpoint has no softmax over words.
    """
    model = load_weights(name, ElmoForPreTraining if language_model else ElmoModel, dtype, device)
    return model, load_tokenizer(model.name_or_path)


def load_weights(name: Any, kind: Any = ElmoModel, dtype: Dtype = None, device: Device = None) -> Any:
    """A model of a class (`None`: its own) without its tokenizer, by default on a GPU. A model in place of a name stays
    as it is, without a wrapper, such as that of `torch.compile`, of DataParallel or of PEFT (whose adapters stay)."""
    if isinstance(name, torch.nn.Module):
        return next((module for module in name.modules() if isinstance(module, PreTrainedModel)), name)
    place = locate(name)
    if kind is None:
        kind = getattr(names, (load_config(place).architectures or ["ElmoModel"])[0])
    with no_progress_bar():
        return kind.from_pretrained(place, dtype=dtype or "auto").to(device or default_device())


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Without the bar of transformers, which would last for a moment."""
    is_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_shown:
            logging.enable_progress_bar()


def load_config(name: str | os.PathLike | None) -> ElmoConfig:
    """The configuration of a checkpoint; for an adapter of PEFT, of the model below it, with the adapted class."""
    place = locate(name)
    if (file := find_adapter_config_file(place)) is None:
        return AutoConfig.from_pretrained(place)
    adapter = json.loads(Path(file).read_text(encoding="utf-8"))
    config = AutoConfig.from_pretrained(adapter["base_model_name_or_path"])
    adapted = ADAPTED.get(adapter["task_type"]) or (adapter["auto_mapping"] or {}).get("base_model_class")
    config.architectures = [adapted] if adapted else config.architectures
    return config


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_tokenizer(name: str | os.PathLike, **source: Any) -> ElmoTokenizer:
    """The tokenizer of a checkpoint, of which `source` may have the `revision` and the `subfolder`; if it has none, a
    default one, with a warning, because the model may have been trained on text that was split differently."""
    place = locate(name)
    tokenizer = ElmoTokenizer.from_pretrained(place, **source)
    if cached_file(place, "tokenizer_config.json", _raise_exceptions_for_missing_entries=False, **source) is None:
        logger.warning(f"{name} has no tokenizer: the default, word_splitting={tokenizer.word_splitting!r}, is used.")
    return tokenizer


def tokenizer_of(model: ElmoPreTrainedModel) -> ElmoTokenizer:
    """The tokenizer in the folder from which a model was loaded, or a new one if the model was not loaded."""
    if model.name_or_path:
        return load_tokenizer(model.name_or_path, **getattr(model, "source", {}))
    return ElmoTokenizer(max_word_length=model.config.max_word_length)


def ensure_loaded(
    model: Any, tokenizer: ElmoTokenizer | None, kind: Any = ElmoModel, dtype: Dtype = "float32", device: Device = None
) -> tuple[Any, ElmoTokenizer]:
    """The model, loaded by [`load_weights`] unless it is loaded already, and `tokenizer`, or else the model's own
    tokenizer. ValueError if the tokenizer makes other character ids than the model reads."""
    model = load_weights(model, kind, dtype, device)
    tokenizer = tokenizer_of(model) if tokenizer is None else tokenizer
    require_tokenizer(model.config, tokenizer)
    return model, tokenizer


def load_head(
    model: Any, tokenizer: ElmoTokenizer | None, device: Device, head: type = ElmoTaskModel
) -> tuple[ElmoTaskModel, ElmoTokenizer]:
    """A fine-tuned model of the class `head`, on a device, and its tokenizer; the arguments are as for [`predict`].
    ValueError for another head or none, or a tokenizer with other characters or another number of words."""
    model, tokenizer = ensure_loaded(model, tokenizer, None, None, device)
    if head.__name__ not in [kind.__name__ for kind in type(model).__mro__]:  # of remote code, it is another class
        wanted = "a fine-tuned model with a head" if head is ElmoTaskModel else head.__name__
        raise ValueError(f"{model.name_or_path or 'model'} is an {type(model).__name__}, but must be {wanted}")
    words = tokenizer.words or ()
    vectors = model.config.word_vectors_vocab_size
    if vectors is not None and len(words) + FIRST_VECTOR_ID != vectors:
        wanted = f"the model vectors of {vectors - FIRST_VECTOR_ID:,} (word_vectors_vocab_size)"
        raise ValueError(f"tokenizer has {len(words):,} words, {wanted}: use the tokenizer saved with the model.")
    return model if device is None else model.to(device), tokenizer


def locate(name: str | os.PathLike | None) -> str:
    """The folder of the model that ships if `name` is `None` or its name (and no path has this name), else `name`.
    FileNotFoundError if `name` is neither a path nor a name on the Hub, `owner/name`; TypeError for a model object."""
    name = str(FOLDER) if name is None or (name == NAME and not os.path.lexists(name)) else os.fspath(name)
    if not os.path.lexists(name) and not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        hint = f"; convert a published model once: hf-elmo convert {name} elmo-{name}"
        hint = hint if re.fullmatch(r"[\w.-]+", name) else ""
        raise FileNotFoundError(f"there is no folder {name!r}, and names on the Hub are owner/name{hint}")
    return name
