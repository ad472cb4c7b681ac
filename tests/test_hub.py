"""Checkpoints on the Hub: what is uploaded and what is not, through the real client to a server of this machine, and
what a process without hf_elmo then loads from there."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, constants
from safetensors.torch import load_file

import hf_elmo
from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoModel,
    ElmoTokenizer,
    kernels,
    push,
    remote_code,
)
from hf_elmo.conversion import add_remote_code, convert
from hf_elmo_cli import main

from . import hub_server
from .allennlp_files import make_arrays, make_options, write_files
from .conftest import TINY, random_model
from .test_remote_code import ALONE, START, TEXTS

REPO = "somebody/elmo-test"
CODE = {*remote_code.FILES["ElmoModel"], *remote_code.FILES["ElmoTokenizer"]}
SAVED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *CODE}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """A Hub for this process, whose token may write; retries do not wait."""
    with hub_server.serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", "hf_writer")
        at_once = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
        monkeypatch.setattr("huggingface_hub.utils._http.time", at_once)
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


# -- what is uploaded --------------------------------------------------------------------------------------------------


def test_a_converted_checkpoint_is_uploaded_whole(hub: hub_server.Hub, converted: Path) -> None:
    before = contents(converted)
    upload = push(converted, REPO)
    there = hub.files(REPO)
    assert there.keys() == {*SAVED, "README.md", "conversion.json", ".gitattributes"}
    assert {name: there[name] for name in before if name != "README.md"} == {
        name: content for name, content in before.items() if name != "README.md"
    }
    assert contents(converted) == before
    assert upload.files == {name: len(content) for name, content in there.items() if name != ".gitattributes"}
    assert (upload.made, upload.left_out, upload.deleted) == (("README.md",), (), ())
    repository = hub.repositories[REPO]
    assert not repository.private
    assert len(repository.commits) == 2  # the Hub's own, and one
    assert upload.url == f"{hub.url}/{REPO}/commit/{repository.branches['main']}"


def test_the_card_names_the_repository(hub: hub_server.Hub, converted: Path) -> None:
    push(converted, REPO)
    card = hub.files(REPO)["README.md"].decode()
    assert card.count(f'from_pretrained("{REPO}", trust_remote_code=True)') == 2
    assert 'from_pretrained("elmo-converted"' not in card
    assert "# elmo-converted\n" in card


def test_without_a_card_one_is_made(hub: hub_server.Hub, folder: Path) -> None:
    upload = push(folder, REPO)
    assert upload.made == ("README.md",)
    card = ModelCard(hub.files(REPO)["README.md"].decode())
    assert card.data.library_name == "transformers"
    assert f'AutoModel.from_pretrained("{REPO}", trust_remote_code=True)' in card.text
    assert "Converted" not in card.text
    assert "SHA-256" not in card.text
    assert "splits text at whitespace" not in card.text
    assert not (folder / "README.md").exists()
    ElmoTokenizer(word_splitting="whitespace").save_pretrained(folder)
    push(folder, REPO)
    card = ModelCard(hub.files(REPO)["README.md"].decode())
    assert "splits text at whitespace" in card.text
    assert f'AutoTokenizer.from_pretrained("{REPO}", word_splitting="lm1b", trust_remote_code=True)' in card.text


def test_what_a_training_leaves_stays_at_home(hub: hub_server.Hub, folder: Path) -> None:
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nword\n")
    (folder / "curve.png").write_bytes(b"picture")
    home = ["training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "token", ".env"]
    for name in [*home, "pytorch_model.bin", "notes.md", "train.py", "data_elmo.py"]:
        (folder / name).write_text("nobody else's")
    for name in ("checkpoint-10/model.safetensors", "runs/events", ".git/config"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("nobody else's")
    upload = push(folder, REPO)
    assert hub.files(REPO).keys() == {*SAVED, "README.md", ".gitattributes", "vocab.txt", "curve.png"}
    assert b"nobody else's" not in [*hub.files(REPO).values(), *hub.stored.values()]
    others = {"pytorch_model.bin", "notes.md", "train.py", "data_elmo.py", "checkpoint-10/", "runs/", ".git/"}
    assert set(upload.left_out) == {*home, *others}


@pytest.mark.parametrize("name", ["README.md", "tokenizer_config.json", "modeling_elmo.py"])
def test_a_token_in_a_file_is_refused(hub: hub_server.Hub, folder: Path, name: str) -> None:
    token = "hf_" + "aB3" * 11 + "x"
    if name.endswith(".json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | {"token": token}))
    else:
        with (folder / name).open("a") as file:
            file.write(f"\n# {token}\n")
    with pytest.raises(ValueError, match=rf"{name} holds an access token") as raised:
        push(folder, REPO)
    assert token not in str(raised.value)
    assert hub.requests == []


def test_a_large_file_in_parts(hub: hub_server.Hub, folder: Path) -> None:
    hub.part_bytes = 1 << 14
    push(folder, REPO)
    weights = (folder / "model.safetensors").read_bytes()
    assert len(weights) > 3 * hub.part_bytes
    assert hub.files(REPO)["model.safetensors"] == weights
    parts = [path for method, path in hub.requests if method == "PUT"]
    assert len(parts) == -(-len(weights) // hub.part_bytes)


def test_what_an_earlier_checkpoint_left_is_deleted(hub: hub_server.Hub, folder: Path) -> None:
    push(folder, REPO)
    files = hub.repositories[REPO].commits[hub.repositories[REPO].branches["main"]]
    old = ("character_vocab.json", "vocab.txt", "model-00001-of-00002.safetensors", "model.safetensors.index.json")
    for name in (*old, "notes.md"):
        files[name] = hub_server.File(b"{}", large=False)
    assert push(folder, REPO).deleted == tuple(sorted(old))
    assert hub.files(REPO).keys() == {*SAVED, "README.md", ".gitattributes", "notes.md"}


def test_pushed_again_unchanged_it_sends_nothing(hub: hub_server.Hub, folder: Path) -> None:
    first = push(folder, REPO)
    commits = dict(hub.repositories[REPO].commits)
    second = push(folder, REPO)
    assert hub.repositories[REPO].commits == commits
    assert second == first
    assert sum(method == "PUT" for method, _ in hub.requests) == 1


# -- options -----------------------------------------------------------------------------------------------------------


def test_private(hub: hub_server.Hub, folder: Path) -> None:
    push(folder, REPO, private=True)
    assert hub.repositories[REPO].private
    push(folder, REPO, private=True)  # there, and private
    push(folder, REPO)
    assert hub.repositories[REPO].private


def test_private_is_refused_where_the_repository_is_public(hub: hub_server.Hub, folder: Path) -> None:
    hub.repositories[REPO] = public = hub_server.Repository(private=False)
    public.commit("main", {})
    with pytest.raises(PermissionError, match=f"{REPO} exists and is public"):
        push(folder, REPO, private=True)
    assert hub.files(REPO) == {}
    assert not hub.stored


def test_revision(hub: hub_server.Hub, folder: Path, config: ElmoConfig) -> None:
    push(folder, REPO, revision="trial/1")
    assert hub.files(REPO).keys() == {".gitattributes"}
    assert hub.files(REPO, "trial/1").keys() == {*SAVED, "README.md", ".gitattributes"}
    random_model(config, seed=1).save_pretrained(folder)
    push(folder, REPO, revision="trial/1")  # a branch that is there
    assert hub.files(REPO, "trial/1")["model.safetensors"] == (folder / "model.safetensors").read_bytes()


def test_a_dry_run_lists_files_and_sizes_and_sends_nothing(
    hub: hub_server.Hub, converted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (converted / "training_args.bin").write_bytes(b"secret")
    assert main(["push", str(converted), REPO, "--dry-run"]) == 0
    assert hub.requests == []
    *lines, left_out, last = capsys.readouterr().out.splitlines()
    sizes = {name: int(size.replace(",", "")) for size, name in (line.split()[:2] for line in lines)}
    assert sizes.keys() == {*SAVED, "README.md", "conversion.json"}
    assert sizes["model.safetensors"] == (converted / "model.safetensors").stat().st_size
    assert [line for line in lines if "made" in line] == [line for line in lines if "README.md" in line]
    assert left_out == "left out: training_args.bin"
    assert last == f"{REPO}: {len(sizes)} files, {sum(sizes.values()):,} bytes, nothing is uploaded in a dry run"
    assert main(["push", str(converted), REPO, "--private", "--revision", "b"]) == 0
    assert hub.repositories[REPO].private
    assert {name: len(content) for name, content in hub.files(REPO, "b").items() if name in sizes} == sizes
    *_, last = capsys.readouterr().out.splitlines()
    assert last.endswith(f"bytes, {hub.url}/{REPO}/commit/{hub.repositories[REPO].branches['b']}")


def test_a_model_that_ships_is_pushed_by_its_name(
    hub: hub_server.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["push", "elmo-mini-en", REPO, "--dry-run"]) == 0
    assert f"{REPO}: " in capsys.readouterr().out
    assert hub.requests == []
    assert main(["push", "elmo-tiny-en", REPO, "--dry-run"]) == 1
    assert "give the folder of a checkpoint, or the name of a model that ships" in capsys.readouterr().err
    Path("elmo-mini-en").mkdir()  # what is there goes first
    assert main(["push", "elmo-mini-en", REPO, "--dry-run"]) == 1
    assert "elmo-mini-en" in capsys.readouterr().err


# -- what would not load elsewhere -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "missing", ["a file", "the tokenizer's", "all", "both auto_maps", "the tokenizer's auto_map", "a file's import"]
)
def test_code_that_is_missing_is_completed(hub: hub_server.Hub, folder: Path, missing: str) -> None:
    whole = contents(folder)
    gone = {"a file": ["modeling_elmo.py"], "the tokenizer's": ["tokenization_elmo.py"], "all": sorted(CODE)}
    for name in gone.get(missing, ["packing_elmo.py"] if "import" in missing else []):
        (folder / name).unlink()
    for name in ("config.json", "tokenizer_config.json"):
        if missing == "both auto_maps" or (missing, name) == ("the tokenizer's auto_map", "tokenizer_config.json"):
            settings = json.loads(whole[name])
            del settings["auto_map"]
            settings.pop("hf_elmo_version", None)  # as of a version before it was written
            (folder / name).write_text(json.dumps(settings))
    before = contents(folder)
    upload = push(folder, REPO)
    there = hub.files(REPO)
    assert {name: there[name] for name in CODE} == {name: whole[name] for name in CODE}
    for name in ("config.json", "tokenizer_config.json"):
        assert json.loads(there[name]) == json.loads(whole[name])
    assert set(upload.made) == {*CODE, "config.json", "tokenizer_config.json", "README.md"}
    assert contents(folder) == before


def test_heads_that_were_added_are_completed_too(hub: hub_server.Hub, folder: Path) -> None:
    add_remote_code(folder, "ElmoForSequenceClassification")
    whole = contents(folder)
    (folder / "encoders_elmo.py").unlink()
    push(folder, REPO)
    assert hub.files(REPO)["encoders_elmo.py"] == whole["encoders_elmo.py"]
    assert json.loads(hub.files(REPO)["config.json"])["auto_map"] == json.loads(whole["config.json"])["auto_map"]


def test_code_of_another_version_goes_along_as_it_is(hub: hub_server.Hub, folder: Path) -> None:
    for name in CODE:
        with (folder / name).open("a") as file:
            file.write("# of an earlier version\n")
    push(folder, REPO)
    assert all(hub.files(REPO)[name].endswith(b"# of an earlier version\n") for name in CODE)


def broken(folder: Path, how: str) -> None:
    settings = json.loads((folder / "config.json").read_text())
    if how == "no config":
        (folder / "config.json").unlink()
    elif how == "another model":
        (folder / "config.json").write_text(json.dumps(settings | {"architectures": ["BertModel"]}))
    elif how == "no class":
        (folder / "config.json").write_text(json.dumps(settings | {"architectures": None}))
    elif how == "damaged config":
        (folder / "config.json").write_text("{")
    elif how == "no weights":
        (folder / "model.safetensors").unlink()
    elif how == "pickled weights":
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    elif how == "other weights":
        ElmoForPreTraining(ElmoConfig(**TINY, vocab_size=9)).save_pretrained(folder / "other")
        (folder / "other" / "config.json").replace(folder / "config.json")
    elif how == "another tokenizer":
        ElmoTokenizer(max_word_length=settings["max_word_length"] + 1).save_pretrained(folder)
    elif how == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    elif how == "damaged tokenizer":
        (folder / "tokenizer.json").write_text("{}")
    elif how == "damaged card":
        (folder / "README.md").write_text("---\nlicense: [\n---\n# elmo\n")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no config", "is no folder of a checkpoint with config.json"),
        ("another model", "is a checkpoint of BertModel, but hf_elmo has ElmoConfig"),
        ("no class", "is a checkpoint of no class"),
        ("damaged config", r"config\.json is no JSON"),
        ("no weights", r"no file named model\.safetensors"),
        ("pickled weights", "its weights in another format than safetensors"),
        ("other weights", "without its softmax over words"),
        ("another tokenizer", "the tokenizer spells words with"),
        ("no tokenizer", r"has no tokenizer\.json"),
        ("damaged tokenizer", "cannot be loaded, a file of it is damaged"),
        ("damaged card", r"README\.md is no model card"),
    ],
)
def test_a_folder_that_would_not_load_is_refused(
    hub: hub_server.Hub, folder: Path, capsys: pytest.CaptureFixture[str], how: str, message: str
) -> None:
    broken(folder, how)
    assert main(["push", str(folder), REPO]) == 1
    out, error = capsys.readouterr()
    assert re.search(message, error)
    assert str(folder) in error
    assert out == ""
    assert hub.requests == []


def test_a_card_that_the_hub_does_not_take_is_refused(
    hub: hub_server.Hub, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "README.md").write_text("---\nlicense: other\n---\n# elmo\n")
    assert main(["push", str(folder), REPO]) == 1
    assert error_line(capsys) == 'hf-elmo: error: Invalid metadata in README.md. - "license_name" is required'
    assert not hub.stored


@pytest.mark.parametrize(
    ("name", "message"), [("elmo", "must have an owner: owner/elmo"), ("a/b/c", "a/b/c"), ("a/--", "a/--")]
)
def test_a_name_that_is_none(hub: hub_server.Hub, folder: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        push(folder, name)
    assert hub.requests == []


# -- refused and interrupted -------------------------------------------------------------------------------------------


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says: one line, without a traceback."""
    out, error = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in error.splitlines() if line.startswith("hf-elmo: ")]
    assert "Traceback" not in error
    assert error.rstrip("\n").endswith(line)
    return line


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (
            "hf_unknown",
            r"the Hub refused the token for \S+, or there is none \(401 Invalid cred.*hf auth login",
        ),
        (None, r"the Hub refused the token for \S+, or there is none \(401 Invalid username .*HF_TOKEN"),
        ("hf_reader", r"the token may not write to \S+ \(403 You don't have the rights .* a name of your own"),
    ],
    ids=["unknown", "none", "may only read"],
)
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_a_refused_token(
    hub: hub_server.Hub,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    token: str | None,
    message: str,
    there: bool,
) -> None:
    if there:
        hub.repositories[REPO] = hub_server.Repository(private=False)
        hub.repositories[REPO].commit("main", {})
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    assert main(["push", str(folder), REPO]) == 1
    line = error_line(capsys)
    assert re.search(message, line)
    assert not hub.stored
    assert hub.repositories.keys() == ({REPO} if there else set())
    assert token is None or token not in line


