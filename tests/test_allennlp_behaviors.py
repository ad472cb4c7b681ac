"""
What AllenNLP's own tests and pages ask of its ELMo (`tests/modules/elmo_test.py`, `tests/commands/elmo_test.py`,
`tests/data/token_indexers/elmo_indexer_test.py` of 0.9, `tutorials/how_to/elmo.md`), asked of ours: of its test model
where the shared data is, and of models that are made here.
"""

import copy
import io
import itertools
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hf_elmo.allennlp
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


def test_vectors_of_words_are_layer_0_twice(theirs: Files) -> None:
    folder = theirs[0].parent
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n")[:458]
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    rows = [words[start : start + 50] for start in range(0, 458, 50)]
    found = np.concatenate([layers[0] for layers in ElmoEmbedder(*theirs).embed_batch(rows)])
    np.testing.assert_allclose(found, np.concatenate((expected, expected), axis=1), rtol=1e-5, atol=1e-6)


def test_boundaries_as_words_have_the_vectors_of_the_boundaries_that_are_added(files: Files) -> None:
    embedder = ElmoEmbedder(*files)
    for word, place in (("<S>", 0), ("</S>", 2)):
        layers = embedder.elmo_bilm(batch_to_ids([[word]]))["activations"]
        assert torch.equal(layers[0][0, place], layers[0][0, 1])
        assert layers[0][0].unique(dim=0).shape[0] == 2


def test_what_the_bilm_gives(files: Files) -> None:
    bilm = ElmoEmbedder(*files).elmo_bilm
    output = bilm(batch_to_ids(SHORT_AND_LONG))
    assert output.keys() == {"activations", "mask"}
    assert [tuple(layer.shape) for layer in output["activations"]] == [(2, 9, bilm.get_output_dim())] * bilm.num_layers
    assert output["mask"].sum(1).tolist() == [5, 9]
    assert output["mask"].dtype == torch.bool
    layers, mask = ElmoEmbedder(*files).batch_to_embeddings(SHORT_AND_LONG)
    assert layers.shape == (2, 3, 7, bilm.get_output_dim())
    assert mask.tolist() == [[1] * 3 + [0] * 4, [1] * 7]
    assert (1 - mask).sum() == 4  # of 0.9, where a mask is integers


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
    """By the place of `@@UNKNOWN@@` it has the vector of that; by a place beyond the list its characters are read."""
    ids, numbers = batch_to_ids([["A", "heron", "."]]), places([["A", "heron", "."]])
    assert numbers[0, 1] == 1
    unknown = Elmo(*files, 1, dropout=0.0)(batch_to_ids([["A", "@@UNKNOWN@@", "."]]))
    found = Elmo(*files, 1, dropout=0.0, vocab_to_cache=CACHED)(ids, numbers)
    np.testing.assert_allclose(mix(found), mix(unknown), atol=1e-6)
    numbers[0, 1] = len(CACHED)
    read = Elmo(*files, 1, dropout=0.0, vocab_to_cache=CACHED)(ids, numbers)
    np.testing.assert_allclose(mix(read), mix(Elmo(*files, 1, dropout=0.0)(ids)), atol=1e-6)


