"""Pictures of similarities and of the plane, on axes that are given."""

import numpy as np
import pytest

from hf_elmo import plot_similarities, plot_word_plane
from hf_elmo.analysis.similarity import LayerSimilarities, WordPlane


@pytest.fixture
def axes():
    return pytest.importorskip("matplotlib.figure").Figure().subplots()


def texts(of) -> list[str]:
    return [text.get_text() for text in of]


@pytest.mark.parametrize("others", [np.array([0.1, 0.2, 0.3]), np.full(3, np.nan)], ids=["others", "no others"])
def test_two_words_have_a_bar_for_each_layer_and_several_a_matrix(axes, others) -> None:
    values, matrix = np.array([1, 0.876, -0.05]), np.linspace(-1, 1, 27).reshape(3, 3, 3)
    found = LayerSimilarities(["a bank", "bank ."], values, others, np.ones((3, 2, 2)))
    assert plot_similarities(found, axes=axes) is axes
    assert [bar.get_height() for bar in axes.patches] == values.tolist()
    assert texts(axes.texts) == ["1.00", "0.88", "-0.05"]
    assert "“a bank” – “bank .”" in texts(axes.get_legend().get_texts())
    assert ("mean of all other pairs" in texts(axes.get_legend().get_texts())) is not np.isnan(others).any()
    several = LayerSimilarities(["a bank", "bank .", "the bank of"], np.ones(3), np.ones(3), matrix)
    assert texts(plot_similarities(several).texts) == [f"{value:.2f}" for value in matrix[2].flat]
    assert texts(plot_similarities(several, layer=0).texts)[0] == "-1.00"


def test_a_plane_has_all_words_axes_and_sentences(axes) -> None:
    sentences = [["a", "bank", "here"], ["the", "Bank"]]
    points = [np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([[2.0, 2], [-3, 1]])]
    plot_word_plane(WordPlane(sentences, sentences, points, (0.625, 0.25), 1), axes=axes)
    assert texts(axes.texts) == ["a", "bank", "here", "the", "Bank"]
    inside = axes.bbox.padded(1e-6)  # a label may touch the frame
    assert all(inside.count_contains(text.get_window_extent().corners()) == 4 for text in axes.texts)
    assert texts(axes.get_legend().get_texts()) == ["1: a bank here", "2: the Bank"]
    assert axes.get_xlabel() == "component 1 (62% of the variance)"
    assert {text.get_text() for text in axes.texts if text.get_fontweight() == "bold"} == {"bank", "Bank"}
