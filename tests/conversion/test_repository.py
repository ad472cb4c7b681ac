"""Models as simple_elmo and the NLPL repository share them, and published models by their names."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.character_vocab_elmo import CharacterVocabulary
from hf_elmo.conversion import (
    all_names,
    by_name,
    checkpoint,
    convert,
    convert_manylangs,
    convert_named,
    convert_repository,
)
from hf_elmo.conversion.download import PUBLISHED_MODELS, PUBLISHED_TRAININGS
from hf_elmo.conversion.manylangs import SAMPLE, config_from_settings
from hf_elmo.conversion.published import MANYLANGS, SIZES, SIZES_OF_A_NAME
from hf_elmo.conversion.vocabularies import copy_vocabulary
from hf_elmo.model_cards import published_card
from hf_elmo_cli import main

from ..allennlp_files import make_arrays, make_options, write_files
from ..conftest import SENTENCES
from ..manylangs_files import make_settings, write_model

RECORDED = ("conversion.json", "README.md", "model.safetensors")  # that name the source
WORDS = ["<S>", "</S>", "<UNK>", "og", "naïve", "日本"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.fixture(params=[261, 262])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model with 261 or 262 characters, and options that say the one or the other."""
    options = make_options(char_cnn={"n_characters": 523 - request.param})
    _, weights = write_files(tmp_path / "model", options, make_arrays(options, rows=request.param))
    weights.rename(weights.with_name("model.hdf5"))
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return tmp_path / "model"


NAMES = {
    "AllenNLP": ("options.json", "weights.hdf5", True, "lm1b"),
    "AllenNLP, no vocabulary": ("options.json", "weights.hdf5", False, "lm1b"),
    "AllenNLP, published": ("elmo_2x_options.json", "elmo_2x_weights.hdf5", True, "lm1b"),
    "simple_elmo": ("options.json", "model.hdf5", True, "whitespace"),
}


@pytest.mark.parametrize(("options", "weights", "vocabulary", "splitting"), NAMES.values(), ids=NAMES)
def test_a_folder_and_its_archives(
    folder: Path, tmp_path: Path, options: str, weights: str, vocabulary: bool, splitting: str
) -> None:
    expected = convert(folder / "options.json", folder / "model.hdf5", tmp_path / "expected")
    (folder / "options.json").rename(folder / options)
    (folder / "model.hdf5").rename(folder / weights)
    if not vocabulary:
        (folder / "vocab.txt").unlink()
    written = []
    for number, kind in enumerate((None, "zip", "gztar")):
        packed = Path(shutil.make_archive(str(tmp_path / kind), kind, folder)) if kind else folder
        out = tmp_path / f"out{number}"
        assert main(["convert", str(packed), str(out)]) == 0
        assert (out / "config.json").read_bytes() == (expected / "config.json").read_bytes()
        assert tensors(out).keys() == tensors(expected).keys()
        assert all(torch.equal(tensor, tensors(expected)[key]) for key, tensor in tensors(out).items())
        assert ElmoTokenizer.from_pretrained(out).word_splitting == splitting
        assert ElmoTokenizer.from_pretrained(out).vocabulary is None  # it has no softmax
        copied = out / "softmax_vocab.txt"
        assert copied.is_file() == vocabulary
        assert not vocabulary or copied.read_text(encoding="utf-8").split() == WORDS
        written.append({name: file for name, file in contents(out).items() if name not in RECORDED})
    assert all(one == written[0] for one in written)


