"""AllenNLP's names: its results and its statefulness, by the slow reference. (test_parity.py has its vectors.)"""

import copy
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from hf_elmo import ElmoTokenizer, allennlp
from hf_elmo.allennlp import Elmo, ElmoEmbedder, batch_to_ids
from hf_elmo.conversion import load
from tests.conversion.test_allennlp_archive import state_of
from tests.factories import write_lines
from tests.reference import NumpyELMo
from tests.source_files import make_arrays, make_options, write_files

FIRST = [["A", "small", "test", "."], ["Another", "one"], ["日本語"]]
SECOND = [["Two", "words"], ["And", "three", "more"]]
THIRD = [["The"], ["last"], ["batch", "of"], ["four", "rows"]]
TOLERANCE = 1e-5


def mix(output: dict, number: int = 0) -> np.ndarray:
    return output["elmo_representations"][number].detach().numpy()


def carried(source: tuple[Path, Path], batches: list[list[list[str]]]) -> list[list[np.ndarray]]:
    """The layers of each sentence, without boundaries, where row i goes on from the row i of the batches before."""
    reference, states, found = NumpyELMo(*source), {}, []
    for batch in batches:
        found.append([])
        for row, sentence in enumerate(batch):
            layers, states[row] = reference.layers(sentence, states.get(row))
            found[-1].append(layers[:, 1:-1])
    return found


def test_ids_are_those_of_the_tokenizer() -> None:
    ids = batch_to_ids(FIRST)
    encoded = ElmoTokenizer()(FIRST, is_split_into_words=True, padding=True, return_tensors="pt")["input_ids"]
    assert ids.shape == (3, 4, 50)
    assert torch.equal(ids[0], encoded[0, 1:-1])
    assert torch.equal(ids[2, 0], encoded[2, 1])
    assert not ids[1, 2:].any()
    assert torch.equal(batch_to_ids([["<S>", "x", "</S>"]])[0, ::2], encoded[0, [0, 5]])
    assert batch_to_ids([["<pad>"]]).any()  # a word like any other there
    assert batch_to_ids([]).shape == (0, 0, 50)


def test_the_embedder_carries_its_state_through_batches_of_other_sizes(source) -> None:
    embedder, batches = ElmoEmbedder(*source), [FIRST, SECOND, THIRD, FIRST]
    found = [embedder.embed_batch(batch) for batch in batches]
    torch.testing.assert_close(found, carried(source, batches), rtol=0, atol=TOLERANCE, check_dtype=False)
    again = embedder.embed_sentence(np.array(FIRST[0]))
    assert np.abs(again - embedder.embed_sentence(FIRST[0])).max() > 1e-4
    for stateful in (True, False):  # set as code for AllenNLP sets it
        embedder.elmo_bilm.reset_states()
        embedder.elmo_bilm._elmo_lstm.stateful = stateful
        for sentences in [FIRST] if stateful else [FIRST, SECOND]:
            (found,), expected = embedder.embed_batch(sentences[:1]), carried(source, [sentences])[0][0]
            np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_files(source, tmp_path) -> None:
    lines = ["one two", "a/b", "a/c d", "and / or", ". / ..", "./e", "a/./f"]
    text, out = write_lines(tmp_path / "text.txt", lines), str(tmp_path / "out.hdf5")
    expected = list(ElmoEmbedder(*source).embed_sentences(map(str.split, lines), batch_size=2))
    for output_format, choose in {"all": lambda x: x, "top": lambda x: x[-1], "average": lambda x: x.mean(0)}.items():
        ElmoEmbedder(*source).embed_file(text.open(), out, output_format, batch_size=2)
        with h5py.File(out) as file:
            for number, layers in enumerate(expected):
                np.testing.assert_allclose(file[str(number)][...], choose(layers), atol=1e-6)
            assert json.loads(file["sentence_to_index"][0]) == {line: str(number) for number, line in enumerate(lines)}
    ElmoEmbedder(*source).embed_file(text.open(), out, forget_sentences=True)
    with h5py.File(out) as file:
        assert sorted(file) == list("0123456")
    ElmoEmbedder(*source).embed_file(text.open(), out, use_sentence_keys=True)
    with h5py.File(out) as file:
        assert [file[line].shape for line in lines] == [(3, len(line.split()), 14) for line in lines]
        assert sorted(file["a"]) == ["b", "c d", "f"]
    for content in ("one\n\ntwo\n", "one\none\n"):  # an empty line, a sentence that is there twice
        text.write_text(content)
        with pytest.raises(ValueError):
            ElmoEmbedder(*source).embed_file(text.open(), out, use_sentence_keys=True)


