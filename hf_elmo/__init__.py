"""ELMo (Peters et al. 2018) for the Hugging Face libraries."""

import re
from pathlib import Path

import lazy_loader
import transformers
from transformers.utils import is_torch_available

from .configuration_elmo import VERSION, ElmoConfig
from .tokenization_elmo import ElmoTokenizer

__version__ = VERSION

# `__init__.pyi` lists the names. Importing a model class takes seconds, so each name is imported when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# The model class that each Auto class loads, in the words of `auto_map` in config.json. A head for which transformers
# has no Auto class is named as if it had one.
MODELS = {
    f"AutoModel{kind.removeprefix('Model')}": f"{module}.Elmo{kind}"
    for module, kind in re.findall(
        r"^from \.(modeling_\w+) import Elmo(Model|For\w+) as", Path(__file__).with_suffix(".pyi").read_text(), re.M
    )
}


class _Imported(type):
    """The type of placeholders for model classes. On use, a placeholder imports the class that it stands for."""

    def __getattr__(cls, name: str) -> object:
        return getattr(__getattr__(cls.__name__), name)

    def __call__(cls, *args: object, **kwargs: object) -> object:
        return __getattr__(cls.__name__)(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, __getattr__(cls.__name__))


transformers.AutoConfig.register("elmo", ElmoConfig)
transformers.AutoTokenizer.register(ElmoConfig, tokenizer_class=ElmoTokenizer)
if is_torch_available():  # without PyTorch, only the tokenizer is used (with ONNX Runtime)
    for _auto_class, _model in MODELS.items():
        if hasattr(transformers, _auto_class):
            _fields = {"config_class": ElmoConfig, "__module__": __name__}
            getattr(transformers, _auto_class).register(ElmoConfig, _Imported(_model.split(".")[1], (), _fields))
