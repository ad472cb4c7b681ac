"""The views of the page, without a page: what is drawn and written in them."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from hf_elmo.analysis.scoring import substitutes
from hf_elmo.analysis.similarity import LayerSimilarities, WordPlane, nearest_neighbors
from hf_elmo.explore import COLORS, Explorer, draw_plane, draw_similarities

NAME = "{http://www.w3.org/2000/svg}"


def cells(table: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows]


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{NAME}text")]


def test_neighbors_are_those_of_the_function(folder: Path) -> None:
    explorer = Explorer(folder)
    corpus = "The bank failed .\n\nA bank of sand & <i>\nnothing"
    found = explorer.neighbors("the old bank", " bank ", corpus, 2)
    expected = nearest_neighbors(explorer.model, "the old bank", "bank", corpus.splitlines(), top=2)
    rows = cells(found)
    assert "<i>" not in found  # a word is text, not HTML
    for row, place in zip(rows, [*expected[1], *expected[2]], strict=True):
        before, after = place.context()
        after = after.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert row == [f"{place.similarity:.2f}", before, place.word, after, f"line {place.row + 1}"]
    for place in expected[0]:
        assert f"{place.similarity:.2f}" in found
    assert "no other sentence" in explorer.neighbors("the old bank", "bank", "nothing\n")


def test_a_file_is_searched_if_one_is_given(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a\nOn the Bank of it\n", encoding="utf-8")
    found = cells(Explorer(folder, tmp_path / "corpus.txt").neighbors("the old bank", "bank"))
    assert [row[1:] for row in found] == [["On the", "Bank", "of it", "line 2"]] * 2


def test_substitutes_are_those_of_the_function(language_model: Path) -> None:
    explorer = Explorer(language_model)
    assert explorer.has_softmax
    found = explorer.substitutes("the old bank", "old", 3)
    (expected,) = substitutes(explorer.model, "the old bank", "old", top=3)
    columns = [*expected.candidates, *expected.forward, *expected.backward]
    words = [row[0].replace("&lt;", "<").replace("&gt;", ">") for row in cells(found)]
    assert words == [word for word, _ in columns]
    with pytest.raises(ValueError, match="'sea'"):
        explorer.substitutes("the old bank", "sea")


def test_similarities_and_plane_are_pictures(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    explorer = Explorer(folder)
    assert not explorer.has_softmax
    assert ">1.00<" in explorer.similarities("the bank", "bank", "a bank", " bank ")
    picture = explorer.plane("the old bank\n\na bank\n", 1)
    assert picture.count(">bank<") == 2
    assert picture != explorer.plane("the old bank\n\na bank\n", 2)


@pytest.mark.parametrize("others", [np.array([0.1, 0.2, 0.3]), np.full(3, np.nan)], ids=["others", "no others"])
def test_every_layer_has_a_bar_with_its_value_and_a_name(others) -> None:
    pytest.importorskip("matplotlib")
    svg = draw_similarities(LayerSimilarities(("bank", "bank"), np.array([1, 0.876, -0.05]), others))
    assert {"1.00", "0.88", "-0.05", "layer 0", "(characters)", "layer 2", "cosine similarity"} <= set(texts(svg))
    assert ("mean of all other pairs" in texts(svg)) is not np.isnan(others).any()
    root = ElementTree.fromstring(svg)
    bars = [path for path in root.iter(f"{NAME}path") if f"fill: {COLORS[0].lower()}" in (path.get("style") or "")]
    assert len(bars) == 4  # and one in the legend


def test_a_plane_has_all_words_axes_and_sentences() -> None:
    pytest.importorskip("matplotlib")
    sentences = [["a", "bank", "here"], ["the", "Bank"]]
    points = [np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([[2.0, 2], [-3, 1]])]
    svg = draw_plane(WordPlane(sentences, points, (0.625, 0.25), 1))
    assert {"a", "bank", "here", "the", "Bank", "1: a bank here", "2: the Bank"} <= set(texts(svg))
    assert "first principal component (62% of the variance)" in texts(svg)
    bold = re.findall(r"font(?:-weight)?: (?:700|bold)[^>]*>([^<]+)<", svg)
    assert set(bold) == {"bank", "Bank"}
    assert svg == draw_plane(WordPlane(sentences, points, (0.625, 0.25), 1))


@pytest.mark.parametrize("word", ["<script>", '"&"', "$x$ $\\frac$", "서울", "_under", "مدينة"])
def test_any_word_is_drawn_as_it_is(word: str) -> None:
    pytest.importorskip("matplotlib")
    plane = WordPlane([[word, "b", "c"]], [np.array([[1.0, 0], [0, 1], [-1, -1]])], (0.75, 0.25), 2)
    assert word in texts(draw_plane(plane))
