"""Files of word vectors, written without loading them into memory: safetensors, npz, hdf5 and Parquet.

safetensors, npz and hdf5 have one array for each row, named by its number (`"0"`, `"1"`, ...): `[words, 2P]`, with all
layers `[layers, words, 2P]`; in hdf5 that is what bilm-tf's `dump_bilm_embeddings` writes, so its readers work. Pooled,
there is one array `embeddings`, `[rows, 2P]` or `[rows, layers, 2P]`. Where rows have names of their own (FASTA), there
is one array for each in any case, with its name. Parquet has the columns `row`, `words` and `embedding` (nested lists
of these shapes), and `id` for the names. A blank row has zero words (`[0, 2P]`); pooled it is all zeros.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, count
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from ..optional import import_optional
from .parts import CHUNK_BYTES, PartsFolder, RowLayout, StoredRow
from .readers import import_pyarrow

SAFETENSORS_HEADER_LIMIT = 100_000_000  # bytes; the limit of the safetensors library
POOLED_NAME = "embeddings"
NAME_BYTES = 60_000  # of an array's name: npz and hdf5 count them, and what stands around them, in 16 bits
ROW_GROUP_BYTES, ROW_GROUP_ROWS = 1 << 25, 10_000  # a row group is in memory, with some copies of it


Names = Iterable[str] | None  # of the rows; `None`: their numbers


def writer_for(output: Path) -> Callable[[Path, PartsFolder, RowLayout, Names], None]:
    """The function that writes a file of this ending, after a check that the library it needs is installed.

    Raises:
        ValueError: unknown ending.
        ImportError: h5py or pyarrow is needed and not installed.
    """
    ending = output.suffix.lower()
    if ending not in _WRITERS:
        raise ValueError(f"output {str(output)!r} has the unknown ending {ending!r}; take one of {', '.join(_WRITERS)}")
    if ending in (".h5", ".hdf5"):
        _import_h5py()
    if ending == ".parquet":
        import_pyarrow("writing Parquet")
    return _WRITERS[ending]


def _import_h5py() -> ModuleType:
    return import_optional("h5py", "writing hdf5", "h5py")


def check_names(output: Path, names: Iterable[str]) -> None:
    """Raise before the work for names of rows that the format cannot hold.

    Raises:
        ValueError: a name that UTF-8 cannot encode, that hdf5 or npz take for a path, would cut or have no room for, or
            that safetensors or npz keep for themselves: of "a" and "a.npy" numpy reads the first for both.
    """
    ending = output.suffix.lower()
    for name in names:
        try:
            size = len(name.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise ValueError(f"a row named {name!r:.80} cannot be written ({error.reason}); rename it") from None
        paths = ending in (".npz", ".h5", ".hdf5")
        unfit = name in (".", "..") or any(character in name for character in "/\\\0") or size > NAME_BYTES
        kept = {".safetensors": name == "__metadata__", ".npz": name.endswith(".npy")}.get(ending, False)
        if (paths and unfit) or kept:
            raise ValueError(f"a row named {name!r:.80} cannot be an array of {ending}; take .parquet, or rename it")


def _named(rows: Iterable[Any], names: Names) -> Iterator[tuple[Any, str]]:
    return zip(rows, map(str, count())) if names is None else zip(rows, names, strict=True)  # noqa: B905, endless


def check_row_count(output: Path, layout: RowLayout, rows: int, named: bool = False) -> None:
    """Raise before the work for what could not be written after it.

    Raises:
        ValueError: too many arrays, one for each row, for the header of a safetensors file.
    """
    smallest_entry = len('"100000":{"dtype":"F32","shape":[9,999],"data_offsets":[10000000,10000000]},')
    if (
        output.suffix.lower() == ".safetensors"
        and (named or not layout.pooled)
        and rows * smallest_entry > SAFETENSORS_HEADER_LIMIT
    ):
        raise ValueError(
            f"safetensors stores about {SAFETENSORS_HEADER_LIMIT // smallest_entry:,} arrays in one file (a header of "
            f"at most 100 MB), not {rows:,}; take .hdf5, .npz or .parquet, pool each row, or split the input"
        )


def write_safetensors(path: Path, parts: PartsFolder, layout: RowLayout, names: Names = None) -> None:
    """The header, with the offsets of each array, then the values as they are in the parts."""
    dtype = {4: "F32", 2: "F16"}[layout.dtype.itemsize]
    with open(path, "wb") as file:
        file.write(b"\0" * 8 + b"{")
        length = 1
        for entry in _safetensors_entries(parts, layout, dtype, names):
            length += file.write(entry)
        padding = b" " * (-(length + 1) % 8)
        length += file.write(b"}" + padding)
        if length > SAFETENSORS_HEADER_LIMIT:
            raise ValueError(
                f"the safetensors header takes {length:,} bytes, more than the {SAFETENSORS_HEADER_LIMIT:,} allowed: "
                f"too many rows. Nothing is lost: rename {parts.path} to NAME.hdf5.parts, and run again with the "
                "output NAME.hdf5"
            )
        for data in _all_bytes(parts):
            file.write(data)
        file.seek(0)
        file.write(struct.pack("<Q", length))


def _safetensors_entries(parts: PartsFolder, layout: RowLayout, dtype: str, names: Names) -> Iterator[bytes]:
    if layout.pooled and names is None:
        shapes = iter([(_pooled_shape(parts, layout), POOLED_NAME)])
    else:
        shapes = _named(map(layout.shape, parts.word_counts()), names)
    begin, separator = 0, ""
    for shape, name in shapes:
        end = begin + math.prod(shape) * layout.dtype.itemsize
        value = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        yield f"{separator}{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}".encode()
        begin, separator = end, ","


def _pooled_shape(parts: PartsFolder, layout: RowLayout) -> tuple[int, ...]:
    return (sum(1 for _ in parts.word_counts()), *layout.shape(0))


def _all_bytes(parts: PartsFolder) -> Iterator[bytes]:
    for path in parts.value_files():
        with open(path, "rb") as file:
            while data := file.read(CHUNK_BYTES):
                yield data


def write_npz(path: Path, parts: PartsFolder, layout: RowLayout, names: Names = None) -> None:
    """An uncompressed zip file of `.npy` members, as `numpy.savez` writes it."""
    with open(path, "wb") as file, parts.scratch() as directory:
        archive = _ZipStream(file, directory)
        if layout.pooled and names is None:
            _add_npy(archive, POOLED_NAME, _pooled_shape(parts, layout), layout, _all_bytes(parts))
        else:
            for row, name in _named(parts.rows(layout), names):
                _add_npy(archive, name, row.shape, layout, row.chunks())
        archive.finish()


def _add_npy(
    archive: _ZipStream, name: str, shape: tuple[int, ...], layout: RowLayout, chunks: Iterator[bytes]
) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": layout.dtype.str, "fortran_order": False, "shape": shape})
    size = header.tell() + math.prod(shape) * layout.dtype.itemsize
    archive.add(f"{name}.npy", size, chain([header.getvalue()], chunks))


class _ZipStream:
    """A zip file written member by member, uncompressed, with 64-bit sizes throughout.

    `zipfile` of the standard library keeps some hundred bytes in memory for each member until the end; here the central
    directory is collected in a file, so that a million members take no more memory than one. All dates
    are the earliest possible, so the same members give the same bytes. (PKWARE's APPNOTE.TXT, 4.3 and 4.5.3.)
    """

    VERSION, EARLIEST_DATE, ZIP64, IN_ZIP64 = 45, 0x21, 1, 0xFFFFFFFF

    def __init__(self, file: IO[bytes], directory: IO[bytes]) -> None:
        self.file, self.directory, self.members = file, directory, 0

    def add(self, name: str, size: int, chunks: Iterable[bytes]) -> None:
        """Write a member of `size` bytes; its header gets the checksum when all have been written."""
        encoded, start, checksum = name.encode("utf-8"), self.file.tell(), 0
        self._local_header(encoded, size, checksum)
        for data in chunks:
            checksum = zlib.crc32(data, checksum)
            self.file.write(data)
        end = self.file.tell()
        self.file.seek(start)
        self._local_header(encoded, size, checksum)
        self.file.seek(end)
        both = self.IN_ZIP64, self.IN_ZIP64
        fixed = (
            self.VERSION,
            self.VERSION,
            self._flags(encoded),
            0,
            0,
            self.EARLIEST_DATE,
            checksum,
            *both,
            len(encoded),
            28,
        )
        self.directory.write(struct.pack("<4s6H3I5H2I", b"PK\1\2", *fixed, 0, 0, 0, 0, self.IN_ZIP64))
        self.directory.write(encoded + struct.pack("<2H3Q", self.ZIP64, 24, size, size, start))
        self.members += 1

    @staticmethod
    def _flags(name: bytes) -> int:
        return 0 if name.isascii() else 0x800  # the name is UTF-8

    def _local_header(self, name: bytes, size: int, checksum: int) -> None:
        both = self.IN_ZIP64, self.IN_ZIP64
        fixed = self.VERSION, self._flags(name), 0, 0, self.EARLIEST_DATE, checksum, *both, len(name), 20
        self.file.write(struct.pack("<4s5H3I2H", b"PK\3\4", *fixed))
        self.file.write(name + struct.pack("<2H2Q", self.ZIP64, 16, size, size))

    def finish(self) -> None:
        """Write the central directory and its end record."""
        if not self.members:  # numpy takes a file for an empty archive only where it begins with the plain end record
            self.file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0))
            return
        start, length = self.file.tell(), self.directory.tell()
        self.directory.seek(0)
        shutil.copyfileobj(self.directory, self.file)
        counts = self.members, self.members, length, start
        self.file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, self.VERSION, self.VERSION, 0, 0, *counts))
        self.file.write(struct.pack("<4sIQI", b"PK\6\7", 0, start + length, 1))
        self.file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, self.IN_ZIP64, self.IN_ZIP64, 0))


def write_hdf5(path: Path, parts: PartsFolder, layout: RowLayout, names: Names = None) -> None:
    """One dataset for each row, as in bilm-tf's `dump_bilm_embeddings`; pooled, one dataset for all."""
    h5py = _import_h5py()
    with open(path, "wb+", buffering=0) as whole:
        file = _FileOfHdf5(whole)
        # The format of HDF5 1.8 (2008) and later; with the oldest one, memory grows with the number of datasets.
        with h5py.File(file, "w", libver=("v108", "v108")) as archive:
            for _ in _add_datasets(archive, parts, layout, names):
                if file.error is not None:
                    break
        if file.error is not None:
            raise file.error


def _add_datasets(archive: Any, parts: PartsFolder, layout: RowLayout, names: Names) -> Iterator[None]:
    """Writes the rows; yields after each, or after some."""
    if names is not None or not layout.pooled:
        for row, name in _named(parts.rows(layout), names):
            archive.create_dataset(name, data=row.array())
            yield
        return
    pooled = archive.create_dataset(POOLED_NAME, _pooled_shape(parts, layout), layout.dtype)
    at = 0
    for data in map(_whole_rows(layout), parts.value_files()):
        for block in data:
            pooled[at : at + len(block)] = block
            at += len(block)
            yield


class _FileOfHdf5:
    """The file under HDF5, which loses values or ends the process where a write fails: errors are kept from it.

    Args:
        file: open for reading and writing, without a buffer.

    Attributes:
        error: what the first failed writing raised. Nothing was written after it.
    """

    def __init__(self, file: io.FileIO) -> None:
        self.file, self.error = file, None
        self.seek, self.tell, self.read, self.readinto = file.seek, file.tell, file.read, file.readinto

    def write(self, data: memoryview) -> int:
        """All of `data`, as far as HDF5 knows."""
        left = memoryview(data).cast("B")
        try:
            while len(left) and self.error is None:
                left = left[self.file.write(left) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int) -> int:
        """To `size` bytes."""
        try:
            return size if self.error is not None else self.file.truncate(size)
        except OSError as error:
            self.error = error
            return size

    def flush(self) -> None:
        """There is no buffer."""


def _whole_rows(layout: RowLayout) -> Callable[[Path], Iterator[np.ndarray]]:
    """A reader of a pooled part file, which yields `[rows, ...]`, about `CHUNK_BYTES` at a time."""
    row_bytes = layout.nbytes(0)
    rows_at_once = max(1, CHUNK_BYTES // row_bytes)

    def read(path: Path) -> Iterator[np.ndarray]:
        with open(path, "rb") as file:
            while data := file.read(rows_at_once * row_bytes):
                yield np.frombuffer(data, layout.dtype).reshape(-1, *layout.shape(0))

    return read


def write_parquet(path: Path, parts: PartsFolder, layout: RowLayout, names: Names = None) -> None:
    """Columns `row`, `words`, `embedding`, and `id` with names.

    A row group holds at most about 32 MB or 10,000 rows, and at least one.
    """
    pyarrow = import_pyarrow("writing Parquet")
    schema = pyarrow.schema(
        [
            ("row", pyarrow.int64()),
            ("words", pyarrow.list_(pyarrow.string())),
            ("embedding", arrow_type(pyarrow, layout)),
            *([] if names is None else [("id", pyarrow.string())]),
        ]
    )
    with pyarrow.parquet.ParquetWriter(path, schema, use_dictionary=["words"], write_statistics=["row"]) as writer:
        for group in _row_groups(_named(parts.rows(layout), names)):
            writer.write_batch(_record_batch(pyarrow, schema, group, layout))


def arrow_type(pyarrow: Any, layout: RowLayout) -> Any:
    """The Arrow type of a row's values: vectors of a fixed size, in a list of a row's words, in a list of layers."""
    vector = pyarrow.list_(pyarrow.from_numpy_dtype(layout.dtype), layout.size)
    of_words = vector if layout.pooled else pyarrow.list_(vector)
    return of_words if layout.layers is None else pyarrow.list_(of_words, layout.layers)


def arrow_array(pyarrow: Any, values: np.ndarray, word_counts: Iterable[int], layout: RowLayout) -> Any:
    """The values of rows as an Arrow array of [`arrow_type`], in the same memory.

    Args:
        values: of all rows, concatenated and flat.
        word_counts: of each row.
    """
    array = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values), layout.size)
    if not layout.pooled:
        lists_a_row = 1 if layout.layers is None else layout.layers
        counts = chain.from_iterable([count] * lists_a_row for count in word_counts)
        array = pyarrow.ListArray.from_arrays(np.array([0, *accumulate(counts)], np.int32), array)
    if layout.layers is not None:
        array = pyarrow.FixedSizeListArray.from_arrays(array, layout.layers)
    return array


