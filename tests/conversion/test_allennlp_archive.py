"""A task's model of AllenNLP with an ELMo inside: the tensors under AllenNLP's names, packed as it packs them."""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoModel
from hf_elmo.conversion import allennlp_archive, convert_archive, load
from hf_elmo.conversion.allennlp_archive import _scripts
from hf_elmo.conversion.download import PUBLISHED_MODELS
from hf_elmo.conversion.published import SCRIPTS
from hf_elmo_cli import main

from ..allennlp_files import make_arrays, make_options, write_files
from ..conftest import SENTENCES
from ..reference_numpy import NumpyELMo

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
            state[f"{cell}input_linearity.weight"], state[f"{cell}state_linearity.weight"] = (
                layer.weight_ih,
                layer.weight_hh,
            )
            state[f"{cell}state_linearity.bias"], state[f"{cell}state_projection.weight"] = layer.bias, layer.weight_hr
    for number, (scalars, gamma) in enumerate(mixes):
        for layer, scalar in enumerate(scalars):
            state[f"{prefix}scalar_mix_{number}.scalar_parameters.{layer}"] = torch.tensor([scalar])
        state[f"{prefix}scalar_mix_{number}.gamma"] = torch.tensor([gamma])
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def pack(path: Path, settings: dict, state: dict[str, torch.Tensor], options: dict | None) -> Path:
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


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, Path]:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


def test_the_bilm_and_each_mix(source: tuple[Path, Path], tmp_path: Path) -> None:
    model = load(*source)
    mixes = [([0.5, -1.25, 2.0], 1.5), ([1.0, 0.0, -3.0], 0.25)]
    others = {"encoder.weight": torch.ones(3, 4), "text_field_embedder.token_embedder_tokens.weight": torch.ones(2)}
    packed = pack(tmp_path / "model.tar.gz", task(), state_of(model, mixes) | others, make_options())
    found = ElmoModel.from_pretrained(convert_archive(packed, tmp_path / "out"))
    assert found.config.num_scalar_mixes == 2
    for key, tensor in model.state_dict().items():
        if not key.startswith("scalar_mix."):
            assert torch.equal(found.state_dict()[key], tensor), key
    assert found.scalar_mix.scalars.tolist() == [scalars for scalars, _ in mixes]
    assert found.scalar_mix.gamma.tolist() == [gamma for _, gamma in mixes]


def test_the_mixed_vectors_are_those_of_the_task(source: tuple[Path, Path], tmp_path: Path) -> None:
    scalars, gamma = [0.5, -1.25, 2.0], 1.5
    packed = pack(tmp_path / "model.tar.gz", task(), state_of(load(*source), [(scalars, gamma)]), make_options())
    out = convert_archive(packed, tmp_path / "out")
    model, tokenizer = AutoModel.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    weights = np.exp(scalars) / np.exp(scalars).sum() * gamma
    for text in SENTENCES[:2]:
        layers, _ = NumpyELMo(*source).layers(text.split())
        with torch.no_grad():
            mixed = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy()
        assert np.abs(mixed - np.tensordot(weights, layers, 1)).max() < 1e-5
    card = (out / "README.md").read_text()
    assert "The weights of the mix are those that the source learned" in card
    assert "the archive of a task's model" in card


def test_layer_norm_and_an_unpacked_archive(source: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    (folder / "fta").mkdir(parents=True)
    settings = task(do_layer_norm=True)
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "fta" / "model.x.options_file").write_text(json.dumps(make_options()))
    torch.save(state_of(load(*source), [([0.0, 0.0, 0.0], 1.0)]), folder / "weights.th")
    assert ElmoModel.from_pretrained(convert_archive(folder, tmp_path / "out")).config.scalar_mix_layer_norm


@pytest.mark.parametrize(
    "settings",
    [
        task_of({"type": "elmo_token_embedder", "do_layer_norm": True}),
        task_of({"type": "allennlp.modules.token_embedders.ElmoTokenEmbedder", "do_layer_norm": True}),
        {"model": {"type": "bcn", "elmo": {"num_output_representations": 1, "do_layer_norm": True}}},
        {"model": {"type": "a", "encoders": [{"type": "elmo", "do_layer_norm": True}]}},
    ],
    ids=["embedder", "its class", "module", "in a list"],
)
def test_layer_norm_of_an_elmo_whose_files_are_not_named(
    source: tuple[Path, Path], tmp_path: Path, settings: dict
) -> None:
    packed = pack(tmp_path / "model.tar.gz", settings, state_of(load(*source), [([0.0] * 3, 1.0)]), None)
    out = convert_archive(packed, tmp_path / "out", options=source[0])
    assert ElmoModel.from_pretrained(out).config.scalar_mix_layer_norm


