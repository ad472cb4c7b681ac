"""Model cards: `template.md` for any converted checkpoint, and for each published model a page that goes into it."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

_FOLDER = files(__name__)


def published_card(name: str) -> ModelCard:
    """The page of a published model: what it was trained on, by whom, with how many parameters."""
    return ModelCard(_FOLDER.joinpath(f"{name}.md").read_text(encoding="utf-8"))


def make_card(name: str, about: ModelCard | None = None, **fields: Any) -> ModelCard:
    """
    The model card of a converted checkpoint.

    Args:
        name: the checkpoint's name, the card's title.
        about: a page whose text and metadata go into the card, such as [`published_card`] returns.
        fields: what the template shows: `config` (the ElmoConfig), `parameters` (their number), `dtype`, and `sources`,
            a list of (file name, SHA-256).
    """
    metadata: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "feature-extraction"}
    metadata["tags"] = ["elmo", "bilm", "character-level"]
    if about is not None:
        metadata |= about.data.to_dict()
    template = _FOLDER.joinpath("template.md").read_text(encoding="utf-8")
    text = "" if about is None else about.text.strip()
    return ModelCard.from_template(ModelCardData(**metadata), template_str=template, name=name, about=text, **fields)


def write_card(folder: Path, card: ModelCard) -> None:
    """Write a card where the Hub looks for it, `README.md`."""
    card.save(folder / "README.md")
