"""Uploading checkpoints, by huggingface_hub's own client."""

import base64
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, get_session, set_client_factory
from huggingface_hub.utils._http import default_client_factory

from hf_elmo import ElmoForTokenClassification, ElmoTokenizer, push
from hf_elmo.checkpoints import hub
from hf_elmo.configuration_elmo import SENTENCE_TRANSFORMERS
from hf_elmo.conversion import convert

from .allennlp_files import make_arrays, make_options, write_files
from .factories import small_checkpoint

REPO = "somebody/elmo-test"
CODE = {*hub.FILES["ElmoModel"], *hub.FILES["ElmoTokenizer"]}
SAVED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *SENTENCE_TRANSFORMERS, *CODE}


class Server:
    """The smallest Hub: one repository, in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: dict[str, bytes] = {}  # the content of the last request of each path

    def answer(self, path: str, content: bytes) -> Any:
        self.requests[path] = content
        if "/preupload/" in path:  # no file is said to need Git LFS, so that the commit carries them all
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(content)["files"]]
            return {"files": [file | {"shouldIgnore": False, "oid": None} for file in files]}
        if "/commit/" in path:
            for item in map(json.loads, content.splitlines()):
                value = item["value"]
                if item["key"] == "file":
                    self.files[value["path"]] = base64.b64decode(value["content"])
                elif item["key"] == "deletedFile":
                    del self.files[value["path"]]
        if "/tree/" in path:
            return [{"type": "file", "path": name, "size": len(x), "oid": "1"} for name, x in self.files.items()]
        repository = {"id": REPO, "private": False, "url": f"https://huggingface.co/{REPO}"}
        commit = {"commitUrl": f"https://huggingface.co/{REPO}/commit/1", "commitOid": "1"}
        return repository | commit | {"errors": [], "warnings": []}  # of the check of a card


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    server, httpx = Server(), import_module(type(get_session()).__module__.partition(".")[0])  # httpx or httpx2

    def respond(request: Any) -> Any:
        return httpx.Response(200, json=server.answer(request.url.path, request.content))

    set_client_factory(lambda: httpx.Client(transport=httpx.MockTransport(respond)))
    yield server
    set_client_factory(default_client_factory)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_checkpoint(tmp_path / "elmo")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_converted_checkpoint_is_uploaded_whole(server: Server, tmp_path: Path) -> None:
    """Weights and tokenizers of an earlier upload are deleted, because transformers would load them."""
    options = make_options()
    folder = convert(*write_files(tmp_path / "source", options, make_arrays(options)), tmp_path / "elmo-converted")
    server.files = {"model-00001-of-00002.safetensors": b"earlier", "vocab.txt": b"earlier", "notes.txt": b"mine"}
    before = contents(folder)
    upload = push(folder, REPO)
    assert contents(folder) == before
    assert before.keys() == {*SAVED, "README.md", "conversion.json"}
    assert upload.files == {name: len(x) for name, x in server.files.items() if name != "notes.txt"}
    assert upload.url == f"https://huggingface.co/{REPO}/commit/1"
    card = server.files.pop("README.md").decode()
    assert card.count(f'from_pretrained("{REPO}", trust_remote_code=True)') == 2
    assert server.files | {"README.md": before["README.md"]} == before | {"notes.txt": b"mine"}


def test_without_code_and_card_both_are_made(server: Server, folder: Path) -> None:
    for name in CODE:
        (folder / name).unlink()
    for file in (folder / "config.json", folder / "tokenizer_config.json"):
        settings = json.loads(file.read_text())
        del settings["auto_map"]
        file.write_text(json.dumps(settings))
    push(folder, REPO)
    assert server.files.keys() == {*SAVED, "README.md"}
    assert json.loads(server.files["config.json"])["auto_map"]["AutoModel"] == "modeling_elmo.ElmoModel"
    assert f'from_pretrained("{REPO}"' in ModelCard(server.files["README.md"].decode()).text


def test_other_files_of_a_training_are_left_out(server: Server, tmp_path: Path) -> None:
    folder = small_checkpoint(tmp_path / "tagger", ElmoForTokenClassification)
    others = ["training_args.bin", "optimizer.pt", "trainer_state.json", "token", "notes.md", "checkpoint-10"]
    for name in others[:-1]:
        (folder / name).write_text("private")
    (folder / "checkpoint-10").mkdir()
    upload = push(folder, REPO)
    code = {*hub.FILES["ElmoForTokenClassification"], *CODE}
    assert server.files.keys() == {*SAVED, "README.md"} - SENTENCE_TRANSFORMERS.keys() | code
    assert set(upload.left_out) == set(others)


def test_private_revision_and_dry_run(server: Server, folder: Path) -> None:
    upload = push(folder, REPO, dry_run=True)
    assert (upload.files.keys(), upload.url, server.requests) == ({*SAVED, "README.md"}, None, {})
    push(folder, REPO, revision="trial")
    assert {f"/api/models/{REPO}/{what}/trial" for what in ("branch", "commit")} <= server.requests.keys()
    server.files.clear()
    with pytest.raises(PermissionError, match="private"):  # the repository is public
        push(folder, REPO, private=True)
    assert b"private" in server.requests["/api/repos/create"]
    assert not server.files


def test_what_is_no_whole_checkpoint_is_refused(server: Server, folder: Path, tmp_path: Path) -> None:
    ElmoTokenizer(max_word_length=9).save_pretrained(folder)
    with pytest.raises(ValueError, match="tokenizer"):
        push(folder, REPO)
    training = tmp_path / "training"
    small_checkpoint(training / "checkpoint-500")
    with pytest.raises(FileNotFoundError, match=rf"{training} lacks config\.json.*checkpoint-500"):
        push(training, REPO)
    assert not server.requests
