"""Jobs that continue after a kill: rows are cut into shards, which are computed one by one and become one file.

The folder `OUTPUT.parts` keeps the shards until the end: Arrow files whose names have the number of the first row and a
hash of the rows. Like the result, each is written under another name beside it and renamed once it is on the disk.
The manifest has everything else that the shards depend on; a run with another manifest is refused.
"""

import errno
import hashlib
import json
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Literal, TypeVar

import pyarrow
import torch
from huggingface_hub.utils import WeakFileLock
from tqdm.auto import tqdm

from ..configuration_elmo import VERSION
from ..kernels import enabled
from ..modeling_elmo import ElmoPreTrainedModel
from ..reading.files import require_apart
from ..tokenization_elmo import ElmoTokenizer
from .fingerprints import model_fingerprint, tokenizer_fingerprint

MANIFEST = ".manifest.json"
LOCK = ".lock"
JOB = ".job.pt"
DRAFT = ".partial-"
LOCK_SECONDS = 1.0  # how long a run waits for the lock of another run
LINE_SECONDS = 30.0  # between two lines of progress where there is no terminal
LINE = "{desc}: {n_fmt} of {total_fmt} rows, {percentage:.0f}%, {elapsed} elapsed, {remaining} left"
T = TypeVar("T")
_device = "cpu"  # of this worker


class Job:
    """What [`run`] does with a model on its device. `settings` are what the shards depend on besides the model, the
    tokenizer and the rows, JSON-serializable. With several workers, each has a copy of the job, which pickle makes."""

    cut: Callable[[Iterable[Any]], Iterator[list[Any]]]  # the rows of one shard after another, as [`cut`] cuts them
    compute: Callable[[list[Any], int, Path], pyarrow.RecordBatch]  # a shard: rows, the first one's number, a folder
    write: Callable[[Path, Iterator[pyarrow.RecordBatch], int], None]  # the result: a file, shards, the number of rows

    def __init__(self, model: ElmoPreTrainedModel, tokenizer: ElmoTokenizer, **settings: Any) -> None:
        self.model = model
        self.about = {"hf_elmo": VERSION, "model": model_fingerprint(model)}
        self.about["tokenizer"] = tokenizer_fingerprint(tokenizer)
        self.settings = {**self.about, "torch": torch.__version__, "device": model.device.type, **settings}


def cut(rows: Iterable[T], size: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Lists of consecutive rows, each of which ends with the row at which the sizes of its rows reach `limit`; if there
    are no rows, one empty list."""
    part: list[T] = []
    total = 0
    for row in rows:
        if total >= limit:
            yield part
            part = []
            total = 0
        part.append(row)
        total += size(row)
    yield part


def run(job: Job, rows: Iterable, output: Path, bar: tqdm, *, overwrite: bool, restart: bool, workers: int = 1) -> int:
    """Do a job, or what an interrupted run left of it, with the same bytes, and return the number of rows. Options and
    errors are those of [`embed`]; `bar` counts the rows, and forecasts the time of those not computed before."""
    folder = output.with_name(f"{output.name}.parts")
    with _opened(folder, job.settings, restart):
        require_apart(output, {}, overwrite)  # another run may have written it meanwhile
        paths: list[Path] = []
        first = done = 0
        with _computing(job, folder, workers, bar) as compute:
            for part in job.cut(rows):
                # A name that is no part of the row's value, such as that of a FASTA sequence, is a part of its result.
                text = json.dumps([(row, getattr(row, "name", None)) for row in part])
                paths.append(folder / f"{first:09d}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.arrow")
                if paths[-1].exists():
                    done += len(part)
                    bar.initial = done
                    bar.last_print_n = bar.n = bar.n + len(part)  # not counted as this run's speed
                else:
                    compute(paths[-1], part, first)
                first += len(part)
        with _written(output) as draft:
            # Mapped into memory instead of being read at once.
            shards = (pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).get_batch(0) for path in paths)
            job.write(draft, shards, first)
        for path in folder.glob("*.arrow"):  # shards of other rows, too
            path.unlink()
    return first


def require_positive(**numbers: int | None) -> None:
    """Raises ValueError if a number that is given is below 1."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}, but must be 1 or more")


class _Lines:
    """A file for tqdm in which each state of the bar is a line of standard error."""

    def write(self, text: str) -> None:
        if text.strip():
            print(text.strip(), file=sys.stderr, flush=True)


def progress_bar(rows: int, progress: bool | Literal["lines"] | None, name: str) -> tqdm:
    """A progress bar over rows, as `progress` of [`embed`] says."""
    options = {"total": rows, "desc": name, "unit": " rows", "miniters": 0}
    if progress == "lines" and not sys.stderr.isatty():
        return tqdm(**options, file=_Lines(), mininterval=LINE_SECONDS, delay=LINE_SECONDS, bar_format=LINE)
    return tqdm(**options, disable=None if progress in (None, "lines") else not progress)


