"""Uploading checkpoints: through the real client to a server of this machine, and loading them from there in a process
without hf_elmo."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, constants
from huggingface_hub.errors import HfHubHTTPError

from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer, hub, kernels, push
from hf_elmo.conversion import convert
from hf_elmo.modeling_elmo import SENTENCE_TRANSFORMERS

from . import hub_server
from .allennlp_files import make_arrays, make_options, write_files
from .conftest import TINY, random_model
from .test_remote_code import ALONE, START, TEXTS

REPO = "somebody/elmo-test"
CODE = {*hub.FILES["ElmoModel"], *hub.FILES["ElmoTokenizer"]}
SAVED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *SENTENCE_TRANSFORMERS, *CODE}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """A Hub for this process, whose token may write."""
    with hub_server.serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", "hf_writer")
        yield server


@pytest.fixture
def folder(tmp_path: Path, config: ElmoConfig) -> Path:
    random_model(config).save_pretrained(tmp_path / "elmo")
    ElmoTokenizer().save_pretrained(tmp_path / "elmo")
    return tmp_path / "elmo"


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    options = make_options()
    return convert(*write_files(tmp_path / "source", options, make_arrays(options)), tmp_path / "elmo-converted")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_converted_checkpoint_is_uploaded_whole(hub: hub_server.Hub, converted: Path) -> None:
    before = contents(converted)
    upload = push(converted, REPO)
    there = hub.files(REPO)
    assert there.keys() == {*SAVED, "README.md", "conversion.json", ".gitattributes"}
    assert all(there[name] == content for name, content in before.items() if name != "README.md")
    assert contents(converted) == before
    assert upload.files == {name: len(content) for name, content in there.items() if name != ".gitattributes"}
    repository = hub.repositories[REPO]
    assert upload.url == f"{hub.url}/{REPO}/commit/{repository.branches['main']}"
    card = there["README.md"].decode()
    assert card.count(f'from_pretrained("{REPO}", trust_remote_code=True)') == 2


def test_without_code_and_card_both_are_made(hub: hub_server.Hub, folder: Path) -> None:
    for name in CODE:
        (folder / name).unlink()
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads((folder / name).read_text())
        del settings["auto_map"]
        (folder / name).write_text(json.dumps(settings))
    push(folder, REPO)
    assert hub.files(REPO).keys() == {*SAVED, "README.md", ".gitattributes"}
    assert json.loads(hub.files(REPO)["config.json"])["auto_map"]["AutoModel"] == "modeling_elmo.ElmoModel"
    assert f'from_pretrained("{REPO}"' in ModelCard(hub.files(REPO)["README.md"].decode()).text


def test_other_files_of_a_training_are_left_out(hub: hub_server.Hub, folder: Path) -> None:
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nword\n")
    others = ["training_args.bin", "optimizer.pt", "trainer_state.json", "token", "notes.md", "checkpoint-10"]
    for name in others[:-1]:
        (folder / name).write_text("private")
    (folder / "checkpoint-10").mkdir()
    upload = push(folder, REPO)
    assert hub.files(REPO).keys() == {*SAVED, "README.md", ".gitattributes", "vocab.txt"}
    assert set(upload.left_out) == set(others)


def test_files_of_an_earlier_upload_are_replaced(hub: hub_server.Hub, folder: Path) -> None:
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nword\n")
    push(folder, REPO)
    (folder / "vocab.txt").unlink()
    push(folder, REPO)
    assert "vocab.txt" not in hub.files(REPO)


def test_private(hub: hub_server.Hub, folder: Path) -> None:
    push(folder, REPO, private=True)
    assert hub.repositories[REPO].private
    hub.repositories[REPO].private = False
    with pytest.raises(PermissionError, match="private"):
        push(folder, REPO, private=True)


def test_revision(hub: hub_server.Hub, folder: Path) -> None:
    push(folder, REPO, revision="trial/1")
    assert hub.files(REPO).keys() == {".gitattributes"}
    assert hub.files(REPO, "trial/1").keys() == {*SAVED, "README.md", ".gitattributes"}


def test_a_dry_run_sends_nothing(hub: hub_server.Hub, folder: Path) -> None:
    upload = push(folder, REPO, dry_run=True)
    assert upload.files.keys() == {*SAVED, "README.md"}
    assert upload.url is None
    assert hub.requests == []


def test_another_tokenizer_is_refused(hub: hub_server.Hub, folder: Path) -> None:
    ElmoTokenizer(max_word_length=9).save_pretrained(folder)
    with pytest.raises(ValueError, match="tokenizer"):
        push(folder, REPO)
    assert hub.requests == []


def test_a_token_that_may_only_read(hub: hub_server.Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    with pytest.raises(HfHubHTTPError):
        push(folder, REPO)
    assert not hub.stored


PUSH = """
import sys
import hf_elmo
from hf_elmo import ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
folder, classifier = sys.argv[1:]
for each in (ElmoModel, ElmoTokenizer):
    each.from_pretrained(folder).push_to_hub("somebody/by-method")
