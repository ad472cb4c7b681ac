"""Run transformers' own common tests, of exactly the installed version, on this package's models and tokenizer.

python -m tests.transformers_common                  everything
python -m tests.transformers_common -- -k tokenizer  what follows `--` goes to pytest

It needs the package `parameterized`, and downloads transformers' source distribution once, which holds the tests.
"""

import argparse
import importlib.util
import os
import sys
from pathlib import Path

import pytest

from . import source


def main() -> int:
    """Run what the command line names; returns pytest's exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.transformers_common",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, default=source.default_folder(), help="of the tests [%(default)s]")
    parser.add_argument("--sdist", type=Path, help="transformers' source distribution, where it is here already")
    parser.add_argument("pytest", nargs="*", help="options of pytest")
    options = parser.parse_args()
    if options.folder.name != "tests":
        parser.error(f"--folder is {options.folder}, but its name must be tests: transformers looks for that.")
    if importlib.util.find_spec("parameterized") is None:
        parser.error("transformers' tests need the package parameterized: pip install parameterized")
    source.fetch(options.folder.resolve(), options.sdist)
    os.environ[source.FOLDER_VARIABLE] = str(options.folder.resolve())
    here = Path(__file__).parent
    theirs = ["-o", "addopts=", "-W", "ignore::pytest.PytestUnknownMarkWarning"]  # they have markers of their own
    return pytest.main([*theirs, "-q", "-rxfE", *options.pytest, str(here)])


if __name__ == "__main__":
    sys.exit(main())
