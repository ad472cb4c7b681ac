"""What the commands share: the sentences of WikiText-2's test part, the machine's name, tables in Markdown."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WIKITEXT = Path("data", "lm", "other", "wikitext-2", "test.txt")


def shared_folder() -> Path:
    """The folder with the peers' scripts and the data: `$ELMO_SHARED`, by default beside the project."""
    return Path(os.environ.get("ELMO_SHARED", ROOT / ".." / "shared")).resolve()


def read_sentences(shared: Path) -> list[str]:
    """The sentences of WikiText-2's test part, split after each " . "; headings (`= Title =`) are skipped."""
    sentences: list[str] = []
    for paragraph in map(str.strip, (shared / WIKITEXT).read_text(encoding="utf-8").splitlines()):
        if paragraph and not paragraph.startswith("="):
            pieces = f"{paragraph} ".replace(" . ", " .\n").splitlines()
            sentences += [piece.strip() for piece in pieces if piece.strip()]
    return sentences


def describe_machine() -> str:
    """The processor, its instructions for matrix products, and torch's version."""
    import cpuinfo
    import torch

    facts = cpuinfo.get_cpu_info()
    sets = ", ".join(
        flag for flag in facts["flags"] if flag == "avx2" or flag.startswith(("avx512", "avx_vnni", "amx"))
    )
    return f"{facts['brand_raw']}, {len(os.sched_getaffinity(0))} cores; {sets}; torch {torch.__version__}"


def print_as_measured(rows: Iterable[dict[str, Any]]) -> None:
    """Prints a table of rows that have the same names, each row when it comes."""
    for number, row in enumerate(rows):
        lines = (row.values(),) if number else (row, ["---"] * len(row), row.values())
        print("".join(f"| {' | '.join(map(str, line))} |\n" for line in lines), end="", flush=True)


def markdown_table(rows: Sequence[dict[str, Any]]) -> str:
    """A table of rows; a value that a row lacks is a dash."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    lines = (header, ["---"] * len(header), *([row.get(name, "–") for name in header] for row in rows))
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
