"""The functions in C, compiled once by the machine's own compiler and cached on disk.

The sources in `csrc/` become one library in `HF_HOME/hf_elmo/kernels/KEY`, a hash of the sources, the flags, the
compiler's version and the processor's features. It is written under a temporary name and renamed to a hash of itself,
so that several processes may compile at once and a damaged file is noticed. Only a folder that belongs to the user,
and that nobody else can write to, is trusted with code that will be run; where that cannot be had, each process
compiles for itself.

`HF_ELMO_CFLAGS` in the environment adds flags after the package's own, which the compiler lets win: `-march=haswell`
for a library as another processor would have it.

Where compiling fails, PyTorch does the work, and one warning says why, in the compiler's own words.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub.constants import HF_HOME
from torch import Tensor
from transformers.utils import logging

from .structs import CONSTANTS, STRUCTS

logger = logging.get_logger(f"transformers.{__name__}")

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fPIC", "-shared")
FLAGS += ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
# The second is for a compiler without OpenMP's library: one thread.
THREADS = (("-fopenmp",), ("-fopenmp-simd", "-Wno-unknown-pragmas"))
SECONDS = 120  # for the compiler


class NativeError(Exception):
    """There is no library: no compiler, or it failed, or what it made cannot be loaded."""


class _Library:
    """The library of this process, loaded at the first request."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loaded: ctypes.CDLL | None = None
        self.reason: str | None = None  # why there is none

    def get(self) -> ctypes.CDLL | None:
        if self.loaded is None and self.reason is None:
            with self.lock:
                if self.loaded is None and self.reason is None:
                    self._load()
        return self.loaded

    def _load(self) -> None:
        try:
            self.loaded, problem = _load()
        except (NativeError, OSError) as error:
            self.reason = str(error)
            logger.warning("The kernels in C are not used, so ELMo computes more slowly: %s", error)
        else:
            if problem is not None:
                logger.warning("Compiled kernels are not cached, so each process compiles its own: %s", problem)


_library = _Library()
if hasattr(os, "register_at_fork"):  # a lock that another thread held would never be released in the child
    os.register_at_fork(after_in_child=lambda: setattr(_library, "lock", threading.Lock()))


def library() -> ctypes.CDLL | None:
    """The compiled functions; `None` where there are none, see [`reason`]."""
    return _library.get()


def reason() -> str | None:
    """Why there is no library; `None` where there is one."""
    _library.get()
    return _library.reason


@functools.cache
def function(name: str, *arguments: type, returns: type | None = None) -> Callable[..., Any]:
    """The function of that name in the library, which must be there, with the types of its arguments declared."""
    found = getattr(library(), name)
    found.argtypes, found.restype = arguments, returns
    return found


def pointers(tensors: Sequence[Tensor | None] | Tensor) -> ctypes.Array:
    """Where the numbers of each tensor begin; the tensors must live as long as that is used."""
    return (ctypes.c_void_p * len(tensors))(*(None if x is None else x.data_ptr() for x in tensors))


# -- compiling ---------------------------------------------------------------------------------------------------------


def compiler() -> list[str]:
    """The command of the C compiler: `CC` of the environment, else cc, gcc or clang.

    Raises:
        NativeError: there is none.
    """
    named = os.environ.get("CC", "").split()
    if named and shutil.which(named[0]) is None:
        raise NativeError(f"CC names the compiler {named[0]!r}, which is not there")
    found = named or [path for path in map(shutil.which, ("cc", "gcc", "clang")) if path][:1]
    if not found:
        raise NativeError("there is no C compiler (cc, gcc or clang); install one, or name one in CC")
    return found


def flags() -> tuple[str, ...]:
    """What the compiler is told about the code to make: `FLAGS`, then those of `HF_ELMO_CFLAGS` as a shell splits them.

    Raises:
        NativeError: `HF_ELMO_CFLAGS` has a quotation mark without its other half.
    """
    added = os.environ.get("HF_ELMO_CFLAGS", "")
    try:
        return *FLAGS, *shlex.split(added)
    except ValueError as error:
        raise NativeError(f"HF_ELMO_CFLAGS is {added!r}, which a shell would not split: {error}") from error


def compiler_version() -> str:
    """The first line of what the compiler says of itself.

    Raises:
        NativeError: it cannot be started, or fails.
    """
    return _run([*compiler(), "--version"]).partition("\n")[0].strip()


def cache_folder() -> Path:
    """Where compiled libraries are kept; `HF_HOME` and `XDG_CACHE_HOME` move it."""
    return Path(HF_HOME, "hf_elmo", "kernels")


