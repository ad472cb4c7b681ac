"""A start that other text leaves, in place of zeros: made, kept with the weights, and used wherever sentences begin."""

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_elmo import ElmoForPreTraining, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer, embed, kernels, settle
from tests.factories import SENTENCES, small_model

TEXTS = ["The cat sat .", "It rained in Spain", "A mat", "so it goes on and on ,", "and ends"]


def states(model: ElmoModel) -> list[Tensor]:
    return [model.bilm.initial_hidden, model.bilm.initial_cell]


@pytest.fixture
def settled(model: ElmoModel, tokenizer: ElmoTokenizer) -> ElmoModel:
    settle(model, TEXTS, tokenizer=tokenizer, batch_size=2)
    return model


@pytest.mark.parametrize("rows", [1, 2])
def test_it_is_the_mean_of_the_states_after_texts(model, tokenizer, rows: int) -> None:
    """Rows carry them from text to text; those after a row's first text do not count, unless there is no other."""
    texts, found = TEXTS[: 4 * rows - 3], []
    for row in range(rows):
        state = None
        for text in texts[row::rows]:
            state = model(**tokenizer(text, return_tensors="pt"), state=state, use_cache=True).state
            found.append((text, state))
    later = [state for text, state in found if text not in texts[:rows]] or [found[0][1]]
    for given in (texts, [text.split() for text in texts]):
        settle(model, given, tokenizer=tokenizer, batch_size=rows)
        for number, own in enumerate(states(model)):
            assert not own.requires_grad
            mean = torch.stack([state[number][:, :, 0] for state in later]).double().mean(0)
            torch.testing.assert_close(own.double(), mean, atol=1e-5, rtol=0)  # rows together sum in another order


@pytest.mark.parametrize("how", [("on", torch.float32), ("on", torch.bfloat16), ("off", torch.float32)], ids=str)
def test_each_sentence_starts_from_it(settled, inputs, how: tuple) -> None:
    backends, dtype = how
    settled = settled.to(dtype)
    hidden, cell = (part[:, :, None].expand(-1, -1, len(SENTENCES), -1) for part in states(settled))
    given, zeros = (hidden, cell.float()), (torch.zeros_like(hidden), torch.zeros_like(cell))
    with kernels.use(backends), torch.no_grad():
        wanted = inputs | {"output_hidden_states": True, "use_cache": True}
        found, expected, other = (settled(**wanted, state=state) for state in (None, given, zeros))
    torch.testing.assert_close((found.hidden_states, found.state), (expected.hidden_states, expected.state))
    assert not torch.allclose(found.hidden_states[1], other.hidden_states[1], atol=1e-2)


def test_embed_starts_from_it(settled, tokenizer, inputs) -> None:
    wanted = settled(**inputs, output_hidden_states=True).hidden_states[-1].detach().numpy()
    for how in ({}, {"shard_tokens": 3}):
        for row, found in enumerate(embed(settled, SENTENCES, tokenizer=tokenizer, layers=2, **how)):
            np.testing.assert_allclose(found, wanted[row, 1 : len(found) + 1], atol=1e-5)


@pytest.mark.parametrize("backends", ["on", "off"])
def test_it_is_trained_with_the_bilm(settled, inputs, backends: str) -> None:
    settled.freeze_bilm(False)
    with kernels.use(backends):
        settled(**inputs).last_hidden_state.square().sum().backward()
        given = [part.detach()[:, :, None].repeat(1, 1, len(SENTENCES), 1).requires_grad_() for part in states(settled)]
        settled(**inputs, state=tuple(given)).last_hidden_state.square().sum().backward()
    for own, state in zip(states(settled), given, strict=True):
        torch.testing.assert_close(own.grad, state.grad.sum(2), rtol=1e-4, atol=1e-5)
        assert own.grad.any(2).all()


@pytest.mark.parametrize("switched_on", [True, False])
def test_it_is_saved_with_the_weights(tokenizer, tmp_path, switched_on: bool) -> None:
    language_model = small_model(ElmoForPreTraining, vocab_size=7)
    settle(language_model, TEXTS, tokenizer=tokenizer)
    language_model.config.settled_start = not switched_on
    language_model.save_pretrained(tmp_path)
    for model_class in (ElmoModel, ElmoForSequenceClassification):
        how = {"settled_start": switched_on, "output_loading_info": True}
        model, report = model_class.from_pretrained(tmp_path, **how)
        assert not report["unexpected_keys"]
        for start, wanted in zip(states(model.base_model), states(language_model.elmo), strict=True):
            assert torch.equal(start, wanted) if switched_on else start is None
    small_model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="settled_start"):
        ElmoModel.from_pretrained(tmp_path, settled_start=True)


def test_a_tokenizer_of_another_model_is_refused(model: ElmoModel) -> None:
    for use in (embed, settle):
        with pytest.raises(ValueError, match=r"max_word_length, .* of the tokenizer are \(7, "):
            use(model, ["a cat"], tokenizer=ElmoTokenizer(max_word_length=7))
