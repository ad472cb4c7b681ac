"""Files of vectors: the formats that `embed` writes, and reading them."""

import gzip
import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from safetensors.numpy import save_file

from ..utils.extras import extra_needed
from .engine import EmbeddedRows, RowLayout, make_array

WORD_ENDS = r"[\t\r\n]"  # in a word, they would end it in a text file
METADATA = "hf_elmo"  # the key of what a file of vectors says about itself, JSON
ROW_GROUP_BYTES = 1 << 25  # the most in a row group, which readers hold in memory
ROW_GROUP_ROWS = 10_000  # likewise
ROWS_READ = 1000  # rows of a file of vectors that are in memory together
Tables = Iterator[pyarrow.Table]
StoredRow = tuple[int, list[str], np.ndarray]  # a row's number, its words, its vectors
HDF5 = (".hdf5", ".h5")
FORMATS = (".safetensors", ".npz", *HDF5, ".parquet", ".txt", ".txt.gz")
INDEXED_ROWS = 1_000_000  # HDF5 holds `sentence_to_index` up to this many rows, because it is made in memory
HEADER_BYTES = 100_000_000  # the most that safetensors reads of the names, shapes and places of arrays
TEXT_NUMBERS = 1 << 22  # numbers that are text in memory together: an array of text has at most 2 GB


def require_writable(output: Path, layout: RowLayout, names: Counter[str], rows: int) -> None:
    """Raises ValueError, before the work, if the result could not be written or read; `names` are those of the rows."""
    if not output.name.lower().endswith(FORMATS):
        raise ValueError(f"output {str(output)!r} must end in one of {', '.join(FORMATS)}")
    if names and names.total() < rows:
        raise ValueError("some rows are sequences of FASTA, which have names, and others have none: embed them apart")
    if names and output.name.lower().endswith((".txt", ".txt.gz")):
        raise ValueError(f"output {str(output)!r} has no place for the names of sequences: use .npz, .hdf5 or .parquet")
    for name, rows_of_name in names.most_common(1):
        if rows_of_name > 1:
            raise ValueError(f"{rows_of_name} sequences are named {name!r}, but each needs its own name: rename them")
    if output.suffix.lower() in HDF5:
        with extra_needed("convert"):
            import h5py  # noqa: F401, an error now instead of after the work
        groups = {name[: slash.start()] for name in names for slash in re.finditer("/", name)}
        if wrong := [name for name in names if name in groups or {"", "."}.intersection(name.split("/"))]:
            raise ValueError(f"HDF5 cannot name an array {wrong[0]!r} ('/' separates groups): use .npz or .parquet")

    if output.suffix.lower() == ".safetensors" and (names or not layout.pooled):
        end = 16 * rows * math.prod(layout.shape(1))  # as of rows of four words
        entry = json.dumps({"dtype": "F32", "shape": layout.shape(1000), "data_offsets": [end, end]})
        header = rows * len(entry) + (sum(len(name.encode()) for name in names) or rows * len(str(rows)))
        if header > HEADER_BYTES:
            raise ValueError(f"output {str(output)!r} cannot hold {rows:,} arrays: use .hdf5, .npz or .parquet")


def write_vectors(path: Path, shards: Tables, layout: RowLayout, rows: int, about: dict, index: dict[str, str]) -> None:
    """Write shards of [`EmbeddedRows`] into a file by its ending, with `about`, and in HDF5 the sentences' `index`."""
    text = json.dumps(about, default=int)  # a NumPy integer may be the layer
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        _write_parquet(path, shards, layout, text)
    elif suffix in (".txt", ".gz"):
        _write_text(path, shards, layout)
    elif suffix == ".safetensors":
        save_file(dict(_arrays(shards, layout, rows, path.parent)), path, {METADATA: text})
    elif suffix == ".npz":
        _write_npz(path, _arrays(shards, layout, rows, path.parent), text)
    else:  # on a full disk, h5py writes thousands of lines, and crashes when Python ends
        tables = list(shards)
        make_array((sum(table.nbytes for table in tables) + 1024 * rows,), "uint8", path.parent)
        _write_hdf5(path, _arrays(iter(tables), layout, rows, path.parent), index, text)


def _numbers(vectors: pyarrow.Array) -> np.ndarray:
    """All numbers of a column of vectors, a view."""
    while not pyarrow.types.is_floating(vectors.type):
        vectors = vectors.flatten()
    return vectors.to_numpy()


