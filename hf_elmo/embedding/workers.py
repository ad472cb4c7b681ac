"""Embedding in worker processes: one callable for Datasets, Ray Data and Spark, and whole corpora on a Ray cluster."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
import torch

from .. import __version__
from ..checkpoints.loading import locate
from ..configuration_elmo import ElmoConfig
from ..tokenization_elmo import require_list
from ..utils.extras import extra_needed
from ..utils.text import Row, RowSource, Sentences, find_files, pick_column
from .corpus import EmbeddedCorpus, prepare
from .engine import CorpusEncoder, EmbeddedRows, check_options
from .jobs import require_positive
from .store import ShardStore

CHECKPOINT_FILES = (".json", ".safetensors", ".bin", ".txt")  # endings of the files that vectors depend on
IMPORTED_BY = os.getpid()  # a process with another id is a fork of this process
LOADED_AT_ONCE = 4  # the most models kept in a process that runs several embedders
SHARD_CHARACTERS = 1 << 18  # a shard ends once it has this many, as all of its vectors are in memory


class Embedder:
    """Adds a column of ELMo vectors to batches of texts. One object works in every engine that runs Python in workers.

    An embedder holds only its options, and each process loads the model once, at its first batch. It serves Datasets
    (`dataset.map(embedder, batched=True)`), Ray Data (`map_batches(hf_elmo.Embedder, fn_constructor_args=[folder])`),
    Spark (`mapInPandas` and `mapInArrow`, with an iterator of batches) and a loop.

    The vectors equal those of [`embed`] for the texts of the batch, bit by bit, and in another batch up to rounding.
    The texts of a batch are sorted by length, so large batches, of a thousand texts or more, are faster.

    A forked process, such as those of `num_proc=4`, computes with one thread, because OpenMP's threads do not survive a
    fork; elsewhere PyTorch chooses their number (from `OMP_NUM_THREADS`, which Ray and Spark set). The device is a GPU
    if the process sees one; with `dataset.map(..., with_rank=True)`, rank r takes GPU r, modulo the number of GPUs.

    Args:
        model: the name or folder of an ELMo, which each worker must find; `None` for the model that ships with hf_elmo.
            A worker raises an error if the model's files are not the same as when the embedder was made.
        layers, pooling, dtype, output_dtype, device, batch_tokens, pretokenized: as in [`embed`].
        text_column: the column of the texts, each a string or a list of words; by default the first of `text`,
            `sentence`, `words` and `tokens` that exists, or else the only column.
        column: the column to add, with the vectors of each row: `[words, 2P]`, or with `layers="all"`
            `[layers, words, 2P]`; pooled `[2P]` or `[layers, 2P]`. 2P is the size of a vector.
        words_column: a column to add with each row's words, as the tokenizer split them; none by default.
        threads: number of PyTorch's threads in each process; see above.

    Raises:
        OSError: the model does not exist.
        ValueError: a layer or an option is unknown.
    """

    def __init__(
        self,
        model: str | os.PathLike | None = None,
        *,
        layers: str | int = "mix",
        pooling: str = "none",
        dtype: str | torch.dtype | None = None,
        output_dtype: str = "float32",
        device: str | torch.device | None = None,
        batch_tokens: int | None = None,
        text_column: str | None = None,
        pretokenized: bool = False,
        column: str = "embedding",
        words_column: str | None = None,
        threads: int | None = None,
    ) -> None:
        require_positive(batch_tokens=batch_tokens, threads=threads)
        # A relative path may lead elsewhere in a worker.
        model = os.path.abspath(model) if model is not None and os.path.isdir(model) else model
        config = ElmoConfig.from_pretrained(locate(model))
        check_options(config.num_hidden_layers, layers, pooling, output_dtype)
        # All that the vectors depend on.
        self.options = {"model": model, "fingerprint": checkpoint_fingerprint(model), "dtype": dtype, "device": device}
        self.options |= {"threads": threads, "layers": layers, "pooling": pooling, "output_dtype": output_dtype}
        self.options |= {"batch_tokens": batch_tokens, "pretokenized": pretokenized}
        self.hidden_size = config.hidden_size
        self.text_column, self.column, self.words_column = text_column, column, words_column

    def __call__(self, batch: Any, rank: int | None = None) -> Any:
        """A batch with its vectors.

        Args:
            batch: columns by name, each a list or an array; or a pandas `DataFrame`, or a pyarrow `Table` or
                `RecordBatch`; or a list of texts; or an iterator of any of these.
            rank: the number of this worker among the workers of its machine.

        Returns:
            a new batch of the same kind with `column`, and `words_column` if given; for a list of texts a dict with
            the texts in the column `text` (or `text_column`); for an iterator an iterator. In a dict, the vectors are a
            list of arrays or, pooled, one array; in Arrow `fixed_size_list<float>[2P]`, inside a list of the words,
            inside a `fixed_size_list` of the layers; in pandas nested lists of arrays `[2P]`.

        Raises:
            ValueError: several columns may have the text; a column to add exists already; the worker's model is another
                one; a number is too large for an `output_dtype` of float16.
            TypeError: `batch` is a single row; a row is neither text nor a list of words.
        """
        require_list(batch if isinstance(batch, str) else [], "batch")
        if isinstance(batch, Iterator):
            return (self(part, rank) for part in batch)
        if isinstance(batch, (list, tuple)) or getattr(batch, "ndim", 0) == 1:
            batch = {self.text_column or "text": batch}
        is_arrow, is_frame = isinstance(batch, (pyarrow.Table, pyarrow.RecordBatch)), hasattr(batch, "assign")
        names = batch.schema.names if is_arrow else list(batch)
        name = pick_column(names, self.text_column, "batch")
        if taken := {self.column, self.words_column}.intersection(names):
            raise ValueError(f"batch has a column {taken.pop()!r} already; choose another column or words_column")
        texts = batch.column(name).to_pylist() if is_arrow else batch[name]
        if isinstance(texts, str) or type(batch).__name__ == "LazyRow":
            raise TypeError("batch is a single row: use batched=True in Datasets' map, or map_batches of Ray Data")
        rows = self.embed(texts, f"column {name!r}", rank)
        if is_arrow:
            table = rows.table()
            for name, source in ((self.column, "embedding"), (self.words_column, "words")):
                if name is not None:
                    values = table[source] if isinstance(batch, pyarrow.Table) else table[source].chunk(0)
                    batch = batch.append_column(name, values)
            return batch
        columns = {self.column: list(map(_nested, rows.result())) if is_frame else rows.result()}
        if self.words_column is not None:
            columns[self.words_column] = rows.words
        if is_frame:
            return batch.assign(**columns)
        # A batch of Datasets (LazyBatch) converts only the columns that are read or added.
        return batch | columns if hasattr(batch, "__or__") else {**batch, **columns}

    def embed(self, texts: Iterable[Row], name: str = "texts", rank: int | None = None, first: int = 0) -> EmbeddedRows:
        """The vectors of texts, in memory, with the model of this process; errors count the texts from `first`."""
        encoder = _loaded(os.getpid(), rank, tuple(self.options.items()))
        return encoder.embed(Sentences(texts, name=name), first)


def _nested(array: np.ndarray) -> Any:
    """The vectors in nested lists, because Arrow converts only one-dimensional arrays in a frame."""
    return array if array.ndim == 1 else [_nested(part) for part in array]


def checkpoint_fingerprint(name: str | os.PathLike | None) -> str:
    """The SHA-256 of a folder's files, or the commit of a name on the Hub."""
    folder = Path(locate(name))
    if not folder.is_dir():
        return f"commit {ElmoConfig.from_pretrained(locate(name))._commit_hash}"
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in CHECKPOINT_FILES:
            with open(path, "rb") as file:
                digest.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@lru_cache(maxsize=LOADED_AT_ONCE)
