"""The pictures: what is drawn and written in them, read back from the SVG."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from hf_elmo.analysis.geometry import LayerSimilarities, WordPlane
from hf_elmo.explore.pictures import COLORS, LEADER, MARKS, draw_plane, draw_similarities, places_of_labels

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

NAME = "{http://www.w3.org/2000/svg}"


def read(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert (root.tag, root.get("role")) == (f"{NAME}svg", "img")
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{NAME}text")]


def similarities(**changes: object) -> LayerSimilarities:
    values = {"words": ("bank", "bank"), "layers": np.array([1, 0.876, -0.05]), "others": np.array([0.1, 0.2, 0.3])}
    return LayerSimilarities(**{**values, **changes})


def test_every_layer_has_a_bar_with_its_value_and_a_name() -> None:
    root = read(draw_similarities(similarities()))
    written = texts(root)
    assert {"1.00", "0.88", "-0.05", "layer 0", "(characters)", "layer 2", "cosine similarity"} <= set(written)
    assert "mean of all other pairs" in written
    assert root.get("aria-label").endswith("layer 0 1.00, layer 1 0.88, layer 2 -0.05")
    bars = [path for path in root.iter(f"{NAME}path") if f"fill: {COLORS[0].lower()}" in (path.get("style") or "")]
    assert len(bars) == 4  # and one in the legend


def test_without_other_pairs_there_is_no_line_for_them() -> None:
    assert "mean of all other pairs" not in texts(read(draw_similarities(similarities(others=np.full(3, np.nan)))))


@pytest.mark.parametrize("word", ["<script>", '"&"', "$x$ $\\frac$", "서울", "_under", "مدينة"])
def test_any_word_is_drawn_as_it_is(word: str) -> None:
    root = read(draw_similarities(similarities(words=(word, "b"))))
    assert f"“{word}” and “b”" in texts(root)
    plane = WordPlane([[word, "b", "c"]], [np.array([[1.0, 0], [0, 1], [-1, -1]])], (0.75, 0.25), 2)
    assert word in texts(read(draw_plane(plane)))


def test_a_plane_has_all_words_axes_and_sentences() -> None:
    sentences = [["a", "bank", "here"], ["the", "Bank"]]
    points = [np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([[2.0, 2], [-3, 1]])]
    root = read(draw_plane(WordPlane(sentences, points, (0.625, 0.25), 1)))
    written = texts(root)
    for word in ("a", "bank", "here", "the", "Bank", "1: a bank here", "2: the Bank"):
        assert word in written
    assert "first principal component (62% of the variance)" in written
    labels = [one for one in root.iter(f"{NAME}text") if re.search(r"font(-weight)?: 700\b", one.get("style"))]
    bold = {"".join(one.itertext()) for one in labels}  # matplotlib 3.8 writes "font: 700 ...", later ones font-weight
    assert bold == {"bank", "Bank"}


def test_sentences_differ_in_color_and_in_mark() -> None:
    assert len(set(COLORS)) == 7
    assert len({(COLORS[n % len(COLORS)], MARKS[n % len(MARKS)]) for n in range(42)}) == 42


def test_the_same_picture_is_the_same_file() -> None:
    assert draw_similarities(similarities()) == draw_similarities(similarities())


def boxes(points: np.ndarray, labels: list[str], size: float = 10) -> np.ndarray:
    """`[labels, 4]`: left, bottom, right, top."""
    corners = points + np.array([place.offset for place in places_of_labels(points, labels, size)])
    widths = 0.66 * size * np.array([[len(label)] for label in labels])
    return np.concatenate((corners, corners + np.concatenate((widths, np.full_like(widths, size)), axis=1)), axis=1)


def test_labels_of_near_points_cover_neither_each_other_nor_a_point() -> None:
    points = np.array([[0.0, 0], [12, 1], [3, 9], [11, 14], [60, 2]])
    found = boxes(points, ["bank", "boat", "on", "the", "river"])
    for number, (left, bottom, right, top) in enumerate(found):
        others = np.delete(found, number, axis=0)
        apart = (others[:, 2] <= left) | (others[:, 0] >= right) | (others[:, 3] <= bottom) | (others[:, 1] >= top)
        assert apart.all()
        inside = (points > (left, bottom)).all(1) & (points < (right, top)).all(1)
        assert not inside.any()


def test_wide_characters_take_more_room() -> None:
    points = np.array([[0.0, 0], [40.0, 0]])
    narrow, wide = places_of_labels(points, ["abcd", "x"]), places_of_labels(points, ["서울서울", "x"])
    assert narrow[0].offset[0] > 0  # at the right of its point
    assert wide[0] != narrow[0]  # where it would cover the other point


def test_a_label_that_is_far_from_its_point_has_a_line() -> None:
    alone = WordPlane([["a", "b", "c"]], [np.array([[0.0, 0], [9, 0], [0, 9]])], (0.75, 0.25), 1)
    crowd = WordPlane([["word"] * 15], [np.concatenate((np.zeros((14, 2)), [[1, 1]]))], (0.75, 0.25), 1)
    gray = f"stroke: {LEADER['color']}"
    assert [draw_plane(plane).count(gray) > 0 for plane in (alone, crowd)] == [False, True]