def _key(command: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    for part in (*flags(), *THREADS[0], *command, _run([*command, "--version"]), *processor()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def processor() -> list[str]:
    """What `-march=native` depends on, a line each."""
    described = [platform.system(), platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].split("\n")
        names = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "CPU part")
        described += [line for line in lines if line.split("\t")[0].split(":")[0].strip() in names]
    return described


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints.

    Raises:
        NativeError: it cannot be started, takes too long, or fails; with what it says.
    """
    try:
        done = subprocess.run(command, capture_output=True, cwd=folder, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeError(f"the compiler {command[0]!r} does not run: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or "without a message"
        how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else f"failed ({done.returncode})"
        raise NativeError(f"{command[0]!r} {how}: {said[-1500:]}")
    return done.stdout.decode(errors="replace")


def _compile(command: Sequence[str], folder: Path) -> Path:
    """A new library in `folder`, with threads where the compiler can.

    Raises:
        NativeError: as [`_run`].
    """
    target = folder / "elmo.so"
    sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
    first: NativeError | None = None
    for threads in THREADS:
        try:
            _run([*command, *flags(), *threads, *sources, "-o", str(target), "-lm"], folder)
            return target
        except NativeError as error:
            first = first or error
    raise first


def _load() -> tuple[ctypes.CDLL, OSError | None]:
    """The library, and what kept it out of the cache, if anything did.

    Raises:
        NativeError, OSError: as [`_compile`], and as `dlopen` where it refuses.
    """
    command, folder, problem = compiler(), None, None
    try:
        folder = _private_folder(_key(command))
        if (found := _find(folder)) is not None:
            return _checked(ctypes.CDLL(str(found))), None
    except OSError as error:  # a read-only home, a folder of somebody else's, one mounted noexec
        problem = error
    with tempfile.TemporaryDirectory(prefix="hf_elmo-") as own:
        made = _compile(command, Path(own))
        try:
            if folder is not None:
                return _checked(ctypes.CDLL(str(_store(made, folder)))), None
        except OSError as error:  # also a full disk
            problem = error
        return _checked(ctypes.CDLL(str(made))), problem


def _private_folder(key: str) -> Path:
    """Where the cache has the library, or will have it.

    Raises:
        OSError: there can be no such folder, or it is not to be trusted.
    """
    cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private(cache_folder())
    folder = cache_folder() / key
    folder.mkdir(mode=0o700, exist_ok=True)
    _require_private(folder)
    return folder


def _name(content: bytes) -> str:
    return f"elmo-{hashlib.sha256(content).hexdigest()[:32]}.so"


def _find(folder: Path) -> Path | None:
    """The library in its folder, if it is whole: its name tells what its bytes must be."""
    whole = (file for file in sorted(folder.glob("elmo-*.so")) if file.name == _name(file.read_bytes()))
    return next(whole, None)


def _store(made: Path, folder: Path) -> Path:
    """Copy a library to its folder, under a name of its content: other processes see all of it or nothing."""
    content = made.read_bytes()
    handle, draft = tempfile.mkstemp(dir=folder)  # readable by its owner alone
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(draft, folder / _name(content))
    except BaseException:
        os.unlink(draft)
        raise
    return folder / _name(content)


def _require_private(path: Path) -> None:
    """Refuse a folder that somebody else could have filled.

    Raises:
        PermissionError: it belongs to another user, or others can write to it.
    """
    found = path.lstat()
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or stat.S_ISLNK(found.st_mode)
    if hasattr(os, "geteuid") and (others or found.st_uid != os.geteuid()):
        raise PermissionError(
            f"{path} has the permissions {stat.filemode(found.st_mode)} and belongs to user {found.st_uid}, but must "
            f"be writable by you alone (user {os.geteuid()}) and no link: remove it, or set HF_HOME to another folder"
        )


def _checked(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """The library, if its structs and blocks are those of Python.

    Raises:
        NativeError: they differ in size.
    """
    for name, struct in STRUCTS.items():
        size = getattr(loaded, f"sizeof_{name}")()
        if size != ctypes.sizeof(struct):
            raise NativeError(f"struct {name} has {size} bytes in C, but {ctypes.sizeof(struct)} in Python")
    for name, value in CONSTANTS.items():
        if (number := getattr(loaded, f"constant_{name}")()) != value:
            raise NativeError(f"the block size {name} is {number} in C, but {value} in Python")
    return loaded
