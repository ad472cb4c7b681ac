"""Perplexity, word scores and substitutes of the language models."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoTokenizer
from hf_elmo.analysis.scoring import score, substitutes
from hf_elmo.modeling_pretraining_elmo import neighbour_labels
from hf_elmo.pretraining import perplexity as perplexity_module
from hf_elmo.pretraining.perplexity import perplexity
from hf_elmo.pretraining.text import DatasetTexts
from hf_elmo.pretraining.vocabulary import Vocabulary, build_vocabulary
from tests.conftest import TINY, random_model

TEXTS = ["the cat sat on the mat", "a dog", "rain fell all day and nobody went out to see it", "yes", "the dog sat"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    build_vocabulary(text.split() for text in TEXTS[:4]).save(tmp_path / "vocab.txt")
    return ElmoTokenizer(vocab_file=str(tmp_path / "vocab.txt"))


@pytest.fixture
def model(tokenizer: ElmoTokenizer) -> ElmoForPreTraining:
    return random_model(ElmoConfig(**TINY, vocab_size=len(tokenizer.vocabulary), num_sampled=5), ElmoForPreTraining)


def sentence_logits(model, tokenizer, sentence: str) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Log-probabilities at each position of one sentence alone, of either direction, and the words' numbers."""
    inputs = tokenizer(sentence.split(), is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs)
    words = Vocabulary.of(tokenizer).sentence_ids(sentence.split())
    tables = [logits[0].double().log_softmax(-1) for logits in (output.forward_logits, output.backward_logits)]
    return *tables, words


# -- perplexity --------------------------------------------------------------------------------------------------------


def test_perplexity_is_that_of_the_sentences_one_by_one(model, tokenizer):
    totals, count = np.zeros(2), 0
    for text in TEXTS:
        forward, backward, words = sentence_logits(model, tokenizer, text)
        for place in range(len(words) - 1):
            totals -= forward[place, words[place + 1]].item(), backward[place + 1, words[place]].item()
        count += len(words) - 1
    result = perplexity(model, tokenizer, DatasetTexts(TEXTS))
    assert result.forward == pytest.approx(math.exp(totals[0] / count), rel=1e-4)
    assert result.backward == pytest.approx(math.exp(totals[1] / count), rel=1e-4)
    assert result.mean == pytest.approx(math.exp(totals.sum() / 2 / count), rel=1e-4)
    assert (result.words, result.sentences) == (count, 5)
    assert result.unknown == 0


@pytest.mark.parametrize("words_per_batch", [1, 9, 10_000])
@pytest.mark.parametrize("sorted_together", [2, 4096])
def test_batches_and_order_do_not_matter(model, tokenizer, monkeypatch, words_per_batch, sorted_together):
    expected = perplexity(model, tokenizer, DatasetTexts(TEXTS))
    monkeypatch.setattr(perplexity_module, "SORTED_TOGETHER", sorted_together)
    turned = perplexity(model, tokenizer, DatasetTexts(TEXTS[::-1]), words_per_batch=words_per_batch)
    assert turned.forward == pytest.approx(expected.forward, rel=1e-5)
    assert turned.backward == pytest.approx(expected.backward, rel=1e-5)


def test_files_are_split_by_the_tokenizer_unless_they_are_tokenised(model, tokenizer, tmp_path):
    (tmp_path / "raw.txt").write_text("The cat (yes!)\n\n", encoding="utf-8")
    assert perplexity(model, tokenizer, tmp_path / "raw.txt").words == 7
    assert perplexity(model, tokenizer, tmp_path / "raw.txt", pretokenized=True).words == 4


def test_unknown_words_are_counted(model, tokenizer):
    assert perplexity(model, tokenizer, DatasetTexts(["the zebra"])).unknown == pytest.approx(1 / 3)


def test_stateful_perplexity_of_too_little_text_says_how_many_rows_it_needs(model, tokenizer):
    with pytest.raises(ValueError, match=r"fewer sentences than the 99 rows.* smaller batch_size"):
        perplexity(model, tokenizer, DatasetTexts(TEXTS), stateful=True, batch_size=99)


def test_stateful_perplexity_carries_the_state(model, tokenizer):
    """bilm-tf's way with one row: one long pass over the packed sentences in either direction."""
    vocabulary = Vocabulary.of(tokenizer)
    sentences = [["<S>", *text.split(), "</S>"] for text in TEXTS]
    losses = []
    for way, ordered in enumerate((sentences, [sentence[::-1] for sentence in sentences])):
        reads = [word for sentence in ordered for word in sentence[:-1]]
        targets = [word for sentence in ordered for word in sentence[1:]]
        special = {"<S>": vocabulary.bos_id, "</S>": vocabulary.eos_id}
        rows = torch.tensor([tokenizer.convert_tokens_to_ids(reads)])
        numbers = [special.get(word, int(vocabulary.ids([word])[0])) for word in targets]
        with torch.no_grad():
            output = model(rows, backward_input_ids=rows)
        table = (output.forward_logits, output.backward_logits)[way][0].double().log_softmax(-1)
        losses.append(-table[range(len(numbers)), numbers].mean().item())
    result = perplexity(model, tokenizer, DatasetTexts(TEXTS), stateful=True, batch_size=1)
    assert result.forward == pytest.approx(math.exp(losses[0]), rel=1e-4)
    assert result.backward == pytest.approx(math.exp(losses[1]), rel=1e-4)
    assert result.forward != pytest.approx(perplexity(model, tokenizer, DatasetTexts(TEXTS)).forward, rel=1e-4)


def test_the_model_is_put_back_into_training_mode(model, tokenizer):
    model.train()
    perplexity(model, tokenizer, DatasetTexts(TEXTS))
    assert model.training


def test_no_text_is_an_error(model, tokenizer):
    with pytest.raises(ValueError, match="no text"):
        perplexity(model, tokenizer, DatasetTexts([]))


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
    loss = model(**inputs, labels=neighbour_labels(words)).loss.item()
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
