"""A quick run of each short script, and of the recipe of elmo-compact-en, on small data."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForPreTraining
from tests.examples.conftest import WORDS, write
from tests.factories import save_checkpoint, small_model
from tests.language_models import small_tokenizer

pytest.importorskip("nltk")

from examples import two_senses, word_senses
from examples.own_language import prepare as own_language
from examples.pretrain_compact import books, cleaning, prepare, publish

ROOT = Path(__file__).parent.parent.parent


def test_two_senses(folder: str, capsys: pytest.CaptureFixture) -> None:
    two_senses.main(["--model", folder])
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row[:22] for row in rows] == ["layer 0 1.00  layer 1 "] * 2  # layer 0 reads the word alone


def occurrence(words: str, sense: str) -> str:
    """An occurrence of *line* as in Senseval's files, which are not well-formed XML."""
    tagged = (f"<wf pos='\"'>{word}</wf>" for word in words.split())
    sentence = " ".join(f"<head> {one}</head>" if ">line" in one else one for one in tagged)
    return f'<instance>\n<answer senseid="{sense}"/>\n<context>\n before \n {sentence} \n</context>\n</instance>\n'


def test_word_senses(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    texts = [occurrence(f"they hung {number} shirts on the line &amp; left", "cord") for number in range(9)]
    texts += [occurrence(f"she called {number} times but the lines were < busy", "phone") for number in range(7)]
    path = tmp_path / "line.pos.gz"
    write(path, f'<corpus lang="en">\n{"".join(texts)}</corpus>')
    first, *_ = word_senses.read_senseval(path)
    assert " ".join(first.words) == "they hung 0 shirts on the line & left"
    word_senses.main([str(path), "--model", folder])
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:4] == ["line", "2", "16", "56.2%"]  # 9 of 16
    known = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 1e-9], [0.0, 1.0]], dtype=np.float32)  # three are equally near
    vectors = np.array([[3.0, 0.0], [0.1, 3.0], [1.0, 1.0]], dtype=np.float32)
    shares = word_senses.of_nearest(known, np.array(list("abba")), vectors, np.array(list("baa")))
    np.testing.assert_allclose(shares, [2 / 3, 1, 1 / 2])


