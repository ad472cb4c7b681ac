"""README.md as its reader runs it: each Python block prints exactly what stands below it."""

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from hf_elmo_cli import main

from .manylangs_files import make_settings, write_model

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NEEDS = {"Many machines": "pyarrow", "Train a classifier": "sklearn", "Train a tagger": "seqeval"}
CONVERT = "Convert a published model"
EXPORT = "ONNX"


class Block(NamedTuple):
    """Python code of README.md, and what it prints: the fence that follows it, nothing where there is none."""

    code: str
    printed: str


def sections() -> dict[str, str]:
    """The text below each heading. Lines of a fence that begin with # are none."""
    parts = re.split(r"^##+ (.+)\n", README, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def block_of(text: str) -> Block:
    ((code, printed),) = re.findall(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", text, re.DOTALL | re.MULTILINE)
    return Block(code, printed)


BLOCKS = {heading: block_of(text) for heading, text in sections().items() if "```python\n" in text}


def run(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    exec(compile(block.code, "README.md", "exec"), {"__name__": "readme"})
    # Trainer prints its times.
    assert re.sub(r"^\{'train_runtime.*\n", "", capsys.readouterr().out, flags=re.MULTILINE) == block.printed


def test_no_block_is_missed() -> None:
    assert README.count("```python\n") == len(BLOCKS)
    assert {*NEEDS, CONVERT, EXPORT} < BLOCKS.keys()
    assert sum(bool(block.printed) for block in BLOCKS.values()) >= 4


@pytest.mark.parametrize("heading", sorted(BLOCKS.keys() - {CONVERT, EXPORT}))
def test_a_block_prints_what_follows_it(
    heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if heading in NEEDS:
        pytest.importorskip(NEEDS[heading])
    monkeypatch.chdir(tmp_path)
    run(BLOCKS[heading], capsys)


def test_a_model_converted_by_the_command_prints_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small one of its format, with the size of its vectors, under its file's name."""
    settings = make_settings(encoder={"projection_dim": 512})
    source = write_model(tmp_path / "source", settings, [["praça", "."]])
    shutil.make_archive(str(tmp_path / "168"), "zip", source)
    (command,) = re.findall(r"^hf-elmo (convert --model manylangs-.*)$", sections()[CONVERT], re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0
    run(BLOCKS[CONVERT], capsys)


def test_a_model_exported_by_the_command_prints_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for library in ("onnxruntime", "onnxscript"):
        pytest.importorskip(library)
    (command,) = re.findall(r"^hf-elmo (export .* --onnx)$", sections()[EXPORT], re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0
    run(BLOCKS[EXPORT], capsys)


@pytest.mark.parametrize("anchor", sorted(set(re.findall(r"\]\(#([^)]+)\)", README))))
def test_a_link_within_the_page_leads_to_a_heading(anchor: str) -> None:
    assert anchor in {heading.lower().replace(" ", "-") for heading in sections()}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_a_link_into_the_repository_leads_to_a_file(link: str) -> None:
    assert (ROOT / link).exists()
