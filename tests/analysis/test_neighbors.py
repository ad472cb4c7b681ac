"""Nearest neighbors: which words are found, by which layer, and that they are the nearest."""

import numpy as np
import pytest
import torch

import hf_elmo
from hf_elmo import ElmoTokenizer
from hf_elmo.analysis.neighbors import Neighbor, nearest_neighbors
from hf_elmo_cli import main

QUERY = ["the", "old", "bank", "of", "the", "river"]
CORPUS = [
    ["we", "sat", "on", "a", "Bank", "of", "sand"],
    ["she", "keeps", "her", "gold", "in", "the", "bank", "or", "another", "bank"],
    QUERY,
    [],
    ["banks", "lend", "gold"],
    ["we", "sat", "on", "a", "Bank", "of", "sand"],
    ["nothing", "here"],
]


def _cosines(model, tokenizer, layer: int) -> dict[tuple[int, int], float]:
    """(row, place) -> similarity with the query's third word, by the model itself, a sentence at a time."""

    def vectors(words: list[str]) -> torch.Tensor:
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            return model(**encoded, output_hidden_states=True).hidden_states[layer][0, 1:-1]

    query = vectors(QUERY)[2]
    return {
        (row, place): torch.cosine_similarity(vector, query, dim=0).item()
        for row, words in enumerate(CORPUS)
        if words and words != QUERY and row != 5
        for place, vector in enumerate(vectors(words))
    }


@pytest.mark.parametrize("any_word", [False, True], ids=["same word", "any word"])
def test_occurrences_are_the_nearest_of_each_layer(model, tokenizer, any_word):
    found = nearest_neighbors(model, tokenizer, QUERY, "bank", CORPUS, top=4, any_word=any_word)
    assert list(found) == [0, 1, 2]
    for layer in (1, 2):
        expected = _cosines(model, tokenizer, layer)
        if not any_word:
            expected = {key: value for key, value in expected.items() if CORPUS[key[0]][key[1]].lower() == "bank"}
        order = sorted(expected, key=lambda key: -expected[key])[:4]
        assert [(one.row, one.position) for one in found[layer]] == order
        np.testing.assert_allclose(
            [one.similarity for one in found[layer]], [expected[key] for key in order], atol=1e-5
        )
        assert all(
            one.word == CORPUS[one.row][one.position] and one.sentence == CORPUS[one.row] for one in found[layer]
        )


def test_static_neighbors_are_other_words_each_once(model, tokenizer):
    found = nearest_neighbors(model, tokenizer, QUERY, "bank", CORPUS, top=30)[0]
    words = [one.word for one in found]
    assert sorted(words) == sorted({word for row in CORPUS if row != QUERY for word in row} - {"bank"})
    expected = _cosines(model, tokenizer, 0)
    np.testing.assert_allclose(
        [one.similarity for one in found], [expected[one.row, one.position] for one in found], atol=1e-5
    )
    assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)


def test_the_result_does_not_depend_on_how_the_corpus_is_cut(model, tokenizer, monkeypatch):
    whole = nearest_neighbors(model, tokenizer, QUERY, "bank", CORPUS, any_word=True)
    monkeypatch.setattr("hf_elmo.analysis.neighbors.ROWS_AT_ONCE", 2)
    pieces = nearest_neighbors(model, tokenizer, QUERY, "bank", iter(CORPUS), any_word=True)
    for layer, found in whole.items():
        assert [(one.row, one.position) for one in found] == [(one.row, one.position) for one in pieces[layer]]


def test_texts_and_files_are_split_as_asked_for(model, tokenizer, tmp_path):
    lm1b = ElmoTokenizer()
    text = nearest_neighbors(model, lm1b, "The old bank.", "bank", ["A bank, too.", "No bank!"], top=2)
    assert {tuple(one.sentence) for one in text[1]} == {("A", "bank", ",", "too", "."), ("No", "bank", "!")}
    path = tmp_path / "corpus.txt"
    path.write_text("A bank, too.\nNo bank!\nthis bank .\n", encoding="utf-8")
    at_whitespace = nearest_neighbors(model, lm1b, "The old bank .", "bank", path, top=9, pretokenized=True)
    assert [one.sentence for one in at_whitespace[2]] == [["this", "bank", "."]]


def test_a_word_may_be_given_by_its_number(model, tokenizer):
    sentence = ["the", "bank", "by", "the", "sea"]
    found = nearest_neighbors(model, tokenizer, sentence, 3, [["the", "end"], ["in", "the", "end"]], top=1)
    first = nearest_neighbors(model, tokenizer, sentence, "the", [["the", "end"], ["in", "the", "end"]], top=1)
    assert found[1][0].word == first[1][0].word == "the"
    assert found[1][0].similarity != first[1][0].similarity


def test_no_occurrence_gives_no_neighbor(model, tokenizer):
    found = nearest_neighbors(model, tokenizer, QUERY, "bank", [["nothing", "here"]])
    assert [len(found[layer]) for layer in (0, 1, 2)] == [2, 0, 0]


@pytest.mark.parametrize(
    ("word", "top", "message"),
    [("sea", 1, "'sea' does not occur"), (6, 1, "index 6"), (-1, 1, "index -1"), ("bank", 0, "top is 0")],
)
def test_what_cannot_be_asked_is_refused(model, tokenizer, word, top, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbors(model, tokenizer, QUERY, word, CORPUS, top=top)


def test_a_model_with_a_head_is_used_without_it(model, tokenizer):
    config = hf_elmo.ElmoConfig(**{**model.config.to_diff_dict(), "vocab_size": 11})
    head = hf_elmo.ElmoForPreTraining(config).eval()
    head.elmo.load_state_dict(model.state_dict())
    expected = nearest_neighbors(model, tokenizer, QUERY, "bank", CORPUS)
    assert nearest_neighbors(head, tokenizer, QUERY, "bank", CORPUS) == expected


def test_context_is_cut_around_the_word():
    sentence = list("abcdefg")
    assert Neighbor(1.0, "d", sentence, 3, 0).in_context(2) == "... b c [d] e f ..."
    assert Neighbor(1.0, "a", sentence, 0, 0).in_context(6) == "[a] b c d e f g"


def test_command_prints_neighbors_of_each_layer(model, tokenizer, tmp_path, capsys):
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"{' '.join(words)}\n" for words in CORPUS), encoding="utf-8")
    arguments = ["neighbors", " ".join(QUERY), "bank", str(corpus), "--model", str(tmp_path / "model"), "--top", "2"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    found = nearest_neighbors(model, tokenizer, QUERY, "bank", CORPUS, top=2)
    assert lines[0].split()[:2] == ["layer", "0"]
    assert len(lines) == 6
    best = found[2][0]
    assert lines[4].split(maxsplit=4) == ["layer", "2", f"{best.similarity:.3f}", f"{best.row + 1}:", best.in_context()]
    assert main([*arguments[:2], "sea", *arguments[3:]]) == 1
    assert "'sea' does not occur" in capsys.readouterr().err