def _loaded(process: int, rank: int | None, items: tuple[tuple[str, Any], ...]) -> CorpusEncoder:
    """The encoder of an embedder in this process. A fork loads the model again, because it has neither the threads nor
    the GPU of its parent."""
    options = dict(items)
    names = ("model", "fingerprint", "dtype", "device", "threads")
    model, fingerprint, dtype, device, threads = (options.pop(name) for name in names)
    if checkpoint_fingerprint(model) != fingerprint:
        raise ValueError(f"model {model!r} has changed since the Embedder was made: restore its old files")
    if threads is not None or process != IMPORTED_BY:
        torch.set_num_threads(threads or 1)
    if device is None and rank is not None and torch.cuda.is_available():
        device = f"cuda:{rank % torch.cuda.device_count()}"
    return CorpusEncoder(*prepare(model, None, dtype, device), **options)


def embed_on_ray(
    model: str | os.PathLike | None,
    inputs: str | os.PathLike,
    output: str | os.PathLike,
    *,
    layers: str | int = "mix",
    pooling: str = "none",
    dtype: str | torch.dtype | None = None,
    output_dtype: str = "float32",
    device: str | torch.device | None = None,
    batch_tokens: int | None = None,
    input_format: str | None = None,
    text_column: str | int | None = None,
    encoding: str = "utf-8",
    pretokenized: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    workers: int | None = None,
    shard_rows: int = 1024,
) -> EmbeddedCorpus:
    """Embed files with the workers of a Ray cluster, or with workers on this machine if there is no cluster.

    Each worker has one core, or one GPU if the cluster has GPUs; it loads the model once and writes Parquet files
    (shards) itself. If a worker is lost, Ray gives its shards to others. An interrupted run that is started again
    computes only the missing shards. The vectors equal those of [`embed`] for each file, up to rounding.

    The cluster is the one that `ray.init()` finds (`RAY_ADDRESS`), and this process stays connected to it. Each machine
    needs hf_elmo, and it must find the model, the input and the output under the same paths.

    Args:
        model, layers, pooling, dtype, output_dtype, device, batch_tokens, pretokenized: as in [`Embedder`].
        inputs: a file, a folder (all files below it, except names that begin with a dot or an underscore), or
            a glob pattern, on this file system or at an address that fsspec reads (`s3://bucket/texts/*.parquet`). A
            file is read by one process, so use at least as many files as workers.
        output: the folder of the shards, on a file system that all machines see, with the columns `path` (of the input
            file), `row` (in the file, from 0), `words` and `embedding`. Readers of Parquet read it as one table. An
            object store has no locks, so nothing stops two runs from writing one folder at the same time.
        input_format, text_column, encoding: as in [`embed`], for all files; FASTA is not supported.
        overwrite, restart: remove what a finished run, or an interrupted run, left in `output`.
        workers: number of workers; by default the number of GPUs in the cluster, or of cores if it has no GPU.
        shard_rows: the number of rows in a shard; a shard ends earlier once its rows have 2^18 characters.

    Returns:
        an [`EmbeddedCorpus`] of all shards.

    Raises:
        ImportError: Ray is not installed.
        FileExistsError: `output` has the result of a finished run, or other files.
        FileNotFoundError, TimeoutError, ValueError: as for [`embed`].
    """
    with extra_needed():
        import ray.data

    require_positive(workers=workers, shard_rows=shard_rows)
    options = {"layers": layers, "pooling": pooling, "dtype": dtype, "output_dtype": output_dtype, "device": device}
    embedder = Embedder(model, **options, batch_tokens=batch_tokens, pretokenized=pretokenized)
    store = ShardStore(output, ".parquet")
    files = [file for file in find_files(inputs) if not file.startswith(f"{store.path}/")]
    reading = {"file_format": input_format, "text_column": text_column, "encoding": encoding}
    if any(RowSource(file, **reading).resolved_format == "fasta" for file in files):
        raise ValueError("Ray's workers do not store the identifiers of FASTA files: use embed, or engine='local'")
    settings = {**{name: str(value) for name, value in embedder.options.items()}, **reading, "shard_rows": shard_rows}
    settings |= {"hf_elmo": __version__, "torch": torch.__version__, "inputs": os.fspath(inputs)}
    with store.opened(settings, overwrite, restart):
        ray.init(ignore_reinit_error=True)
        items = ray.data.from_items([{"path": file} for file in files], override_num_blocks=len(files))
        items.context.target_max_block_size = 1  # bytes: each shard is a block, and Ray hands out one at a time
        resources = ray.cluster_resources()
        on_gpus = torch.device(device or "cuda").type == "cuda" and resources.get("GPU", 0) >= 1
        # Reading asks for no core: it would wait for one forever, because the workers may hold all cores.
        reports = items.flat_map(lambda file: cut_shards(file["path"], reading, shard_rows), num_cpus=0).map(
            ShardWorker,
            fn_constructor_args=(embedder, store),
            compute=ray.data.ActorPoolStrategy(size=workers or int(resources["GPU" if on_gpus else "CPU"])),
            **({"num_gpus": 1} if on_gpus else {"num_cpus": 1}),
        )
        counts = {report["name"] + store.ending: report for report in reports.iter_rows()}
        store.remove(name for name in store.names() if name.endswith(store.ending) and name not in counts)
        rows, words = (sum(report[column] for report in counts.values()) for column in ("rows", "words"))
        store.finish(shards=len(counts), rows=rows, words=words)
    return EmbeddedCorpus(Path(output), rows, words, embedder.hidden_size)


