"""Model cards: `template.md` for any checkpoint, and a page for each published family of models that it includes."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from jinja2 import StrictUndefined, Template

_FOLDER = files(__name__)
EXAMPLES = ("A sentence .", "And another .")
QUESTIONS = ("Of what kind ?", "And the second ?")
# Of a fine-tuned head: the task by which the Hub finds it, and the Auto class that loads it.
HEADS = {
    "ElmoForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "ElmoForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "ElmoForTokenClassification": ("token-classification", "AutoModelForTokenClassification"),
}
# How near hf_elmo comes to each source's own code, by the format: the largest difference of any number in float32. The
# figures are those of README.md, which says what shows them.
PARITY = {
    "AllenNLP's format": "every layer within 4.1e-6 of AllenNLP 2.10.1 in the original size, 2.7e-6 in the size small",
    "ELMoForManyLangs' format": "every layer within 1e-5 of elmoformanylangs, over sentences in eight languages",
}
OTHER_PARITY = "every layer within 1e-5 of a plain NumPy ELMo, over 15 architectures"


def published_card(name: str, **fields: str) -> ModelCard:
    """
    The page of a published family of models: what it is, training data, known scores, limits and biases.

    Args:
        name: of the page, such as `"small"` or `"manylangs"`.
        fields: of the page, where it is one for several models: of `"manylangs"` `code`, `language` and `number`.
    """
    text = _FOLDER.joinpath(f"{name}.md").read_text(encoding="utf-8")
    return ModelCard(Template(text, undefined=StrictUndefined, keep_trailing_newline=True).render(fields))


def make_card(name: str, about: ModelCard | None = None, **fields: Any) -> ModelCard:
    """
    The model card of a checkpoint.

    Args:
        name: the checkpoint's name, the card's title.
        about: a page whose text and metadata the card includes, as from [`published_card`]. The texts of its `widget`
            are those of the example.
        fields: of the template: `config` (the ElmoConfig); of a converted checkpoint also `parameters` (their number),
            `dtype`, `source_format`, `sources`, a list of (file name, SHA-256), `compared`, whether the weights' digest
            was compared with a known one, `learned_mix`, whether the source has weights of the mix,
            `scalar_mixes`, the names of several mixes there, and `left_behind`, the shapes of tensors that projected
            the vectors there, by their names; and `word_splitting`, how its tokenizer splits text.
    """
    architecture = (fields["config"].architectures or [""])[0]
    task, fields["auto"] = HEADS.get(architecture, ("feature-extraction", "AutoModel"))
    metadata: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": task}
    metadata["tags"] = ["elmo", "bilm", "character-level"]
    if about is not None:
        metadata |= about.data.to_dict()
    fields |= _parts("" if about is None else about.text)
    fields["texts"] = json.dumps([one["text"] for one in metadata.get("widget", ())] or EXAMPLES, ensure_ascii=False)
    if architecture == "ElmoForQuestionAnswering":
        fields["texts"] = f"{json.dumps(QUESTIONS)}, {fields['texts']}"
    fields["parity"] = PARITY.get(fields.get("source_format", ""), OTHER_PARITY)
    template = _FOLDER.joinpath("template.md").read_text(encoding="utf-8")
    return ModelCard.from_template(ModelCardData(**metadata), template_str=template, name=name, **fields)


def _parts(text: str) -> dict[str, str]:
    """A page's introduction, its sections, and its citation, which stands at a card's end."""
    about, *sections = re.split(r"^(?=## )", text.strip(), flags=re.MULTILINE)
    citation = [one.removeprefix("## Citation") for one in sections if one.startswith("## Citation")]
    details = [one for one in sections if not one.startswith("## Citation")]
    return {"about": about.strip(), "details": "".join(details).strip(), "citation": "".join(citation).strip()}


def write_card(folder: Path, card: ModelCard) -> None:
    """Write a card as the folder's `README.md`, which the Hub shows."""
    card.save(folder / "README.md")
