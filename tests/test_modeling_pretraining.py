"""ElmoForPreTraining: nothing sees the word it predicts, the loss is what it says, and it is saved and loaded."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.modeling_pretraining_elmo import neighbor_labels
from hf_elmo.tokenization_elmo import words_to_character_ids
from tests.factories import SENTENCES
from tests.heads import batch_of, make

VOCAB_SIZE = 31


@pytest.fixture
def model() -> ElmoForPreTraining:
    return make("language models", num_sampled=11)


@pytest.fixture
def batch(tokenizer: ElmoTokenizer) -> dict[str, torch.Tensor]:
    return batch_of(tokenizer, "language models")


@pytest.mark.parametrize(("padding_side", "place"), [("right", 1), ("left", 4), ("right", 7)])
def test_a_word_does_not_move_its_own_prediction(model, tokenizer, padding_side, place):
    inputs = dict(tokenizer(SENTENCES, padding=True, return_tensors="pt", padding_side=padding_side))
    row = 0  # 9 words with its boundaries, of 20 with padding
    first = int(inputs["attention_mask"][row].argmax())
    other = {**inputs, "input_ids": inputs["input_ids"].clone()}
    other["input_ids"][row, first + place] = torch.from_numpy(words_to_character_ids(["zebra"])[0])
    with torch.no_grad():
        before, after = model(**inputs), model(**other)
    # Another word makes another number of words, in which MKL's sums may be taken in another order: of at most 40
    # products of a size below 4 they differ by 40 * 4 * 2**-24 = 1e-5.
    names = ("forward_logits", "backward_logits")
    moved = [(before[name][row] - after[name][row]).abs().amax(1) > 1e-5 for name in names]
    length = int(inputs["attention_mask"][row].sum())
    positions = torch.arange(len(moved[0])) - first
    inside = (positions >= 0) & (positions < length)
    # The forward LM predicts word k + 1 at k: what it says of words up to `place` stays, all later predictions move.
    assert torch.equal(moved[0], inside & (positions >= place))
    assert torch.equal(moved[1], inside & (positions <= place))


def test_loss_is_the_mean_of_both_directions_in_nats(model, batch):
    output = model(**batch, output_logits=True)
    both = output.forward_logits, output.backward_logits
    means = [cross_entropy(x.mT, labels) for x, labels in zip(both, batch["labels"].unbind(2), strict=True)]
    torch.testing.assert_close([output.forward_loss, output.backward_loss, output.loss], [*means, sum(means) / 2])
    nll, _ = model.word_nll(**batch)
    assert (nll[batch["labels"] == -100] == 0).all()
    torch.testing.assert_close(nll.sum() / (batch["labels"] != -100).sum(), output.loss)


def test_labels_are_the_neighbors():
    words = torch.tensor([[0, 7, 8, 1], [0, 9, 1, 5]])
    labels = neighbor_labels(words, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
    assert labels[..., 0].tolist() == [[7, 8, 1, -100], [9, 1, -100, -100]]
    assert labels[..., 1].tolist() == [[-100, 0, 7, 8], [-100, 0, 9, -100]]
    left = neighbor_labels(torch.tensor([[5, 0, 9, 1]]), torch.tensor([[0, 1, 1, 1]]))
    assert left[..., 0].tolist() == [[-100, 9, 1, -100]]
    assert left[..., 1].tolist() == [[-100, -100, 0, 9]]


def test_training_samples_the_softmax_and_evaluation_does_not(model, batch):
    full = [model.eval()(**batch).loss.item() for _ in range(2)]
    sampled = [model.train()(**batch).loss.item() for _ in range(2)]
    assert full[0] == full[1]
    assert sampled[0] != sampled[1]
    model.config.num_sampled = VOCAB_SIZE
    assert model(**batch).loss.item() == pytest.approx(full[0], rel=1e-5)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_labels_and_words_that_do_not_fit(model, batch, training):
    """Indexing would take -1 from the end of the vocabulary; -100 is no label."""
    model.train(training)
    for value in (-1, -101, VOCAB_SIZE):
        wrong = {**batch, "labels": batch["labels"].clone()}
        wrong["labels"][0, 1, 1] = value
        for call in (model, model.word_nll):
            with pytest.raises(ValueError, match="labels"):
                call(**wrong)
    with pytest.raises(ValueError, match="labels has the shape"):
        model(**{**batch, "labels": batch["labels"][:, 1:]})
    with pytest.raises(ValueError, match="backward_input_ids"):
        model(batch["input_ids"], backward_input_ids=batch["input_ids"][:, 1:])
    output = model(**{**batch, "labels": torch.full_like(batch["labels"], -100)})
    assert [output.loss, output.forward_loss, output.backward_loss] == [0, 0, 0]
