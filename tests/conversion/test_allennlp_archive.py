"""A task's model of AllenNLP with an ELMo inside: the tensors under AllenNLP's names, packed as it packs them."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.conversion import convert, load
from hf_elmo.conversion.allennlp_archive import read_archive
from hf_elmo_cli import main
from tests.factories import SENTENCES, write_lines
from tests.reference import NumpyELMo
from tests.source_files import make_options

PREFIX = "text_field_embedder.token_embedder_elmo._elmo."
PUBLISHED = "https://allennlp.s3.amazonaws.com/models/elmo/contributed/pt/elmo_pt_options.json"
OPTIONS, OPTIONS_FILE = make_options(), "model.text_field_embedder.token_embedders.elmo.options_file"
MIX = ([0.0, 0.0, 0.0], 1.0)
# Our names and AllenNLP's, in this order; highway layers are stacked.
NAMES = {
    "char_encoder.embedding.weight": "_elmo_lstm._token_embedder._char_embedding_weights",
    "char_encoder.convolutions.": "_elmo_lstm._token_embedder.char_conv_",
    "char_encoder.projection.": "_elmo_lstm._token_embedder._projection.",
    "weight_ih": "input_linearity.weight",
    "weight_hh": "state_linearity.weight",
    "weight_hr": "state_projection.weight",
}
NORMALIZED, PLAIN = {"scalar_mix_layer_norm": True}, {"scalar_mix_layer_norm": False}
ITS_CLASS = {"type": "allennlp.modules.token_embedders.ElmoTokenEmbedder", "do_layer_norm": 1}
MODULE = {"model": {"type": "a", "encoders": [{"num_output_representations": 1, "do_layer_norm": True}]}}
# Options of the published models, but sizes of the tensors.
OF_PUBLISHED = {"cell_clip": 3.0, "proj_clip": 3.0, "char_activation": "relu", "cell_size": 11, "projection_size": 7}
OF_PUBLISHED |= {"char_filters": [[1, 4], [2, 5], [3, 8]]}


def state_of(model: ElmoModel, mixes: Sequence = (MIX,), prefix: str = PREFIX) -> dict[str, torch.Tensor]:
    """The state dict of AllenNLP's `Elmo`, read off its source, with the weights of one of our models."""
    state = {"_elmo_lstm._token_embedder._beginning_of_sentence_characters": torch.arange(50)}
    for key, tensor in model.state_dict().items():
        if found := re.fullmatch(r"bilm\.layers\.(\d+)\.lstm\.(\w+?)(_reverse)?", key):
            direction = "backward" if found[3] else "forward"
            key = f"_elmo_lstm._elmo_lstm.{direction}_layer_{found[1]}.{found[2]}"
        for ours, theirs in NAMES.items():
            key = key.replace(ours, theirs)
        key = key.replace(".bias", ".state_linearity.bias") if "_layer_" in key else key
        if not key.startswith(("scalar_mix", "char_encoder.highways")):
            state[key] = tensor
    for i, highway in enumerate(model.char_encoder.highways):
        for part in ("weight", "bias"):
            halves = getattr(highway.transform, part), -getattr(highway.carry, part)
            state[f"_elmo_lstm._token_embedder._highways._layers.{i}.{part}"] = torch.cat(halves)
    for number, (scalars, gamma) in enumerate(mixes):
        for layer, scalar in enumerate(scalars):
            state[f"scalar_mix_{number}.scalar_parameters.{layer}"] = torch.tensor([scalar])
        state[f"scalar_mix_{number}.gamma"] = torch.tensor([gamma])
    return {prefix + name: tensor.detach().clone() for name, tensor in state.items()}


def task_of(embedder: object) -> dict:
    return {"model": {"type": "crf_tagger", "text_field_embedder": {"token_embedders": {"elmo": embedder}}}}


def task(options_file: str = "/home/somebody/options.json", **elmo: object) -> dict:
    return task_of({"type": "elmo_token_embedder", "options_file": options_file, "weight_file": "weights.hdf5", **elmo})


@pytest.fixture
def model(source: tuple[Path, Path]) -> ElmoModel:
    return load(*source)


def write_task(folder: Path, settings: dict, state: dict, options: dict | None = OPTIONS) -> Path:
    """The folder of a task's model; AllenNLP archives the options under their place in the configuration."""
    write_lines(folder / "config.json", [json.dumps(settings)])
    torch.save(state, folder / "weights.th")
    if options is not None:
        write_lines(folder / "fta" / OPTIONS_FILE, [json.dumps(options)])
    return folder


def test_the_bilm_and_each_mix(source, model, tmp_path) -> None:
    mixes = [([0.5, -1.25, 2.0], 1.5), ([1.0, 0.0, -3.0], 0.25)]
    others = {"encoder.weight": torch.ones(3, 4), "text_field_embedder.token_embedder_tokens.weight": torch.ones(2)}
    folder = write_task(tmp_path / "task", task(), state_of(model, mixes) | others)
    out = convert(shutil.make_archive(str(tmp_path / "model"), "gztar", folder), tmp_path / "out", bilm_only=True)
    found = ElmoModel.from_pretrained(out)
    assert found.config.num_scalar_mixes == 2
    for key, tensor in model.state_dict().items():
        assert key.startswith("scalar_mix.") or torch.equal(found.state_dict()[key], tensor), key
    tokenizer = ElmoTokenizer.from_pretrained(out)
    layers, _ = NumpyELMo(*source).layers(SENTENCES[0].split())
    with torch.no_grad():
        mixed = found(**tokenizer(SENTENCES[0], return_tensors="pt")).scalar_mixes
    for vectors, (scalars, gamma) in zip(mixed, mixes, strict=True):
        expected = np.tensordot(gamma * np.exp(scalars) / np.exp(scalars).sum(), layers, 1)
        np.testing.assert_allclose(vectors[0].numpy(), expected, atol=1e-5)
    record = json.loads((out / "conversion.json").read_text())
    files = ["model.tar.gz", "config.json", "weights.th", OPTIONS_FILE]
    assert [file["file"] for file in record["sources"]] == files
    assert record["scalar_mixes"] == [f"{PREFIX}scalar_mix_0", f"{PREFIX}scalar_mix_1"]


