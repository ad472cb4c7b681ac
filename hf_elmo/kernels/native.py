"""The library of C functions: from the wheel, or compiled once by the machine's compiler, and cached.

A wheel for a platform holds a library for each instruction set of that platform (`setup.py`), and the best library that
the processor supports is loaded. Otherwise, or if `HF_ELMO_CFLAGS` adds compiler flags (for example `-march=haswell`),
the sources in `csrc/` are compiled to a library in `HF_HOME/hf_elmo/kernels`, named by a hash of the sources, the
flags, the compiler and the processor. Each process compiles in a private folder and then renames the library, so
that several processes can compile at once. If there is no library, PyTorch does the work, and one warning says why.
`HF_HOME/hf_elmo/kernels` also keeps measurements of the library's speed on this machine.
"""

import atexit
import contextlib
import ctypes
import functools
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import NamedTuple

import torch
from huggingface_hub.constants import HF_HOME
from torch import Tensor
from transformers.utils import logging

logger = logging.get_logger(f"transformers.{__name__}")

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-march=native", *(SOURCES / "flags").read_text(encoding="utf-8").split())
FLAGS += ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
COMPILED = Path(__file__).parent / "compiled"
# The libraries of a wheel, best first, each with a function that says whether this processor has its instructions.
INSTRUCTION_SETS = {
    "amx": torch.cpu._is_amx_tile_supported,
    "avx512_bf16": torch.cpu._is_avx512_bf16_supported,
    "avx512": torch.cpu._is_avx512_supported,
    "avx2": torch.cpu._is_avx2_supported,
    "neon": lambda: True,
}
# Functions of the OpenMP runtime that PyTorch uses, in the order of `struct openmp` in csrc/threads.h.
OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "GOMP_barrier")
NO_THREADS = "one, as no OpenMP runtime of PyTorch was found"
SECONDS = 120  # limit for the compiler


# -- what Python and C agree on ----------------------------------------------------------------------------------------


class Layer(ctypes.Structure):
    """`struct layer` of `csrc/elmo.h`."""

    _fields_ = (
        *((name, c_void_p) for name in ("inputs", "weights", "weight_hr", "biases", "outputs")),
        *((name, c_void_p) for name in ("hidden", "cell", "sizes", "scratch")),
        *((name, c_int64) for name in ("scratch_bytes", "steps", "directions", "rows", "group")),
        *((name, c_int64) for name in ("input", "size", "cells")),
        *((name, c_float) for name in ("cell_clip", "proj_clip")),
        ("threads", c_int),
    )


class SmallBatch(ctypes.Structure):
    """`struct small_batch` of `csrc/elmo.h`."""

    _fields_ = (
        *((name, c_void_p) for name in ("gates", "weight_hh", "weight_hr", "outputs")),
        *((name, c_void_p) for name in ("hidden", "cell", "cell_outputs", "sizes")),
        *((name, c_int64) for name in ("steps", "directions", "rows", "cells", "size")),
        *((name, c_float) for name in ("before_clip", "cell_clip", "proj_clip")),
        ("threads", c_int),
    )


class Work(ctypes.Structure):
    """`struct work` of `csrc/elmo.h`."""

    _fields_ = (
        *((name, c_void_p) for name in ("words", "lengths")),
        *((name, c_int64) for name in ("n", "characters", "vocabulary", "filters", "blocks")),
        *((name, c_void_p) for name in ("firsts", "counts", "widths")),
    )


class Cells(ctypes.Structure):
    """`struct cells` of `csrc/elmo.h`."""

    _fields_ = (
        *((name, c_void_p) for name in ("gates", "recurrent", "before", "cells", "hidden", "grad_cell", "grad_gates")),
        *((name, c_int64) for name in ("rows", "size")),
        *((name, c_float) for name in ("before_clip", "cell_clip")),
        ("threads", c_int),
    )


STRUCTS = {"layer": Layer, "small_batch": SmallBatch, "work": Work, "cells": Cells}

# Block sizes of csrc/elmo.h, which determine how weights are laid out.
LANES = 16
FUSED_ROWS, FUSED_COLUMNS, FUSED_DEPTH = 16, 64, 32
PRODUCT_COLUMNS = 64

