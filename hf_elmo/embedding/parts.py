"""The folder of finished windows of rows, from which an interrupted embedding resumes.

`OUTPUT.parts/` exists beside OUTPUT until OUTPUT is written: `manifest.json` (everything that the values depend on),
and for each finished window of rows `N.bin` (the values of the rows, concatenated), `N.words` (JSON lines, the words of
each row) and `N.json` (the number of words of each row, and the size and CRC-32 of the other two files). `N.json` is
written last and by renaming, so a window that has one is complete. A folder without a manifest holds nothing worth
keeping. The run that works in it has `lock` locked.

The result is written to `whole.*` in the folder and renamed to OUTPUT. Before that the manifest gets the entry
`result`, by which the next run knows what a killed one left: OUTPUT is its result, and the folder is to be removed.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from ..locks import locked
from .readers import RowSource, spool

FLOAT16_LIMIT = 65520.0  # halfway from 65504, float16's largest number, to the next that it would have
CHUNK_BYTES = 1 << 20  # of values, in memory at once while the parts are assembled
OWN_NAMES = re.compile(
    r"lock|manifest\.json(\.draft)?|input\.jsonl|standard_input\.\w+|whole\.\w+|\d{6,}\.(bin|words|rows|json(\.draft)?)|tmp\w{8}"
)
OWN_CRC32 = "own_crc32"  # of the rest of an index
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@dataclass(frozen=True)
class RowLayout:
    """Shape and dtype of the values of a row.

    Args:
        layers: number of layers, or `None` for values without an axis of layers.
        size: of a vector, 2P.
        pooled: a row has one vector, not one for each word.
        dtype: `float32` or `float16`.
    """

    layers: int | None
    size: int
    pooled: bool
    dtype: np.dtype

    def shape(self, words: int) -> tuple[int, ...]:
        """`[layers, words, 2P]`, without the axes that the layout does not have."""
        lead = () if self.layers is None else (self.layers,)
        return (*lead, self.size) if self.pooled else (*lead, words, self.size)

    @property
    def limit(self) -> float:
        """The least number that this dtype rounds to infinity."""
        return FLOAT16_LIMIT if self.dtype.itemsize == 2 else math.inf

    def nbytes(self, words: int) -> int:
        """Bytes of a row with `words` words."""
        return int(np.prod(self.shape(words), dtype=np.int64)) * self.dtype.itemsize


class WindowFile:
    """The values of a window of rows in a file, filled in any order.

    Args:
        file: where they go.
        layout: of the rows.
        word_counts: of each row.
        first: the number of the first row in the whole input, for messages.
    """

    def __init__(self, file: IO[bytes], layout: RowLayout, word_counts: list[int], first: int = 0) -> None:
        self.file, self.layout, self.word_counts, self.first = file, layout, word_counts, first
        self.offsets = np.cumsum([0, *map(layout.nbytes, word_counts)]).tolist()
        self.state: dict[str, Any] = {}

    def allocate(self) -> None:
        """Extend the file to its final size; what is not written later (blank rows) is zero."""
        if self.offsets[-1]:
            self.file.seek(self.offsets[-1] - 1)
            self.file.write(b"\0")

    def name_of(self, row: int) -> str:
        """What a message calls a row of the window."""
        return f"row {self.first + row} (counted from 0)"

    def put(self, row: int, values: Tensor, start: int = 0) -> None:
        """Write a row, or a piece of it.

        Args:
            row: its number in the window.
            values: `[layers, 2P]` pooled, else `[layers, words of the piece, 2P]`, on the CPU.
            start: the first word of the piece.
        """
        values = np.ascontiguousarray(values.float().numpy(), dtype=self.layout.dtype)
        whole = self.layout.nbytes(self.word_counts[row])
        inside = 0 if self.layout.pooled else start * self.layout.size * self.layout.dtype.itemsize
        for layer, block in enumerate([values] if values.nbytes == whole else values):
            self.file.seek(self.offsets[row] + layer * (whole // len(values)) + inside)
            self.file.write(block.data)


class WindowInMemory:
    """As [`WindowFile`], with the values in memory: flat in `values`, and in `arrays` a view of them for each row.

    `source` is what messages call the input.
    """

    def __init__(self, layout: RowLayout, word_counts: list[int], first: int = 0, source: str | None = None) -> None:
        self.layout, self.first, self.source = layout, first, source
        ends = np.cumsum([layout.nbytes(count) // layout.dtype.itemsize for count in word_counts])
        self.values = np.zeros(ends[-1], layout.dtype.newbyteorder("="))
        rows = np.split(self.values, ends[:-1])
        self.arrays = [row.reshape(layout.shape(count)) for row, count in zip(rows, word_counts, strict=True)]

    def name_of(self, row: int) -> str:
        """As `WindowFile.name_of`."""
        return f"{'' if self.source is None else f'{self.source}, '}row {self.first + row} (counted from 0)"

    def put(self, row: int, values: Tensor, start: int = 0) -> None:
        """As `WindowFile.put`."""
        row = torch.from_numpy(self.arrays[row]).view(len(values), -1, self.layout.size)
        values = values.reshape(len(values), -1, self.layout.size)
        row[:, start : start + values.shape[1]] = values


Window = WindowFile | WindowInMemory


@dataclass(frozen=True)
class StoredRow:
    """A row of a finished window: its number, its words, and where its values are in a file."""

    number: int
    words: list[str]
    shape: tuple[int, ...]
    dtype: np.dtype
    file: IO[bytes]
    offset: int

    @property
    def nbytes(self) -> int:
        """The size of its values in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in order, at most `CHUNK_BYTES` at a time."""
        self.file.seek(self.offset)
        left = self.nbytes
        while left:
            data = self.file.read(min(left, CHUNK_BYTES))
            if not data:
                raise ValueError(f"{self.file.name} is shorter than its index says; start again with restart=True")
            left -= len(data)
            yield data

    def array(self) -> np.ndarray:
        """Its values, memory-mapped where there are more than `CHUNK_BYTES`."""
        if self.nbytes > CHUNK_BYTES:
            return np.memmap(self.file.name, self.dtype, "r", self.offset, self.shape)
        return np.frombuffer(b"".join(self.chunks()), self.dtype).reshape(self.shape)


def require_free(output: Path, overwrite: bool) -> None:
    """Refuses to write a file over a folder, or over what is there without `overwrite` (IsADirectoryError,
    FileExistsError)."""
    if output.is_dir():
        raise IsADirectoryError(f"output {str(output)!r} is a folder; give the name of a file")
    if os.path.lexists(output) and not overwrite:
        raise FileExistsError(f"output {str(output)!r} exists; choose another name, or overwrite=True (--overwrite)")


def require_other_file(inputs: Any, output: Path) -> None:
    """Refuses an output that is the file to read, which it would replace (ValueError)."""
    is_file = isinstance(inputs, (str, os.PathLike)) and os.path.exists(inputs)
    if is_file and os.path.exists(output) and os.path.samefile(inputs, output):
        raise ValueError(f"output {str(output)!r} is the input, which would be lost; choose another name")


class PartsFolder:
    """The folder of a corpus's finished windows.

    Args:
        output: the file that they will become; the folder has its name with `.parts` appended.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output.with_name(output.name + ".parts")
        self.manifest_path = self.path / "manifest.json"

    @contextmanager
    def prepared(self, restart: bool) -> Iterator[None]:
        """Acquire the folder for this run alone: a new one, or that of an interrupted run.

        Afterwards the folder stays only if it has a manifest. What a run that had ended did not remove is removed.

        Raises:
            FileExistsError: there is something of that name that is not ours.
            BlockingIOError: another run works in it.
            OSError: no room; with what is left of the work.
        """
        with self._lock():
            if restart or not self.manifest_path.exists() or (self._ended() and not self.in_place()):
                self.clear()
            elif self.in_place():
                self._clear_parts()
            try:
                with self._explaining_full_disks():
                    yield
            finally:
                if not self.manifest_path.exists():
                    self.clear()
                    self._lock_path.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Have the folder locked."""

        def prepare() -> None:
            self._require_own()
            self.path.mkdir(parents=True, exist_ok=True)

        try:
            with locked(self._lock_path, str(self.output), prepare):
                yield
        finally:
            with suppress(OSError):  # there are parts in it, or the next run's lock
                self.path.rmdir()

    @property
    def _lock_path(self) -> Path:
        return self.path / "lock"

    def _require_own(self) -> None:
        """Refuse a folder in which anything is not ours: it would be overwritten or removed."""
        try:
            if self.path.is_symlink():
                raise NotADirectoryError
            foreign = [
                entry.name
                for entry in os.scandir(self.path)
                if not OWN_NAMES.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False)
            ]
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise FileExistsError(f"{self.path} is no folder; move it, or choose another OUTPUT") from None
        if foreign:
            raise FileExistsError(
                f"{self.path} has {foreign[0]!r}, which is no part of an embedding; move it, or choose another OUTPUT"
            )

    @contextmanager
    def _explaining_full_disks(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if self._result() is None:
                self.draft.unlink(missing_ok=True)
            kept = "The finished work is kept: make room" if self.manifest_path.exists() else "Make room"
            raise OSError(
                error.errno, f"no room to write {str(self.output)!r} ({error}). {kept}, and run the same again"
            ) from error

    def agree(self, manifest: dict[str, Any]) -> None:
        """Write what the values depend on, or check that the parts of an interrupted run depend on the same.

        Raises:
            ValueError: the interrupted run had another model, other options or other rows.
        """
        if self.manifest_path.exists():
            require_same(self._read_json(self.manifest_path), manifest, str(self.path))
        self._write_manifest(manifest)

    def _changed(self, manifest: dict[str, Any]) -> list[str]:
        """What differs from the manifest of an interrupted run, if there was one."""
        return changes(self._read_json(self.manifest_path), manifest) if self.manifest_path.exists() else []

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        _replace_text(self.manifest_path, json.dumps(manifest, indent=2) + "\n")

    @property
    def draft(self) -> Path:
        """Where the result is written."""
        return self.path / f"whole{self.output.suffix}"

    def put_in_place(self, **counts: int) -> None:
        """The draft, which is complete, becomes OUTPUT; then the folder is cleared. `counts`: see [`left_over`]."""
        with open(self.draft, "rb+") as file:
            os.fsync(file.fileno())
        result = {**counts, **_identity(self.draft)}
        self._write_manifest(self._read_json(self.manifest_path) | {"result": result})
        os.replace(self.draft, self.output)
        self._clear_parts()
        self.manifest_path.unlink()

    def in_place(self) -> bool:
        """Whether OUTPUT is the result of a run that was killed before it had removed the folder."""
        return (
            self._ended() and os.path.lexists(self.output) and _identity(self.output).items() <= self._result().items()
        )

    def _ended(self) -> bool:
        """Whether a run put its result in place, wherever that is now."""
        return self._result() is not None and not self.draft.exists()

    def _result(self) -> dict[str, Any] | None:
        with suppress(FileNotFoundError, ValueError):
            return self._read_json(self.manifest_path).get("result")
        return None

    def left_over(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """The counts of the result that is in place already, if it depends on just this; its manifest is removed."""
        if not self.in_place():
            return None
        result = None if self._changed(manifest) else self._result()
        self.manifest_path.unlink()
        return result

    def _read_json(self, path: Path) -> dict[str, Any]:
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise self._damaged(path, str(error)) from error
        if not isinstance(value, dict):
            raise self._damaged(path, f"a {type(value).__name__}")
        return value

    def _damaged(self, path: Path, what: str) -> ValueError:
        return ValueError(f"{path} is damaged ({what}); start over with restart=True (--restart)")

    def spooled(self, rows: Any) -> RowSource:
        """Rows that can be iterated only once, stored in a file so that they can be read again."""
        return spool(rows, self.path / "input.jsonl")

    def scratch(self) -> IO[bytes]:
        """A temporary file in the folder; closing it deletes it."""
        return tempfile.TemporaryFile(dir=self.path)

    def finished(self) -> int:
        """The number of complete windows, counted from the first without a gap."""
        number = 0
        while self._file(number, "json").exists():
            number += 1
        return number

    def _file(self, number: int, ending: str) -> Path:
        return self.path / f"{number:06d}.{ending}"

    @contextmanager
    def new_window(
        self, number: int, layout: RowLayout, words: list[list[str]], first: int = 0
    ) -> Iterator[WindowFile]:
        """A window to fill; it is finished when the block ends without an error.

        Args:
            number: index of the window.
            layout: of its rows.
            words: of each row.
            first: the number of its first row.
        """
        counts = [len(row) for row in words]
        with create(self._file(number, "bin"), "b") as file:
            window = WindowFile(file, layout, counts, first)
            window.allocate()
            yield window
            file.flush()
            os.fsync(file.fileno())
        with create(self._file(number, "words"), "t", encoding="ascii") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in words)
            lines.flush()
            os.fsync(lines.fileno())
        self._finish(number, counts, window.state, ("bin", "words"))

    def add_lines(self, number: int, lines: Iterable[str], state: dict[str, Any]) -> None:
        """A finished window of lines of text, each with its end, instead of values."""
        with create(self._file(number, "rows"), "t", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        self._finish(number, [], state, ("rows",))

    def _finish(self, number: int, counts: list[int], state: dict[str, Any], endings: tuple[str, ...]) -> None:
        """Write the index of a window whose files are complete."""
        paths = {ending: self._file(number, ending) for ending in endings}
        files = {ending: [path.stat().st_size, _crc32(path)] for ending, path in paths.items()}
        index = {"words": counts, "state": state, "files": files}
        _replace_text(self._file(number, "json"), json.dumps({**index, OWN_CRC32: _own_crc32(index)}))

    def line_files(self) -> Iterator[Path]:
        """The files of lines of all finished windows in order."""
        for number in range(self.finished()):
            yield self._file(number, "rows")

    def last_state(self) -> dict[str, Any]:
        """The `state` of the last finished window; empty before the first."""
        number = self.finished()
        return self._index(number - 1)["state"] if number else {}

    def _index(self, number: int) -> dict[str, Any]:
        path = self._file(number, "json")
        index = self._read_json(path)
        if (own := index.pop(OWN_CRC32, None)) is None:
            raise ValueError(
                f"{path} has no checksums, as an earlier hf_elmo wrote it: finish it with that, or start over with "
                "restart=True (--restart)"
            )
        if own != _own_crc32(index):
            raise self._damaged(path, "its CRC-32 is not the one that was written")
        return index

    def verify(self, contents: bool = True) -> None:
        """Check that the files of each finished window are as they were written.

        Args:
            contents: whether all their bytes are read, or their sizes only.

        Raises:
            ValueError: a file was cut, changed or removed, or is of a version that recorded no checksums.
        """
        for number in range(self.finished()):
            for ending, (size, crc) in self._index(number)["files"].items():
                path = self._file(number, ending)
                if not path.exists():
                    raise self._damaged(path, "it is missing")
                if (found := path.stat().st_size) != size:
                    raise self._damaged(path, f"{found:,} bytes, not {size:,}")
                if contents and (found := _crc32(path)) != crc:
                    raise self._damaged(path, f"its CRC-32 is {found:08x}, not {crc:08x}")

    def word_counts(self) -> Iterator[int]:
        """The number of words of each row of all finished windows."""
        for number in range(self.finished()):
            yield from self._index(number)["words"]

    def value_files(self) -> Iterator[Path]:
        """The files of values; concatenated they are the values of all rows in order."""
        for number in range(self.finished()):
            yield self._file(number, "bin")

    def rows(self, layout: RowLayout) -> Iterator[StoredRow]:
        """All rows of all finished windows in order."""
        row_number = 0
        for number in range(self.finished()):
            offset, counts = 0, self._index(number)["words"]
            with open(self._file(number, "bin"), "rb") as file:
                for count, words in zip(counts, self._words(number), strict=True):
                    if count != len(words):
                        raise self._damaged(self._file(number, "words"), f"{len(words)} words in a row, not {count}")
                    yield StoredRow(row_number, words, layout.shape(count), layout.dtype, file, offset)
                    offset += layout.nbytes(count)
                    row_number += 1

    def _words(self, number: int) -> Iterator[list[str]]:
        path, rows = self._file(number, "words"), len(self._index(number)["words"])
        try:
            with open(path, encoding="ascii") as lines:
                for _ in range(rows):
                    yield json.loads(next(lines, ""))
                if next(lines, None) is not None:
                    raise ValueError(f"more than {rows} rows")
        except (OSError, ValueError) as error:
            raise self._damaged(path, str(error)) from error

    def clear(self) -> None:
        """Remove what is in the folder, the manifest first: a folder without one has nothing worth keeping."""
        self.manifest_path.unlink(missing_ok=True)
        self._clear_parts()

    def _clear_parts(self) -> None:
        for name in os.listdir(self.path):
            if name not in (self._lock_path.name, self.manifest_path.name) and OWN_NAMES.fullmatch(name):
                (self.path / name).unlink(missing_ok=True)


def _crc32(path: Path) -> int:
    """Of a file. A flipped bit always changes it; SHA-256 takes at least twice as long, up to 5 % of embedding."""
    crc = 0
    with open(path, "rb") as file:
        while data := file.read(CHUNK_BYTES):
            crc = zlib.crc32(data, crc)
    return crc


def _own_crc32(index: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(index).encode())


def _identity(path: Path) -> dict[str, int]:
    """What a file keeps when it is renamed, and loses when it is written."""
    found = os.stat(path, follow_symlinks=False)
    return {"inode": found.st_ino, "bytes": found.st_size, "modified_ns": found.st_mtime_ns}


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is in the manifest of this run, and was not so in that of an earlier one."""
    return [f"{key} was {before.get(key)!r}, now {value!r}" for key, value in now.items() if before.get(key) != value]


def require_same(before: dict[str, Any], now: dict[str, Any], folder: str) -> None:
    """Raise where the manifest of an interrupted run differs from that of this run.

    Raises:
        ValueError: with what was, and what is.
    """
    if changed := changes(before, now):
        raise ValueError(
            f"{folder} has parts of an interrupted run that differs: {'; '.join(changed)}. Resume it with its own "
            "settings, or start over with restart=True (--restart)"
        )


def create(path: Path, kind: str, **options: Any) -> IO[Any]:
    """Open a new file for writing (`kind` "b" or "t") in place of what has its name, and follow no link."""
    path.unlink(missing_ok=True)
    return open(path, f"x{kind}", **options)


def _replace_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    draft = path.with_name(path.name + ".draft")
    with create(draft, "t", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