hf_elmo.push(folder, "somebody/by-command")
ElmoForSequenceClassification.from_pretrained(classifier).push_to_hub("somebody/head", private=True, revision="trial")
ElmoTokenizer.from_pretrained(classifier).push_to_hub("somebody/head", private=True, revision="trial")
"""

LOAD = (
    ALONE
    + """
import json
import numpy as np
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer
"""
    + START
    + """
outputs, classes = {}, []
for name in sys.argv[3:]:
    where = {"revision": "trial", "token": True} if name == "head" else {}
    tokenizer = AutoTokenizer.from_pretrained(f"somebody/{name}", trust_remote_code=True, **where)
    auto = AutoModelForSequenceClassification if name == "head" else AutoModel
    model = auto.from_pretrained(f"somebody/{name}", trust_remote_code=True, **where).eval()
    with torch.no_grad():
        outputs[name] = model(**tokenizer(json.loads(sys.argv[2]), padding=True, return_tensors="pt"))[0]
    classes += [type(one).__module__ for one in (tokenizer, model)]
assert all(module.startswith("transformers_modules.") for module in classes), classes
np.savez(sys.argv[1], **outputs)
"""
)


def run_with_hub(hub: hub_server.Hub, home: Path, *arguments: str) -> None:
    """A new process with an empty cache, to which this Hub is the Hub."""
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HOME": str(home), "HF_TOKEN": "hf_writer"}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_ELMO_KERNELS": "off"}
    command = [sys.executable, "-I", "-c", *arguments]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_pushed_by_each_way_and_loaded_where_hf_elmo_is_not(tmp_path: Path, converted: Path) -> None:
    classifier = random_model(ElmoConfig(**TINY, num_labels=3), ElmoForSequenceClassification)
    classifier.save_pretrained(tmp_path / "classifier")
    ElmoTokenizer().save_pretrained(tmp_path / "classifier")
    names = ["by-method", "by-command", "head"]
    with hub_server.serving() as hub:
        run_with_hub(hub, tmp_path / "here", PUSH, str(converted), str(tmp_path / "classifier"))
        run_with_hub(hub, tmp_path / "elsewhere", LOAD, str(tmp_path / "out.npz"), json.dumps(TEXTS), *names)
    with np.load(tmp_path / "out.npz") as arrays:
        outputs = dict(arrays)
    elmo = ElmoModel.from_pretrained(converted)
    for name, source, model in zip(
        names, (converted, converted, tmp_path / "classifier"), (elmo, elmo, classifier), strict=True
    ):
        batch = ElmoTokenizer.from_pretrained(source)(TEXTS, padding=True, return_tensors="pt")
        with torch.no_grad(), kernels.use("off"):
            np.testing.assert_allclose(outputs[name], model(**batch)[0], atol=1e-6, rtol=0, err_msg=name)
