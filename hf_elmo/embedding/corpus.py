"""Embed a corpus (sentences in memory, or a file of sentences) into word vectors, in memory or in a file."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import accumulate, islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Literal, overload

import numpy as np
import torch
from tqdm import tqdm

from .. import __version__
from ..evaluation import evaluation_mode
from ..fingerprints import model_fingerprint, tokenizer_fingerprint
from ..loading import load_weights, tokenizer_of
from ..modeling_elmo import ElmoModel
from ..spelling import require_tokenizer
from ..text import NamedRow, Pair, Row, RowSource, check_pair, check_row
from ..tokenization_elmo import ElmoTokenizer, require_list
from .engine import BOUNDARIES, CorpusEncoder, EmbeddedRows, RowLayout, Window
from .progress import progress_bar
from .store import ShardStore, export, require_free, require_writable

# Large enough for full speed: on a CPU, the smaller the model's matrix products, the more tokens a batch needs.
BATCH_TOKENS, BATCH_TOKENS_CPU = 16384, 4096
BATCH_VALUES_CPU = 1 << 22  # numbers in a batch's word vectors: projection_size for each token
WINDOW_BATCHES = 16  # sorting by length within this many batches leaves little padding
SPLIT_ROWS, SPLIT_CHARACTERS = 512, 1 << 20  # limits of the text that is split into words at a time
FIRST_WORDS = 1 << 15  # from the first rows with this many words, the number of words of the input is estimated
LONG_RUN = 50  # a run of more batches than this first measures the speed of one
OUTPUT_DTYPES = ("float32", "float16")  # NumPy, hdf5 and Parquet have no bfloat16


@dataclass(frozen=True)
class EmbeddedCorpus:
    """What [`embed`] wrote: the path, the number of rows, the number of words, and the size of a vector, 2P."""

    path: Path
    rows: int
    words: int
    hidden_size: int


@overload
def embed(
    model: Any, inputs: Any, output: None = None, *, pooling: Literal["none"] = "none", **options: Any
) -> list[np.ndarray]: ...
@overload
def embed(model: Any, inputs: Any, output: None = None, *, pooling: str, **options: Any) -> np.ndarray: ...
@overload
def embed(model: Any, inputs: Any, output: str | os.PathLike, **options: Any) -> EmbeddedCorpus: ...
def embed(
    model: ElmoModel | str | os.PathLike | None,
    inputs: str | os.PathLike | Iterable[str | list[str]],
    output: str | os.PathLike | None = None,
    *,
    tokenizer: ElmoTokenizer | None = None,
    layers: str | int = "mix",
    pooling: str = "none",
    dtype: str | torch.dtype | None = None,
    output_dtype: str = "float32",
    device: str | torch.device | None = None,
    batch_tokens: int | None = None,
    window: int | None = None,
    input_format: str | None = None,
    text_column: str | int | None = None,
    encoding: str = "utf-8",
    pretokenized: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: bool | Literal["lines"] | None = None,
    workers: int = 1,
) -> list[np.ndarray] | np.ndarray | EmbeddedCorpus:
    """Embed sentences, or a file of sentences.

    A row's vectors depend only on its words: the same line gives the same vectors anywhere in a corpus (up to rounding,
    which may differ with the shape of a batch). The model reads sentence boundaries, but the result leaves them out.
    Rows keep their order; a blank row has no words, and its pooled vector is zero. With `output`, memory use does not
    grow with the number of rows; of a long document, the words are in memory, but not the vectors.

    With `output`, finished work is kept in the folder `OUTPUT.parts` until the end. An interrupted run that is started
    again resumes from that folder, with the same result; the folder takes about as much disk space as the output.

    Args:
        model: an ELMo, or the name or folder of an ELMo; `None` for the model that ships with hf_elmo. A model with a
            head is used without the head.
        inputs: sentences, each a string or a list of words; or the path of a file, in which each line or record is a
            row: `.txt`, `.jsonl`, `.csv`, `.tsv`, `.fasta` (all also with `.gz`), `.parquet`; `"-"` is standard input.
            In FASTA (also `.fa`, `.faa`), each letter is a word.
        output: the file to write; its ending gives the format. `.safetensors`, `.npz`, `.hdf5` and `.h5` (laid out as
            by bilm-tf's `dump_bilm_embeddings`) have one array for each row, named by the row's number (`"0"`, `"1"`,
            ...), or, if pooled, one array `embeddings` for all rows; `.parquet` has the columns `row`, `words` and
            `embedding`. Each FASTA sequence has one array, named by its identifier (in Parquet, the column `id`).
            With `None`, the vectors are returned.
        tokenizer: splits text into words and characters; by default that of the model's folder, else `ElmoTokenizer()`.
        layers: `"mix"` (the scalar mix), `"sum"` (of the biLM's layers, as in SeqVec), `"all"` (every layer of the
            biLM, 0 first) or the number of one layer.
        pooling: `"none"` (a vector for each word), or the `"mean"` or `"max"` over the words of a row.
        dtype: the dtype to compute in (`"float32"`, `"float16"`, `"bfloat16"`); by default the model's.
        output_dtype: the dtype of the arrays, `"float32"` or `"float16"` (numbers over 65,504 raise an error).
        device: the device to compute on; by default the model's, or, if its name is given, a GPU if there is one.
        batch_tokens: the most words, boundaries and padding in one batch; by default 16,384, on a CPU fewer if P
            (half the size of a vector) is above 256: 8,192 for 512. It is halved, with a warning, when memory runs out.
            Longer rows are embedded in pieces, with the same result.
        window: the number of tokens (a window) within which rows are sorted by length; finished work is saved after
            each window. By default 16 batches.
        input_format: `"text"`, `"jsonl"`, `"csv"`, `"tsv"`, `"parquet"` or `"fasta"`; by default the ending decides.
        text_column: the column or key with the text; for CSV without a header, the index of the column.
        encoding: the encoding of the input file.
        pretokenized: the text is tokenized already: whitespace separates its words. (A row that is a list of words is
            never split again.)
        overwrite: replace `output` if it exists.
        restart: discard what an interrupted run of the same `output` left, instead of resuming it.
        progress: show a progress bar; by default on a terminal only. `"lines"` prints a line every half a minute where
            there is no terminal. Where progress is shown, a run with `output` says before it starts how many rows and
            words there are, and about how much disk space and time they take.
        workers: with `output`, the number of processes on this machine. They divide PyTorch's threads, and each embeds
            a window at a time, with the same result; they share only the weights. If a worker is killed, the run ends,
            and resumes when it is started again. (Workers are spawned: a script needs `if __name__ == "__main__":`.)

    Returns:
        With `output`, an [`EmbeddedCorpus`]. Otherwise one array for each row, `[words, 2P]`, or with all layers
        `[layers, words, 2P]`; or, if pooled, one array `[rows, 2P]` or `[rows, layers, 2P]`.

    Raises:
        FileNotFoundError, FileExistsError: the input does not exist; the output exists.
        ValueError: a layer, option or ending is unknown; the input is malformed; `output` is the input, or a format in
            which a sequence cannot be named; a number is too large for an `output_dtype` of float16; the interrupted
            run had other settings. (Vectors that are not finite, such as those of a diverged model, give one warning.)
        ImportError: `output` is HDF5, and h5py is not installed.
        TypeError: a row is neither text nor a list of words.
        TimeoutError: another run is writing `output`.
        MemoryError: not even one word fits on the device.
        BrokenProcessPool: a worker was killed.
    """
    require_positive(batch_tokens=batch_tokens, window=window, workers=workers)
    if output is not None:
        output = Path(output)
        require_free(output, inputs, overwrite)
    reading = {"file_format": input_format, "text_column": text_column, "encoding": encoding}
    with tempfile.TemporaryDirectory(prefix="hf_elmo_") as folder:
        rows = rows_of(inputs, reading, Path(folder), spool=output is not None)
        survey = None if output is None else RowSurvey.of(rows)  # a malformed row raises here, before the work
        model, tokenizer = prepare(model, tokenizer, dtype, device)
        chosen = {"layers": layers, "pooling": pooling, "output_dtype": output_dtype, "pretokenized": pretokenized}
        job = Job.of(model, tokenizer, **chosen, batch_tokens=batch_tokens, window=window)
        with evaluation_mode(model):
            rows = list(rows) if output is None else rows
            with progress_bar(len(rows) if output is None else survey.rows, "embedding", progress) as bar:
                if output is None:
                    return job.embedded(rows, job.encoder(bar)).arrays()
                return _embed_to_file(job, rows, survey, output, overwrite, restart, workers, bar)


def _embed_to_file(
    job: Job,
    rows: Iterable[Row],
    survey: RowSurvey,
    output: Path,
    overwrite: bool,
    restart: bool,
    workers: int,
    bar: tqdm,
) -> EmbeddedCorpus:
    require_writable(output, job.layout, survey.names, survey.rows)
    manifest = {
        "hf_elmo": __version__,
        "torch": torch.__version__,
        "model": model_fingerprint(job.model),
        "tokenizer": tokenizer_fingerprint(job.tokenizer),
        "dtype": str(job.model.dtype),
        "device": job.model.device.type,
        **job.options,
        "rows": survey.rows,
        "rows_sha256": survey.sha256,
    }
    store = ShardStore(output.with_name(output.name + ".parts"), ".arrow")
    with store.opened(manifest, restart=restart):
        require_free(output, None, overwrite)  # another run may have written it meanwhile
        if not bar.disable:
            bar.write(size_of_run(job, survey, output), file=sys.stderr)
        if (words := _fill(job, rows, survey, store, workers, bar)) is None:
            store.remove(store.names())
            raise ValueError("the input changed during the run, so nothing was written: run it again")
        store.become(output, lambda draft: export(store, job.layout, survey.rows, draft, rows))
    return EmbeddedCorpus(output, survey.rows, words, job.layout.size)


def size_of_run(job: Job, survey: RowSurvey, output: Path) -> str:
    """A sentence on a run: its rows and words (estimated from the first rows), the size of its output, its time."""
    first_rows = job.tokenizer.split_into_words(survey.first_rows, job.options["pretokenized"])
    words_of_first = sum(map(len, first_rows))
    words = round(survey.words * words_of_first / max(1, sum(map(_num_words, survey.first_rows))))
    layout = job.layout
    size_of_vector = math.prod(layout.shape(1)) * np.dtype(layout.dtype).itemsize
    size = size_of_vector * (survey.rows if layout.pooled else words)
    folder = next(parent for parent in output.absolute().parents if parent.exists())
    text = f"{survey.rows:,} rows, about {words:,} words"
    if size > 1e7:
        text += f": {output.name} will take about {size / 1e9:,.2f} GB, and {output.name}.parts as much until the end "
        text += f"({shutil.disk_usage(folder).free / 1e9:,.0f} GB are free)"
    ends = list(accumulate(len(row) + BOUNDARIES for row in first_rows))
    batch = first_rows[: bisect_right(ends, job.options["batch_tokens"])]
    if words > LONG_RUN * sum(map(len, batch)) > 0:
        encoder = job.encoder(progress_bar(None, "", False))
        for _ in range(2):  # the first time includes preparations
            start = time.perf_counter()
            encoder.encode(batch, Window(layout, batch))
        speed = sum(map(len, batch)) / (time.perf_counter() - start)
        text += f"; about {timedelta(seconds=round(words / speed))} h at {speed:,.0f} words/s"
    if size > 1e9 and not layout.pooled:
        text += f". Pooled, the output takes {size_of_vector * survey.rows / 1e9:,.2f} GB; float16 halves it"
    return text


def _fill(job: Job, rows: Iterable[Row], survey: RowSurvey, store: ShardStore, workers: int, bar: tqdm) -> int | None:
    """Embed the windows whose shards are missing.

    Returns:
        the number of words, or `None` if the rows differ from the rows that were surveyed.
    """
    done, first, words, read = set(store.names()), 0, 0, RowSurvey()
    with _shard_writer(job, store, workers, bar) as write_shard:
        for number, window_rows in enumerate(job.windows(read.count(rows))):
            name = f"{number:06d}"
            if name + store.ending in done:
                bar.update(len(window_rows))
            else:
                write_shard(name, window_rows, first)
            first += len(window_rows)
            words += sum(map(len, window_rows))
    return words if read == survey else None


@contextmanager
def _shard_writer(
    job: Job, store: ShardStore, workers: int, bar: tqdm
) -> Iterator[Callable[[str, list[list[str]], int], Any]]:
    """A function `(shard's name, its rows, number of the first row)` that embeds the rows and writes the shard. It
    works in this process or, if there are several workers, in the next free worker."""
    if workers == 1:
        encoder = job.encoder(bar)
        yield lambda name, rows, first: _write_shard(job, encoder, store, name, rows, first)
        return
    file, threads = Path(store.path, ".job.pt"), max(1, torch.get_num_threads() // workers)
    torch.save(job, file)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _job_of_worker, (file, threads))
    pending: deque[Future[int]] = deque()

    def write_shard(name: str, rows: list[list[str]], first: int) -> None:
        if len(pending) == 2 * workers:  # the rows of further windows would wait in memory
            bar.update(pending.popleft().result())
        pending.append(pool.submit(_write_shard_in_worker, file, threads, store, name, rows, first))

    try:
        yield write_shard
        for future in pending:
            bar.update(future.result())
    finally:
        pool.shutdown(cancel_futures=True)
        file.unlink()


def _write_shard(
    job: Job, encoder: CorpusEncoder, store: ShardStore, name: str, rows: list[list[str]], first: int
) -> int:
    window = Window(job.layout, rows, first, store.path)
    encoder.encode(rows, window)
    store.write(name, window.table())
    return len(rows)


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)


@cache
def _job_of_worker(file: Path, threads: int) -> tuple[Job, CorpusEncoder]:
    """The job that the parent has saved, and its encoder. All workers share the weights, mapped into memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, and the worker with it
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    job = torch.load(file, mmap=True, weights_only=False)
    return job, job.encoder(progress_bar(None, "", False))


def _write_shard_in_worker(file: Path, threads: int, *arguments: Any) -> int:
    return _write_shard(*_job_of_worker(file, threads), *arguments)


def check_options(layers: str | int, num_hidden_layers: int, pooling: str, output_dtype: str) -> None:
    """Raises ValueError for an unknown layer, pooling or dtype of the output."""
    if layers not in ("mix", "sum", "all") and layers not in range(num_hidden_layers + 1):
        raise ValueError(f"layers is {layers!r}, but must be 'mix', 'sum', 'all', or 0 to {num_hidden_layers}")
    if pooling not in ("none", "mean", "max"):
        raise ValueError(f"pooling is {pooling!r}, but must be 'none', 'mean' or 'max'")
    if output_dtype not in OUTPUT_DTYPES:
        raise ValueError(f"output_dtype is {output_dtype!r}, but must be one of {', '.join(OUTPUT_DTYPES)}")


def require_positive(**numbers: int | None) -> None:
    """Raises ValueError if a number that is given is below 1."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}, but must be 1 or more")


def prepare(
    model: ElmoModel | str | os.PathLike | None,
    tokenizer: ElmoTokenizer | None,
    dtype: str | torch.dtype | None,
    device: str | torch.device | None,
) -> tuple[ElmoModel, ElmoTokenizer]:
    """The base model, copied if `dtype` is another one or a `device` is given, and the tokenizer."""
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    if model is None or isinstance(model, (str, os.PathLike)):
        model = load_weights(model, dtype=dtype, device=device)
    else:
        model = model.get_base_model() if hasattr(model, "get_base_model") else model  # of a PeftModel: adapters stay
        model = getattr(model, "base_model", model)
        if dtype not in (None, model.dtype) or device is not None:
            model = copy.deepcopy(model).to(device=device, dtype=dtype)  # type: ignore[call-arg]
    tokenizer = tokenizer_of(model) if tokenizer is None else tokenizer
    require_tokenizer(model.config, tokenizer)
    return model, tokenizer


@dataclass(frozen=True)
class Sentences:
    """Sentences in memory as rows.

    Args:
        sentences: each a string or a list of words.
        pairs: whether each sentence is a tuple of a text and its pair, which is another text or a whole number.
        name: the name of the sentences in error messages.
    """

    sentences: Iterable[Any]
    pairs: bool = False
    name: str = "inputs"

    def __iter__(self) -> Iterator[Row | Pair]:
        require_list(self.sentences, self.name)
        check = check_pair if self.pairs else check_row
        for row, sentence in enumerate(self.sentences):
            yield check(sentence, f"{self.name}, row {row} (from 0)")


def rows_of(
    inputs: Any, reading: dict[str, Any], folder: Path, pairs: bool = False, spool: bool = True
) -> RowSource | Sentences:
    """The rows of a file, of standard input (`"-"`), or of sentences; `reading` has the options of [`RowSource`].

    With `pairs`, each sentence is a tuple (text, pair). Standard input can be read only once, so it is copied into
    `folder`. With `spool`, a generator is copied, too."""
    if isinstance(inputs, (str, os.PathLike)):
        if str(inputs) != "-":
            return RowSource(inputs, **reading)
        path = folder / f"standard_input.{reading['file_format'] or 'text'}"
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return RowSource(path, **{**reading, "file_format": reading["file_format"] or "text"})
    rows = Sentences(inputs, pairs)
    if not (spool and iter(inputs) is inputs):
        return rows
    path = folder / "inputs.jsonl"
    with open(path, "w", encoding="ascii") as file:
        file.writelines(json.dumps({"text": row[0], "pair": row[1]} if pairs else row) + "\n" for row in rows)
    return RowSource(path, **({"text_column": "text", "text_pair_column": "pair"} if pairs else {}))


class RowSurvey:
    """The numbers of rows and of words (at whitespace), the first rows, the SHA-256 of the contents of all rows, and
    their names if they have any."""

    def __init__(self) -> None:
        self.rows, self.words, self._digest = 0, 0, hashlib.sha256()
        self.first_rows: list[Row | Pair] = []
        self.names: list[str] | None = None

    @classmethod
    def of(cls, rows: Iterable[Row | Pair]) -> RowSurvey:
        """The survey of all rows."""
        survey = cls()
        for _ in survey.count(rows):
            pass
        return survey

    def count(self, rows: Iterable[Row | Pair]) -> Iterator[Row | Pair]:
        """Yields the same rows, and adds each of them to the survey."""
        for row in rows:
            name = row.name if isinstance(row, NamedRow) else None
            self._digest.update(json.dumps([row, name]).encode() + b"\n")
            if self.words < FIRST_WORDS:
                self.first_rows.append(row)
            self.rows += 1
            self.words += _num_words(row)
            if name is not None:
                self.names = [] if self.names is None else self.names
                self.names.append(name)
            yield row

    @property
    def sha256(self) -> str:
        """The digest of the rows counted so far."""
        return self._digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSurvey) and (self.rows, self.sha256) == (other.rows, other.sha256)


def _num_words(row: Row | Pair) -> int:
    """The number of words of a row, at whitespace."""
    return len(row.split() if isinstance(row, str) else row)


@dataclass
class Job:
    """What to compute: the model, its tokenizer, and the options."""

    model: ElmoModel
    tokenizer: ElmoTokenizer
    options: dict[str, Any]

    @classmethod
    def of(cls, model: ElmoModel, tokenizer: ElmoTokenizer, window: int | None = None, **options: Any) -> Job:
        """A job with the options of [`embed`]: `layers`, `pooling`, `output_dtype`, `batch_tokens`, `pretokenized`."""
        layers, pooling, output_dtype = (options[name] for name in ("layers", "pooling", "output_dtype"))
        check_options(layers, model.config.num_hidden_layers, pooling, output_dtype)
        on_cpu = max(BATCH_TOKENS_CPU, min(BATCH_TOKENS, BATCH_VALUES_CPU // model.config.projection_size))
        batch_tokens = options["batch_tokens"] or (on_cpu if model.device.type == "cpu" else BATCH_TOKENS)
        options |= {"batch_tokens": batch_tokens, "window": window or WINDOW_BATCHES * batch_tokens}
        return cls(model, tokenizer, options)

    @property
    def layout(self) -> RowLayout:
        """Shape and dtype of a row of the result."""
        config, options = self.model.config, self.options
        layers = config.num_hidden_layers + 1 if options["layers"] == "all" else None
        return RowLayout(layers, config.hidden_size, options["pooling"] != "none", options["output_dtype"])

    def encoder(self, bar: tqdm) -> CorpusEncoder:
        """The encoder, which shows its progress on `bar`."""
        words_done = 0

        def advance(rows: int, words: float) -> None:
            nonlocal words_done
            words_done += words
            elapsed = bar.format_dict["elapsed"]
            bar.set_postfix_str(f"{words_done / elapsed:,.0f} words/s" if elapsed else "", refresh=False)
            bar.update(rows)

        chosen = (self.options[name] for name in ("layers", "pooling", "batch_tokens"))
        return CorpusEncoder(self.model, self.tokenizer, *chosen, advance=advance)

    def windows(self, rows: Iterable[Row]) -> Iterator[list[list[str]]]:
        """The words of rows, one window at a time. Only the rows and the option `window` decide where a window ends."""
        window, tokens = [], 0
        rows = iter(rows)
        while texts := _next_chunk(rows):
            split = self.tokenizer.split_into_words(texts, self.options["pretokenized"])
            for text, words in zip(texts, split, strict=True):
                window.append(NamedRow(words, text.name) if isinstance(text, NamedRow) else words)
                tokens += len(words) + BOUNDARIES
                if tokens >= self.options["window"]:
                    yield window
                    window, tokens = [], 0
        if window:
            yield window

    def embedded(self, rows: Iterable[Row], encoder: CorpusEncoder, first: int = 0) -> EmbeddedRows:
        """The vectors of rows, in memory; messages count the rows from `first`."""
        embedded = EmbeddedRows(self.layout)
        for words in self.windows(rows):
            window = Window(self.layout, words, first)
            encoder.encode(words, window)
            embedded.windows.append(window)
            first += len(words)
        return embedded


def _next_chunk(rows: Iterator[Row]) -> list[Row]:
    """The next rows: `SPLIT_ROWS`, or fewer if they are long."""
    chunk, characters = [], 0
    for row in islice(rows, SPLIT_ROWS):
        chunk.append(row)
        characters += len(row)  # of a list, the number of its words
        if characters > SPLIT_CHARACTERS:
            break
    return chunk
