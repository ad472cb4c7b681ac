"""A quick run of each comparison on real data, of each short script, and of the recipe of elmo-compact-en."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoForPreTraining
from tests.factories import TEXTS, save_checkpoint, small_language_model, small_model, small_tokenizer, write_lines

pytest.importorskip("nltk")

from examples import data, two_senses, word_senses
from examples.ag_news.run import plain
from examples.classifier import BAG, PAIRS
from examples.comparison import Run, gain, table
from examples.coreference import run as coreference
from examples.korean import prepare as korean
from examples.korean import sentiment
from examples.own_language import prepare as own_language
from examples.pretrain_compact import books, cleaning, prepare, publish
from examples.question_answering import run as question_answering
from examples.semantic_roles.run import tags_of

WORDS = ["(", ".", "anna", "met", "bob", "in", "rome", "he", "sang", "well", "team", "wins", "what", "who"]
ON_GLOVE = ["sst5", "entailment", "semantic_roles", "coreference", "question_answering"]
CLASSIFIERS = [BAG, *(row for pair in PAIRS for row in pair)]
SCRIPTS = {
    "ag_news.run --texts titles": CLASSIFIERS,
    "question_types.run": CLASSIFIERS,
    "sms_spam.run": [BAG, "textbook", "improved", "improved, biLM trained"],
    "tagging.run --tasks uner_ewt": ["GloVe", "GloVe + characters", "GloVe + ELMo"],
    **{f"{name}.run": ["GloVe", "GloVe + ELMo"] for name in ON_GLOVE},
    "korean.sentiment --sizes 20": [sentiment.BAG, sentiment.CHARACTERS, sentiment.ELMO_MEAN],
}
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
BOOK = "CHAPTER I\n\n“Stop!” cried Mr. Smith; _he_ was not\namused. He doesn’t sing the well-\nknown song.[Picture]"
TESTED = "He could play the piano , the flute and the violin before he could read or write at all ."


@pytest.fixture
def folder(tmp_path) -> str:
    """A saved random model with its language models."""
    tokenizer = small_tokenizer(tmp_path)
    return str(save_checkpoint(tmp_path / "model", small_language_model(tokenizer), tokenizer))


@pytest.mark.slow
@pytest.mark.parametrize("command", SCRIPTS)
def test_a_quick_run_has_all_rows(folder, shared, tmp_path, capsys, command: str) -> None:
    name, *arguments = command.split()
    arguments += ["--model", folder, "--data", str(shared / "data"), "--out", str(tmp_path / "out"), "--quick"]
    import_module(f"examples.{name}").main(arguments)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ") and "±" in line]
    assert rows == SCRIPTS[command]


def runs(*accuracies: float) -> list[Run]:
    return [Run({"accuracy": accuracy}, 2.0 * i, 1234) for i, accuracy in enumerate(accuracies)]


def test_the_table_has_means_and_deviations_and_a_gain_is_paired() -> None:
    """Differences of 1, 2, 3, 4, 5 points: 3 on average, with the standard error sqrt(2.5 / 5) and t(4) = 2.776."""
    lines = table({"a": runs(0.5, 0.6, 0.7), "b": runs(0.25, 0.25, 0.25)}, {"accuracy": "accuracy"}).splitlines()
    assert lines[2:] == ["| a | 60.00 ± 10.00 | 2.0 | 1,234 |", "| b | 25.00 ± 0.00 | 2.0 | 1,234 |"]
    results = {"a": runs(0.1, 0.5, 0.2, 0.6, 0.3), "b": runs(0.11, 0.52, 0.23, 0.64, 0.35)}
    assert gain(results, "a", "b") == "b over a: +3.00 points (+1.04 to +4.96)"


def test_roles_get_the_words_of_universal_dependencies(tmp_path, monkeypatch) -> None:
    rows = [("Anna", "(ARG0*", "*"), ("met", "(V*)", "*"), ("Bob", "(ARG1*", "(ARG0*)"), ("sang", "*)", "(V*)")]
    skeleton = [f"doc 0 {n} [WORD] NN * - - {' '.join(spans)}" for n, (_, *spans) in enumerate(rows)]
    words = [f"{n}\t{word}\t_" for n, (word, *_) in enumerate(rows, start=1)]
    write_lines(tmp_path / "ewt" / "doc.xml.gold_skel", ["doc 0 0 [WORD] NN * - - ", "", *skeleton])
    head = ["# newdoc id = answers-doc", "1\ttwo\t_", "2\twords\t_", "", "1-2\tnone\t_"]
    text = write_lines(tmp_path / "a.conllu", [*head, *words, "", "# newdoc id = email-x", "1\tHi\t_"])
    monkeypatch.setattr(data, "downloaded", lambda url: tmp_path / "ewt" if url == data.PROPBANK else text)
    ((found, columns),) = data.propbank(None, "dev")  # the first sentence has another number of words
    assert found == [word for word, *_ in rows]
    assert list(map(tags_of, columns)) == [["B-ARG0", "B-V", "B-ARG1", "I-ARG1"], ["O", "O", "B-ARG0", "B-V"]]


def test_parts_of_texts() -> None:
    document = {"sentences": [["a"] * 7, ["b"] * 7], "clusters": [[[0, 1], [7, 7]], [[3, 3], [5, 6]], [[4, 4]]]}
    assert coreference.begin(document, 2)["clusters"] == document["clusters"][:2]
    assert coreference.begin(document, 1)["clusters"] == [[[3, 3], [5, 6]]]
    assert coreference.in_lines({"Text": "Bob sat in St. Ives? (He)"})["Text"] == "Bob sat in St.\nIves?\n(He)"
    asked = [{"question": "Who?", "context": f"Anna {n // 2}."} for n in range(40)]
    assert question_answering.parts_of(asked, [])["dev"] == [*asked[:2], *asked[20:22]]
    assert plain("An #36;10 chip\\of  its own") == "An $10 chip of  its own"
    changed = {sentiment.noised("가나x ㅋ", 100, Random(seed)) for seed in range(40)}
    assert {"x ㅋ", "가가나나x ㅋ", "나가x ㅋ"} <= changed


def test_korean_text(tmp_path) -> None:
    parts = enumerate(("train", "dev", "test"))
    lines = [f"{part}\t{movie}\t9\t연기 {part} {number}" for movie, part in parts for number in range(5)]
    twice = [lines[0], "test\t9\t10\t" + lines[0].split("\t")[-1]]  # once in train, and once for testing
    write_lines(tmp_path / "korean_reviews/reviews.tsv.gz", ["split\tmovie\trating\treview", *twice, *lines])
    korean.main([str(tmp_path), str(tmp_path / "text")])
    parts = [(tmp_path / "text" / f"{name}.txt").read_text("utf-8").splitlines() for name in korean.PARTS]
    assert list(map(len, parts)) == [6, 5, 4]
    model, tokenizer = (each.from_pretrained(tmp_path / "text/start") for each in (AutoModel, AutoTokenizer))
    assert model(**tokenizer("연기", return_tensors="pt")).last_hidden_state.shape[1] == 3


def test_two_senses(folder, capsys) -> None:
    two_senses.main(["--model", folder])
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row[:22] for row in rows] == ["layer 0 1.00  layer 1 "] * 2  # layer 0 reads the word alone


def test_word_senses(folder, shared, capsys) -> None:
    path = shared / "data/wsd/senseval/interest.pos.gz"  # not well-formed XML
    words, positions, _ = zip(*word_senses.read_senseval(path), strict=True)
    assert {own[place] for own, place in zip(words, positions, strict=True)} == {"interest", "interests"}
    assert any(own[:4] == ["fraser", "&", "neave", ","] for own in words)
    word_senses.main([str(path), "--model", folder])
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:4] == ["interest", "6", "2368", "52.9%"]


def test_equally_near_senses_count_equally() -> None:
    known = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 1e-9], [0.0, 1.0]], dtype=np.float32)  # three are equally near
    vectors = np.array([[3.0, 0.0], [0.1, 3.0], [1.0, 1.0]], dtype=np.float32)
    shares = word_senses.of_nearest(known, np.array(list("abba")), vectors, np.array(list("baa")))
    np.testing.assert_allclose(shares, [2 / 3, 1, 1 / 2])


def test_own_language(tmp_path, capsys) -> None:
    lines = [f"Der Weg ist lang. Ein lang Ding, Über-Maß {number}!" for number in range(7)]
    write_lines(tmp_path / "raw.txt.gz", (f"{line}\n" for line in ("Cafe\u0301 서울", *lines, lines[0], "x" * 60)))
    own_language.main([str(tmp_path / "raw.txt.gz"), str(tmp_path), "--held-out-every", "3"])
    train, held_out = ((tmp_path / f"{name}.txt").read_text("utf-8").splitlines() for name in ("train", "heldout"))
    assert train[:3] == ["Café 서울", "Der Weg ist lang .", "Ein lang Ding , Über-Maß 0 !"]
    assert sum("Über-Maß" in line for line in train + held_out) == 7  # a paragraph that occurs twice counts once
    assert held_out[-1] == "x" * 60
    assert ", 1 longer than 48 bytes" in capsys.readouterr().out


def test_rules_repairs_and_duplicates() -> None:
    assert [cleaning.reason(cleaning.repaired(text)) for text in RULES.values()] == list(RULES)
    assert cleaning.repaired(DAMAGED) == "don’t read it ... on it. Craig wrote so."
    words = [f"w{number}" for number in range(60)]
    text, duplicates = " ".join(words), cleaning.Duplicates()
    texts = (text, f"{text.upper()} !", f"{text} and more", "Too short.", "Too short.")
    assert list(map(duplicates.has, texts)) == [False, True, True, False, False]
    parts = [cleaning.shared_parts([f"a b {' '.join(words[3 : 3 + length])} c"]) for length in (12, 13)]
    assert list(map(cleaning.shared_parts([text]).isdisjoint, parts)) == [True, False]


@pytest.mark.slow
def test_the_text_of_all_sources(tmp_path) -> None:
    def sentence(key: str) -> str:
        return f"The {' '.join(Random(key).choices(WORDS[2:], k=14))} was well-known."

    folder, out = tmp_path / "data", tmp_path / "out"
    for source in prepare.SOURCES:
        documents = [[sentence(f"{source.path} {number} {line}") for line in "abc"] for number in range(150)]
        for document in documents[:9]:
            document += ["Click here!", document[0], f"{sentence(document[1])} {TESTED}", "Salient Points of It"]
        write_lines(folder / "lm" / source.path / "text.txt.gz", ("\n".join([*each, ""]) for each in documents))
    for name in books.PARTS:
        write_lines(folder / "lm/public_domain/books" / f"{name}.txt.gz", [BOOK])
    for part in ("valid", "test"):
        text = [" = Head = ", " The test was 3 @.@ 5 @-@ mile . He went ."]
        write_lines(folder / f"lm/other/wikitext-2/{part}.txt", text)
    write_lines(folder / "lm/other/brown.txt.gz", [TESTED])
    for word in ("line", "interest"):
        write_lines(folder / f"wsd/senseval/{word}.pos.gz", [])
    prepare.main([str(folder), str(out), "--vocab-size", "60"])
    parts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in out.iterdir()}
    assert parts.keys() == {"train", "last", "heldout", "heldout_modern", "dev", "wikitext", "vocab"}
    book = ['" Stop ! " cried Mr. Smith ; he was not amused .', "He doesn 't sing the well-known song ."]
    assert parts["heldout"] == book * 4
    assert len(parts["train"]) > 1000
    assert not any(TESTED in line for line in parts["train"])
    assert parts["wikitext"] == ["The test was 3.5-mile .", "He went ."]


@pytest.mark.parametrize("trained", ["run2/checkpoint-7", "run2"])
def test_what_is_published_is_an_average_in_half_precision(tmp_path, trained: str) -> None:
    models, tokenizer = [], small_tokenizer(tmp_path)
    for seed, run in enumerate(("run", trained)):
        models.append(small_model(ElmoForPreTraining, seed, vocab_size=len(tokenizer.vocabulary)))
        save_checkpoint(tmp_path / run, models[-1], tokenizer)
    publish.main([str(tmp_path / "run2"), str(tmp_path / "out"), "--average", str(tmp_path / "run"), "0.25"])
    models.append(ElmoForPreTraining.from_pretrained(tmp_path / "out"))
    first, second, published = (dict(model.named_parameters()) for model in models)
    for name, weight in published.items():
        torch.testing.assert_close(weight, 0.75 * second[name] + 0.25 * first[name], atol=1e-3, rtol=1e-3)


@pytest.mark.slow
def test_what_is_packed_for_a_gpu_trains_and_comes_back(tmp_path, monkeypatch) -> None:
    corpus, package, out, folder = map(tmp_path.joinpath, ("corpus", "package", "out", "model"))
    for name in ("train.txt", "last.txt"):
        write_lines(corpus / name, (" ".join(Random(number).choices(TEXTS, k=3)) for number in range(2000)))
    tokenizer = small_tokenizer(corpus)
    before = small_language_model(tokenizer)
    init = save_checkpoint(tmp_path / "init", before, tokenizer)
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("MOST", "100000")
    options = ["--rows=4", "--readers=2", "--num-sampled=5", "--learning-rate=1"]
    for arguments in (["pack", corpus, package, init], ["train", package, out, "9", *options], ["unpack", out, folder]):
        subprocess.run([Path(__file__).parents[1] / "examples/pretrain_compact/gpu.sh", *arguments], check=True)
    assert all(file.stat().st_size <= 100_000 for file in package.iterdir())
    after = ElmoForPreTraining.from_pretrained(folder)
    assert not torch.equal(before.lm_head.weight, after.lm_head.weight)
