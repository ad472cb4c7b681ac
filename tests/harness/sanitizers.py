"""The kernels in C, compiled with sanitizers, under their tests and under random layers and words.

AddressSanitizer and UndefinedBehaviorSanitizer of gcc and of clang are preloaded into Python. ThreadSanitizer has to be
part of the program, and has to see OpenMP's barriers: clang makes a program that starts Python, and LLVM's Archer tells
it of them (gcc's OpenMP library has nothing of the kind: every parallel loop would be a race).

Before it is believed, each kind has to find the fault of its kind in `PLANTED`; and `coverage` (clang's) says how much
of each file in C the tests run: a function that none of them calls is a fault of theirs.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from .settings import ROOT, environment, run_tests

TESTS = tuple(
    f"tests/kernels/test_{name}.py"
    for name in (
        "product",
        "cpu_fused",
        "cpu_small_batch",
        "cpu_packed",
        "cell_c",
        "character_tables",
        "weights",
        "word_cache",
    )
)
MEMORY = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
RACES = "-O1 -g -fsanitize=thread"

PLANTED = """
#include <stdlib.h>
int overflow(int n) { volatile char *bytes = malloc(n); bytes[n] = 1; return bytes[n]; }
int undefined(int n) { volatile int most = 2147483647; return most + n; }
int sum;
int race(int n) {
#pragma omp parallel for num_threads(2)
  for (int k = 0; k < n * 1000; k++) sum += k;
  return sum;
}
"""
LAUNCHER = "int Py_BytesMain(int, char **);\nint main(int count, char **words) { return Py_BytesMain(count, words); }\n"
FINDS = {"overflow": "AddressSanitizer: heap-buffer-overflow", "undefined": "runtime error: signed integer overflow"}
FINDS |= {"race": "ThreadSanitizer: data race"}


class Build(NamedTuple):
    """A way to compile the kernels and to run them.

    Args:
        variables: of the environment.
        finds: the functions of `PLANTED` whose fault it reports.
        python: the program that runs Python.
    """

    variables: dict[str, str]
    finds: tuple[str, ...]
    python: str = sys.executable


class MissingError(Exception):
    """A compiler or a library of its sanitizers is not installed."""


def build(name: str, folder: Path) -> Build:
    """The build of that name, one of `BUILDS`.

    Raises:
        MissingError: this machine has not what it needs.
    """
    compiler, kind, *machine = name.split()
    if kind not in ("address", "thread"):
        raise ValueError(f"there is no build {name!r}: name a compiler, then address or thread, then -march=")
    if shutil.which(compiler) is None:
        raise MissingError(f"{compiler} is not installed")
    march = [f"-march={word}" for word in machine]
    if kind == "thread":
        return _with_threads(compiler, march, folder)
    shared = {"gcc": ("libasan.so", []), "clang": ("libclang_rt.asan-x86_64.so", ["-shared-libasan"])}
    library, flags = shared[compiler]
    variables = {
        "CC": compiler,
        "HF_ELMO_CFLAGS": " ".join([MEMORY, *flags, *march]),
        # libstdc++ too, whose exceptions the sanitizer looks for before PyTorch brings them
        "LD_PRELOAD": f"{_file_of(compiler, library)} {_file_of(compiler, 'libstdc++.so.6')}",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves much to the system at its end
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "ELMO_TEST_THREADS": "2",
    }
    if symbolizer := compiler == "clang" and shutil.which("llvm-symbolizer"):
        for options in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            variables[options] += f":external_symbolizer_path={_without_preload(symbolizer, folder)}"
    return Build(variables, ("overflow", "undefined"))


def _without_preload(program: str, folder: Path) -> Path:
    """A script that runs a program as if nothing were preloaded; with the sanitizer in it LLVM's symbolizer, which the
    sanitizer starts to name the lines of a fault, waits for itself at its end, and who reads its output with it."""
    script = folder / Path(program).name
    script.write_text(f'#!/bin/sh\nexec env -u LD_PRELOAD {shlex.quote(program)} "$@"\n')
    script.chmod(0o755)
    return script


def _with_threads(compiler: str, march: list[str], folder: Path) -> Build:
    archer = Path(_run([compiler, "-print-resource-dir"]).strip()).parents[1] / "libarcher.so"
    if not archer.is_file():
        raise MissingError(f"{compiler} has no {archer.name}, which tells of OpenMP's barriers")
    libraries = sysconfig.get_config_var("LIBDIR")
    name = f"python{sysconfig.get_config_var('LDVERSION')}"
    source, python = folder / "launcher.c", folder / "bin" / "python"
    source.write_text(LAUNCHER)
    python.parent.mkdir()
    command = [compiler, "-fsanitize=thread", str(source), "-o", str(python)]
    _run([*command, f"-L{libraries}", f"-l{name}", f"-Wl,-rpath,{libraries}"])
    if sys.prefix == sys.base_prefix:
        home = {"PYTHONHOME": sys.prefix}
    else:  # Python knows its virtual environment by the folder that the program is in
        home = {}
        shutil.copy(Path(sys.prefix, "pyvenv.cfg"), folder)
        (folder / "lib").symlink_to(Path(sys.prefix, "lib"))
    variables = {
        "CC": compiler,
        "HF_ELMO_CFLAGS": " ".join([RACES, *march]),
        "OMP_TOOL_LIBRARIES": str(archer),
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1 exitcode=66 die_after_fork=0",  # tests fork beside threads
        "ELMO_TEST_THREADS": "3",
        **home,
    }
    return Build(variables, ("race",), str(python))


def _file_of(compiler: str, library: str) -> str:
    """Where a compiler has a library of its own."""
    path = _run([compiler, f"-print-file-name={library}"]).strip()
    if not os.path.isabs(path):
        raise MissingError(f"{compiler} has no {library}")
    return path


def _run(command: list[str], variables: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    if done.returncode:
        raise MissingError(f"{' '.join(command)} failed: {done.stderr.strip()[-400:]}")
    return done.stdout


def blind_to(built: Build, folder: Path) -> list[str]:
    """The planted faults that a build does not report."""
    source, library = folder / "planted.c", folder / "planted.so"
    source.write_text(PLANTED)
    flags = built.variables["HF_ELMO_CFLAGS"].split()
    _run([built.variables["CC"], *flags, "-fopenmp", "-fPIC", "-shared", str(source), "-o", str(library)])
    unseen = []
    with environment(built.variables) as variables:
        for name in built.finds:
            script = f"import ctypes; ctypes.CDLL({str(library)!r}).{name}(50)"
            done = subprocess.run([built.python, "-c", script], env=variables, capture_output=True, text=True)
            if done.returncode == 0 or FINDS[name] not in done.stderr:
                unseen.append(name)
    return unseen


def coverage(folder: Path, tests: tuple[str, ...]) -> int:
    """Run tests in a build that counts, and print of each file how many functions and lines they ran; returns the
    number of functions that they did not.

    Raises:
        MissingError: this machine has not what it needs.
    """
    if missing := [tool for tool in ("clang", "llvm-profdata", "llvm-cov") if shutil.which(tool) is None]:
        raise MissingError(f"{missing[0]} is not installed")
    variables = {
        "CC": "clang",
        "HF_ELMO_CFLAGS": "-O1 -g -fprofile-instr-generate -fcoverage-mapping",
        "LLVM_PROFILE_FILE": str(folder / "%p.profraw"),
        "HF_HOME": str(folder),  # the library, and no other
        "ELMO_TEST_THREADS": "2",
    }
    outcome = run_tests(variables, tests)
    print(f"coverage: {outcome.passed} passed, {outcome.failed} failed", *outcome.failures, sep="\n  ", flush=True)
    (library,), merged = folder.glob("hf_elmo/kernels/*/elmo-*.so"), folder / "merged"
    _run(["llvm-profdata", "merge", "-sparse", *map(str, folder.glob("*.profraw")), "-o", str(merged)])
    (found,) = json.loads(_run(["llvm-cov", "export", str(library), f"-instr-profile={merged}"]))["data"]
    for file in found["files"]:
        counts = [f"{file['summary'][kind]['covered']} of {file['summary'][kind]['count']} {kind}" for kind in KINDS]
        print(f"  {Path(file['filename']).name}: {', '.join(counts)}", flush=True)
    calls: Counter[str] = Counter()  # an inline function is in several files
    for one in found["functions"]:
        calls[one["name"].rpartition(":")[2]] += one["count"]
    idle = sorted(name for name, count in calls.items() if not count)
    print(f"  no test calls {', '.join(idle)}" if idle else "  every function ran", flush=True)
    return outcome.failed + (outcome.passed == 0) + len(idle)


KINDS = ("functions", "lines")
BUILDS = ("coverage", "gcc address", "clang address", "gcc address haswell", "gcc address x86-64", "clang thread")


def run(names: tuple[str, ...] = BUILDS, tests: tuple[str, ...] = TESTS, cases: int = 25, seed: int = 0) -> int:
    """Run tests and random cases with each build and print what they gave; returns the number of faults."""
    faults = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="hf_elmo-harness-") as folder:
            try:
                if name == "coverage":
                    faults += coverage(Path(folder), tests)
                    continue
                built = build(name, Path(folder))
            except MissingError as error:
                print(f"{name}: not run: {error}", flush=True)
                continue
            if unseen := blind_to(built, Path(folder)):
                print(f"{name}: it does not see planted faults: {', '.join(unseen)}", flush=True)
                faults += 1
                continue
            faults += _run_build(name, built, tests, cases, seed)
    return faults


def _run_build(name: str, built: Build, tests: tuple[str, ...], cases: int, seed: int) -> int:
    outcome = run_tests(built.variables, tests, python=built.python)
    print(f"{name}: {outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped", end="")
    print(f" ({outcome.seconds:.0f} s; {outcome.seen})", *outcome.failures, sep="\n  ", flush=True)
    command = [built.python, "-m", "tests.harness", "layers", "words", "--cases", str(cases), "--seed", str(seed)]
    with environment(built.variables) as variables:
        done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True)
    said = done.stdout.strip() if done.returncode == 0 else (done.stdout + done.stderr)[:4000]
    print("  " + said.replace("\n", "\n  "), flush=True)
    return outcome.failed + (outcome.passed == 0) + (done.returncode != 0)
