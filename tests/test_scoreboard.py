"""The scoreboard: a quick run on real data, and BLiMP and WiC beside other code, over transformers' Auto classes."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

import hf_elmo
from tests.factories import save_checkpoint, sentence_logits, small_language_model, small_tokenizer

pytest.importorskip("sklearn")

from examples import data
from examples.scoreboard.__main__ import TESTS, main
from examples.scoreboard.sentences import advantages, misspelled
from examples.scoreboard.words import wic

PAIRS = [
    ("the cat sat on the mat", "the cat sat on mat the"),
    ("a dog", "dog a"),
    ("yes", "rain fell all day"),
    ("a", "a a"),
]


@pytest.fixture
def folder(tmp_path) -> Path:
    tokenizer = small_tokenizer(tmp_path)
    return save_checkpoint(tmp_path / "model", small_language_model(tokenizer), tokenizer)


@pytest.mark.slow
def test_every_test_has_figures_with_spreads(folder, shared, tmp_path) -> None:
    out = tmp_path / "out" / "scores.json"
    main([str(folder), "--data", str(shared / "data"), "--out", str(out), "--quick"])
    written = json.loads(out.read_text("utf-8"))
    figures = {(one["test"], one["what"]): one for one in written["figures"]}
    assert set(written["seconds"]) == set(TESTS)
    assert all(np.isfinite([one["value"], one["spread"]]).all() for one in figures.values())
    assert figures["SentEval", "MR, words"]["value"] > 60
    assert figures["SentEval", "CR, ELMo"]["published"] == "85.1"
    assert ("meaning change", "SemEval's (37), APD, layer 2") in figures
    assert ("layers", "senses of interest, layer 2") in figures


def test_a_model_without_softmax_has_all_but_blimp(folder, shared, capsys) -> None:
    elmo = AutoModel.from_pretrained(folder)
    elmo.config.vocab_size = None
    elmo.save_pretrained(folder)
    main([str(folder), "--data", str(shared / "data"), "--tests", "blimp", "wic", "--quick"])
    printed = capsys.readouterr()
    assert "left out" in printed.err
    assert printed.out.startswith("WiC ")


def test_a_typo_changes_one_place_of_longer_words() -> None:
    words = ["Nobody", "went", "out", ",", "to", "see", "it", "1234", "again"]
    text = " ".join(words)
    assert misspelled(text, 0) == text
    words = zip(words, misspelled(text, 1).split(), strict=True)
    changed = [(before, after) for before, after in words if before != after]
    assert [before for before, _ in changed] == ["Nobody", "went", "again"]
    assert all(abs(len(before) - len(after)) <= 1 for before, after in changed)


def test_blimp_agrees_with_the_auto_classes(folder) -> None:
    """The sums of both directions, a sentence at a time."""
    model, tokenizer = hf_elmo.load_model(folder, language_model=True)
    found, sums = advantages((model, tokenizer), PAIRS), []
    model = AutoModelForPreTraining.from_pretrained(folder).eval()
    for text in (text for pair in PAIRS for text in pair):
        forward, backward, ids = sentence_logits(model, tokenizer, " ".join(tokenizer.tokenize(text)))
        places = np.arange(1, len(ids))
        sums.append([forward[places - 1, ids[places]].sum(), backward[places, ids[places - 1]].sum()])
    expected = np.array(sums)[::2] - np.array(sums)[1::2]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert (np.abs(found) > 1e-3).any(axis=1).all()


def test_wic_agrees_with_the_auto_classes(folder, shared) -> None:
    """Accuracies by layer, with a threshold that is looked for here."""
    figures = list(wic(hf_elmo.load_model(folder), shared / "data", "dev", 10))
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    parts = [data.wic(shared / "data")[part][::10] for part in ("train", "dev")]
    cosines, gold = [], np.array([label for part in parts for _, label in part])
    for pair, _ in (row for part in parts for row in part):
        uses = []
        for words, position in pair:
            inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states)
            uses.append(layers[:, 0, position + 1])
        cosines.append(torch.cosine_similarity(*uses, dim=-1).numpy())
    train = len(parts[0])
    for figure, column in zip(figures, np.array(cosines).T, strict=False):
        middles = [low / 2 + high / 2 for low, high in pairwise(sorted(set(column[:train])))]
        best = max([*middles, -2], key=lambda one: ((column[:train] >= one) == gold[:train]).mean())
        accuracy = 100 * ((column[train:] >= best) == gold[train:]).mean()
        assert abs(figure.value - accuracy) <= 1
