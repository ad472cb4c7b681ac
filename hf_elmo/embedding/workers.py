"""Embedding in worker processes: one callable for Datasets, Ray Data and Spark, and whole corpora on a Ray cluster."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
import torch

from .. import __version__
from ..configuration_elmo import ElmoConfig
from ..shipped import located
from ..text import Row, RowSource, find_files, pick_column
from .corpus import EmbeddedCorpus, Job, Sentences, check_options, prepare
from .engine import CorpusEncoder, EmbeddedRows
from .store import ShardStore

CHECKPOINT_FILES = (".json", ".safetensors", ".bin", ".txt")  # endings of the files that vectors depend on
IMPORTED_BY = os.getpid()  # any other process with this module is a fork
LOADED_AT_ONCE = 4  # models in a process that runs several embedders
SHARD_CHARACTERS = 1 << 18  # of text in a shard at most: all of its vectors are in memory
SHARD_NAME = re.compile(r".+-[0-9a-f]{20}\.parquet")


class Embedder:
    """Adds a column of ELMo vectors to batches of texts: one object for every engine that runs Python in workers.

    An embedder holds its options only: it pickles to a few hundred bytes, and each process loads the model once, at its
    first batch. The same object serves

    - `dataset.map(embedder, batched=True, num_proc=4)` of Datasets; of `dataset.with_format("arrow")` the vectors are
      written as they are, else they are converted;
    - `dataset.map_batches(hf_elmo.Embedder, fn_constructor_args=["elmo-folder"], batch_format="pyarrow",
      compute=ActorPoolStrategy(size=4), num_cpus=1)` of Ray Data, on GPUs with `num_gpus=1`;
    - `frame.mapInPandas(embedder, schema="text string, embedding array<array<float>>")` of Spark, and `mapInArrow`: an
      iterator of batches gives an iterator;
    - a loop: `for batch in batches: embedder(batch)["embedding"]`.

    The vectors are those of [`embed`] for the texts of a batch, to the bit. In another batch a text has the same
    vectors up to a rounding, and the same bits where the fused LSTM (`hf-elmo env`) computes both. A batch is sorted by
    length, so large ones are fast: a thousand texts, or more.

    **Threads and GPUs of a worker.** A process that was forked, as `num_proc=4` makes it, computes with one thread:
    OpenMP's threads do not survive a fork. Elsewhere the number of threads stays PyTorch's own (which reads
    `OMP_NUM_THREADS`; Ray and Spark set it to the worker's cores). `threads` sets another number. The device is
    `device`; by default a GPU if the process sees one (an actor of Ray with `num_gpus=1` sees its own), else the CPU.
    `dataset.map(..., with_rank=True)` gives the worker of rank r GPU r, modulo their number.

    Args:
        model: the name or folder of an ELMo, which each worker must find; `None` for the one that ships. A worker that
            finds other files than were there when the embedder was made refuses to work.
        layers, pooling, dtype, output_dtype, device, batch_tokens, pretokenized: as [`embed`] has them.
        text_column: with the texts, each a string or a list of words; by default `text`, `sentence`, `words` or
            `tokens`, or the only column.
        column: to add, with the vectors: of each row `[words, 2P]`, with `layers="all"` `[layers, words, 2P]`; pooled
            `[2P]`, or `[layers, 2P]`.
        words_column: to add, with the words that the vectors belong to, as the tokenizer split them; none by default.
        threads: of PyTorch in each process; see above.

    Raises:
        OSError: there is no such model.
        ValueError: unknown layer or option.
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
        # A relative path may lead elsewhere in a worker.
        self.model = os.path.abspath(model) if model is not None and os.path.isdir(model) else model
        self.fingerprint = checkpoint_fingerprint(self.model)
        config = ElmoConfig.from_pretrained(located(self.model))
        check_options(layers, config.num_hidden_layers, pooling, output_dtype)
        self.layers, self.hidden_size = layers, config.hidden_size
        self.pooling, self.dtype, self.output_dtype, self.device = pooling, dtype, output_dtype, device
        self.batch_tokens, self.pretokenized, self.threads = batch_tokens, pretokenized, threads
        self.text_column, self.column, self.words_column = text_column, column, words_column

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if name != "fingerprint")
        return f"{type(self).__name__}({options})"

    def __call__(self, batch: Any, rank: int | None = None) -> Any:
        """A batch with its vectors.

        Args:
            batch: columns by name, each a list or an array; or a pandas `DataFrame`, or a pyarrow `Table` or
                `RecordBatch`; or a list of texts; or an iterator of any of these.
            rank: the number of this worker among those of its machine.

        Returns:
            a new batch of the same kind with the columns of `batch`, `column`, and `words_column` if asked for; of a
            list of texts a dict, the texts in the column `text` (or `text_column`); of an iterator an iterator. The
            vectors of a row are `[words, 2P]`, with all layers `[layers, words, 2P]`, pooled `[2P]` or `[layers, 2P]`:

            - in a dict a list of arrays, pooled one array with the rows in front;
            - in Arrow lists of vectors of a fixed size, on the bytes into which they were computed
              (`fixed_size_list<float>[2P]` in a list of the words, in a `fixed_size_list` of the layers);
            - in pandas lists (of lists) of arrays `[2P]`, which Arrow and Spark take for nested lists.

        Raises:
            ValueError: which column holds the text is not clear; a column to add is there already; the worker's model
                is another; a number is too large for an `output_dtype` of float16.
            TypeError: `batch` is a single row; a row is neither text nor a list of words.
        """
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
        if is_frame:
            texts = texts.astype(object).where(texts.notna(), None)  # NaN and NA are nulls
        if isinstance(texts, str) or type(batch).__name__ == "LazyRow":
            raise TypeError("batch is a single row: map of Datasets needs batched=True, Ray Data map_batches")
        rows = self.embed(texts, f"column {name!r}", rank)
        if is_arrow:
            return self._added_to_arrow(batch, rows)
        columns = {self.column: [_nested(array) for array in rows.arrays()] if is_frame else rows.arrays()}
        columns |= {} if self.words_column is None else {self.words_column: rows.words}
        if is_frame:
            return batch.assign(**columns)
        # Of a batch of Datasets (LazyBatch) only what was read and what is added is converted.
        return batch | columns if hasattr(batch, "__or__") else {**batch, **columns}

    def _added_to_arrow(
        self, batch: pyarrow.Table | pyarrow.RecordBatch, rows: EmbeddedRows
    ) -> pyarrow.Table | pyarrow.RecordBatch:
        vectors = rows.arrow()
        if isinstance(batch, pyarrow.RecordBatch):
            vectors = vectors.chunk(0) if vectors.num_chunks == 1 else vectors.combine_chunks()
        batch = batch.append_column(self.column, vectors)
        if self.words_column is None:
            return batch
        words = pyarrow.array(rows.words, pyarrow.list_(pyarrow.string()))
        return batch.append_column(self.words_column, words if isinstance(batch, pyarrow.RecordBatch) else [words])

    def embed(self, texts: Iterable[Row], name: str = "texts", rank: int | None = None, first: int = 0) -> EmbeddedRows:
        """The vectors of texts, in memory, with the model of this process; errors count the texts from `first` on."""
        names = ("column", "words_column", "text_column")  # the only options that vectors do not depend on
        options = tuple((name, value) for name, value in vars(self).items() if name not in names)
        job, encoder = _loaded(os.getpid(), rank, options)
        return job.embedded(Sentences(texts, name=name), encoder, first)


