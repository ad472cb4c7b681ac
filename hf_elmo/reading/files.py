"""Files: paths, folders, patterns and addresses (`s3://`, `hf://`, if the library that fsspec needs for them is
installed), and the lines of text in them. Only one block of a file is in memory at a time."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from io import TextIOWrapper
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, Any
from zlib import error as ZlibError

import fsspec
import pyarrow
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

LFS = b"version https://git-lfs"
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".lzma": "lzma", ".zst": "zstd"}


class Files(list):
    """Paths, folders, patterns or addresses, whose rows are read one after another. (A list of strings has texts.)"""


def local_path(path: str | os.PathLike) -> Path:
    """A path to write to; ValueError for an address, such as `s3://bucket/name`, which would become a folder `s3:`."""
    if re.match(r"\w{2,}:/", os.fspath(path)):
        raise ValueError(f"{os.fspath(path)!r} is an address, but must be a path: write to one, and upload it then")
    return Path(path)


def is_pipe(path: str | os.PathLike) -> bool:
    """Whether a file can be read only once: standard input, `"-"`, or a pipe, such as that of a shell's `<(zcat x)`."""
    return os.fspath(path) == "-" or (os.path.exists(path) and Path(path).is_fifo())


def require_apart(output: Path, read: Mapping[str, Iterable[str]], overwrite: bool | None = None) -> None:
    """Raises ValueError if a path is read by two names, or if `output` or its `.parts` is one, has one in it, or is in
    one (but `"init"`); FileExistsError if it exists, unless `overwrite` is `None`, or is true and it is a file."""
    own = [Path(os.path.realpath(path)) for path in (output, f"{output}.parts")]
    names: dict[Path, str] = {}
    for name, paths in read.items():
        for path in map(Path, map(os.path.realpath, paths)):
            is_above = name != "init" and path in own[0].parents
            if path.exists() and (is_above or path in own or path.parent in own):
                raise ValueError(f"output {str(output)!r} is {name} {str(path)!r}, or one is in the other: change it")
            if names.setdefault(path, name) != name:
                raise ValueError(f"{str(path)!r} is in {names[path]} and in {name}: remove it from one")
    if overwrite is not None and (output.is_dir() or (os.path.lexists(output) and not overwrite)):
        raise FileExistsError(f"output {str(output)!r} exists; choose another name or overwrite=True")


def find_files(pattern: str | os.PathLike) -> list[str]:
    """The files, sorted, that a path, a folder (all files below it, unless its name or that of a folder begins with a
    dot or an underscore), a glob pattern, a pipe or `"-"` stands for; FileNotFoundError if there is none."""
    if os.path.isfile(pattern) or is_pipe(pattern):
        return [os.fspath(pattern)]
    filesystem, path = url_to_fs(os.fspath(pattern))
    if filesystem.isdir(path):
        paths = [file for file in filesystem.find(path) if not re.search("/[._]", file.removeprefix(path))]
    else:
        paths = [file for file in filesystem.glob(path) if not filesystem.isdir(file)]
    if not paths:
        raise FileNotFoundError(f"there is no file {os.fspath(pattern)!r:.80}; for texts, pass a list of them")
    is_local = isinstance(filesystem, LocalFileSystem)
    return [file if is_local else filesystem.unstrip_protocol(file) for file in sorted(paths)]


@contextmanager
def open_file(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its name ends in `.gz`, `.bz2`, `.xz` or `.zst`; ValueError if they end too
    early, as after an interrupted download, are damaged (also those of Parquet), or are a pointer of Git LFS."""
    name = os.fspath(path)
    compression = COMPRESSIONS.get(PurePosixPath(name).suffix.lower())
    by_pyarrow = compression == "zstd"  # fsspec's library for it takes an incomplete file for a whole one
    opened: Any = fsspec.open(name, "rb", compression=None if by_pyarrow else compression)
    try:
        if is_pipe(name):
            opened = nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb")  # noqa: SIM115
        elif (start := opened.fs.head(opened.path, len(LFS))) == LFS:
            raise ValueError(f"{name} is a pointer of Git LFS: fetch the file itself with git lfs pull")
        elif compression and not start:
            raise EOFError("it is empty")
        with opened as file:
            yield pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), compression) if by_pyarrow else file
    except (EOFError, LZMAError, OSError, ZlibError, pyarrow.ArrowInvalid) as error:
        if isinstance(error, OSError) and (compression is None or error.errno):
            raise
        raise ValueError(f"{name} is incomplete or damaged ({error}): fetch it again") from error


def read_lines(
    path: str | os.PathLike, encoding: str = "utf-8", newline: str | None = None, errors: str = "strict"
) -> Iterator[str]:
    """The lines of a text file ([`open_file`]), each with its line break, without a byte order mark. `newline` and
    `errors` are as for `open`; ValueError, with the number of the line, for bytes that the encoding does not have."""
    lines_read = 0
    try:
        with open_file(path) as file, TextIOWrapper(file, encoding, errors, newline) as lines:
            for lines_read, line in enumerate(lines, start=1):
                if line != "\ufeff":  # a file of a mark alone has no line
                    yield line.removeprefix("\ufeff") if lines_read == 1 else line
    except UnicodeDecodeError as error:  # error.object is the block of bytes after the last line read
        line = lines_read + error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: not valid {encoding} ({error.reason}): pass its encoding=") from error