def _arrays(tables: Tables, layout: RowLayout, rows: int, folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The names and arrays of a file: of each row, its number or name; of pooled rows without names, `embeddings`."""
    named = False
    pooled = np.zeros((0, *layout.shape(0)), layout.dtype)
    for table in tables:
        values = _numbers(table["embedding"].chunk(0))
        arrays = layout.split(values, pyarrow.compute.list_value_length(table["words"]).to_pylist())
        named = "id" in table.column_names
        if named or not layout.pooled:
            yield from zip(map(str, table["id" if named else "row"].to_pylist()), arrays, strict=True)
        else:
            pooled = pooled if len(pooled) else make_array((rows, *layout.shape(0)), layout.dtype, folder)
            first = table["row"][0].as_py()
            pooled[first : first + len(arrays)] = values.reshape(-1, *layout.shape(0))
    if layout.pooled and not named:
        yield "embeddings", pooled


def read_vectors(path: str | os.PathLike) -> tuple[dict[str, Any], Iterator[list[StoredRow]]] | None:
    """What a Parquet file of word vectors that `embed` wrote says about itself, and its rows, some at a time; `None`
    for a file without them, such as a corpus. ValueError if they are pooled, or of an unknown model and layers."""
    if Path(path).suffix.lower() != ".parquet" or not os.path.exists(path):
        return None
    schema = pyarrow.parquet.read_schema(path)
    if not {"words", "embedding"} <= set(schema.names):
        return None
    about = json.loads((schema.metadata or {}).get(METADATA.encode(), "{}"))
    if about.get("pooling") != "none":
        raise ValueError(f"{path} is no file of a vector for each word that embed wrote without pooling")
    kind = schema.field("embedding").type
    layers = kind.list_size if about["layers"] == "all" else None
    vectors = kind.value_type if layers else kind
    return about, _read_rows(path, RowLayout(layers, vectors.value_type.list_size, False, ""))


def _read_rows(path: str | os.PathLike, layout: RowLayout) -> Iterator[list[StoredRow]]:
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_READ, columns=["row", "words", "embedding"]):
            words = batch["words"].to_pylist()
            arrays = layout.split(_numbers(batch["embedding"]), map(len, words))
            yield list(zip(batch["row"].to_pylist(), words, arrays, strict=True))


def _write_npz(path: Path, arrays: Iterator[tuple[str, np.ndarray]], metadata: str) -> None:
    """Write the arrays as `numpy.savez` does, one at a time."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = metadata.encode()
        for name, array in arrays:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)


def _write_hdf5(path: Path, arrays: Iterator[tuple[str, np.ndarray]], index: dict[str, str], metadata: str) -> None:
    """Write a dataset for each array, as bilm-tf does, and AllenNLP's `sentence_to_index`, JSON of their numbers."""
    with extra_needed("convert"):
        import h5py

    # The format of HDF5 1.8 (2008) and later; with the oldest format, memory grows with the number of datasets.
    with h5py.File(path, "w", libver=("v108", "v108")) as archive:
        archive.attrs[METADATA] = metadata
        for name, array in arrays:
            archive.create_dataset(name, data=array)
        if index:
            archive.create_dataset("sentence_to_index", data=[json.dumps(index)])


def _write_text(path: Path, tables: Tables, layout: RowLayout) -> None:
    """Write a line for each word, and a blank line after each row; of pooled rows, a line for each row."""
    step = max(1, TEXT_NUMBERS // math.prod(layout.shape(1)))  # words at a time
    compress = partial(gzip.GzipFile, "", "wb", 6, mtime=0) if path.suffix.lower() == ".gz" else nullcontext
    with open(path, "wb") as raw, compress(raw) as file:
        for table in tables:
            words = table["words"].to_pylist()
            arrays = layout.split(_numbers(table["embedding"].chunk(0)), map(len, words))
            for row, array in zip(words, arrays, strict=True):
                names = [" ".join(row)] if layout.pooled else row
                vectors = array.reshape(layout.layers or 1, len(names), layout.size).swapaxes(0, 1)
                for begin in range(0, len(names), step):
                    part = vectors[begin : begin + step].astype(np.float32)
                    numbers = pyarrow.array(part.ravel()).cast(pyarrow.string())
                    offsets = np.arange(0, len(numbers) + 1, part[0].size, dtype=np.int32)
                    lines = pyarrow.compute.binary_join(pyarrow.ListArray.from_arrays(offsets, numbers), " ")
                    for name, line in zip(names[begin : begin + step], lines.to_pylist(), strict=True):
                        file.write(f"{re.sub(WORD_ENDS, ' ', name)}\t{line}\n".encode())
                file.write(b"" if layout.pooled else b"\n")


def _write_parquet(path: Path, tables: Tables, layout: RowLayout, metadata: str) -> None:
    """Write the columns `row`, `words`, `embedding`, and `id` if rows have names."""
    first = next(tables, EmbeddedRows(layout, []).table())
    schema = first.schema.with_metadata({METADATA: metadata})
    with pyarrow.parquet.ParquetWriter(path, schema, use_dictionary=["words"], write_statistics=["row"]) as writer:
        for table in chain([first], tables):
            rows = math.ceil(table.num_rows * ROW_GROUP_BYTES / max(table.nbytes, 1))
            writer.write_table(table, row_group_size=max(1, min(rows, ROW_GROUP_ROWS)))
