"""The backends of each operation, and the choice among them.

A backend computes one operation of `modeling_elmo.py` faster than plain PyTorch. The backends of an operation are asked
in the order of the tables, and the first enabled backend that supports the arguments runs. If none does, plain PyTorch
computes the operation. [`describe`] says which backend runs, and why the backends before it do not.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from . import character_tables, lstm_c, lstm_onednn, word_cache
from .lstm_onednn import multiplies_bfloat16  # noqa: F401  modeling_elmo.py uses it
from .tensors import INTERFACE, CharacterWeights, require_shapes, tensors_of, why_not_plain


class Backend(NamedTuple):
    """One way to compute an operation.

    Both functions take the operation's arguments: tensors whose memory may be read (`tensors.why_not_plain`: on the
    CPU, strided, no subclass, no transform of `torch.func`, no forward-mode differentiation, no dispatch mode). Of an
    `LstmCall` the shapes agree (`tensors.require_shapes`), autocast is off, and `inputs`, `hidden` and `cell`, but not
    the weights, have the types of the computation. `why_not` has to check what else `run` needs. `run` computes what
    plain PyTorch would return, up to rounding in the type of the weights, and in `WITH_GRADIENTS` so that each tensor
    that requires a gradient gets one. It may neither decline nor write to its arguments."""

    name: str  # in `HF_ELMO_KERNELS` and in [`use`]
    why_not: Callable[..., str | None]  # `None` if `run` supports the arguments and is expected to be the fastest way
    run: Callable[..., Any]


# "lstm" (an `LstmCall`): the directions of one LSTM layer over packed words, as in `modeling_elmo.lstm_directions`.
# "word-vectors" (`CharacterWeights`, ids): the vectors of words, as in `modeling_elmo.ElmoCharacterEncoder.forward`.
# "character-maxima" (the same): the maxima of the character convolutions, as in its `_convolve`.
WITHOUT_GRADIENTS: dict[str, tuple[Backend, ...]] = {
    "lstm": (
        Backend("fused", lstm_c.why_not_fused, lstm_c.run_fused),
        Backend("int8", lstm_c.why_not_int8, functools.partial(lstm_c.run_small_batch, in_bytes=True)),
        Backend("small-batch", lstm_c.why_not_small_batch, lstm_c.run_small_batch),
    ),
    "word-vectors": (Backend("word-cache", word_cache.why_not, word_cache.run),),
    "character-maxima": (),
}
WITH_GRADIENTS: dict[str, tuple[Backend, ...]] = {
    "lstm": (Backend("onednn-training", lstm_onednn.why_not_training, lstm_onednn.run_training),),
    "word-vectors": (),
    "character-maxima": (Backend("character-tables", character_tables.why_not, character_tables.run),),
}
NAMES = frozenset(b.name for table in (WITHOUT_GRADIENTS, WITH_GRADIENTS) for of in table.values() for b in of)
ON = NAMES - {"int8"}  # those whose rounding is that of the type of the weights

_setting: ContextVar[str | None] = ContextVar("hf_elmo.kernels.setting", default=None)
_watcher: ContextVar[Callable[[str, Backend | None, tuple], None] | None] = ContextVar("watcher", default=None)


def connect(interface: int) -> ModuleType | None:
    """This module, for a `modeling_elmo.py` with the same interface: those of checkpoints may be older or newer."""
    return sys.modules[__name__] if interface == INTERFACE else None


def find(operation: str, first: Any, *others: Tensor) -> Callable[[], Any] | None:
    """What `modeling_elmo.find_backend` returns, of an `LstmCall` or an `ElmoCharacterEncoder` and its arguments.
    Raises ValueError if shapes of the call do not agree, or as [`choose`]."""
    if operation == "lstm":
        require_shapes(first)
    elif (first := CharacterWeights.of(first)) is None:
        return None
    backend = choose(operation, first, *others)
    return backend and functools.partial(backend.run, first, *others)


def choose(operation: str, *arguments: Any) -> Backend | None:
    """The first enabled backend that supports the arguments, or `None` for plain PyTorch. Raises ValueError if
    `HF_ELMO_KERNELS` names an unknown backend."""
    chosen, _ = _ask(operation, arguments)
    if (watcher := _watcher.get()) is not None:
        watcher(operation, chosen, arguments)
    return chosen


def explain(operation: str, *arguments: Any) -> tuple[str | None, dict[str, str]]:
    """The name of the backend that would run (`None`: plain PyTorch), and why each backend before it would not."""
    chosen, refused = _ask(operation, arguments)
    return chosen and chosen.name, refused


def _ask(operation: str, arguments: tuple) -> tuple[Backend | None, dict[str, str]]:
    names = enabled()
    tensors = list(tensors_of(arguments))
    refused: dict[str, str] = {}
    has_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    backends = (WITH_GRADIENTS if has_gradient else WITHOUT_GRADIENTS)[operation]
    not_plain = why_not_plain(tensors) if backends and not names.isdisjoint(b.name for b in backends) else None
    for backend in backends:
        reason = "switched off" if backend.name not in names else not_plain or backend.why_not(*arguments)
        if reason is None:
            return backend, refused
        refused[backend.name] = reason
    return None, refused


def enabled() -> frozenset[str]:
    """The names of the enabled backends."""
    setting = _setting.get()
    return _parse(os.environ.get("HF_ELMO_KERNELS", "on") if setting is None else setting)


@functools.lru_cache(maxsize=64)
def _parse(setting: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in setting.split(",") if name.strip())
    if names == {"off"}:
        return frozenset()
    if unknown := names - NAMES - {"on"}:
        names_of_backends = ", ".join(sorted(NAMES))
        given = ", ".join(sorted(unknown))
        raise ValueError(f"HF_ELMO_KERNELS or kernels.use has {given}: give off alone, or on or {names_of_backends}.")
    return names - {"on"} | (ON if "on" in names or not names else frozenset())


@contextmanager
def _set(variable: ContextVar, value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def use(*names: str) -> AbstractContextManager[None]:
    """Enable only these backends, such as `"fused", "word-cache"`, in a block of the current thread; `"on"` enables
    all except `"int8"`, and `"off"` or no name at all disables all.

    `use("on", "int8")` rounds the LSTM's weights for the gates, and the numbers that they multiply, to 8 bits where up
    to three sentences are computed at once. A sentence then takes about half of the time in the original shape. It is
    for calls of a model: what runs a model over rows, such as `embed` and `predict`, raises ValueError.

    Raises:
        ValueError: a name is unknown.
    """
    _parse(setting := ",".join(names) or "off")
    return _set(_setting, setting)


def watch(watcher: Callable[[str, Backend | None, tuple], None]) -> AbstractContextManager[None]:
    """Call `watcher(operation, chosen, arguments)` after each choice in a block of the current thread."""
    return _set(_watcher, watcher)


def describe(model: PreTrainedModel) -> str:
    """Text that says which backend computes each operation of a model, and why each backend before it does not.

    The model is run on 32 sentences, on one sentence, and on 32 sentences with gradients.
    """
    if not model.config.use_elmo:
        return "use_elmo is False: the model has no biLM."
    lines = []
    for title, rows, gradients in (("32 sentences", 32, False), ("one sentence", 1, False), ("training", 32, True)):
        calls: dict[str, tuple] = {}
        words = torch.ones(rows, 3, model.config.row_length, dtype=torch.int64, device=model.device)
        first = watch(lambda operation, _, arguments, calls=calls: calls.setdefault(operation, arguments))
        with torch.random.fork_rng(), torch.set_grad_enabled(gradients), first:
            model.base_model(input_ids=words)
            for operation, arguments in calls.items():
                name, refused = explain(operation, *arguments)
                lines.append(f"{title}, {operation}: {name or 'plain PyTorch'}")
                lines += [f"    not {other}: {reason}" for other, reason in refused.items()]
    return "\n".join(lines)