TYPES = {"p": c_void_p, "l": c_int64, "i": c_int, "f": c_float, "s": c_char_p, "": None}
CELL_TYPES, FUSED_KINDS = ("f32", "bf16"), ("f32", "bf16", "bf16_tiles", "split_tiles")
# For each C function, the letters (of TYPES) of its return type and of its arguments. A test compares the table with
# the sources. A library has only the functions of its instruction set.
FUNCTIONS: dict[str, tuple[str, str]] = {
    **{f"cell_{pass_}_{kind}": ("", "p") for pass_ in ("forward", "backward") for kind in CELL_TYPES},
    **{f"small_batch_{kind}": ("", "p") for kind in CELL_TYPES},
    **{f"layer_{kind}": ("", "p") for kind in FUSED_KINDS},
    **{f"scratch_{kind}": ("l", "llll") for kind in FUSED_KINDS},
    "request_tiles": ("i", ""),
    "lay_out": ("", "ppllllll" + "i"),
    "product": ("", "pppp" + "lll" + "i"),
    "highway": ("", "ppp" + "ll" + "i"),
    "character_maxima": ("", "pppp" + "ii"),
    "character_windows": ("l", "ppl" + "pppp" + "i"),
    "character_gradients": ("l", "ppl" + "pppppp" + "i"),
    **{f"sizeof_{name}": ("l", "") for name in STRUCTS},
    "constants": ("", "p"),
    "instruction_set": ("s", ""),
    "use_openmp": ("", "p"),
    "has_threads": ("i", ""),
}


def pointers(tensors: Sequence[Tensor | None] | Tensor) -> ctypes.Array:
    """The addresses of the tensors, which must live as long as the array is used."""
    return (c_void_p * len(tensors))(*(None if x is None else x.data_ptr() for x in tensors))


