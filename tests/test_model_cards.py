"""Model cards: their metadata, by which the Hub finds a model, their parts, and the code in them, which is run."""

import json
import os
import re
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers import AutoTokenizer
from transformers.pipelines import SUPPORTED_TASKS

from hf_elmo import ElmoConfig, shipped
from hf_elmo.conversion import all_names, convert, convert_manylangs
from hf_elmo.conversion.download import PUBLISHED_MODELS, PUBLISHED_TRAININGS
from hf_elmo.conversion.published import MANYLANGS, page
from hf_elmo.model_cards import make_card
from hf_elmo.words_elmo import script_of

from .allennlp_files import make_arrays, make_options, write_files
from .conftest import TINY
from .manylangs_files import make_settings, write_model
from .test_remote_code import ALONE

# As its publisher says of the models that were there in 2018; and the one text that is a data set of the Hub.
UNRESTRICTED = {
    "license": "other",
    "license_name": "unrestricted",
    "license_link": "https://github.com/allenai/allennlp/issues/1462",
}
LM1B = {"datasets": ["billion-word-benchmark/lm1b"]}
MIT = {"license": "mit", "tags": ["elmo", "bilm", "character-level", "elmoformanylangs"]}
KNOWN = {
    "small": {"language": "en", **UNRESTRICTED, **LM1B},
    "medium": {"language": "en", **UNRESTRICTED, **LM1B},
    "original": {"language": "en", **UNRESTRICTED, **LM1B},
    "original-5.5b": {"language": "en", "license": "unknown"},
    "original-softmax": {"language": "en", "license": "unknown", **LM1B},
    "portuguese": {"language": "pt", "license": "unknown"},
    "pubmed": {"language": "en", "license": "unknown"},
    "seqvec": {"license": "unknown", "tags": ["elmo", "bilm", "biology", "protein"]},
    **{f"manylangs-{code}": {"language": code, **MIT} for code in MANYLANGS},
}
OF_EACH = {"library_name": "transformers", "pipeline_tag": "feature-extraction"}
OF_EACH |= {"tags": ["elmo", "bilm", "character-level"]}
PARTS = ["Use", "Sizes", "Training data", "Known scores", "Limits and biases", "Good to know"]
PARTS += ["Conversion", "Citation"]
# Of the languages of ELMoForManyLangs that are not written in Latin letters.
SCRIPTS = {code: {"Cyrillic"} for code in ("bg", "cu", "ru", "uk")} | {
    code: {"Arabic"} for code in ("ar", "fa", "ug", "ur")
}
SCRIPTS |= {"el": {"Greek"}, "grc": {"Greek"}, "he": {"Hebrew"}, "hi": {"Devanagari"}, "ko": {"Hangul"}}
SCRIPTS |= {"ja": {"Chinese characters", "Hiragana"}, "zh": {"Chinese characters"}}
OF_ALLENNLP = ("small", "medium", "original", "original-5.5b")
CONVERTED = {
    "parameters": 12345,
    "dtype": "bfloat16",
    "sources": [("weights.hdf5", "0" * 64)],
    "source_format": "AllenNLP's format",
    "compared": False,
}


def card_of(about: ModelCard | None, **fields: object) -> ModelCard:
    """A card as the Hub reads it."""
    return ModelCard(make_card("elmo-test", about, config=ElmoConfig(**TINY), **fields).content)


@cache
def examples(name: str) -> list[str]:
    """The two texts of a published model's page."""
    return [one["text"] for one in page(name).data.to_dict()["widget"]]


def sections(text: str) -> dict[str, str]:
    """A card's sections by their headings."""
    _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_published_model_has_a_card() -> None:
    assert KNOWN.keys() == all_names().keys()


@pytest.mark.parametrize("name", KNOWN)
def test_the_metadata_of_a_published_model_holds_what_is_known(name: str) -> None:
    card = card_of(page(name), **CONVERTED)
    data = card.data.to_dict()
    widget = data.pop("widget")
    assert data == OF_EACH | KNOWN[name]
    assert [one.keys() for one in widget] == [{"text"}] * 2
    assert data["pipeline_tag"] in SUPPORTED_TASKS
    assert re.fullmatch("[a-z]{2,3}", data.get("language", "en"))
    text = " ".join(card.text.split())
    assert ("1 Billion Word Benchmark" in text) == ("datasets" in KNOWN[name])
    assert ("We don't impose any restrictions on our models" in text) == (card.data.license == "other")


