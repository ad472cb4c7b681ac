"""Checkpoints: the layout of their tensors, loading, fingerprints, no path of the machine, uploading by the client of
huggingface_hub. `python -m tests.test_checkpoints` writes `layouts.txt` anew until a version is released."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard, get_session, set_client_factory
from huggingface_hub.utils._http import default_client_factory
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

import hf_elmo
from hf_elmo import ElmoForTokenClassification, ElmoModel, ElmoTokenizer, pretrain, push
from hf_elmo.checkpoints import loading
from hf_elmo.configuration_elmo import SENTENCE_TRANSFORMERS
from hf_elmo.conversion import convert
from hf_elmo.utils.fingerprints import model_fingerprint, tokenizer_fingerprint
from tests import heads
from tests.factories import CODE, TINY, contents, save_checkpoint, small_checkpoint, small_model, write_lines
from tests.source_files import make_settings, write_files, write_model

REPO = "somebody/elmo-test"
FILES = {*CODE["ElmoModel"], *CODE["ElmoTokenizer"]}
SAVED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *SENTENCE_TRANSFORMERS, *FILES}
LAYOUTS = Path(__file__).with_name("layouts.txt")
UNICODE = {"char_units": "unicode", "word_vocab_size": 7, "word_embedding_size": 3, "num_scalar_mixes": 2}
# Of a checkpoint, the model in tests/heads.py and changes of its fields.
CHECKPOINTS = {name: (name, {}) for name in ("no head", "language models", "last", "maxout", *heads.NETWORKS)}
CHECKPOINTS |= {"other characters, words and two mixes": ("no head", UNICODE), "crf": ("crf", heads.VECTORS)}


def describe_all() -> str:
    """A line for each tensor; of a head without those of its biLM."""
    lines = []
    for checkpoint, (name, changes) in CHECKPOINTS.items():
        with TemporaryDirectory() as folder:
            heads.make_new(name, **changes).save_pretrained(folder)
            tensors = load_file(Path(folder, "model.safetensors"))
        own = [tensor for tensor in sorted(tensors) if name == "no head" or not tensor.startswith("elmo.")]
        lines += ["", f"# {checkpoint}", *(f"{one} {list(tensors[one].shape)} {tensors[one].dtype}" for one in own)]
    return "\n".join(lines[1:]) + "\n"


def test_checkpoints_have_the_stored_layouts() -> None:
    assert describe_all() == LAYOUTS.read_text(encoding="utf-8")


def test_the_default_is_the_model_that_ships(tmp_path, monkeypatch) -> None:
    model, tokenizer = hf_elmo.load_model(language_model=True)
    assert model.dtype == torch.float32
    assert len(tokenizer.vocabulary) == model.config.vocab_size
    monkeypatch.chdir(tmp_path)
    assert loading.locate("elmo-compact-en") == str(loading.FOLDER)
    Path("elmo-compact-en").mkdir()  # a folder of that name comes first
    assert loading.locate("elmo-compact-en") == "elmo-compact-en"


@pytest.mark.slow
def test_it_loads_without_network(tmp_path) -> None:
    code = "import socket; socket.socket.connect = None; import hf_elmo; hf_elmo.load_model()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=240)


def test_what_is_no_whole_checkpoint(tmp_path, caplog) -> None:
    small_model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="vocab_size"):
        hf_elmo.load_model(tmp_path, language_model=True)
    hf_elmo.load_model(tmp_path)
    assert "word_splitting" in caplog.text  # there is no tokenizer
    with pytest.raises(FileNotFoundError, match=r"are owner/name$"):
        hf_elmo.load_model("/missing/folder")
    with pytest.raises(FileNotFoundError, match="hf-elmo convert original elmo-original"):
        hf_elmo.load_model("original")


def test_the_tokenizer_is_that_of_the_subfolder(tmp_path) -> None:
    for folder, splitting in ((tmp_path, "lm1b"), (tmp_path / "one", "whitespace")):
        save_checkpoint(folder, small_model(), ElmoTokenizer(word_splitting=splitting))
    model = ElmoModel.from_pretrained(tmp_path, subfolder="one")
    assert len(hf_elmo.embed(model, ["Don't go!"])[0]) == 2


def test_fingerprints_change_with_what_decides_a_vector(model, tmp_path) -> None:
    before = model_fingerprint(model)
    save_checkpoint(tmp_path / "elmo", model)
    tagger = ElmoForTokenClassification.from_pretrained(tmp_path / "elmo", hidden_dropout=0.5, num_labels=3)
    tagger.config.transformers_version, tagger.config.id2label = "5.0.0", {0: "A", 1: "B", 2: "C"}
    assert model_fingerprint(tagger.elmo) == before  # neither paths, versions nor heads decide one
    assert model_fingerprint(tagger) != before
    half = ElmoModel.from_pretrained(tmp_path / "elmo", dtype="bfloat16")
    assert model_fingerprint(half) == model_fingerprint(model, torch.bfloat16) != before
    model.config.cell_clip += 1
    found = [before, model_fingerprint(model)]
    model.bilm.layers[0].lstm.bias.data[0] += 1
    assert model_fingerprint(model) not in found
    assert len(set(found)) == 2
    tokenizer = ElmoTokenizer("whitespace")
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["a text", "b"], padding=True, truncation=True, max_length=3)
    assert tokenizer_fingerprint(tokenizer) == before
    assert before not in map(tokenizer_fingerprint, (ElmoTokenizer(), ElmoTokenizer("whitespace", 9)))


def require_no_path(folder: Path, parent: Path) -> None:
    files = [file for file in folder.iterdir() if file.is_file()]
    assert {"config.json", "tokenizer_config.json", "tokenizer.json"} <= {file.name for file in files}
    for name in map(str, (parent, Path.home(), Path(__file__).parent.parent, os.getcwd())):
        assert len(name) > 3, "the test would prove too little"
        assert [file.name for file in files if name.encode() in file.read_bytes()] == []


def test_no_path_in_a_conversion_in_what_is_saved_again_and_in_a_training(tmp_path) -> None:
    source = write_files(tmp_path / "source")
    folder = convert(*source, tmp_path / "allennlp")
    require_no_path(folder, tmp_path)
    for auto in (AutoModel, AutoTokenizer):
        auto.from_pretrained(folder, cache_dir=tmp_path / "cache").save_pretrained(tmp_path / "second")
    require_no_path(tmp_path / "second", tmp_path)
    write_lines(source[0].parent / "vocab.txt", ["<S>", "</S>", "<UNK>", "word"])
    require_no_path(convert(source[0].parent, tmp_path / "repository"), tmp_path)
    manylangs = write_model(tmp_path / "manylangs-source", make_settings(), [["A", "word"]])
    require_no_path(convert(manylangs, tmp_path / "manylangs"), tmp_path)
    text, held_out = write_lines(tmp_path / "text", ["A word is a word ."] * 60), write_lines(tmp_path / "other", ["A"])
    settings = {"max_steps": 2, "batch_size": 2, "window": 5, "report_to": []}
    pretrain(text, tmp_path / "new", config=TINY, held_out=held_out, **settings)
    pretrain(text, tmp_path / "adapted", init=small_checkpoint(tmp_path / "base"), **settings)
    for name in ("new", "adapted"):
        require_no_path(tmp_path / name, tmp_path)


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
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    server, httpx = Server(), import_module(type(get_session()).__module__.partition(".")[0])  # httpx or httpx2

    def respond(request: Any) -> Any:
        return httpx.Response(200, json=server.answer(request.url.path, request.content))

    set_client_factory(lambda: httpx.Client(transport=httpx.MockTransport(respond)))
    yield server
    set_client_factory(default_client_factory)


def test_a_converted_checkpoint_is_uploaded_whole(server, tmp_path) -> None:
    """Weights and tokenizers of an earlier upload are deleted, because transformers would load them; others stay."""
    folder = convert(*write_files(tmp_path / "source"), tmp_path / "elmo-converted")
    kept = dict.fromkeys(("notes.txt", "model-good.safetensors", "models/other.safetensors"), b"mine")
    server.files = {"model-00001-of-00002.safetensors": b"earlier", "vocab.txt": b"earlier", **kept}
    before = contents(folder)
    upload = push(folder, REPO)
    assert contents(folder) == before
    assert before.keys() == {*SAVED, "README.md", "conversion.json"}
    assert upload.files == {name: len(x) for name, x in server.files.items() if name not in kept}
    assert upload.url == f"https://huggingface.co/{REPO}/commit/1"
    card = server.files.pop("README.md").decode()
    assert card.count(f'from_pretrained("{REPO}", trust_remote_code=True)') == 2
    assert server.files | {"README.md": before["README.md"]} == before | kept


def test_without_code_and_card_both_are_made(server, folder) -> None:
    for name in FILES:
        (folder / name).unlink()
    for file in (folder / "config.json", folder / "tokenizer_config.json"):
        settings = json.loads(file.read_text())
        del settings["auto_map"]
        file.write_text(json.dumps(settings))
    push(folder, REPO)
    assert server.files.keys() == {*SAVED, "README.md"}
    assert json.loads(server.files["config.json"])["auto_map"]["AutoModel"] == "modeling_elmo.ElmoModel"
    assert f'from_pretrained("{REPO}"' in ModelCard(server.files["README.md"].decode()).text


def test_other_files_of_a_training_are_left_out(server, tmp_path) -> None:
    folder = small_checkpoint(tmp_path / "tagger", ElmoForTokenClassification)
    others = ["training_args.bin", "optimizer.pt", "model-good.safetensors", "token", "notes.md", "checkpoint-10"]
    for name in others[:-1]:
        (folder / name).write_text("private")
    (folder / "checkpoint-10").mkdir()
    upload = push(folder, REPO)
    code = {*CODE["ElmoForTokenClassification"], *FILES}
    assert server.files.keys() == {*SAVED, "README.md"} - SENTENCE_TRANSFORMERS.keys() | code
    assert set(upload.left_out) == set(others)


def test_private_revision_and_dry_run(server, folder) -> None:
    upload = push(folder, REPO, dry_run=True)
    assert (upload.files.keys(), upload.url, server.requests) == ({*SAVED, "README.md"}, None, {})
    push(folder, REPO, revision="trial")
    assert {f"/api/models/{REPO}/{what}/trial" for what in ("branch", "commit")} <= server.requests.keys()
    server.files.clear()
    with pytest.raises(PermissionError, match="private"):  # the repository is public
        push(folder, REPO, private=True)
    assert b"private" in server.requests["/api/repos/create"]
    assert not server.files


def test_what_is_no_whole_checkpoint_is_not_uploaded(server, folder, tmp_path) -> None:
    ElmoTokenizer(max_word_length=9).save_pretrained(folder)
    with pytest.raises(ValueError, match="tokenizer"):
        push(folder, REPO)
    training = tmp_path / "training"
    small_checkpoint(training / "checkpoint-500")
    with pytest.raises(FileNotFoundError, match=rf"{training} lacks config\.json.*checkpoint-500"):
        push(training, REPO)
    assert not server.requests


if __name__ == "__main__":
    LAYOUTS.write_text(describe_all(), encoding="utf-8")
