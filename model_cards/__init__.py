"""Model cards: `template.md` for any checkpoint, which includes the page about a published family of models."""

import json
import re
from importlib.resources import files
from typing import Any

import transformers
from huggingface_hub import ModelCard, ModelCardData
from jinja2 import StrictUndefined, Template

_FOLDER = files(__name__)
_TEMPLATE = Template(_FOLDER.joinpath("template.md").read_text(encoding="utf-8"))
EXAMPLES = ("A sentence .", "And another .")
QUESTIONS = ("Of what kind ?", "And the second ?")
# The largest difference from the output of each format's own code, in float32; README.md names the tests.
PARITY = {
    "AllenNLP's format": "every layer within 1.4e-6 of AllenNLP 2.10.1, over sentences in many scripts",
    "ELMoForManyLangs' format": "every layer within 1e-5 of elmoformanylangs, over sentences in many scripts",
}
OTHER_PARITY = "every layer within 1e-5 of a plain NumPy ELMo, over 11 architectures"


def published_card(name: str, /, **fields: Any) -> ModelCard:
    """
    The page about a published family of models: description, training data, known scores, limits and biases.

    Args:
        name: the name of the page, such as `"small"` or `"manylangs"`.
        fields: the values in a page that describes several models: `code`, `language`, `number` for `"manylangs"`.
    """
    text = _FOLDER.joinpath(f"{name}.md").read_text(encoding="utf-8")
    return ModelCard(Template(text, undefined=StrictUndefined, keep_trailing_newline=True).render(fields))


def make_card(name: str, about: ModelCard | None = None, **fields: Any) -> ModelCard:
    """
    The model card of a checkpoint.

    Args:
        name: the title, the checkpoint's name.
        about: a page whose text and metadata the card includes, for example from [`published_card`]. The texts of the
            page's `widget` are the inputs of the card's example.
        fields: values in the template: `config`, the ElmoConfig, and `word_splitting` of the tokenizer; for a converted
            checkpoint also `parameters` (their number), `dtype`, `source_format`, `sources` (a list of file name and
            SHA-256), `learned_mix` (whether the source has a learned mix), `scalar_mixes` (the names of the mixes in
            the source) and `left_behind` (names and shapes of the source's tensors that were not converted).
    """
    architecture = (fields["config"].architectures or [""])[0]
    task, fields["auto"] = "feature-extraction", "AutoModel"
    if architecture.startswith("ElmoFor") and hasattr(transformers, head := architecture.replace("Elmo", "AutoModel")):
        kind = re.sub(r"(?<=\w)(?=[A-Z])", "-", architecture.removeprefix("ElmoFor")).lower()
        task, fields["auto"] = kind.replace("sequence", "text"), head
    metadata: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": task}
    metadata["tags"] = ["elmo", "bilm", "character-level" if fields["config"].char_filters else "word-level"]
    if about is not None:
        metadata |= about.data.to_dict()
    fields |= _parts("" if about is None else about.text)
    texts = [text["text"] for text in metadata.get("widget", ())] or EXAMPLES
    fields["texts"] = json.dumps(texts, ensure_ascii=False)
    if architecture == "ElmoForQuestionAnswering" or fields["config"].classifier_text_pairs:
        fields["texts"] = f"{json.dumps(QUESTIONS)}, {fields['texts']}"
    fields["parity"] = PARITY.get(fields.get("source_format", ""), OTHER_PARITY)
    return ModelCard(_TEMPLATE.render(card_data=ModelCardData(**metadata).to_yaml(), name=name, **fields))


def _parts(text: str) -> dict[str, str]:
    """The introduction, the sections and the citation of a page; a card has the citation at its end."""
    about, *sections = re.split(r"^(?=## )", text.strip(), flags=re.MULTILINE)
    citation = [section.removeprefix("## Citation") for section in sections if section.startswith("## Citation")]
    details = [section for section in sections if not section.startswith("## Citation")]
    return {"about": about.strip(), "details": "".join(details).strip(), "citation": "".join(citation).strip()}