def test_own_language(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    lines = [f"Der Weg ist lang. Ein lang Ding, Über-Maß {number}!" for number in range(7)]
    write(tmp_path / "raw.txt.gz", "\n\n".join(["Cafe\u0301 서울", *lines, lines[0], "x" * 60]))
    own_language.main([str(tmp_path / "raw.txt.gz"), str(tmp_path), "--held-out-every", "3"])
    train, held_out = ((tmp_path / f"{name}.txt").read_text("utf-8").splitlines() for name in ("train", "heldout"))
    assert train[:3] == ["Café 서울", "Der Weg ist lang .", "Ein lang Ding , Über-Maß 0 !"]
    assert sum("Über-Maß" in line for line in train + held_out) == 7  # a paragraph that occurs twice counts once
    assert held_out[-1] == "x" * 60
    assert ", 1 longer than 48 bytes" in capsys.readouterr().out


RULES = {
    "page header": "Friday, January 4, 2019",
    "damaged": "The \ufffdrst of the Ãx was lost.",
    "boilerplate": "All rights reserved by the publisher.",
    "reference": "Roe v. Wade, 410 U.S. 113 (1973).",
    "code": "const { accordion } = USWDS; run();",
    "table": "Introduction ............ 7 ........ 9",
    "another language": "Der Weg ist lang, und die Nacht war kalt.",
    "capitals": "MR. PRESIDENT, PEACE IS UNDER THREAT.",
    "list": "crude petroleum, diamonds, natural gas, ships, refined petroleum, wheat, soybeans",
    "fragment": "making audit data more transparent",
    None: "He won in Virginia, Alabama, Oklahoma, Tennessee, Minnesota, Arkansas. Maine was close.",
}
DAMAGED = "MK: donâ€™t [read](https://a.gov/x) **it** [12] (Laughs) . . . on it (A/46/PV.59. p. 1).Craig wrote so."


def test_rules_repairs_and_duplicates() -> None:
    assert [cleaning.reason(cleaning.repaired(text)) for text in RULES.values()] == list(RULES)
    assert cleaning.repaired(DAMAGED) == "don’t read it ... on it. Craig wrote so."
    words = [f"w{number}" for number in range(60)]
    text, duplicates = " ".join(words), cleaning.Duplicates()
    texts = (text, f"{text.upper()} !", f"{text} and more", "Too short.", "Too short.")
    assert list(map(duplicates.has, texts)) == [False, True, True, False, False]
    parts = [cleaning.shared_parts([f"a b {' '.join(words[3 : 3 + length])} c"]) for length in (12, 13)]
    assert list(map(cleaning.shared_parts([text]).isdisjoint, parts)) == [True, False]


BOOK = "CHAPTER I\n\n“Stop!” cried Mr. Smith; _he_ was not\namused. He doesn’t sing the well-\nknown song.[Picture]"
TESTED = "He could play the piano , the flute and the violin before he could read or write at all ."


@pytest.mark.slow
def test_the_text_of_all_sources(tmp_path: Path) -> None:
    def sentence(key: str) -> str:
        return f"The {' '.join(Random(key).choices(WORDS[2:], k=14))} was well-known."

    folder, out = tmp_path / "data", tmp_path / "out"
    for source in prepare.SOURCES:
        documents = [[sentence(f"{source.path} {number} {line}") for line in "abc"] for number in range(150)]
        for document in documents[:9]:
            document += ["Click here!", document[0], f"{sentence(document[1])} {TESTED}", "Salient Points of It"]
        write(folder / "lm" / source.path / "text.txt.gz", "\n\n".join("\n".join(document) for document in documents))
    for name in books.PARTS:
        write(folder / "lm/public_domain/books" / f"{name}.txt.gz", BOOK)
    for part in ("valid", "test"):
        write(folder / f"lm/other/wikitext-2/{part}.txt", " = Head = \n The test was 3 @.@ 5 @-@ mile . He went .\n")
    write(folder / "lm/other/brown.txt.gz", TESTED)
    for word in ("line", "interest"):
        write(folder / f"wsd/senseval/{word}.pos.gz", occurrence("the line", "a"))
    prepare.main([str(folder), str(out), "--vocab-size", "60"])
    parts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in out.iterdir()}
    assert parts.keys() == {"train", "last", "heldout", "heldout_modern", "dev", "wikitext", "vocab"}
    book = ['" Stop ! " cried Mr. Smith ; he was not amused .', "He doesn 't sing the well-known song ."]
    assert parts["heldout"] == book * 4
    assert len(parts["train"]) > 1000
    assert not any(TESTED in line for line in parts["train"])
    assert parts["wikitext"] == ["The test was 3.5-mile .", "He went ."]


def test_what_is_published_is_an_average_in_half_precision(tmp_path: Path) -> None:
    models, tokenizer = [], small_tokenizer(tmp_path)
    for seed, run in enumerate(("run", "run2/checkpoint-7")):
        models.append(small_model(ElmoForPreTraining, seed, vocab_size=len(tokenizer.vocabulary)))
        save_checkpoint(tmp_path / run, models[-1], tokenizer)
    publish.main([str(tmp_path / "run2"), str(tmp_path / "out"), "--average", str(tmp_path / "run"), "0.25"])
    models.append(ElmoForPreTraining.from_pretrained(tmp_path / "out"))
    first, second, published = (dict(model.named_parameters()) for model in models)
    for name, weight in published.items():
        torch.testing.assert_close(weight, 0.75 * second[name] + 0.25 * first[name], atol=1e-3, rtol=1e-3)


@pytest.mark.slow
def test_what_is_packed_for_a_gpu_trains_and_comes_back(tmp_path: Path) -> None:
    rng, corpus, script = Random(0), tmp_path / "corpus", ROOT / "examples/pretrain_compact/gpu.sh"
    write(corpus / "train.txt", "".join(f"{' '.join(rng.choices(WORDS, k=9))} {rng.random()}\n" for _ in range(30_000)))
    write(corpus / "dev.txt", f"{' '.join(WORDS)}\n")
    write(corpus / "vocab.txt", "".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *sorted(set(WORDS))]))

    def run(*arguments: object) -> None:
        environment = {**os.environ, "PYTHON": sys.executable, "MOST": "800000"}
        subprocess.run([script, *map(str, arguments)], check=True, env=environment)

    run("pack", corpus, tmp_path / "package.tgz")
    assert 600_000 < (tmp_path / "package.tgz").stat().st_size < 800_000
    options = ["--steps=2", "--set=use_cpu=true", "--config=hidden_size=32", "--config=cell_size=32"]
    run("train", tmp_path / "package.tgz", tmp_path / "out", 300, *options)
    run("unpack", tmp_path / "out", tmp_path / "model")
    assert ElmoForPreTraining.from_pretrained(tmp_path / "model").config.hidden_size == 32
