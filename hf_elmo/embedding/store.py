"""The folder of finished work from which an interrupted run resumes, and the result that is made from it.

A run writes shards. Each has the vectors of a window of rows, or lines of text, and is written under a temporary name
and then renamed, so every shard is whole. The manifest has everything that the shards depend on; a run with another
manifest is refused. Names of all other files begin with a dot, so that readers of Parquet read the folder as one table.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import uuid
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub.utils import WeakFileLock
from safetensors import safe_open
from safetensors.numpy import save_file

from ..extras import extra_needed
from ..text import NamedRow, Row
from .engine import RowLayout, make_mapped_array

MANIFEST, LOCK = ".manifest.json", ".lock"
LOCK_SECONDS = 1.0  # how long a run waits for the lock of another run
PARQUET_OPTIONS = {"use_dictionary": ["path", "words"], "write_statistics": ["row"]}
ROW_GROUP_BYTES, ROW_GROUP_ROWS = 1 << 25, 10_000  # the most in a row group, which readers hold in memory
POOLED = "{} has a vector for each row, but one for each word is needed: embed without pooling"
ROWS_READ = 1000  # rows of a file of vectors that are in memory together
StoredRow = tuple[int, list[str] | None, np.ndarray]  # a row's number, its words if the format has them, its vectors
SENTENCES_CHARACTERS = 1 << 28  # HDF5 holds `sentence_to_index` up to this size, because it is made in memory
SAFETENSORS_ROWS = 1_200_000  # more arrays would not fit into the header, which has at most 100 MB


class ShardStore:
    """A folder of shards.

    Args:
        folder: a path, or an address of fsspec.
        ending: the ending of the shards' names: `".arrow"`, `".parquet"`, or any other ending for lines of text.
    """

    def __init__(self, folder: str | os.PathLike, ending: str) -> None:
        self.filesystem, self.path = url_to_fs(os.fspath(folder))
        self.ending = ending

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine's file system."""
        return isinstance(self.filesystem, LocalFileSystem)

    @contextmanager
    def opened(self, manifest: dict[str, Any], overwrite: bool = False, restart: bool = False) -> Iterator[None]:
        """Use the folder for this run alone. It must be new, or that of an interrupted run with the same manifest.

        Args:
            manifest: everything that the shards depend on, JSON-serializable.
            overwrite: remove what a finished run left.
            restart: remove what an interrupted run left.

        Raises:
            FileExistsError: the folder has the result of a finished run, or other files.
            TimeoutError: another run uses the folder. (Only a local file system has locks.)
            ValueError: the interrupted run had another manifest.
        """
        self.filesystem.makedirs(self.path, exist_ok=True)
        with WeakFileLock(os.path.join(self.path, LOCK), timeout=LOCK_SECONDS) if self.is_local else nullcontext():
            manifest = json.loads(json.dumps(manifest))
            before = self._read_manifest()
            finished = before is not None and before.pop("finished", None)
            if (before is None and self.names()) or (finished and not overwrite):
                raise FileExistsError(f"{self.path} exists: choose another output, or --overwrite a finished result")
            if finished or restart:
                self.remove(self.names())
            elif before not in (None, manifest) and self.names():
                other = [name for name in {**before, **manifest} if before.get(name) != manifest.get(name)]
                raise ValueError(
                    f"{self.path} has work of an interrupted run that differs in {', '.join(other)}; resume that run "
                    "with its settings, or discard it with restart=True (--restart)"
                )
            self._write_manifest(manifest)
            yield
        if self.is_local and os.path.isdir(self.path) and set(os.listdir(self.path)) <= {LOCK}:
            shutil.rmtree(self.path, ignore_errors=True)

    def names(self) -> list[str]:
        """The names of the files in the folder that do not begin with a dot, in alphabetical order."""
        names = (os.path.basename(path) for path in self.filesystem.ls(self.path, detail=False, refresh=True))
        return sorted(name for name in names if not name.startswith("."))

    def write(self, name: str, content: pyarrow.Table | Iterable[str]) -> None:
        """Add a shard."""

        def write(file: IO[bytes]) -> None:
            if self.ending == ".arrow":
                with pyarrow.ipc.new_file(file, content.schema) as writer:
                    writer.write_table(content)
            elif self.ending == ".parquet":
                pyarrow.parquet.write_table(content, file, **PARQUET_OPTIONS)
            else:
                file.writelines(line.encode() for line in content)

        self._replace(name + self.ending, write)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files of the folder."""
        for name in names:
            self.filesystem.rm_file(f"{self.path}/{name}")

    def finish(self, **counts: int) -> None:
        """Mark the run as finished; for a folder that is itself the result."""
        self._write_manifest({**self._read_manifest(), "finished": counts})

    def become(self, output: Path, write: Callable[[Path], None]) -> None:
        """Write the result under another name, rename it to `output`, and remove the folder, the manifest last."""
        draft = Path(self.path, f".result{output.suffix}")
        write(draft)
        os.replace(draft, output)
        self.remove(self.names())
        shutil.rmtree(self.path, ignore_errors=True)  # Windows keeps the lock, an open file, until `opened` ends

    def _replace(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        draft = f"{self.path}/.{name}.{uuid.uuid4().hex}"
        with self.filesystem.open(draft, "wb") as file:
            write(file)
        self.filesystem.mv(draft, f"{self.path}/{name}")

    def _read_manifest(self) -> dict[str, Any] | None:
        path = f"{self.path}/{MANIFEST}"
        return json.loads(self.filesystem.cat_file(path)) if self.filesystem.exists(path) else None

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        self._replace(MANIFEST, lambda file: file.write(json.dumps(manifest, indent=2).encode()))


def require_free(output: Path, inputs: Any, overwrite: bool) -> None:
    """Raises ValueError if a result would replace its input, and FileExistsError if it would replace another file
    without `overwrite`."""
    is_file = isinstance(inputs, (str, os.PathLike)) and os.path.exists(inputs)
    if is_file and os.path.exists(output) and os.path.samefile(inputs, output):
        raise ValueError(f"output {str(output)!r} is the input; choose another name")
    if output.is_dir() or (os.path.lexists(output) and not overwrite):
        raise FileExistsError(f"output {str(output)!r} exists; choose another name or overwrite=True (--overwrite)")


# -- results in one file -----------------------------------------------------------------------------------------------


def require_writable(output: Path, layout: RowLayout, names: list[str] | None, rows: int) -> None:
    """Raises ValueError, before the work, if the result could not be written or read; `names` are the rows' names."""
    if output.suffix.lower() not in FORMATS:
        raise ValueError(f"output {str(output)!r} must end in one of {', '.join(FORMATS)}")
    for name, rows_of_name in Counter(names or ()).most_common(1):
        if rows_of_name > 1:
            raise ValueError(f"{rows_of_name} sequences are named {name!r}, but each needs its own name: rename them")
    if output.suffix.lower() in (".hdf5", ".h5"):
        with extra_needed():
            import h5py  # noqa: F401, an error now instead of after the work

        groups = {name[: slash.start()] for name in names or () for slash in re.finditer("/", name)}
        if wrong := [name for name in names or () if name in groups or {"", "."}.intersection(name.split("/"))]:
            raise ValueError(f"HDF5 cannot name an array {wrong[0]!r} ('/' separates groups): use .npz or .parquet")
    if output.suffix.lower() == ".safetensors" and rows > SAFETENSORS_ROWS and (names or not layout.pooled):
        raise ValueError(f"output {str(output)!r} cannot hold {rows:,} arrays: use .hdf5, .npz or .parquet")


