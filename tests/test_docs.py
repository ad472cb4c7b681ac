"""README.md, the pages of docs/ and the notebooks as their readers run them, block after block in one folder. A fence
of Python is followed by one of what it prints, if anything; a fence `console` holds commands after `$`, and what each
prints. What differs between machines is on no page."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hf_elmo
from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from hf_elmo_cli import main
from tests.factories import TINY
from tests.source_files import make_settings, write_model

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^```(python|console)\n(.*?)^```\n(?:\n```\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
OPTIONAL = ("matplotlib", "onnxruntime", "ray", "sentence_transformers", "sklearn", "spacy", "torchao")
SLOW = ("guides", "from")  # folders of pages with trainings, exports and pictures, which other tests have in small
WARNINGS = re.compile(r"^(\x1b\[\d+m)?\(raylet\).*\n", re.MULTILINE)  # Ray's, of a machine that is slow at the moment
DOWNLOADS = ("names", "own_language", "spam")  # notebooks that download data
PARAMETERS = [
    pytest.param(page, marks=[pytest.mark.slow] * (page.parent.name in SLOW), id=str(page.relative_to(ROOT)))
    for page in PAGES
    if FENCE.search(page.read_text(encoding="utf-8"))
]


def steps(page: str) -> Iterator[tuple[str, str, str]]:
    """What runs, "python" or "console", its code, and what it prints."""
    for kind, code, printed in FENCE.findall(page):
        if kind == "python":
            yield kind, code, printed
        else:
            for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE):
                yield kind, command, output


def printed_by(kind: str, code: str, names: dict) -> str:
    if kind == "console" and not code.startswith("hf-elmo "):
        return subprocess.run(code, shell=True, check=True, capture_output=True, text=True).stdout
    with contextlib.redirect_stdout(io.StringIO()) as output:
        if kind == "python":
            exec(compile(code, "page", "exec"), names)
        else:
            assert main(shlex.split(code)[1:]) == 0
    return WARNINGS.sub("", output.getvalue())


def text_of(notebook: Any) -> list[str]:
    """What each cell of a notebook prints."""
    outputs = [cell.get("outputs", ()) for cell in notebook.cells]
    return ["".join(one.text for one in cell if one.get("name") == "stdout") for cell in outputs]


@pytest.fixture(scope="module")
def small_models(tmp_path_factory) -> Path:
    """In place of published models: a file to convert, and a folder `seqvec`."""
    folder = tmp_path_factory.mktemp("models")
    source = write_model(folder / "source", make_settings(encoder={"projection_dim": 512}), [["praça", "."]])
    shutil.make_archive(str(folder / "168"), "zip", source)
    ElmoModel(ElmoConfig(**TINY)).save_pretrained(folder / "seqvec")
    ElmoTokenizer(word_splitting="characters").save_pretrained(folder / "seqvec")
    return folder


@pytest.mark.parametrize("page", PARAMETERS)
def test_what_a_block_prints_stands_below_it(page: Path, small_models, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(shutil.copytree(small_models, tmp_path / "page"))
    text = page.read_text(encoding="utf-8")
    rest = re.findall(r"^```(.*)$", FENCE.sub("", text), re.MULTILINE)[::2]
    assert page == PAGES[0] or "" not in rest  # nothing printed is left; `.ci/nightly stranger` compares README's rest
    blocks = list(steps(text))
    for library in OPTIONAL:
        if any(re.search(rf"\b{library}\b", code) for _, code, _ in blocks):
            pytest.importorskip(library)
    names = {"__name__": "page"}
    for kind, code, printed in blocks:
        assert printed_by(kind, code, names) == printed


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored_in_it(path: Path, request, monkeypatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    if path.stem in DOWNLOADS:  # from a folder here
        monkeypatch.setenv("ELMO_DATA", str(request.getfixturevalue("shared") / "data"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests run side by side
    notebook = nbformat.read(path, as_version=4)
    stored = text_of(notebook)
    nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert text_of(notebook) == stored


def test_each_public_name_is_in_the_reference() -> None:
    names = re.findall(r" as (\w+)$", (ROOT / "hf_elmo/__init__.pyi").read_text(encoding="utf-8"), re.MULTILINE)
    reference = " ".join(hf_elmo.MODELS.values())  # docs/conf.py writes the heads
    reference += "".join(page.read_text(encoding="utf-8") for page in ROOT.glob("docs/reference/*.md"))
    assert [name for name in names if not re.search(rf"\b{name}\b", reference)] == []


def test_links_of_the_readme_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", PAGES[0].read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []
