"""A quick run of each short script, and of the recipe of elmo-compact-en, on small data."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForPreTraining
from tests.examples.conftest import write
from tests.factories import save_checkpoint, small_model
from tests.language_models import small_tokenizer

pytest.importorskip("nltk")

from examples import two_senses, word_senses
from examples.own_language import prepare as own_language
from examples.pretrain_compact import books, cleaning, prepare, publish


def test_two_senses(folder: str, capsys: pytest.CaptureFixture) -> None:
    two_senses.main(["--model", folder])
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == f"'bank' in: {two_senses.SENTENCES[0]}"
    assert all(row.startswith("layer 0 1.00  layer 1 ") for row in rows)  # layer 0 reads the word alone


def occurrence(words: str, sense: str) -> str:
    """An occurrence of *line* as in Senseval's files, which are not well-formed XML."""
    tagged = " ".join(
        f'<head> <wf pos="NN">{word}</wf></head>' if word.startswith("line") else f"<wf pos='\"'>{word}</wf>"
        for word in words.split()
    )
    return (
        f'<instance id="line-n.1:">\n\n<answer instance="line-n.1:" senseid="{sense}"/>\n\n<context>\n'
        f' <wf pos="DT">before</wf> \n {tagged} \n</context>\n\n</instance>\n'
    )


def test_word_senses(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    texts = [occurrence(f"they hung {number} shirts on the line &amp; left", "cord") for number in range(9)]
    texts += [occurrence(f"she called {number} times but the lines were < busy", "phone") for number in range(7)]
    path = tmp_path / "line.pos.gz"
    write(path, f'<corpus lang="en">\n{"".join(texts)}</corpus>')
    first, *_ = word_senses.read_senseval(path)
    assert " ".join(first.words) == "they hung 0 shirts on the line & left"
    word_senses.main([str(path), "--model", folder])
    header, row = capsys.readouterr().out.splitlines()
    assert all(name in header for name in ("most frequent", "layer 0", "layer 1", "layer 2", "mean of 1 up"))
    assert row.split()[:4] == ["line", "2", "16", "56.2%"]  # 9 of 16
    known = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 1e-9], [0.0, 1.0]], dtype=np.float32)  # three are equally near
    vectors = np.array([[3.0, 0.0], [0.1, 3.0], [1.0, 1.0]], dtype=np.float32)
    shares = word_senses.of_nearest(known, np.array(list("abba")), vectors, np.array(list("baa")))
    np.testing.assert_allclose(shares, [2 / 3, 1, 1 / 2])


def test_own_language(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    lines = [f"Der Weg ist lang. Ein lang Ding, Über-Maß {number}!" for number in range(7)]
    text = "\n\n".join(["Cafe\u0301 서울", *lines, lines[0], "x" * 60])
    write(tmp_path / "raw.txt.gz", text)
    out = tmp_path / "out"
    own_language.main([str(tmp_path / "raw.txt.gz"), str(out), "--held-out-every", "3"])
    train, held_out = ((out / name).read_text("utf-8").splitlines() for name in ("train.txt", "heldout.txt"))
    assert train[:3] == ["Café 서울", "Der Weg ist lang .", "Ein lang Ding , Über-Maß 0 !"]
    assert sum("Über-Maß" in line for line in train + held_out) == 7  # a paragraph that occurs twice counts once
    assert held_out[-1] == "x" * 60
    assert ", 1 longer than 48 bytes" in capsys.readouterr().out


# -- the recipe of elmo-compact-en -------------------------------------------------------------------------------------

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
}
KEPT = "He won in Virginia, Alabama, Oklahoma, Tennessee, Minnesota, Arkansas. Maine was close."
DAMAGED = "MK: donâ€™t [read](https://a.gov/x) **it** [12] (Laughs) . . . on it (A/46/PV.59. p. 1).Craig wrote so."