@pytest.mark.parametrize("name", KNOWN)
def test_a_card_has_all_of_its_parts(name: str) -> None:
    card = card_of(page(name), **CONVERTED)
    assert not re.search(r"\{\{|\{%|\}\}|%\}", card.content)
    found = sections(card.text)
    assert list(found) == PARTS
    assert all(text.strip() for text in found.values())
    source = r"allennlp\.org/elmo|et al\. 20\d\d|None (with a source that we know|of this model alone)"
    assert re.search(source, found["Known scores"])
    assert "0.0 MB" in found["Sizes"]
    assert f"SHA-256 `{'0' * 64}`" in found["Conversion"]
    assert "to the source's values in bfloat16" in found["Conversion"]
    assert found["Citation"].count("@") == 1 + (name == "seqvec" or name.startswith("manylangs"))
    assert "peters-etal-2018-deep" in found["Citation"]
    assert found["Use"].count("```python") == 1


@pytest.mark.parametrize("code", MANYLANGS)
def test_the_example_of_a_language_is_in_its_script_and_its_own(code: str) -> None:
    texts = examples(f"manylangs-{code}")
    assert {script for letter in "".join(texts) if (script := script_of(letter))} == SCRIPTS.get(code, {"Latin"})
    for text in texts:
        assert unicodedata.is_normalized("NFC", text)
        assert len(text.split()) >= 2
        assert code == "cu" or text.split()[-1] in (".", "。", "।", "۔")  # as Universal Dependencies splits
    assert all(texts != examples(f"manylangs-{other}") for other in MANYLANGS if other != code)
    assert json.dumps(texts, ensure_ascii=False) in card_of(page(f"manylangs-{code}"), **CONVERTED).text


@pytest.mark.parametrize("name", OF_ALLENNLP)
def test_scores_are_those_of_their_source(name: str) -> None:
    """allennlp.org/elmo: F1 of semantic role labeling and of constituency parsing."""
    scores = {"small": "83.62 | 93.12", "medium": "84.04 | 93.60", "original": "84.63 | 93.85"}
    scores["original-5.5b"] = "84.93 | 94.01"
    found = sections(page(name).text)["Known scores"]
    assert [other for other, text in scores.items() if text in found] == [name]


def test_the_page_of_a_language_names_it() -> None:
    korean, chinese = page("manylangs-ko"), page("manylangs-zh")
    assert "The **Korean** ELMo" in korean.text
    assert "number 161 of NLPL" in korean.text
    assert ["traditional" in card.text for card in (korean, chinese)] == [False, True]


def test_of_a_tokenizer_that_splits_at_whitespace_the_card_says_so() -> None:
    whitespace, other = (
        " ".join(sections(card_of(None, **CONVERTED, word_splitting=splitting).text)["Good to know"].split())
        for splitting in ("whitespace", "lm1b")
    )
    assert "The tokenizer splits text at whitespace" in whitespace
    assert "whitespace" not in other
    (call,) = re.findall(r"`AutoTokenizer\.from_pretrained\((.*?)\)`", whitespace)
    assert call == '"elmo-test", word_splitting="lm1b", trust_remote_code=True'


def test_the_tokenizer_of_a_card_splits_as_the_card_says(tmp_path: Path) -> None:
    for name, splitting in (("manylangs-pt", "whitespace"), ("small", "lm1b"), ("seqvec", "characters")):
        folder = tiny(name, tmp_path)
        says = "The tokenizer splits text at whitespace" in ModelCard.load(folder / "README.md").text
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert (tokenizer.word_splitting, says) == (splitting, splitting == "whitespace")
        lm1b = AutoTokenizer.from_pretrained(folder, word_splitting="lm1b")
        assert lm1b.split_into_words(["O banco."]) == [["O", "banco", "."]]


def test_of_other_files_no_license_and_no_data_are_claimed() -> None:
    card = card_of(None, **CONVERTED)
    assert card.data.to_dict() == OF_EACH
    assert "do not say what text it read" in " ".join(card.text.split())


def test_of_a_head_the_card_names_the_task_and_the_class() -> None:
    config = ElmoConfig(**TINY, num_labels=4, architectures=["ElmoForTokenClassification"])
    card = ModelCard(make_card("elmo-test", config=config).content)
    assert card.data.pipeline_tag == "token-classification"
    assert 'model = AutoModelForTokenClassification.from_pretrained("elmo-test"' in card.text
    assert "`outputs.logits`: of 4 labels" in card.text


