"""Model cards: `template.md` for any converted checkpoint, and a page for each published model that it includes."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

_FOLDER = files(__name__)


def published_card(name: str) -> ModelCard:
    """The page of a published model: its training data, authors and number of parameters."""
    return ModelCard(_FOLDER.joinpath(f"{name}.md").read_text(encoding="utf-8"))


def make_card(name: str, about: ModelCard | None = None, **fields: Any) -> ModelCard:
    """
    The model card of a converted checkpoint.

    Args:
        name: the checkpoint's name, the card's title.
        about: a page whose text and metadata the card includes, as from [`published_card`].
        fields: of the template: `config` (the ElmoConfig), `parameters` (their number), `dtype`, and `sources`, a list
            of (file name, SHA-256), and `compared`, whether the weights' digest was compared with a known one.
    """
    metadata: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "feature-extraction"}
    metadata["tags"] = ["elmo", "bilm", "character-level"]
    if about is not None:
        metadata |= about.data.to_dict()
    template = _FOLDER.joinpath("template.md").read_text(encoding="utf-8")
    text = "" if about is None else about.text.strip()
    return ModelCard.from_template(ModelCardData(**metadata), template_str=template, name=name, about=text, **fields)


def write_card(folder: Path, card: ModelCard) -> None:
    """Write a card as the folder's `README.md`, which the Hub shows."""
    card.save(folder / "README.md")
