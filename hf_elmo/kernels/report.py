"""What would run, and why not something faster: for `hf_elmo.kernels.describe` and `hf-elmo env`."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ..lstm_elmo import LstmCall
from . import native
from .registry import enabled, explain

LIBRARIES = ("hf-elmo", "torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "numpy", "triton")
EXTRAS = ("accelerate", "datasets", "h5py", "onnx", "onnxruntime", "onnxscript", "pyarrow", "scikit-learn")
EXTRAS += ("sentence-transformers", "tensorflow", "tensorflow-cpu")
INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "asimd", "sve", "bf16")


def describe_model(model: Any) -> str:
    """A line for each operation of a model in inference and in training, and one for each backend that was refused.

    Args:
        model: any model of hf_elmo, on its device and in its type.
    """
    if not model.config.use_elmo:
        return "use_elmo is False: the model has no biLM."
    lines = []
    for title, operation, arguments, gradients in _calls(model.base_model):
        with torch.set_grad_enabled(gradients):
            name, refused = explain(operation, *arguments)
        lines.append(f"{title}: {name or 'plain PyTorch'}")
        lines += [f"    not {other}: {reason}" for other, reason in refused.items()]
    return "\n".join(lines)


def _calls(model: Any) -> Iterator[tuple[str, str, tuple, bool]]:
    """What is computed, the operation and its arguments, and whether gradients are on."""
    encoder, config = model.char_encoder, model.config
    words = torch.zeros(3, config.row_length, dtype=torch.int64, device=model.device)
    lengths = torch.ones(3, dtype=torch.int64, device=model.device)
    trained = any(weight.requires_grad for module in (encoder, model.bilm) for weight in module.parameters())
    training = "training" if trained else "training of a head, the biLM frozen"
    for title, rows, gradients in (("32 sentences", 32, False), ("one sentence", 1, False), (training, 32, trained)):
        call = _lstm_call(model, rows, gradients)
        yield f"LSTM, {title}", "lstm", (call,), gradients
    yield "cell, where PyTorch makes the products", "cell", (call.inputs, call.cell), False
    yield f"words, inference{'' if trained else ' and training'}", "word-vectors", (encoder, words), not trained
    if trained:
        modules = encoder.embedding, encoder.convolutions
        yield "character convolutions, training", "character-maxima", (words, lengths, *modules), True


def _lstm_call(model: Any, rows: int, gradients: bool) -> LstmCall:
    layers = model.bilm.forward_layers[0], model.bilm.backward_layers[0]
    half_on_cpu = model.dtype == torch.float16 and model.device.type == "cpu"
    inputs = torch.zeros(2, rows, model.config.projection_size, device=model.device)
    inputs = inputs.to(torch.float32 if half_on_cpu else model.dtype).requires_grad_(gradients)
    hidden, cell = (part[0] for part in model.bilm.initial_state(rows, inputs.detach()))
    clips = layers[0].cell_clip, layers[0].proj_clip
    return LstmCall(inputs, [rows], hidden, cell, [layer.weights for layer in layers], *clips)


def describe_environment() -> str:
    """Versions, devices, instruction sets, the compiler and its cache: what a bug report should hold."""
    rows = {"Python": f"{sys.version.split()[0]}, {platform.platform()}", "libraries": _versions(LIBRARIES)}
    rows["of extras"] = _versions(EXTRAS, only_installed=True) or "none"
    rows["hf_elmo is in"] = str(Path(__file__).parents[1])
    rows["processor"] = f"{_processor()}; {', '.join(_instructions()) or 'no known extension'}"
    rows["threads"] = f"{torch.get_num_threads()} of {os.cpu_count()}"
    rows["PyTorch's vectors"] = torch.backends.cpu.get_cpu_capability()
    rows["GPU"] = ", ".join(map(torch.cuda.get_device_name, range(torch.cuda.device_count()))) or "none"
    try:
        rows["C compiler"] = f"{' '.join(native.compiler())}: {native.compiler_version()}"
    except native.NativeError as error:
        rows["C compiler"] = f"none: {error}"
    rows["HF_ELMO_CFLAGS"] = os.environ.get("HF_ELMO_CFLAGS", "not set")
    rows["cache of compiled kernels"] = str(native.cache_folder())
    rows["kernels in C"] = native.reason() or "loaded"
    rows["HF_ELMO_KERNELS"] = os.environ.get("HF_ELMO_KERNELS", "not set: on")
    rows["HF_HUB_OFFLINE"] = os.environ.get("HF_HUB_OFFLINE", "not set: the Hub is asked")
    rows["backends switched on"] = ", ".join(sorted(enabled())) or "none"
    width = max(map(len, rows))
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows.items())


def _versions(names: tuple[str, ...], only_installed: bool = False) -> str:
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found += [] if only_installed else [f"{name} is not installed"]
    return ", ".join(found)


def _processor() -> str:
    lines = native.processor()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "CPU part"))]
    return named[0] if named else platform.processor() or platform.machine()


def _instructions() -> list[str]:
    words = {word for line in native.processor() if line.startswith(("flags", "Features")) for word in line.split()}
    return [name for name in INSTRUCTIONS if name in words]
