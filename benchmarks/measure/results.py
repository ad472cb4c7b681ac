"""The results file: sections of rows, each with the machine and the time that it was measured on."""

import json
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .rows import KINDS, Row

AnyRow = TypeVar("AnyRow", bound=Row)
INSTRUCTION_SETS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")


@dataclass
class Section:
    """What one section measured.

    Args:
        rows: of its tables, in order.
        machine: a description of the machine.
        date: of the measurement, UTC.
        seconds: duration.
        quick: a trial run, whose numbers mean little.
        failure: the error that ended it early.
    """

    rows: list[Row] = field(default_factory=list)
    machine: str = ""
    date: str = ""
    seconds: float = 0.0
    quick: bool = False
    failure: str | None = None


@dataclass
class Results:
    """All sections by name."""

    sections: dict[str, Section] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Those of a file, or none where it does not exist; rows of unknown kinds are skipped."""
        if not path.exists():
            return cls()
        return cls({name: _section(stored) for name, stored in json.loads(path.read_text(encoding="utf-8")).items()})

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({name: _stored(part) for name, part in self.sections.items()}, indent=1) + "\n")
        draft.replace(path)

    def merge(self, name: str, section: Section, order: Iterable[str]) -> None:
        """Replace the section of a name; sections are sorted as in `order`."""
        self.sections[name] = section
        self.sections = {known: self.sections[known] for known in order if known in self.sections}

    def find(self, kind: type[AnyRow], **values: Any) -> Iterator[AnyRow]:
        """The rows of a kind with these values that did not fail."""
        for section in self.sections.values():
            for row in section.rows:
                if type(row) is kind and row.failure is None and values.items() <= vars(row).items():
                    yield row


def _stored(section: Section) -> dict[str, Any]:
    rows = [{"kind": type(row).__name__, **asdict(row)} for row in section.rows]
    return {**{name: value for name, value in vars(section).items() if name != "rows"}, "rows": rows}


def _section(stored: dict[str, Any]) -> Section:
    rows = [dict(row) for row in stored["rows"]]
    kept = [KINDS[kind](**row) for row in rows if (kind := row.pop("kind")) in KINDS]
    return Section(**{**stored, "rows": kept})


def describe_machine() -> str:
    """Processor, cores, memory, instruction sets, and the versions that matter."""
    import torch
    import transformers

    facts = _first_facts(Path("/proc/cpuinfo"))
    flags = facts.get("flags", "").split()
    sets = ", ".join(name for name in INSTRUCTION_SETS if name in flags) or "unknown"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{facts.get('model name', platform.processor())} (family {facts.get('cpu family', '?')}, model "
        f"{facts.get('model', '?')}), {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB; {sets}; "
        f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    )


def _first_facts(path: Path) -> dict[str, str]:
    """The fields of the first processor in Linux's list; elsewhere none."""
    if not path.exists():
        return {}
    first = path.read_text(encoding="utf-8").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