def _nested(array: np.ndarray) -> Any:
    """Nested lists of vectors: of a frame, Arrow converts arrays of one dimension only."""
    return array if array.ndim == 1 else [_nested(part) for part in array]


def checkpoint_fingerprint(name: str | os.PathLike | None) -> str:
    """The SHA-256 of a folder's files, or the commit of a name on the Hub."""
    folder = Path(located(name))
    if not folder.is_dir():
        return f"commit {ElmoConfig.from_pretrained(located(name))._commit_hash}"
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in CHECKPOINT_FILES:
            with open(path, "rb") as file:
                digest.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@lru_cache(maxsize=LOADED_AT_ONCE)
def _loaded(process: int, rank: int | None, options: tuple[tuple[str, Any], ...]) -> tuple[Job, CorpusEncoder]:
    """The model of an embedder in this process. A fork loads it anew: it has neither the threads nor the GPU of its
    parent."""
    chosen = dict(options)
    if checkpoint_fingerprint(chosen["model"]) != chosen["fingerprint"]:
        raise ValueError(f"model {chosen['model']!r} has other files here than where the embedder was made")
    threads = chosen["threads"] or (1 if os.getpid() != IMPORTED_BY else None)
    if threads is not None:
        torch.set_num_threads(threads)
    device = chosen["device"]
    if device is None and rank is not None and torch.cuda.is_available():
        device = f"cuda:{rank % torch.cuda.device_count()}"
    model, tokenizer = prepare(chosen["model"], None, chosen["dtype"], device)
    names = ("layers", "pooling", "output_dtype", "batch_tokens", "pretokenized")
    job = Job.of(model, tokenizer, **{name: chosen[name] for name in names}, progress=False)
    return job, job.encoder(job.bar(None))


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
    progress: bool | None = None,
    workers: int | None = None,
    shard_rows: int = 1024,
) -> EmbeddedCorpus:
    """Embed files with the workers of a Ray cluster, or with those of this machine where there is no cluster.

    Each worker has one core, or one GPU where the cluster has GPUs, loads the model once, and writes the shards that it
    computes itself: vectors do not travel between machines. Ray starts a worker that is lost anew and gives its shards
    to others. A run that was interrupted computes, started again, the shards that are missing. The vectors are those of
    [`embed`] for each file (up to a rounding where the fused LSTM does not run).

    Ray finds its cluster as `ray.init()` does, by `RAY_ADDRESS`. Each machine needs hf_elmo, the model, the input and
    the output under the same names.

    Args:
        model, layers, pooling, dtype, output_dtype, device, batch_tokens, pretokenized: as [`Embedder`] has them.
        inputs: a file, a folder (with what is below it; names that begin with a dot or an underscore are left out), or
            a glob pattern, in which `**` is any number of folders; on this file system, or at an address that
            fsspec reads (`s3://bucket/texts/*.parquet`). A file is read by one process, so a corpus is best cut into
            at least as many files as there are workers.
        output: the folder of the shards, on a file system that all machines see. Their columns are `path` and `row` (of
            the input file and in it, from 0), `words` and `embedding`, as [`embed`] writes them to Parquet. Readers of
            Parquet (pyarrow, pandas, Datasets with `data_dir`) take the folder as one table. On an object store, which
            has no locks, two runs of one folder at a time are not refused.
        input_format, text_column, encoding: as [`embed`] has them, of every file; FASTA is not among the formats.
        overwrite: remove what a finished run left in `output`.
        restart: remove what an interrupted run left in `output`, instead of resuming it.
        progress: show Ray's progress bars; by default as Ray is set.
        workers: by default as many as the cluster has GPUs, else cores.
        shard_rows: rows of a shard at most; fewer where they are long (2^18 characters together).

    Returns:
        an [`EmbeddedCorpus`] of all shards.

    Raises:
        ImportError: Ray is not installed.
        FileNotFoundError: no such input or model.
        FileExistsError: `output` has a finished run, or something else.
        TimeoutError: another run is writing `output`.
        ValueError: unknown layer, option or ending; a malformed row; a number too large for an `output_dtype` of
            float16; the interrupted run had other settings.
    """
    import ray.data

    options = {"layers": layers, "pooling": pooling, "dtype": dtype, "output_dtype": output_dtype, "device": device}
    embedder = Embedder(model, **options, batch_tokens=batch_tokens, pretokenized=pretokenized)
    store = ShardStore(output, ".parquet")
    files = [file for file in find_files(inputs) if not file.startswith(f"{store.path}/")]
    reading = {"file_format": input_format, "text_column": text_column, "encoding": encoding}
    if any(RowSource(file, **reading).resolved_format == "fasta" for file in files):
        raise ValueError("FASTA has identifiers, for which shards have no column: take --engine local")
    settings = {**{name: str(value) for name, value in vars(embedder).items()}, **reading, "shard_rows": shard_rows}
    settings |= {"hf_elmo": __version__, "torch": torch.__version__, "inputs": os.fspath(inputs)}
    cutter = ShardCutter(reading, shard_rows, json.dumps(settings))
    with store.opened(settings, overwrite, restart):
        with _cluster(ray, progress):
            counts = _embed_shards(ray, embedder, cutter, store, files, workers)
        store.remove(name for name in store.names() if SHARD_NAME.fullmatch(name) and name not in counts)
        rows, words = (sum(count[column] for count in counts.values()) for column in (0, 1))
        store.finish(shards=len(counts), rows=rows, words=words)
    return EmbeddedCorpus(Path(output), rows, words, embedder.hidden_size)


