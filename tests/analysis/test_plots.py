"""Pictures of similarities, of the plane and of the weights of the layers in a task."""

import numpy as np
import pytest
import torch

from hf_elmo import ElmoModel, layer_weights, plot_layer_weights, plot_similarities, plot_word_plane
from hf_elmo.analysis.similarity import LayerSimilarities, WordPlane
from tests.factories import small_config
from tests.heads import make


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
    assert len(axes.get_legend().get_texts()) == 2 - np.isnan(others).any()
    several = LayerSimilarities(["$ 5 {", "$ 7 $", "the bank of"], np.ones(3), np.ones(3), matrix)
    assert texts(plot_similarities(several).texts) == [f"{value:.2f}" for value in matrix[2].flat]
    drawn = plot_similarities(several, layer=0)
    assert texts(drawn.texts)[0] == "-1.00"
    drawn.figure.draw_without_rendering()  # "$" is no formula


def test_a_plane_has_all_words_axes_and_sentences(axes) -> None:
    sentences = [["a", "bank", "here"], ["the", "Bank"]]
    points = [np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([[2.0, 2], [-3, 1]])]
    plot_word_plane(WordPlane(sentences, sentences, points, (0.625, 0.25), 1), axes=axes)
    assert texts(axes.texts) == ["a", "bank", "here", "the", "Bank"]
    inside = axes.bbox.padded(1e-6)  # a label may touch the frame
    assert all(inside.count_contains(text.get_window_extent().corners()) == 4 for text in axes.texts)
    assert texts(axes.get_legend().get_texts()) == ["1: a bank here", "2: the Bank"]
    assert {text.get_text() for text in axes.texts if text.get_fontweight() == "bold"} == {"bank", "Bank"}


def test_bars_are_the_layer_weights() -> None:
    model = make("last")
    head = model.classifier
    head.scalar_mix.scalars.data[1], head.output_mix.gamma.data[0] = 1.0, 2.5
    found = layer_weights(model)
    assert list(found) == ["input", "output"]
    assert found["input"][0] == pytest.approx(torch.softmax(torch.tensor([0.0, 1.0, 0.0]), 0).tolist())
    assert found["output"] == (pytest.approx([1 / 3] * 3), 2.5)
    axes = plot_layer_weights(model)
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(found["input"][0] + found["output"][0])
    assert texts(axes.get_legend().get_texts()) == ["input (gamma 1.00)", "output (gamma 2.50)"]
    axes.figure.draw_without_rendering()
    assert not any(axes.get_legend().get_window_extent().overlaps(part.get_window_extent()) for part in axes.patches)


def test_layer_weights_of_several_mixes_of_fixed_ones_and_of_adapters() -> None:
    assert list(layer_weights(ElmoModel(small_config(num_scalar_mixes=2)))) == ["input 1", "input 2"]
    assert layer_weights(ElmoModel(small_config(layer_weights=-1))) == {"input": ([0.0, 0.0, 1.0], 1.0)}
    model = make("last", num_scalar_mixes=2)
    torch.nn.init.constant_(model.classifier.output_mix.gamma, 2.0)
    model.classifier = torch.nn.ModuleDict({"default": model.classifier})  # as PEFT's modules_to_save
    assert {place: gamma for place, (_, gamma) in layer_weights(model).items()} == {"input": 1.0, "output": 2.0}
