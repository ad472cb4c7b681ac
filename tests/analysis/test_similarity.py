"""Nearest neighbors, similarities by layer and the plane, compared with the model's vectors and with scikit-learn."""

import copy
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
import torch

from hf_elmo import embed, layer_similarities, nearest_neighbors, word_plane
from tests import factories

QUERY = ["the", "old", "bank", "of", "the", "river"]
SECOND = ["a", "bank", "lends", "gold"]
SAND, BANKS = ["we", "sat", "on", "a", "Bank", "of", "sand"], ["banks", "lend", "gold"]
GOLD = ["she", "keeps", "her", "gold", "in", "the", "bank", "or", "another", "bank"]
WRONG_FILES = [(".npz", "none", "ends in .npz"), (".parquet", "mean", "pooling"), (".parquet", "none", "another model")]
CORPUS = [SAND, GOLD, QUERY, [], BANKS, SAND, ["nothing", "here"]]


def layers_of(model, tokenizer, words: list[str]) -> torch.Tensor:
    """`[layers, words, 2P]` by the model itself."""
    return torch.from_numpy(factories.layers_of(model, tokenizer, [words])[0][:, 1:-1])


@pytest.mark.parametrize("way", ["same word", "any word", "words alone"])
def test_the_nearest_of_each_layer_and_of_layer_0_other_words(model, tokenizer, way, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_elmo.analysis.similarity.ROWS_AT_ONCE", 2)
    any_word = way == "any word"
    if way == "words alone":
        model, tokenizer = factories.word_level(tmp_path, sorted({word for words in CORPUS for word in words}))
    found = nearest_neighbors(model, QUERY, "bank", CORPUS, tokenizer=tokenizer, top=4, any_word=any_word)
    query, cosines = layers_of(model, tokenizer, QUERY)[:, None, 2], {}  # of each layer, by row and place
    for row in (0, 1, 4, 6):  # neither the query, the blank nor the repeated sentence
        values = torch.cosine_similarity(layers_of(model, tokenizer, CORPUS[row]), query, dim=-1)
        cosines |= {(row, place): own for place, own in enumerate(values.T.tolist())}
    assert list(found) == [0, 1, 2]
    for layer in found:
        expected = {key: own[layer] for key, own in cosines.items()}
        if layer == 0:
            first = {CORPUS[row][place]: (row, place) for row, place in reversed(expected)}
            expected = {key: expected[key] for word, key in first.items() if word != "bank"}
        elif not any_word:
            expected = {key: value for key, value in expected.items() if CORPUS[key[0]][key[1]].lower() == "bank"}
        order = sorted(expected, key=lambda key: -expected[key])[:4]
        assert [(one.row, one.position) for one in found[layer]] == order
        assert all((one.word, one.sentence) == (CORPUS[one.row][one.position], CORPUS[one.row]) for one in found[layer])
        values = [one.similarity for one in found[layer]]
        np.testing.assert_allclose(values, [expected[key] for key in order], atol=1e-5)


@pytest.mark.parametrize("any_word", [False, True])
def test_stored_vectors_have_the_same_neighbors(model, tokenizer, tmp_path, any_word):
    how = {"tokenizer": tokenizer, "top": 3, "any_word": any_word}
    wanted = nearest_neighbors(model, QUERY, "bank", CORPUS, **how)
    for layers, expected in (("all", wanted), (1, {1: wanted[1]})):
        embed(model, CORPUS, tmp_path / "v.parquet", tokenizer=tokenizer, layers=layers, overwrite=True)
        found = nearest_neighbors(model, QUERY, "bank", tmp_path / "v.parquet", **how)
        assert list(found) == list(expected)
        for one, other in zip(chain(*found.values()), chain(*expected.values()), strict=True):
            assert one == replace(other, similarity=pytest.approx(other.similarity, abs=1e-5))


@pytest.mark.parametrize(("ending", "pooling", "named"), WRONG_FILES)
def test_a_file_without_words_or_of_other_vectors_is_refused(model, tokenizer, tmp_path, ending, pooling, named):
    other = copy.deepcopy(model)
    other.bilm.layers[0].lstm.bias.data[0] += 1
    embed(other, CORPUS, tmp_path / f"v{ending}", tokenizer=tokenizer, pooling=pooling)
    with pytest.raises(ValueError, match=named):
        nearest_neighbors(model, QUERY, "bank", tmp_path / f"v{ending}", tokenizer=tokenizer)


def test_similarities_are_the_cosines(model, tokenizer):
    found = layer_similarities(model, [QUERY, SECOND], ["bank", "gold"], tokenizer=tokenizer)
    first, second = (layers_of(model, tokenizer, words) for words in (QUERY, SECOND))
    cosines = torch.cosine_similarity(first[:, :, None], second[:, None], dim=3)
    assert found.uses == [f"{QUERY[1]} bank {QUERY[3]}", " ".join(SECOND[2:])]
    np.testing.assert_allclose(found.matrix[:, 0, 1], found.layers)
    np.testing.assert_allclose(found.layers, cosines[:, 2, 3], atol=1e-5)
    others = torch.ones(6, 4, dtype=torch.bool)
    others[2, 3] = False
    np.testing.assert_allclose(found.others, cosines[:, others].mean(1), atol=1e-5)


def test_uses_of_one_word_are_compared_in_pairs(model, tokenizer):
    sentences = [QUERY, ["bank", "too"], ["a", "bank"]]
    found = layer_similarities(model, sentences, "bank", tokenizer=tokenizer)
    pairs = [layer_similarities(model, list(two), "bank", tokenizer=tokenizer) for two in combinations(sentences, 2)]
    np.testing.assert_allclose(found.matrix[:, 2, 0], pairs[1].layers, atol=1e-5)
    np.testing.assert_allclose(found.layers, np.mean([pair.layers for pair in pairs], axis=0), atol=1e-5)
    weights = [6 * 2 - 1, 6 * 2 - 1, 2 * 2 - 1]
    np.testing.assert_allclose(found.others, np.average([pair.others for pair in pairs], 0, weights), atol=1e-5)


@pytest.mark.parametrize("layer", [None, 0])
def test_the_plane_is_that_of_the_principal_components(model, tokenizer, layer):
    decomposition = pytest.importorskip("sklearn.decomposition")
    found = word_plane(model, [QUERY, [], SECOND], layer=layer, tokenizer=tokenizer)
    assert found.sentences == [QUERY, SECOND]
    assert found.layer == (2 if layer is None else layer)
    vectors = np.concatenate([layers_of(model, tokenizer, words)[found.layer] for words in (QUERY, SECOND)])
    expected = decomposition.PCA(2, svd_solver="full").fit(vectors.astype(np.float64))
    points, coordinates = np.concatenate(found.points), expected.transform(vectors.astype(np.float64))
    np.testing.assert_allclose(np.abs(points), np.abs(coordinates), atol=1e-4)
    np.testing.assert_allclose(points[:, :1] * points[:, :1].T, coordinates[:, :1] * coordinates[:, :1].T, atol=1e-4)
    np.testing.assert_allclose(found.explained, expected.explained_variance_ratio_, atol=1e-5)
    assert [len(own) for own in found.points] == [6, 4]
    assert (points[np.abs(points).argmax(0), [0, 1]] > 0).all()


def test_the_plane_of_one_word_and_what_has_no_other_pairs_or_no_direction(model, tokenizer):
    found = word_plane(model, [QUERY, ["bank", "too"], ["a", "bank"]], "bank", tokenizer=tokenizer)
    assert found.labels == [["old bank of"], ["bank too"], ["a bank"]]
    assert [len(points) for points in found.points] == [1, 1, 1]
    constant = word_plane(model, [["a", "a", "a"]], layer=0, tokenizer=tokenizer)
    np.testing.assert_allclose(constant.points[0], 0, atol=1e-6)
    assert np.isfinite(constant.explained).all()
    assert np.isnan(layer_similarities(model, ["bank", "bank"], [0, 0], tokenizer=tokenizer).others).all()
    for sentences in (["bank"], [], [""]):
        with pytest.raises(ValueError, match="two or more"):
            word_plane(model, sentences, tokenizer=tokenizer)
