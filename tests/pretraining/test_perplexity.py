"""Perplexity of the language models, against the probabilities of single sentences."""

import math

import pytest
import torch

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.pretraining.perplexity import perplexity
from hf_elmo.pretraining.texts import Texts
from hf_elmo.pretraining.vocabulary import Vocabulary
from tests.factories import TEXTS, sentence_ids, small_model
from tests.reference import sentence_layers


@pytest.fixture
def model(tokenizer: ElmoTokenizer) -> ElmoForPreTraining:
    return small_model(ElmoForPreTraining, vocab_size=len(tokenizer.vocabulary))


@torch.no_grad()
def carried_by_hand(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, rows: list[list[str]]) -> tuple:
    """Both perplexities of rows of sentences, each carried on from the one before, and the number of words."""
    losses = torch.zeros(2, dtype=torch.float64)
    vocabulary, count, size = Vocabulary.of(tokenizer), 0, model.config.projection_size
    for row in rows:
        states = [None, None]
        for text in row:
            tokens = torch.tensor(tokenizer.convert_tokens_to_ids(["<S>", *text.split(), "</S>"]))
            words = torch.from_numpy(sentence_ids(vocabulary, text))
            reads, targets = (tokens[:-1], tokens[1:]), (words[1:], words[:-1])
            for way in (0, 1):
                layers, states[way] = sentence_layers(model.elmo, reads[way], states[way])
                logits = layers[-1].split(size, dim=1)[way] @ model.lm_head.weight.T + model.lm_head.bias
                losses[way] -= logits.double().log_softmax(-1).gather(1, targets[way][:, None]).sum()
            count += len(words) - 1
    return tuple((losses / count).exp().tolist()), count


@pytest.mark.parametrize("words_per_batch", [1, 9, 10_000])
def test_perplexity_is_that_of_the_sentences_one_by_one(model, tokenizer, words_per_batch):
    expected, count = carried_by_hand(model, tokenizer, [[text] for text in TEXTS])
    result = perplexity(model, Texts(TEXTS), tokenizer=tokenizer, words_per_batch=words_per_batch)
    assert (result.forward, result.backward) == pytest.approx(expected, rel=1e-4)
    assert result.mean == pytest.approx(math.sqrt(math.prod(expected)), rel=1e-4)
    assert (result.words, result.sentences, result.unknown) == (count, len(TEXTS), 0)
    assert perplexity(model, ["the zebra", "cat"], tokenizer=tokenizer).unknown == 1 / 5


@pytest.mark.parametrize(("batch_size", "words_per_batch"), [(None, 4096), (None, 1), (4, 12), (4, 4096)])
def test_stateful_perplexity_is_that_of_each_row_sentence_after_sentence(model, tokenizer, batch_size, words_per_batch):
    texts = [*TEXTS, *TEXTS[::2], TEXTS[2]]
    rows = [[] for _ in range(batch_size or 1)]
    for text in texts:  # the row that ends first takes the next sentence
        min(rows, key=lambda row: sum(len(own.split()) + 1 for own in row)).append(text)
    expected, count = carried_by_hand(model, tokenizer, rows)
    how = {"stateful": True, "batch_size": batch_size, "words_per_batch": words_per_batch}
    result = perplexity(model, Texts(texts), tokenizer=tokenizer, **how)
    assert (result.words, result.sentences) == (count, len(texts))
    assert (result.forward, result.backward) == pytest.approx(expected, rel=1e-4)