def test_addresses_of_published_models(source, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr("hf_elmo.allennlp.download", lambda name: asked.append(name) or source)
    ElmoEmbedder()
    base = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/contributed/pt/elmo_pt"
    Elmo(f"{base}_options.json", f"{base}_weights.hdf5", 1)
    assert asked == ["original", "portuguese"]
    with pytest.raises(ValueError, match="address"):
        Elmo(f"{base}_options.json", "https://example.org/weights.hdf5", 1)


def test_the_module_mixes_as_its_options_say(source) -> None:
    elmo = Elmo(*map(str, source), num_output_representations=2, dropout=0.0)
    output = elmo(batch_to_ids(FIRST))
    assert elmo.get_output_dim() == 14
    assert len(output["elmo_representations"]) == 2
    assert output["mask"].tolist() == [[True] * 4, [True, True, False, False], [True, False, False, False]]
    for row, layers in enumerate(carried(source, [FIRST])[0]):
        found = mix(output, 1)[row]
        assert np.abs(found[: len(FIRST[row])] - layers.mean(0)).max() <= TOLERANCE
        assert not found[len(FIRST[row]) :].any()
    other = Elmo(None, None, 1, dropout=0.0, module=ElmoEmbedder(*source).elmo_bilm)
    assert np.array_equal(mix(other(batch_to_ids(FIRST))), mix(output))
    fixed = Elmo(*source, 1, dropout=0.0, scalar_mix_parameters=[-9e10, 1.0, -9e10])
    assert np.abs(mix(fixed(batch_to_ids(FIRST[:1])))[0] - carried(source, [FIRST])[0][0][1]).max() <= TOLERANCE
    assert not any(parameter.requires_grad for parameter in fixed.parameters())
    kept = Elmo(*source, 1, dropout=0.0, keep_sentence_boundaries=True)(batch_to_ids(FIRST))
    assert kept["elmo_representations"][0].shape == (3, 6, 14)
    assert kept["mask"].sum(1).tolist() == [6, 4, 3]
    assert not np.array_equal(*(mix(Elmo(*source, 1).train()(batch_to_ids(FIRST))) for _ in range(2)))  # dropout


def test_the_scalar_mix_alone() -> None:
    layers, weights = list(torch.randn(3, 2, 4, 5)), torch.tensor([0.5, -1.0, 2.0])
    mix = allennlp.ScalarMix(3, initial_scalar_parameters=weights)
    torch.testing.assert_close(mix(layers), torch.einsum("l,l...->...", weights.softmax(0), torch.stack(layers)))
    assert sorted(mix.state_dict()) == ["gamma", *(f"scalar_parameters.{layer}" for layer in range(3))]
    assert not any(one.requires_grad for one in allennlp.ScalarMix(3, trainable=False).parameters())
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    mix = allennlp.ScalarMix(3, do_layer_norm=True, initial_scalar_parameters=[0, 90, 0])
    normal = mix(layers, mask)[mask.bool()].detach()
    assert (float(normal.mean()), float(normal.var(correction=0))) == pytest.approx((0, 1), abs=1e-4)


@pytest.mark.parametrize("how", [{}, {"do_layer_norm": True}, {"vocab_to_cache": np.array(["", "a"])}], ids=str)
def test_sentences_that_are_all_without_words(source, how: dict) -> None:
    for shape in ((2, 0), (0, 0), (2, 3, 0)):
        ids, elmo = torch.zeros(*shape, 50, dtype=torch.int64), Elmo(*source, 2, **how)
        output = elmo(ids, ids[..., 0]) if "vocab_to_cache" in how else elmo(ids)
        assert [tuple(one.shape) for one in output["elmo_representations"]] == [(*shape, 14)] * 2
        assert output["mask"].shape == shape
        assert output["mask"].dtype == torch.int64  # as in AllenNLP 0.9: `1 - mask` works
    embedder = ElmoEmbedder(*source)
    for empty in ([], np.array([])):  # AllenNLP's, whatever the model
        assert embedder.embed_sentence(empty).shape == (3, 0, 1024)
    assert [array.shape for array in embedder.embed_batch([["a"], []])] == [(3, 1, 14), (3, 0, 1024)]
    kept = Elmo(*source, 1, dropout=0.0, keep_sentence_boundaries=True)(batch_to_ids([[], []]))
    assert kept["mask"].tolist() == [[True, True]] * 2
    for row in mix(kept):
        assert np.abs(row - NumpyELMo(*source).layers([])[0].mean(0)).max() <= TOLERANCE


def test_words_by_their_places_in_a_list_and_batches_of_four_dimensions(source) -> None:
    cached = ["@@PADDING@@", "@@UNKNOWN@@", *sorted({word for row in FIRST for word in row})]
    ids, stop, plain = batch_to_ids(FIRST), cached.index("."), Elmo(*source, 1, dropout=0.0)
    by_place = Elmo(*source, 1, dropout=0.0, vocab_to_cache=cached)
    places = torch.tensor([[cached.index(word) for word in row + ["@@PADDING@@"] * (4 - len(row))] for row in FIRST])
    expected = plain(ids)
    deep = Elmo(*source, 1, dropout=0.0)(torch.stack([ids] * 2, dim=1))
    found = by_place(torch.zeros_like(ids)[:, None].expand(-1, 2, -1, -1), places[:, None].expand(-1, 2, -1))
    for output in (deep, found):
        assert output["mask"].tolist() == [[row] * 2 for row in expected["mask"].tolist()]
        np.testing.assert_allclose(mix(output), mix(expected)[:, None].repeat(2, axis=1), atol=1e-6)
    for number, words in ((1, ["A", "@@UNKNOWN@@", "."]), (len(cached), ["A", "heron", "."])):
        for elmo in (by_place, plain):
            elmo._elmo_lstm.reset_states()
        place = torch.tensor([[cached.index("A"), number, stop]])
        found = by_place(batch_to_ids([["A", "heron", "."]]), place)
        np.testing.assert_allclose(mix(found), mix(plain(batch_to_ids([words]))), atol=1e-6)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_gradients_of_any_character_ids(source, requires_grad: bool) -> None:
    """At each training step those of the batch alone: the carried state has no graph, whatever rows a batch has."""
    elmo, without = (Elmo(*source, 1, requires_grad=requires_grad, dropout=0.0) for _ in range(2))
    for rows in (2, 1, 3, 2):
        ids = torch.randint(0, 262, (rows, 4, 50), generator=torch.Generator().manual_seed(rows))
        for network in (elmo, copy.deepcopy(without)):
            network.zero_grad()
            network(ids)["elmo_representations"][0].sum().backward()
        with torch.no_grad():
            without(ids)
        for (name, found), wanted in zip(elmo.named_parameters(), network.parameters(), strict=True):
            assert (found.grad is not None) == (requires_grad or "_elmo_lstm" not in name)
            torch.testing.assert_close(found.grad, wanted.grad)


def test_a_network_that_was_trained_with_allennlp_is_loaded(source, tmp_path) -> None:
    learned = ([0.5, -1.25, 2.0], 1.5)
    other = write_files(tmp_path / "other", None, make_arrays(make_options(), seed=1))
    network = nn.ModuleDict({"elmo": Elmo(*source, 1, dropout=0.0), "head": nn.Linear(14, 2)})
    state = state_of(load(*other), [learned], prefix="elmo.")
    state |= {f"head.{name}": value for name, value in network["head"].state_dict().items()}
    network.load_state_dict(state)
    weights = torch.softmax(torch.tensor(learned[0]), 0).numpy() * learned[1]
    wanted = np.einsum("l,lwv->wv", weights, carried(other, [FIRST])[0][0])
    np.testing.assert_allclose(mix(network["elmo"](batch_to_ids(FIRST)))[0], wanted, atol=1e-5)
    del state["elmo._elmo_lstm._elmo_lstm.forward_layer_1.state_projection.weight"]
    with pytest.raises(RuntimeError, match=r"layers\.1\.lstm\.weight_hr"):
        network.load_state_dict(state)


def test_the_smaller_names(source, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(source[0].parent))
    ids = batch_to_ids(FIRST)
    embedder = allennlp.ElmoTokenEmbedder("~/options.json", f"~/{source[1].name}", dropout=0.0)
    assert ids[0, 1].tolist() == allennlp.ELMoCharacterMapper.convert_word_to_char_ids(FIRST[0][1])
    found = embedder(ids)
    embedder._elmo._elmo_lstm.reset_states()
    output = embedder._elmo._elmo_lstm(ids)
    mixed = embedder._elmo.scalar_mix_0(output["activations"])
    words, mask = allennlp.remove_sentence_boundaries(mixed, output["mask"])
    torch.testing.assert_close(words, found)
    assert mask.sum(1).tolist() == list(map(len, FIRST))
    assert embedder.get_output_dim() == found.shape[2]
