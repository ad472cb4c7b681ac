"""Uploading checkpoints: what is handed to huggingface_hub, and a whole upload that a process without hf_elmo loads."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi, ModelCard

from hf_elmo import ElmoForSequenceClassification, ElmoForTokenClassification, ElmoModel, ElmoTokenizer, hub, push
from hf_elmo.conversion import convert
from hf_elmo.modeling_elmo import SENTENCE_TRANSFORMERS

from .allennlp_files import make_arrays, make_options, write_files
from .factories import save_checkpoint, small_checkpoint, small_model
from .hub_server import serving
from .test_remote_code import ALONE, START, TEXTS

REPO = "somebody/elmo-test"
CODE = {*hub.FILES["ElmoModel"], *hub.FILES["ElmoTokenizer"]}
SAVED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *SENTENCE_TRANSFORMERS, *CODE}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """The arguments of the client's methods that were called; `files` has the content of what was uploaded."""
    calls: dict[str, Any] = {}

    def record(name: str, result: Any = None) -> None:
        def method(self: HfApi, *arguments: Any, **options: Any) -> Any:
            calls[name] = {"repo": arguments[0]} | options if arguments else options
            if name == "upload_folder":
                calls["files"] = contents(Path(options["folder_path"]))
            return result

        monkeypatch.setattr(HfApi, name, method)

    record("create_repo")
    record("repo_info", SimpleNamespace(private=False))
    record("create_branch")
    record("upload_folder", SimpleNamespace(commit_url="https://hub/commit/1"))
    return calls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_checkpoint(tmp_path / "elmo")


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    options = make_options()
    return convert(*write_files(tmp_path / "source", options, make_arrays(options)), tmp_path / "elmo-converted")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_converted_checkpoint_is_uploaded_whole(calls: dict, converted: Path) -> None:
    before = contents(converted)
    upload = push(converted, REPO)
    assert contents(converted) == before
    assert calls["files"].keys() == before.keys() == {*SAVED, "README.md", "conversion.json"}
    assert all(calls["files"][name] == content for name, content in before.items() if name != "README.md")
    assert calls["files"]["README.md"].decode().count(f'from_pretrained("{REPO}", trust_remote_code=True)') == 2
    assert upload.files == {name: len(content) for name, content in calls["files"].items()}
    assert upload.url == "https://hub/commit/1"
    # Weights and tokenizers of an earlier upload are deleted, because transformers would load them.
    assert {"model*.safetensors", "vocab.txt"} <= set(calls["upload_folder"]["delete_patterns"])


def test_without_code_and_card_both_are_made(calls: dict, folder: Path) -> None:
    for name in CODE:
        (folder / name).unlink()
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads((folder / name).read_text())
        del settings["auto_map"]
        (folder / name).write_text(json.dumps(settings))
    push(folder, REPO)
    assert calls["files"].keys() == {*SAVED, "README.md"}
    assert json.loads(calls["files"]["config.json"])["auto_map"]["AutoModel"] == "modeling_elmo.ElmoModel"
    assert f'from_pretrained("{REPO}"' in ModelCard(calls["files"]["README.md"].decode()).text


def test_other_files_of_a_training_are_left_out(calls: dict, tmp_path: Path) -> None:
    folder = small_checkpoint(tmp_path / "tagger", ElmoForTokenClassification)
    others = ["training_args.bin", "optimizer.pt", "trainer_state.json", "token", "notes.md", "checkpoint-10"]
    for name in others[:-1]:
        (folder / name).write_text("private")
    (folder / "checkpoint-10").mkdir()
    upload = push(folder, REPO)
    code = {*hub.FILES["ElmoForTokenClassification"], *CODE}
    assert calls["files"].keys() == {*SAVED, "README.md"} - SENTENCE_TRANSFORMERS.keys() | code
    assert set(upload.left_out) == set(others)


def test_private_revision_and_dry_run(calls: dict, folder: Path) -> None:
    upload = push(folder, REPO, dry_run=True)
    assert (upload.files.keys(), upload.url, calls) == ({*SAVED, "README.md"}, None, {})
    push(folder, REPO, revision="trial")
    assert calls["create_branch"]["branch"] == calls["upload_folder"]["revision"] == "trial"
    with pytest.raises(PermissionError, match="private"):  # the repository is public
        push(folder, REPO, private=True)
    assert calls["create_repo"]["private"] is True


def test_what_is_no_whole_checkpoint_is_refused(calls: dict, folder: Path, tmp_path: Path) -> None:
    ElmoTokenizer(max_word_length=9).save_pretrained(folder)
    with pytest.raises(ValueError, match="tokenizer"):
        push(folder, REPO)
    training = tmp_path / "training"
    small_checkpoint(training / "checkpoint-500")
    with pytest.raises(FileNotFoundError, match=rf"{training} .*lacks config\.json.*checkpoint-500"):
        push(training, REPO)
    (training / "checkpoint-500" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="lacks model"):
        push(training / "checkpoint-500", REPO)
    assert calls == {}


PUSH = """
import sys
import hf_elmo
from hf_elmo import ElmoForSequenceClassification, ElmoTokenizer
folder, classifier = sys.argv[1:]
hf_elmo.push(folder, "somebody/by-command")
for each in (ElmoForSequenceClassification, ElmoTokenizer):
    each.from_pretrained(classifier).push_to_hub("somebody/by-method")
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
outputs = {}
for name, auto in (("by-command", AutoModel), ("by-method", AutoModelForSequenceClassification)):
    tokenizer = AutoTokenizer.from_pretrained(f"somebody/{name}", trust_remote_code=True)
    model = auto.from_pretrained(f"somebody/{name}", trust_remote_code=True).eval()
    with torch.no_grad():
        outputs[name] = model(**tokenizer(json.loads(sys.argv[2]), padding=True, return_tensors="pt"))[0]
    assert type(tokenizer).__module__.startswith("transformers_modules.")
    assert type(model).__module__.startswith("transformers_modules.")
np.savez(sys.argv[1], **outputs)
"""
)


@pytest.mark.slow
def test_pushed_and_loaded_where_hf_elmo_is_not(tmp_path: Path, converted: Path) -> None:
    classifier = save_checkpoint(tmp_path / "classifier", small_model(ElmoForSequenceClassification, num_labels=3))
    with serving() as server:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
        environment |= {"HF_ENDPOINT": server.url, "HF_TOKEN": "hf_x", "HF_HUB_DISABLE_XET": "1"}
        environment |= {"HF_HUB_DISABLE_TELEMETRY": "1"}
        for code, *arguments in ((PUSH, converted, classifier), (LOAD, tmp_path / "out.npz", json.dumps(TEXTS))):
            home = tmp_path / f"home{len(code)}"
            command = [sys.executable, "-I", "-c", code, *map(str, arguments)]
            own = {"HF_HOME": str(home), "HOME": str(home), "HF_ELMO_KERNELS": "off"}
            done = subprocess.run(command, env=environment | own, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    expected = {"by-command": (ElmoModel, converted), "by-method": (ElmoForSequenceClassification, classifier)}
    with np.load(tmp_path / "out.npz") as outputs, torch.no_grad():
        for name, (model_class, source) in expected.items():
            batch = ElmoTokenizer.from_pretrained(source)(TEXTS, padding=True, return_tensors="pt")
            np.testing.assert_allclose(outputs[name], model_class.from_pretrained(source)(**batch)[0], atol=1e-5)