@pytest.mark.parametrize(
    "settings", [task_of({"type": "elmo_token_embedder"}), task_of("elmo_token_embedder")], ids=["type", "type alone"]
)
def test_the_default_options_of_the_embedder_are_those_of_its_shapes(
    source: tuple[Path, Path], tmp_path: Path, settings: dict
) -> None:
    packed = pack(tmp_path / "model.tar.gz", settings, state_of(load(*source), [([0.0] * 3, 1.0)]), None)
    config = ElmoModel.from_pretrained(convert_archive(packed, tmp_path / "out")).config
    assert (config.cell_clip, config.proj_clip, config.char_activation) == (3.0, 3.0, "relu")
    assert (config.char_filters, config.cell_size, config.projection_size) == ([[1, 4], [2, 5], [3, 8]], 11, 7)
    assert not config.scalar_mix_layer_norm
    assert _scripts(settings) == SCRIPTS["original"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("false", False), ("None", False), (None, False), (1, True), (0, False)],
)
def test_layer_norm_is_read_as_allennlp_reads_it(
    source: tuple[Path, Path], tmp_path: Path, value: object, expected: bool
) -> None:
    state = state_of(load(*source), [([0.0] * 3, 1.0)])
    packed = pack(tmp_path / "model.tar.gz", task(do_layer_norm=value), state, make_options())
    config = ElmoModel.from_pretrained(convert_archive(packed, tmp_path / "out")).config
    assert config.scalar_mix_layer_norm is expected


