"""Embedding without a model's name: the one that ships."""

import numpy as np
import pytest

import hf_elmo
import hf_elmo_cli as cli

SENTENCES = ["A river bank .", "", "The bank gave her money ."]


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return file


def test_none_is_the_model_that_ships():
    model, tokenizer = hf_elmo.load_default()
    expected = hf_elmo.embed(model, SENTENCES, tokenizer=tokenizer)
    found = hf_elmo.embed(None, SENTENCES)
    assert [len(row) for row in found] == [4, 0, 6]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_command_without_a_model(source, tmp_path):
    assert cli.main(["embed", str(source), str(tmp_path / "out.npz"), "--layers", "all"]) == 0
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["2"].shape == (3, 6, hf_elmo.load_default()[0].config.hidden_size)


@pytest.mark.parametrize("paths", [["one"], ["one", "two", "three", "four"]], ids=len)
def test_another_number_of_paths_is_refused(paths, capsys):
    with pytest.raises(SystemExit):
        cli.main(["embed", *paths])
    assert f"INPUT OUTPUT expected, {len(paths)} given: one" in capsys.readouterr().err
