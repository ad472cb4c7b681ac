"""The sources in C are clean for every instruction set that they know, whatever this machine has."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from hf_elmo.kernels import native
from hf_elmo.kernels.structs import CONSTANTS, STRUCTS

SOURCES = sorted(native.SOURCES.glob("*.c"))
COMPILERS = {name: shutil.which(name) for name in ("gcc", "clang")}
MACHINES = {
    "x86-64": ["-march=x86-64"],
    "AVX2": ["-march=haswell"],
    "AVX-512": ["-march=skylake-avx512"],
    "AVX-512 with bfloat16": ["-march=skylake-avx512", "-mavx512bf16"],
    "AMX": ["-march=skylake-avx512", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"],
}


def builds_for_x86(compiler: str) -> bool:
    """Whether a compiler makes programs for x86-64."""
    said = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False).stdout
    return said.startswith("x86_64")


@pytest.fixture(params=COMPILERS)
def compiler(request) -> str:
    """Each compiler that is here."""
    path = COMPILERS[request.param]
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    return path


def compile_all(compiler: str, *flags: str, folder: Path) -> None:
    strict = ["-c", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags]
    done = subprocess.run([compiler, *strict, *map(str, SOURCES)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("machine", MACHINES)
def test_no_warning_for_any_instruction_set(compiler: str, machine: str, tmp_path: Path) -> None:
    if not builds_for_x86(compiler):
        pytest.skip("a compiler for another processor")
    compile_all(compiler, "-fopenmp", *MACHINES[machine], folder=tmp_path)
    symbols = subprocess.run(["nm", "fused.o"], capture_output=True, text=True, cwd=tmp_path, check=True).stdout
    kinds = {name.rpartition(" ")[2] for name in symbols.split("\n") if " T layer_" in name}
    expected = {"AVX-512": {"layer_f32"}, "AVX-512 with bfloat16": {"layer_f32", "layer_bf16"}}
    expected["AMX"] = {"layer_f32", "layer_bf16", "layer_bf16_tiles", "layer_split_tiles"}
    assert kinds == expected.get(machine, set())


def test_no_warning_for_this_machine(compiler: str, tmp_path: Path) -> None:
    compile_all(compiler, "-fopenmp", "-march=native", folder=tmp_path)


def test_no_warning_without_openmp(compiler: str, tmp_path: Path) -> None:
    compile_all(compiler, "-fopenmp-simd", "-Wno-unknown-pragmas", folder=tmp_path)


@pytest.mark.skipif(native.library() is None, reason=str(native.reason()))
def test_structs_have_the_size_that_c_gives_them() -> None:
    for name, struct in STRUCTS.items():
        assert getattr(native.library(), f"sizeof_{name}")() == ctypes.sizeof(struct)


def test_a_struct_of_another_size_is_refused() -> None:
    class Library:
        sizeof_layer = sizeof_small_batch = sizeof_work = staticmethod(lambda: 8)

    with pytest.raises(native.NativeError, match=r"struct layer has 8 bytes in C, but \d+ in Python"):
        native._checked(Library())


def test_a_block_of_another_size_is_refused() -> None:
    right = {f"sizeof_{name}": lambda struct=struct: ctypes.sizeof(struct) for name, struct in STRUCTS.items()}
    right |= {f"constant_{name}": lambda value=value: value for name, value in CONSTANTS.items()}
    assert native._checked(SimpleNamespace(**right))
    for name, value in CONSTANTS.items():
        with pytest.raises(native.NativeError, match=f"the block size {name} is 8 in C, but {value} in Python"):
            native._checked(SimpleNamespace(**right | {f"constant_{name}": lambda: 8}))


def test_the_wheel_carries_them() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '"hf_elmo.kernels" = ["csrc/*"]' in pyproject
    assert {source.suffix for source in native.SOURCES.iterdir()} == {".c", ".h"}
