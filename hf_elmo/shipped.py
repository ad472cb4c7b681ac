"""Loading a checkpoint by its name, by default the small English model that ships with the package."""

import os
from pathlib import Path

import torch

from .modeling_elmo import ElmoModel
from .tokenization_elmo import ElmoTokenizer

NAME = "elmo-mini-en"
FOLDER = Path(__file__).parent / "checkpoints" / NAME


def load_default(language_model: bool = False) -> tuple[ElmoModel, ElmoTokenizer]:
    """
    The model elmo-mini-en and its tokenizer, on the CPU and without network; its card is in the folder `FOLDER`.

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
        name: a folder or a name on the Hub; by default the model that ships.
        language_model: with the softmax over words, as an `ElmoForPreTraining`.
        dtype: of the weights; by default the stored one, and float32 for the model that ships.
        device: by default a GPU where there is one.

    Raises:
        OSError: there is no such checkpoint, or the package was installed without its own.
    """
    model = load_weights(name, language_model, dtype, device)
    return model, ElmoTokenizer.from_pretrained(model.name_or_path)


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
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return model_class.from_pretrained(name, dtype=dtype or "auto").to(device)


__all__ = ["load_default", "load_model"]