def test_the_record_names_the_archive_and_the_vocabulary(folder: Path, tmp_path: Path) -> None:
    packed = Path(shutil.make_archive(str(tmp_path / "model"), "zip", folder))
    for number, (given, archive) in enumerate(((folder, []), (packed, [packed]))):
        files = [*archive, folder / "options.json", folder / "model.hdf5", folder / "vocab.txt"]
        expected = [{"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} for file in files]
        out = convert_repository(given, tmp_path / str(number))
        assert json.loads((out / "conversion.json").read_text())["sources"] == expected


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_every_layer_is_that_of_simple_elmo_itself(
    shared: Path, simple_elmo_python: str, tmp_path: Path, packed: bool
) -> None:
    """In TensorFlow, which goes on from batch to batch: so we do. Real sentences in three languages, and odd words."""
    options = make_options(lstm={"projection_dim": 8, "n_layers": 2})
    _, weights = write_files(tmp_path / "model", options, make_arrays(options))
    source = weights.rename(weights.with_name("model.hdf5")).parent
    sentences = [sentence.split() for sentence in SENTENCES]
    for language in ("de", "ko", "ru"):
        text = (shared / "data" / "multilingual" / "tokens" / f"{language}.txt").read_text(encoding="utf-8")
        sentences += [line.split() for line in text.splitlines()[:4]]
    (source / "vocab.txt").write_text("\n".join([*WORDS[:3], *sorted({w for one in sentences for w in one})]) + "\n")
    if packed:
        source = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", source))
    texts, saved, batch = tmp_path / "sentences.json", tmp_path / "layers.npz", 4
    texts.write_text(json.dumps(sentences))
    worker = Path(__file__).parent.parent / "peer_simple_elmo.py"
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "1"}
    command = [simple_elmo_python, worker, source, texts, str(batch), saved]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    out = convert_repository(source, tmp_path / "out")
    model, tokenizer, state = ElmoModel.from_pretrained(out), ElmoTokenizer.from_pretrained(out), None
    with np.load(saved) as expected, torch.no_grad():
        for start in range(0, len(sentences), batch):
            given = tokenizer(
                sentences[start : start + batch], is_split_into_words=True, padding=True, return_tensors="pt"
            )
            output = model(**given, state=state, output_hidden_states=True)
            state, layers = output.state, torch.stack(output.hidden_states, dim=1).numpy()
            for row, sentence in enumerate(sentences[start : start + batch]):
                found = layers[row, :, 1 : len(sentence) + 1]
                assert np.abs(found - expected[str(start + row)]).max() <= 1e-5, sentence


def test_two_models_in_an_archive_are_not_one(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(folder / "model.hdf5", folder / "other.hdf5")
    packed = shutil.make_archive(str(tmp_path / "two"), "zip", folder)
    assert main(["convert", packed, str(tmp_path / "out")]) == 1
    assert "unpack it, and name the options and the weights, two files" in capsys.readouterr().err


def test_a_folder_in_a_folder_is_converted_as_its_archive(folder: Path, tmp_path: Path) -> None:
    packed = Path(shutil.make_archive(str(tmp_path / "x"), "zip", folder.parent, folder.name))
    shutil.unpack_archive(packed, tmp_path / "unpacked")
    out = convert_repository(tmp_path / "unpacked", tmp_path / "out")
    expected = ElmoModel.from_pretrained(convert_repository(packed, tmp_path / "expected")).state_dict()
    found = ElmoModel.from_pretrained(out).state_dict()
    assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


def test_a_packed_vocabulary_is_copied_as_a_stream(tmp_path: Path) -> None:
    source, count = tmp_path / "vocab.txt.gz", 300_000
    with gzip.open(source, "wt", encoding="utf-8", compresslevel=1) as file:
        file.write("<S>\n</S>\n<UNK>\n")
        file.writelines(f"wørd{number:040d}\n" for number in range(count))
    tracemalloc.start()
    assert copy_vocabulary(source, tmp_path / "vocab.txt") == count + 3
    assert tracemalloc.get_traced_memory()[1] < 2_000_000  # of 13.8 MB
    tracemalloc.stop()
    assert (tmp_path / "vocab.txt").stat().st_size > 13_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the\ncat\n", "line 1: 'the' is not <S>"),
        ("<S>\n</S>\n<UNK>\n\nog\n", "line 4 is empty"),
        ("<S>\n</S>\n", "has 2 words"),
    ],
)
def test_a_vocabulary_that_is_none(folder: Path, tmp_path: Path, text: str, message: str) -> None:
    (folder / "vocab.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        convert_repository(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_digest_is_that_of_the_archive(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = Path(shutil.make_archive(str(tmp_path / "model"), "zip", folder))
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    assert main(["convert", str(packed), str(tmp_path / "out"), "--sha256", digest]) == 0
    weights = hashlib.sha256((folder / "model.hdf5").read_bytes()).hexdigest()  # of a folder
    assert main(["convert", str(folder), str(tmp_path / "of-folder"), "--sha256", weights]) == 0
    assert "The digest of the weights is the one that was asked for." in (tmp_path / "of-folder/README.md").read_text()
    manylangs = write_model(tmp_path / "m", make_settings(), [["a"]])
    for source, given, message in (
        (packed, "00", "has the SHA-256"),
        (folder, digest, "has the SHA-256"),
        (manylangs, digest, "is a folder: give"),
    ):
        assert main(["convert", str(source), str(tmp_path / "other"), "--sha256", given]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_several_models_and_none(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "model.hdf5", folder / "other.hdf5")
    with pytest.raises(ValueError, match=r"holds model\.hdf5, other\.hdf5: name the two files"):
        convert_repository(folder, tmp_path / "out")
    for file in folder.glob("*.hdf5"):
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no \*\.hdf5"):
        convert_repository(folder, tmp_path / "out")


def test_every_published_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["convert", "--list"])
    assert stopped.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(all_names())
    assert len(lines) == len(PUBLISHED_MODELS) + len(PUBLISHED_TRAININGS) + 44
    assert "manylangs-ko      Korean, ELMoForManyLangs, http://vectors.nlpl.eu/repository/11/161.zip" in lines
    assert sorted(number for number, _ in MANYLANGS.values()) == list(range(136, 180))


@pytest.mark.usefixtures("any_sizes")
def test_a_language_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_model(tmp_path / "source", make_settings(), [["나는", "간다"]])
    packed, asked = Path(shutil.make_archive(str(tmp_path / "161"), "zip", source)), []
    monkeypatch.setattr(by_name, "download", lambda *arguments: asked.append(arguments) or packed)
    assert main(["convert", "--model", "manylangs-ko", str(tmp_path / "out"), "--cache-dir", str(tmp_path / "c")]) == 0
    hosts = ("http://vectors.nlpl.eu/repository/11/",)
    assert asked == [("161.zip", tmp_path / "c" / "manylangs-ko" / "161.zip", hosts, "manylangs-ko")]
    assert ElmoModel.from_pretrained(tmp_path / "out").config.char_units == "unicode"
    with pytest.raises(ValueError, match="model is 'manylangs-xx', but the published ones are small"):
        convert_named("manylangs-xx", tmp_path / "other")


@pytest.mark.usefixtures("any_sizes")
def test_a_copy_of_a_language_becomes_what_a_download_becomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_model(tmp_path / "source", make_settings(), [["praça", "."]])
    packed = Path(shutil.make_archive(str(tmp_path / "168"), "zip", source))
    monkeypatch.setattr(by_name, "download", lambda *_: packed)
    downloaded, given = tmp_path / "downloaded" / "elmo-pt", tmp_path / "given" / "elmo-pt"
    assert main(["convert", "manylangs-pt", str(downloaded)]) == 0
    assert main(["convert", "--model", "manylangs-pt", str(packed), str(given)]) == 0
    assert contents(given) == contents(downloaded)
    assert ModelCard.load(given / "README.md").data.language == "pt"
    nameless = convert_manylangs(packed, tmp_path / "nameless" / "elmo-pt")
    assert ModelCard.load(nameless / "README.md").data.language is None


@pytest.mark.usefixtures("any_sizes")
@pytest.mark.parametrize("name", ["pubmed", "seqvec"])
def test_a_copy_of_allennlps_files_becomes_what_a_download_becomes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = make_options()
    files = write_files(tmp_path / "source", options, make_arrays(options))
    monkeypatch.setattr(checkpoint, "download_published", lambda *_: files)
    downloaded = convert_named(name, tmp_path / "downloaded" / "elmo")
    for number, paths in enumerate((files, (tmp_path / "source",))):
        given = tmp_path / str(number) / "elmo"
        assert main(["convert", "--model", name, *map(str, paths), str(given)]) == 0
        assert contents(given) == contents(downloaded)
    assert ElmoTokenizer.from_pretrained(downloaded).word_splitting == {"pubmed": "lm1b", "seqvec": "characters"}[name]


def test_a_packed_copy_has_the_names_card_and_tokenizer(folder: Path, tmp_path: Path) -> None:
    packed = Path(shutil.make_archive(str(tmp_path / "model"), "zip", folder))
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    out = convert_named("portuguese", tmp_path / "out", files=[packed], digest=digest)
    assert ModelCard.load(out / "README.md").data.language == "pt"
    assert ElmoTokenizer.from_pretrained(out).word_splitting == "lm1b"
    with pytest.raises(ValueError, match="has the SHA-256"):
        convert_named("portuguese", tmp_path / "other", files=[packed], digest="00")


def test_what_is_no_copy_of_the_model_is_refused(folder: Path, tmp_path: Path) -> None:
    out, options, weights = tmp_path / "out", folder / "options.json", folder / "model.hdf5"
    for name, files, message in (
        ("manylangs-pt", [folder], "manylangs-pt is a folder or an archive of ELMoForManyLangs, and this is no copy"),
        ("small", [write_model(tmp_path / "m", make_settings(), [["a"]])], "small is options.json and weights.hdf5"),
        ("small", [options], "this is no copy"),
        ("manylangs-xx", [options, weights], "model is 'manylangs-xx', but the published ones are"),
    ):
        with pytest.raises(ValueError, match=message):
            convert_named(name, out, files=files)
    with pytest.raises(FileNotFoundError, match=r"missing\.json does not exist"):
        convert_named("small", out, files=[tmp_path / "missing.json", weights])
    with pytest.raises(ValueError, match="cache_dir is kept, but nothing is downloaded"):
        convert_named("small", out, files=[options, weights], cache_dir="kept")
    assert not out.exists()


def test_files_of_other_sizes_than_the_published_models_are_refused(folder: Path, tmp_path: Path) -> None:
    files = [folder / "options.json", folder / "model.hdf5"]
    packed = Path(shutil.make_archive(str(tmp_path / "model"), "zip", folder))
    small = (
        "these files are no copy of small: they have cell_size 11, projection_size 7, num_filters 17, "
        "num_highway_layers 2, but small has cell_size 1024, projection_size 128, num_filters 2048, "
        "num_highway_layers 1."
    )
    korean = "no copy of manylangs-ko: they have cell_size 11, .*, but manylangs-ko has cell_size 4096, "
    manylangs = write_model(tmp_path / "m", make_settings(), [["a"]])
    for name, given, message in (
        ("small", files, re.escape(small)),
        ("small", [folder], re.escape(small)),
        ("small", [packed], re.escape(small)),
        ("manylangs-ko", [manylangs], korean),
    ):
        with pytest.raises(ValueError, match=message):
            convert_named(name, tmp_path / "out", files=given)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("any_sizes")
def test_the_known_digest_holds_for_a_packed_copy_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = Path(shutil.make_archive(str(tmp_path / "model"), "zip", folder))
    monkeypatch.setitem(checkpoint.SHA256, PUBLISHED_MODELS["small"].weights, "0" * 64)
    for given in (folder, packed):
        with pytest.raises(ValueError, match=r"model\.hdf5 has the SHA-256 \w+, not 0000"):
            convert_named("small", tmp_path / "out", files=[given])


def test_the_sizes_of_published_models() -> None:
    assert SIZES.keys() == all_names().keys() - {"portuguese", "seqvec"}  # whose sizes no name of theirs says
    named = {name: (SIZES[name]["cell_size"], SIZES[name]["projection_size"]) for name in ("small", "medium", "pubmed")}
    assert named == {"small": (1024, 128), "medium": (2048, 256), "pubmed": (4096, 512)}
    sample = config_from_settings(SAMPLE, CharacterVocabulary(["a"], ["a"]))
    assert SIZES["manylangs-ko"] == {field: getattr(sample, field) for field in SIZES_OF_A_NAME}
    for name in ("small", "medium", "original"):
        assert f"cell {SIZES[name]['cell_size']}" in " ".join(published_card(name).text.split())


def test_options_go_with_an_archive_alone(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["convert", str(folder), str(tmp_path / "out"), "--elmo-options", str(folder / "options.json")])
    assert "--elmo-options goes with a model.tar.gz" in capsys.readouterr().err
    assert json.loads((folder / "options.json").read_text())["char_cnn"]["n_characters"] in (261, 262)
