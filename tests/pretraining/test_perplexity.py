"""Perplexity of the language models, against the probabilities of single sentences."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.pretraining import perplexity as perplexity_module
from hf_elmo.pretraining.perplexity import perplexity
from hf_elmo.pretraining.text import DatasetTexts
from hf_elmo.pretraining.vocabulary import Vocabulary
from tests.language_models import TEXTS, sentence_logits, small_language_model, small_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    return small_tokenizer(tmp_path)


@pytest.fixture
def model(tokenizer: ElmoTokenizer) -> ElmoForPreTraining:
    return small_language_model(tokenizer)


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


def test_files_are_split_by_the_tokenizer_unless_they_are_pretokenized(model, tokenizer, tmp_path):
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
    for direction, ordered in enumerate((sentences, [sentence[::-1] for sentence in sentences])):
        reads = [word for sentence in ordered for word in sentence[:-1]]
        targets = [word for sentence in ordered for word in sentence[1:]]
        special = {"<S>": vocabulary.bos_id, "</S>": vocabulary.eos_id}
        rows = torch.tensor([tokenizer.convert_tokens_to_ids(reads)])
        numbers = [special.get(word, int(vocabulary.ids([word])[0])) for word in targets]
        with torch.no_grad():
            output = model(rows, backward_input_ids=rows)
        table = (output.forward_logits, output.backward_logits)[direction][0].double().log_softmax(-1)
        losses.append(-table[range(len(numbers)), numbers].mean().item())
    result = perplexity(model, tokenizer, DatasetTexts(TEXTS), stateful=True, batch_size=1)
    assert result.forward == pytest.approx(math.exp(losses[0]), rel=1e-4)
    assert result.backward == pytest.approx(math.exp(losses[1]), rel=1e-4)
    assert result.forward != pytest.approx(perplexity(model, tokenizer, DatasetTexts(TEXTS)).forward, rel=1e-4)


def test_the_model_is_put_back_into_training_mode(model, tokenizer):
    model.train()
    perplexity(model, tokenizer, DatasetTexts(TEXTS))
    assert model.training


def test_no_text_is_an_error(model, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="no text"):
        perplexity(model, tokenizer, DatasetTexts([]))
    (tmp_path / "blank.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"no text to compute a perplexity of: .*blank\.txt has no words\."):
        perplexity(model, tokenizer, tmp_path / "blank.txt")
