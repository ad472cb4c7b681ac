"""The results file: sections of rows, each with the machine, the commit and the time at which it was measured.

`{section: {"machine", "commit", "date", "seconds", "quick", "failure", "rows"}}`; the rows are those of `tables.py`.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .text import ROOT

Results = dict[str, dict[str, Any]]
INSTRUCTION_SETS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")
MEASURED_CODE = ("hf_elmo/kernels", "hf_elmo/modeling_elmo.py")


def load_results(path: Path) -> Results:
    """The results of a file, or none if the file does not exist."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save_results(results: Results, path: Path) -> None:
    """Write the file atomically."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def find(results: Results, kind: str, **values: Any) -> Iterator[dict[str, Any]]:
    """The rows of a kind with these values that did not fail."""
    for section in results.values():
        for row in section["rows"]:
            if row["kind"] == kind and "failure" not in row and values.items() <= row.items():
                yield row


def current_commit() -> str:
    """The commit of this checkout, with `-dirty` if files differ from it."""
    return _git("describe", "--always", "--dirty", "--exclude=*") or "unknown"


def describe_changes(results: Results) -> list[str]:
    """A line for each section that was measured before the kernels or the modeling file changed."""
    lines = []
    for name, section in results.items():
        changed = _git("diff", "--name-only", section["commit"].removesuffix("-dirty"), "--", *MEASURED_CODE)
        if changed is None:
            lines.append(f"{name}: measured at commit {section['commit']}, which this repository does not have")
        elif changed:
            lines.append(
                f"{name}: measured at commit {section['commit']}; since then {len(changed.split())} files of "
                f"{' and '.join(MEASURED_CODE)} changed"
            )
    return lines


def _git(*arguments: str) -> str | None:
    """What git prints about this checkout; `None` if it fails or is not installed."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def describe_machine() -> str:
    """Processor, cores, memory, instruction sets, and the versions that matter."""
    import torch
    import transformers

    facts = processor_facts()
    flags = facts.get("flags", "").split()
    sets = ", ".join(name for name in INSTRUCTION_SETS if name in flags) or "unknown"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{facts.get('model name', platform.processor())} (family {facts.get('cpu family', '?')}, model "
        f"{facts.get('model', '?')}), {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB; {sets}; "
        f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    )


def processor_facts(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The fields of the first processor in Linux's list; elsewhere none."""
    first = path.read_text(encoding="utf-8").partition("\n\n")[0] if path.exists() else ""
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