def _row_groups(rows: Iterator[tuple[StoredRow, str]]) -> Iterator[list[tuple[int, list[str], np.ndarray, str]]]:
    group, size = [], 0
    for row, name in rows:
        if group and (size + row.nbytes > ROW_GROUP_BYTES or len(group) == ROW_GROUP_ROWS):
            yield group
            group, size = [], 0
        group.append((row.number, row.words, row.array(), name))
        size += row.nbytes
    if group:
        yield group


def _record_batch(
    pyarrow: Any, schema: Any, group: list[tuple[int, list[str], np.ndarray, str]], layout: RowLayout
) -> Any:
    numbers, words, arrays, names = zip(*group, strict=True)
    # One long row stays memory-mapped; several short ones are concatenated.
    flat = arrays[0].reshape(-1) if len(arrays) == 1 else np.concatenate([array.reshape(-1) for array in arrays])
    values = arrow_array(pyarrow, flat, [len(row) for row in words], layout)
    columns = [pyarrow.array(numbers, pyarrow.int64()), pyarrow.array(words, schema.field("words").type), values]
    columns += [pyarrow.array(names, pyarrow.string())][: len(schema) - len(columns)]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


_WRITERS = {
    ".safetensors": write_safetensors,
    ".npz": write_npz,
    ".hdf5": write_hdf5,
    ".h5": write_hdf5,
    ".parquet": write_parquet,
}
