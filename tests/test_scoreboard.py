"""The scoreboard: each test on made data, and BLiMP and WiC beside other code, over transformers' Auto classes."""

import json
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

import hf_elmo
from tests.factories import save_checkpoint, sentence_logits, small_language_model, small_tokenizer, write_lines

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
WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "rain", "fell", "all", "day", "nobody", "went", "out", "see"]


def sentence(number: int, *words: str) -> str:
    """One of many sentences, with these words in it."""
    chosen = np.random.default_rng(number).permutation(WORDS)[:5]
    return " ".join([*chosen[:2], *words, *chosen[2:]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The files of every test, of the layout of the folder `--data`, and a model."""
    folder = tmp_path_factory.mktemp("scoreboard")
    tokenizer = small_tokenizer(folder)
    save_checkpoint(folder / "model", small_language_model(tokenizer), tokenizer)
    terms, names = ["binding", "ellipsis"], ("linguistics_term", "sentence_good", "sentence_bad")
    rows = [dict(zip(names, (terms[n % 2], *pair), strict=True)) for n, pair in enumerate(PAIRS * 20)]
    write_lines(folder / "blimp/blimp.jsonl.gz", map(json.dumps, rows))
    for part in ("train", "dev", "test"):
        uses = [f"dog\tN\t2-2\t{sentence(n, 'dog')}\t{sentence(n + n % 2, 'dog')}" for n in range(40)]
        write_lines(folder / "wic" / part / f"{part}.data.txt", uses)
        write_lines(folder / "wic" / part / f"{part}.gold.txt", "TF" * 20)
    columns = "grouping\tindexes_target_token_tokenized\tindexes_target_sentence_tokenized\tcontext_tokenized"
    words = [*(f"{word}_nn" for word in WORDS), "pick_vb"]
    for number, word in enumerate(words):  # another form, which layer 0 sees, in the later period
        forms = word[:-3], f"{word[:-3]}{'s' * number}"
        uses = [f'{1 + n % 2}\t3\t1:7\t"Yes {sentence(n, forms[n % 2])} .' for n in range(8)]
        write_lines(folder / "dwug_en" / "data" / word / "uses.csv", [columns, *uses])
    change = ["lemma\tchange_graded", *(f"{word}\t{number / 20}" for number, word in enumerate(words))]
    write_lines(folder / "dwug_en/stats/opt/stats_groupings.csv", change)
    with tarfile.open(folder / "dwug_en/dwug_en.tar.xz", "w:xz") as archive:
        archive.add(folder / "dwug_en/data", "dwug_en/data")
        archive.add(folder / "dwug_en/stats", "dwug_en/stats")
    labeled = [(n % 2, sentence(n, ("good", "bad")[n % 2])) for n in range(60)]
    for name in ("rt-polarity", "custrev", "mpqa"):
        write_lines(folder / "senteval" / f"{name}.all.gz", (f"{label} {text}" for label, text in labeled))
    for label, name in enumerate(("plot", "quote")):
        own = (text for number, text in labeled if number == label)
        write_lines(folder / "subjectivity" / f"{name}.tok.gt9.5000.gz", own)
    for part in ("train", "dev", "test"):
        write_lines(folder / "sst" / f"stsa.fine.{part}", (f"{4 * label} {text}" for label, text in labeled))
        write_lines(folder / "trec" / f"{part}.txt", (f"{('HUM:x', 'LOC:y')[label]} {text}" for label, text in labeled))
    blocks = []
    for _, text in labeled:
        kinds = zip(text.split(), "DNDNDN", ("det", "nsubj:pass") * 3, strict=True)
        rows = [f"{k}\t{word}\t_\t{tag}\t_\t_\t0\t{label}\t_\t_" for k, (word, tag, label) in enumerate(kinds, 1)]
        blocks += [*rows, ""]
    write_lines(folder / "multilingual/en_pud-ud-test.conllu.gz", blocks)
    for word in ("line", "interest"):
        head = f"<head><wf pos='NN'>{word}</wf></head> <wf pos='NN'>"
        lines = [f'<instance senseid="{n % 2}"><context>\n{head}dog{n}</wf>\n</context>' for n in range(20)]
        write_lines(folder / "wsd/senseval" / f"{word}.pos.gz", lines)
    return folder


def test_every_test_has_figures_with_spreads(folder, tmp_path) -> None:
    out = tmp_path / "out" / "scores.json"
    main([str(folder / "model"), "--data", str(folder), "--out", str(out)])
    written = json.loads(out.read_text("utf-8"))
    figures = {(one["test"], one["what"]): one for one in written["figures"]}
    assert set(written["seconds"]) == set(TESTS)
    assert all(np.isfinite([one["value"], one["spread"]]).all() for one in figures.values())
    assert figures["SentEval", "MR, words"]["value"] == 100  # a word tells the class
    assert figures["SentEval", "CR, ELMo"]["published"] == "85.1"
    assert ("meaning change", "SemEval's (15), APD, layer 2") in figures
    assert ("layers", "senses of interest, layer 2") in figures


def test_a_model_without_softmax_has_all_but_blimp(folder, tmp_path, capsys) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    elmo = AutoModel.from_pretrained(folder / "model")
    elmo.config.vocab_size = None
    model = save_checkpoint(tmp_path / "elmo", elmo, tokenizer)
    main([str(model), "--data", str(folder), "--tests", "blimp", "wic", "--quick"])
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
    model, tokenizer = hf_elmo.load_model(folder / "model", language_model=True)
    found, sums = advantages((model, tokenizer), PAIRS), []
    model = AutoModelForPreTraining.from_pretrained(folder / "model").eval()
    for text in (text for pair in PAIRS for text in pair):
        forward, backward, ids = sentence_logits(model, tokenizer, " ".join(tokenizer.tokenize(text)))
        places = np.arange(1, len(ids))
        sums.append([forward[places - 1, ids[places]].sum(), backward[places, ids[places - 1]].sum()])
    expected = np.array(sums)[::2] - np.array(sums)[1::2]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert (np.abs(found) > 1e-3).any(axis=1).all()


def test_wic_agrees_with_the_auto_classes(folder) -> None:
    """Accuracies by layer, with a threshold that is looked for here."""
    place = folder / "model"
    figures = list(wic(hf_elmo.load_model(place), folder, "dev", 1))
    model, tokenizer = AutoModel.from_pretrained(place).eval(), AutoTokenizer.from_pretrained(place)
    parts = [data.wic(folder)[part] for part in ("train", "dev")]
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
        assert abs(figure.value - accuracy) <= figure.spread
