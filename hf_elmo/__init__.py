"""ELMo (Peters et al. 2018) for the Hugging Face libraries."""

import transformers
from transformers.utils import is_torch_available

from .configuration_elmo import VERSION, ElmoConfig
from .names import MODELS, __all__, __dir__, __getattr__  # noqa: F401, what this package is to its users
from .tokenization_elmo import ElmoTokenizer

__version__ = VERSION


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
            getattr(transformers, _auto_class).register(ElmoConfig, _Imported(_model, (), _fields))