def export(store: ShardStore, layout: RowLayout, num_rows: int, draft: Path, rows: Iterable[Row]) -> None:
    """Write the rows of a store into one file. The shards are mapped into memory instead of being read at once."""
    tables = map(_mapped, (f"{store.path}/{name}" for name in store.names()))
    write = FORMATS[draft.suffix.lower()]
    if write is _write_parquet:
        _write_parquet(draft, tables, layout)
    elif write is _write_hdf5:
        _write_hdf5(draft, _arrays(tables, layout, num_rows, store.path), rows)
    else:
        write(draft, _arrays(tables, layout, num_rows, store.path))


def _mapped(path: str) -> pyarrow.Table:
    with pyarrow.memory_map(path) as file:
        return pyarrow.ipc.open_file(file).read_all()


def _arrays(tables: Iterator[pyarrow.Table], layout: RowLayout, rows: int, folder: str) -> Iterator[tuple[str, Any]]:
    """The names and arrays of a file: one array for each row, named by the row's number or name; or, if rows are pooled
    and have no names, one array `embeddings`."""
    pooled = None
    for table in tables:
        values = table["embedding"].chunk(0)
        while not pyarrow.types.is_floating(values.type):
            values = values.values
        counts = pyarrow.compute.list_value_length(table["words"]).to_numpy()
        arrays = layout.split(values.to_numpy(), counts.tolist())
        if "id" in table.column_names or not layout.pooled:
            names = table["id" if "id" in table.column_names else "row"].to_pylist()
            yield from zip(map(str, names), arrays, strict=True)
        else:
            if pooled is None:
                pooled = make_mapped_array(folder, layout.dtype, (rows, *layout.shape(0)))
            first = table["row"][0].as_py()
            pooled[first : first + len(arrays)] = values.to_numpy().reshape(-1, *layout.shape(0))
    if layout.pooled and (pooled is not None or rows == 0):
        yield "embeddings", np.zeros((0, *layout.shape(0)), layout.dtype) if pooled is None else pooled


