"""The folder of finished windows of rows, from which an interrupted embedding resumes.

`OUTPUT.parts/` exists beside OUTPUT until OUTPUT is written: `manifest.json` (everything that the values depend on),
and for each finished window of rows `N.bin` (the values of the rows, concatenated), `N.words` (JSON lines, the words of
each row) and `N.json` (the number of words of each row). `N.json` is written last and by renaming, so a window that has
one is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from .readers import RowSource, spool

CHUNK_BYTES = 1 << 20  # of values, in memory at once while the parts are assembled


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

    def nbytes(self, words: int) -> int:
        """Bytes of a row with `words` words."""
        return int(np.prod(self.shape(words), dtype=np.int64)) * self.dtype.itemsize


class WindowFile:
    """The values of a window of rows in a file, filled in any order."""

    def __init__(self, file: IO[bytes], layout: RowLayout, word_counts: list[int]) -> None:
        self.file, self.layout, self.word_counts = file, layout, word_counts
        self.offsets = np.cumsum([0, *map(layout.nbytes, word_counts)]).tolist()
        self.state: dict[str, Any] = {}

    def allocate(self) -> None:
        """Extend the file to its final size; what is not written later (blank rows) is zero."""
        if self.offsets[-1]:
            self.file.seek(self.offsets[-1] - 1)
            self.file.write(b"\0")

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
    """As [`WindowFile`], with the values in `arrays`, one for each row."""

    def __init__(self, layout: RowLayout, word_counts: list[int]) -> None:
        ends = np.cumsum([layout.nbytes(count) // layout.dtype.itemsize for count in word_counts])
        rows = np.split(np.zeros(ends[-1], layout.dtype.newbyteorder("=")), ends[:-1])
        self.arrays = [row.reshape(layout.shape(count)) for row, count in zip(rows, word_counts, strict=True)]
        self.size = layout.size

    def put(self, row: int, values: Tensor, start: int = 0) -> None:
        """As `WindowFile.put`."""
        row = torch.from_numpy(self.arrays[row]).view(len(values), -1, self.size)
        values = values.reshape(len(values), -1, self.size)
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
        """Create the folder, or take over that of an interrupted run.

        A folder created here is removed again if the block fails.

        Raises:
            FileExistsError: there is a folder of that name that is not one of ours.
        """
        if self.path.exists() and any(self.path.iterdir()) and not self.manifest_path.exists():
            raise FileExistsError(
                f"{self.path} exists and has no parts of an embedding; move it, or choose another OUTPUT"
            )
        if restart:
            self.remove()
        new = not self.manifest_path.exists()
        if new:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write_manifest({})
        try:
            yield
        except BaseException:
            if new:
                self.remove()
            raise

    def agree(self, manifest: dict[str, Any]) -> None:
        """Write what the values depend on, or check that the parts of an interrupted run depend on the same.

        Raises:
            ValueError: the interrupted run had another model, other options or other rows.
        """
        before = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        changed = [
            f"{key} was {before.get(key)!r}, now {value!r}"
            for key, value in manifest.items()
            if before.get(key) != value
        ]
        if before and changed:
            raise ValueError(
                f"{self.path} has parts of an interrupted run that differs: {'; '.join(changed)}. Resume it with its "
                "own settings, or start over with restart=True (--restart)"
            )
        self._write_manifest(manifest)

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        _replace_text(self.manifest_path, json.dumps(manifest, indent=2) + "\n")

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
    def new_window(self, number: int, layout: RowLayout, words: list[list[str]]) -> Iterator[WindowFile]:
        """A window to fill; it is finished when the block ends without an error.

        Args:
            number: index of the window.
            layout: of its rows.
            words: of each row.
        """
        counts = [len(row) for row in words]
        with open(self._file(number, "bin"), "wb") as file:
            window = WindowFile(file, layout, counts)
            window.allocate()
            yield window
            file.flush()
            os.fsync(file.fileno())
        with open(self._file(number, "words"), "w", encoding="ascii") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in words)
        _replace_text(self._file(number, "json"), json.dumps({"words": counts, "state": window.state}))

    def last_state(self) -> dict[str, Any]:
        """The `state` of the last finished window; empty before the first."""
        number = self.finished()
        return self._index(number - 1)["state"] if number else {}

    def _index(self, number: int) -> dict[str, Any]:
        return json.loads(self._file(number, "json").read_text(encoding="utf-8"))

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
            offset = 0
            with (
                open(self._file(number, "bin"), "rb") as file,
                open(self._file(number, "words"), encoding="ascii") as lines,
            ):
                for line in lines:
                    words = json.loads(line)
                    yield StoredRow(row_number, words, layout.shape(len(words)), layout.dtype, file, offset)
                    offset += layout.nbytes(len(words))
                    row_number += 1

    def remove(self) -> None:
        """Delete the folder, if it is there."""
        if self.path.exists():
            shutil.rmtree(self.path)


def _replace_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
