"""The generated page of results, `README.md`, which includes `limits.md`."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from .results import Results, Section
from .rows import Row
from .targets import targets

BENCHMARKS = Path(__file__).resolve().parent.parent
HEADER = """\
# Benchmarks

This page is written by `python benchmarks/speed.py`; only *What limits it* comes from [`limits.md`](limits.md). Every
implementation runs in a process and an environment of its own, all in turn on the same machine, with the same
sentences, weights (random, of the published sizes; `elmo-mini-en` is a model that ships) and number of threads.
*Before* is an earlier commit of hf_elmo, measured beside this one (`--before`); *without kernels* is
`HF_ELMO_KERNELS=off`.
"""


def write_readme(results: Results, plots: Mapping[str, Path], path: Path) -> None:
    """Write the page; `plots` are the images of sections, in a folder beside it or below."""
    parts = [HEADER, _commands(), _machines(results), "## Targets\n", _targets(results)]
    if any(section.quick for section in results.sections.values()):
        parts.append("Sections marked as a trial run measured very little text: their figures mean nothing.\n")
    for name, section in results.sections.items():
        if name in plots:
            parts.append(f"![{name}]({plots[name].relative_to(path.parent).as_posix()})\n")
        parts += _tables(section)
    parts += ["## What limits it, and what was tried\n", (BENCHMARKS / "limits.md").read_text(encoding="utf-8")]
    path.write_text("\n".join(parts), encoding="utf-8")


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of texts, in which bars are escaped."""
    rows = [header, ["---"] * len(header), *lines]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def rows_table(rows: Sequence[Row]) -> str:
    """A table of rows of one kind; a column without a value in any row is left out."""
    cells = [row.cells() for row in rows]
    header = [name for name in cells[0] if any(row[name] != "–" for row in cells)]
    return markdown_table(header, [[row[name] for name in header] for row in cells])


def _tables(section: Section) -> list[str]:
    parts = []
    for kind in dict.fromkeys(map(type, section.rows)):
        rows = [row for row in section.rows if type(row) is kind]
        parts += [f"## {kind.TITLE}\n", f"{kind.NOTE}\n", rows_table(rows)]
    if section.failure:
        parts.append(f"The section ended early: {section.failure}\n")
    return parts


def _targets(results: Results) -> str:
    return markdown_table(["what", "target", "measured", ""], [target.cells(results) for target in targets()])


def _machines(results: Results) -> str:
    """Each machine once, with the sections that ran on it."""
    lines = ["## Machine\n"]
    sections = sorted(results.sections.items(), key=lambda item: item[1].machine)
    for machine, group in groupby(sections, key=lambda item: item[1].machine):
        measured = ", ".join(
            f"{name} ({part.date}, {part.seconds / 60:.1f} min{', trial run' if part.quick else ''})"
            for name, part in group
        )
        lines.append(f"{machine}: {measured}.\n")
    return "\n".join(lines)


def _commands() -> str:
    """The scripts of this folder, each with the first sentence of its docstring."""
    lines = []
    for script in sorted(BENCHMARKS.glob("[!_]*.py")):
        docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        lines.append([f"[`{script.name}`]({script.name})", " ".join(docstring.split("\n\n")[0].split())])
    return markdown_table(["command", "what it measures"], lines)
