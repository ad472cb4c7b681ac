"""The scoreboard: each test on made data."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModel, AutoTokenizer

import hf_elmo
from tests.factories import save_checkpoint, small_language_model, small_tokenizer, write_lines

pytest.importorskip("sklearn")

from examples.scoreboard.__main__ import TESTS, main
from examples.scoreboard.sentences import advantages, misspelled

PAIRS = [("the cat sat on the mat", "the cat sat on mat the"), ("a dog", "dog a"), ("yes", "rain fell all day")]
PAIRS += [("a", "a a")]
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
    assert [figures["WiC", f"layer {n}"]["value"] for n in range(3)] == [50, 100, 100]  # the word, or its sentence
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


def test_advantages_are_the_differences_of_scores(folder) -> None:
    model, tokenizer = hf_elmo.load_model(folder / "model", language_model=True)
    scores = hf_elmo.score(model, [text for pair in PAIRS for text in pair], tokenizer=tokenizer)
    sums = np.array([[np.nansum(one.forward), np.nansum(one.backward)] for one in scores])
    found = advantages((model, tokenizer), PAIRS)
    np.testing.assert_allclose(found, sums[::2] - sums[1::2], rtol=1e-4, atol=1e-3)
    assert (np.abs(found) > 1e-3).any(axis=1).all()
