"""The page itself: what is on it, how it is served, and what is said where Gradio is missing."""

import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from hf_elmo.explore import page as page_module
from hf_elmo.explore.explorer import Explorer
from hf_elmo.explore.page import explore, look, make_page
from hf_elmo_cli import main

ROOT = Path(__file__).parent.parent.parent
SPACE = ROOT / "examples" / "space"


def labels(page: object) -> list[str]:
    return [part["props"].get("label") for part in page.config["components"]]


def test_what_is_on_the_page(folder: Path, language_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("gradio", reason="Gradio is not installed")
    (tmp_path / "corpus.txt").write_text("a b\n")
    with_softmax, without = make_page(Explorer(language_model)), make_page(Explorer(folder, tmp_path / "corpus.txt"))
    for page in (with_softmax, without):
        assert {"Similarity", "Neighbors", "Plane", "first sentence", "word of the second"} <= set(labels(page))
        assert not page.analytics_enabled
    assert ("Substitutes" in labels(with_softmax), "Substitutes" in labels(without)) == (True, False)
    assert ("corpus, a sentence a line" in labels(with_softmax)) is not ("corpus, a sentence a line" in labels(without))
    layers = [part["props"]["choices"] for part in without.config["components"] if part["type"] == "radio"]
    assert layers == [[("layer 0 (characters)", 0), ("layer 1 (LSTM)", 1), ("layer 2 (LSTM)", 2)]]


def test_the_theme_loads_no_fonts_from_elsewhere() -> None:
    pytest.importorskip("gradio", reason="Gradio is not installed")
    theme = look()["theme"]
    assert not any("http" in sheet for sheet in theme._stylesheets)
    assert "system-ui" in theme.font


@pytest.mark.parametrize("missing", ["gradio", "matplotlib"])
def test_a_missing_library_is_named_before_the_model_is_loaded(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing == "matplotlib":
        pytest.importorskip("gradio", reason="Gradio is not installed")
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["explore", "./missing"]) == 1
    error = capsys.readouterr().err
    assert f"hf-elmo explore needs {missing}, which is not installed" in error
    assert 'pip install "hf-elmo[explore]"' in error


class Served(SimpleNamespace):
    """In place of a page: keeps how it was launched, and ends at once."""

    def launch(self, **options: object) -> tuple[None, str, None]:
        self.options = options
        return None, "http://here/", None

    server = SimpleNamespace(thread=SimpleNamespace(join=lambda: None))

    def close(self) -> None:
        self.closed = True


def test_how_it_is_served(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("gradio", reason="Gradio is not installed")
    explorers, page = [], Served()
    monkeypatch.setattr(page_module, "make_page", lambda explorer: explorers.append(explorer) or page)
    (tmp_path / "corpus.txt").write_text("a b\n")
    options = ["--corpus", str(tmp_path / "corpus.txt"), "--words", "--host", "0.0.0.0", "--port", "7999", "--browser"]
    assert main(["explore", str(folder), *options]) == 0
    assert capsys.readouterr().out == "http://here/: Ctrl-C ends it\n"
    assert page.closed
    found = {name: page.options[name] for name in ("server_name", "server_port", "inbrowser", "share", "ssr_mode")}
    assert found == {
        "server_name": "0.0.0.0",
        "server_port": 7999,
        "inbrowser": True,
        "share": False,
        "ssr_mode": False,
    }
    assert (explorers[0].name, explorers[0].pretokenized) == (str(folder), True)
    assert explorers[0].corpus == str(tmp_path / "corpus.txt")
    explore(folder)
    assert (page.options["server_name"], page.options["server_port"]) == ("127.0.0.1", None)
    assert not page.options["inbrowser"]


def test_the_space_is_the_page_of_the_model_that_its_variable_names(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("gradio", reason="Gradio is not installed")
    monkeypatch.setenv("ELMO_MODEL", str(folder))
    page = runpy.run_path(str(SPACE / "app.py"))["page"]
    assert {"Similarity", "Plane"} <= set(labels(page))
    assert "Substitutes" not in labels(page)


def test_the_space_asks_for_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert (SPACE / "requirements.txt").read_text().split() == ["hf-elmo[explore]"]
    assert "explore" in extras
    card = (SPACE / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\n")
    assert "\nsdk: gradio\napp_file: app.py\n" in card
