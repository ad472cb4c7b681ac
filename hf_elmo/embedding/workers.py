"""Embedding in worker processes of others: one callable for Datasets, Ray Data and Spark."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from transformers.utils import cached_file, find_adapter_config_file

from ..checkpoints.loading import Device, Dtype, locate
from ..reading.rows import Row, Rows, pick_column
from ..utils.jobs import require_positive
from .corpus import prepare
from .engine import CorpusEncoder, EmbeddedRows

# The files that vectors depend on, which a worker compares.
CHECKED = re.compile(r"(config|tokenizer\w*|character_vocab|.*\.index)\.json|\w*model.*\.(safetensors|bin)|vocab\.txt")
IMPORTED_BY = os.getpid()  # a process with another id is a fork of this process


@dataclass(unsafe_hash=True, repr=False)
class Embedder:
    """Adds a column of ELMo vectors to batches of texts. One object works in every engine that runs Python in workers.

    An embedder holds only its options, and each process loads the model once, at its first batch. It serves Datasets
    (`dataset.map(embedder, batched=True)`), Ray Data (`map_batches(hf_elmo.Embedder, fn_constructor_args=[folder])`),
    Spark (`mapInPandas` and `mapInArrow`, with an iterator of batches) and a loop. The vectors equal those of [`embed`]
    for the texts of the batch, bit by bit, and in another batch up to rounding. The texts of a batch are sorted by
    length, so large batches, of a thousand texts or more, are faster.

    A forked process, such as those of `num_proc=4`, computes with one thread, because OpenMP's threads do not survive a
    fork; elsewhere PyTorch chooses their number (from `OMP_NUM_THREADS`, which Ray and Spark set). The device is a GPU
    if the process sees one; with `dataset.map(..., with_rank=True)`, rank r takes GPU r, modulo the number of GPUs.

    Args:
        model: the name or folder of an ELMo, which each worker must find; `None` for the model that ships with hf_elmo.
            A worker raises an error if the model's files are not the same as when the embedder was made.
        layers, pooling, dtype, output_dtype, device, batch_tokens, pretokenized: as in [`embed`].
        text_column: that of the texts, by default the first of `text`, `sentence`, `words`, `tokens`, or the only one.
        column: the column to add, with the vectors of each row: `[words, 2P]`, or with `layers="all"`
            `[layers, words, 2P]`; pooled `[2P]` or `[layers, 2P]`. 2P is the size of a vector.
        words_column, threads: a column to add with each row's words; PyTorch's threads in each process, see above.

    Raises:
        OSError: the model does not exist.
    """

    model: str | os.PathLike | None = None
    _: KW_ONLY
    layers: str | int = "mix"
    pooling: str = "none"
    dtype: Dtype = None
    output_dtype: str = "float32"
    device: Device = None
    batch_tokens: int | None = None
    text_column: str | None = field(default=None, compare=False)
    pretokenized: bool = False
    column: str = field(default="embedding", compare=False)
    words_column: str | None = field(default=None, compare=False)
    threads: int | None = None
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        require_positive(batch_tokens=self.batch_tokens, threads=self.threads)
        self.fingerprint = checkpoint_fingerprint(self.model)
        if self.model is not None and os.path.isdir(self.model):
            self.model = os.path.abspath(self.model)  # a relative path may lead elsewhere in a worker

    def __call__(self, batch: Any, rank: int | None = None) -> Any:
        """A batch with its vectors.

        Args:
            batch: columns (lists, arrays) by name, a DataFrame, a Table, a RecordBatch, texts, or an iterator of these.
            rank: the number of this worker among the workers of its machine.

        Returns:
            a new batch of the same kind with `column`, and `words_column` if given; for a list of texts a dict with
            the texts in the column `text` (or `text_column`); for an iterator an iterator. In a dict, the vectors are a
            list of arrays or, pooled, one array; in Arrow `fixed_size_list<float>[2P]`, inside a list of the words,
            inside a `fixed_size_list` of the layers; in pandas nested lists of arrays `[2P]`.

        Raises:
            ValueError: an option is unknown; several columns may have the text; a column to add exists already; the
                worker's model is another one; a number is too large for an `output_dtype` of float16.
            TypeError: `batch` is a single row; a row is neither text nor a list of words.
        """
        if isinstance(batch, Iterator):
            return (self(part, rank) for part in batch)
        if isinstance(batch, (list, tuple)) or hasattr(batch, "dtype"):
            batch = {self.text_column or "text": batch}
        is_arrow = isinstance(batch, (pyarrow.Table, pyarrow.RecordBatch))
        is_frame = hasattr(batch, "assign")
        names = batch.schema.names if is_arrow else list(batch)
        name = pick_column(names, self.text_column, "batch")
        if taken := {self.column, self.words_column}.intersection(names):
            raise ValueError(f"batch has a column {taken.pop()!r} already; choose another column or words_column")
        texts = batch.column(name).to_pylist() if is_arrow else batch[name]
        if name in ("words", "tokens") and getattr(texts, "ndim", 1) == 2:
            texts = list(texts)  # with Datasets' format "numpy", lists of equally many words are one array
        if isinstance(texts, str) or type(batch).__name__ == "LazyRow":
            raise TypeError("batch is a single row: use batched=True in Datasets' map, or map_batches of Ray Data")
        rows = self.embed(texts, f"column {name!r}", rank)
        if is_arrow:
            added = rows.batch()
            for name, source in ((self.column, "embedding"), (self.words_column, "words")):
                batch = batch if name is None else batch.append_column(name, added[source])
            return batch
        columns = {self.column: list(map(_nested, rows.result())) if is_frame else rows.result()}
        if self.words_column is not None:
            columns[self.words_column] = rows.words
        # A batch of Datasets (LazyBatch) converts only the columns that are read or added.
        return batch.assign(**columns) if is_frame else batch | columns

    def embed(self, texts: Iterable[Row], name: str = "texts", rank: int | None = None) -> EmbeddedRows:
        """The vectors of texts, in memory, with the model of this process."""
        return _loaded(os.getpid(), rank, self).embed(Rows(texts, name=name))


def _nested(array: np.ndarray) -> Any:
    """The vectors in nested lists, because Arrow converts only one-dimensional arrays in a frame."""
    return array if array.ndim == 1 else [_nested(part) for part in array]


def checkpoint_fingerprint(name: str | os.PathLike | None) -> str:
    """The SHA-256 of a folder's files, or the commit of a name on the Hub."""
    folder = Path(locate(name))
    if not folder.is_dir():
        file = find_adapter_config_file(str(folder)) or cached_file(str(folder), "config.json")
        return f"commit {Path(file).parent.name}"
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if CHECKED.fullmatch(path.name):
            with open(path, "rb") as file:
                digest.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@lru_cache(maxsize=4)  # models kept in a process that runs several embedders
def _loaded(process: int, rank: int | None, own: Embedder) -> CorpusEncoder:
    """The encoder of embedders with these options here; a fork has neither the threads nor the GPU of its parent."""
    if checkpoint_fingerprint(own.model) != own.fingerprint:
        raise ValueError(f"model {own.model!r} has changed since the Embedder was made: restore its old files")
    if own.threads is not None or process != IMPORTED_BY:
        torch.set_num_threads(own.threads or 1)
    device = own.device
    if device is None and rank is not None and torch.cuda.is_available():
        device = f"cuda:{rank % torch.cuda.device_count()}"
    loaded = prepare(own.model, None, own.dtype, device)
    return CorpusEncoder(*loaded, own.layers, own.pooling, own.output_dtype, own.pretokenized, own.batch_tokens)
