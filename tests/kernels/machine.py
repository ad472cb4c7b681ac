"""What this machine can run, by facts that do not come from the code under test."""

import os
import shutil
from pathlib import Path

import pytest

from hf_elmo import kernels

AVX512 = "avx512f", "avx512_bf16"
# The instructions that a way to compute needs.
NEEDS = {"fused, bfloat16": AVX512, "fused, tiles": (*AVX512, "amx_tile", "amx_bf16")}


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


def missing(way: str) -> str | None:
    """What this machine lacks first of what a way needs, or `None`."""
    flags, found = os.environ.get("HF_ELMO_CFLAGS", ""), instructions()
    if "-march" in flags:  # another processor
        found = set()
    if way.startswith("fused") and "emulated.h" in flags:
        found = {*AVX512, "amx_tile", "amx_bf16"}
    if compiler() is not None or any(Path(kernels.__file__).parent.glob("compiled/*")):
        found.add("compiler")
    return next((need for need in ("compiler", *NEEDS.get(way, ())) if need not in found), None)


def require(way: str) -> None:
    """Skip the test if a fact of the machine prevents it."""
    if (need := missing(way)) is not None:
        pytest.skip(f"{way} needs {need}, which this machine lacks")