@contextmanager
def _opened(folder: Path, settings: dict[str, Any], restart: bool) -> Iterator[None]:
    """Use the folder, new or of an interrupted run with the same settings, for this run alone; remove it if empty."""
    manifest = json.loads(json.dumps(settings, default=int))
    path = folder / MANIFEST
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with WeakFileLock(folder / LOCK, timeout=LOCK_SECONDS):
            os.stat(folder / LOCK)  # raises FileNotFoundError if a run that ended just now has removed it
            before = json.loads(path.read_bytes()) if path.exists() else {}
            names = [file for file in folder.iterdir() if not file.name.startswith(".")]
            if names and not before:
                raise FileExistsError(f"{folder} exists, and is not of an interrupted run: choose another output")
            other = ", ".join(name for name in before | manifest if before.get(name) != manifest.get(name))
            if names and other and not restart:
                how = "resume that run with its settings, or discard it with restart=True"
                raise ValueError(f"{folder} has work of an interrupted run that differs in {other}; {how}")
            try:
                for file in folder.iterdir():  # drafts of a run that was killed
                    if file.name.startswith((DRAFT, JOB)) or (restart and file.suffix == ".arrow"):
                        file.unlink()
                with _written(path) as draft:
                    draft.write_text(json.dumps(manifest, indent=2))
                yield
            finally:
                if not any(folder.glob("*.arrow")):
                    path.unlink(missing_ok=True)
                    with suppress(OSError):  # Windows itself removes a lock, when it is released
                        (folder / LOCK).unlink()
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()


@contextmanager
def _written(path: Path) -> Iterator[Path]:
    """A draft beside `path` (or where `path`, a link, leads), which gets this name when it is complete and on the disk.
    After an error the draft is removed, and if the disk was full, the error has the name of the file."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{DRAFT}{path.name}")
    try:
        with naming_full_disk(path):
            yield draft
            with open(draft, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """After an error of a full disk in the block, raises OSError with the name of `path`."""
    try:
        yield
    except Exception as error:
        # safetensors, h5py and `torch.save` raise errors of their own.
        is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if is_full or re.search("No space left|PytorchStreamWriter failed writing|unexpected pos", str(error)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


@contextmanager
def _computing(job: Job, folder: Path, workers: int, bar: tqdm) -> Iterator[Callable[[Path, list[Any], int], Any]]:
    """A function of a shard's path, rows and first row's number that computes it, here or in the next free worker."""
    if workers == 1:
        yield lambda *shard: bar.update(_compute(job, *shard))
        return
    file = folder / JOB
    with _written(file) as draft:
        torch.save(job, draft)
    context = get_context("spawn")
    devices = context.SimpleQueue()
    kind = job.model.device.type
    count = torch.get_device_module(kind).device_count()
    for worker in range(workers):
        devices.put("cpu" if kind == "cpu" else f"{kind}:{worker % count}")
    setting = ",".join(enabled()) or "off"  # that of `kernels.use` ends with this process
    starts_with = devices, max(1, torch.get_num_threads() // workers), setting
    pool = ProcessPoolExecutor(workers, context, _start_worker, starts_with)
    pending: deque[Future[int]] = deque()

    def compute(*shard: Any) -> None:
        if len(pending) == 2 * workers:  # the rows of further shards would wait in memory
            bar.update(pending.popleft().result())
        pending.append(pool.submit(_compute, file, *shard))

    try:
        yield compute
        for future in pending:
            bar.update(future.result())
    finally:
        pool.shutdown(cancel_futures=True)
        file.unlink()


def _compute(job: Job | Path, path: Path, rows: list[Any], first: int) -> int:
    """Compute a shard by a job, or in a worker by the job in this file."""
    job = _job_of_worker(job) if isinstance(job, Path) else job
    with _written(path) as draft:
        batch = job.compute(rows, first, path.parent)
        with pyarrow.ipc.new_file(str(draft), batch.schema) as writer:
            writer.write_batch(batch)
    return len(rows)


def _start_worker(devices: Any, threads: int, setting: str) -> None:
    global _device
    os.environ["HF_ELMO_KERNELS"] = setting
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, and the worker with it
    torch.set_num_threads(threads)
    _device = devices.get()

    def end_with_parent() -> None:
        parent_process().join()
        os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()


@cache
def _job_of_worker(file: Path) -> Job:
    """The job of this worker. On the CPU, all workers share the weights, mapped into memory."""
    return torch.load(file, map_location=_device, mmap=True, weights_only=False)
