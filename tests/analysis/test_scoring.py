"""Word scores and substitutes of the language models."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.analysis.scoring import score, substitutes
from hf_elmo.modeling_pretraining_elmo import neighbor_labels
from hf_elmo.pretraining.vocabulary import Vocabulary
from tests.language_models import TEXTS, sentence_logits, small_language_model, small_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    return small_tokenizer(tmp_path)


@pytest.fixture
def model(tokenizer: ElmoTokenizer) -> ElmoForPreTraining:
    return small_language_model(tokenizer)


# -- score -------------------------------------------------------------------------------------------------------------


def test_scores_are_the_log_probabilities_of_the_words(model, tokenizer):
    results = score(model, tokenizer, TEXTS, words_per_batch=15)
    assert [result.words[1:-1] for result in results] == [text.split() for text in TEXTS]
    for text, result in zip(TEXTS, results, strict=True):
        forward, backward, words = sentence_logits(model, tokenizer, text)
        places = np.arange(1, len(words))
        np.testing.assert_allclose(result.forward[1:], forward[places - 1, words[places]].numpy(), rtol=1e-4)
        np.testing.assert_allclose(result.backward[:-1], backward[places, words[places - 1]].numpy(), rtol=1e-4)
        assert np.isnan(result.forward[0])
        assert np.isnan(result.backward[-1])


def test_words_already_split_are_taken_as_they_are(model, tokenizer):
    assert score(model, tokenizer, [["New York", "!"]])[0].words == ["<S>", "New York", "!", "</S>"]


def test_scores_and_labels_are_one_definition(model, tokenizer):
    inputs = tokenizer(TEXTS[0], return_tensors="pt")
    words = torch.from_numpy(Vocabulary.of(tokenizer).sentence_ids(TEXTS[0].split()))[None]
    loss = model(**inputs, labels=neighbor_labels(words)).loss.item()
    result = score(model, tokenizer, [TEXTS[0]])[0]
    assert loss == pytest.approx(-(np.nansum(result.forward) + np.nansum(result.backward)) / 14, rel=1e-5)


def test_one_string_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="put it into a list"):
        score(model, tokenizer, "a cat")


# -- substitutes -------------------------------------------------------------------------------------------------------


def test_substitutes_multiply_both_distributions(model, tokenizer):
    (results,) = substitutes(model, tokenizer, [TEXTS[0]], top=4)
    assert [result.word for result in results] == TEXTS[0].split()
    forward, backward, _ = sentence_logits(model, tokenizer, TEXTS[0])
    words = tokenizer.vocabulary
    for place, result in enumerate(results, start=1):
        tables = [forward[place - 1, 3:].log_softmax(-1), backward[place + 1, 3:].log_softmax(-1)]
        both = (tables[0] + tables[1]).log_softmax(-1)
        for table, candidates in zip(
            (both, *tables), (result.candidates, result.forward, result.backward), strict=True
        ):
            values, numbers = table.topk(4)
            assert [word for word, _ in candidates] == [words[number + 3] for number in numbers]
            np.testing.assert_allclose([value for _, value in candidates], values.numpy(), rtol=1e-4)


def test_a_word_has_no_influence_on_its_own_substitutes(model, tokenizer):
    one, other = substitutes(model, tokenizer, ["the cat sat on", "the rain sat on"], words=["cat", "rain"], top=5)
    assert [word for word, _ in one[0].candidates] == [word for word, _ in other[0].candidates]
    assert (one[0].word, other[0].word) == ("cat", "rain")


def test_boundaries_and_unknown_are_no_substitutes(model, tokenizer):
    top = len(tokenizer.vocabulary) - 3
    ((result, *_),) = substitutes(model, tokenizer, ["a dog"], top=top)
    assert sorted(word for word, _ in result.candidates) == sorted(tokenizer.vocabulary[3:])


@pytest.mark.parametrize("top", [0, 10_000])
def test_more_substitutes_than_words_are_refused(model, tokenizer, top):
    with pytest.raises(ValueError, match=f"top is {top}"):
        substitutes(model, tokenizer, ["a dog"], top=top)