def holds_vectors(path: str | os.PathLike) -> bool:
    """Whether a file has the format of vectors that `embed` writes, instead of text."""
    suffix = Path(path).suffix.lower()
    if suffix != ".parquet":
        return suffix in FORMATS
    return os.path.exists(path) and {"words", "embedding"} <= set(pyarrow.parquet.read_schema(path).names)


def read_vectors(path: str | os.PathLike) -> tuple[int | None, Iterator[list[StoredRow]]]:
    """The number of layers in a file of word vectors that `embed` wrote (`None` without an axis of layers), and its
    rows, some at a time.

    Raises:
        ValueError: the file has one vector for each row (pooled).
    """
    read = _read_parquet if Path(path).suffix.lower() == ".parquet" else _read_arrays
    chunks = read(Path(path))
    first = next(chunks, [])
    shapes = [vectors.shape for _, _, vectors in first]
    if any(len(shape) < 2 for shape in shapes):
        raise ValueError(POOLED.format(path))
    return shapes[0][0] if shapes and len(shapes[0]) == 3 else None, chain([first], chunks)


def _read_parquet(path: Path) -> Iterator[list[StoredRow]]:
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_READ, columns=["row", "words", "embedding"]):
            words, vectors = batch["words"].to_pylist(), batch["embedding"]
            sizes = []
            while not pyarrow.types.is_floating(vectors.type):
                is_fixed = pyarrow.types.is_fixed_size_list(vectors.type)
                sizes.append(vectors.type.list_size if is_fixed else None)
                vectors = vectors.flatten()
            layers = sizes[0] if len(sizes) == 2 + (None in sizes) else None
            layout = RowLayout(layers, sizes[-1], None not in sizes, "")
            arrays = layout.split(vectors.to_numpy(), map(len, words))
            yield list(zip(batch["row"].to_pylist(), words, arrays, strict=True))


def _read_arrays(path: Path) -> Iterator[list[StoredRow]]:
    """The arrays of the other formats, which hold no words; a row is numbered by its name or, in FASTA, its place."""
    suffix = path.suffix.lower()
    with _open_arrays(path) as file:
        names = sorted(set(file.keys()) - {"sentence_to_index"}, key=lambda name: (len(name), name))
        if names == ["embeddings"]:
            raise ValueError(POOLED.format(path))
        get = file.get_tensor if suffix == ".safetensors" else lambda name: file[name][()]
        for start in range(0, len(names), ROWS_READ):
            chunk = enumerate(names[start : start + ROWS_READ], start)
            yield [(int(name) if name.isdecimal() else place, None, get(name)) for place, name in chunk]


def _open_arrays(path: Path) -> Any:
    if path.suffix.lower() == ".safetensors":
        return safe_open(path, "numpy")
    if path.suffix.lower() == ".npz":
        return np.load(path)
    with extra_needed():
        import h5py
    return h5py.File(path)


def _write_npz(path: Path, arrays: Iterator[tuple[str, np.ndarray]]) -> None:
    """Write the arrays as `numpy.savez` does, one at a time."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)


def _write_hdf5(path: Path, arrays: Iterator[tuple[str, np.ndarray]], rows: Iterable[Row]) -> None:
    """Write a dataset for each array, as bilm-tf's `dump_bilm_embeddings` does, and AllenNLP's `sentence_to_index`:
    JSON of the number of each sentence (of rows without names, up to `SENTENCES_CHARACTERS`)."""
    with extra_needed():
        import h5py

    index: dict[str, str] = {}
    room = SENTENCES_CHARACTERS
    for number, row in enumerate(rows):
        sentence = row.strip() if isinstance(row, str) else " ".join(row)
        room -= len(sentence)
        if room < 0 or isinstance(row, NamedRow):
            index = {}
            break
        index[sentence] = str(number)

    # The format of HDF5 1.8 (2008) and later; with the oldest format, memory grows with the number of datasets.
    with h5py.File(path, "w", libver=("v108", "v108")) as archive:
        for name, array in arrays:
            archive.create_dataset(name, data=array)
        if index:
            archive.create_dataset("sentence_to_index", data=[json.dumps(index)])


def _write_parquet(path: Path, tables: Iterator[pyarrow.Table], layout: RowLayout) -> None:
    """Write the columns `row`, `words`, `embedding`, and `id` if rows have names."""
    first = next(tables, layout.schema.empty_table())
    with pyarrow.parquet.ParquetWriter(path, first.schema, **PARQUET_OPTIONS) as writer:
        for table in chain([first], tables):
            rows = math.ceil(table.num_rows * ROW_GROUP_BYTES / max(table.nbytes, 1))
            writer.write_table(table, row_group_size=max(1, min(rows, ROW_GROUP_ROWS)))


FORMATS: dict[str, Callable[..., None]] = {
    ".safetensors": lambda path, arrays: save_file(dict(arrays), path),
    ".npz": _write_npz,
    ".hdf5": _write_hdf5,
    ".h5": _write_hdf5,
    ".parquet": _write_parquet,
}
