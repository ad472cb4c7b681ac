"""The tests that depend on the processor, run as other machines would run them.

Each setting is a few variables of the environment. What a process then sees of them (PyTorch's vectors, oneDNN's
instruction set, the kernels, threads, and the bits of one float32 product, which MKL's settings change) stands beside
the results; a setting of kernels or threads that has no effect counts as a failure.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

# Tests whose numbers depend on the processor, its libraries or the number of threads.
TESTS = (
    "tests/kernels",
    "tests/test_modeling_numbers.py",
    "tests/test_lstm.py",
    "tests/test_softmax.py",
    "tests/test_trainer_sms.py",
    "tests/embedding",
    "tests/pretraining/test_trainer.py",
    "tests/test_compile.py",
    "tests/test_encoders.py",
    "tests/test_modeling_pretraining.py",
    "tests/test_remote_code.py",
    "tests/test_shipped.py",
    "tests/analysis/test_scoring.py",
)

NO_COMPILER = "all programs but compilers"  # stands for a folder of links that exists while the tests run
COMPILERS = ("cc", "gcc", "clang")  # those that hf_elmo looks for

# Variables to set, or with None to remove.
SETTINGS: dict[str, dict[str, str | None]] = {
    "as it is": {},
    "ATen default": {"ATEN_CPU_CAPABILITY": "default"},
    "ATen avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "oneDNN AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "oneDNN SSE41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "MKL AVX2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "MKL CBWR COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    "MKL CBWR AVX2": {"MKL_CBWR": "AVX2"},
    "MKL CBWR AVX2,STRICT": {"MKL_CBWR": "AVX2,STRICT"},
    "MKL CBWR AVX512": {"MKL_CBWR": "AVX512"},
    "MKL CBWR AVX512,STRICT": {"MKL_CBWR": "AVX512,STRICT"},
    "MKL CBWR AUTO": {"MKL_CBWR": "AUTO"},
    "kernels off": {"HF_ELMO_KERNELS": "off"},
    "no compiler": {"PATH": NO_COMPILER, "CC": None},
    "clang": {"CC": "clang"},
    "kernels for Haswell": {"HF_ELMO_CFLAGS": "-march=haswell"},
    "kernels for x86-64": {"HF_ELMO_CFLAGS": "-march=x86-64"},
    "all of Haswell": {
        "HF_ELMO_CFLAGS": "-march=haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_CBWR": "AVX2",
    },
    "1 thread": {"OMP_NUM_THREADS": "1", "ELMO_TEST_THREADS": "1"},
    "2 threads": {"OMP_NUM_THREADS": "2", "ELMO_TEST_THREADS": "2"},
}

# `--only ci`: what `.ci/run` has time for.
CI = ("ATen default", "all of Haswell", "kernels off")
CI_TESTS = ("tests/kernels/test_product.py", "tests/kernels/test_cpu_small_batch.py", "tests/test_modeling_numbers.py")
CI_TESTS += ("tests/test_lstm.py",)

# What a process must see in a setting, or it had no effect.
EXPECTED = {
    "kernels off": "kernels off",
    "no compiler": "kernels PyTorch's",
    "clang": "kernels C",
    "kernels for Haswell": "kernels C, threads",
    "kernels for x86-64": "kernels C, threads",
    "all of Haswell": "kernels C, threads",
    "1 thread": "threads 1",
    "2 threads": "threads 2",
}

PROBE = """
import hashlib
import torch
from hf_elmo.kernels import enabled, native
library = native.library()
x = torch.ones(64, 64)
torch._C._nn.mkldnn_linear  # fails where this build has no oneDNN
with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
    torch.nn.functional.linear(x.bfloat16(), x.bfloat16())
kernels = "off" if not enabled() else "PyTorch's" if library is None else "C"
if kernels == "C" and hasattr(library, "layer_f32"):
    kernels = "C, AVX-512"
torch.manual_seed(0)
product = (torch.randn(7, 1001) @ torch.randn(1001, 33)).numpy().tobytes()
bits = hashlib.sha256(product).hexdigest()[:4]
print("SEEN", torch.backends.cpu.get_cpu_capability(), kernels, torch.get_num_threads(), bits, sep="|")
"""


class Outcome(NamedTuple):
    """What a run of the tests gave."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    failures: list[str]
    seen: str


