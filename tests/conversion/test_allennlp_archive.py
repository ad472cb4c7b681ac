"""A task's model of AllenNLP with an ELMo inside: the tensors under AllenNLP's names, packed as it packs them."""

import io
import json
import logging
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.conversion import convert, load
from hf_elmo.conversion.allennlp_archive import read_archive
from hf_elmo.conversion.checkpoint import Source
from hf_elmo_cli import main

from ..allennlp_files import make_arrays, make_options, write_files
from ..factories import SENTENCES
from ..reference import NumpyELMo

PREFIX = "text_field_embedder.token_embedder_elmo._elmo."
PUBLISHED = "https://allennlp.s3.amazonaws.com/models/elmo/contributed/pt/elmo_pt_options.json"


def state_of(model: ElmoModel, mixes: list[tuple[list[float], float]], prefix: str = PREFIX) -> dict[str, torch.Tensor]:
    """The state dict of AllenNLP's `Elmo`, read off its source, with the weights of one of our models."""
    state, at = {}, f"{prefix}_elmo_lstm."
    encoder = model.char_encoder
    state[f"{at}_token_embedder._char_embedding_weights"] = encoder.embedding.weight
    state[f"{at}_token_embedder._beginning_of_sentence_characters"] = torch.arange(50)
    for i, convolution in enumerate(encoder.convolutions):
        state[f"{at}_token_embedder.char_conv_{i}.weight"] = convolution.weight
        state[f"{at}_token_embedder.char_conv_{i}.bias"] = convolution.bias
    for i, highway in enumerate(encoder.highways):
        for part in ("weight", "bias"):
            halves = getattr(highway.transform, part), -getattr(highway.carry, part)
            state[f"{at}_token_embedder._highways._layers.{i}.{part}"] = torch.cat(halves)
    state[f"{at}_token_embedder._projection.weight"] = encoder.projection.weight
    state[f"{at}_token_embedder._projection.bias"] = encoder.projection.bias
    for name, layers in (("forward", model.bilm.forward_layers), ("backward", model.bilm.backward_layers)):
        for i, layer in enumerate(layers):
            cell = f"{at}_elmo_lstm.{name}_layer_{i}."
            state |= {f"{cell}input_linearity.weight": layer.weight_ih, f"{cell}state_linearity.bias": layer.bias}
            state |= {
                f"{cell}state_linearity.weight": layer.weight_hh,
                f"{cell}state_projection.weight": layer.weight_hr,
            }
    for number, (scalars, gamma) in enumerate(mixes):
        for layer, scalar in enumerate(scalars):
            state[f"{prefix}scalar_mix_{number}.scalar_parameters.{layer}"] = torch.tensor([scalar])
        state[f"{prefix}scalar_mix_{number}.gamma"] = torch.tensor([gamma])
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def pack(path: Path, settings: dict, state: dict[str, torch.Tensor], options: dict | None = None) -> Path:
    """A `model.tar.gz`; AllenNLP archives the options under their place in the configuration."""
    weights = io.BytesIO()
    torch.save(state, weights)
    files = {"config.json": json.dumps(settings).encode(), "weights.th": weights.getvalue()}
    files["vocabulary/labels.txt"] = b"0\n1\n"
    if options is not None:
        files["fta/model.text_field_embedder.token_embedders.elmo.options_file"] = json.dumps(options).encode()
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def task(options_file: str = "/home/somebody/options.json", **elmo: object) -> dict:
    return task_of({"type": "elmo_token_embedder", "options_file": options_file, "weight_file": "weights.hdf5", **elmo})


def task_of(embedder: object) -> dict:
    return {"model": {"type": "crf_tagger", "text_field_embedder": {"token_embedders": {"elmo": embedder}}}}


MIX = ([0.0, 0.0, 0.0], 1.0)


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, Path]:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


@pytest.fixture
def model(source: tuple[Path, Path]) -> ElmoModel:
    return load(*source)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Source]:
    """Reads the ELMo of a task's model from the folder `unpacked`."""

    def read(*content: object, **choice: object) -> Source:
        with tarfile.open(pack(tmp_path / "model.tar.gz", *content)) as archive:
            archive.extractall(tmp_path / "unpacked", filter="data")
        return read_archive(tmp_path / "unpacked", **choice)

    return read


