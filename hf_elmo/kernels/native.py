"""The library of C functions: from the wheel, or compiled once by the machine's compiler, and cached.

A wheel for a platform holds a library for each instruction set of that platform (`setup.py`), and the best library that
the processor supports is loaded. Otherwise, or if `HF_ELMO_CFLAGS` adds compiler flags (for example `-march=haswell`),
the sources in `csrc/` are compiled in a private folder, and the library moves to `HF_HOME/hf_elmo/kernels`. Its name
has a hash of the sources, the flags and the processor, so that it is found where there is no compiler, and a hash of
its content, so that a damaged library is compiled again. Without a usable folder each process compiles for itself;
without a library PyTorch does the work, and one warning says why.
"""

import ctypes
import functools
import hashlib
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_char_p, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from huggingface_hub.constants import HF_HOME
from torch import Tensor
from transformers.utils import logging

from .tensors import has

logger = logging.get_logger(f"transformers.{__name__}")

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-march=native", *(SOURCES / "flags").read_text(encoding="utf-8").split())
FLAGS += ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
COMPILED = Path(__file__).parent / "compiled"
CACHE = Path(HF_HOME, "hf_elmo", "kernels")
# The libraries of a wheel, best first, each with the name of its instructions for `tensors.has`.
INSTRUCTION_SETS = {"amx": "amx_tile", "avx512_bf16": "avx512_bf16", "avx512": "avx512", "avx2": "avx2", "neon": None}
# Functions of the OpenMP runtime that PyTorch uses, in the order of `struct openmp` in csrc/threads.h.
OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
NO_THREADS = "one, as no OpenMP runtime of PyTorch was found"
SECONDS = 300  # limit for the compiler


# The types of csrc/elmo.h: of numbers, and of the numbers of arrays, "own" if the name of the function says it.
NUMBERS = {"i64": c_int64, "float": c_float}
ARRAYS = {"void": "own", "float": "float32", "i64": "int64", "uint16_t": "uint16", "char": "uint8"}


def _structs() -> dict[str, tuple[Any, dict[str, Any]]]:
    """The structs of csrc/elmo.h and the types of their fields, by the first word of the names of the functions that
    take them."""
    header = re.sub(r"/\*.*?\*/", "", (SOURCES / "elmo.h").read_text(encoding="utf-8"), flags=re.DOTALL)
    structs = {}
    for struct, members in re.findall(r"^struct (\w+) {(.*?)^};", header, re.DOTALL | re.MULTILINE):
        types = {}
        for kind, names in re.findall(r"(?:const )?(\w+) ([^;]+);", members):
            for star, name in re.findall(r"(\*?)(\w+)(?:,|$)", names):
                types[name] = ARRAYS[kind] if star else NUMBERS[kind]
        fields = [(name, c_void_p if isinstance(kind, str) else kind) for name, kind in types.items()]
        structs[struct] = type(struct, (ctypes.Structure,), {"_fields_": fields}), types
    return structs


STRUCTS = _structs()
# Block sizes of csrc/elmo.h, which determine how weights are laid out.
LANES = 16
FUSED_ROWS = 16
FUSED_COLUMNS = 64
FUSED_DEPTH = 32
PRODUCT_COLUMNS = 64


def run(function: str, **values: Any) -> int:
    """Calls a C function, whose name begins with that of the struct that it takes, and returns its result. `values` are
    the fields of the struct: numbers, bounds (`None` for no bound) and arrays, each a tensor, a NumPy array, a list of
    tensors (for an array of their addresses) or `None`. TypeError if an array is not contiguous or of another type."""
    struct, types = STRUCTS[function.partition("_")[0]]
    own = "bfloat16" if "bf16" in function else "float32"
    arguments: list[Any] = []
    kept = []
    for name, kind in types.items():
        value = values.get(name)
        if not isinstance(kind, str):
            arguments.append((math.inf if kind is c_float else 0) if value is None else value)
            continue
        dtype = own if kind == "own" else kind
        if isinstance(value, list):
            kept.append(value := (c_void_p * len(value))(*(_address(name, dtype, array) for array in value)))
            arguments.append(ctypes.addressof(value))
        else:
            arguments.append(_address(name, dtype, value))
    return getattr(library(), function)(ctypes.byref(struct(*arguments)))


def _address(name: str, dtype: str, array: Tensor | np.ndarray | None) -> int | None:
    if array is None:
        return None
    tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
    if tensor.dtype != getattr(torch, dtype) or not tensor.is_contiguous():
        raise TypeError(f"{name} is {array.dtype}, or not contiguous: C reads contiguous {dtype}")
    return tensor.data_ptr()


