"""The pages of results: the machines' tables, and the table of targets in its page."""

import os
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from .results import Results
from .tables import markdown_table, read_tables, rows_table
from .targets import targets


def write_pages(results: Results, plots: Mapping[str, Path], folder: Path) -> None:
    """Write `machines.md`, which shows the images of sections, and the table of `targets.md`, whose text stays."""
    title, note = read_tables()["page"]
    parts = [f"# {title}\n", f"{note}\n", _machines(results)]
    for name, section in results.items():
        if name in plots:
            parts.append(f"![{name}]({Path(os.path.relpath(plots[name], folder)).as_posix()})\n")
        parts += _tables(section)
    (folder / "machines.md").write_text("\n".join(parts), encoding="utf-8")
    table = markdown_table(["what", "target", "measured", ""], [target.cells() for target in targets(results)])
    page = folder / "targets.md"
    text = page.read_text(encoding="utf-8") if page.exists() else table
    page.write_text(re.sub(r"(?:^\|.*\n)+", lambda _: table, text, count=1, flags=re.MULTILINE), encoding="utf-8")


def _tables(section: dict[str, Any]) -> list[str]:
    parts = []
    for kind in dict.fromkeys(row["kind"] for row in section["rows"]):
        title, note = read_tables()[kind]
        parts += [f"## {title}\n", f"{note}\n", rows_table([row for row in section["rows"] if row["kind"] == kind])]
    if section["failure"]:
        parts.append(f"The section ended early: {section['failure']}\n")
    return parts


def _machines(results: Results) -> str:
    """Each machine once, with the sections that ran on it."""
    lines = ["## Machines\n"]
    sections = sorted(results.items(), key=lambda item: item[1]["machine"])
    for machine, group in groupby(sections, key=lambda item: item[1]["machine"]):
        measured = ", ".join(
            f"{name} ({part['date']}, commit {part['commit']}, {part['seconds'] / 60:.1f} min"
            f"{', trial run' if part['quick'] else ''})"
            for name, part in group
        )
        lines.append(f"{machine}: {measured}.\n")
    return "\n".join(lines)
