"""The numbers of ElmoModel: against a textbook ELMo, whatever the padding, the batch and the pieces."""

import pytest
import torch
from torch import Tensor

from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from tests.factories import SENTENCES, TINY
from tests.reference import sentence_layers

# Those whose gradients are compared, too, and others.
TRAINED = [{}, {"cell_clip": 0.4, "proj_clip": 0.3}, {"cell_size": 11}, {"num_hidden_layers": 1}]
ARCHITECTURES = [*TRAINED, {"char_activation": "tanh"}, {"num_highway_layers": 0}, {"num_highway_layers": 3}]
ARCHITECTURES += [{"hidden_size": 74, "cell_size": 41}, {"hidden_size": 74, "char_projection": True}]
ARCHITECTURES += [{"cell_size": 11, "cell_projection": True}, {"cell_clip": None, "proj_clip": None}]
ARCHITECTURES += [{"cell_clip": 0.3, "proj_clip": None}, {"cell_clip": None, "proj_clip": 0.2}]
ARCHITECTURES += [{"use_skip_connections": False}, {"num_hidden_layers": 4}, {"max_word_length": 61}]
ARCHITECTURES += [{"char_filters": [[1, 4], [7, 8], [50, 25]]}]
ARCHITECTURES += [{"max_word_length": 4, "char_filters": [[2, 5], [4, 6]]}]


def make(size: float = 1.0, dtype: torch.dtype = torch.float32, **changes: object) -> tuple[ElmoModel, ElmoTokenizer]:
    """A model whose matrices keep the size of vectors, so that rounding does not grow; with a larger
    `size`, gates saturate and clips take part."""
    model = ElmoModel(ElmoConfig(**{**TINY, **changes})).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in (*model.char_encoder.parameters(), *model.bilm.parameters()):
            scale = 0.1 if parameter.dim() == 1 else parameter[0].numel() ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale * size)
        model.char_encoder.embedding.weight[0] = 0
    return model.to(dtype), ElmoTokenizer(word_splitting="whitespace", max_word_length=model.config.max_word_length)