@contextlib.contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[dict[str, str]]:
    """This process's environment with the changes made; no network, and the tests' own number of threads."""
    variables = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as links:
        for name, value in changes.items():
            variables.pop(name, None)
            if value is not None:
                variables[name] = _without_compilers(links) if value == NO_COMPILER else value
        yield variables


def _without_compilers(folder: str) -> str:
    """Fill a folder with links to the programs of this process's `PATH`, compilers left out."""
    for place in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for name in set(os.listdir(place)) - {*COMPILERS, *os.listdir(folder)}:
            os.symlink(os.path.abspath(os.path.join(place, name)), os.path.join(folder, name))
    return folder


def seen(variables: Mapping[str, str], python: str = sys.executable) -> str:
    """PyTorch's vectors, oneDNN's instruction set, the kernels, the threads and the bits of a process so set."""
    done = subprocess.run([python, "-c", PROBE], env=variables, cwd=ROOT, capture_output=True, text=True)
    line = re.search(r"^SEEN\|(.*)\|(.*)\|(.*)\|(.*)$", done.stdout, re.MULTILINE)
    if line is None:
        return f"the probe failed: {done.stderr.strip()[-200:]}"
    isa = re.search(r"isa:([^\n]*)", done.stdout)
    vectors, kernels, threads, bits = line.groups()
    dnn = isa[1] if isa else "unknown"
    return f"ATen {vectors}, oneDNN {dnn}, kernels {kernels}, threads {threads}, bits {bits}"


def run_tests(
    changes: Mapping[str, str | None], tests: Sequence[str], seconds: float = 1800, python: str = sys.executable
) -> Outcome:
    """pytest over `tests` in a process of the changed environment; `python` is the program that runs it."""
    with environment(changes) as variables, tempfile.TemporaryDirectory(prefix="hf_elmo-harness-") as folder:
        report = Path(folder, "report.xml")
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
        looks, start = seen(variables, python), time.monotonic()
        try:
            done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
            said = f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
        except subprocess.TimeoutExpired:
            said = f"pytest did not end within {seconds:.0f} s"
        taken = time.monotonic() - start
        if not report.is_file():  # it crashed
            return Outcome(0, 1, 0, taken, [said], looks)
        cases = list(ElementTree.parse(report).iter("testcase"))
    failures_beside = [said] if done.returncode not in (0, 1) else []  # what a sanitizer said at the end
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    failures = [*map(_describe, bad), *failures_beside]
    return Outcome(len(cases) - len(bad) - skipped, len(failures), skipped, taken, failures, looks)


def _describe(case: ElementTree.Element) -> str:
    problem = case.find("failure")
    problem = case.find("error") if problem is None else problem
    message = (problem.get("message") or "").strip().split("\n")[0]
    return f"{case.get('classname')}::{case.get('name')}: {message[:200]}"


def run(names: Sequence[str], tests: Sequence[str] = TESTS) -> int:
    """Run the tests in each setting and print a table in markdown; returns the number of tests that failed."""
    print(
        "| setting | passed | failed | skipped | seconds | what a process sees |\n|---|--:|--:|--:|--:|---|", flush=True
    )
    failures, failed = [], 0
    for name in names:
        outcome = run_tests(SETTINGS[name], tests)
        failed += outcome.failed
        row = name, outcome.passed, outcome.failed, outcome.skipped, f"{outcome.seconds:.0f}", outcome.seen
        print("|", " | ".join(map(str, row)), "|", flush=True)
        failures += [f"{name}: {failure}" for failure in outcome.failures]
        if EXPECTED.get(name, "") not in outcome.seen:
            failures.append(f"{name}: without effect, a process must see {EXPECTED[name]!r}")
            failed += 1
        if outcome.passed == 0:
            failures.append(f"{name}: no test passed")
            failed += outcome.failed == 0
    print("\n".join(["", *failures]) if failures else "\nno test failed")
    return failed
