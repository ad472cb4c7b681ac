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

from hf_elmo import ElmoModel, ElmoTokenizer, kernels
from hf_elmo.checkpoints.hub import add_remote_code
from hf_elmo.conversion import convert
from tests import heads
from tests.factories import CODE, save_checkpoint, small_config
from tests.source_files import make_settings, write_model, write_words

TEXTS = ["The cat sat on the mat .", "Ünïcödé wörds , 日本語 !"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

# Loads each checkpoint, saves it, and loads what was saved. The package is installed beside the libraries it needs, so
# the process makes it impossible to import; and no compiler, nor any other program, can be started.
SCRIPT = """
import json
import sys
import numpy as np
import torch
import transformers
from transformers import AutoTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module
sys.modules["hf_elmo"] = None
def refuse(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "ctypes.dlopen") and (
        event != "ctypes.dlopen" or "elmo" in str(arguments[0])
    ):
        raise RuntimeError(f"{event} {arguments}")
sys.addaudithook(refuse)

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

MODELS = {  # of each Auto class, one for each file of code: a model of tests/heads.py, and changes of its fields
    "AutoModel": ("no head", {"num_scalar_mixes": 2}),
    "AutoModelForTokenClassification": ("crf", heads.VECTORS),
    "AutoModelForPreTraining": ("language models", {}),
    "AutoModelForCoreferenceResolution": ("resolver", heads.VECTORS),
}
AUTO_MAP = {"AutoModelForCoreferenceResolution": "modeling_coreference_elmo.ElmoForCoreferenceResolution"}


def run_without_package(folder: Path, checkpoints: dict[str, str]) -> None:
    """Runs the script over the checkpoints in `folder`, whose Auto classes are given, as from the Hub's cache."""
    home = folder / "home"
    for name in checkpoints:
        repository = home / "hub" / f"models--somebody--{name}"
        shutil.copytree(folder / name, repository / "snapshots" / COMMIT)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(COMMIT)
    arguments = [(auto, f"somebody/{name}", str(folder / f"{name}-saved")) for name, auto in checkpoints.items()]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HOME": str(home)}
    environment["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    command = [sys.executable, "-I", "-c", SCRIPT, *map(json.dumps, (arguments, AUTO_MAP, TEXTS))]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_checkpoints_without_the_package(tmp_path) -> None:
    for auto, (name, changes) in MODELS.items():
        tokenizer = ElmoTokenizer()
        tokenizer.words = heads.WORDS if changes is heads.VECTORS else None
        save_checkpoint(tmp_path / auto, heads.make(name, **changes), tokenizer)
    # The character vocabulary is one of the files that the tokenizer asks for in the Hub's cache.
    source = write_model(tmp_path / "source", make_settings(), [text.split() for text in TEXTS])
    convert(write_words(tmp_path / "bilm-tf")[0].parent, tmp_path / "words")
    add_remote_code(convert(source, tmp_path / "characters"), "ElmoForTokenClassification")
    assert CODE["ElmoForTokenClassification"] <= {file.name for file in (tmp_path / "characters").iterdir()}
    others = {"characters": "AutoModel", "words": "AutoModel"}
    run_without_package(tmp_path, {auto: auto for auto in MODELS} | others)
    for name in [*MODELS, *others]:
        model_class = heads.MODELS[MODELS.get(name, ("no head",))[0]][0]
        model, tokenizer = model_class.from_pretrained(tmp_path / name), ElmoTokenizer.from_pretrained(tmp_path / name)
        with torch.no_grad(), kernels.use("off"):
            expected = model(**tokenizer(TEXTS, padding=True, return_tensors="pt"))
        with np.load(tmp_path / f"{name}-saved" / "outputs.npz") as found:
            assert len(found.files) > 0
            for output in found.files:
                np.testing.assert_allclose(found[output], expected[output], atol=1e-5, err_msg=name)
        if name not in MODELS:
            continue
        folders, class_name = (tmp_path / name, tmp_path / f"{name}-saved"), model_class.__name__
        first, second = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in folders)
        code = {*CODE[class_name], *CODE["ElmoTokenizer"]}
        assert {file for file in first if file.endswith(".py")} == code
        assert first.keys() == second.keys() - {"outputs.npz"}
        for file in code | {"model.safetensors", "tokenizer.json"}:
            assert second[file] == first[file], file
        for files in (first, second):
            classes = {name.partition(".")[2] for name in json.loads(files["config.json"])["auto_map"].values()}
            assert classes == {"ElmoConfig", "ElmoModel", class_name}
            maps = json.loads(files["tokenizer_config.json"])["auto_map"]
            assert maps == {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]}


def test_a_subclass_of_a_user_is_saved_without_its_source(tmp_path) -> None:
    pytest.importorskip("transformers", "5.13", reason="before 5.13, transformers saves the source of each subclass")

    class Subclass(ElmoModel):
        pass

    Subclass(small_config()).save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.glob("*.py")} == set(CODE["ElmoConfig"])
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["auto_map"] == {"AutoConfig": "configuration_elmo.ElmoConfig"}
