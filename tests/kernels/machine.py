"""What this machine can run, by facts that do not come from the code under test."""

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hf_elmo import kernels

# What each backend needs: a C compiler, oneDNN, or instructions.
NEEDS = {
    "fused-tiles": ("compiler", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16"),
    "fused": ("compiler", "avx512f"),
    "fused bfloat16": ("compiler", "avx512f", "avx512_bf16"),
    "small-batch": ("compiler",),
    "packed": ("oneDNN",),
    "packed bfloat16": ("oneDNN", "bf16" if platform.machine() in ("aarch64", "arm64") else "avx512bw"),
    "training": (),
    "cell-c": ("compiler",),
    "word-cache": ("compiler",),
    "word-cache bfloat16": ("compiler",),
    "character-tables": ("compiler",),
}


def compiler() -> str | None:
    """The C compiler of `CC`, else cc, gcc or clang on PATH."""
    named = os.environ.get("CC", "").split()[:1] or ["cc", "gcc", "clang"]
    return next(filter(None, map(shutil.which, named)), None)


def instructions() -> set[str]:
    """The flags of the first processor in /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().partition("\n\n")[0].split("\n") if path.is_file() else []
    flags = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return {flag for line in flags for flag in line}


def missing(label: str) -> str | None:
    """The reason why a backend of `NEEDS` cannot run here, or `None`."""
    for need in NEEDS[label]:
        if need == "compiler":
            if compiler() is None and not any(Path(kernels.__file__).parent.glob("compiled/*")):
                return "no C compiler on PATH, and the package is not from a wheel for a platform"
        elif need == "oneDNN":
            if not torch.backends.mkldnn.is_available():
                return "no oneDNN in this PyTorch"
        elif "-march" in os.environ.get("HF_ELMO_CFLAGS", ""):
            return "HF_ELMO_CFLAGS chooses another processor"
        elif need not in instructions():
            return f"no {need} in /proc/cpuinfo"
    return None


def require(label: str) -> None:
    """Skip the test if a fact of the machine prevents the backend."""
    if (fact := missing(label)) is not None:
        pytest.skip(f"{label}: {fact}")


def run_only(request: pytest.FixtureRequest, label: str, *others: str) -> Iterator[list[tuple[str, str]]]:
    """For a fixture: the record of what ran with only this backend, and the others that it needs, enabled."""
    require(label)
    name = label.partition(" ")[0]
    with kernels.use(name, *others), kernels.record() as ran:
        yield ran
    if any(backend == name for _, backend in ran):
        request.node.user_properties.append(("backend", label))


def summarize(reporter: pytest.TerminalReporter) -> None:
    """At the end of a run of these tests, a line for each backend: whether it ran, or why it could not."""
    reports = [report for some in reporter.stats.values() for report in some if hasattr(report, "user_properties")]
    if any(report.nodeid.startswith("tests/kernels/") for report in reports):
        ran = {value for report in reports for key, value in report.user_properties if key == "backend"}
        reporter.section("backends")
        for label in NEEDS:
            reporter.write_line(f"{label}: {'ran' if label in ran else missing(label) or 'not among these tests'}")
