"""The typer application, and what makes its commands and their parameters."""

import errno
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

app = typer.Typer(
    help="ELMo for the Hugging Face libraries.",
    epilog="hf-elmo COMMAND --help explains a command, with an example. Exit status: 0, 1 after an error, 2 if the "
    "command line is wrong, 130 after Ctrl-C.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def option(metavar: str, help: str, *names: str, min: int | None = None) -> Any:
    """An option with a value; by default its name is `--` and the parameter's name. `min` is the least number."""
    return typer.Option(*names, metavar=metavar, help=help, min=min)


def flag(name: str, help: str, *names: str, callback: Callable[[bool], None] | None = None) -> Any:
    """An option without a value. A `callback` is called before other options are read."""
    return typer.Option(name, *names, help=help, callback=callback, is_eager=callback is not None)


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help)


def command(short_help: str, *lines: str, name: str | None = None) -> Callable[[Callable], Callable]:
    """Makes a function a command, by default of its name. Its help page ends with the examples `lines`."""
    examples = ["\b", "example:" if len(lines) == 1 else "examples:", *(f"  hf-elmo {line}" for line in lines)]
    return app.command(name, short_help=short_help, epilog="\n".join(examples))


def number_or_name(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() else text


def column(help: str) -> Any:
    """An option with the name of a column, or its number, which is an `int` for the command."""
    return typer.Option(metavar="NAME", callback=number_or_name, help=help)


def show(value: Any, text: str, as_json: bool) -> None:
    print(json.dumps(value, ensure_ascii=False, default=asdict) if as_json else text)


@contextmanager
def resumable(find: Callable[[], Path | None], how: str = "the same command") -> Iterator[None]:
    """Says where finished work is, by `find`, and how to resume, if the block is stopped or disk or memory is full."""
    try:
        yield
    except (KeyboardInterrupt, MemoryError, OSError, BrokenProcessPool) as error:
        is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        folder = find()
        if folder and folder.is_dir() and (is_full or not isinstance(error, OSError)):
            print(f"hf-elmo: finished work is in {folder}: {how} resumes", file=sys.stderr)
        raise