WAYS = [(settings, OPTIONS, NORMALIZED) for settings in (task(do_layer_norm="true"), task_of(ITS_CLASS), MODULE)]
WAYS += [(task(), OPTIONS, PLAIN), (task(do_layer_norm="false"), OPTIONS, PLAIN), (task(PUBLISHED), None, OF_PUBLISHED)]
WAYS += [(task_of(one), None, OF_PUBLISHED) for one in ("elmo_token_embedder", {"type": "elmo_token_embedder"})]


@pytest.mark.parametrize(("settings", "options", "expected"), WAYS)
def test_the_configuration(settings: dict, options: dict | None, expected: dict, model, tmp_path) -> None:
    config = read_archive(write_task(tmp_path / "task", settings, state_of(model), options), bilm_only=True).config
    assert {name: getattr(config, name) for name in expected} == expected


def test_options_that_nobody_knows_are_asked_for(source, model, tmp_path) -> None:
    folder = write_task(tmp_path / "task", task(), state_of(model), None)
    with pytest.raises(FileNotFoundError, match="elmo_options"):
        convert(folder, tmp_path / "out")
    out = convert(folder, tmp_path / "out", elmo_options=source[0], bilm_only=True)
    assert ElmoModel.from_pretrained(out).config.proj_clip == OPTIONS["lstm"]["proj_clip"]


def test_two_elmos(model, tmp_path) -> None:
    first, second = state_of(model, [([1.0] * 3, 1.0)], "a."), state_of(model, [([2.0, 0.0, 0.0], 3.0)], "b.")
    same = read_archive(write_task(tmp_path / "same", task(), first | second), bilm_only=True)
    assert [same.arrays[f"{mix}.gamma"].tolist() for mix in ("scalar_mix", "further_mixes.0")] == [[1.0], [3.0]]
    assert same.scalar_mixes == ["a.scalar_mix_0", "b.scalar_mix_0"]
    second["b._elmo_lstm._token_embedder._projection.bias"] += 1
    folder = write_task(tmp_path / "task", task(), first | second)
    for use in (None, "c"):
        with pytest.raises(ValueError, match="b"):
            read_archive(folder, use=use, bilm_only=True)
    assert main(["convert", str(folder), str(tmp_path / "out"), "--use", "b"]) == 0
    chosen = ElmoModel.from_pretrained(tmp_path / "out")
    assert torch.equal(chosen.char_encoder.projection.bias, model.char_encoder.projection.bias + 1)
    assert chosen.scalar_mix.gamma.tolist() == [3.0]


def test_one_of_several_languages_with_its_matrix(model, tmp_path) -> None:
    prefix, state = PREFIX.removesuffix("_elmo."), {}
    for number, language in enumerate(("en", "es")):
        state |= state_of(model, [([number, 1.0, -9e10], 1.0)], f"{prefix}elmo_{language}.")
        state[f"{prefix}elmo_{language}._elmo_lstm._token_embedder._projection.bias"] += number
        state[f"{prefix}aligning_{language}.weight"] = torch.eye(14).roll(number, 0)
    settings = {"type": "elmo_token_embedder_multilang", "options_files": {"en": "a.json", "es": "b.json"}}
    folder = write_task(tmp_path / "task", task_of({**settings, "do_layer_norm": True}), state, None)
    for language in ("en", "es"):
        write_lines(folder / "fta" / f"{OPTIONS_FILE}s.{language}", [json.dumps(OPTIONS)])
    aligned = ElmoModel.from_pretrained(convert(folder, tmp_path / "out", use=f"{prefix}elmo_es"))
    assert aligned.config.scalar_mix_layer_norm
    inputs = ElmoTokenizer()(SENTENCES[0], return_tensors="pt")
    with torch.no_grad():
        found = aligned(**inputs).last_hidden_state
        aligned.scalar_mix.alignment = None
        torch.testing.assert_close(found, aligned(**inputs).last_hidden_state.roll(1, 2))


def test_the_bilm_alone_names_what_stays_behind(model, tmp_path, capsys) -> None:
    name = PREFIX.removesuffix("_elmo.") + "_projection"
    state = state_of(model) | {f"{name}.weight": torch.ones(5, 14), f"{name}.bias": torch.ones(5)}
    folder = write_task(tmp_path / "task", task(projection_dim=5), state)
    assert main(["convert", str(folder), str(tmp_path / "out"), "--bilm-only"]) == 0
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert record["left_behind"] == {f"{name}.weight": [5, 14], f"{name}.bias": [5]}
    for text in (capsys.readouterr().out, (tmp_path / "out" / "README.md").read_text()):
        assert f"{name}.weight" in text


def test_what_does_not_fit(model, tmp_path) -> None:
    state, unlike = state_of(model), {"model": {"one": task(do_layer_norm=True), "two": task()}}
    cases = {
        r"weights.th has no ELMo": (task(), {}),
        "more": (task(), {**state, f"{PREFIX}_elmo_lstm._elmo_lstm.more": torch.ones(1)}),
        r"do_layer_norm.*config\.json": (unlike, state),
    }
    for error, (settings, tensors) in cases.items():
        with pytest.raises(ValueError, match=error):
            convert(write_task(tmp_path / "task", settings, tensors), tmp_path / "out")
    assert not (tmp_path / "out").exists()