def threads_for(work: int, work_per_thread: int) -> int:
    """PyTorch's number of threads, or fewer if the work of each would be less than `work_per_thread`."""
    return max(1, min(torch.get_num_threads(), work // work_per_thread))


class _Loaded(NamedTuple):
    library: ctypes.CDLL | None
    origin: str  # where the library came from, or why there is none


def library() -> ctypes.CDLL | None:
    """The C functions, or `None`; [`reason`] says why."""
    return _load().library


def reason() -> str | None:
    """Why there is no library; `None` if there is one."""
    loaded = _load()
    return loaded.origin if loaded.library is None else None


def describe() -> dict[str, str]:
    """Where the library came from, its instruction set and its threads, for `hf-elmo env`."""
    loaded, origin = _load()
    if loaded is None:
        return {"kernels in C": f"none: {origin}"}
    rows = {"kernels in C": origin, "instruction set": loaded.instruction_set().decode()}
    return rows | {"threads of the kernels": "those of PyTorch" if loaded.has_threads() else NO_THREADS}


@functools.cache
def _load() -> _Loaded:
    try:
        loaded, origin = _from_wheel() or _compiled()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        message = str(error)
        if isinstance(error, subprocess.CalledProcessError):
            message = f"{error.cmd[0]} failed ({error.returncode}): {error.stderr.strip()[-1500:]}"
        logger.warning("ELMo runs without its C kernels, and more slowly: %s", message)
        return _Loaded(None, message)
    loaded.instruction_set.restype = c_char_p
    # The library uses the threads of PyTorch's OpenMP runtime, which `libtorch_cpu` depends on.
    for path in Path(torch.__file__).with_name("lib").glob("libtorch_cpu.*"):  # on Windows, none has OPENMP
        runtime = ctypes.CDLL(str(path))
        if all(hasattr(runtime, name) for name in OPENMP):
            loaded.use_openmp((c_void_p * 3)(*(ctypes.cast(getattr(runtime, name), c_void_p) for name in OPENMP)))
    return _Loaded(loaded, origin)


def _from_wheel() -> _Loaded | None:
    """The wheel's library for this processor, or `None`."""
    if os.environ.get("HF_ELMO_CFLAGS"):
        return None
    available = (COMPILED / f"{name}.so" for name, needed in INSTRUCTION_SETS.items() if not needed or has(needed))
    path = next(filter(Path.exists, available), None)
    return path and _Loaded(ctypes.CDLL(str(path)), f"{path}, from the wheel")


def compiler() -> list[str]:
    """The command of the C compiler: `CC` of the environment, else cc, gcc or clang; FileNotFoundError without one."""
    named = shlex.split(os.environ.get("CC", "")) or list(filter(shutil.which, ("cc", "gcc", "clang")))[:1]
    if not named:
        raise FileNotFoundError("there is no C compiler (cc, gcc or clang); install one, or name one in CC")
    return named


def run_compiler(*arguments: str) -> str:
    """What the compiler prints."""
    options = {"encoding": "utf-8", "errors": "replace", "timeout": SECONDS}
    return subprocess.run([*compiler(), *arguments], capture_output=True, check=True, **options).stdout


def _compiled() -> _Loaded:
    """The library in the cache, compiled first if it is missing; a cache that cannot be used is as no cache."""
    flags = *FLAGS, *shlex.split(os.environ.get("HF_ELMO_CFLAGS", ""))
    digest = hashlib.sha256("\0".join([*flags, *processor()]).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    place = CACHE / f"elmo-{digest.hexdigest()[:32]}"
    try:
        for path in place.parent.glob(f"{place.name}-*.so"):
            with suppress(OSError):  # it was compiled on a newer system that shares the folder
                if path == _named(place, path):
                    return _Loaded(ctypes.CDLL(str(path)), f"{path}, compiled here")
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            compiled = _compile(flags, folder)
            path = compiled.replace(_named(place, compiled))
        return _Loaded(ctypes.CDLL(str(path)), f"{path}, compiled here")
    except OSError as error:  # another user's folder, a read-only home, a disk from which nothing may be executed
        with tempfile.TemporaryDirectory(prefix="hf_elmo-", ignore_cleanup_errors=True) as folder:
            loaded = ctypes.CDLL(str(_compile(flags, folder)))
        return _Loaded(loaded, f"compiled for this process, as the cache failed: {error}")


def _named(place: Path, file: Path) -> Path:
    """The name of a library with the content of a file."""
    return place.with_name(f"{place.name}-{hashlib.sha256(file.read_bytes()).hexdigest()[:32]}.so")


def _compile(flags: Sequence[str], folder: str) -> Path:
    target = Path(folder, "elmo.so")
    sources = map(str, sorted(SOURCES.glob("*.c")))
    run_compiler(*flags, *sources, "-o", str(target), "-lm")
    return target


def processor() -> list[str]:
    """A description of what `-march=native` depends on: the machine, and lines of /proc/cpuinfo."""
    cpuinfo = Path("/proc/cpuinfo")
    names = "vendor_id", "cpu family", "model", "flags", "Features", "CPU part"
    first = cpuinfo.read_text(errors="replace").partition("\n\n")[0] if cpuinfo.is_file() else ""
    lines = [line for line in first.split("\n") if line.startswith(names)]
    return [platform.system(), platform.machine(), *(lines or [platform.processor()])]