def test_the_bilm_and_each_mix(source: tuple[Path, Path], model: ElmoModel, tmp_path: Path) -> None:
    mixes = [([0.5, -1.25, 2.0], 1.5), ([1.0, 0.0, -3.0], 0.25)]
    others = {"encoder.weight": torch.ones(3, 4), "text_field_embedder.token_embedder_tokens.weight": torch.ones(2)}
    packed = pack(tmp_path / "model.tar.gz", task(), state_of(model, mixes) | others, make_options())
    out = convert(packed, tmp_path / "out")
    found = ElmoModel.from_pretrained(out)
    assert found.config.num_scalar_mixes == 2
    for key, tensor in model.state_dict().items():
        if not key.startswith("scalar_mix."):
            assert torch.equal(found.state_dict()[key], tensor), key
    assert found.scalar_mix.scalars.tolist() == [scalars for scalars, _ in mixes]
    assert found.scalar_mix.gamma.tolist() == [gamma for _, gamma in mixes]
    tokenizer = ElmoTokenizer.from_pretrained(out)
    layers, _ = NumpyELMo(*source).layers(SENTENCES[0].split())
    with torch.no_grad():
        mixed = found(**tokenizer(SENTENCES[0], return_tensors="pt")).scalar_mixes
    for vectors, (scalars, gamma) in zip(mixed, mixes, strict=True):
        expected = np.tensordot(gamma * np.exp(scalars) / np.exp(scalars).sum(), layers, 1)
        np.testing.assert_allclose(vectors[0].numpy(), expected, atol=1e-5)
    record = json.loads((out / "conversion.json").read_text())
    options = "model.text_field_embedder.token_embedders.elmo.options_file"
    assert [file["file"] for file in record["sources"]] == ["model.tar.gz", "config.json", "weights.th", options]
    assert record["scalar_mixes"] == [f"{PREFIX}scalar_mix_0", f"{PREFIX}scalar_mix_1"]
    names = ", ".join(f"`{name}`" for name in record["scalar_mixes"])
    assert f"It has 2, in this order:\n  {names}." in (out / "README.md").read_text()


@pytest.mark.parametrize(
    ("settings", "layer_norm"),
    [
        (task(do_layer_norm="true"), True),
        (task(do_layer_norm="false"), False),
        (task(), False),
        (task_of({"type": "allennlp.modules.token_embedders.ElmoTokenEmbedder", "do_layer_norm": 1}), True),
        ({"model": {"type": "a", "encoders": [{"num_output_representations": 1, "do_layer_norm": True}]}}, True),
        ({"model": {"one": task(do_layer_norm=True), "two": task()}}, None),
    ],
    ids=["a string", "false", "default", "its class", "module in a list", "two that differ"],
)
def test_layer_norm(read: Callable, model: ElmoModel, settings: dict, layer_norm: bool | None) -> None:
    if layer_norm is None:
        with pytest.raises(ValueError, match=r"do_layer_norm.*config\.json"):
            read(settings, state_of(model, [MIX]), make_options())
    else:
        assert read(settings, state_of(model, [MIX]), make_options()).config.scalar_mix_layer_norm == layer_norm


@pytest.mark.parametrize(
    "settings",
    [task(PUBLISHED), task_of({"type": "elmo_token_embedder"}), task_of("elmo_token_embedder")],
    ids=["published", "default", "default, type alone"],
)
def test_the_options_of_a_published_model_have_the_sizes_of_the_tensors(
    read: Callable, model: ElmoModel, settings: dict
) -> None:
    config = read(settings, state_of(model, [MIX])).config
    assert (config.cell_clip, config.proj_clip, config.char_activation) == (3.0, 3.0, "relu")
    assert (config.char_filters, config.cell_size, config.projection_size) == ([[1, 4], [2, 5], [3, 8]], 11, 7)


def test_options_that_nobody_knows_are_asked_for(
    read: Callable, source: tuple[Path, Path], model: ElmoModel, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="elmo-options"):
        read(task(), state_of(model, [MIX]))
    out = convert(tmp_path / "unpacked", tmp_path / "out", elmo_options=source[0])
    assert ElmoModel.from_pretrained(out).config.proj_clip == make_options()["lstm"]["proj_clip"]


