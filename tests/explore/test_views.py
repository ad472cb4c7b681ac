"""The views of the page, without a page: what is drawn and written in them."""

import re
import xml.etree.ElementTree as ElementTree
from html import escape, unescape
from pathlib import Path

import numpy as np
import pytest

from hf_elmo.analysis.plots import plot_word_plane
from hf_elmo.analysis.scoring import substitutes
from hf_elmo.analysis.similarity import WordPlane, nearest_neighbors
from hf_elmo.explore import INK, Explorer, picture
from tests.factories import write_lines


def cells(table: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows]


def test_neighbors_are_those_of_the_function(folder: Path, tmp_path: Path) -> None:
    explorer, corpus = Explorer(folder), "The bank failed .\n\nA bank of sand & <i>\nnothing"
    found = explorer.neighbors("the old bank", " bank ", corpus, 2)
    expected = nearest_neighbors(explorer.model, "the old bank", "bank", corpus.splitlines(), top=2)
    assert "<i>" not in found  # a word is text, not HTML
    for row, place in zip(cells(found), [*expected[1], *expected[2]], strict=True):
        before, after = map(escape, place.context())
        assert row == [f"{place.similarity:.2f}", before, place.word, after, f"line {place.row + 1}"]
    for place in expected[0]:
        assert f"{place.similarity:.2f}" in found
    assert "no other sentence" in explorer.neighbors("the old bank", "bank", "nothing\n")
    file = Explorer(folder, write_lines(tmp_path / "corpus.txt", ["a", "On the Bank of it"]))
    for row in cells(file.neighbors("the old bank", "bank")):
        assert row[1:] == ["On the", "Bank", "of it", "line 2"]


def test_substitutes_are_those_of_the_function(language_model: Path) -> None:
    explorer = Explorer(language_model)
    found = explorer.substitutes("the old bank", "old", 3)
    (expected,) = substitutes(explorer.model, "the old bank", "old", top=3)
    words = [unescape(row[0]) for row in cells(found)]
    assert words == [word for word, _ in (*expected.candidates, *expected.forward, *expected.backward)]


@pytest.mark.slow
def test_similarities_and_plane_are_pictures(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    explorer = Explorer(folder)
    found = explorer.similarities("the bank", "bank", "a bank", " bank ")
    assert ">1.00<" in found
    assert found.count("<svg") == 2  # wide and narrow
    assert INK not in found  # the page's own color
    sentences = "the old bank\n\na bank\n<i> bank &"
    found = explorer.plane(sentences, layer=1)
    assert found.count(">bank<") == 6
    assert "<i>" not in found
    uses = explorer.plane(sentences, " bank ", 1)
    assert (uses.count(">bank<"), uses.count(">old bank<"), uses.count("<svg")) == (0, 2, 4)


@pytest.mark.slow
def test_any_word_is_drawn_as_it_is() -> None:
    pytest.importorskip("matplotlib")
    words = ["<script>", '"&"', "$x$ $\\frac$", "서울", "_under", "مدينة"]
    points = np.random.default_rng(0).normal(size=(6, 2))
    html = picture(plot_word_plane, WordPlane([words], [words], [points], (0.75, 0.25), 2))
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        drawn = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
        assert set(words) <= {"".join(element.itertext()) for element in drawn}
