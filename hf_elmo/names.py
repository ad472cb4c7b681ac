"""The public names of the package, each of which is imported when it is first used."""

from pathlib import Path

import lazy_loader

# `__init__.pyi` lists the names. Importing a model class takes seconds.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__package__, str(Path(__file__).with_name("__init__.py")))

# The model class that each Auto class loads. A head for which transformers has no Auto class is named as if it had one.
MODELS = {"AutoModel": "ElmoModel"}
MODELS |= {name.replace("Elmo", "AutoModel"): name for name in __all__ if name.startswith("ElmoFor")}
