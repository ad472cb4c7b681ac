"""
What AllenNLP's own tests and pages ask of its ELMo (`tests/modules/elmo_test.py`, `tests/commands/elmo_test.py`,
`tests/data/token_indexers/elmo_indexer_test.py` of 0.9, `tutorials/how_to/elmo.md`), asked of ours: of its test model
where the shared data is, and of models that are made here.
"""

import copy
import io
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hf_elmo.allennlp import Elmo, ElmoEmbedder, batch_to_ids
from hf_elmo.conversion import load

from .allennlp_files import make_arrays, make_options, write_files
from .conversion.test_allennlp_archive import state_of

Files = tuple[Path, Path]
SHORT_AND_LONG = [["A", "tree", "."], ["Storks", "nest", "on", "the", "old", "chimney", "."]]
LINES = ["The storks came back in March .", "and / or : a line with a slash", "Twice ."]


@pytest.fixture
def made(tmp_path: Path) -> Files:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


@pytest.fixture
def theirs(shared: Path) -> Files:
    folder = shared / "data" / "elmo_fixture"
    return folder / "options.json", folder / "lm_weights.hdf5"


@pytest.fixture(params=["made", "theirs"])
def files(request: pytest.FixtureRequest) -> Files:
    return request.getfixturevalue(request.param)


def mix(output: dict, number: int = 0) -> np.ndarray:
    return output["elmo_representations"][number].detach().numpy()


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


def test_boundaries_as_words_have_the_vectors_of_the_boundaries_that_are_added(files: Files) -> None:
    embedder = ElmoEmbedder(*files)
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


def test_words_of_the_list_have_the_vectors_of_their_characters(files: Files) -> None:
    ids, numbers = batch_to_ids(SHORT_AND_LONG), places(SHORT_AND_LONG)
    plain = Elmo(*files, 1, dropout=0.0)(ids)
    cached = Elmo(*files, 1, dropout=0.0, vocab_to_cache=CACHED)(torch.zeros_like(ids), numbers)
    np.testing.assert_allclose(mix(cached), mix(plain), atol=1e-6)
    assert torch.equal(cached["mask"], plain["mask"])
    deep = Elmo(*files, 1, dropout=0.0, vocab_to_cache=CACHED)(
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


def test_a_bilm_without_state_starts_from_zero(made: Files) -> None:
    elmo, ids = Elmo(*made, 1, dropout=0.0), batch_to_ids(SHORT_AND_LONG)
    first = mix(elmo(ids))
    assert np.abs(mix(elmo(ids)) - first).max() > 1e-4  # the page's note on statefulness
    elmo._elmo_lstm._elmo_lstm.stateful = False
    assert np.array_equal(mix(elmo(ids)), first)


def test_another_bilm_as_the_module(files: Files) -> None:
    bilm = ElmoEmbedder(*files).elmo_bilm
    elmo = Elmo(None, None, 2, dropout=0.0, module=bilm)
    ids = batch_to_ids(SHORT_AND_LONG)
    assert elmo._elmo_lstm is bilm
    assert elmo.get_output_dim() == bilm.get_output_dim()
    assert np.array_equal(mix(elmo(ids), 1), mix(Elmo(*files, 2, dropout=0.0)(ids), 1))


@pytest.mark.parametrize("requires_grad", [True, False])
def test_gradients_of_any_character_ids(files: Files, requires_grad: bool) -> None:
    elmo = Elmo(*files, 1, requires_grad=requires_grad)
    ids = torch.randint(0, 262, (3, 4, 50), generator=torch.Generator().manual_seed(0))
    elmo(ids)["elmo_representations"][0].sum().backward()
    of_the_bilm = {name: one.grad for name, one in elmo.named_parameters() if "_elmo_lstm" in name}
    assert len(of_the_bilm) > 10
    assert all((grad is not None) == requires_grad for grad in of_the_bilm.values())
    assert all(one.grad is not None for name, one in elmo.named_parameters() if name not in of_the_bilm)


def test_the_mixes_parameters_by_their_names(made: Files) -> None:
    """The page gives them a small L2 penalty by these names."""
    elmo = Elmo(*made, 2)
    names = {name for name, _ in elmo.named_parameters() if not name.startswith("_elmo_lstm.")}
    each = ("gamma", *(f"scalar_parameters.{layer}" for layer in range(3)))
    assert names == {f"scalar_mix_{number}.{name}" for number in (0, 1) for name in each}
    assert all(one.shape == (1,) for name, one in elmo.named_parameters() if name in names)


def test_a_trained_network_keeps_what_it_learned(made: Files, tmp_path: Path) -> None:
    ids, elmo = batch_to_ids(SHORT_AND_LONG), Elmo(*made, 1, dropout=0.0)
    network = nn.ModuleDict({"elmo": elmo})
    with torch.no_grad():
        elmo.scalar_mix_0.scalar_parameters[2].fill_(2.0)
    expected = mix(copy.deepcopy(elmo)(ids))
    other = write_files(tmp_path / "other", make_options(), make_arrays(make_options(), seed=1))
    loaded = nn.ModuleDict({"elmo": Elmo(*other, 1, dropout=0.0)})
    loaded.load_state_dict(network.state_dict())
    assert np.array_equal(mix(loaded["elmo"](ids)), expected)


def test_a_network_that_was_trained_with_allennlp_is_loaded(made: Files, tmp_path: Path) -> None:
    learned = ([0.5, -1.25, 2.0], 1.5)
    other = write_files(tmp_path / "other", make_options(), make_arrays(make_options(), seed=1))
    network = nn.ModuleDict({"elmo": Elmo(*made, 1, dropout=0.0), "head": nn.Linear(14, 2)})
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


# -- the embedder, and what its command wrote --------------------------------------------------------------------------


def written(files: Files, lines: list[str], tmp_path: Path, **how: object) -> dict[str, np.ndarray | dict]:
    out = str(tmp_path / "out.hdf5")
    ElmoEmbedder(*files).embed_file(io.StringIO("\n".join(lines)), out, **how)
    with h5py.File(out) as file:
        found = {key: file[key][...] for key in file if key != "sentence_to_index"}
        return found | {key: json.loads(file[key][0]) for key in file if key == "sentence_to_index"}


def test_lines_by_their_numbers(made: Files, tmp_path: Path) -> None:
    lines = [*LINES, LINES[-1]]  # one of them twice
    found = written(made, lines, tmp_path)
    assert found.keys() == {"0", "1", "2", "3", "sentence_to_index"}
    assert [found[str(number)].shape for number in range(4)] == [(3, len(line.split()), 14) for line in lines]
    assert found["sentence_to_index"] == {LINES[0]: "0", LINES[1]: "1", LINES[2]: "3"}
    assert written(made, lines, tmp_path, forget_sentences=True).keys() == {"0", "1", "2", "3"}


def test_lines_with_slashes_are_in_groups(made: Files, tmp_path: Path) -> None:
    """As AllenNLP writes them: each is read by itself."""
    lines, out = ["a/b", "a/c d", "and / or", ". / ..", "./e", "a/./f"], str(tmp_path / "out.hdf5")
    ElmoEmbedder(*made).embed_file(io.StringIO("\n".join(lines)), out, use_sentence_keys=True)
    with h5py.File(out) as file:
        assert [file[line].shape for line in lines] == [(3, len(line.split()), 14) for line in lines]
        assert sorted(file["a"]) == ["b", "c d", "f"]
