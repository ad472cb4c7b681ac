"""The page itself: what is on it, and that it is served with the model that ships."""

import os
import runpy
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("gradio")

from hf_elmo.explore import Explorer
from hf_elmo.explore.page import CORPUS, EXAMPLES, launch_settings, make_page

SPACE = Path(__file__).parent.parent.parent / "examples" / "space"
SERVE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process may inherit that it is ignored
from hf_elmo_cli import main
sys.exit(main(["explore"]))
"""


def labels(page: object) -> list[str]:
    return [part["props"].get("label") for part in page.config["components"]]


def test_what_is_on_the_page(folder: Path, language_model: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a b\n")
    with_softmax, without = make_page(Explorer(language_model)), make_page(Explorer(folder, tmp_path / "corpus.txt"))
    for page in (with_softmax, without):
        assert {"Similarity", "Neighbors", "Plane", "first sentence", "word of the second"} <= set(labels(page))
    for label in ("Substitutes", "corpus, a sentence a line"):
        assert (label in labels(with_softmax), label in labels(without)) == (True, False)
    layers = [part["props"]["choices"] for part in without.config["components"] if part["type"] == "radio"]
    assert [[value for _, value in choices] for choices in layers] == [[0, 1, 2]]
    (neighbors,) = {block.fn for block in without.fns.values() if getattr(block.fn, "__name__", "") == "neighbors"}
    assert "<p>word &#x27;x&#x27; does not occur" in neighbors("a <i>b</i>", "x", "a b")


def test_the_examples_fit_the_model_that_ships() -> None:
    explorer = Explorer()
    assert not any("http" in sheet for sheet in launch_settings()["theme"]._stylesheets)  # nothing from elsewhere
    assert explorer.substitutes("He sat on the bank of the river .", "bank").count("<tr>") == 30
    split = explorer.reading["tokenizer"].split_into_words
    assert all(word in split([text])[0] for one in EXAMPLES for text, word in (one[:2], one[2:]))
    assert all(len(words) > 3 for words in split(CORPUS.splitlines()))


@pytest.mark.slow
def test_it_is_served_until_ctrl_c(tmp_path: Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "GRADIO_TEMP_DIR": str(tmp_path), "no_proxy": "127.0.0.1"}
    with (tmp_path / "errors").open("w") as errors:  # a pipe that nobody reads is full after 64 KiB
        arguments = {"stdout": subprocess.PIPE, "stderr": errors, "text": True, "env": environment}
        with subprocess.Popen([sys.executable, "-c", SERVE], **arguments) as process:
            url = process.stdout.readline().partition(": Ctrl-C")[0]
            assert b"ELMo" in urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60).read()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_the_space_is_the_page_of_the_model_that_its_variable_names(folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("ELMO_MODEL", str(folder))
    assert "Substitutes" not in labels(runpy.run_path(str(SPACE / "app.py"))["page"])
    assert "\nsdk: gradio\napp_file: app.py\n" in (SPACE / "README.md").read_text(encoding="utf-8")
