"""The page of `hf-elmo explore`: what is drawn and written in its views, what is on it, and that it is served."""

import importlib
import os
import re
import runpy
import signal
import subprocess
import sys
import urllib.request
import xml.etree.ElementTree as ElementTree
from html import escape, unescape
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hf_elmo import ElmoForPreTraining
from hf_elmo.analysis.plots import plot_word_plane
from hf_elmo.analysis.scoring import substitutes
from hf_elmo.analysis.similarity import WordPlane, nearest_neighbors
from hf_elmo.explore import INK, Explorer, picture
from tests.factories import save_checkpoint, small_model, whitespace_tokenizer, write_lines


@pytest.fixture
def page() -> ModuleType:
    pytest.importorskip("gradio")
    return importlib.import_module("hf_elmo.explore.page")


@pytest.fixture
def language_model(tmp_path) -> Path:
    file = write_lines(tmp_path / "vocab.txt", ["<S>", "</S>", "<UNK>", "the", "bank", "<b>river</b>", "of"])
    model, tokenizer = small_model(ElmoForPreTraining, vocab_size=7), whitespace_tokenizer(vocab_file=str(file))
    return save_checkpoint(tmp_path / "lm", model, tokenizer)


def cells(table: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows]


def test_neighbors_are_those_of_the_function(folder, tmp_path) -> None:
    explorer, corpus = Explorer(folder), "The bank failed .\n\nA bank of sand & <i>\nnothing"
    found = explorer.neighbors("the old bank", "bank", corpus, 2)
    expected = nearest_neighbors(explorer.model, "the old bank", "bank", corpus.splitlines(), top=2)
    assert "<i>" not in found  # a word is text, not HTML
    for row, place in zip(cells(found), [*expected[1], *expected[2]], strict=True):
        before, after = map(escape, place.context())
        assert row == [f"{place.similarity:.2f}", before, place.word, after, f"line {place.row + 1}"]
    for place in expected[0]:
        assert f"{place.similarity:.2f}" in found
    assert "no other sentence" in explorer.neighbors("the old bank", "bank", "nothing\n")
    corpus = write_lines(tmp_path / "corpus.csv", ["id,body", "1,a", "2,On the Bank of it"])
    file = Explorer(folder, corpus, text_column="body")
    for row in cells(file.neighbors("the old bank", "bank")):
        assert row[1:] == ["On the", "Bank", "of it", "line 2"]


def test_substitutes_are_those_of_the_function(language_model) -> None:
    explorer = Explorer(language_model)
    found = explorer.substitutes("the old bank", "old", 3)
    (expected,) = substitutes(explorer.model, "the old bank", "old", top=3)
    words = [unescape(row[0]) for row in cells(found)]
    assert words == [word for word, _ in (*expected.candidates, *expected.forward, *expected.backward)]


@pytest.mark.slow
def test_similarities_and_plane_are_pictures(folder) -> None:
    pytest.importorskip("matplotlib")
    explorer = Explorer(folder)
    found = explorer.similarities("the bank", "bank", "a bank", "bank")
    assert ">1.00<" in found
    assert found.count("<svg") == 2  # wide and narrow
    assert INK not in found  # the page's own color
    sizes = {tuple(re.findall("viewBox.*?>", explorer.similarities(x, x, x, x))) for x in ("a", "long" * 20)}
    assert len(sizes) == 1  # a long word leaves room for the bars
    sentences = "the old bank\n\na bank\n<i> bank &"
    found = explorer.plane(sentences, layer=1)
    assert found.count(">bank<") == 6
    assert "<i>" not in found
    uses = explorer.plane(sentences, "bank", 1)
    assert (uses.count(">bank<"), uses.count(">old bank<"), uses.count("<svg")) == (0, 2, 4)
    many = explorer.plane("\n".join(f"w{n} x{n} y{n}" for n in range(40)), layer=1)
    assert len(re.findall(">[wxy][0-9]+<", many)) == 40 + 15  # as many labels as can be read


@pytest.mark.slow
def test_any_word_is_drawn_as_it_is() -> None:
    pytest.importorskip("matplotlib")
    words = ["<script>", '"&"', "$x$ $\\frac$", "서울", "_under", "مدينة"]
    points = np.random.default_rng(0).normal(size=(6, 2))
    html = picture(plot_word_plane, WordPlane([words], [words], [points], (0.75, 0.25), 2))
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        drawn = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
        assert set(words) <= {"".join(element.itertext()) for element in drawn}


