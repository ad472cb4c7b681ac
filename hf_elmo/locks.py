"""An exclusive lock on an output folder."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transformers.utils import logging

try:
    import fcntl
except ImportError:  # Windows: there, two runs of one output are not kept apart
    fcntl = None

NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # of some file systems of clusters

logger = logging.get_logger(f"transformers.{__name__}")


@contextmanager
def locked(path: Path, output: str, prepare: Callable[[], None]) -> Iterator[None]:
    """Hold a lock on a file; the end of the process, however it ends, unlocks it, too.

    Args:
        path: of the file, which is made, and may be removed in the block.
        output: what is written, for messages.
        prepare: makes the file's folder. Called again where a run that ends has just removed it.

    Raises:
        BlockingIOError: another run has it locked.
    """
    lock = None
    while lock is None:
        prepare()
        if fcntl is None:
            break
        with suppress(FileNotFoundError):
            lock = _try_lock(path, output)
    try:
        if lock is not None:
            os.truncate(lock, 0)
            os.write(lock, f"process {os.getpid()} on {socket.gethostname()} since {time.ctime()}".encode())
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _try_lock(path: Path, output: str) -> int | None:
    """The open and locked file; `None` if it was removed between the two."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(lock, 1000).decode(errors="replace") or "another process"
            raise BlockingIOError(
                error.errno,
                f"{output!r} is being written by {holder}: wait for its end, or choose another output",
            ) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            warn_of_no_lock(str(path.parent), error)
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def warn_of_no_lock(folder: str, why: object) -> None:
    """Where a file system has no locks, it is the user who keeps two runs apart."""
    logger.warning("%s cannot be locked (%s): start no other run with this output", folder, why)
