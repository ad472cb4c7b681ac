"""Lines of text files, gzipped or not, with errors that name the line."""

import codecs
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

# Codecs that leave a byte order mark in the text.
UNICODE = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")


def read_lines(
    path: str | os.PathLike,
    encoding: str = "utf-8",
    newline: str | None = None,
    name: str = "",
    open_file: Callable[[str], IO[bytes]] | None = None,
    start: int = 0,
    stop: int | None = None,
    remedy: str = "",
) -> Iterator[str]:
    """
    The lines of a file, each with its end; a byte order mark at the beginning is skipped.

    Args:
        path: the file; a name ending in `.gz` is decompressed.
        encoding: of the text.
        newline: as in `open`.
        name: of the file in error messages; by default the path.
        open_file: opens the path for reading bytes, where it is not one of this machine's file system.
        start, stop: the bytes to read, from the beginning of a line to the end of one; all by default.
        remedy: for bytes that are not of the encoding, besides converting the file.

    Raises:
        ValueError: the encoding is unknown, or the bytes are not of it, or not gzip's.
    """
    path, name = Path(path), name or str(path)
    byte_order_mark = "\ufeff" if codec_name(encoding) in UNICODE else ""
    try:
        opened = _open_bytes(path, open_file)
        if start:
            opened.seek(start)
        stretch = opened if stop is None else io.BufferedReader(_Until(opened, stop))
        with opened, io.TextIOWrapper(stretch, encoding, newline=newline) as lines:
            for first in lines:
                yield first if start else first.removeprefix(byte_order_mark)
                break
            yield from lines
    except UnicodeDecodeError as error:
        line = _first_bad_line(path, encoding, open_file)
        raise ValueError(
            f"{name}, line {line}: not {encoding} ({error.reason}); convert the file to {encoding}{remedy}"
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{name} is not a whole gzip file ({error}); fetch or compress it again") from error


class _Until(io.RawIOBase):
    """The bytes of an open file from where it stands to `stop`."""

    def __init__(self, file: IO[bytes], stop: int) -> None:
        self._file, self._left = file, stop - file.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        read = self._file.readinto(memoryview(buffer)[: self._left])
        self._left -= read
        return read


def codec_name(encoding: str) -> str:
    """The one name of an encoding, which has several; ValueError for one that is unknown."""
    try:
        return codecs.lookup(encoding).name
    except LookupError as error:
        raise ValueError(f"encoding {encoding!r} is unknown; take utf-8, latin-1, cp1252, ...") from error


def _open_bytes(path: Path, open_file: Callable[[str], IO[bytes]] | None) -> IO[bytes]:
    gzipped = path.suffix.lower() == ".gz"
    if open_file is None:
        return gzip.open(path, "rb") if gzipped else open(path, "rb")
    opened = open_file(path.as_posix())
    return gzip.open(opened, "rb") if gzipped else opened


def _first_bad_line(path: Path, encoding: str, open_file: Callable[[str], IO[bytes]] | None) -> int:
    with _open_bytes(path, open_file) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return number
    return number
