"""A quick run of each short script on small data."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.examples.conftest import write


def example(name: str) -> ModuleType:
    """A script as a module."""
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_senses(folder: str, capsys: pytest.CaptureFixture) -> None:
    script = example("two_senses")
    script.main(["--model", folder])
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == f"'bank' in: {script.SENTENCES[0]}"
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
    script = example("word_senses")
    first, *_ = script.read_senseval(path)
    assert " ".join(first.words) == "they hung 0 shirts on the line & left"
    script.main([str(path), "--model", folder])
    header, row = capsys.readouterr().out.splitlines()
    assert all(name in header for name in ("most frequent", "layer 0", "layer 1", "layer 2", "mean of 1 up"))
    assert row.split()[:4] == ["line", "2", "16", "56.2%"]  # 9 of 16
    known = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 1e-9], [0.0, 1.0]], dtype=np.float32)  # three are equally near
    vectors = np.array([[3.0, 0.0], [0.1, 3.0], [1.0, 1.0]], dtype=np.float32)
    shares = script.of_nearest(known, np.array(list("abba")), vectors, np.array(list("baa")))
    np.testing.assert_allclose(shares, [2 / 3, 1, 1 / 2])


def test_own_language(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("nltk")
    lines = [f"Der Weg ist lang. Ein lang Ding, Über-Maß {number}!" for number in range(7)]
    text = "\n\n".join(["Cafe\u0301 서울", *lines, lines[0], "x" * 60])
    write(tmp_path / "raw.txt.gz", text)
    out = tmp_path / "out"
    example("own_language/prepare").main([str(tmp_path / "raw.txt.gz"), str(out), "--held-out-every", "3"])
    train, held_out = ((out / name).read_text("utf-8").splitlines() for name in ("train.txt", "heldout.txt"))
    assert train[:3] == ["Café 서울", "Der Weg ist lang .", "Ein lang Ding , Über-Maß 0 !"]
    assert sum("Über-Maß" in line for line in train + held_out) == 7  # a paragraph that occurs twice counts once
    assert held_out[-1] == "x" * 60
    assert ", 1 longer than 48 bytes" in capsys.readouterr().out