def test_two_elmos(read: Callable, model: ElmoModel, tmp_path: Path) -> None:
    first, second = state_of(model, [([1.0] * 3, 1.0)], "a."), state_of(model, [([2.0, 0.0, 0.0], 3.0)], "b.")
    same = read(task(), first | second, make_options())
    assert same.arrays["scalar_mix.gamma"].tolist() == [1.0, 3.0]
    assert same.scalar_mixes == ["a.scalar_mix_0", "b.scalar_mix_0"]
    second["b._elmo_lstm._token_embedder._projection.bias"] += 1
    for use in (None, "c"):
        with pytest.raises(ValueError, match="b"):
            read(task(), first | second, make_options(), use=use)
    assert main(["convert", str(tmp_path / "unpacked"), str(tmp_path / "out"), "--use", "b"]) == 0
    chosen = ElmoModel.from_pretrained(tmp_path / "out")
    assert torch.equal(chosen.char_encoder.projection.bias, model.char_encoder.projection.bias + 1)
    assert chosen.scalar_mix.gamma.tolist() == [3.0]


def test_a_projection_of_the_embedder_is_said_to_be_left_behind(
    model: ElmoModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = PREFIX.removesuffix("_elmo.") + "_projection"
    state = state_of(model, [MIX]) | {f"{name}.weight": torch.ones(5, 14), f"{name}.bias": torch.ones(5)}
    with caplog.at_level(logging.WARNING):
        out = convert(pack(tmp_path / "x.tar.gz", task(projection_dim=5), state, make_options()), tmp_path / "out")
    assert f"{name}.weight" in caplog.text
    record = json.loads((out / "conversion.json").read_text())
    assert record["left_behind"] == {f"{name}.weight": [5, 14], f"{name}.bias": [5]}
    assert f"`{name}.weight` `[5, 14]`, `{name}.bias` `[5]`" in (out / "README.md").read_text()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda state: state.clear(), r"model.tar.gz\S* has no ELMo.*language_model"),
        (lambda state: state.pop(f"{PREFIX}_elmo_lstm._elmo_lstm.backward_layer_1.state_linearity.bias"), "is missing"),
        (lambda state: state.update({f"{PREFIX}_elmo_lstm.more": torch.ones(1)}), "more"),
        (lambda state: state[f"{PREFIX}scalar_mix_0.gamma"].fill_(torch.nan), "scalar_mix.gamma"),
    ],
    ids=["no ELMo", "a tensor less", "a tensor more", "NaN"],
)
def test_what_does_not_fit(model: ElmoModel, tmp_path: Path, change: Callable, error: str) -> None:
    state = state_of(model, [MIX])
    change(state)
    with pytest.raises(ValueError, match=error):
        convert(pack(tmp_path / "model.tar.gz", task(), state, make_options()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_with_the_tensors_of_allennlp_itself(
    source: tuple[Path, Path], shared: Path, allennlp_python: str, tmp_path: Path
) -> None:
    """The state dict of AllenNLP's own token embedder, and the vectors that it gives."""
    script = tmp_path / "peer.py"
    script.write_text(PEER)
    arguments = [shared / "peers" / "allennlp_elmo.py", *source, tmp_path / "weights.th", tmp_path / "vectors.npz"]
    done = subprocess.run([allennlp_python, script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    state = torch.load(tmp_path / "weights.th", weights_only=True)
    packed = pack(tmp_path / "model.tar.gz", task(), state, json.loads(source[0].read_text()))
    out = convert(packed, tmp_path / "out")
    model, tokenizer = AutoModel.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    with torch.no_grad():
        found = model(**tokenizer("A small test of it .", return_tensors="pt")).last_hidden_state[0, 1:-1]
    assert np.abs(found.numpy() - np.load(tmp_path / "vectors.npz")["vectors"]).max() <= 1e-5


PEER = """
import importlib.util, sys
import numpy as np, torch
helper, options, weights, saved, vectors = sys.argv[1:]
spec = importlib.util.spec_from_file_location("allennlp_elmo", helper)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.fill_in_removed_names()
from allennlp.modules.elmo import batch_to_ids
from allennlp.modules.token_embedders import ElmoTokenEmbedder
embedder = ElmoTokenEmbedder(options, weights, dropout=0.0).eval()
mix = embedder._elmo.scalar_mix_0
with torch.no_grad():
    for value, parameter in zip((0.5, -1.0, 2.0, 1.75), [*mix.scalar_parameters, mix.gamma]):
        parameter.fill_(value)
    found = embedder(batch_to_ids(["A small test of it .".split()]))[0]
state = {f"text_field_embedder.token_embedder_elmo.{name}": tensor for name, tensor in embedder.state_dict().items()}
torch.save(state, saved)
np.savez(vectors, vectors=found.numpy())
"""