@pytest.mark.parametrize("value", ["yes", "False", 1.0, [True]])
def test_layer_norm_that_is_neither_true_nor_false(source: tuple[Path, Path], tmp_path: Path, value: object) -> None:
    state = state_of(load(*source), [([0.0] * 3, 1.0)])
    packed = pack(tmp_path / "model.tar.gz", task(do_layer_norm=value), state, make_options())
    says = re.escape(f"elmo.do_layer_norm is {value!r}, but must be true or false.")
    with pytest.raises(ValueError, match=rf"config\.json: model\.text_field_embedder\.token_embedders\.{says}"):
        convert_archive(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_configuration_without_an_elmo_is_warned_of(
    source: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(allennlp_archive.logger, "warning", said.append)
    state = state_of(load(*source), [([0.0] * 3, 1.0)])
    settings = {"model": {"type": "from_archive", "archive_file": "other.tar.gz"}}
    convert_archive(pack(tmp_path / "model.tar.gz", settings, state, make_options()), tmp_path / "out")
    assert len(said) == 1
    assert said[0].startswith("The task's config.json names no ELMo, so do_layer_norm is taken for false: where it was")
    convert_archive(pack(tmp_path / "named.tar.gz", task(), state, make_options()), tmp_path / "named")
    assert len(said) == 1


def test_options_of_a_published_model_are_those_of_its_shapes(source: tuple[Path, Path], tmp_path: Path) -> None:
    model = load(*source)
    packed = pack(tmp_path / "model.tar.gz", task(PUBLISHED), state_of(model, [([0.0, 0.0, 0.0], 1.0)]), None)
    config = ElmoModel.from_pretrained(convert_archive(packed, tmp_path / "out")).config
    assert (config.cell_clip, config.proj_clip, config.char_activation) == (3.0, 3.0, "relu")
    assert (config.char_filters, config.cell_size, config.projection_size) == ([[1, 4], [2, 5], [3, 8]], 11, 7)


@pytest.mark.parametrize(
    ("path", "scripts"),
    [
        (f"/models/{PUBLISHED_MODELS['original'].options}", SCRIPTS["original"]),
        (f"/models/{PUBLISHED_MODELS['pubmed'].options}", SCRIPTS["pubmed"]),
        (PurePosixPath(PUBLISHED_MODELS["pubmed"].options).name, None),  # of both
        ("options.json", None),
        (PUBLISHED, SCRIPTS["portuguese"]),
    ],
)
def test_scripts_are_those_of_the_published_model_that_is_named(path: str, scripts: Sequence[str] | None) -> None:
    assert _scripts(task(path)) == sorted(scripts or [])


def test_options_that_nobody_knows_are_asked_for(source: tuple[Path, Path], tmp_path: Path) -> None:
    packed = pack(tmp_path / "model.tar.gz", task(), state_of(load(*source), [([0.0] * 3, 1.0)]), None)
    with pytest.raises(FileNotFoundError, match=r"names options.json, which is not in the archive"):
        convert_archive(packed, tmp_path / "out")
    config = ElmoModel.from_pretrained(convert_archive(packed, tmp_path / "out", options=source[0])).config
    assert config.proj_clip == make_options()["lstm"]["proj_clip"]


def test_two_elmos(source: tuple[Path, Path], tmp_path: Path) -> None:
    model = load(*source)
    first, second = state_of(model, [([1.0] * 3, 1.0)], "a."), state_of(model, [([2.0, 0.0, 0.0], 3.0)], "b.")
    packed = pack(tmp_path / "same.tar.gz", task(), first | second, make_options())
    assert ElmoModel.from_pretrained(convert_archive(packed, tmp_path / "same")).scalar_mix.gamma.tolist() == [1.0, 3.0]
    second["b._elmo_lstm._token_embedder._projection.bias"] += 1
    packed = pack(tmp_path / "different.tar.gz", task(), first | second, make_options())
    with pytest.raises(ValueError, match=r"several ELMos that differ, 'a\.', 'b\.': choose one"):
        convert_archive(packed, tmp_path / "different")
    chosen = ElmoModel.from_pretrained(convert_archive(packed, tmp_path / "different", use="b."))
    assert torch.equal(chosen.char_encoder.projection.bias, model.char_encoder.projection.bias + 1)


def test_the_command_chooses_one_of_two_elmos_that_differ(
    source: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load(*source)
    second = state_of(model, [([2.0, 0.0, 0.0], 3.0)], "b.")
    second["b._elmo_lstm._token_embedder._projection.bias"] += 1
    packed = pack(tmp_path / "m.tar.gz", task(), state_of(model, [([1.0] * 3, 1.0)], "a.") | second, make_options())
    command = ["convert", str(packed), str(tmp_path / "out")]
    assert main(command) == 1
    says = "holds several ELMos that differ, 'a.', 'b.': choose one by its name, use (--use NAME)."
    assert capsys.readouterr().err == f"hf-elmo: error: {packed}/weights.th {says}\n"
    assert main([*command, "--use", "c"]) == 1
    assert capsys.readouterr().err == f"hf-elmo: error: {packed}/weights.th holds no ELMo named 'c', but 'a.', 'b.'.\n"
    for number, name in enumerate(("b.", "b")):
        assert main(["convert", str(packed), str(tmp_path / str(number)), "--use", name]) == 0
        chosen = ElmoModel.from_pretrained(tmp_path / str(number))
        assert torch.equal(chosen.char_encoder.projection.bias, model.char_encoder.projection.bias + 1)
        assert chosen.scalar_mix.gamma.tolist() == [3.0]


TWO = {
    "embedders": (
        {"text_field_embedder": {"token_embedders": {"one": {"do_layer_norm": True}, "two": {}}}},
        ("text_field_embedder.token_embedder_one._elmo.", "text_field_embedder.token_embedder_two._elmo."),
    ),
    "keys without token_embedders": (
        {"source_embedder": {"elmo": {"do_layer_norm": "true"}}, "target_embedder": {"elmo": {}}},
        ("_source_embedder.token_embedder_elmo._elmo.", "_target_embedder.token_embedder_elmo._elmo."),
    ),
    "a module beside an embedder": (
        {"elmo": {"do_layer_norm": True}, "text_field_embedder": {"token_embedders": {"elmo": {}}}},
        ("_elmo.", "_text_field_embedder.token_embedder_elmo._elmo."),
    ),
    "in a list": (
        {"encoders": [{"elmo": {"do_layer_norm": True}}, {"elmo": {}}]},
        ("encoders.0.elmo.", "encoders.1.elmo."),
    ),
}


def with_files(settings: object) -> object:
    """With the files of an ELMo where nothing is deeper."""
    if isinstance(settings, list):
        return [with_files(one) for one in settings]
    if any(isinstance(value, dict | list) for value in settings.values()):
        return {key: with_files(value) for key, value in settings.items()}
    return {"options_file": "options.json", "weight_file": "weights.hdf5", **settings}


@pytest.mark.parametrize("names", TWO)
def test_two_elmos_that_differ_in_layer_norm_alone(
    source: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], names: str
) -> None:
    (settings, prefixes), model = TWO[names], load(*source)
    first, second = (
        state_of(model, [([0.0] * 3, gamma)], prefix) for prefix, gamma in zip(prefixes, (1, 2), strict=True)
    )
    packed = pack(tmp_path / "model.tar.gz", {"model": with_files(settings)}, first | second, make_options())
    command = ["convert", str(packed), str(tmp_path / "out")]
    assert main(command) == 1
    says = (
        f"holds ELMos that differ in do_layer_norm, {prefixes[0]!r} (true), {prefixes[1]!r} (false): choose one by its"
    )
    assert capsys.readouterr().err == f"hf-elmo: error: {packed}/weights.th {says} name, use (--use NAME).\n"
    for prefix, normal, gamma in zip(prefixes, (True, False), (1.0, 2.0), strict=True):
        out = tmp_path / prefix
        assert main([*command[:2], str(out), "--use", prefix]) == 0
        chosen = ElmoModel.from_pretrained(out)
        assert (chosen.config.scalar_mix_layer_norm, chosen.scalar_mix.gamma.tolist()) == (normal, [gamma])


def test_a_projection_of_the_embedder_is_said_to_be_left_behind(
    source: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(allennlp_archive.logger, "warning", said.append)
    state = state_of(load(*source), [([0.0] * 3, 1.0)])
    name = PREFIX.removesuffix("_elmo.") + "_projection"
    projection = {f"{name}.weight": torch.ones(5, 14), f"{name}.bias": torch.ones(5)}
    packed = pack(tmp_path / "model.tar.gz", task(projection_dim=5), state | projection, make_options())
    out = convert_archive(packed, tmp_path / "out")
    assert said == [
        f"{packed}: left behind is what projected ELMo's vectors in the task (projection_dim), {name}.weight [5, 14], "
        f"{name}.bias [5]. The checkpoint gives them as they were before, with 14 numbers."
    ]
    record = json.loads((out / "conversion.json").read_text())
    assert record["left_behind"] == {f"{name}.weight": [5, 14], f"{name}.bias": [5]}
    with safe_open(out / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["left_behind"]) == record["left_behind"]
    card = (out / "README.md").read_text()
    assert f"with\n  `{name}.weight` `[5, 14]`, `{name}.bias` `[5]`. That is left behind" in card
    plain = convert_archive(pack(tmp_path / "plain.tar.gz", task(), state, make_options()), tmp_path / "plain")
    assert len(said) == 1
    assert "left_behind" not in json.loads((plain / "conversion.json").read_text())
    assert "left behind" not in (plain / "README.md").read_text()


@pytest.mark.parametrize(
    ("prefix", "name", "size"),
    [("a._elmo.", "a._projection", 15), ("a._elmo.", "b._projection", 14), ("_elmo.", "_projection", 14)],
    ids=["of other vectors", "of another module", "of the model itself"],
)
def test_a_projection_of_something_else_is_no_part_of_elmo(
    source: tuple[Path, Path], tmp_path: Path, prefix: str, name: str, size: int
) -> None:
    state = state_of(load(*source), [([0.0] * 3, 1.0)], prefix)
    state |= {f"{name}.weight": torch.ones(5, size), f"{name}.bias": torch.ones(5)}
    out = convert_archive(pack(tmp_path / "model.tar.gz", task(), state, make_options()), tmp_path / "out")
    assert "left_behind" not in json.loads((out / "conversion.json").read_text())


def test_the_projections_are_those_of_the_use_that_is_chosen(source: tuple[Path, Path], tmp_path: Path) -> None:
    state = {}
    for name, size in (("a", 5), ("b", 6)):
        state |= state_of(load(*source), [([0.0] * 3, 1.0)], f"{name}._elmo.")
        state |= {f"{name}._projection.weight": torch.ones(size, 14), f"{name}._projection.bias": torch.ones(size)}
    packed = pack(tmp_path / "model.tar.gz", task(), state, make_options())
    for use, sizes in ((None, {"a": 5, "b": 6}), ("b._elmo", {"b": 6})):
        out = convert_archive(packed, tmp_path / str(use), use=use)
        found = json.loads((out / "conversion.json").read_text())["left_behind"]
        weights = {f"{name}._projection.weight": [size, 14] for name, size in sizes.items()}
        assert found == weights | {f"{name}._projection.bias": [size] for name, size in sizes.items()}


def test_an_elmo_that_no_part_of_the_configuration_is_named_after(source: tuple[Path, Path], tmp_path: Path) -> None:
    (settings, prefixes), model = TWO["embedders"], load(*source)
    folder = tmp_path / "unpacked"
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(make_options()))
    state = state_of(model, [([0.0] * 3, 1.0)], prefixes[0]) | state_of(model, [([0.0] * 3, 2.0)], "other.")
    torch.save(state, folder / "weights.th")
    (folder / "config.json").write_text(json.dumps({"model": with_files(settings)}))
    with pytest.raises(ValueError, match=r"_one\._elmo\.' \(true\), 'other\.' \(not known\): choose one by its name"):
        convert_archive(folder, tmp_path / "out")
    parts = r"model\.text_field_embedder\.token_embedders\.one \(true\), .*two \(false\)"
    with pytest.raises(ValueError, match=rf"{parts}, and by its name 'other\.' is none of them: unpack the archive"):
        convert_archive(folder, tmp_path / "out", use="other")
    assert ElmoModel.from_pretrained(
        convert_archive(folder, tmp_path / "one", use=prefixes[0])
    ).config.scalar_mix_layer_norm
    settings = json.loads((folder / "config.json").read_text())
    settings["model"]["text_field_embedder"]["token_embedders"]["one"]["do_layer_norm"] = False  # the remedy
    (folder / "config.json").write_text(json.dumps(settings))
    config = ElmoModel.from_pretrained(convert_archive(folder, tmp_path / "out", use="other")).config
    assert not config.scalar_mix_layer_norm


def test_the_mixes_of_two_uses_are_named_in_order(source: tuple[Path, Path], tmp_path: Path) -> None:
    model = load(*source)
    first = state_of(model, [([1.0] * 3, 1.0), ([0.0] * 3, 2.0)], "a.")
    packed = pack(tmp_path / "m.tar.gz", task(), first | state_of(model, [([2.0] * 3, 3.0)], "b."), make_options())
    out = convert_archive(packed, tmp_path / "out")
    names = ["a.scalar_mix_0", "a.scalar_mix_1", "b.scalar_mix_0"]
    assert json.loads((out / "conversion.json").read_text())["scalar_mixes"] == names
    assert ElmoModel.from_pretrained(out).scalar_mix.gamma.tolist() == [1.0, 2.0, 3.0]
    assert f"It has 3, in this order:\n  {', '.join(f'`{name}`' for name in names)}." in (out / "README.md").read_text()
    one = convert_archive(packed, tmp_path / "one", use="b")
    assert json.loads((one / "conversion.json").read_text())["scalar_mixes"] == names[2:]
    assert "in this order" not in (one / "README.md").read_text()


@pytest.mark.parametrize("given", [False, True], ids=["inside", "given"])
def test_the_record_names_the_options_and_the_archive(source: tuple[Path, Path], tmp_path: Path, given: bool) -> None:
    state = state_of(load(*source), [([0.0] * 3, 1.0)])
    packed = pack(tmp_path / "model.tar.gz", task(), state, None if given else make_options())
    out = convert_archive(packed, tmp_path / "out", options=source[0] if given else None)
    digests = {one["file"]: one["sha256"] for one in json.loads((out / "conversion.json").read_text())["sources"]}
    inside = "model.text_field_embedder.token_embedders.elmo.options_file"
    options = source[0].name if given else inside
    assert list(digests) == ["model.tar.gz", "config.json", "weights.th", options]
    assert digests["model.tar.gz"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert digests[options] == hashlib.sha256(json.dumps(make_options()).encode()).hexdigest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.clear(), "holds no ELMo"),
        (lambda state: state.pop(f"{PREFIX}_elmo_lstm._elmo_lstm.backward_layer_1.state_linearity.bias"), "is missing"),
        (lambda state: state.update({f"{PREFIX}_elmo_lstm.more": torch.ones(1)}), "unexpected tensor 'more'"),
        (lambda state: state[f"{PREFIX}scalar_mix_0.gamma"].fill_(torch.nan), "NaN"),
        (lambda state: state.pop(f"{PREFIX}scalar_mix_0.gamma"), "scalar_mix_0.gamma is no number"),
        (lambda state: state.pop(f"{PREFIX}scalar_mix_0.scalar_parameters.2"), "not one weight for each"),
    ],
    ids=["no ELMo", "a tensor less", "a tensor more", "NaN", "no gamma", "a layer less"],
)
def test_what_does_not_fit(source: tuple[Path, Path], tmp_path: Path, change: object, message: str) -> None:
    state = state_of(load(*source), [([0.0] * 3, 1.0)])
    change(state)
    packed = pack(tmp_path / "model.tar.gz", task(), state, make_options())
    with pytest.raises(ValueError, match=message):
        convert_archive(packed, tmp_path / "out")
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
    out = convert_archive(packed, tmp_path / "out")
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
