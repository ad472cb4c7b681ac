"""ELMo (Peters et al. 2018) for the Hugging Face libraries."""

from importlib import import_module

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from transformers.utils import is_torch_available

from .configuration_elmo import VERSION, ElmoConfig
from .tokenization_elmo import ElmoTokenizer

__version__ = VERSION

# Importing a model class costs seconds, so each is imported when it is first used.
_MODULE_OF = {
    "CoreferenceCollator": "tasks.coreference",
    "ElmoForCoreferenceResolution": "modeling_coreference_elmo",
    "ElmoForPreTraining": "modeling_elmo",
    "ElmoForQuestionAnswering": "modeling_tasks_elmo",
    "ElmoForSequenceClassification": "modeling_tasks_elmo",
    "ElmoForTokenClassification": "modeling_tasks_elmo",
    "ElmoModel": "modeling_elmo",
    "ElmoPreTrainedModel": "modeling_elmo",
    "ElmoTokenClassificationPipeline": "modeling_tasks_elmo",
    "ElmoVectorizer": "sklearn",
    "Embedder": "embedding.workers",
    "LayersCollator": "tasks.inputs",
    "TaggingCollator": "tasks.tagging",
    "Vocabulary": "pretraining.vocabulary",
    "add_word_vectors": "tasks.inputs",
    "answer": "tasks.question_answering",
    "arguments_of": "tasks.tagging",
    "classification_metrics": "tasks.heads",
    "coreference_metrics": "tasks.coreference",
    "count_words": "tasks.inputs",
    "embed": "embedding.corpus",
    "embed_on_ray": "embedding.workers",
    "encode_document": "tasks.coreference",
    "encode_questions": "tasks.question_answering",
    "gap_scores": "tasks.coreference",
    "layer_similarities": "analysis.similarity",
    "layer_weights": "tasks.heads",
    "learning_rates": "tasks.heads",
    "load_default": "shipped",
    "load_model": "shipped",
    "nearest_neighbors": "analysis.similarity",
    "neighbor_labels": "modeling_elmo",
    "next_words": "analysis.scoring",
    "path": "shipped",
    "perplexity": "pretraining.perplexity",
    "plot_layer_weights": "tasks.heads",
    "plot_similarities": "analysis.plots",
    "plot_word_plane": "analysis.plots",
    "predict": "tasks.predict",
    "pretrain": "pretraining.recipe",
    "previous_words": "analysis.scoring",
    "push": "hub",
    "read_conll": "tasks.tagging",
    "read_conll2012": "tasks.coreference",
    "read_word_vectors": "tasks.inputs",
    "resolve": "tasks.coreference",
    "role_metrics": "tasks.tagging",
    "score": "analysis.scoring",
    "score_clusters": "tasks.coreference",
    "settle": "settled_start",
    "span_metrics": "tasks.tagging",
    "squad_metrics": "tasks.question_answering",
    "store_layers": "tasks.inputs",
    "substitutes": "analysis.scoring",
    "word_plane": "analysis.similarity",
}

__all__ = ["ElmoConfig", "ElmoTokenizer", *_MODULE_OF]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
if is_torch_available():  # ONNX Runtime needs the tokenizer only
    AutoModel.register(ElmoConfig, _on_use("ElmoModel"))
    AutoModelForPreTraining.register(ElmoConfig, _on_use("ElmoForPreTraining"))
    AutoModelForQuestionAnswering.register(ElmoConfig, _on_use("ElmoForQuestionAnswering"))
    AutoModelForSequenceClassification.register(ElmoConfig, _on_use("ElmoForSequenceClassification"))
    AutoModelForTokenClassification.register(ElmoConfig, _on_use("ElmoForTokenClassification"))


def _register_pipelines(_: ElmoConfig) -> dict[str, object]:
    """
    `config.custom_pipelines`, which `transformers.pipeline` reads before it looks for the task's class: none that are
    remote code. The class is registered here, and not at once, because transformers.pipelines takes seconds to import.
    """
    from transformers import pipelines

    from .modeling_tasks_elmo import ElmoTokenClassificationPipeline

    pipelines.SUPPORTED_TASKS["token-classification"]["impl"] = ElmoTokenClassificationPipeline
    if "ELMo" not in (removed := getattr(pipelines, "REMOVED_TASKS", {})).get("question-answering", "ELMo"):
        removed["question-answering"] += " For ELMo use `hf_elmo.answer(model, question, passage)`."
    return {}


ElmoConfig.custom_pipelines = property(_register_pipelines, lambda *_: None)
