"""AllenNLP's names: its results and its statefulness, against the slow reference and against AllenNLP itself; and what
its own tests and pages ask (`tests/modules/elmo_test.py` and `tests/commands/elmo_test.py` of 0.9, its tutorial), asked
of its test model, where the shared data is, and of a model that is made here."""

import json
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hf_elmo import ElmoTokenizer
from hf_elmo import allennlp as names
from hf_elmo.allennlp import Elmo, ElmoEmbedder, ScalarMix, batch_to_ids
from hf_elmo.conversion import load

from .allennlp_files import make_arrays, make_options, write_files
from .conversion.test_allennlp_archive import state_of
from .reference import NumpyELMo

FIRST = [["A", "small", "test", "."], ["Another", "one"], ["日本語"]]
SECOND = [["Two", "words"], ["And", "three", "more"]]
THIRD = [["The"], ["last"], ["batch", "of"], ["four", "rows"]]
TOLERANCE = 1e-5


Files = tuple[Path, Path]
SHORT_AND_LONG = [["A", "tree", "."], ["Storks", "nest", "on", "the", "old", "chimney", "."]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


@pytest.fixture
def theirs(shared: Path) -> Files:
    folder = shared / "data" / "elmo_fixture"
    return folder / "options.json", folder / "lm_weights.hdf5"


@pytest.fixture(params=["files", "theirs"])
def either(request: pytest.FixtureRequest) -> Files:
    return request.getfixturevalue(request.param)


def mix(output: dict, number: int = 0) -> np.ndarray:
    return output["elmo_representations"][number].detach().numpy()


def carried(files: Files, batches: list[list[list[str]]]) -> list[list[np.ndarray]]:
    """The layers of each sentence, without boundaries, where row i goes on from the row i of the batches before."""
    reference, states, found = NumpyELMo(*files), {}, []
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


def test_the_embedder_carries_its_state_from_batch_to_batch(files: Files) -> None:
    embedder = ElmoEmbedder(*files)
    batches = [FIRST, SECOND, THIRD, FIRST]
    for batch, expected in zip(batches, carried(files, batches), strict=True):
        for found, layers in zip(embedder.embed_batch(batch), expected, strict=True):
            assert found.shape == layers.shape
            assert np.abs(found - layers).max() <= TOLERANCE
    again = embedder.embed_sentence(FIRST[0])
    assert np.abs(again - embedder.embed_sentence(FIRST[0])).max() > 1e-4
    embedder.elmo_bilm.reset_states()
    assert np.abs(embedder.embed_sentence(FIRST[0]) - carried(files, [FIRST])[0][0]).max() <= TOLERANCE


def test_empty_sentences(files: Files) -> None:
    embedder = ElmoEmbedder(*files)
    assert embedder.embed_sentence([]).shape == (3, 0, 1024)  # AllenNLP's, whatever the model
    assert [array.shape for array in embedder.embed_batch([["a"], []])] == [(3, 1, 14), (3, 0, 1024)]
    assert list(embedder.embed_sentences([])) == []


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_a_file(files: Files, tmp_path: Path, output_format: str) -> None:
    sentences, text = [*FIRST, *SECOND], tmp_path / "text.txt"
    text.write_text("\n".join(map(" ".join, sentences)) + "\n", encoding="utf-8")
    out = tmp_path / "out.hdf5"
    with text.open(encoding="utf-8") as lines:
        ElmoEmbedder(*files).embed_file(lines, str(out), output_format, batch_size=2)
        assert lines.closed
    expected = list(ElmoEmbedder(*files).embed_sentences(sentences, batch_size=2))
    choose = {"all": lambda x: x, "top": lambda x: x[-1], "average": lambda x: x.mean(0)}[output_format]
    with h5py.File(out) as file:
        for number, layers in enumerate(expected):
            np.testing.assert_allclose(file[str(number)][...], choose(layers), atol=1e-6)
        index = json.loads(file["sentence_to_index"][0])
        assert index == {" ".join(sentence): str(number) for number, sentence in enumerate(sentences)}
    ElmoEmbedder(*files).embed_file(text.open(encoding="utf-8"), str(out), forget_sentences=True)
    with h5py.File(out) as file:
        assert sorted(file) == list("01234")


def test_a_file_keyed_by_sentences_and_one_with_a_gap(files: Files, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", str(tmp_path / "out.hdf5")
    lines = ["one two", "a/b", "a/c d", "and / or", ". / ..", "./e", "a/./f"]  # a slash makes a group, as in AllenNLP
    text.write_text("\n".join(lines))
    ElmoEmbedder(*files).embed_file(text.open(), out, use_sentence_keys=True)
    with h5py.File(out) as file:
        assert [file[line].shape for line in lines] == [(3, len(line.split()), 14) for line in lines]
        assert sorted(file["a"]) == ["b", "c d", "f"]
    for content in ("one\n\ntwo\n", "one\none\n"):  # an empty line, a sentence that is there twice
        text.write_text(content)
        with pytest.raises(ValueError):
            ElmoEmbedder(*files).embed_file(text.open(), out, use_sentence_keys=True)


def test_the_module_mixes(files: Files) -> None:
    elmo = Elmo(*files, num_output_representations=2, dropout=0.0)
    output = elmo(batch_to_ids(FIRST))
    assert elmo.get_output_dim() == 14
    assert len(output["elmo_representations"]) == 2
    assert output["mask"].tolist() == [[True] * 4, [True, True, False, False], [True, False, False, False]]
    for row, layers in enumerate(carried(files, [FIRST])[0]):
        found = output["elmo_representations"][1][row].detach().numpy()
        assert np.abs(found[: len(FIRST[row])] - layers.mean(0)).max() <= TOLERANCE
        assert not found[len(FIRST[row]) :].any()


def test_options_of_the_module(files: Files) -> None:
    ids, (layers, *_) = batch_to_ids([FIRST[0], SECOND[0]]), carried(files, [FIRST])[0]
    fixed = Elmo(*files, 1, dropout=0.0, scalar_mix_parameters=[-9e10, 1.0, -9e10])
    found = fixed(ids)["elmo_representations"][0][0].detach().numpy()
    assert np.abs(found - layers[1]).max() <= TOLERANCE
    assert not any(parameter.requires_grad for parameter in fixed.parameters())
    kept = Elmo(*files, 1, dropout=0.0, keep_sentence_boundaries=True)(ids)
    assert kept["elmo_representations"][0].shape == (2, 6, 14)
    assert kept["mask"].sum(1).tolist() == [6, 4]
    normal = Elmo(*files, 1, dropout=0.0, do_layer_norm=True)(ids)["elmo_representations"][0]
    assert abs(float(normal.mean())) < 0.5
    assert not torch.equal(*(Elmo(*files, 1).train()(ids)["elmo_representations"][0] for _ in range(2)))  # dropout


def test_the_scalar_mix_alone() -> None:
    layers, weights = list(torch.randn(3, 2, 4, 5)), torch.tensor([0.5, -1.0, 2.0])
    mix = ScalarMix(3, initial_scalar_parameters=weights.tolist())
    expected = sum(weight * layer for weight, layer in zip(weights.softmax(0), layers, strict=True))
    torch.testing.assert_close(mix(layers), expected)
    assert sorted(mix.state_dict()) == ["gamma", *(f"scalar_parameters.{layer}" for layer in range(3))]
    assert not any(one.requires_grad for one in ScalarMix(3, trainable=False).parameters())
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    normal = ScalarMix(3, do_layer_norm=True, initial_scalar_parameters=[0, 90, 0])(layers, mask)[mask.bool()]
    assert abs(float(normal.mean())) < 1e-5
    assert abs(float(normal.var(correction=0)) - 1) < 1e-4


def test_sentences_that_are_all_without_words(files: Files) -> None:
    none = torch.zeros(2, 3, 0, 50, dtype=torch.int64)
    for ids, shape in ((batch_to_ids([[], []]), (2, 0)), (batch_to_ids([]), (0, 0)), (none, (2, 3, 0))):
        for how in ({}, {"do_layer_norm": True}, {"vocab_to_cache": ["", "a"]}):
            elmo = Elmo(*files, 2, **how)
            output = elmo(ids, ids[..., 0]) if "vocab_to_cache" in how else elmo(ids)
            assert [tuple(one.shape) for one in output["elmo_representations"]] == [(*shape, 14)] * 2
            assert output["mask"].shape == shape
            assert output["mask"].dtype == torch.int64  # as in AllenNLP 0.9: `1 - mask` works
    kept = Elmo(*files, 1, dropout=0.0, keep_sentence_boundaries=True)(batch_to_ids([[], []]))
    assert kept["mask"].tolist() == [[True, True]] * 2
    for row in kept["elmo_representations"][0].detach().numpy():
        assert np.abs(row - NumpyELMo(*files).layers([])[0].mean(0)).max() <= TOLERANCE


def test_addresses_of_published_models(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(names, "download", lambda name: asked.append(name) or files)
    ElmoEmbedder()
    base = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/contributed/pt/elmo_pt"
    Elmo(f"{base}_options.json", f"{base}_weights.hdf5", 1)
    assert asked == ["original", "portuguese"]
    with pytest.raises(ValueError, match="address"):
        Elmo(f"{base}_options.json", "https://example.org/weights.hdf5", 1)


# -- the biLM ----------------------------------------------------------------------------------------------------------


def test_stored_activations_in_batches_of_three(theirs: Files) -> None:
    """TensorFlow read three streams side by side, ten sentences each, and went on in each from its last state."""
    folder = theirs[0].parent
    streams = json.loads((folder / "sentences.json").read_text())
    stored = [h5py.File(folder / f"lm_embeddings_{stream}.hdf5") for stream in range(3)]
    expected = [np.concatenate(stored[n][str(i)][...], axis=1) for i in range(10) for n in range(3)]
    sentences = [streams[n][i].split() for i in range(10) for n in range(3)]
    found = list(ElmoEmbedder(*theirs).embed_sentences(sentences, batch_size=3))
    assert len(found) == 30
    for layers, one in zip(found, expected, strict=True):
        np.testing.assert_allclose(layers[2], one, rtol=1e-5, atol=1e-6)


def test_boundaries_as_words_have_the_vectors_of_the_boundaries_that_are_added(either: Files) -> None:
    embedder = ElmoEmbedder(*either)
    for word, place in (("<S>", 0), ("</S>", 2)):
        layers = embedder.elmo_bilm(batch_to_ids([[word]]))["activations"]
        assert torch.equal(layers[0][0, place], layers[0][0, 1])
        assert layers[0][0].unique(dim=0).shape[0] == 2


# -- words by their places in a list -----------------------------------------------------------------------------------

CACHED = ["@@PADDING@@", "@@UNKNOWN@@", *sorted({word for sentence in SHORT_AND_LONG for word in sentence})]


def places(sentences: list[list[str]]) -> Tensor:
    longest = max(map(len, sentences))
    rows = [[CACHED.index(word) if word in CACHED else 1 for word in sentence] for sentence in sentences]
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def test_words_of_the_list_have_the_vectors_of_their_characters(either: Files) -> None:
    ids, numbers = batch_to_ids(SHORT_AND_LONG), places(SHORT_AND_LONG)
    plain = Elmo(*either, 1, dropout=0.0)(ids)
    cached = Elmo(*either, 1, dropout=0.0, vocab_to_cache=CACHED)(torch.zeros_like(ids), numbers)
    np.testing.assert_allclose(mix(cached), mix(plain), atol=1e-6)
    assert torch.equal(cached["mask"], plain["mask"])
    deep = Elmo(*either, 1, dropout=0.0, vocab_to_cache=CACHED)(
        ids[:, None].expand(-1, 4, -1, -1), numbers[:, None].expand(-1, 4, -1)
    )
    assert deep["mask"].shape == (2, 4, 7)
    for place in range(4):
        np.testing.assert_allclose(mix(deep)[:, place], mix(plain), atol=1e-6)


def test_a_word_that_is_not_in_the_list(files: Files) -> None:
    """With the place of `@@UNKNOWN@@` it has the vector of that word; with a place beyond the list, its own."""
    ids, numbers = batch_to_ids([["A", "heron", "."]]), places([["A", "heron", "."]])
    assert numbers[0, 1] == 1
    unknown = Elmo(*files, 1, dropout=0.0)(batch_to_ids([["A", "@@UNKNOWN@@", "."]]))
    found = Elmo(*files, 1, dropout=0.0, vocab_to_cache=CACHED)(ids, numbers)
    np.testing.assert_allclose(mix(found), mix(unknown), atol=1e-6)
    numbers[0, 1] = len(CACHED)
    read = Elmo(*files, 1, dropout=0.0, vocab_to_cache=CACHED)(ids, numbers)
    np.testing.assert_allclose(mix(read), mix(Elmo(*files, 1, dropout=0.0)(ids)), atol=1e-6)


# -- the module --------------------------------------------------------------------------------------------------------


def test_four_dimensions_are_the_batches_one_by_one(files: Files) -> None:
    batches = [SHORT_AND_LONG, [["1", "2"], list("1234567")], [["1", "2", "3", "4", "50", "60", "70"], ["A"]]]
    each = [batch_to_ids(batch) for batch in batches]
    elmo = Elmo(*files, 2, dropout=0.0)
    together = elmo(torch.stack(each, dim=1))
    assert together["mask"].shape == (2, 3, 7)
    for place, ids in enumerate(each):
        elmo._elmo_lstm._elmo_lstm.reset_states()  # so in code for AllenNLP
        np.testing.assert_allclose(mix(together)[:, place], mix(elmo(ids)), atol=1e-6)


def test_a_bilm_without_state_starts_from_zero(files: Files) -> None:
    elmo, ids = Elmo(*files, 1, dropout=0.0), batch_to_ids(SHORT_AND_LONG)
    first = mix(elmo(ids))
    assert np.abs(mix(elmo(ids)) - first).max() > 1e-4  # the page's note on statefulness
    elmo._elmo_lstm._elmo_lstm.stateful = False
    assert np.array_equal(mix(elmo(ids)), first)


def test_another_bilm_as_the_module(either: Files) -> None:
    bilm = ElmoEmbedder(*either).elmo_bilm
    elmo = Elmo(None, None, 2, dropout=0.0, module=bilm)
    ids = batch_to_ids(SHORT_AND_LONG)
    assert elmo._elmo_lstm is bilm
    assert elmo.get_output_dim() == bilm.get_output_dim()
    assert np.array_equal(mix(elmo(ids), 1), mix(Elmo(*either, 2, dropout=0.0)(ids), 1))


@pytest.mark.parametrize("requires_grad", [True, False])
def test_gradients_of_any_character_ids(either: Files, requires_grad: bool) -> None:
    elmo = Elmo(*either, 1, requires_grad=requires_grad)
    ids = torch.randint(0, 262, (3, 4, 50), generator=torch.Generator().manual_seed(0))
    elmo(ids)["elmo_representations"][0].sum().backward()
    of_the_bilm = {name: one.grad for name, one in elmo.named_parameters() if "_elmo_lstm" in name}
    assert len(of_the_bilm) > 10
    assert all((grad is not None) == requires_grad for grad in of_the_bilm.values())
    assert all(one.grad is not None for name, one in elmo.named_parameters() if name not in of_the_bilm)


def test_a_network_that_was_trained_with_allennlp_is_loaded(files: Files, tmp_path: Path) -> None:
    learned = ([0.5, -1.25, 2.0], 1.5)
    other = write_files(tmp_path / "other", make_options(), make_arrays(make_options(), seed=1))
    network = nn.ModuleDict({"elmo": Elmo(*files, 1, dropout=0.0), "head": nn.Linear(14, 2)})
    state = state_of(load(*other), [learned], prefix="elmo.")
    state |= {f"head.{name}": value for name, value in network["head"].state_dict().items()}
    network.load_state_dict(state)
    expected = Elmo(*other, 1, dropout=0.0)
    weights = torch.softmax(torch.tensor(learned[0]), 0) * learned[1]
    layers = expected._elmo_lstm(batch_to_ids(SHORT_AND_LONG))["activations"]
    wanted = sum(weight * layer for weight, layer in zip(weights, layers, strict=True))[:, 1:-1]
    found = network["elmo"](batch_to_ids(SHORT_AND_LONG))
    np.testing.assert_allclose(mix(found)[1], wanted[1].detach(), atol=1e-5)
    del state["elmo._elmo_lstm._elmo_lstm.forward_layer_0.state_projection.weight"]
    with pytest.raises(ValueError, match=r"forward_layer_0\.state_projection\.weight"):
        network.load_state_dict(state)


def test_the_results_of_allennlp_itself(files: Files, shared: Path, allennlp_python: str, tmp_path: Path) -> None:
    """Three batches of different sizes in a row, two mixes, and the ids; words by their places, and a state dict."""
    script, saved, weights = tmp_path / "peer.py", tmp_path / "out.npz", tmp_path / "elmo.th"
    script.write_text(PEER)
    batches = json.dumps([FIRST, SECOND, THIRD, FIRST])
    command = [allennlp_python, script, shared / "peers" / "allennlp_elmo.py", *files, batches, saved, weights]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    elmo = Elmo(*files, num_output_representations=2, dropout=0.0)
    with np.load(saved) as arrays, torch.no_grad():
        for number, batch in enumerate(json.loads(batches)):
            ids = batch_to_ids(batch)
            assert np.array_equal(ids, arrays[f"ids{number}"])
            output = elmo(ids)
            assert np.array_equal(output["mask"], arrays[f"mask{number}"])
            difference = output["elmo_representations"][1].numpy() - arrays[f"mix{number}"]
            assert np.abs(difference * arrays[f"mask{number}"][..., None]).max() <= TOLERANCE
        for name, places in (("known", [[2, 3, 1]]), ("beyond", [[2, 9, 1]])):
            cached = Elmo(*files, 1, dropout=0.0, vocab_to_cache=["@@PADDING@@", "@@UNKNOWN@@", "a", "small"])
            found = cached(batch_to_ids([["x", "y", "z"]]), torch.tensor(places))["elmo_representations"][0]
            assert np.abs(found.numpy() - arrays[name]).max() <= TOLERANCE
        other = write_files(tmp_path / "other", make_options(), make_arrays(make_options(), seed=1))
        loaded = Elmo(*other, 1, dropout=0.0, do_layer_norm=True)
        loaded.load_state_dict(torch.load(weights))
        found = loaded(batch_to_ids(FIRST))["elmo_representations"][0]
        assert np.abs(found.numpy() - arrays["loaded"]).max() <= TOLERANCE


PEER = """
import importlib.util, json, sys
import numpy as np, torch
helper, options, weights, batches, saved, state = sys.argv[1:]
spec = importlib.util.spec_from_file_location("allennlp_elmo", helper)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.fill_in_removed_names()
from allennlp.modules.elmo import Elmo, batch_to_ids
elmo, arrays = Elmo(options, weights, num_output_representations=2, dropout=0.0).eval(), {}
for number, batch in enumerate(json.loads(batches)):
    ids = batch_to_ids(batch)
    with torch.no_grad():
        output = elmo(ids)
    arrays |= {f"ids{number}": ids, f"mask{number}": output["mask"], f"mix{number}": output["elmo_representations"][1]}
with torch.no_grad():
    for name, places in (("known", [[2, 3, 1]]), ("beyond", [[2, 9, 1]])):
        words = ["@@PADDING@@", "@@UNKNOWN@@", "a", "small"]
        elmo = Elmo(options, weights, 1, dropout=0.0, vocab_to_cache=words).eval()
        arrays[name] = elmo(batch_to_ids([["x", "y", "z"]]), torch.tensor(places))["elmo_representations"][0]
    elmo = Elmo(options, weights, 1, dropout=0.0, do_layer_norm=True).eval()
    elmo.scalar_mix_0.scalar_parameters[1].fill_(0.75)
    elmo.scalar_mix_0.gamma.fill_(1.5)
    torch.save(elmo.state_dict(), state)
    arrays["loaded"] = elmo(batch_to_ids(json.loads(batches)[0]))["elmo_representations"][0]
np.savez(saved, **{name: tensor.numpy() for name, tensor in arrays.items()})
"""
