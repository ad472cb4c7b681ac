"""One callable that embeds batches, whoever brings them: Datasets, Ray Data, Spark or a loop."""

from __future__ import annotations

import hashlib
import multiprocessing.process
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from .. import shipped
from ..configuration_elmo import ElmoConfig
from .corpus import Job, check_layers, check_options, job_of, prepare, torch_dtype
from .engine import CorpusEncoder
from .memory import EmbeddedRows
from .readers import RowsRead, SentenceSource, pick_column

CHECKPOINT_FILES = (".json", ".safetensors", ".bin", ".txt")  # by their endings; a card or code changes no vector
IMPORTED_BY = os.getpid()  # another process that has this module is a fork
LOADED_AT_ONCE = 4  # models in a process, where several embedders are at work in it


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

    **Threads and GPUs of a worker.** When the model is loaded, the number of PyTorch's threads is set to `threads`; by
    default to 1 in a process of a `multiprocessing` pool (as `num_proc=4` makes it; PyTorch's `DataLoader` does the
    same, and where the process was forked more are refused: they may hang), else to `OMP_NUM_THREADS` where it is set
    (Ray and Spark set it to the worker's cores), else it stays PyTorch's own. The device is `device`; by default a GPU
    if the process sees one (an actor of Ray with `num_gpus=1` sees its own), else the CPU. `dataset.map(...,
    with_rank=True)` gives the worker of rank r GPU r, modulo their number.

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
        FileNotFoundError, OSError: there is no such model.
        ValueError: unknown layer or option; the folder is no checkpoint.
        TypeError: `model` is a model, not the name of one.
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
        if not (model is None or isinstance(model, (str, os.PathLike))):
            raise TypeError(
                f"model is a {type(model).__name__}, but each worker loads its own: give its name or folder (of a new "
                "one, after model.save_pretrained(folder) and tokenizer.save_pretrained(folder)), or use hf_elmo.embed"
            )
        check_options(pooling, output_dtype, batch_tokens, None)
        torch_dtype(dtype)
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}, but must be 1 or more")
        if words_column is not None and words_column == column:
            raise ValueError(f"column and words_column are both {column!r}; choose two names")
        # A relative path may lead elsewhere in a worker.
        self.model = os.path.abspath(model) if model is not None and os.path.isdir(model) else model
        self.fingerprint = checkpoint_fingerprint(self.model)
        _, config = _config(self.model)
        self.layers, self.hidden_size = check_layers(layers, config.num_hidden_layers), config.hidden_size
        self.pooling, self.dtype, self.output_dtype, self.device = pooling, dtype, output_dtype, device
        self.batch_tokens, self.pretokenized, self.threads = batch_tokens, pretokenized, threads
        self.text_column, self.column, self.words_column = text_column, column, words_column

    def __repr__(self) -> str:
        options = ", ".join(
            f"{name}={value!r}" for name, value in vars(self).items() if name not in ("fingerprint", "hidden_size")
        )
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
            ValueError: which column holds the text is not clear; columns differ in length; a column to add is there
                already; the worker's model is another; a number is too large for an `output_dtype` of float16.
            TypeError: `batch` is a single row; a row is neither text nor a list of words; or `batch` is nothing of the
                above.
        """
        if isinstance(batch, Iterator):
            return (self(one, rank) for one in batch)
        if isinstance(batch, (list, tuple)) or getattr(batch, "ndim", 0) == 1:
            batch = {self.text_column or "text": batch}
        kind = _kind_of(batch)
        names = kind.names(batch)
        text = pick_column(names, self.text_column, "batch")
        kind.require_rows(batch, text)
        if taken := [name for name in (self.column, self.words_column) if name in names]:
            raise ValueError(f"batch has a column {taken[0]!r} already; choose another name for what is added")
        rows = self.embed(kind.texts(batch, text), f"column {text!r}", rank)
        words = {} if self.words_column is None else {self.words_column: rows.words}
        return kind.add(batch, {self.column: kind.vectors(rows), **words})

    def embed(
        self, texts: Iterable[str | list[str]], name: str = "texts", rank: int | None = None, first: int = 0
    ) -> EmbeddedRows:
        """The vectors of texts, in memory, with the model of this process; errors call the texts `name`, and count them
        from `first` on."""
        names = ("column", "words_column", "text_column")  # the model has no part in them
        options = tuple((name, value) for name, value in vars(self).items() if name not in names)
        job, encoder = _loaded(os.getpid(), rank, options)
        rows = SentenceSource(texts, name, first=first)
        return EmbeddedRows.of(job.layout, encoder, job.windows(rows, RowsRead()), first, name)


def _config(name: str | os.PathLike | None) -> tuple[str, ElmoConfig]:
    """The folder of a model, or its name on the Hub, and its configuration."""
    with shipped.named(shipped.FOLDER if name is None else name) as place:
        return place, ElmoConfig.from_pretrained(place)


def checkpoint_fingerprint(name: str | os.PathLike | None) -> str:
    """Of a folder the SHA-256 of its files, of a name on the Hub its commit: equal where the checkpoints are equal."""
    place, config = _config(name)
    folder = Path(place)
    if not folder.is_dir():
        return f"commit {config._commit_hash}"
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in CHECKPOINT_FILES and path.is_file():
            with open(path, "rb") as file:
                digest.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@lru_cache(maxsize=LOADED_AT_ONCE)
def _loaded(process: int, rank: int | None, options: tuple[tuple[str, Any], ...]) -> tuple[Job, CorpusEncoder]:
    """The model of an embedder in this process: not that of a parent, whose threads and GPU a fork does not have."""
    chosen = dict(options)
    if (found := checkpoint_fingerprint(chosen["model"])) != chosen["fingerprint"]:
        raise ValueError(
            f"model {chosen['model'] or shipped.NAME!r} is not the one for which the embedder was made (here "
            f"{found:.12}, there {chosen['fingerprint']:.12}): give all machines the same files, and make the embedder "
            "again where they have changed"
        )
    if (threads := _threads(chosen["threads"])) is not None:
        torch.set_num_threads(threads)
    device = chosen["device"]
    if device is None and rank is not None and torch.cuda.is_available():
        device = f"cuda:{rank % torch.cuda.device_count()}"
    model, tokenizer = prepare(chosen["model"], None, chosen["dtype"], device)
    names = ("layers", "pooling", "output_dtype", "batch_tokens", "pretokenized")
    job = job_of(model, tokenizer, **{name: chosen[name] for name in names}, progress=False)
    return job, job.encoder(tempfile.TemporaryFile, job.bar(None), job.budget)


def _threads(asked: int | None) -> int | None:
    """How many threads this process takes; `None` for PyTorch's own number."""
    forked = os.getpid() != IMPORTED_BY
    if forked and asked is not None and asked > 1:
        raise ValueError(
            f"threads is {asked}, but this process was forked from one with PyTorch in it, where more than one may "
            "wait forever (OpenMP's threads do not survive a fork): take threads=1 and more processes, or start them "
            "with multiprocess.set_start_method('spawn')"
        )
    if asked is not None:
        return asked
    if forked or any(library.parent_process() is not None for library in _multiprocessing()):
        return 1
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]  # of nested levels the first
    return int(said) if said.isdecimal() and int(said) > 0 else None


