"""Vectors that stay in memory: as NumPy arrays, or as an Arrow column on the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .engine import CorpusEncoder
from .parts import RowLayout, WindowInMemory
from .readers import import_pyarrow
from .writers import arrow_array, arrow_type


@dataclass
class EmbeddedRows:
    """Rows and their vectors in memory.

    Args:
        layout: of a row's vectors.
        words: of each row.
        windows: the vectors of all rows in order.
    """

    layout: RowLayout
    words: list[list[str]]
    windows: list[WindowInMemory]

    @classmethod
    def of(
        cls,
        layout: RowLayout,
        encoder: CorpusEncoder,
        windows: Iterable[list[list[str]]],
        first: int = 0,
        source: str | None = None,
    ) -> EmbeddedRows:
        """Encodes windows of rows, each row a list of words; messages count them from `first` on in `source`."""
        embedded = cls(layout, [], [])
        for words in windows:
            window = WindowInMemory(layout, [len(row) for row in words], first + len(embedded.words), source)
            encoder.encode(words, window)
            embedded.words += words
            embedded.windows.append(window)
        return embedded

    def arrays(self) -> list[np.ndarray] | np.ndarray:
        """As [`embed`] returns them: an array a row, or pooled one array; without copies, but for several windows of
        pooled rows."""
        if not self.layout.pooled:
            return [array for window in self.windows for array in window.arrays]
        values = [window.values for window in self.windows] or [np.zeros(0, self.layout.dtype.newbyteorder("="))]
        return (values[0] if len(values) == 1 else np.concatenate(values)).reshape(-1, *self.layout.shape(0))

    def arrow(self) -> Any:
        """A `pyarrow.ChunkedArray` of [`arrow_type`], in the memory into which the vectors were computed: a chunk for
        each window, of one row for each row."""
        pyarrow = import_pyarrow("vectors in Arrow's memory")
        chunks, row = [], 0
        for window in self.windows:
            counts = [len(words) for words in self.words[row : row + len(window.arrays)]]
            chunks.append(arrow_array(pyarrow, window.values, counts, self.layout))
            row += len(counts)
        return pyarrow.chunked_array(chunks, arrow_type(pyarrow, self.layout))
