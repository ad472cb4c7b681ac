"""Similarities by layer, and the plane: compared with the model's own vectors and with scikit-learn."""

import numpy as np
import pytest
import torch

from hf_elmo import ElmoTokenizer, layer_similarities, word_plane

FIRST = ["the", "old", "bank", "of", "the", "river"]
SECOND = ["a", "bank", "lends", "gold"]


def layers_of(model, tokenizer, words: list[str]) -> torch.Tensor:
    """`[layers, words, 2P]` by the model itself."""
    with torch.no_grad():
        output = model(**tokenizer(words, is_split_into_words=True, return_tensors="pt"), output_hidden_states=True)
    return torch.cat(output.hidden_states)[:, 1:-1]


def test_similarities_are_the_cosines(model, tokenizer):
    found = layer_similarities(model, tokenizer, [FIRST, SECOND], ["bank", "gold"])
    first, second = (layers_of(model, tokenizer, words) for words in (FIRST, SECOND))
    cosines = torch.cosine_similarity(first[:, :, None], second[:, None], dim=3)
    assert found.words == ("bank", "gold")
    np.testing.assert_allclose(found.layers, cosines[:, 2, 3], atol=1e-5)
    others = torch.ones(6, 4, dtype=torch.bool)
    others[2, 3] = False
    np.testing.assert_allclose(found.others, cosines[:, others].mean(1), atol=1e-5)


def test_a_word_alone_has_no_other_pairs(model, tokenizer):
    found = layer_similarities(model, tokenizer, ["bank", "bank"], [0, 0])
    np.testing.assert_allclose(found.layers, 1, atol=1e-6)
    assert np.isnan(found.others).all()


def test_texts_are_split_as_asked_for(model):
    tokenizer = ElmoTokenizer()
    split = layer_similarities(model, tokenizer, ["A bank.", "The bank!"], ["bank", "bank"])
    np.testing.assert_array_equal(
        split.layers, layer_similarities(model, tokenizer, [["A", "bank", "."], ["The", "bank", "!"]], [1, 1]).layers
    )
    with pytest.raises(ValueError, match="'bank' does not occur"):
        layer_similarities(model, tokenizer, ["A bank.", "The bank!"], ["bank", "bank"], pretokenized=True)


@pytest.mark.parametrize(
    ("sentences", "words"),
    [("ab", "ab"), (["a"], ["a"]), (["a", "b"], ["a"]), (["a", "b", "c"], ["a", "b", "c"]), (["a", "b"], "ab")],
)
def test_other_than_two_of_each_are_refused(model, tokenizer, sentences, words):
    with pytest.raises(ValueError, match="sentences and words must be two each"):
        layer_similarities(model, tokenizer, sentences, words)


@pytest.mark.parametrize("layer", [None, 0, 1, 2])
def test_the_plane_is_that_of_the_principal_components(model, tokenizer, layer):
    decomposition = pytest.importorskip("sklearn.decomposition")
    found = word_plane(model, tokenizer, [FIRST, [], SECOND], layer)
    assert found.sentences == [FIRST, SECOND]
    assert found.layer == (2 if layer is None else layer)
    vectors = np.concatenate([layers_of(model, tokenizer, words)[found.layer] for words in (FIRST, SECOND)])
    expected = decomposition.PCA(2, svd_solver="full").fit(vectors.astype(np.float64))
    points, coordinates = np.concatenate(found.points), expected.transform(vectors.astype(np.float64))
    np.testing.assert_allclose(np.abs(points), np.abs(coordinates), atol=1e-4)
    np.testing.assert_allclose(points[:, :1] * points[:, :1].T, coordinates[:, :1] * coordinates[:, :1].T, atol=1e-4)
    np.testing.assert_allclose(found.explained, expected.explained_variance_ratio_, atol=1e-5)
    assert [len(own) for own in found.points] == [6, 4]
    assert (points[np.abs(points).argmax(0), [0, 1]] > 0).all()


def test_equal_words_lie_at_one_point_of_layer_0_and_a_constant_has_no_direction(model, tokenizer):
    (points,) = word_plane(model, tokenizer, [["a", "b", "a"]], 0).points
    np.testing.assert_allclose(points[0], points[2], atol=1e-6)
    constant = word_plane(model, tokenizer, [["a", "a", "a"]], 0)
    np.testing.assert_allclose(constant.points[0], 0, atol=1e-6)
    assert np.isfinite(constant.explained).all()


@pytest.mark.parametrize(
    ("sentences", "layer", "message"),
    [
        (["a b c"], 3, "layer is 3, but the model has the layers 0 to 2"),
        (["a b c"], -1, "layer is -1"),
        (["a", "", "b"], None, "needs three words or more, but the sentences have 2"),
        ("a b c", None, "put it into a list"),
    ],
)
def test_what_has_no_plane_is_refused(model, tokenizer, sentences, layer, message):
    with pytest.raises(ValueError, match=message):
        word_plane(model, tokenizer, sentences, layer)