class ShardCutter:
    """Cuts the rows of files into shards: into the same ones whenever a file has the same rows.

    Args:
        reading: the options of [`RowSource`].
        shard_rows: of a shard at most; fewer where they have `SHARD_CHARACTERS` together.
        settings: what the vectors depend on besides the rows.
    """

    def __init__(self, reading: dict[str, Any], shard_rows: int, settings: str) -> None:
        self.reading, self.shard_rows, self.settings = reading, shard_rows, settings

    def __call__(self, file: str) -> Iterator[dict[str, Any]]:
        """The shards of a file: `name`, which has the hash of all that a shard depends on, `path`, `first` (the number
        of the first row) and `rows`, each as JSON."""
        stem = re.sub(r"[^\w.-]", "_", PurePosixPath(file).name, flags=re.ASCII)[:64]
        rows, first, index = iter(RowSource(file, **self.reading)), 0, 0
        while shard := list(self._next(rows)):
            digest = hashlib.sha256("\n".join([self.settings, file, str(first), *shard]).encode()).hexdigest()
            yield {"name": f"{stem}-{index:06d}-{digest[:20]}", "path": file, "first": first, "rows": shard}
            first, index = first + len(shard), index + 1

    def _next(self, rows: Iterator[Row]) -> Iterator[str]:
        characters = 0
        for row in islice(rows, self.shard_rows):
            yield json.dumps(row)
            characters += len(row) if isinstance(row, str) else sum(map(len, row))
            if characters >= SHARD_CHARACTERS:
                return


