"""Model cards: their metadata, by which the Hub finds a model, and the code in them, which is run."""

import json
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers.pipelines import SUPPORTED_TASKS

from hf_elmo import ElmoConfig
from hf_elmo.checkpoints import loading
from hf_elmo.conversion import all_names, convert
from hf_elmo.conversion.published import page
from hf_elmo.model_cards import make_card
from tests.factories import TINY
from tests.source_files import make_settings, write_files, write_model

LANGUAGE = {"portuguese": "pt", "seqvec": None, "nlpl-201": "de", "nlpl-202": "sv", "nlpl-203": "la"}  # not English
OF_EACH = {"library_name": "transformers", "pipeline_tag": "feature-extraction"}
OF_EACH |= {"tags": ["elmo", "bilm", "character-level"]}
CONVERTED = {"parameters": 12345, "dtype": "bfloat16", "sources": [("weights.hdf5", "0" * 64)]}
CONVERTED["source_format"] = "AllenNLP's format"
WORDS = {"small": 12, "portuguese": 9, "pubmed": 10, "seqvec": 17, "manylangs-ko": 7}  # of the longer example


def card_of(about: ModelCard | None, **fields: object) -> ModelCard:
    """A card as the Hub reads it."""
    return ModelCard(make_card("elmo-test", about, **{"config": ElmoConfig(**TINY)} | fields).content)


def examples(name: str) -> list[str]:
    """The two texts of a published model's page."""
    return [one["text"] for one in page(name).data.to_dict()["widget"]]


@pytest.mark.parametrize("name", all_names())
def test_the_card_of_a_published_model(name: str) -> None:
    card = card_of(page(name), **CONVERTED)
    data = card.data.to_dict()
    assert [one.keys() for one in data.pop("widget")] == [{"text"}] * 2
    assert data["pipeline_tag"] in SUPPORTED_TASKS
    is_manylangs, is_of_2018 = name.startswith("manylangs"), name in ("small", "medium", "original")
    assert data["license"] == ("mit" if is_manylangs else "other" if is_of_2018 else "unknown")
    code = name.partition("-")[2] if name.startswith(("manylangs", "embeddia")) else LANGUAGE.get(name, "en")
    assert data.get("language") == code
    assert f"SHA-256 `{'0' * 64}`" in card.text
    assert json.dumps(examples(name), ensure_ascii=False) in card.text


def test_of_other_files_no_license_and_no_data_are_claimed() -> None:
    assert card_of(None, **CONVERTED).data.to_dict() == OF_EACH
    assert "SHA-256" not in card_of(None).text


@pytest.mark.parametrize("task", ["token-classification", "text-classification", "question-answering"])
def test_the_card_of_a_head_names_the_task_and_the_class(task: str) -> None:
    head = f"For{task.title().replace('-', '')}".replace("Text", "Sequence")
    card = card_of(None, config=ElmoConfig(**TINY, num_labels=4, architectures=[f"Elmo{head}"]))
    assert card.data.pipeline_tag == task
    assert f'model = AutoModel{head}.from_pretrained("elmo-test"' in card.text


def names_of(card: ModelCard) -> dict:
    """The names that the code of a card, one block, defines."""
    (block,) = re.findall(r"```python\n(.*?)```", card.text, flags=re.DOTALL)
    exec(block, names := {})
    return names


@pytest.mark.parametrize("name", WORDS)
def test_the_code_of_a_card_runs_and_its_tokenizer_splits_as_it_says(tmp_path, monkeypatch, name: str) -> None:
    source = tmp_path / "source"
    if name.startswith("manylangs"):
        write_model(source, make_settings(), [text.split() for text in examples(name)])
    else:
        write_files(source)
    card = ModelCard.load(convert(source, tmp_path / f"elmo-{name}", model=name) / "README.md")
    monkeypatch.chdir(tmp_path)
    names = names_of(card)
    (size,) = map(int, re.findall(r"`outputs\.pooler_output`, `\[2, (\d+)\]`", card.text))
    shapes = [tuple(part.shape) for part in (names["outputs"].last_hidden_state, names["outputs"].pooler_output)]
    assert shapes == [(2, WORDS[name], size), (2, size)]
    at_whitespace = "The tokenizer splits text at whitespace" in card.text
    assert at_whitespace is (names["tokenizer"].word_splitting == "whitespace") is name.startswith("manylangs")


def test_the_code_of_the_card_that_ships() -> None:
    names = names_of(ModelCard.load(loading.FOLDER / "README.md"))
    assert Path(names["model"].name_or_path) == loading.FOLDER
    size = names["model"].config.hidden_size
    assert [tuple(layer.shape) for layer in names["output"].hidden_states] == [(1, 9, size)] * 3
