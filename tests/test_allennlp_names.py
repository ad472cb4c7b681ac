"""AllenNLP's names: its results and its statefulness, against the slow reference and against AllenNLP itself."""

import json
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from hf_elmo import ElmoTokenizer
from hf_elmo import allennlp as names
from hf_elmo.allennlp import Elmo, ElmoEmbedder, ScalarMix, batch_to_ids

from .allennlp_files import make_arrays, make_options, write_files
from .reference import NumpyELMo

FIRST = [["A", "small", "test", "."], ["Another", "one"], ["日本語"]]
SECOND = [["Two", "words"], ["And", "three", "more"]]
THIRD = [["The"], ["last"], ["batch", "of"], ["four", "rows"]]
TOLERANCE = 1e-5


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


def carried(files: tuple[Path, Path], batches: list[list[list[str]]]) -> list[list[np.ndarray]]:
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


def test_the_embedder_carries_its_state_from_batch_to_batch(files: tuple[Path, Path]) -> None:
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


def test_empty_sentences(files: tuple[Path, Path]) -> None:
    embedder = ElmoEmbedder(*files)
    assert embedder.embed_sentence([]).shape == (3, 0, 1024)  # AllenNLP's, whatever the model
    assert [array.shape for array in embedder.embed_batch([["a"], []])] == [(3, 1, 14), (3, 0, 1024)]
    assert list(embedder.embed_sentences([])) == []


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_a_file(files: tuple[Path, Path], tmp_path: Path, output_format: str) -> None:
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


def test_a_file_keyed_by_sentences_and_one_with_a_gap(files: tuple[Path, Path], tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", str(tmp_path / "out.hdf5")
    text.write_text("one two\nthree\n")
    ElmoEmbedder(*files).embed_file(text.open(), out, use_sentence_keys=True)
    with h5py.File(out) as file:
        assert sorted(file) == ["one two", "three"]
    for content in ("one\n\ntwo\n", "one\none\n"):  # an empty line, a sentence that is there twice
        text.write_text(content)
        with pytest.raises(ValueError):
            ElmoEmbedder(*files).embed_file(text.open(), out, use_sentence_keys=True)


def test_the_module_mixes(files: tuple[Path, Path]) -> None:
    elmo = Elmo(*files, num_output_representations=2, dropout=0.0)
    output = elmo(batch_to_ids(FIRST))
    assert elmo.get_output_dim() == 14
    assert len(output["elmo_representations"]) == 2
    assert output["mask"].tolist() == [[True] * 4, [True, True, False, False], [True, False, False, False]]
    for row, layers in enumerate(carried(files, [FIRST])[0]):
        found = output["elmo_representations"][1][row].detach().numpy()
        assert np.abs(found[: len(FIRST[row])] - layers.mean(0)).max() <= TOLERANCE
        assert not found[len(FIRST[row]) :].any()


def test_options_of_the_module(files: tuple[Path, Path]) -> None:
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


def test_sentences_that_are_all_without_words(files: tuple[Path, Path]) -> None:
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


def test_addresses_of_published_models(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(names, "download", lambda name: asked.append(name) or files)
    ElmoEmbedder()
    base = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/contributed/pt/elmo_pt"
    Elmo(f"{base}_options.json", f"{base}_weights.hdf5", 1)
    assert asked == ["original", "portuguese"]
    with pytest.raises(ValueError, match="address"):
        Elmo(f"{base}_options.json", "https://example.org/weights.hdf5", 1)


def test_the_results_of_allennlp_itself(
    files: tuple[Path, Path], shared: Path, allennlp_python: str, tmp_path: Path
) -> None:
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
