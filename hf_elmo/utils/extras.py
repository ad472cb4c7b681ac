"""Names the extra of hf_elmo that installs a missing library."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra_needed(extra: str, otherwise: str = "") -> Iterator[None]:
    """For a block that imports libraries of an extra: an error of a missing one says how to install it, `otherwise`."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = str(error.name).partition(".")[0]
        message = f'{module} is not installed; this needs the extra {extra}: pip install "hf-elmo[{extra}]"{otherwise}'
        raise ModuleNotFoundError(message, name=error.name) from error
