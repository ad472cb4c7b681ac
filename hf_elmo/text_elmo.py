"""What the tokenizer and the readers of files have in common: lists of texts, characters, and files of words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def require_list(values: Any, name: str = "texts") -> None:
    """Raises ValueError for a string and for a table or an array with further axes in place of a list of texts or of
    one column of a table: their items are characters, names of columns, or rows of several columns."""
    if isinstance(values, (str, Mapping)) or hasattr(values, "columns") or getattr(values, "ndim", 1) != 1:
        shape = getattr(values, "shape", "")
        raise ValueError(f"{name} must be a list or one column of a table, not a {type(values).__name__} {shape}")


def as_list(values: Any, name: str = "texts") -> list:
    """The values of a list, an iterator, an array or a column of a table (pandas, Arrow, Datasets) in their order;
    ValueError as [`require_list`]."""
    require_list(values, name)
    for to_list in ("tolist", "to_pylist"):
        if hasattr(values, to_list):
            return getattr(values, to_list)()
    return list(values)


def drop_surrogates(text: str) -> str:
    """`text` without lone surrogates (halves of characters, as in JSON that was cut), which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "ignore").decode("utf-8")


def read_vocabulary(path: str | Path) -> list[str]:
    """The words of a softmax in a file, one per line, read as by bilm-tf: without blanks and tabs around them, and
    without the line `!!!MAXTERMID`."""
    text = Path(path).read_text(encoding="utf-8-sig").removesuffix("\n")
    return [line.strip(" \t") for line in text.split("\n") if line != "!!!MAXTERMID"]
