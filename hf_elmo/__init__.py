"""ELMo (Peters et al. 2018) for the Hugging Face libraries."""

import lazy_loader
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from .configuration_elmo import VERSION, ElmoConfig
from .tokenization_elmo import ElmoTokenizer

__version__ = VERSION

# The stub beside this file has the names. Importing a model class costs seconds: each is imported on its first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


class _Imported(type):
    """The type of a stand-in for a model class, which imports the class when anything of it is used."""

    def __getattr__(cls, name: str) -> object:
        return getattr(__getattr__(cls.__name__), name)

    def __call__(cls, *args: object, **kwargs: object) -> object:
        return __getattr__(cls.__name__)(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, __getattr__(cls.__name__))


def _on_use(name: str) -> type:
    return _Imported(name, (), {"config_class": ElmoConfig, "__module__": __name__})


AutoConfig.register("elmo", ElmoConfig)
AutoTokenizer.register(ElmoConfig, tokenizer_class=ElmoTokenizer)
AutoModel.register(ElmoConfig, _on_use("ElmoModel"))
AutoModelForPreTraining.register(ElmoConfig, _on_use("ElmoForPreTraining"))
AutoModelForQuestionAnswering.register(ElmoConfig, _on_use("ElmoForQuestionAnswering"))
AutoModelForSequenceClassification.register(ElmoConfig, _on_use("ElmoForSequenceClassification"))
AutoModelForTokenClassification.register(ElmoConfig, _on_use("ElmoForTokenClassification"))
