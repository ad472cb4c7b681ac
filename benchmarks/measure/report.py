"""The generated page of results, `README.md`, which includes `limits.md`."""

import ast
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from .results import Results
from .tables import markdown_table, read_tables, rows_table
from .targets import targets
from .text import ROOT

BENCHMARKS = ROOT / "benchmarks"
HEADER = """\
# Benchmarks

This page is written by `python benchmarks/speed.py`; only *What limits it* comes from [`limits.md`](limits.md). Each
implementation runs in a process and an environment of its own, all in turn on the same machine, with the same
sentences, weights (random, of the published sizes; `compact` is `elmo-compact-en`, the model that ships) and number of
threads. `mini` is `elmo-mini-en`, which shipped when those rows were measured. *Before* is an earlier commit of
hf_elmo, measured beside this one (`--before`); *without kernels* is `HF_ELMO_KERNELS=off`.
"""


def write_readme(results: Results, plots: Mapping[str, Path], path: Path) -> None:
    """Write the page; `plots` are the images of sections, in a folder beside it or below."""
    parts = [HEADER, _commands(), _machines(results), "## Targets\n"]
    parts.append(markdown_table(["what", "target", "measured", ""], [target.cells() for target in targets(results)]))
    if any(section["quick"] for section in results.values()):
        parts.append("Sections marked as a trial run measured very little text: their figures mean nothing.\n")
    for name, section in results.items():
        if name in plots:
            parts.append(f"![{name}]({plots[name].relative_to(path.parent).as_posix()})\n")
        parts += _tables(section)
    parts += ["## What limits it, and what was tried\n", (BENCHMARKS / "limits.md").read_text(encoding="utf-8")]
    path.write_text("\n".join(parts), encoding="utf-8")


def _tables(section: dict[str, Any]) -> list[str]:
    parts = []
    for kind in dict.fromkeys(row["kind"] for row in section["rows"]):
        title, note = read_tables()[kind]
        rows = [row for row in section["rows"] if row["kind"] == kind]
        parts += [f"## {title}\n", f"{note}\n", rows_table(rows)]
    if section["failure"]:
        parts.append(f"The section ended early: {section['failure']}\n")
    return parts


def _machines(results: Results) -> str:
    """Each machine once, with the sections that ran on it."""
    lines = ["## Machine\n"]
    sections = sorted(results.items(), key=lambda item: item[1]["machine"])
    for machine, group in groupby(sections, key=lambda item: item[1]["machine"]):
        measured = ", ".join(
            f"{name} ({part['date']}, commit {part['commit']}, {part['seconds'] / 60:.1f} min"
            f"{', trial run' if part['quick'] else ''})"
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