def cut_shards(file: str, reading: dict[str, Any], shard_rows: int) -> Iterator[dict[str, Any]]:
    """
    The shards of a file, each a dictionary: `name` (with a hash of its rows), `path`, `first` (the number of the first
    row) and `rows` (each as JSON). A file with the same rows always gives the same shards.

    Args:
        file: the path or address.
        reading: the options of [`RowSource`].
        shard_rows: the most rows in a shard; a shard ends earlier once its rows have `SHARD_CHARACTERS` characters.
    """
    stem = re.sub(r"[^\w.-]", "_", PurePosixPath(file).name, flags=re.ASCII)[:64]
    first, rows, characters = 0, [], 0
    for row in chain(RowSource(file, **reading), [None]):
        if row is not None:
            rows.append(json.dumps(row, ensure_ascii=False))
            characters += len(rows[-1])
        if rows and (row is None or len(rows) == shard_rows or characters >= SHARD_CHARACTERS):
            digest = hashlib.sha256("\n".join([file, *rows]).encode()).hexdigest()
            yield {"name": f"{stem}-{first:09d}-{digest[:20]}", "path": file, "first": first, "rows": rows}
            first, rows, characters = first + len(rows), [], 0


class ShardWorker:
    """Embeds shards in a process of Ray, and writes those that were not written earlier."""

    def __init__(self, embedder: Embedder, store: ShardStore) -> None:
        self.embedder, self.store = embedder, store

    def __call__(self, shard: dict[str, Any]) -> dict[str, Any]:
        """Writes a shard. Returns its name, and its numbers of rows and words."""
        path, filesystem = f"{self.store.path}/{shard['name']}{self.store.ending}", self.store.filesystem
        if not filesystem.exists(path):
            rows = map(json.loads, shard["rows"])
            table = self.embedder.embed(rows, shard["path"], first=int(shard["first"])).table()
            paths = pyarrow.array([shard["path"]] * table.num_rows, pyarrow.string())
            self.store.write(shard["name"], table.add_column(0, "path", paths))
        with filesystem.open(path) as file:
            words = pyarrow.parquet.read_table(file, columns=["words"])["words"]
        lengths = pyarrow.compute.list_value_length(words)
        return {"name": shard["name"], "rows": len(words), "words": pyarrow.compute.sum(lengths).as_py()}