@pytest.mark.parametrize("where", ["/api/repos/create", "/storage/", "/commit/", "/preupload/"])
def test_an_interrupted_upload_goes_on(
    hub: hub_server.Hub, folder: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    hub.drop = lambda method, path: where in path and method in ("POST", "PUT")
    assert main(["push", str(folder), REPO]) == 1
    assert re.search(rf"the upload to {REPO} was interrupted \(\w+: .*run the same command again", error_line(capsys))
    assert REPO not in hub.repositories or hub.files(REPO).keys() == {".gitattributes"}
    assert len(hub.stored) == (where == "/commit/")
    hub.drop = lambda *_: False
    hub.requests.clear()
    push(folder, REPO)
    assert hub.files(REPO)["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert any(method == "PUT" for method, _ in hub.requests) == (where != "/commit/")


def test_a_short_interruption_is_not_noticed(hub: hub_server.Hub, folder: Path) -> None:
    left = [True]
    hub.drop = lambda method, path: method == "PUT" and bool(left) and left.pop()
    push(folder, REPO)
    assert sum(method == "PUT" for method, _ in hub.requests) == 2
    assert hub.files(REPO)["model.safetensors"] == (folder / "model.safetensors").read_bytes()


def test_nobody_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, hub: hub_server.Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.shutdown()
    hub.server_close()
    assert main(["push", str(folder), REPO]) == 1
    assert "was interrupted (" in error_line(capsys)


# -- in other processes ------------------------------------------------------------------------------------------------

PUSH = """
import sys
import hf_elmo, hf_elmo_cli
from hf_elmo import ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
folder, classifier = sys.argv[1:]
for each in (ElmoModel, ElmoTokenizer):
    each.from_pretrained(folder).push_to_hub("somebody/by-method")
ElmoForSequenceClassification.from_pretrained(classifier).push_to_hub("somebody/head", private=True, revision="trial")
ElmoTokenizer.from_pretrained(classifier).push_to_hub("somebody/head", private=True, revision="trial")
sys.exit(hf_elmo_cli.main(["push", folder, "somebody/by-command"]))
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
found, versions, classes = {}, {}, []
for name in sys.argv[3:]:
    where = {"revision": "trial", "token": True} if name == "head" else {}
    tokenizer = AutoTokenizer.from_pretrained(f"somebody/{name}", trust_remote_code=True, **where)
    auto = AutoModelForSequenceClassification if name == "head" else AutoModel
    model = auto.from_pretrained(f"somebody/{name}", trust_remote_code=True, **where).eval()
    with torch.no_grad():
        found[name] = model(**tokenizer(json.loads(sys.argv[2]), padding=True, return_tensors="pt"))[0]
    classes += [type(one).__module__ for one in (tokenizer, model)]
    model.save_pretrained(name)
    with open(f"{name}/config.json") as file:
        versions[name] = json.load(file)["hf_elmo_version"]
assert all(module.startswith("transformers_modules.") for module in classes), classes
np.savez(sys.argv[1], **found)
print(json.dumps(versions))
"""
)


def run_with_hub(hub: hub_server.Hub, home: Path, *arguments: str) -> subprocess.CompletedProcess:
    """A new process with an empty cache, to which this Hub is the Hub."""
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HOME": str(home), "HF_TOKEN": "hf_writer"}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_ELMO_KERNELS": "off"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", *arguments], cwd=home, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


def test_pushed_by_each_way_and_loaded_where_hf_elmo_is_not(tmp_path: Path, converted: Path) -> None:
    classifier = random_model(ElmoConfig(**TINY, num_labels=3), ElmoForSequenceClassification)
    classifier.save_pretrained(tmp_path / "classifier")
    ElmoTokenizer().save_pretrained(tmp_path / "classifier")
    code = converted / "configuration_elmo.py"  # a checkpoint of another version, which brings its own code
    code.write_text(code.read_text().replace(f'VERSION = "{hf_elmo.__version__}"', 'VERSION = "0.0.9"'))
    names = ["by-method", "by-command", "head"]
    with hub_server.serving() as hub:
        run_with_hub(hub, tmp_path / "here", PUSH, str(converted), str(tmp_path / "classifier"))
        assert {name: one.private for name, one in hub.repositories.items()} == {
            "somebody/by-method": False,
            "somebody/by-command": False,
            "somebody/head": True,
        }
        assert hub.files("somebody/head").keys() == {".gitattributes"}
        assert {*SAVED, "README.md"} <= hub.files("somebody/by-method").keys()
        hub.requests.clear()
        done = run_with_hub(hub, tmp_path / "elsewhere", LOAD, str(tmp_path / "out.npz"), json.dumps(TEXTS), *names)
        asked = {path for method, path in hub.requests if method == "GET"}
        assert any(path.startswith("/storage/") for path in asked)
        assert {method for method, _ in hub.requests} == {"GET", "HEAD"}
    versions = json.loads(done.stdout.splitlines()[-1])
    assert versions == {"by-method": hf_elmo.__version__, "by-command": "0.0.9", "head": hf_elmo.__version__}
    with np.load(tmp_path / "out.npz") as arrays:
        found = dict(arrays)
    for name, folder, model in (
        ("by-method", converted, ElmoModel.from_pretrained(converted)),
        ("by-command", converted, ElmoModel.from_pretrained(converted)),
        ("head", tmp_path / "classifier", classifier),
    ):
        batch = ElmoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
        with torch.no_grad(), kernels.use("off"):
            np.testing.assert_allclose(found[name], model(**batch)[0], atol=1e-6, rtol=0, err_msg=name)


def test_a_hub_without_xet_where_hf_xet_is_installed(tmp_path: Path, folder: Path) -> None:
    """In processes of their own: the client keeps a session of xet's, with threads."""
    pytest.importorskip("hf_xet")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_writer", "HF_ELMO_KERNELS": "off"}
    command = [sys.executable, "-m", "hf_elmo", "push", str(folder), REPO]
    with hub_server.serving() as hub:
        environment |= {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_TELEMETRY": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert f"the Hub has no xet storage for {REPO}" in done.stderr
        assert "HF_HUB_DISABLE_XET=1" in done.stderr
        environment["HF_HUB_DISABLE_XET"] = "1"
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert hub.files(REPO).keys() >= SAVED


def test_the_function_is_public() -> None:
    assert hf_elmo.push is push
