"""Each example script runs on tiny data and prints its table."""

import gzip
import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import hf_elmo
from tests.conftest import SENTENCES
from tests.language_models import small_language_model, small_tokenizer

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch):
    """Imports a script as `python examples/NAME.py` would."""
    before = set(sys.modules)

    def load(name: str):
        path = EXAMPLES / f"{name}.py"
        monkeypatch.syspath_prepend(str(path.parent))
        return importlib.import_module(path.stem)

    yield load
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXAMPLES)):
            del sys.modules[name]


@pytest.fixture
def folder(model, tokenizer, tmp_path) -> str:
    """A saved random model."""
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def _senseval(words: str, sense: str) -> str:
    """An occurrence of *line*, written as Senseval's files are, flaws included."""
    tagged = " ".join(
        f'<head> <wf pos="NN">{word}</wf></head>' if word.startswith("line") else f"<wf pos='\"'>{word}</wf>"
        for word in words.split()
    )
    return (
        f'<instance id="line-n.1:">\n\n<answer instance="line-n.1:" senseid="{sense}"/>\n\n<context>\n'
        f' <wf pos="DT">before</wf> \n {tagged} \n</context>\n\n</instance>\n'
    )


@pytest.fixture
def senseval(tmp_path) -> Path:
    cord = [f"they hung {number} shirts on the line &amp; left" for number in range(9)]
    phone = [f"she called {number} times but the lines were < busy" for number in range(7)]
    text = "".join(_senseval(words, "cord") for words in cord) + "".join(_senseval(words, "phone") for words in phone)
    path = tmp_path / "line.pos.gz"
    path.write_bytes(gzip.compress(f'<corpus lang="en">\n{text}</corpus>'.encode()))
    return path


def test_two_senses_prints_each_layers_similarities(example, folder, capsys):
    script = example("two_senses")
    script.main(["--model", folder])
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == f"'bank' in: {script.SENTENCES[0]}"
    assert [row.split("  ")[-1] for row in rows] == list(script.SENTENCES[1:])
    assert all(row.startswith("layer 0 1.00  layer 1 ") for row in rows)  # layer 0 knows the word only


def test_settled_start_prints_a_row_for_each_model_and_saves_the_last(example, tmp_path, capsys):
    tokenizer = small_tokenizer(tmp_path)
    small_language_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text("the cat sat\n\n" * 40, encoding="utf-8")
    name, text, out = str(tmp_path / "model"), str(tmp_path / "text.txt"), str(tmp_path / "out")
    example("settled_start").main([name, name, "--before", text, "--text", text, "--out", out])
    first, _, third, fourth = capsys.readouterr().out.splitlines()
    assert first == "| model | from zeros | settled | carried |"
    assert third == fourth
    zeros, settled, _ = map(float, third.strip("| ").split(" | ")[1:])
    assert zeros != settled
    assert hf_elmo.load_model(out)[0].config.settled_start


def test_two_senses_similarity_is_the_cosine(example):
    vectors = [
        np.array([[3.0, 4.0], [1.0, 0.0]]),
        np.array([[6.0, 8.0], [0.0, 2.0]]),
        np.array([[4.0, -3.0], [-5.0, 0.0]]),
    ]
    np.testing.assert_allclose(example("two_senses").similarities(vectors), [[1.0, 0.0], [0.0, -1.0]], atol=1e-15)


def test_word_senses_prints_every_layer(example, folder, senseval, capsys):
    example("word_senses").main([str(senseval), "--model", folder])
    header, row = capsys.readouterr().out.splitlines()
    assert all(name in header for name in ("most frequent", "layer 0", "layer 1", "layer 2", "mean of 1 up"))
    assert row.split()[:4] == ["line", "2", "16", "56.2%"]  # 9 of 16


def test_word_senses_reads_the_sentence_with_the_word(example, senseval):
    first, *_, last = example("word_senses").read_senseval(senseval)
    assert " ".join(first.words) == "they hung 0 shirts on the line & left"
    assert (first.words[first.position], first.sense) == ("line", "cord")
    assert (last.words[last.position], last.sense) == ("lines", "phone")


def test_word_senses_tell_apart_what_the_vectors_tell_apart(example):
    module = example("word_senses")
    occurrences = [module.Occurrence(["line", str(number)], 0, "ab"[number % 2]) for number in range(40)]
    apart = np.array([[1.0, 0.0], [0.0, 1.0]])[np.arange(40) % 2]
    results = module.accuracies(np.stack([np.ones((40, 2)), apart, apart]), occurrences)
    assert results["layer 1"] == results["layer 2"] == results["mean of 1 up"] == 1
    assert results["layer 0"] == 0.5
    assert results["most frequent"] <= 0.5  # scikit-learn before 1.8 did not stratify what it shuffled


def test_word_senses_that_tie_have_their_shares_whatever_the_order(example):
    module = example("word_senses")
    known = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 1e-9], [0.0, 1.0]], dtype=np.float32)
    senses, vectors = np.array(list("abba")), np.array([[3.0, 0.0], [0.1, 3.0], [1.0, 1.0]], dtype=np.float32)
    wanted = np.array(list("baa"))
    for order in ([0, 1, 2, 3], [2, 3, 1, 0]):
        found = module.of_nearest(known[order], senses[order], vectors, wanted)
        np.testing.assert_allclose(found, [2 / 3, 1, 1 / 2])