def near(found: Tensor | tuple, expected: Tensor | tuple, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("changes", ARCHITECTURES, ids=str)
def test_every_architecture_equals_the_textbook(changes: dict) -> None:
    model, tokenizer = make(3.0, torch.float64, **changes)
    state, textbook, how = None, [None] * 3, {"is_split_into_words": True, "return_tensors": "pt"}
    first = [["Ünïcödé", "日本語", "😀", ""], ["a"], ["long", "x" * 70]]
    second = [["y" * 43, "z" * 48], ["b"], [""] * 5]
    for batch in (first, second):
        output = model(**tokenizer(batch, padding=True, **how), state=state, output_hidden_states=True, use_cache=True)
        state = output.state
        for row, words in enumerate(batch):
            ids = tokenizer(words, **how)["input_ids"][0]
            layers, textbook[row] = sentence_layers(model, ids, textbook[row])
            near(torch.stack(output.hidden_states)[:, row, : len(ids)], layers, 1e-11)
            near(output.last_hidden_state[row, : len(ids)], layers.mean(0), 1e-11)
            near(output.pooler_output[row], layers.mean(0)[1:-1].mean(0), 1e-11)
            near(tuple(part[:, :, row] for part in state), textbook[row], 1e-11)


@pytest.mark.parametrize("changes", TRAINED, ids=str)
def test_gradients_equal_the_textbooks(changes: dict) -> None:
    model, tokenizer = make(3.0, torch.float64, **changes, freeze_bilm=False)
    texts = ["a river bank", "a bank"]
    weights = torch.randn(22, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    output = model(**tokenizer(texts, padding=True, padding_side="left", return_tensors="pt"))
    (output.last_hidden_state @ weights).square().sum().backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    mixes = [sentence_layers(model, tokenizer(text, return_tensors="pt")["input_ids"][0])[0] for text in texts]
    weighed = [torch.einsum("l,lws->ws", model.scalar_mix.scalars.softmax(0), mix) for mix in mixes]
    sum((model.scalar_mix.gamma * mix @ weights).square().sum() for mix in weighed).backward()
    model.char_encoder.embedding.weight.grad[0] = 0  # padding is part of no gradient
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def spread(inputs: dict) -> tuple[dict[str, Tensor], Tensor]:
    """The batch with six more positions, each row's words at any of them in their order; and where they are."""
    mask = inputs["attention_mask"].bool()
    order = torch.rand(len(mask), mask.shape[1] + 6, generator=torch.Generator().manual_seed(0)).argsort(1)
    places = order < mask.sum(1, keepdim=True)
    ids = inputs["input_ids"].new_zeros(*places.shape, 50)
    ids[places] = inputs["input_ids"][mask]
    return {"input_ids": ids, "attention_mask": places.long()}, places


def test_a_batch_gives_what_each_sentence_gives_alone(tokenizer, inputs) -> None:
    model, _ = make()
    batch, places = spread(inputs)
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True, use_cache=True)
        for tensor in (output.last_hidden_state, *output.hidden_states):
            assert torch.equal(tensor.any(2), places)
        filled = torch.where(places[:, :, None], batch["input_ids"], 77)
        assert torch.equal(model(filled, batch["attention_mask"]).last_hidden_state, output.last_hidden_state)
        for row, (sentence, place) in enumerate(zip(SENTENCES, places, strict=True)):
            alone = model(**tokenizer(sentence, return_tensors="pt"), output_hidden_states=True, use_cache=True)
            near(output.last_hidden_state[row, place], alone.last_hidden_state[0])
            near(output.pooler_output[row], alone.pooler_output[0])
            near(torch.stack(output.hidden_states)[:, row, place], torch.stack(alone.hidden_states)[:, 0])
            near(tuple(part[:, :, row] for part in output.state), tuple(part[:, :, 0] for part in alone.state))


def test_rows_without_words_are_zero_change_nothing_and_keep_their_state(inputs) -> None:
    model, _ = make()
    before, mask = model(**inputs, use_cache=True).state, inputs["attention_mask"].clone()
    mask[[1, 3]] = 0
    output = model(inputs["input_ids"], mask, state=before, output_hidden_states=True, use_cache=True)
    every = model(**inputs, state=before, output_hidden_states=True)
    near(*(torch.stack(each.hidden_states)[:, [0, 2]] for each in (output, every)))
    assert not output.last_hidden_state[[1, 3]].any()
    assert not output.pooler_output[[1, 3]].any()
    nothing = model(inputs["input_ids"], mask * 0, state=before, use_cache=True).state
    for old, new, unchanged in zip(before, output.state, nothing, strict=True):
        assert torch.equal(old, unchanged)
        assert torch.equal(old[:, :, [1, 3]], new[:, :, [1, 3]])
        assert not torch.equal(old[:, :, 2], new[:, :, 2])


def test_no_state_is_left_behind_none_is_changed_and_gradients_flow_back_through_it(inputs) -> None:
    model, _ = make(freeze_bilm=False)
    first = model(**inputs, use_cache=True)
    state = tuple(part.detach().clone() for part in first.state)
    model(**inputs, state=first.state).last_hidden_state.sum().backward()
    assert all(torch.equal(old, new) for old, new in zip(state, first.state, strict=True))
    assert torch.equal(model(**inputs).last_hidden_state, first.last_hidden_state)
    through = model.bilm.layers[0].lstm.weight_ih.grad.clone()
    model.zero_grad()
    model(**inputs, state=state).last_hidden_state.sum().backward()
    assert not torch.allclose(through, model.bilm.layers[0].lstm.weight_ih.grad)


@pytest.mark.parametrize(("mixes", "layer_norm"), [(1, False), (2, False), (2, True)])
def test_learned_mixes_of_layers_also_normalized_over_the_unpadded_positions(inputs, mixes: int, layer_norm) -> None:
    model, _ = make(num_scalar_mixes=mixes, scalar_mix_layer_norm=layer_norm)
    values = ([0.3, -1.2, 0.7], 1.7), ([2.0, 0.0, -0.5], -0.4)
    for mix, (scalars, gamma) in zip((model.scalar_mix, *model.further_mixes), values, strict=False):
        mix.scalars.data.copy_(torch.tensor(scalars))
        mix.gamma.data.fill_(gamma)
    batch, real = spread(inputs)
    output = model(**batch, output_hidden_states=True)
    layers = [layer[real].double() for layer in output.hidden_states]
    if layer_norm:
        layers = [(layer - layer.mean()) / layer.var(correction=0).sqrt() for layer in layers]
    assert (output.scalar_mixes is None) == (mixes == 1)
    found = output.scalar_mixes or (output.last_hidden_state,)
    assert found[0] is output.last_hidden_state
    for mix, own in zip(found, (model.scalar_mix, *model.further_mixes), strict=True):
        weights = own.scalars.double().softmax(0)
        expected = own.gamma * sum(w * layer for w, layer in zip(weights, layers, strict=True))
        near(mix[real].double(), expected, 1e-5 if layer_norm else 1e-6)
        assert not mix[~real].any()
    if layer_norm:  # computed in float32
        assert not model.half().scalar_mix([torch.full((3, 4), 0.25).half()] * 3).any()


def test_boundaries_of_pairs_are_left_out_of_the_pooled_vector(tokenizer) -> None:
    model, _ = make()
    how = {"padding": True, "return_special_tokens_mask": True, "return_tensors": "pt"}
    encoded = tokenizer(["a b c", "d"], ["e", "f g"], **how)
    special = encoded.pop("special_tokens_mask")
    output = model(**encoded)
    words = output.last_hidden_state * (1 - special)[:, :, None]
    near(output.pooler_output, words.sum(1) / (1 - special).sum(1, keepdim=True))
    assert torch.equal(model(**encoded, special_tokens_mask=special).pooler_output, output.pooler_output)
    everything = model(**encoded, special_tokens_mask=torch.zeros_like(special))
    near(everything.pooler_output, output.last_hidden_state.sum(1) / encoded["attention_mask"].sum(1, keepdim=True))
    assert not model(**tokenizer("", return_tensors="pt")).pooler_output.any()
