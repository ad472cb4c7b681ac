"""Embedding the files of a corpus on many machines, with the workers of Ray Data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .. import __version__
from ..optional import import_optional
from .corpus import EmbeddedCorpus
from .embedder import Embedder
from .shards import Shard, ShardFolder, ShardReader, find_files, require_outside


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
            a glob pattern, in which `**` is any number of folders; on this file system, or on one that pyarrow reads
            (`s3://bucket/texts/*.parquet`). A file is read by one process, so a corpus is best cut into at least as
            many files as there are workers.
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
        ImportError: Ray or pyarrow is not installed.
        FileNotFoundError: no such input or model.
        FileExistsError: `output` has a finished run, or something else.
        BlockingIOError: another run is writing `output`.
        ValueError: unknown layer, option or ending; a malformed row; a number too large for an `output_dtype` of
            float16; the interrupted run had other settings.
    """
    ray = import_optional("ray.data", "the engine ray", '"hf-elmo[ray]"')
    for name, value in (("workers", workers), ("shard_rows", shard_rows)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}, but must be 1 or more")
    options = {"layers": layers, "pooling": pooling, "dtype": dtype, "output_dtype": output_dtype, "device": device}
    options |= {"batch_tokens": batch_tokens, "pretokenized": pretokenized, "words_column": "words"}
    embedder = Embedder(model, **options)
    reading = {"file_format": input_format, "text_column": text_column, "encoding": encoding}
    folder = ShardFolder.at(output)
    reader = ShardReader(*find_files(inputs, folder), reading, shard_rows)
    require_outside(folder, inputs)
    with folder.prepared(_manifest(embedder, reader), overwrite, restart) as folder:
        with _cluster(ray, progress):
            counts = _counts(ray, embedder, reader, folder, workers)
        rows, words = folder.finish(counts)
    return EmbeddedCorpus(Path(folder.path), rows, words, embedder.hidden_size)


def _manifest(embedder: Embedder, reader: ShardReader) -> dict[str, Any]:
    """Everything that the values and the cuts depend on, but for the rows, which have their hash in a shard's name."""
    names = ("layers", "pooling", "output_dtype", "batch_tokens", "pretokenized")
    return {
        "hf_elmo": __version__,
        "torch": torch.__version__,
        "model": embedder.fingerprint,
        "dtype": None if embedder.dtype is None else str(embedder.dtype).removeprefix("torch."),
        "device": None if embedder.device is None else torch.device(embedder.device).type,
        **{name: getattr(embedder, name) for name in names},
        **reader.reading,
        "shard_rows": reader.shard_rows,
    }


def _counts(
    ray: ModuleType, embedder: Embedder, reader: ShardReader, folder: ShardFolder, workers: int | None
) -> dict[str, tuple[int, int]]:
    """Has the shards computed that are not there; the numbers of rows and words of all, by their names."""
    resources, done = ray.cluster_resources(), folder.done()
    on_gpus = torch.device(embedder.device or "cuda").type == "cuda" and resources.get("GPU", 0) >= 1
    workers = workers or int(resources["GPU" if on_gpus else "CPU"])

    def read(file: dict[str, str]) -> Iterator[dict[str, Any]]:
        for shard in reader.shards(file["path"]):
            rows = [] if shard.name in done else [json.dumps(row) for row in shard.rows]
            yield {"name": shard.name, "path": shard.path, "first": shard.first, "rows": rows}

    files = ray.data.from_items([{"path": path} for path in reader.paths], override_num_blocks=len(reader.paths))
    # Reading takes no core: with one for each worker there may be none left, and then nothing would ever be read.
    reports = files.flat_map(read, num_cpus=0).map(
        ShardWorker,
        fn_constructor_args=(embedder, folder),
        compute=ray.data.ActorPoolStrategy(size=workers),
        **({"num_gpus": 1} if on_gpus else {"num_cpus": 1}),
    )
    return {report["name"]: (report["rows"], report["words"]) for report in reports.iter_rows()}


class ShardWorker:
    """Embeds shards in a process of Ray's, and writes them.

    Args:
        embedder: with the model.
        folder: of the output.
    """

    def __init__(self, embedder: Embedder, folder: ShardFolder) -> None:
        self.embedder, self.folder = embedder, folder

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Computes a shard, unless it is there; its name and the numbers of its rows and words."""
        if len(row["rows"]):
            shard = Shard(row["name"], row["path"], int(row["first"]), [json.loads(text) for text in row["rows"]])
            self.folder.put(shard, self.embedder.embed(shard.rows, shard.path, first=shard.first))
        rows, words = self.folder.count(row["name"])
        return {"name": row["name"], "rows": rows, "words": words}


@contextmanager
def _cluster(ray: ModuleType, progress: bool | None) -> Iterator[None]:
    """Ray, connected for the length of the block where it is not yet; an error of ours is raised as it was there."""
    ours = not ray.is_initialized()
    if ours:
        ray.init()
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.target_max_block_size
    context.enable_progress_bars = before[0] if progress is None else progress
    context.target_max_block_size = 1  # bytes: each shard is handed out, and retried, by itself
    try:
        yield
    except ray.exceptions.RayError as error:
        raise _users_error(error, ray.exceptions.RayError) from error
    finally:
        context.enable_progress_bars, context.target_max_block_size = before
        if ours:
            ray.shutdown()


def _users_error(error: BaseException, rays: type) -> BaseException:
    """What a worker raised, as it was before Ray wrapped it into errors of its own and added advice to its message."""
    while isinstance(error, rays) and (inner := getattr(error, "cause", None) or error.__cause__) is not None:
        error = inner
    if error.args and isinstance(error.args[0], str):
        error.args = (error.args[0].partition("\nFailed to apply UDF transform")[0], *error.args[1:])
    return error