class ShardWorker:
    """Embeds shards in a process of Ray's, and writes them. A shard without rows exists already."""

    def __init__(self, embedder: Embedder, store: ShardStore) -> None:
        self.embedder, self.store = embedder, store

    def __call__(self, shard: dict[str, Any]) -> dict[str, Any]:
        """A shard's name and the numbers of its rows and words."""
        if len(shard["rows"]):
            rows = map(json.loads, shard["rows"])
            embedded = self.embedder.embed(rows, shard["path"], first=int(shard["first"]))
            table = pyarrow.concat_tables(window.table() for window in embedded.windows)
            path = pyarrow.array([shard["path"]] * table.num_rows, pyarrow.string())
            self.store.write(shard["name"], table.add_column(0, "path", path))
        with self.store.filesystem.open(f"{self.store.path}/{shard['name']}{self.store.ending}") as file:
            words = pyarrow.parquet.read_table(file, columns=["words"])["words"]
        lengths = pyarrow.compute.list_value_length(words)
        return {"name": shard["name"], "rows": len(words), "words": pyarrow.compute.sum(lengths).as_py()}


def _embed_shards(
    ray: Any, embedder: Embedder, cutter: ShardCutter, store: ShardStore, files: list[str], workers: int | None
) -> dict[str, tuple[int, int]]:
    """Compute the shards that are missing; the numbers of rows and words of all, by the names of their files."""
    resources, done = ray.cluster_resources(), set(store.names())
    on_gpus = torch.device(embedder.device or "cuda").type == "cuda" and resources.get("GPU", 0) >= 1
    workers = workers or int(resources["GPU" if on_gpus else "CPU"])

    def read(file: dict[str, str]) -> Iterator[dict[str, Any]]:
        for shard in cutter(file["path"]):
            yield {**shard, "rows": [] if shard["name"] + store.ending in done else shard["rows"]}

    items = ray.data.from_items([{"path": file} for file in files], override_num_blocks=len(files))
    # Reading takes no core: with one for each worker there may be none left, and then nothing would ever be read.
    reports = items.flat_map(read, num_cpus=0).map(
        ShardWorker,
        fn_constructor_args=(embedder, store),
        compute=ray.data.ActorPoolStrategy(size=workers),
        **({"num_gpus": 1} if on_gpus else {"num_cpus": 1}),
    )
    return {report["name"] + store.ending: (report["rows"], report["words"]) for report in reports.iter_rows()}


@contextmanager
def _cluster(ray: Any, progress: bool | None) -> Iterator[None]:
    """Ray, connected for the length of the block where it is not yet, which hands out each shard by itself."""
    is_new = not ray.is_initialized()
    if is_new:
        ray.init()
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.target_max_block_size
    context.enable_progress_bars = before[0] if progress is None else progress
    context.target_max_block_size = 1  # bytes
    try:
        yield
    finally:
        context.enable_progress_bars, context.target_max_block_size = before
        if is_new:
            ray.shutdown()
