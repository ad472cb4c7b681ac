"""The C library: what Python declares of it, how it is compiled and cached, and its layouts of weights."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from hf_elmo import kernels
from hf_elmo.kernels import native
from hf_elmo.kernels.native import FUNCTIONS, LANES, lay_out
from hf_elmo.modeling_elmo import bilstm_layer
from tests.lstm_layers import assert_near, flat, random_layer, reference

from . import machine

SOURCES = sorted(native.SOURCES.glob("*.c"))
X86 = {
    "x86-64": ["-march=x86-64"],
    "AVX2": ["-march=haswell"],
    "AVX-512": ["-march=skylake-avx512"],
    "AVX-512 with bfloat16": ["-march=skylake-avx512", "-mavx512bf16"],
    "AMX": ["-march=skylake-avx512", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"],
}


@pytest.fixture(autouse=True)
def _with_a_compiler() -> None:
    machine.require("small-batch")


def builds_for_x86(compiler: str) -> bool:
    """Whether a compiler makes programs for x86-64."""
    said = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False).stdout
    return said.startswith("x86_64")


# -- what Python declares ----------------------------------------------------------------------------------------------


def prototypes(flags: list[str]) -> dict[str, tuple[str, str]]:
    """Each function that the sources define, with the letters of its types as in FUNCTIONS."""
    command = [machine.compiler(), "-E", *flags, *map(str, SOURCES)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines, ours = [], False
    for line in said.split("\n"):
        if line.startswith("#"):
            if marker := re.match(r'# \d+ "(.*?)"', line):
                ours = Path(marker[1]).parent == native.SOURCES
        elif ours:
            lines.append(line)
    outer, depth = "", 0  # the text outside of all braces
    for character in re.sub(r"__attribute__ *\(\(.*?\)\)", "", "\n".join(lines)):
        depth += character == "{"
        outer += character if depth == 0 or character == "{" else ""
        if character == "}":
            depth -= 1
            outer += ";" if depth == 0 else ""
    found = {}
    for statement in outer.replace("{", ";").split(";"):
        if match := re.fullmatch(r"\s*([\w\s*]+?)(\w+) *\(([^()]*)\)\s*", statement):
            returns, name, arguments = match.groups()
            if not re.search(r"\b(static|extern|typedef|inline)\b", returns):
                letters = "" if arguments.strip() == "void" else "".join(map(letter, arguments.split(",")))
                found[name] = letter(returns), letters
    return found


def letter(declaration: str) -> str:
    if "*" in declaration:
        return "s" if re.match(r"\s*const char *\*\s*$", declaration) else "p"
    return {"i64": "l", "int": "i", "float": "f", "void": ""}[declaration.split()[0]]


def test_functions_are_declared_as_the_sources_define_them() -> None:
    """On x86 for all instruction sets, whatever this machine has."""
    flags = X86["AMX"] if builds_for_x86(machine.compiler()) else []
    defined = prototypes(flags)
    assert len(defined) > 15
    expected = FUNCTIONS if flags else {name: FUNCTIONS[name] for name in FUNCTIONS if name in defined}
    assert defined == expected


def test_structs_and_blocks_have_the_sizes_of_c() -> None:
    for name, struct in native.STRUCTS.items():
        assert getattr(native.library(), f"sizeof_{name}")() == ctypes.sizeof(struct)
    values = (ctypes.c_int64 * 5)()
    native.library().constants(values)
    blocks = native.FUSED_ROWS, native.FUSED_COLUMNS, native.FUSED_DEPTH, native.PRODUCT_COLUMNS
    assert list(values) == [LANES, *blocks]


@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("instructions", X86)
def test_no_warning_for_any_instruction_set(name: str, instructions: str, tmp_path: Path) -> None:
    compiler = shutil.which(name)
    if compiler is None:
        pytest.skip(f"no {name} on PATH")
    if not builds_for_x86(compiler):
        pytest.skip(f"{name} does not compile for x86-64")
    warn = ["-fPIC", "-fopenmp-simd", "-Wall", "-Wextra", "-Werror"]
    strict = [compiler, "-c", "-O1", *warn, *X86[instructions], *map(str, SOURCES)]
    done = subprocess.run(strict, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run(["nm", "fused.o"], capture_output=True, text=True, cwd=tmp_path, check=True).stdout
    kinds = {line.rpartition(" ")[2] for line in symbols.split("\n") if " T layer_" in line}
    assert len(kinds) == {"AVX-512": 1, "AVX-512 with bfloat16": 2, "AMX": 4}.get(instructions, 0)


# -- compiling and loading ---------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a library that is quick to compile."""
    monkeypatch.setattr(native, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(native, "COMPILED", tmp_path / "no wheel")
    monkeypatch.setattr(native, "FLAGS", (*native.FLAGS, "-O0"))
    native._load.cache_clear()
    yield tmp_path / "home"
    monkeypatch.undo()
    native._load.cache_clear()


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is warned of."""
    said: list[str] = []
    monkeypatch.setattr(native.logger, "warning", lambda message, *values: said.append(message % values))
    logging.set_verbosity_warning()
    return said


def a_compiler(folder: Path, script: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def computes() -> bool:
    """Whether the library computes a layer, and the right one."""
    layer = random_layer([3, 2, 1], sizes=(7, 32, 16))
    arguments = layer[0], [3, 2, 1], *layer[1:], 0.5, 0.4
    with kernels.use("small-batch"), kernels.record() as ran:
        result = flat(bilstm_layer(*arguments))
    assert_near(result, flat(reference(*arguments)), 3e-6)
    return ran == [("lstm", "small-batch")]


def test_it_is_compiled_once_in_a_private_folder(home: Path, tmp_path: Path, monkeypatch, warnings) -> None:
    count = tmp_path / "count"
    script = f'case "$*" in *--version*);; *) echo >> {count};; esac\nexec {machine.compiler()} "$@"'
    monkeypatch.setenv("CC", a_compiler(tmp_path, script))
    for _ in range(2):
        assert computes()
        native._load.cache_clear()
    (library,) = (home / "hf_elmo" / "kernels").iterdir()
    assert len(count.read_text()) == 1
    assert library.parent.stat().st_mode & 0o077 == 0
    assert str(library) in native.describe()["kernels in C"]
    assert not warnings


def test_a_library_for_another_processor(home: Path, monkeypatch) -> None:
    if not builds_for_x86(machine.compiler()):
        pytest.skip("the compiler does not compile for x86-64")
    monkeypatch.setenv("HF_ELMO_CFLAGS", "-march=haswell")
    assert native.describe()["instruction set"] == "AVX2"
    assert not hasattr(native.library(), "layer_f32")
    assert computes()


def test_without_an_openmp_runtime_it_has_one_thread(home: Path, monkeypatch, threads) -> None:
    monkeypatch.setattr(native, "OPENMP", ("no_such_function",))
    threads(2)
    assert computes()
    assert native.describe()["threads of the kernels"].startswith("one")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("CC", "no-such-compiler", "no-such-compiler"),
        ("PATH", "/nowhere", "no C compiler"),
        ("HF_ELMO_CFLAGS", "-fno-such-flag", "-fno-such-flag"),
        ("HF_ELMO_CFLAGS", "-DA='", "quotation"),
    ],
)
def test_without_a_library_one_warning_says_why_and_pytorch_computes(
    home: Path, monkeypatch, warnings, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    layer = random_layer([9, 1], sizes=(32, 128, 96))
    arguments = layer[0], [9, 1], *layer[1:], 0.5, 0.4
    with kernels.record() as ran:
        assert_near(flat(bilstm_layer(*arguments)), flat(reference(*arguments)), 3e-6)
    assert {backend for _, backend in ran} <= {"packed"}
    assert message in native.reason()
    assert len(warnings) == 1
    assert message in warnings[0]


def test_a_home_that_cannot_be_written_to(tmp_path: Path, home: Path) -> None:
    home.write_text("a file, so that no folder can be made in it")
    assert computes()
    assert "for this process" in native.describe()["kernels in C"]


@pytest.mark.slow
def test_several_processes_at_once(home: Path) -> None:
    script = "from hf_elmo.kernels import native; print(native.library().sizeof_layer() > 0, native.reason())"
    variables = {**os.environ, "HF_HOME": str(home), "HF_ELMO_CFLAGS": "-O0"}
    command, pipes = [sys.executable, "-c", script], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(command, env=variables, text=True, **pipes) for _ in range(3)]
    ended = [process.communicate() for process in started]
    assert [said.strip() for said, _ in ended] == ["True None"] * 3
    assert len(list((home / "hf_elmo" / "kernels").iterdir())) == 1


# -- layouts of weights: the numbers of PyTorch's permuted copies, bit by bit ------------------------------------------


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32)


def numbers(rows: int, depth: int) -> torch.Tensor:
    torch.manual_seed(rows + depth)
    weight = torch.randn(rows, depth)
    weight[0, 0], weight[-1, -1] = float("nan"), -0.0
    return weight


@pytest.mark.parametrize("depth", [1, 15, 16, 257, 600])
@pytest.mark.parametrize("rows", [1, 63, 64, 130])
def test_rows_in_blocks_and_zeros_after_the_last(rows: int, depth: int) -> None:
    weight, blocks = numbers(rows, depth), -(-rows // 64)
    padded = torch.nn.functional.pad(weight, (0, 0, 0, blocks * 64 - rows))
    expected = padded.view(blocks, 64, depth).transpose(1, 2).contiguous()
    assert torch.equal(bits(lay_out(weight, blocks, 64 // LANES, 64, LANES)).flatten(2), bits(expected))


def test_any_number_of_threads_and_any_strides(threads) -> None:
    weight = numbers(1024, 1030)
    threads(1)
    expected = lay_out(weight, 16, 4, 64, LANES)
    threads(3)
    for same in (weight, weight.t().contiguous().t()):
        assert torch.equal(bits(lay_out(same, 16, 4, 64, LANES)), bits(expected))
