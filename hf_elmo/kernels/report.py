"""Which backends run and why not the faster ones, for `hf_elmo.kernels.describe` and `hf-elmo env`."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import SubprocessError

import torch
from transformers import PreTrainedModel

from . import native
from .registry import Backend, enabled, explain, watch

LIBRARIES = ("hf-elmo", "torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "numpy")
EXTRAS = ("accelerate", "datasets", "h5py", "onnx", "onnxruntime", "onnxscript", "pyarrow", "scikit-learn")
EXTRAS += ("sentence-transformers", "tensorflow", "tensorflow-cpu")


def describe(model: PreTrainedModel) -> str:
    """Which backend computes each operation of a model, and why not each backend before it.

    The model runs on 32 sentences, on one sentence, and on 32 sentences with gradients.
    """
    if not model.config.use_elmo:
        return "use_elmo is False: the model has no biLM."
    lines = []
    for title, rows, gradients in (("32 sentences", 32, False), ("one sentence", 1, False), ("training", 32, True)):
        operations: dict[str, tuple[str | None, dict[str, str]]] = {}

        def explained(operation: str, _: Backend | None, arguments: tuple, operations: dict = operations) -> None:
            if operation not in operations:
                operations[operation] = explain(operation, *arguments)

        words = torch.ones(rows, 3, model.config.row_length, dtype=torch.int64, device=model.device)
        with torch.random.fork_rng(), torch.set_grad_enabled(gradients), watch(explained):
            model.base_model(input_ids=words)
        for operation, (name, refused) in operations.items():
            lines.append(f"{title}, {operation}: {name or 'plain PyTorch'}")
            lines += [f"    not {other}: {reason}" for other, reason in refused.items()]
    return "\n".join(lines)


def describe_environment() -> str:
    """Versions, devices, the C library and the settings: what a bug report needs."""
    rows = {"Python": f"{sys.version.split()[0]}, {platform.platform()}", "libraries": _versions(LIBRARIES)}
    rows["of extras"] = _versions(EXTRAS, only_installed=True) or "none"
    rows["hf_elmo is in"] = str(Path(__file__).parents[1])
    named = [line for line in native.processor() if line.startswith(("model name", "CPU part"))]
    rows["processor"] = named[0].partition(":")[2].strip() if named else platform.processor() or platform.machine()
    rows["threads"] = f"{torch.get_num_threads()} of {os.cpu_count()}"
    rows["PyTorch's vectors"] = torch.backends.cpu.get_cpu_capability()
    rows["GPU"] = ", ".join(map(torch.cuda.get_device_name, range(torch.cuda.device_count()))) or "none"
    try:
        rows["C compiler"] = f"{' '.join(native.compiler())}: {native.compiler_version()}"
    except (OSError, SubprocessError) as error:
        rows["C compiler"] = f"none: {error}"
    rows["cache of compiled kernels"] = str(native.cache_folder())
    rows |= native.describe()
    for name, default in (("HF_ELMO_CFLAGS", "not set"), ("HF_ELMO_KERNELS", "not set: on")):
        rows[name] = os.environ.get(name, default)
    rows["HF_HUB_OFFLINE"] = os.environ.get("HF_HUB_OFFLINE", "not set: the Hub is asked")
    rows["enabled backends"] = ", ".join(sorted(enabled())) or "none"
    width = max(map(len, rows))
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows.items())


def _versions(names: tuple[str, ...], only_installed: bool = False) -> str:
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions += [] if only_installed else [f"{name} is not installed"]
    return ", ".join(versions)