def _multiprocessing() -> list[ModuleType]:
    """The standard library's, and the copy of it that Datasets uses."""
    other = sys.modules.get("multiprocess.process")
    return [multiprocessing.process, *([] if other is None else [other])]


class _Columns:
    """Batches that are columns by name; vectors are NumPy arrays."""

    @staticmethod
    def names(batch: Any) -> list[str]:
        return list(batch)

    @staticmethod
    def require_rows(batch: Any, text: str) -> None:
        """Raises where a dict is a row, whose words or characters would each be taken for a text, or has columns of
        several lengths. (`map` of Datasets gives its own mappings, whose other columns reading would convert.)"""
        lazy = sys.modules.get("datasets.formatting.formatting")
        if lazy is not None and isinstance(batch, lazy.LazyBatch):
            return
        single = next((name for name in (text, *batch) if not _is_column(batch[name])), None)
        if single is not None or (lazy is not None and isinstance(batch, lazy.LazyRow)):
            name = text if single is None else single
            raise TypeError(
                f"batch is a single row, whose column {name!r} is a {type(batch[name]).__name__}, but columns hold a "
                "value for each row of several: in map of Datasets batched=True is missing, in Ray Data map_batches"
            )
        rows = {name: len(batch[name]) for name in batch if hasattr(batch[name], "__len__")}
        if other := [name for name in rows if rows[name] != rows.get(text, rows[name])]:
            raise ValueError(
                f"batch has {rows[text]} rows in column {text!r}, but {rows[other[0]]} in column {other[0]!r}; give "
                "each column a value for each text (of a single row: batched=True is missing in map of Datasets)"
            )

    @staticmethod
    def texts(batch: Any, name: str) -> Any:
        values = batch[name]
        return list(values) if getattr(values, "ndim", 1) == 2 else values  # lists of words that are as long

    @staticmethod
    def vectors(rows: EmbeddedRows) -> Any:
        return rows.arrays()

    @staticmethod
    def add(batch: Any, columns: dict[str, Any]) -> Any:
        # Of a batch of Datasets (LazyBatch) only what was read and what is added is converted.
        return batch | columns if hasattr(batch, "__or__") else {**batch, **columns}