def test_rules_repairs_and_duplicates() -> None:
    assert {rule: cleaning.reason(cleaning.repaired(text)) for rule, text in RULES.items()} == {r: r for r in RULES}
    assert cleaning.reason(KEPT) is None
    assert cleaning.repaired(DAMAGED) == "don’t read it ... on it. Craig wrote so."
    words = [f"w{number}" for number in range(60)]
    text, duplicates, overlap = " ".join(words), cleaning.Duplicates(), cleaning.Overlap()
    reasons = [duplicates.reason(one) for one in (text, f"{text.upper()} !", f"{text} and more", "Too short.")]
    assert reasons == [None, "duplicate", "near duplicate", None]
    overlap.add([text])
    assert [overlap.shares([f"a b {' '.join(words[3 : 3 + length])} c"]) for length in (12, 13)] == [False, True]


BOOK = """CHAPTER I

“Stop!” cried Mr. Smith; _he_ was not
amused. He doesn’t sing the well-
known song.

[Illustration: a cat]
"""
TESTED = "He could play the piano , the flute and the violin before he could read or write at all ."


def sentence(key: str) -> str:
    """A sentence of small words in an order that depends on the key."""
    words = Random(key).choices(["bab", "dex", "fick", "gop", "lux", "mab", "nex", "pick"], k=14)
    return f"The {' '.join(words)} was well-known."


@pytest.mark.slow
def test_the_whole_text(tmp_path: Path) -> None:
    """All sources, small, and the texts that models are tested on."""
    folder, out = tmp_path / "data", tmp_path / "out"
    for source in prepare.SOURCES:
        documents = [[sentence(f"{source.path} {number} {line}") for line in "abc"] for number in range(150)]
        for document in documents[:9]:
            document += ["Click here!", document[0], f"{sentence(document[1])} {TESTED}", "Salient Points of It"]
        write(folder / "lm" / source.path / "text.txt.gz", "\n\n".join("\n".join(document) for document in documents))
    for name in (*books.HELD_OUT, *books.DEV):
        write(folder / "lm/public_domain/books" / f"{name}.txt.gz", BOOK)
    for part in ("valid", "test"):
        text = f" \n = Head = \n \n The {part} was 3 @.@ 5 @-@ mile . He went .\n"
        write(folder / "lm/other/wikitext-2" / f"{part}.txt", text)
    write(folder / "lm/other/brown.txt.gz", TESTED)
    for word in ("line", "interest"):
        write(folder / f"wsd/senseval/{word}.pos.gz", occurrence("the line", "a"))
    prepare.main([str(folder), str(out), "--vocab-size", "60"])
    names = {"train", "last", "heldout", "heldout_modern", "dev", "wikitext", "vocab"}
    parts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in out.iterdir()}
    assert parts.keys() == names
    book = ['" Stop ! " cried Mr. Smith ; he was not amused .', "He doesn 't sing the well-known song ."]
    assert parts["heldout"] == book * len(books.HELD_OUT)
    assert len(parts["train"]) > 1000
    assert not any(TESTED in line for line in parts["train"])
    assert parts["wikitext"] == ["The test was 3.5-mile .", "He went ."]


def test_what_is_published_is_an_average_in_half_precision(tmp_path: Path) -> None:
    models, runs, out = [], [tmp_path / "run", tmp_path / "run2"], tmp_path / "out"
    for seed, run in enumerate(runs):
        (run / "checkpoint-7").mkdir(parents=True)
        tokenizer = small_tokenizer(run)
        models.append(small_model(ElmoForPreTraining, seed, vocab_size=len(tokenizer.vocabulary)))
        for folder in (run, run / "checkpoint-7"):
            save_checkpoint(folder, models[-1], tokenizer)
    publish.main([str(runs[1]), str(out), "--average", str(runs[0]), "0.25"])
    first, second, published = (dict(model.named_parameters()) for model in (*models, publish.load(str(out))))
    for name, weight in published.items():
        torch.testing.assert_close(weight, 0.75 * second[name] + 0.25 * first[name], atol=1e-3, rtol=1e-3)