def test_nearest_neighbors_prints_every_layer(example, folder, tmp_path, capsys):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join([*SENTENCES, "A match in the bank .", "They play on the bank ."]), encoding="utf-8")
    module = example("nearest_neighbors")
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("play 1 0\nplays 2 0.1\nactor 1 1\nhorse -1 0\n", encoding="utf-8")
    module.main([str(corpus), "--model", folder, "--top", "2", "--vectors", str(vectors)])
    out = capsys.readouterr().out
    assert out.startswith("play: plays 1.00, actor 0.71, horse -1.00\n\nThe old man")
    assert out.count("layer 0") == len(module.QUESTIONS)
    assert "A match in the [bank] ." in out
    assert "A [match] in the bank ." in out


def test_the_pipe_of_spacy_gives_the_vectors_of_embed(spacy, example, folder, capsys):
    script = example("spacy_pipe")
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": folder})
    doc, other = nlp.pipe(["The bank failed.", "A bank of sand"])
    model, tokenizer = script.load(folder)
    words = [[token.text for token in one] for one in (doc, other)]
    expected = hf_elmo.embed(model, words, tokenizer=tokenizer, progress=False)
    np.testing.assert_allclose([token.vector for token in doc], expected[0], atol=1e-6)
    np.testing.assert_allclose(other.vector, expected[1].mean(0), atol=1e-6)
    assert doc[1].similarity(other[1]) < 0.9999  # equal words in two sentences
    assert doc[1].similarity(doc[1]) == pytest.approx(1)
    script.main(["--model", folder])
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.fixture
def raw_text(tmp_path) -> Path:
    lines = [f"Der Weg ist lang. Ein lang Ding, Über-Maß {number}!" for number in range(7)]
    text = "\n\n".join(["Cafe\u0301 서울", *lines, lines[0], "x" * 60])
    (tmp_path / "raw.txt.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path / "raw.txt.gz"


def test_own_language_is_prepared(example, raw_text, tmp_path, capsys):
    pytest.importorskip("nltk")
    out = tmp_path / "out"
    example("own_language/prepare").main([str(raw_text), str(out), "--held-out-every", "3"])
    train, held_out = ((out / name).read_text("utf-8").splitlines() for name in ("train.txt", "heldout.txt"))
    assert train[:3] == ["Café 서울", "Der Weg ist lang .", "Ein lang Ding , Über-Maß 0 !"]
    assert sum("Über-Maß" in line for line in train + held_out) == 7  # a paragraph that is there twice counts once
    assert held_out[-1] == "x" * 60
    assert not {line for line in train if "Über" in line} & set(held_out)
    said = capsys.readouterr().out.splitlines()
    assert re.search(r"train.txt: [\d,]+ sentences, [\d,]+ words \(Latin [\d.]+%, Hangul [\d.]+%\), 0 longer", said[0])
    assert said[1].endswith("1 longer than 48 bytes")


@pytest.mark.parametrize("every", ["0", "1"])
def test_no_text_of_ones_own_is_all_held_out(example, raw_text, tmp_path, capsys, every):
    pytest.importorskip("nltk")
    with pytest.raises(SystemExit):
        example("own_language/prepare").main([str(raw_text), str(tmp_path / "out"), "--held-out-every", every])
    assert f"--held-out-every is {every}, but must be 2 or more" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


BOOK = """CHAPTER I

THE BEGINNING

“Stop!” cried Mr. Smith; _he_ was not
amused. He doesn’t sing the well-
known song.

[Illustration: a cat]

* * * * *

It rained.
"""


@pytest.fixture
def corpus(tmp_path) -> Path:
    (tmp_path / "source" / "books").mkdir(parents=True)
    for name in ("A_book", "Doyle_Hound_1902", "pg_46"):
        (tmp_path / "source" / "books" / f"{name}.txt.gz").write_bytes(gzip.compress(BOOK.encode()))
    (tmp_path / "source" / "play.txt").write_text("FIRST LORD:\nTo be,\nor not.\n\nSECOND:\nNo!\n", encoding="utf-8")
    return tmp_path / "source"


def test_prepare_writes_sentences_of_whole_books(example, corpus, tmp_path, monkeypatch, capsys):
    pytest.importorskip("nltk")
    wikitext = tmp_path / "wiki.txt"
    wikitext.write_text(' \n = Head = \n \n A 3 @.@ 5 @-@ mile run . He said " Go ! " . End\n', encoding="utf-8")
    out = tmp_path / "out"
    arguments = ["prepare.py", str(corpus), str(out), "--vocab-size", "9", "--wikitext", str(wikitext)]
    monkeypatch.setattr(sys, "argv", arguments)
    example("pretrain_mini/prepare").main()
    book = [
        '" Stop ! " cried Mr. Smith ; he was not amused .',
        "He doesn 't sing the well-known song .",
        "It rained .",
    ]
    assert (out / "heldout.txt").read_text(encoding="utf-8").splitlines() == book
    assert (out / "dev.txt").read_text(encoding="utf-8").splitlines() == book
    assert (out / "train.txt").read_text(encoding="utf-8").splitlines() == [*book, "To be , or not .", "No !"]
    assert (out / "wikitext2.txt").read_text(encoding="utf-8").splitlines() == [
        "A 3.5-mile run .",
        'He said " Go ! " .',
        "End",
    ]
    words = (out / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert (words[:4], len(words)) == (["<S>", "</S>", "<UNK>", "."], 9)
    assert "3 sentences" in capsys.readouterr().out
