"""
Proves the versions that pyproject.toml claims: makes an environment with the lowest or with the newest ones, and runs
the tests in it with the Python that runs this script.

    python3.11 .ci/bounds.py lowest outputs/lowest
    python3.13 .ci/bounds.py newest outputs/newest --pin torch==2.13.0 -- tests/test_modeling.py
    .venv/bin/python .ci/bounds.py newest .venv --in-place --quick --pin torch==2.13.0

`lowest` turns each `>=` of the extras into `==`, so a bound that is no release, or that contradicts another, fails
before any test. On Linux torch comes with its CUDA libraries (gigabytes), but where the index has a build for the CPU;
`--pin` names such a version. `.ci/run` uses both ends, with `--quick`.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# `--quick`: the tests of what other libraries do for us and we for them. Loading, saving, tokenizer, Trainer, heads,
# remote code and the Hub (transformers, tokenizers, huggingface-hub, safetensors, accelerate, datasets), adapters and
# quantizing (peft, torchao), pipelines, files of vectors (h5py, pyarrow), metrics, pages and plots.
QUICK = (
    "tests/test_modeling.py",
    "tests/test_modeling_classification.py",
    "tests/test_modeling_tagging.py",
    "tests/test_tokenization.py",
    "tests/test_tokenizer_use.py",
    "tests/test_trainer_sms.py",
    "tests/test_remote_code.py",
    "tests/test_hub.py",
    "tests/test_loading.py",
    "tests/test_pipelines.py",
    "tests/test_peft.py",
    "tests/test_quantization.py",
    "tests/test_offloading.py",
    "tests/embedding/test_files.py",
    "tests/pretraining/test_trainer.py",
)


def requirements(project: dict, extras: list[str]) -> list[str]:
    """The direct requirements of the project with extras, an extra of its own name resolved."""
    found = list(project["dependencies"])
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[(.+)\]", requirement)
            found += requirements(project, own[1].split(",")) if own else [requirement]
    return sorted(set(found))


def constraints(found: list[str], end: str, pins: list[str]) -> list[str]:
    """The constraints of one end: of several bounds for a library the highest, and a pin instead of its bound."""
    pinned = {re.split("[=<>]", pin)[0] for pin in pins}
    lowest: dict[str, str] = {}
    for requirement in found if end == "lowest" else []:
        name, bound = requirement.split(";")[0].split(">=") if ">=" in requirement else (requirement, "")
        name = name.partition("[")[0].strip()  # pip takes no extras in a constraint
        if bound and name not in pinned:
            lowest[name] = max(lowest.get(name, "0"), bound.strip(), key=_parts)
    return [f"{name}=={bound}" for name, bound in lowest.items()] + pins


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _versions(python: str) -> set[str]:
    """What an environment holds, as NAME==VERSION."""
    command = [python, "-m", "pip", "list", "--format=freeze"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests with the lowest or the newest versions of libraries.")
    parser.add_argument("end", choices=("lowest", "newest"))
    parser.add_argument("folder", type=Path, help="of the environment; it is made anew")
    parser.add_argument("--extra", nargs="*", default=["test"], help="of pyproject.toml [test]")
    parser.add_argument("--pin", action="append", default=[], metavar="NAME==VERSION", help="further constraint")
    parser.add_argument("--quick", action="store_true", help="only the tests of what other libraries do for us")
    parser.add_argument(
        "--in-place", action="store_true", help="bring the environment to that end; where it was there, test nothing"
    )
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, tests = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = constraints(requirements(project, options.extra), options.end, options.pin)
    if not options.in_place:
        subprocess.run([sys.executable, "-m", "venv", "--clear", options.folder], check=True)
    file = options.folder / "constraints.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(*lines, sep="\n", flush=True)
    python = str(options.folder / "bin" / "python")
    before = _versions(python)
    command = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--upgrade", "--upgrade-strategy", "eager"]
    target = f"{ROOT}[{','.join(options.extra)}]"
    subprocess.run([*command, "--constraint", file, "--editable", target], check=True)
    changed = sorted(_versions(python) - before, key=str.lower)
    if options.in_place and not changed:
        print(f"{options.folder} had the {options.end} versions already")
        return 0
    print("->", *changed, flush=True)
    tests = [*(QUICK if options.quick else ()), *tests]
    return subprocess.run([python, "-m", "pytest", "-q", *tests], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
