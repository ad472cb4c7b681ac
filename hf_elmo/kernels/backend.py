"""One faster way to compute an operation."""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Backend:
    """A module of this folder with two functions of the operation's arguments.

    `supports(*arguments)` returns `None` where it can compute them and is expected to be the faster way, else why not,
    in words; `run(*arguments)` then returns what the plain way in PyTorch would.

    Args:
        name: as `HF_ELMO_KERNELS` and [`use`] know it.
        module: the module's name, imported when it is first asked.
    """

    name: str
    module: str

    @cached_property
    def _functions(self) -> ModuleType:
        return import_module(f".{self.module}", __package__)

    def supports(self, *arguments: Any) -> str | None:
        """`None`, or why this backend does not take these arguments."""
        return self._functions.supports(*arguments)

    def run(self, *arguments: Any) -> Any:
        """The operation's result."""
        return self._functions.run(*arguments)
