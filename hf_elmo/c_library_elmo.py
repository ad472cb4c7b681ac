"""Functions in C, compiled once a process with the machine's own compiler, at their first call (up to a second).

Where there is no compiler, or with `HF_ELMO_C_CELL=0` in the environment, PyTorch's operations do the work.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fopenmp", "-fPIC"]
FLAGS += ["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []


def compile_library(source: str, *flags: str) -> ctypes.CDLL | None:
    """The functions of `source`, or `None` where it cannot be compiled. `flags`: for the compiler, further ones."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if os.environ.get("HF_ELMO_C_CELL") == "0" or compiler is None:
        return None
    try:
        with tempfile.TemporaryDirectory() as folder:
            path, library = Path(folder, "source.c"), Path(folder, "library.so")
            path.write_text(source)
            command = [*compiler.split(), *FLAGS, *flags, "-shared", str(path), "-o", str(library), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            return ctypes.CDLL(str(library))
    except (OSError, subprocess.SubprocessError):
        return None


def pointers(tensors: Sequence[Tensor | None] | Tensor) -> ctypes.Array:
    """Where the numbers of each tensor begin; they must live as long as that is used."""
    return (ctypes.c_void_p * len(tensors))(*(None if x is None else x.data_ptr() for x in tensors))
