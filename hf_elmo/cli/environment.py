"""The rows of `hf-elmo env`: what a report of a bug needs."""

import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from subprocess import SubprocessError

import torch

from hf_elmo.kernels import enabled, native

LIBRARIES = ("hf-elmo", "torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "numpy", "pyarrow")
LIBRARIES += ("accelerate", "datasets", "h5py", "onnx", "onnxruntime", "onnxscript", "scikit-learn")
LIBRARIES += ("sentence-transformers", "tensorflow", "tensorflow-cpu")


def describe_environment() -> dict[str, str]:
    versions = []
    for name in LIBRARIES:
        with suppress(Exception):  # it is not installed, or what pip wrote about it is damaged
            versions.append(f"{name} {version(name)}")
    rows = {"Python": f"{sys.version.split()[0]}, {platform.platform()}", "libraries": ", ".join(versions)}
    rows["hf_elmo is in"] = str(Path(__file__).parents[1])
    named = [line for line in native.processor() if line.startswith(("model name", "CPU part"))]
    rows["processor"] = named[0].partition(":")[2].strip() if named else platform.processor() or platform.machine()
    rows["threads"] = f"{torch.get_num_threads()} of {os.cpu_count()}"
    rows["PyTorch's vectors"] = torch.backends.cpu.get_cpu_capability()
    rows["GPU"] = ", ".join(map(torch.cuda.get_device_name, range(torch.cuda.device_count()))) or "none"
    try:
        version_lines = native.run_compiler("--version").split("\n")
        rows["C compiler"] = f"{' '.join(native.compiler())}: {version_lines[0].strip()}"
    except (OSError, ValueError, SubprocessError) as error:
        rows["C compiler"] = f"none: {error}"
    rows["cache of compiled kernels"] = str(native.CACHE)
    rows |= native.describe()
    unset = {"HF_ELMO_CFLAGS": "not set", "HF_ELMO_KERNELS": "not set: on", "HF_HUB_OFFLINE": "not set: online"}
    rows |= {name: os.environ.get(name, default) for name, default in unset.items()}
    rows["enabled backends"] = ", ".join(sorted(enabled())) or "none"
    return rows