def _is_column(values: Any) -> bool:
    """Whether they are a column, a value for each row; a number, a text or a dict is one row's value."""
    scalar = isinstance(values, (str, bytes, Mapping)) or getattr(values, "ndim", 1) == 0
    return isinstance(values, Iterable) and not scalar


class _Frame(_Columns):
    """Batches of pandas; vectors are nested lists of 1-D views, as Arrow takes no array of more dimensions."""

    @staticmethod
    def require_rows(batch: Any, text: str) -> None:
        """A frame has rows."""

    @staticmethod
    def texts(batch: Any, name: str) -> Any:
        values = batch[name].astype(object)
        return values.where(values.notna(), None)  # NaN and NA are nulls

    @staticmethod
    def vectors(rows: EmbeddedRows) -> Any:
        return [_nested(array) for array in rows.arrays()]

    @staticmethod
    def add(batch: Any, columns: dict[str, Any]) -> Any:
        return batch.assign(**columns)


def _nested(array: np.ndarray) -> Any:
    return array if array.ndim == 1 else [_nested(part) for part in array]


class _Arrow(_Columns):
    """Tables and record batches of pyarrow; vectors are lists of a fixed size in the memory of the engine's windows."""

    @staticmethod
    def require_rows(batch: Any, text: str) -> None:
        """A table has rows."""

    @staticmethod
    def names(batch: Any) -> list[str]:
        return batch.schema.names

    @staticmethod
    def texts(batch: Any, name: str) -> Any:
        return batch.column(name).to_pylist()

    @staticmethod
    def vectors(rows: EmbeddedRows) -> Any:
        return rows.arrow()

    @staticmethod
    def add(batch: Any, columns: dict[str, Any]) -> Any:
        import pyarrow

        arrays, schema = list(batch.columns), batch.schema
        for name, values in columns.items():
            array = values if hasattr(values, "type") else pyarrow.array(values, pyarrow.list_(pyarrow.string()))
            schema = schema.append(pyarrow.field(name, array.type))
            arrays.append(array)
        if isinstance(batch, pyarrow.RecordBatch):
            arrays = [_one_array(array) for array in arrays]
        return type(batch).from_arrays(arrays, schema=schema)


def _one_array(array: Any) -> Any:
    chunks = getattr(array, "chunks", [array])
    return chunks[0] if len(chunks) == 1 else array.combine_chunks()


def _kind_of(batch: Any) -> type[_Columns]:
    # Nobody has a table of a library that is not imported yet.
    pyarrow, pandas = sys.modules.get("pyarrow"), sys.modules.get("pandas")
    if isinstance(batch, Mapping):
        return _Columns
    if pyarrow is not None and isinstance(batch, (pyarrow.Table, pyarrow.RecordBatch)):
        return _Arrow
    if pandas is not None and isinstance(batch, pandas.DataFrame):
        return _Frame
    raise TypeError(
        f"batch is a {type(batch).__name__}; give columns by name (a dict), a pandas DataFrame, a pyarrow Table or "
        "RecordBatch, a list of texts, or an iterator of these"
    )
