"""Perplexity of the language models, against the probabilities of single sentences."""

import logging
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
from tests.plain_elmo import sentence_layers


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


@torch.no_grad()
def carried_by_hand(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, rows: list[list[str]]) -> list[float]:
    """Forward and backward perplexity of rows of sentences by the textbook: each sentence goes on from the state that
    the one before it in its row left."""
    losses = torch.zeros(2, dtype=torch.float64)
    vocabulary, count, size = Vocabulary.of(tokenizer), 0, model.config.projection_size
    for row in rows:
        states = [None, None]
        for text in row:
            tokens = torch.tensor(tokenizer.convert_tokens_to_ids(["<S>", *text.split(), "</S>"]))
            words = torch.from_numpy(vocabulary.sentence_ids(text.split()))
            reads, targets = (tokens[:-1], tokens[1:]), (words[1:], words[:-1])
            for way in (0, 1):
                layers, states[way] = sentence_layers(model.elmo, reads[way], states[way])
                logits = layers[-1].split(size, dim=1)[way] @ model.lm_head.weight.T + model.lm_head.bias
                losses[way] -= logits.double().log_softmax(-1).gather(1, targets[way][:, None]).sum()
            count += len(words) - 1
    return [*(losses / count).exp().tolist(), count]


@pytest.mark.parametrize("words_per_batch", [1, 12, 4096])
@pytest.mark.parametrize("batch_size", [None, 1, 2, 4])
def test_stateful_perplexity_is_that_of_each_row_sentence_after_sentence(model, tokenizer, batch_size, words_per_batch):
    texts = [*TEXTS, *TEXTS[::2], TEXTS[2]]
    rows = [[] for _ in range(batch_size or 1)]
    for text in texts:  # the row that ends first takes the next sentence
        min(rows, key=lambda row: sum(len(own.split()) + 1 for own in row)).append(text)
    forward, backward, count = carried_by_hand(model, tokenizer, rows)
    how = {} if batch_size is None else {"batch_size": batch_size}
    result = perplexity(model, tokenizer, DatasetTexts(texts), stateful=True, words_per_batch=words_per_batch, **how)
    assert (result.words, result.sentences) == (count, len(texts))
    assert result.forward == pytest.approx(forward, rel=1e-4)
    assert result.backward == pytest.approx(backward, rel=1e-4)


def test_rows_are_as_many_as_the_text_fills(model, tokenizer, monkeypatch):
    """By default a row for so many words, so that most sentences go on from another one."""
    texts = TEXTS * 20
    words = sum(len(text.split()) + 1 for text in texts)
    alone = perplexity(model, tokenizer, DatasetTexts(texts), stateful=True, batch_size=1)
    found = perplexity(model, tokenizer, DatasetTexts(texts), stateful=True)
    assert (found.words, found.sentences) == (words, 100)
    assert found == alone
    for words_of_a_row, sentences_of_a_row, most, rows in (
        (words // 7, 1, 256, 7),
        (words // 7, 1, 3, 3),
        (words // 50, 20, 256, 5),
        (2 * words, 1, 256, 1),
    ):
        monkeypatch.setattr(perplexity_module, "WORDS_OF_A_ROW", words_of_a_row)
        monkeypatch.setattr(perplexity_module, "SENTENCES_OF_A_ROW", sentences_of_a_row)
        monkeypatch.setattr(perplexity_module, "MOST_ROWS", most)
        given = perplexity(model, tokenizer, DatasetTexts(texts), stateful=True, batch_size=rows)
        assert perplexity(model, tokenizer, DatasetTexts(texts), stateful=True) == given
        assert (given.words, given.sentences) == (words, 100)


def test_rows_that_carry_little_are_warned_of(model, tokenizer, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    perplexity(model, tokenizer, DatasetTexts(TEXTS), stateful=True, batch_size=2)
    assert caplog.messages == []
    result = perplexity(model, tokenizer, DatasetTexts(TEXTS), stateful=True, batch_size=3)
    assert result.sentences == 5
    (message,) = caplog.messages
    assert "5 sentences are read in 3 rows, so 2 of them go on" in message
    assert "a smaller batch_size (--batch-size)" in message


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"stateful": True, "batch_size": 99},
            r"fewer sentences than the 99 rows.*, 5: .* smaller batch_size \(--batch",
        ),
        ({"stateful": True, "batch_size": 0}, "batch_size is 0, but must be 1 or more"),
        ({"batch_size": 3}, r"batch_size is 3, but has no effect without stateful \(--stateful\): leave it out"),
    ],
)
def test_rows_that_cannot_be_are_refused(model, tokenizer, how, message):
    with pytest.raises(ValueError, match=message):
        perplexity(model, tokenizer, DatasetTexts(TEXTS), **how)


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


@pytest.mark.parametrize("how", [{}, {"stateful": True}, {"stateful": True, "batch_size": 2}], ids=str)
def test_no_text_is_an_error(model, tokenizer, tmp_path, how):
    with pytest.raises(ValueError, match="no text to compute"):
        perplexity(model, tokenizer, DatasetTexts([]), **how)
    (tmp_path / "blank.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"no text to compute a perplexity of: .*blank\.txt has no words\."):
        perplexity(model, tokenizer, tmp_path / "blank.txt", **how)


@pytest.mark.parametrize("words_per_batch", [5, 12, 30])
def test_batches_hold_no_more_words_than_they_may(words_per_batch):
    sentences = [["yes"] * (1 + number % 9) for number in range(40)]
    batches = list(perplexity_module.sentence_batches(sentences, words_per_batch))
    assert sorted(number for batch in batches for number, _ in batch) == list(range(40))
    for batch in batches:
        width = max(len(words) for _, words in batch) + 2  # with its boundaries
        assert len(batch) == 1 or len(batch) * width <= words_per_batch
