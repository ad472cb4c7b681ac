"""The command `hf-elmo`: each subcommand calls one function of the Python interface.

It is installed as `hf_elmo_cli`, a package that imports hf_elmo only when a subcommand runs: hf_elmo imports
transformers, which takes seconds and is not needed for `--help`, `--version` or a wrong option.
"""

import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from . import convert, embed, pretrain  # noqa: F401, each registers its commands
from .options import app, flag

READING = logging.getLogger("transformers.hf_elmo.reading.rows")
COMMON = ("-q", "--quiet", "--traceback")  # options of `hf-elmo` itself
# The messages of these errors are clear without the type; for all other errors the type is printed, too.
EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError, FloatingPointError)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"hf-elmo {version('hf-elmo')}")
        raise SystemExit(0)


@app.callback()
def common(
    version: Annotated[bool, flag("--version", "show the version and exit", callback=_print_version)] = False,
    traceback: Annotated[bool, flag("--traceback", "after an error, show where it happened")] = False,
    quiet: Annotated[bool, flag("-q", "no progress and no warnings, only errors", "--quiet")] = False,
) -> None:
    if quiet:  # the libraries read these when they are imported, in worker processes, too
        os.environ |= {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        os.environ |= dict.fromkeys(("TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY", "DATASETS_VERBOSITY"), "error")
        warnings.simplefilter("ignore")
    else:
        READING.setLevel(logging.INFO)
        READING.handlers = [logging.StreamHandler()]
        READING.propagate = False  # no other handler prints it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand, by default that of the command line. Returns the exit status: 0, 1 after an error, 130 after
    Ctrl-C. Raises SystemExit if the command line is wrong (2), or an option prints something and exits (0)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    arguments = sorted(arguments, key=lambda one: one not in COMMON)  # these may stand after the subcommand, too
    if isinstance(sys.stdout, io.TextIOWrapper):  # of Korean, an encoding such as that of a pipe on Windows has nothing
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = app(arguments, prog_name="hf-elmo", standalone_mode=False)
    except Exception as error:
        if hasattr(error, "exit_code"):  # a typer.TyperException, before typer 0.27.3 a click.ClickException
            error.show()  # type: ignore[attr-defined]
            raise SystemExit(error.exit_code) from None
        if isinstance(error, typer.Abort):  # typer takes that of a file for Ctrl-D
            error = error.__cause__
        if "--traceback" in arguments:
            raise error
        kind = "" if isinstance(error, EXPECTED) and str(error) else f"{type(error).__name__}: "
        print(f"hf-elmo: error: {kind}{with_options(str(error), arguments)}", file=sys.stderr)
        return 1
    finally:
        READING.setLevel(logging.NOTSET)
        READING.handlers = []
        READING.propagate = True
    if status == 130:
        print("hf-elmo: stopped", file=sys.stderr)
    return status or 0


def with_options(message: str, arguments: Sequence[str]) -> str:
    """An error's message with the command's options for arguments of Python: `--overwrite` for `overwrite=True`,
    `--input-format text` for `input_format='text'`, `--text-column` for `text_column`."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    command = next((commands[argument] for argument in arguments if argument in commands), None)
    for parameter in () if command is None else command.params:
        if (option := parameter.opts[0]).startswith("--"):
            value = rf"\b{parameter.name}=(?:True\b|'?(\w*)'?)"
            name = rf"\b{parameter.name}\b" if "_" in parameter.name else rf"^{parameter.name}(?= is )"
            message = re.sub(value, lambda found: f"{option} {found[1] or ''}".strip(), message)
            message = re.sub(name, option, message)
    return message
