"""Look for silent faults; the exit status says whether there are some.

python -m tests.harness --budget 60 --seed 0             the fuzzers and the killer, a minute for all
python -m tests.harness texts --cases 10000              one of them; a case of texts is 100 texts
python -m tests.harness settings                         the tests as other machines would run them
python -m tests.harness settings --only clang --tests tests/kernels
"""

import argparse
import sys

import torch

from . import archives, checks, kills, layers, sanitizers, settings, texts, words

CHECKS = {check.name: check for check in (texts.CHECK, layers.CHECK, words.CHECK, archives.CHECK, kills.CHECK)}


def main() -> int:
    """Run what the command line names; returns 1 where a fault was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.harness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*CHECKS, "settings", "sanitizers"]
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"{', '.join(names)} [{', '.join(CHECKS)}]")
    parser.add_argument("--seed", type=int, default=0, help="of all cases [0]")
    parser.add_argument("--cases", type=int, metavar="N", help="of each check [a few]")
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="for all checks; with --cases whichever ends first"
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case [0]")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="SETTING",
        help=f"settings: {', '.join(settings.SETTINGS)}; ci (the few of .ci/run); sanitizers: "
        f"{', '.join(sanitizers.BUILDS)}",
    )
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="settings, sanitizers: files or folders of tests")
    options = parser.parse_args()
    chosen = options.checks or list(CHECKS)
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"there is no check {unknown[0]!r}; there are {', '.join(names)}")
    torch.set_num_threads(1)
    found = [run(name, options, len(chosen)) for name in chosen]
    return int(any(found))


def run(name: str, options: argparse.Namespace, share: int) -> bool:
    """Run one check and print what it found; returns whether that is a fault."""
    if name == "settings":
        ci = options.only == ["ci"]
        only = settings.CI if ci else options.only or list(settings.SETTINGS)
        return settings.run(only, options.tests or (settings.CI_TESTS if ci else settings.TESTS)) > 0
    if name == "sanitizers":
        only, tests = options.only or sanitizers.BUILDS, options.tests or sanitizers.TESTS
        return sanitizers.run(tuple(only), tuple(tests), options.cases or 25, options.seed) > 0
    check = CHECKS[name]
    unbounded = options.cases is None and options.budget is not None
    cases = options.cases or (sys.maxsize if unbounded else check.cases)
    budget = None if options.budget is None else options.budget / share
    result = checks.run(check, options.seed, cases, options.first, budget)
    print(checks.report(check, options.seed, result), flush=True)
    return bool(result.faults)


if __name__ == "__main__":
    sys.exit(main())
