"""The registry of backends, and the choice among them.

A backend computes one operation of `modeling_elmo.py` faster than plain PyTorch. The backends of an operation are asked
in the order of their rank, and the first enabled backend that supports the arguments runs. If none does, plain
PyTorch computes the operation. [`describe`] says which backend runs, and why the backends before it do not.
"""

import functools
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import torch
from transformers import PreTrainedModel

from . import native

INTERFACE = 2  # the version of the operations' arguments; `modeling_elmo.INTERFACE` must be equal
LIBRARIES = ("hf-elmo", "torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "numpy")
EXTRAS = ("accelerate", "datasets", "h5py", "onnx", "onnxruntime", "onnxscript", "pyarrow", "scikit-learn")
EXTRAS += ("sentence-transformers", "tensorflow", "tensorflow-cpu")


@dataclass(frozen=True)
class Backend:
    """One way to compute an operation.

    Args:
        name: the name in `HF_ELMO_KERNELS` and in [`use`].
        rank: the backends of an operation are asked in ascending order of their ranks.
        supports: called with the operation's arguments. Returns `None` if `run` supports them and is expected to be the
            fastest way, otherwise the reason for not using `run`.
        run: called with the operation's arguments. Returns what plain PyTorch would return.
    """

    name: str
    rank: int
    supports: Callable[..., str | None]
    run: Callable[..., Any]


# "lstm": the directions of one LSTM layer over packed words, as in `modeling_elmo.bilstm_layer`.
# "cell": one step of the LSTM cell and its gradient, for "lstm" backends whose products PyTorch computes.
# "word-vectors": the vectors of words without gradients, as in `modeling_elmo.ElmoCharacterEncoder.forward`.
# "character-maxima": the maxima of the character convolutions, with gradients.
BACKENDS: dict[str, list[Backend]] = {"lstm": [], "cell": [], "word-vectors": [], "character-maxima": []}

_setting: ContextVar[str | None] = ContextVar("hf_elmo.kernels.setting", default=None)
_watcher: ContextVar[Callable[[str, Backend | None, tuple], None] | None] = ContextVar("watcher", default=None)


def register(operation: str, name: str, rank: int, supports: Callable[..., str | None], run: Callable) -> None:
    """Add a backend to an operation; the arguments are those of [`Backend`]."""
    BACKENDS[operation].append(Backend(name, rank, supports, run))
    BACKENDS[operation].sort(key=lambda backend: backend.rank)


def choose(operation: str, *arguments: Any) -> Backend | None:
    """The first enabled backend that supports the arguments, or `None` for plain PyTorch.

    Raises:
        ValueError: `HF_ELMO_KERNELS` names an unknown backend.
    """
    names = enabled()
    candidates = (backend for backend in BACKENDS[operation] if backend.name in names)
    chosen = next((backend for backend in candidates if backend.supports(*arguments) is None), None)
    if (watcher := _watcher.get()) is not None:
        watcher(operation, chosen, arguments)
    return chosen


def explain(operation: str, *arguments: Any) -> tuple[str | None, dict[str, str]]:
    """The name of the backend that would run (`None`: plain PyTorch), and why each backend before it would not."""
    names, refused = enabled(), {}
    for backend in BACKENDS[operation]:
        reason = backend.supports(*arguments) if backend.name in names else "switched off"
        if reason is None:
            return backend.name, refused
        refused[backend.name] = reason
    return None, refused


def enabled() -> frozenset[str]:
    """The names of the enabled backends."""
    setting = _setting.get()
    return _parse(os.environ.get("HF_ELMO_KERNELS", "on") if setting is None else setting)


@functools.lru_cache(maxsize=64)
def _parse(setting: str) -> frozenset[str]:
    known = frozenset(backend.name for backends in BACKENDS.values() for backend in backends)
    names = frozenset(name.strip() for name in setting.split(",") if name.strip())
    if names <= {"on"}:
        return known
    if names == {"off"}:
        return frozenset()
    if unknown := names - known:
        raise ValueError(
            f"HF_ELMO_KERNELS or kernels.use has {', '.join(sorted(unknown))}, which is not accepted: give only on, "
            f"only off, or names among {', '.join(sorted(known))}."
        )
    return names


@contextmanager
def use(*names: str) -> Iterator[None]:
    """Enable only these backends, such as `"packed", "cell-c"`, in a block of the current thread; `"on"` enables all,
    and `"off"` or no name at all disables all.

    Raises:
        ValueError: a name is unknown.
    """
    setting = ",".join(names) or "off"
    _parse(setting)
    token = _setting.set(setting)
    try:
        yield
    finally:
        _setting.reset(token)


@contextmanager
def watch(watcher: Callable[[str, Backend | None, tuple], None]) -> Iterator[None]:
    """Call `watcher(operation, chosen, arguments)` after each choice in a block of the current thread."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def record() -> Iterator[list[tuple[str, str]]]:
    """A list that collects (operation, backend) for each choice in the block, except choices of plain PyTorch."""
    chosen: list[tuple[str, str]] = []
    with watch(lambda operation, backend, _: chosen.append((operation, backend.name)) if backend else None):
        yield chosen


def describe(model: PreTrainedModel) -> str:
    """Text that says which backend computes each operation of a model, and why each backend before it does not.

    The model is run on 32 sentences, on one sentence, and on 32 sentences with gradients.
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
    """Text for a bug report: versions, devices, the C library and the settings."""
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