def labels(blocks: object) -> list[str]:
    return [part["props"].get("label") for part in blocks.config["components"] if part["props"].get("visible", True)]


def test_what_is_on_the_page(page, folder, language_model, tmp_path) -> None:
    (tmp_path / "corpus.txt").write_text("a b\n")
    with_softmax = page.make_page(Explorer(language_model))
    without = page.make_page(Explorer(folder, tmp_path / "corpus.txt"))
    for one in (with_softmax, without):
        assert {"Similarity", "Neighbors", "Plane", "first sentence", "uses of"} <= set(labels(one))
    for label in ("Substitutes", "corpus, a sentence a line"):
        assert (label in labels(with_softmax), label in labels(without)) == (True, False)
    radios = [part["props"] for part in without.config["components"] if part["type"] == "radio"]
    (layers,) = (radio["choices"] for radio in radios if radio["label"] == "vectors of")
    assert [value for _, value in layers] == [0, 1, 2]
    assert ("bank", "bank") in map(tuple, radios[0]["choices"])  # words to click on


def test_the_last_click_wins_and_its_picture_replaces_the_one_before(page, folder, monkeypatch) -> None:
    explorer = Explorer(folder)
    monkeypatch.setattr(explorer, "neighbors", lambda *_: {}["<sentence>"])
    made = page.make_page(explorer)
    assert {event["trigger_mode"] for event in made.config["dependencies"]} == {"always_last"}
    (neighbors,) = {block.fn for block in made.fns.values() if "<lambda>" in getattr(block.fn, "__name__", "")}
    assert "&lt;sentence&gt;" in neighbors("a", "a", "b", 5)


def test_words_to_click_on(page, folder) -> None:
    explorer = Explorer(folder)
    choice = page._words(explorer, "the bank\nof the bank", 4)
    assert choice.choices == [("the", "the"), ("bank", "bank"), ("of", "of"), ("the (2)", 3), ("bank (2)", 4)]
    assert (choice.value, page._words(explorer, "of the", 4).value) == (4, "of")
    common = page._words(explorer, "the bank\nof the bank", "bank", common=True)
    assert (common.choices, common.value) == ([("all words", ""), ("the", "the"), ("bank", "bank")], "bank")
    once, twice = (explorer.neighbors("a bank, a bank of sand", word, "A bank") for word in ("bank", 5))
    assert once != twice


def test_the_examples_fit_the_model_that_ships(page) -> None:
    explorer = Explorer()
    assert not any("http" in sheet for sheet in page.launch_settings()["theme"]._stylesheets)  # nothing from elsewhere
    assert explorer.substitutes("He sat on the bank of the river .", "bank").count("<tr>") == 30
    for first, word, second, other in page.EXAMPLES.values():
        assert all(one in words for one, words in zip((word, other), explorer.split([first, second]), strict=True))
    money = explorer.neighbors("The bank lent him a thousand pounds.", "bank", page.CORPUS, 3)  # uses in the same sense
    assert {row[4] for row in cells(money)} == {f"line {number}" for number in (4, 5, 6)}


@pytest.mark.slow
def test_it_is_served_until_ctrl_c(page, tmp_path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "GRADIO_TEMP_DIR": str(tmp_path), "no_proxy": "127.0.0.1"}
    with (tmp_path / "errors").open("w") as errors:  # a pipe that nobody reads is full after 64 KiB
        arguments = {"stdout": subprocess.PIPE, "stderr": errors, "text": True, "env": environment}
        arguments["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # it may be ignored here
        with subprocess.Popen([sys.executable, "-m", "hf_elmo", "explore"], **arguments) as process:
            url = process.stdout.readline().partition(": Ctrl-C")[0]
            assert b"ELMo" in urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60).read()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_the_space_is_the_page_of_the_model_that_its_variable_names(page, folder, monkeypatch):
    app = Path(__file__).parents[2] / "examples" / "space" / "app.py"
    monkeypatch.setenv("ELMO_MODEL", str(folder))
    assert "Substitutes" not in labels(runpy.run_path(str(app))["page"])
