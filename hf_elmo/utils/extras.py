"""Names the extra of hf_elmo that installs a missing library."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import requires

DISTRIBUTIONS = {"sklearn": "scikit-learn", "tensorflow": "tensorflow-cpu"}  # where the module has another name


@contextmanager
def extra_needed(otherwise: str = "") -> Iterator[None]:
    """
    For a block that imports libraries of an extra: if one is missing, the error says how to install it. The extras are
    those of the package's metadata. `otherwise` is added to the message, for example a way without the library.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        name = re.escape(DISTRIBUTIONS.get(module, module))
        found = (re.match(rf'{name}\b(?![-.]).*; .*extra == "([\w-]+)"', one) for one in requires("hf-elmo") or ())
        extra = next((match[1] for match in found if match), None)
        if extra is None or "needs the extra" in str(error):
            raise
        message = f'{module} is not installed; this needs the extra {extra}: pip install -e ".[{extra}]"{otherwise}'
        raise ModuleNotFoundError(message, name=error.name) from error
