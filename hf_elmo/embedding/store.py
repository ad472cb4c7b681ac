"""Files of vectors: the formats that `embed` writes, and reading them."""

import gzip
import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
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
from .engine import RowLayout, make_array

METADATA = "hf_elmo"  # the key of what a file of vectors says about itself, JSON
ROW_GROUP_BYTES = 1 << 25  # the most in a row group, which readers hold in memory
ROW_GROUP_ROWS = 10_000  # likewise
ROWS_READ = 1000  # rows of a file of vectors that are in memory together
Shards = Iterator[pyarrow.RecordBatch]  # of `EmbeddedRows`, at least one
StoredRow = tuple[Any, list[str], np.ndarray]  # a row's number, or its name if it has one; its words, its vectors
HDF5 = (".hdf5", ".h5")
FORMATS = (".safetensors", ".npz", *HDF5, ".parquet", ".txt", ".txt.gz")
INDEXED_ROWS = 1_000_000  # HDF5 holds `sentence_to_index` up to this many rows, because it is made in memory
TEXT_WORDS = 500  # whose numbers are text in memory together
HEADER_BYTES = 100_000_000  # the most that safetensors reads of the names, shapes and places of arrays


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


def write_vectors(path: Path, shards: Shards, layout: RowLayout, rows: int, about: dict, index: dict[str, str]) -> None:
    """Write the rows of shards into a file by its ending, with `about`, and in HDF5, which is laid out as by bilm-tf,
    AllenNLP's `sentence_to_index`, the sentences' `index`."""
    text = json.dumps(about, default=int)  # a NumPy integer may be the layer
    suffix = path.suffix.lower()
    first = next(shards)
    batches: Iterable[pyarrow.RecordBatch] = chain([first], shards)
    if suffix in HDF5:  # on a full disk, h5py writes thousands of lines, and crashes when Python ends
        batches = list(batches)
        make_array((sum(batch.nbytes for batch in batches) + 1024 * rows,), "uint8", path.parent)
    stored = chain.from_iterable(_rows(batch, layout) for batch in batches)
    arrays: Iterator[tuple[str, np.ndarray]] = ((str(name), array) for name, _, array in stored)
    if layout.pooled and "id" not in first.schema.names:
        arrays = _joined(stored, (rows, *layout.shape(0)), layout.dtype, path.parent)
    if suffix == ".parquet":
        schema = first.schema.with_metadata({METADATA: text})
        with pyarrow.parquet.ParquetWriter(path, schema, use_dictionary=["words"], write_statistics=["row"]) as writer:
            for batch in batches:
                size = math.ceil(batch.num_rows * ROW_GROUP_BYTES / max(batch.nbytes, 1))
                writer.write_batch(batch, row_group_size=max(1, min(size, ROW_GROUP_ROWS)))
    elif suffix in (".txt", ".gz"):
        _write_text(path, stored, layout)
    elif suffix == ".safetensors":
        save_file(dict(arrays), path, {METADATA: text})
    elif suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.comment = text.encode()
            for name, array in arrays:  # as `numpy.savez` writes them, one at a time
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array)
    else:
        import h5py

        # The format of HDF5 1.8 (2008) and later; with the oldest format, memory grows with the number of datasets.
        with h5py.File(path, "w", libver=("v108", "v108")) as file:
            file.attrs[METADATA] = text
            for name, array in arrays:
                file.create_dataset(name, data=array)
            if index:
                file.create_dataset("sentence_to_index", data=[json.dumps(index)])


def _rows(batch: pyarrow.RecordBatch, layout: RowLayout) -> Iterator[StoredRow]:
    """The rows of a batch; their vectors are views."""
    vectors = batch["embedding"]
    while not pyarrow.types.is_floating(vectors.type):
        vectors = vectors.flatten()
    words = batch["words"].to_pylist()
    names = batch["id" if "id" in batch.schema.names else "row"].to_pylist()
    return zip(names, words, layout.split(vectors.to_numpy(), map(len, words)), strict=True)


def _joined(stored: Iterator[StoredRow], shape: tuple[int, ...], dtype: str, folder: Path) -> Iterator[tuple]:
    """The one array of pooled rows without names, in a temporary file in `folder`, and its name."""
    vectors = make_array(shape, dtype, folder)
    for row, _, vector in stored:
        vectors[row] = vector
    yield "embeddings", vectors


def read_vectors(path: str | os.PathLike) -> tuple[dict[str, Any], Iterator[list[StoredRow]]] | None:
    """What a Parquet file of word vectors that `embed` wrote says about itself, and its rows, some at a time; `None`
    for a file without them, such as a corpus. ValueError if they are pooled, or of an unknown model and layers."""
    if Path(path).suffix.lower() != ".parquet" or not os.path.exists(path):
        return None
    file = pyarrow.parquet.ParquetFile(path)
    schema = file.schema_arrow
    if not {"words", "embedding"} <= set(schema.names):
        return None
    about = json.loads((schema.metadata or {}).get(METADATA.encode(), "{}"))
    if about.get("pooling") != "none":
        raise ValueError(f"{path} is no file of a vector for each word that embed wrote without pooling")
    kind = schema.field("embedding").type
    layers = kind.list_size if about["layers"] == "all" else None
    vectors = kind.value_type if layers else kind
    layout = RowLayout(layers, vectors.value_type.list_size, False, "")
    batches = file.iter_batches(ROWS_READ, columns=["row", "words", "embedding"])
    return about, (list(_rows(batch, layout)) for batch in batches)


def _write_text(path: Path, stored: Iterator[StoredRow], layout: RowLayout) -> None:
    """Write a line for each word, in which a tab or a line break becomes a space, and a blank line after each row; of
    pooled rows, a line for each row."""
    compress = partial(gzip.GzipFile, "", "wb", 6, mtime=0) if path.suffix.lower() == ".gz" else nullcontext
    with open(path, "wb") as raw, compress(raw) as file:
        for _, words, array in stored:
            names = [" ".join(words)] if layout.pooled else words
            vectors = array.reshape(layout.layers or 1, len(names), layout.size).swapaxes(0, 1)
            for begin in range(0, len(names), TEXT_WORDS):  # word by word, it would take twice as long
                part = vectors[begin : begin + TEXT_WORDS].astype(np.float32)
                numbers = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(part.ravel()), part[0].size)
                lines = pyarrow.compute.binary_join(numbers.cast(pyarrow.list_(pyarrow.string())), " ")
                for name, line in zip(names[begin : begin + TEXT_WORDS], lines.to_pylist(), strict=True):
                    file.write((re.sub(r"[\t\r\n]", " ", name) + f"\t{line}\n").encode())
            file.write(b"" if layout.pooled else b"\n")