def test_places_without_a_list_are_warned_of_and_not_read(made: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(hf_elmo.allennlp.logger, "warning", said.append)
    ids = batch_to_ids(SHORT_AND_LONG)
    found = Elmo(*made, 1, dropout=0.0)(ids, torch.zeros(2, 7, dtype=torch.int64))
    assert np.array_equal(mix(found), mix(Elmo(*made, 1, dropout=0.0)(ids)))
    assert len(said) == 1
    assert "without vocab_to_cache" in said[0]


# -- the module --------------------------------------------------------------------------------------------------------


def test_shapes_with_and_without_boundaries(files: Files) -> None:
    ids = batch_to_ids(SHORT_AND_LONG)
    for keep, length in ((False, 7), (True, 9)):
        elmo = Elmo(*files, 2, dropout=0, keep_sentence_boundaries=keep)
        output = elmo(ids)
        assert [tuple(one.shape) for one in output["elmo_representations"]] == [(2, length, elmo.get_output_dim())] * 2
        assert output["mask"].shape == (2, length)


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


def test_a_bilm_of_its_own_as_the_module(files: Files) -> None:
    bilm = ElmoEmbedder(*files).elmo_bilm
    elmo = Elmo(None, None, 2, dropout=0.0, module=bilm)
    ids = batch_to_ids(SHORT_AND_LONG)
    assert elmo._elmo_lstm is bilm
    assert elmo.get_output_dim() == bilm.get_output_dim()
    assert np.array_equal(mix(elmo(ids), 1), mix(Elmo(*files, 2, dropout=0.0)(ids), 1))


def test_any_module_of_its_kind(made: Files) -> None:
    class Lengths(nn.Module):
        num_layers = 2

        def get_output_dim(self) -> int:
            return 1

        def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict:
            found = nn.functional.pad((inputs < 258).sum(2, keepdim=True).float(), (0, 0, 1, 1))
            return {"activations": [found, 3 * found], "mask": torch.ones(found.shape[:2], dtype=torch.bool)}

    elmo = Elmo(None, None, 1, dropout=0.0, module=Lengths())
    assert mix(elmo(batch_to_ids([["One", "three"]])))[0, :, 0].tolist() == [6.0, 10.0]  # (1 + 3) / 2 of 3 and of 5


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
    again = nn.ModuleDict({"elmo": Elmo(*other, 1, dropout=0.0)})
    again.load_state_dict(network.state_dict())
    assert np.array_equal(mix(again["elmo"](ids)), expected)


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
    with pytest.raises(ValueError, match=r"the state dict's elmo\._elmo_lstm\.: tensor .* is missing"):
        network.load_state_dict(state)


# -- the embedder, and what its command wrote --------------------------------------------------------------------------


def written(files: Files, lines: list[str], tmp_path: Path, **how: object) -> dict[str, np.ndarray | dict]:
    out = str(tmp_path / "out.hdf5")
    ElmoEmbedder(*files).embed_file(io.StringIO("\n".join(lines)), out, **how)
    with h5py.File(out) as file:
        found = {key: file[key][...] for key in file if key != "sentence_to_index"}
        return found | {key: json.loads(file[key][0]) for key in file if key == "sentence_to_index"}


def test_one_sentence_without_a_line_break(files: Files, tmp_path: Path) -> None:
    line = "The storks came back in March ."
    layers = ElmoEmbedder(*files).embed_sentence(line.split())
    of_formats = {"all": layers, "top": layers[2], "average": (layers[0] + layers[1] + layers[2]) / 3}
    for output_format, expected in of_formats.items():
        found = written(files, [line], tmp_path, output_format=output_format)
        assert found.keys() == {"0", "sentence_to_index"}
        assert found["0"].dtype == np.float32
        np.testing.assert_allclose(found["0"], expected, rtol=1e-4, atol=1e-6)
        assert found["sentence_to_index"] == {line: "0"}
    with pytest.raises(ValueError, match="output_format is 'last', but must be all, top or average"):
        written(files, [line], tmp_path, output_format="last")


def test_lines_by_their_numbers(made: Files, tmp_path: Path) -> None:
    lines = [*LINES, LINES[-1]]  # one of them twice
    found = written(made, lines, tmp_path)
    assert found.keys() == {"0", "1", "2", "3", "sentence_to_index"}
    assert [found[str(number)].shape for number in range(4)] == [(3, len(line.split()), 14) for line in lines]
    assert found["sentence_to_index"] == {LINES[0]: "0", LINES[1]: "1", LINES[2]: "3"}
    assert written(made, lines, tmp_path, forget_sentences=True).keys() == {"0", "1", "2", "3"}


def test_lines_by_themselves(made: Files, tmp_path: Path) -> None:
    found = written(made, [LINES[0], LINES[2]], tmp_path, use_sentence_keys=True)
    assert {key: layers.shape for key, layers in found.items()} == {LINES[0]: (3, 7, 14), LINES[2]: (3, 2, 14)}
    with pytest.raises(ValueError, match="A sentence is there twice"):
        written(made, [LINES[2], LINES[2]], tmp_path, use_sentence_keys=True)


def test_lines_with_slashes_are_in_groups(made: Files, tmp_path: Path) -> None:
    """As AllenNLP writes them: each is read by itself."""
    lines, out = ["a/b", "a/c d", "and / or", ". / ..", "./e", "a/./f"], str(tmp_path / "out.hdf5")
    ElmoEmbedder(*made).embed_file(io.StringIO("\n".join(lines)), out, use_sentence_keys=True)
    with h5py.File(out) as file:
        assert [file[line].shape for line in lines] == [(3, len(line.split()), 14) for line in lines]
        assert sorted(file["a"]) == ["b", "c d", "f"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["A b .", "."],
            r"line 2 of the input, '\.', cannot be a key, in which / follows a group: it names a group",
        ),
        (
            ["/"],
            r"line 1 of the input, '/', .* a group\. Leave out use_sentence_keys, and they are keyed by",
        ),
        (["and/"], r"line 1 of the input, 'and/', .*: it names a group"),
        (["a", "b", "a/b"], r"line 3 of the input, 'a/b', .*: line 1 would be its group, and is a dataset"),
        (["b", "a/b", "a/c", "a"], r"line 4 of the input, 'a', .*: it is a group, in which line 2 is"),
        (["a/b", "/a//b"], r"line 2 of the input, '/a//b', .*: line 1 has the same key"),
        (["a/./b"], r"line 1 of the input, 'a/\./b', .*: no group is made by the name of '\.'"),
        (["a\0b"], r"line 1 of the input, 'a\\x00b', .*: its name would end at the NUL"),
        (["a \udcff"], r"line 1 of the input, 'a \\udcff', .*: UTF-8 has no surrogates"),
    ],
)
def test_lines_that_can_be_no_keys(made: Files, tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written(made, lines, tmp_path, use_sentence_keys=True)
    assert not (tmp_path / "out.hdf5").exists()
    assert len(written(made, lines, tmp_path)) == len(lines) + 1  # by number they are written


def test_keys_are_refused_where_hdf5_refuses_them() -> None:
    """Of all short lines of these characters, and of all pairs of shorter ones."""

    def taken(*lines: str) -> bool:
        with h5py.File("in memory", "w", driver="core", backing_store=False) as file:
            try:
                for line in lines:
                    file.create_dataset(line, data=[1.0])
            except (TypeError, ValueError):
                return False
        return True

    def allowed(*lines: str) -> bool:
        try:
            hf_elmo.allennlp._require_keys(list(lines))
        except ValueError:
            return False
        return True

    lines = ["".join(characters) for size in range(1, 6) for characters in itertools.product("a./", repeat=size)]
    assert [line for line in lines if allowed(line) != taken(line)] == []
    pairs = itertools.product([line for line in lines if len(line) < 4 and allowed(line)], repeat=2)
    assert [pair for pair in pairs if allowed(*pair) != taken(*pair)] == []


def test_empty_lines_are_named(made: Files, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"empty lines at indexes \[1, 2\]"):
        written(made, ["A", "", " ", "B"], tmp_path)


def test_a_sentence_without_words_among_others(files: Files) -> None:
    found = list(ElmoEmbedder(*files).embed_sentences([["This", "is", "one"], []]))
    assert [array.shape[:2] for array in found] == [(3, 3), (3, 0)]
    assert [one.shape for one in ElmoEmbedder(*files).embed_sentences(iter([[]]))] == [(3, 0, 1024)]


def test_the_examples_of_the_page(files: Files) -> None:
    embedder = ElmoEmbedder(*files)
    words = ["I", "saw", "a", "heron", "near", "home"]
    first, second = embedder.embed_sentence(words), embedder.embed_sentence([*words[:3], "stork", *words[4:]])
    assert len(first) == 3
    assert [len(layer) for layer in first] == [6] * 3
    one, other = first[2][3], second[2][3]
    assert -1 < np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other) < 0.9999
    assert embedder.embed_sentence("A heron.").shape[:2] == (3, 8)  # a string: its characters are the words
    output = Elmo(*files, 2, dropout=0)(batch_to_ids([["First", "sentence", "."], ["Another", "."]]))
    size = embedder.elmo_bilm.get_output_dim()
    assert [tuple(one.shape) for one in output["elmo_representations"]] == [(2, 3, size)] * 2


# -- character ids -----------------------------------------------------------------------------------------------------


def test_ids_of_words_and_of_places_without_words() -> None:
    def word(*characters: int) -> list[int]:
        return [259, *characters, 260] + [261] * (48 - len(characters))

    ids = batch_to_ids([["<S>", "</S>", "\u0100t"], ["Second", "."]]).tolist()
    assert ids[0] == [word(257), word(258), word(197, 129, 117)]
    assert ids[1] == [word(84, 102, 100, 112, 111, 101), word(47), [0] * 50]
