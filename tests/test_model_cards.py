"""Model cards: their metadata, by which the Hub finds a model, their sections, and the code in them, which is run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers import AutoTokenizer
from transformers.pipelines import SUPPORTED_TASKS

from hf_elmo import ElmoConfig
from hf_elmo.checkpoints import loading
from hf_elmo.conversion import all_names, convert
from hf_elmo.conversion.published import page
from hf_elmo.model_cards import make_card

from .allennlp_files import write_files
from .factories import TINY
from .manylangs_files import make_settings, write_model

LANGUAGE = {"portuguese": "pt", "seqvec": None}  # not English
OF_EACH = {"library_name": "transformers", "pipeline_tag": "feature-extraction"}
OF_EACH |= {"tags": ["elmo", "bilm", "character-level"]}
PARTS = ["Use", "Sizes", "Training data", "Known scores", "Limits and biases", "Good to know"]
PARTS += ["Conversion", "Citation"]
CONVERTED = {"parameters": 12345, "dtype": "bfloat16", "sources": [("weights.hdf5", "0" * 64)]}
CONVERTED["source_format"] = "AllenNLP's format"


def card_of(about: ModelCard | None, **fields: object) -> ModelCard:
    """A card as the Hub reads it."""
    return ModelCard(make_card("elmo-test", about, **{"config": ElmoConfig(**TINY)} | fields).content)


def examples(name: str) -> list[str]:
    """The two texts of a published model's page."""
    return [one["text"] for one in page(name).data.to_dict()["widget"]]


def sections(text: str) -> dict[str, str]:
    """A card's sections by their headings."""
    _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("name", all_names())
def test_the_card_of_a_published_model(name: str) -> None:
    card = card_of(page(name), **CONVERTED)
    data = card.data.to_dict()
    assert [one.keys() for one in data.pop("widget")] == [{"text"}] * 2
    assert data["pipeline_tag"] in SUPPORTED_TASKS
    is_manylangs, is_of_2018 = name.startswith("manylangs"), name in ("small", "medium", "original")
    assert data["license"] == ("mit" if is_manylangs else "other" if is_of_2018 else "unknown")
    assert data.get("language") == (name.removeprefix("manylangs-") if is_manylangs else LANGUAGE.get(name, "en"))
    assert not re.search(r"\{\{|\{%|\}\}|%\}", card.content)
    found = sections(card.text)
    assert list(found) == PARTS
    assert all(text.strip() for text in found.values())
    assert f"SHA-256 `{'0' * 64}`" in found["Conversion"]
    assert found["Citation"].count("@") == 1 + (name == "seqvec" or is_manylangs)
    assert json.dumps(examples(name), ensure_ascii=False) in found["Use"]


def test_of_other_files_no_license_and_no_data_are_claimed() -> None:
    assert card_of(None, **CONVERTED).data.to_dict() == OF_EACH
    assert "Conversion" not in sections(card_of(None).text)


@pytest.mark.parametrize("task", ["token-classification", "text-classification", "question-answering"])
def test_the_card_of_a_head_names_the_task_and_the_class(task: str) -> None:
    head = f"For{task.title().replace('-', '')}".replace("Text", "Sequence")
    card = card_of(None, config=ElmoConfig(**TINY, num_labels=4, architectures=[f"Elmo{head}"]))
    assert card.data.pipeline_tag == task
    assert f'model = AutoModel{head}.from_pretrained("elmo-test"' in card.text


RUN = """
import json, sys
sys.modules["hf_elmo"] = None
for code in json.loads(sys.argv[1]):
    names = {}
    exec(code, names)
    outputs = names["outputs"]
    assert type(names["model"]).__module__.startswith("transformers_modules.")
    print(json.dumps([list(out.shape) for out in (outputs.last_hidden_state, outputs.pooler_output)]))
"""


def python_blocks(card: ModelCard) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card.text, flags=re.DOTALL)


def tiny(name: str, folder: Path) -> Path:
    """A small random model, converted as a copy of a published one."""
    source = folder / f"{name}-source"
    if name.startswith("manylangs"):
        write_model(source, make_settings(), [text.split() for text in examples(name)])
    else:
        write_files(source)
    return convert(source, folder / f"elmo-{name}", model=name)


WORDS = {"small": 12, "portuguese": 9, "pubmed": 10, "seqvec": 17, "manylangs-ko": 7}  # of the longer example


@pytest.mark.slow
def test_the_code_runs_where_hf_elmo_is_not_installed(tmp_path: Path) -> None:
    """As it stands in the card, in the folder that holds the checkpoint under the name that the card gives."""
    cards = {name: ModelCard.load(tiny(name, tmp_path) / "README.md") for name in WORDS}
    blocks = [block for card in cards.values() for block in python_blocks(card)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    command = [sys.executable, "-I", "-c", RUN, json.dumps(blocks)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for name, line in zip(cards, done.stdout.splitlines(), strict=True):
        (size,) = re.findall(r"`outputs\.pooler_output`, `\[2, (\d+)\]`", cards[name].text)
        assert json.loads(line) == [[2, WORDS[name], int(size)], [2, int(size)]], name


def test_the_tokenizer_of_a_card_splits_as_the_card_says(tmp_path: Path) -> None:
    for name, splitting in (("manylangs-pt", "whitespace"), ("small", "lm1b")):
        folder = tiny(name, tmp_path)
        says = "The tokenizer splits text at whitespace" in ModelCard.load(folder / "README.md").text
        assert (AutoTokenizer.from_pretrained(folder).word_splitting, says) == (splitting, splitting == "whitespace")


def test_the_code_of_the_card_that_ships() -> None:
    (block,) = python_blocks(ModelCard.load(loading.FOLDER / "README.md"))
    names: dict = {}
    exec(block, names)
    assert Path(names["model"].name_or_path) == loading.FOLDER
    size = names["model"].config.hidden_size
    assert [tuple(layer.shape) for layer in names["output"].hidden_states] == [(1, 9, size)] * 3
