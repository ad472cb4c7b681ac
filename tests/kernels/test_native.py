"""The C library: how it is compiled, cached and loaded."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hf_elmo.cli.environment import describe_environment
from hf_elmo.kernels import native
from hf_elmo.kernels.native import LANES
from tests.kernels import machine
from tests.test_lstm import assert_near, compute, random_call, record, reference

AVX512 = "skylake-avx512 -mavx512vnni -mavx512bf16"
pytestmark = pytest.mark.skipif(machine.missing("C") is not None, reason="no C compiler")
X86 = ["x86-64", "haswell", "skylake-avx512", AVX512, f"{AVX512} -mamx-tile -mamx-bf16"]
IN_C = [("lstm", "small-batch")]
FAULTS = [("CC", "none"), ("PATH", "/no"), ("HF_ELMO_CFLAGS", "-no-such"), ("CC", "gcc '"), ("HF_ELMO_CFLAGS", "-DA='")]
SCRIPT = """
import os, sys, torch
from hf_elmo.kernels import native
if len(sys.argv) > 1:
    os.setuid(int(sys.argv[1]))
print(native.library() is not None, native.reason(), native.describe()["kernels in C"].partition(" for this")[0])
"""


def builds_for_x86(compiler: str) -> bool:
    """Whether a compiler makes programs for x86-64."""
    said = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False).stdout
    return said.startswith("x86_64")


def test_structs_and_blocks_have_the_sizes_of_c() -> None:
    blocks = LANES, native.FUSED_ROWS, native.FUSED_COLUMNS, native.FUSED_DEPTH, native.PRODUCT_COLUMNS
    expected = [*(ctypes.sizeof(struct) for struct, _ in native.STRUCTS.values()), *blocks]
    assert list((ctypes.c_int64 * len(expected)).in_dll(native.library(), "sizes")) == expected


def test_arrays_that_c_would_misread_are_refused() -> None:
    others = dict.fromkeys(("before", "cells", "hidden"), torch.zeros(2, 8))
    for gates in (torch.zeros(2, 32, dtype=torch.bfloat16), torch.zeros(32, 2).T):
        with pytest.raises(TypeError, match="gates"):
            native.run("cell_forward_f32", gates=gates, **others, rows=2, size=8, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("instructions", X86)
def test_no_warning_for_any_instruction_set(name: str, instructions: str, tmp_path) -> None:
    if shutil.which(name) is None or not builds_for_x86(name):
        pytest.skip(f"no {name} on PATH that compiles for x86-64")
    warn = ["-fPIC", "-fopenmp-simd", "-O2", "-Wall", "-Wextra", "-Wstrict-aliasing=2", "-Werror"]
    command = [name, "-c", *warn, *f"-march={instructions}".split(), *map(str, native.SOURCES.glob("*.c"))]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """An empty cache, and a library that is quick to compile."""
    monkeypatch.setattr(native, "CACHE", tmp_path / "home" / "hf_elmo" / "kernels")
    monkeypatch.setattr(native, "COMPILED", tmp_path / "no wheel")
    monkeypatch.setattr(native, "FLAGS", (*native.FLAGS, "-O0"))
    native._load.cache_clear()
    yield tmp_path / "home"
    monkeypatch.undo()
    native._load.cache_clear()


def a_compiler(folder: Path, script: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def runs() -> list[tuple[str, str]]:
    """The backends that compute a layer, which is right."""
    call = random_call([1, 1, 1], sizes=(32, 64, 32))
    with record() as ran:
        assert_near(compute(call), reference(call), 3e-6)
    return ran


def test_it_is_compiled_once_in_a_private_folder(home, tmp_path, monkeypatch, caplog) -> None:
    count = tmp_path / "count"
    script = f'case "$*" in *--version*) printf "\\377\\n";; *) echo >> {count}; exec {machine.compiler()} "$@";; esac'
    monkeypatch.setenv("CC", a_compiler(tmp_path, script))
    for times in (1, 2):
        assert runs() == IN_C
        (library,) = (home / "hf_elmo" / "kernels").iterdir()
        assert len(count.read_text()) == times
        content = library.read_bytes()
        assert library.parent.stat().st_mode & 0o077 == 0
        assert str(library) in native.describe()["kernels in C"]
        assert describe_environment()["C compiler"].endswith("\ufffd")  # the version in another encoding
        library.unlink()
        library.write_bytes(b"" if times == 1 else content)
        native._load.cache_clear()
    monkeypatch.setenv("CC", "none")
    assert runs() == IN_C
    assert not caplog.messages


def test_a_library_for_another_processor_and_without_an_openmp_runtime(home, monkeypatch) -> None:
    if not builds_for_x86(machine.compiler()):
        pytest.skip("the compiler does not compile for x86-64")
    monkeypatch.setenv("HF_ELMO_CFLAGS", "-march=haswell")
    monkeypatch.setattr(native, "OPENMP", ("no_such_function",))
    torch.set_num_threads(2)
    assert runs() == IN_C
    said = native.describe()
    assert said["threads of the kernels"].startswith("one")
    assert said["instruction set"] == "AVX2"


@pytest.mark.parametrize(("variable", "value"), FAULTS)
def test_without_a_library_one_warning_says_why_and_pytorch_computes(home, monkeypatch, caplog, variable, value):
    monkeypatch.setenv(variable, value)
    assert not runs()
    assert [warning.endswith(f": {native.reason()}") for warning in caplog.messages] == [True]
    assert describe_environment()["kernels in C"] == f"none: {native.reason()}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["no folder can be made", "nothing can be loaded from it"])
def test_a_cache_that_cannot_be_used_is_as_no_cache(home, tmp_path, monkeypatch, caplog, fault) -> None:
    if fault == "no folder can be made":
        home.write_text("a file where the folder should be")
    else:  # as on a disk from which nothing may be executed
        spoil = f'case "$*" in *"-o {home}"*) find {home} -name elmo.so -exec truncate -s 9 {{}} +;; esac'
        monkeypatch.setenv("CC", a_compiler(tmp_path, f'{machine.compiler()} "$@" || exit 1\n{spoil}'))
    assert runs() == IN_C
    assert "for this process, as the cache failed" in native.describe()["kernels in C"]
    assert not caplog.messages


def process(home: Path, *arguments: str) -> subprocess.Popen:
    variables = {**os.environ, "HF_HOME": str(home), "HF_ELMO_CFLAGS": "-O0"}
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE)


@pytest.mark.slow
def test_several_processes_at_once_and_then_another_user(home) -> None:
    said = [process.communicate()[0] for process in [process(home) for _ in range(3)]]
    (library,) = (home / "hf_elmo" / "kernels").iterdir()
    assert all(line.startswith(f"True None {library}") for line in said)
    whole = library.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:4096] + bytes(len(whole) - 4096)):  # SIGBUS and SIGSEGV, if loaded
        library.write_bytes(damaged)
        assert process(home).communicate()[0].startswith(f"True None {library}")
        assert library.read_bytes() == whole
    if os.getuid() == 0:  # only root becomes another user, who may not look into the folder
        assert process(home, "65534").communicate()[0].startswith("True None compiled\n")