def threads_for(work: int, work_per_thread: int) -> int:
    """PyTorch's number of threads, or fewer if the work of each would be less than `work_per_thread`."""
    return max(1, min(torch.get_num_threads(), work // work_per_thread))


def lay_out(weight: Tensor, blocks: int, groups: int, block_step: int, group_step: int) -> Tensor:
    """Copy `weight [rows, depth]`, float32, to the layout `[blocks, depth, groups, LANES]` that the products in C read.

    Group `g` of block `b` holds the `LANES` rows from `b * block_step + g * group_step` on, with zeros for rows after
    the last row of `weight`. This is several times as fast as PyTorch's copy of a permuted tensor.
    """
    weight = weight.detach().contiguous()
    rows, depth = weight.shape
    laid_out = weight.new_empty(blocks, depth, groups, LANES)
    sizes = rows, depth, blocks, groups, block_step, group_step
    threads = threads_for(laid_out.numel(), 1 << 18)
    library().lay_out(weight.data_ptr(), laid_out.data_ptr(), *sizes, threads)
    return laid_out


# -- loading -----------------------------------------------------------------------------------------------------------


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
    return {
        "kernels in C": origin,
        "instruction set": loaded.instruction_set().decode(),
        "threads of the kernels": "those of PyTorch" if loaded.has_threads() else NO_THREADS,
    }


@functools.cache
def _load() -> _Loaded:
    try:
        path, origin = _from_wheel() or _compiled()
        loaded = ctypes.CDLL(str(path))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        message = str(error)
        if isinstance(error, subprocess.CalledProcessError):
            message = f"{error.cmd[0]} failed ({error.returncode}): {error.stderr.strip()[-1500:]}"
        logger.warning("ELMo runs without its C kernels, and more slowly: %s", message)
        return _Loaded(None, message)
    for name, (returns, arguments) in FUNCTIONS.items():
        if (function := getattr(loaded, name, None)) is not None:
            function.restype, function.argtypes = TYPES[returns], [TYPES[letter] for letter in arguments]
    _share_threads(loaded)
    return _Loaded(loaded, origin)


def _share_threads(loaded: ctypes.CDLL) -> None:
    """Let the library use the threads of PyTorch's OpenMP runtime, which `libtorch_cpu` depends on."""
    for path in Path(torch.__file__).with_name("lib").glob("libtorch_cpu.*"):  # on Windows, none has OPENMP
        runtime = ctypes.CDLL(str(path))
        if all(hasattr(runtime, name) for name in OPENMP):
            loaded.use_openmp((c_void_p * 4)(*(ctypes.cast(getattr(runtime, name), c_void_p) for name in OPENMP)))


def _from_wheel() -> tuple[Path, str] | None:
    """The wheel's library for this processor and where it came from, or `None`."""
    if os.environ.get("HF_ELMO_CFLAGS"):
        return None
    available = (COMPILED / f"{name}.so" for name, is_supported in INSTRUCTION_SETS.items() if is_supported())
    path = next(filter(Path.exists, available), None)
    return path and (path, f"{path}, from the wheel")


def cache_folder() -> Path:
    """The folder of compiled libraries; `HF_HOME` moves it."""
    return Path(HF_HOME, "hf_elmo", "kernels")


def compiler() -> list[str]:
    """The command of the C compiler: `CC` of the environment, else cc, gcc or clang.

    Raises:
        FileNotFoundError: no compiler was found.
    """
    named = shlex.split(os.environ.get("CC", "")) or list(filter(shutil.which, ("cc", "gcc", "clang")))[:1]
    if not named:
        raise FileNotFoundError("there is no C compiler (cc, gcc or clang); install one, or name one in CC")
    return named


def compiler_version() -> str:
    """The first line of the compiler's `--version`."""
    return _run([*compiler(), "--version"]).partition("\n")[0].strip()


def _compiled() -> tuple[Path, str]:
    """The library in the cache, compiled first if it is missing, and where it came from."""
    version = compiler_version()
    flags = *FLAGS, *shlex.split(os.environ.get("HF_ELMO_CFLAGS", ""))
    digest = hashlib.sha256("\0".join([*compiler(), version, *flags, *processor()]).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    path = cache_folder() / f"elmo-{digest.hexdigest()[:32]}.so"
    if path.exists():
        return path, f"{path}, compiled here by {version}"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=path.parent)
    except OSError as error:  # a read-only home: only this process uses the library
        folder = tempfile.mkdtemp(prefix="hf_elmo-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _compile(flags, Path(folder)), f"compiled by {version} for this process, as the cache failed: {error}"
    try:
        os.replace(_compile(flags, Path(folder)), path)
    finally:
        shutil.rmtree(folder)
    return path, f"{path}, compiled here by {version}"


def _compile(flags: Sequence[str], folder: Path) -> Path:
    target, sources = folder / "elmo.so", [str(source) for source in sorted(SOURCES.glob("*.c"))]
    _run([*compiler(), *flags, *sources, "-o", str(target), "-lm"])
    return target


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def processor() -> list[str]:
    """A description of what `-march=native` depends on: the machine, and lines of /proc/cpuinfo."""
    described = [platform.system(), platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "CPU part")
        first = cpuinfo.read_text(errors="replace").partition("\n\n")[0].split("\n")
        described += [line for line in first if line.partition(":")[0].strip() in names]
    return described


# -- measuring ---------------------------------------------------------------------------------------------------------


def measured(name: str, measure: Callable[[], list[float]]) -> list[float]:
    """The result of `measure()`, called once for each library, processor and version of PyTorch, and kept in a file."""
    path, values = _measurements()
    if name not in values:
        values[name] = measure()
        with contextlib.suppress(OSError):  # a read-only home: each process measures again
            draft = path.with_suffix(f".{os.getpid()}")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(json.dumps(values), encoding="utf-8")
            draft.replace(path)
    return values[name]


@functools.cache
def _measurements() -> tuple[Path, dict[str, list[float]]]:
    """The file of measurements, and its content."""
    digest = hashlib.sha256("\0".join([torch.__version__, *processor()]).encode())
    digest.update(Path(library()._name).read_bytes())
    path = cache_folder() / f"measured-{digest.hexdigest()[:32]}.json"
    return path, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
