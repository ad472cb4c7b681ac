"""The parts of a corpus while it is embedded: finished windows of rows in a folder, so that work goes on after a stop.

Beside an OUTPUT stands `OUTPUT.parts/` until OUTPUT is written: `manifest.json` (what is computed from what), and for
each finished window of rows `N.bin` (values, row after row), `N.words` (JSON lines, the words of a row) and `N.json`
(the number of words of each row). `N.json` comes last and by renaming, so a window that has one is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from .readers import RowSource, spool

CHUNK_BYTES = 1 << 20  # of values, held at once while files are put together


@dataclass(frozen=True)
class RowLayout:
    """Shape and type of what belongs to one row.

    Args:
        layers: how many layers of a word are kept, or `None` for one vector a word without an axis of layers.
        size: length of a vector, 2P.
        pooled: whether a row has one vector, not one for each word.
        dtype: `float32` or `float16`.
    """

    layers: int | None
    size: int
    pooled: bool
    dtype: np.dtype

    def shape(self, words: int) -> tuple[int, ...]:
        """`[layers, words, 2P]`, without the axes that are not there."""
        lead = () if self.layers is None else (self.layers,)
        return (*lead, self.size) if self.pooled else (*lead, words, self.size)

    def nbytes(self, words: int) -> int:
        """Bytes of a row of so many words."""
        return int(np.prod(self.shape(words), dtype=np.int64)) * self.dtype.itemsize


class WindowFile:
    """The values of a window of rows in a file, filled in any order."""

    def __init__(self, file: IO[bytes], layout: RowLayout, word_counts: list[int]) -> None:
        self.file, self.layout, self.word_counts = file, layout, word_counts
        self.offsets = np.cumsum([0, *map(layout.nbytes, word_counts)]).tolist()
        self.state: dict[str, Any] = {}

    def allocate(self) -> None:
        """Make the file as long as it will be; what nobody writes (blank rows) stays zero."""
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
    """As `WindowFile`, with the values in `arrays`, one for each row."""

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
    """One row of the finished corpus: its number, its words, and its values still in the file."""

    number: int
    words: list[str]
    shape: tuple[int, ...]
    dtype: np.dtype
    file: IO[bytes]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in order, never many at a time, however long the row."""
        self.file.seek(self.offset)
        left = self.nbytes
        while left:
            data = self.file.read(min(left, CHUNK_BYTES))
            if not data:
                raise ValueError(f"{self.file.name} is shorter than its index says; start again with restart=True")
            left -= len(data)
            yield data

    def array(self) -> np.ndarray:
        """Its values, mapped from the file where there are many."""
        if self.nbytes > CHUNK_BYTES:
            return np.memmap(self.file.name, self.dtype, "r", self.offset, self.shape)
        return np.frombuffer(b"".join(self.chunks()), self.dtype).reshape(self.shape)


class PartsFolder:
    """The folder of a corpus's finished windows.

    Args:
        output: the file that the parts will become; the folder is `output` with `.parts` behind its name.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output.with_name(output.name + ".parts")
        self.manifest_path = self.path / "manifest.json"

    @contextmanager
    def prepared(self, restart: bool) -> Iterator[None]:
        """Make the folder, or find the one that an earlier run left; inside the block comes all that may be refused.

        A folder made here is removed again if the block fails.

        Raises:
            FileExistsError: there is such a folder, and it is not ours.
        """
        if self.path.exists() and any(self.path.iterdir()) and not self.manifest_path.exists():
            raise FileExistsError(
                f"{self.path} exists and holds no parts of an embedding; move it, or choose another OUTPUT"
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
        """Note what the parts are computed from, or check that those found are computed from the same.

        Raises:
            ValueError: an earlier run, stopped half way, had another model, other options or other rows.
        """
        before = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        changed = [
            f"{key} was {before.get(key)!r}, now {value!r}"
            for key, value in manifest.items()
            if before.get(key) != value
        ]
        if before and changed:
            raise ValueError(
                f"{self.path} holds parts of an earlier run that differs: {'; '.join(changed)}. Run again as then to "
                "go on, or start anew with restart=True (--restart)"
            )
        self._write_manifest(manifest)

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        _replace_text(self.manifest_path, json.dumps(manifest, indent=2) + "\n")

    def spooled(self, rows: Any) -> RowSource:
        """Rows that can be read only once, written down so that they can be read again."""
        return spool(rows, self.path / "input.jsonl")

    def scratch(self) -> IO[bytes]:
        """A file for what is needed again soon; it is gone when closed."""
        import tempfile

        return tempfile.TemporaryFile(dir=self.path)

    def finished(self) -> int:
        """How many windows, from the first on without a gap, are whole."""
        number = 0
        while self._file(number, "json").exists():
            number += 1
        return number

    def _file(self, number: int, ending: str) -> Path:
        return self.path / f"{number:06d}.{ending}"

    @contextmanager
    def new_window(self, number: int, layout: RowLayout, words: list[list[str]]) -> Iterator[WindowFile]:
        """A window to fill; it counts as finished when the block ends without an error.

        Args:
            number: of the window, from 0.
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
        """The `state` that the last finished window was left with; empty before the first."""
        number = self.finished()
        return self._index(number - 1)["state"] if number else {}

    def _index(self, number: int) -> dict[str, Any]:
        return json.loads(self._file(number, "json").read_text(encoding="utf-8"))

    def word_counts(self) -> Iterator[int]:
        """The number of words of each row of all finished windows."""
        for number in range(self.finished()):
            yield from self._index(number)["words"]

    def value_files(self) -> Iterator[Path]:
        """The files of values; one behind the other they are all rows in order."""
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
    """Write a small file so that it is there whole or not at all."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
