"""Libraries that only some functions need."""

from importlib import import_module
from types import ModuleType


def import_optional(module: str, purpose: str, install: str) -> ModuleType:
    """
    A library that may not be installed.

    Args:
        module: its name; `package.module` is loaded, too, and `package` is returned.
        purpose: what needs it, as the error message begins.
        install: what `pip install` is given to get it.

    Raises:
        ImportError: it is not installed.
    """
    package = module.partition(".")[0]
    try:
        import_module(module)
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{purpose} needs {package}, which is not installed: pip install {install}") from error