def test_of_a_head_that_answers_questions_the_card_gives_it_pairs() -> None:
    config = ElmoConfig(**TINY, architectures=["ElmoForQuestionAnswering"])
    card = ModelCard(make_card("elmo-test", config=config).content)
    assert card.data.pipeline_tag == "question-answering"
    assert 'model = AutoModelForQuestionAnswering.from_pretrained("elmo-test"' in card.text
    assert 'tokenizer(["Of what kind ?", "And the second ?"], ["A sentence .", "And another ."], padding' in card.text
    assert "`outputs.start_logits`" in card.text
    assert "`outputs.logits`" not in card.text


def test_of_a_checkpoint_that_was_not_converted_no_source_is_claimed() -> None:
    card = card_of(None)
    assert "Conversion" not in sections(card.text)
    assert not re.search("Converted|SHA|source", card.text)


# -- the code in the cards ---------------------------------------------------------------------------------------------

RUN = (
    ALONE
    + """
import json
for code in json.loads(sys.argv[1]):
    names = {}
    exec(code, names)
    outputs, words = names["outputs"], names["words"]
    assert type(names["model"]).__module__.startswith("transformers_modules.")
    print(json.dumps([
        list(words["input_ids"].shape[:2]), list(outputs.last_hidden_state.shape),
        list(outputs.pooler_output.shape), [list(layer.shape) for layer in outputs.hidden_states],
    ]))
"""
)


def python_blocks(card: ModelCard) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card.text, flags=re.DOTALL)


def tiny(name: str, folder: Path) -> Path:
    """A small random model, converted with the page of a published one."""
    if name.startswith("manylangs"):
        sentences = [text.split() for text in examples(name)]
        source = write_model(folder / f"{name}-source", make_settings(), sentences)
        return convert_manylangs(source, folder / f"elmo-{name}", about=page(name))
    options = make_options()
    source = write_files(folder / f"{name}-source", options, make_arrays(options))
    splitting = "characters" if name == "seqvec" else "lm1b"
    return convert(*source, folder / f"elmo-{name}", about=page(name), word_splitting=splitting)


def words_of(name: str) -> int:
    """Of the longest of the two texts of a card, with its boundaries: as its tokenizer splits them."""
    counts = {"small": 12, "medium": 12, "original": 12, "original-softmax": 12, "original-5.5b": 12}
    counts |= {"portuguese": 9, "pubmed": 10, "seqvec": 17}
    return counts.get(name) or 2 + max(len(text.split()) for text in examples(name))


def test_every_code_block_runs_where_hf_elmo_is_not(tmp_path: Path) -> None:
    """As it stands in the card, in the folder that holds the checkpoint under the name that the card gives."""
    cards = {name: ModelCard.load(tiny(name, tmp_path) / "README.md") for name in KNOWN}
    blocks = {name: python_blocks(card) for name, card in cards.items()}
    assert all(len(found) == 1 for found in blocks.values())
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    code = json.dumps([block for found in blocks.values() for block in found])
    command = [sys.executable, "-I", "-c", RUN, code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "has letters of a script" not in done.stderr
    for name, line in zip(cards, done.stdout.splitlines(), strict=True):
        words = words_of(name)
        (size,) = re.findall(r"`outputs\.pooler_output`, `\[2, (\d+)\]`", cards[name].text)
        expected = [2, words, int(size)]
        assert json.loads(line) == [expected[:2], expected, [2, int(size)], [expected] * 3], name


@pytest.mark.parametrize("folder", sorted(shipped.CHECKPOINTS.iterdir()), ids=lambda folder: folder.name)
def test_the_code_of_the_cards_that_ship(folder: Path) -> None:
    (block,) = python_blocks(ModelCard.load(folder / "README.md"))
    names: dict = {}
    exec(block, names)
    assert Path(names["model"].name_or_path) == folder
    size = names["model"].config.hidden_size
    assert [tuple(layer.shape) for layer in names["output"].hidden_states] == [(1, 9, size)] * 3


def test_there_is_a_page_for_each_family() -> None:
    pages = {file.stem for file in (Path(__file__).parent.parent / "model_cards").glob("*.md")}
    assert pages == {*PUBLISHED_MODELS, *PUBLISHED_TRAININGS, "manylangs", "template"}
