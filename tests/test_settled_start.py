"""A start that other text leaves, in place of zeros: made, kept with the weights, and used wherever sentences begin."""

from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import cpu_offload, disk_offload
from torch import Tensor

from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoModel,
    ElmoTokenizer,
    embed,
    kernels,
    settle,
    store_layers,
)
from tests.conftest import SENTENCES, TINY, random_model

TEXTS = ["The cat sat .", "It rained in Spain", "A mat", "so it goes on and on ,", "and ends"]


def states(model: ElmoModel) -> list[Tensor]:
    return [model.bilm.initial_hidden, model.bilm.initial_cell]


def encoded(tokenizer: ElmoTokenizer, texts: list[str]) -> dict[str, Tensor]:
    return dict(tokenizer(texts, padding=True, return_tensors="pt"))


@pytest.fixture
def settled(model: ElmoModel, tokenizer: ElmoTokenizer) -> ElmoModel:
    settle(model, tokenizer, TEXTS, batch_size=2)
    return model


# -- making it ---------------------------------------------------------------------------------------------------------


def test_one_text_leaves_its_state(model: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    left = model(**encoded(tokenizer, TEXTS[:1])).state
    settle(model, tokenizer, TEXTS[:1])
    for own, state in zip(states(model), left, strict=True):
        torch.testing.assert_close(own, state[:, :, 0], atol=1e-5, rtol=0)
    assert model.config.settled_start


def test_rows_go_on_from_text_to_text_and_the_mean_leaves_out_the_first_of_each(
    model: ElmoModel, tokenizer: ElmoTokenizer
) -> None:
    found = []
    for row in (TEXTS[0::2], TEXTS[1::2]):
        state = None
        for text in row:
            state = model(**encoded(tokenizer, [text]), state=state).state
            found.append((text, state))
    later = [state for text, state in found if text not in TEXTS[:2]]
    settle(model, tokenizer, TEXTS, batch_size=2)
    for number, own in enumerate(states(model)):
        mean = torch.stack([state[number][:, :, 0] for state in later]).double().mean(0)
        torch.testing.assert_close(own.double(), mean, atol=1e-5, rtol=0)  # rows together sum in another order


def test_again_it_is_made_from_zeros(settled: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    before = [part.clone() for part in states(settled)]
    settle(settled, tokenizer, TEXTS, batch_size=2)
    for part, again in zip(before, states(settled), strict=True):
        torch.testing.assert_close(again, part, atol=1e-5, rtol=0)


def test_texts_may_be_words(model: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    other = random_model(model.config)
    settle(model, tokenizer, TEXTS)
    settle(other, tokenizer, [text.split() for text in TEXTS])
    for part, found in zip(states(model), states(other), strict=True):
        torch.testing.assert_close(found, part, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": []}, "texts have no word"),
        ({"texts": ["", " "]}, "texts have no word"),
        ({"texts": "The cat"}, "must be a list of texts"),
        ({"texts": TEXTS, "batch_size": 0}, "batch_size is 0"),
    ],
)
def test_what_cannot_be_is_refused(model: ElmoModel, tokenizer: ElmoTokenizer, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settle(model, tokenizer, **arguments)
    assert not model.config.settled_start
    assert states(model) == [None, None]


def test_a_model_without_a_bilm_has_no_start(tokenizer: ElmoTokenizer) -> None:
    vectors = {"word_vectors_vocab_size": 5, "word_vectors_size": 3}
    model = ElmoForSequenceClassification(ElmoConfig(**TINY, use_elmo=False, **vectors))
    with pytest.raises(ValueError, match="use_elmo is False"):
        settle(model, tokenizer, TEXTS)


# -- using it ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backends", ["on", "off"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_call_starts_from_it(settled: ElmoModel, tokenizer: ElmoTokenizer, backends: str, dtype: torch.dtype) -> None:
    settled = settled.to(dtype)
    inputs = encoded(tokenizer, SENTENCES)
    state = tuple(part[:, :, None].expand(-1, -1, len(SENTENCES), -1) for part in states(settled))
    with kernels.use(backends), torch.no_grad():
        own = settled(**inputs, output_hidden_states=True)
        given = settled(**inputs, output_hidden_states=True, state=(state[0], state[1].float()))
        zeros = settled(**inputs, output_hidden_states=True, state=tuple(torch.zeros_like(part) for part in state))
    for found, wanted in zip((*own.hidden_states, *own.state), (*given.hidden_states, *given.state), strict=True):
        torch.testing.assert_close(found, wanted)
    assert not torch.allclose(own.hidden_states[1], zeros.hidden_states[1], atol=1e-2)


def test_vectors_do_not_depend_on_the_batch(settled: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    together = settled(**encoded(tokenizer, SENTENCES)).last_hidden_state
    for row, sentence in enumerate(SENTENCES):
        alone = settled(**encoded(tokenizer, [sentence])).last_hidden_state[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, atol=1e-5, rtol=0)


def test_embed_starts_from_it(settled: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    """Of whole rows, and of one that is read in windows."""
    wanted = settled(**encoded(tokenizer, SENTENCES), output_hidden_states=True).hidden_states[-1].detach().numpy()
    for how in ({}, {"window": 3}):
        for row, found in enumerate(embed(settled, SENTENCES, tokenizer=tokenizer, layers=2, **how)):
            np.testing.assert_allclose(found, wanted[row, 1 : len(found) + 1], atol=1e-5)


def test_padded_rows_start_from_it(settled: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    inputs = encoded(tokenizer, SENTENCES)
    mask = inputs["attention_mask"].bool()
    layers, state = settled.bilm.run_padded(settled.char_encoder.encode_all(inputs["input_ids"]), mask)
    packed = settled(**inputs, output_hidden_states=True)
    for found, wanted in zip((*layers, *state), (*packed.hidden_states, *packed.state), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("backends", ["on", "off"])
def test_it_learns_with_the_bilm(settled: ElmoModel, tokenizer: ElmoTokenizer, backends: str) -> None:
    """Its gradient is that of the state of each row, added up."""
    settled.unfreeze_bilm()
    inputs = encoded(tokenizer, SENTENCES)
    with kernels.use(backends):
        settled(**inputs).last_hidden_state.square().sum().backward()
        given = [part.detach()[:, :, None].repeat(1, 1, len(SENTENCES), 1).requires_grad_() for part in states(settled)]
        settled(**inputs, state=tuple(given)).last_hidden_state.square().sum().backward()
    for own, state in zip(states(settled), given, strict=True):
        torch.testing.assert_close(own.grad, state.grad.sum(2), rtol=1e-4, atol=1e-5)
        assert own.grad.any(2).all()


def test_frozen_it_stays(settled: ElmoModel) -> None:
    assert not any(part.requires_grad for part in states(settled))
    settled.unfreeze_bilm()
    assert all(part.requires_grad for part in states(settled))


def test_stored_layers_of_the_model_before_are_refused(tokenizer: ElmoTokenizer) -> None:
    from datasets import Dataset

    model = random_model(ElmoConfig(**TINY, classifier_dropout=0.0), ElmoForSequenceClassification)
    texts = Dataset.from_list([dict(tokenizer(sentence)) for sentence in SENTENCES])
    stored = store_layers(model, texts, dtype="float32")
    inputs = {name: torch.tensor(stored[0][name])[None] for name in ("bilm_layers", "special_tokens_mask")}
    model(**inputs)
    settle(model, tokenizer, TEXTS)
    with pytest.raises(ValueError, match="another biLM"):
        model(**inputs)


@pytest.mark.parametrize("offload", [cpu_offload, disk_offload])
def test_offloaded_it_is_there_when_it_is_needed(
    settled: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path, offload
) -> None:
    inputs = encoded(tokenizer, SENTENCES)
    with torch.no_grad():
        wanted = settled(**inputs).last_hidden_state
        folder = {} if offload is cpu_offload else {"offload_dir": tmp_path}
        offload(settled, **folder, execution_device=torch.device("cpu"))
        assert states(settled)[0].is_meta
        torch.testing.assert_close(settled(**inputs).last_hidden_state, wanted)
    with pytest.raises(ValueError, match="offloaded"):
        settle(settled, tokenizer, TEXTS)


# -- keeping it --------------------------------------------------------------------------------------------------------


def test_it_is_kept_with_the_weights(settled: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    settled.save_pretrained(tmp_path)
    inputs = encoded(tokenizer, SENTENCES)
    again = ElmoModel.from_pretrained(tmp_path)
    assert all(map(torch.equal, states(again), states(settled)))
    torch.testing.assert_close(again(**inputs).last_hidden_state, settled(**inputs).last_hidden_state)


def test_it_can_be_left_out(settled: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    settled.save_pretrained(tmp_path)
    again, report = ElmoModel.from_pretrained(tmp_path, settled_start=False, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert states(again) == [None, None]
    inputs = encoded(tokenizer, SENTENCES)
    wanted = random_model(ElmoConfig(**TINY))(**inputs).last_hidden_state
    torch.testing.assert_close(again(**inputs).last_hidden_state, wanted)


def test_a_checkpoint_may_bring_it_switched_off(settled: ElmoModel, tmp_path: Path) -> None:
    settled.config.settled_start = False
    settled.save_pretrained(tmp_path)
    assert states(ElmoModel.from_pretrained(tmp_path)) == [None, None]
    again = ElmoModel.from_pretrained(tmp_path, settled_start=True)
    assert all(map(torch.equal, states(again), states(settled)))


def test_a_checkpoint_without_it_is_refused(model: ElmoModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"has no such state: hf_elmo\.settle makes one"):
        ElmoModel.from_pretrained(tmp_path, settled_start=True)


@pytest.mark.parametrize("fixed", [None, 1])
def test_heads_and_language_models_have_it(tokenizer: ElmoTokenizer, tmp_path: Path, fixed: int | None) -> None:
    language_model = random_model(ElmoConfig(**TINY, vocab_size=7), ElmoForPreTraining)
    settle(language_model, tokenizer, TEXTS)
    language_model.save_pretrained(tmp_path)
    for switched_on in (True, False):
        how = {"settled_start": switched_on, "layer_weights": fixed}
        model, report = ElmoForSequenceClassification.from_pretrained(tmp_path, **how, output_loading_info=True)
        assert not report["unexpected_keys"]
        for own, wanted in zip(states(model.elmo), states(language_model.elmo), strict=True):
            assert torch.equal(own, wanted) if switched_on else own is None


def test_a_new_model_starts_from_zeros_that_it_learns() -> None:
    model = ElmoModel(ElmoConfig(**TINY, settled_start=True, freeze_bilm=False))
    for part in states(model):
        assert part.requires_grad
        assert not part.any()
