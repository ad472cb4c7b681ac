"""Files and folders that appear complete or not at all, and the check of what was written."""

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.utils import WeakFileLock


@contextmanager
def new_path(out: Path) -> Iterator[Path]:
    """
    A path beside `out`, for a file or a folder that is renamed to `out` when the block ends, or removed if it raises.
    What killed runs left beside `out` is removed first. Of several processes with the same `out` one works at a time.

    Raises:
        FileExistsError: `out` exists.
    """
    require_absent(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    lock = out.with_name(f".{out.name}.lock")
    with WeakFileLock(lock):
        try:
            _remove_partial(out)
            require_absent(out)
            partial = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.partial")
            yield partial
            os.replace(partial, out)
        finally:
            _remove_partial(out)
            lock.unlink(missing_ok=True)


def _remove_partial(out: Path) -> None:
    """What is left of earlier attempts at `out`; its lock says that nobody works on it."""
    name = re.compile(rf"\.{re.escape(out.name)}\.[0-9a-f]{{8}}\.partial")
    for partial in [path for path in out.parent.iterdir() if name.fullmatch(path.name)]:
        if partial.is_dir() and not partial.is_symlink():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """As [`new_path`], for a folder, which is made."""
    with new_path(out) as partial:
        partial.mkdir()
        yield partial


def require_absent(out: Path) -> None:
    """Raises FileExistsError where `out` exists."""
    if os.path.lexists(out):
        raise FileExistsError(f"{out} exists already: remove it, or choose another name.")


def require_equal(key: str, source: Any, written: Any) -> None:
    """Raises ValueError where a value read back is not the one that was written, type and bits."""
    if isinstance(source, torch.Tensor) and isinstance(written, torch.Tensor):
        equal = source.dtype == written.dtype and torch.equal(source, written)
    elif isinstance(source, np.ndarray) and isinstance(written, np.ndarray):
        equal = np.array_equal(source, written)
    else:
        equal = type(source) is type(written) and source == written
    if not equal:
        raise ValueError(f"The check after writing found {key} to differ from its source.")
