"""What a checkpoint carries, and how it loads, computes and is saved again where hf_elmo is not installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elmo import (
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    hub,
    kernels,
)
from hf_elmo.conversion import convert
from hf_elmo.hub import add_remote_code

from .factories import save_checkpoint, small_model
from .manylangs_files import make_settings, write_model
from .reference import NumpyManyLangs

TEXTS = ["The cat sat on the mat .", "Ünïcödé wörds , 日本語 !"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

# The package is installed beside the libraries it needs, so the process makes it impossible to import; and no compiler,
# nor any other program, can be started.
ALONE = """
import sys
sys.modules["hf_elmo"] = None
def refuse(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "ctypes.dlopen") and (
        event != "ctypes.dlopen" or "elmo" in str(arguments[0])
    ):
        raise RuntimeError(f"{event} {arguments}")
"""
START = "sys.addaudithook(refuse)\n"

# Loads each checkpoint, saves it, and loads what was saved.
SCRIPT = (
    ALONE
    + """
import json
import numpy as np
import torch
import transformers
from transformers import AutoTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module
"""
    + START
    + """
def outputs(auto, source):
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=True)
    if hasattr(transformers, auto):
        model = getattr(transformers, auto).from_pretrained(source, trust_remote_code=True).eval()
    else:  # transformers has no such Auto class
        reference = json.loads(sys.argv[2])[auto]
        model = get_class_from_dynamic_module(reference, source).from_pretrained(source).eval()
    parts = [tokenizer, model]
    if auto == "AutoModelForTokenClassification":
        tag = transformers.pipeline("token-classification", model=source, trust_remote_code=True)
        assert all(one["word"] in texts_of_test[0].split() for one in tag(texts_of_test[0], ignore_labels=[]))
        parts.append(tag)
    for part in parts:
        assert type(part).__module__.startswith("transformers_modules."), type(part).__module__
    with torch.no_grad():
        output = model(**tokenizer(texts_of_test, padding=True, return_tensors="pt"))
    found = {name: value for name, value in output.items() if torch.is_tensor(value) and value.is_floating_point()}
    return tokenizer, model, found

texts_of_test = json.loads(sys.argv[3])
for auto, source, saved in json.loads(sys.argv[1]):
    tokenizer, model, before = outputs(auto, source)
    model.save_pretrained(saved)
    tokenizer.save_pretrained(saved)
    _, _, after = outputs(auto, saved)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    np.savez(saved + "/outputs.npz", **before)
"""
)

MODELS = {  # one for each file of code
    "AutoModel": ElmoModel,
    "AutoModelForTokenClassification": ElmoForTokenClassification,
    "AutoModelForPreTraining": ElmoForPreTraining,
    "AutoModelForCoreferenceResolution": ElmoForCoreferenceResolution,
}
FIELDS = {"encoder_type": "bilstm", "encoder_hidden_size": 7, "elmo_at_output": True}
FIELDS |= {"word_vectors_vocab_size": 6, "word_vectors_size": 5}
CRF = {"id2label": {0: "O", 1: "B-x", 2: "I-x"}, "tagging_crf": True, "tagging_scheme": "IOB2"}
SETTINGS = {
    "AutoModel": {"num_scalar_mixes": 2},
    "AutoModelForTokenClassification": FIELDS | CRF,
    "AutoModelForPreTraining": {"vocab_size": 9},
    "AutoModelForCoreferenceResolution": FIELDS | {"coreference_hidden_size": 8, "coreference_max_width": 4},
}


def put_into_hub_cache(checkpoint: Path, home: Path, name: str) -> str:
    """Lays a checkpoint into a cache as huggingface_hub would after downloading it; returns its repository's name."""
    repository = home / "hub" / f"models--somebody--{name}"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for file in checkpoint.iterdir():
        shutil.copyfile(file, snapshot / file.name)
    return f"somebody/{name}"


