"""The progress of a long run: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
from typing import Any

from tqdm.auto import tqdm

LINE_SECONDS = 30.0  # between two lines of progress where there is no terminal
LINE = "{desc}: {n_fmt} of {total_fmt} rows, {percentage:.0f}%, {elapsed} elapsed, {remaining} left{postfix}"


class _Lines:
    """A file for tqdm in which each state of the bar is a line of standard error."""

    def write(self, text: str) -> None:
        if text.strip():
            print(text.strip(), file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Nothing is kept back."""


def progress_bar(rows: int | None, description: str, progress: bool | str | None, **options: Any) -> tqdm:
    """A progress bar over rows.

    Args:
        rows: the number of rows, if it is known.
        description: what is done with the rows.
        progress: `True` shows the bar, `False` does not; `None` shows it on a terminal only; `"lines"` prints a line
            every half a minute where there is no terminal.
        options: further options of tqdm.
    """
    options |= {"total": rows, "desc": description, "unit": " rows", "miniters": 0}
    if progress == "lines" and not sys.stderr.isatty():
        return tqdm(**options, file=_Lines(), mininterval=LINE_SECONDS, delay=LINE_SECONDS, bar_format=LINE)
    return tqdm(**options, disable=None if progress in (None, "lines") else not progress)
