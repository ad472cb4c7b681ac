"""News, questions and messages, classified with and without ELMo: on small data and on the real."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from examples.ag_news import run as ag_news
from examples.ag_news import texts
from examples.classifier import BAG, KINDS, bag_of_words, in_parts
from examples.question_types import run as question_types
from examples.sms_spam import run as sms_spam

WORDS = ["stocks", "rise", "team", "wins", "game", "minister", "said", "new", "chip", "today", "in", "."]
ROWS = [BAG, *(f"{kind}{elmo}" for kind in KINDS for elmo in ("", " + ELMo"))]
TOPICS = (("minister", "said"), ("team", "wins", "game"), ("stocks", "rise"), ("new", "chip"))


@pytest.fixture
def data(data_with_vectors) -> Path:
    """A folder as `../shared/data`, with a few texts in it."""
    data, rng = data_with_vectors(WORDS), np.random.default_rng(4)
    for name in ("ag_news", "sms_spam"):
        (data / name).mkdir()
    news = [(i % 4 + 1, " ".join(TOPICS[i % 4]).title(), f"{' '.join(rng.choice(WORDS, 3))} .") for i in range(60)]
    with (data / "ag_news" / "test.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(news)
    with gzip.open(data / "ag_news" / "train_subset.csv.gz", "wt", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["class", "text", "source", "has_title"])
        rows.writerows((label, f"{title} {text}", "s", i % 3 and 1) for i, (label, title, text) in enumerate(news))
    with (data / "sms_spam" / "spam.csv").open("w", encoding="latin-1", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["v1", "v2", "", "", ""])
        for i in range(60):
            rows.writerow(["ham", f"see you {i}", "", "", ""] if i % 3 else ["spam", f"WIN £{i} NOW", "", "", ""])
    return data


def rows_of(out: str) -> list[str]:
    """The first column of the tables in what was printed."""
    return [line.split(" | ")[0].strip("| ") for line in out.splitlines() if line.startswith("| ") and "±" in line]


@pytest.mark.parametrize("texts", ["titles", "whole"])
def test_ag_news(texts: str, folder: str, data: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(ag_news, "TRAIN_TITLES", 45)
    ag_news.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick", "--texts", texts])
    out = capsys.readouterr().out
    assert rows_of(out) == ROWS
    assert out.startswith({"titles": "titles: 40 train, 5 dev, 15 test", "whole": "whole: 36 train, 4 dev"}[texts])
    assert all(f"- {kind} + ELMo over {kind}: " in out for kind in KINDS)
    assert (tmp_path / "out" / f"{texts}.png").read_bytes().startswith(b"\x89PNG")
    saved = tmp_path / "out" / texts / "glove_trained"
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(saved), AutoTokenizer.from_pretrained(saved)
    assert model.config.id2label == ag_news.CLASSES
    assert model(**tokenizer("Team wins", return_tensors="pt")).logits.shape == (1, 4)


def test_ag_news_texts(data: Path, monkeypatch) -> None:
    monkeypatch.setattr(ag_news, "TRAIN_TITLES", 45)
    monkeypatch.setattr(ag_news, "WHOLE_TEXTS", 20)
    titles = ag_news.read(data, whole=False, quick=False)
    whole = ag_news.read(data, whole=True, quick=False)
    assert {part: len(texts) for part, texts in titles.items()} == {"train": 40, "dev": 5, "test": 15}
    assert {part: len(texts) for part, texts in whole.items()} == {"train": 18, "dev": 2, "test": 15}
    assert titles["dev"][1] == {"text": "Stocks Rise", "labels": 2}  # row 10 of class 3
    assert whole["test"][0]["text"].startswith(titles["test"][0]["text"] + " ")
    assert whole["test"]["labels"] == titles["test"]["labels"]


def test_texts_to_adapt_to_hold_no_title_that_trains_or_tests(data: Path, tmp_path: Path, capsys) -> None:
    stories = "An #36;10 chip of  its own", "once MORE in the News today", "The FIRST of all titles that train"
    with gzip.open(data / "ag_news" / "train_subset.csv.gz", "at", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows((1, story, "s", 0) for story in stories)
    known = data / "ag_news" / "test.csv"
    others = known.read_text(encoding="utf-8")
    assert "A story" not in others
    with known.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow((1, "The first of all titles", "A story that trains."))
        file.write(others)
        csv.writer(file).writerow((1, "Once more in the news", "A story that tests."))
    texts.main([str(data), str(tmp_path / "news.txt")])
    lines = (tmp_path / "news.txt").read_text(encoding="utf-8").splitlines()
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'news.txt'}: {len(lines)} lines, ")
    assert "An $10 chip of its own" in lines
    assert not any(line.startswith(("A story", "once MORE", "The FIRST")) for line in lines)


def test_mark_up_becomes_text() -> None:
    assert (
        ag_news.plain(r"T N #39;s &lt;b&gt;a\b for #36;10, AT&amp;T, &#38; #1") == "T N 's <b>a b for $10, AT&T, & #1"
    )


def test_a_bag_of_words_chooses_by_dev_and_is_tested_once() -> None:
    train = [(("team wins" if i % 2 else "stocks rise") + f" today {i}", i % 2) for i in range(40)]
    test = [("the team wins", 1), ("stocks today", 0), ("team", 1), ("rise", 1)]  # the last one cannot be right
    parts = in_parts(train, test)
    assert {part: len(rows) for part, rows in parts.items()} == {"train": 36, "dev": 4, "test": 4}
    first, again = bag_of_words(parts, 1), bag_of_words(parts, 2)
    assert first.metrics["accuracy"] == 0.75
    assert again.metrics == first.metrics


QUESTIONS = {
    "train_5500.label": ["DESC:def What is a \xf0 ?", "HUM:ind Who wrote `` Go '' ?", "NUM:date When did it win ?"]
    * 20,
    "TREC_10.label": ["HUM:ind Who is it ?", "NUM:dist How far is it ?"],
}


@pytest.fixture
def trec(tmp_path: Path) -> Path:
    """A folder of questions."""
    (tmp_path / "trec").mkdir()
    for name, lines in QUESTIONS.items():
        (tmp_path / "trec" / name).write_text("".join(f"{line}\n" for line in lines), encoding="latin-1")
    return tmp_path / "trec"


def test_question_types(folder: str, trec: Path, data_with_vectors, tmp_path: Path, capsys) -> None:
    data, out = data_with_vectors(["what", "who", "when", "?"]), tmp_path / "out"
    question_types.main([str(data), "--trec", str(trec), "--model", folder, "--out", str(out), "--quick"])
    printed = capsys.readouterr().out
    assert rows_of(printed) == ROWS
    assert printed.startswith("questions: 54 train, 6 dev, 2 test\n")
    assert (out / "question_types.png").read_bytes().startswith(b"\x89PNG")
    model = AutoModelForSequenceClassification.from_pretrained(out / "questions" / "embedding")
    assert list(model.config.id2label.values()) == list(question_types.CLASSES)


def test_questions_as_they_are_read(trec: Path) -> None:
    parts = question_types.read(trec)
    assert parts["dev"][0] == {"text": "What is a \xf0 ?", "labels": 1}
    assert parts["train"][0] == {"text": 'Who wrote " Go " ?', "labels": 3}
    assert parts["test"]["labels"] == [3, 5]


def test_questions_that_are_not_there_or_none(trec: Path) -> None:
    (trec / "TREC_10.label").write_text("HUM:ind Who is it ?\nWho is it ?\n", encoding="latin-1")
    with pytest.raises(ValueError, match=r"TREC_10\.label:2 is 'Who is it \?', not CLASS:type QUESTION, of ABBR, DESC"):
        question_types.read(trec)
    (trec / "TREC_10.label").unlink()
    with pytest.raises(FileNotFoundError, match=r"TREC_10\.label is not there: .* are to be had at https://cogcomp"):
        question_types.read(trec)


def test_sms_spam(folder: str, data: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sms_spam, "TRAIN", 40)
    sms_spam.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick"])
    out = capsys.readouterr().out
    assert rows_of(out) == [BAG, "textbook", "improved", "improved, biLM trained"]
    saved = tmp_path / "out" / "model"
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(saved), AutoTokenizer.from_pretrained(saved)
    assert model(**tokenizer("see you", return_tensors="pt")).logits.shape == (1, 1)


@pytest.mark.parametrize("script", [ag_news, sms_spam], ids=["ag_news", "sms_spam"])
def test_quick_on_real_data(script, shared: Path, tmp_path: Path, capsys) -> None:
    script.main([str(shared / "data"), "--out", str(tmp_path), "--quick"])
    assert len(rows_of(capsys.readouterr().out)) == (len(ROWS) if script is ag_news else 4)