def run_without_package(folder: Path, checkpoints: dict[str, str]) -> None:
    """Runs the script over the checkpoints in `folder`, whose Auto classes are given, as from the Hub's cache."""
    home = folder / "home"
    names = {name: put_into_hub_cache(folder / name, home, name) for name in checkpoints}
    arguments = [(auto, names[name], str(folder / f"{name}-saved")) for name, auto in checkpoints.items()]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HOME": str(home)}
    environment["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    command = [sys.executable, "-I", "-c", SCRIPT, *map(json.dumps, (arguments, hub.AUTO_CLASSES, TEXTS))]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints, and what a process without hf_elmo made of them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for auto, model_class in MODELS.items():
        tokenizer = ElmoTokenizer()
        tokenizer.words = ["the", "mat", "."] if "word_vectors_size" in SETTINGS[auto] else None
        save_checkpoint(folder / auto, small_model(model_class, **SETTINGS[auto]), tokenizer)
    run_without_package(folder, {auto: auto for auto in MODELS})
    return folder


@pytest.mark.parametrize("auto", MODELS)
def test_the_same_numbers_without_the_package(folder: Path, auto: str) -> None:
    model, tokenizer = MODELS[auto].from_pretrained(folder / auto), ElmoTokenizer.from_pretrained(folder / auto)
    with torch.no_grad(), kernels.use("off"):
        expected = model(**tokenizer(TEXTS, padding=True, return_tensors="pt"))
    with np.load(folder / f"{auto}-saved" / "outputs.npz") as found:
        assert len(found.files) > 0
        for name in found.files:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_holds_the_listed_files_and_no_others(folder: Path, name: str) -> None:
    class_name = MODELS[name].__name__
    first, second = ({file.name: file.read_bytes() for file in (folder / n).iterdir()} for n in (name, f"{name}-saved"))
    code = {*hub.FILES[class_name], *hub.FILES["ElmoTokenizer"]}
    assert {file for file in first if file.endswith(".py")} == code
    assert first.keys() == second.keys() - {"outputs.npz"}
    for file in code | {"model.safetensors", "tokenizer.json"}:
        assert second[file] == first[file], file
    for files in (first, second):
        assert json.loads(files["config.json"])["auto_map"] == hub.auto_map(class_name)
        maps = json.loads(files["tokenizer_config.json"])["auto_map"]
        assert maps == {"AutoTokenizer": [hub.AUTO_CLASSES["AutoTokenizer"], None]}


def test_a_subclass_of_a_user_is_saved_without_its_source(config: ElmoConfig, tmp_path: Path) -> None:
    pytest.importorskip("transformers", "5.13", reason="before 5.13, transformers saves the source of each subclass")

    class Subclass(ElmoModel):
        pass

    Subclass(config).save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.glob("*.py")} == set(hub.FILES["ElmoConfig"])
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["auto_map"] == {"AutoConfig": hub.AUTO_CLASSES["AutoConfig"]}


@pytest.mark.slow
def test_other_characters_and_a_head_that_is_added(tmp_path: Path) -> None:
    """The character vocabulary is one of the files that the tokenizer asks for in the Hub's cache."""
    sentences = [text.split() for text in TEXTS]
    source = write_model(tmp_path / "source", make_settings(), sentences)
    checkpoint = convert(source, tmp_path / "elmo")
    add_remote_code(checkpoint, "ElmoForTokenClassification")
    run_without_package(tmp_path, {"elmo": "AutoModel"})
    assert (tmp_path / "elmo-saved" / "character_vocab.json").exists()
    with np.load(tmp_path / "elmo-saved" / "outputs.npz") as found:
        mix = found["last_hidden_state"]
    reference = NumpyManyLangs(source)
    for row, sentence in enumerate(sentences):
        expected = reference.layers(sentence).mean(0)
        assert np.abs(mix[row, : len(sentence) + 2] - expected).max() <= 1e-5
