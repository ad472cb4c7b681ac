"""The small English model that ships with the package."""

import os
from pathlib import Path

import torch

from .modeling_elmo import ElmoModel
from .tokenization_elmo import ElmoTokenizer

NAME = "elmo-mini-en"
FOLDER = Path(__file__).parent / "checkpoints" / NAME


def load_default(language_model: bool = False) -> tuple[ElmoModel, ElmoTokenizer]:
    """
    The model elmo-mini-en and its tokenizer, without network; its card is in the folder `FOLDER`.

    The weights are stored in 16 bits and computed with in 32.

    Args:
        language_model: with the softmax over words, as an `ElmoForPreTraining`: for perplexity, probabilities and
            substitutes.

    Raises:
        OSError: the package was installed without its checkpoint.
    """
    if not (FOLDER / "config.json").is_file():
        raise OSError(f"{FOLDER} holds no checkpoint, so this copy of hf_elmo is not whole: install it again.")
    model_class = ElmoModel
    if language_model:
        from .modeling_pretraining_elmo import ElmoForPreTraining as model_class
    return model_class.from_pretrained(FOLDER, dtype=torch.float32), ElmoTokenizer.from_pretrained(FOLDER)


def load_model(name: str | os.PathLike | None = None) -> tuple[ElmoModel, ElmoTokenizer]:
    """The model and the tokenizer of a folder or of the Hub, by default what ships; on a GPU where there is one."""
    if name is None:
        model, tokenizer = load_default()
    else:
        model, tokenizer = ElmoModel.from_pretrained(name, dtype="auto"), ElmoTokenizer.from_pretrained(name)
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


__all__ = ["load_default", "load_model"]
