"""Model cards: what is known of a published model is in the metadata, by which the Hub finds it."""

import pytest
from huggingface_hub import ModelCard

from hf_elmo import ElmoConfig
from hf_elmo.conversion.download import PUBLISHED_MODELS
from hf_elmo.model_cards import make_card, published_card
from tests.conftest import TINY

# As its publisher says of the models that were there in 2018; and the one text that is a data set of the Hub.
UNRESTRICTED = {
    "license": "other",
    "license_name": "unrestricted",
    "license_link": "https://github.com/allenai/allennlp/issues/1462",
}
LM1B = {"datasets": ["billion-word-benchmark/lm1b"]}
KNOWN = {
    "small": {"language": "en", **UNRESTRICTED, **LM1B},
    "medium": {"language": "en", **UNRESTRICTED, **LM1B},
    "original": {"language": "en", **UNRESTRICTED, **LM1B},
    "original-5.5b": {"language": "en", "license": "unknown"},
    "portuguese": {"language": "pt", "license": "unknown"},
    "pubmed": {"language": "en", "license": "unknown"},
    "seqvec": {"license": "unknown", "tags": ["elmo", "bilm", "biology", "protein"]},
}
OF_EACH = {"library_name": "transformers", "pipeline_tag": "feature-extraction"}
OF_EACH |= {"tags": ["elmo", "bilm", "character-level"]}


def card_of(about: ModelCard | None) -> ModelCard:
    """A converted checkpoint's card, as the Hub reads it."""
    fields = {"config": ElmoConfig(**TINY), "parameters": 7, "dtype": "float32", "sources": [], "compared": False}
    return ModelCard(make_card("elmo-test", about, **fields).content)


@pytest.mark.parametrize("name", PUBLISHED_MODELS)
def test_the_metadata_of_a_published_model_holds_what_is_known(name: str) -> None:
    card = card_of(published_card(name))
    assert card.data.to_dict() == OF_EACH | KNOWN[name]
    text = " ".join(card.text.split())
    assert ("1 Billion Word Benchmark" in text) == ("datasets" in KNOWN[name])
    assert ("We don't impose any restrictions on our models" in text) == (card.data.license == "other")


def test_of_other_files_no_license_and_no_data_are_claimed() -> None:
    assert card_of(None).data.to_dict() == OF_EACH
