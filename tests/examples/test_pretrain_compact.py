"""The recipe of elmo-compact-en: a quick run of its text, its table and its command."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("nltk")

from examples.pretrain_compact import books, cleaning, prepare, publish
from tests.examples.conftest import write
from tests.language_models import small_language_model, small_tokenizer

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
    first = ["bdfgklmnprst"[int(12 * prepare.draw(key, place))] for place in range(14)]
    second = [("ab", "ex", "ick", "op", "ux")[int(5 * prepare.draw(place, key))] for place in range(14)]
    return f"The {' '.join(map(str.__add__, first, second))} of it was well-known."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """All sources, small, and the texts that models are tested on."""
    folder = tmp_path / "data"
    for source in prepare.SOURCES:
        documents = [[sentence(f"{source.path} {number} {line}") for line in "abc"] for number in range(150)]
        for document in documents[:9]:
            document += ["Click here!", document[0], f"{sentence(document[1])} {TESTED}", "Salient Points of It"]
        text = "\n\n".join("\n".join(document) for document in documents)
        write(folder / "lm" / source.path / "text.txt.gz", text)
    for name in (*books.HELD_OUT, *books.DEV):
        write(folder / "lm" / "public_domain" / "books" / f"{name}.txt.gz", BOOK)
    for part in ("valid", "test"):
        text = f" \n = Head = \n \n The {part} was 3 @.@ 5 @-@ mile . He went .\n"
        write(folder / "lm" / "other" / "wikitext-2" / f"{part}.txt", text)
    write(folder / "lm" / "other" / "brown.txt.gz", TESTED)
    for word in ("line", "interest"):
        instances = "".join(
            f'<instance id="{word}"><answer instance="x" senseid="{sense}"/><context>\n'
            f'<wf pos="DT">{other}{number}</wf> <head><wf pos="NN">{word}</wf></head>\n</context></instance>\n'
            for sense, other in (("a", "the"), ("b", "some"))
            for number in range(6)
        )
        write(folder / "wsd" / "senseval" / f"{word}.pos.gz", instances)
    return folder


@pytest.mark.slow
def test_the_whole_text(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare.main([str(data), str(out), "--vocab-size", "60"])
    names = {"train.txt", "last.txt", "heldout.txt", "heldout_modern.txt", "dev.txt", "wikitext.txt", "vocab.txt"}
    assert {path.name for path in out.iterdir()} == names
    parts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in out.glob("*.txt")}
    book = ['" Stop ! " cried Mr. Smith ; he was not amused .', "He doesn 't sing the well-known song ."]
    assert parts["heldout"] == book * len(books.HELD_OUT)
    assert not any(TESTED in line for line in parts["train"])
    assert parts["wikitext"] == ["The test was 3.5-mile .", "He went ."]


def test_what_is_published_is_an_average_in_half_precision(tmp_path: Path) -> None:
    models, runs, out = [], [tmp_path / "run", tmp_path / "run2"], tmp_path / "out"
    for shift, run in enumerate(runs):
        checkpoint = run / "checkpoint-7"
        checkpoint.mkdir(parents=True)
        tokenizer = small_tokenizer(checkpoint)
        models.append(small_language_model(tokenizer))
        with torch.no_grad():
            for weight in models[-1].parameters():
                weight.add_(shift)
        models[-1].save_pretrained(checkpoint)
        models[-1].save_pretrained(run)
        tokenizer.save_pretrained(checkpoint)
    publish.main([str(runs[1]), str(out), "--average", str(runs[0]), "0.25"])
    first, second, published = (dict(model.named_parameters()) for model in (*models, publish.load(str(out))))
    for name, weight in published.items():
        torch.testing.assert_close(weight, 0.75 * second[name] + 0.25 * first[name], atol=1e-3, rtol=1e-3)
