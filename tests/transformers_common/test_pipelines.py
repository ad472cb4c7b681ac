"""The models and the tokenizer in transformers' PipelineTesterMixin."""

import os
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from tests.conftest import TINY, random_model

from . import source

if source.FOLDER_VARIABLE not in os.environ:
    pytest.skip("transformers' own tests: run python -m tests.transformers_common", allow_module_level=True)

mixin = source.load("test_pipeline_mixin")
TESTS = {
    "feature-extraction": {"test": f"{__package__}.pipelines.FeatureExtraction"},
    "text-classification": {"test": f"{__package__}.pipelines.TextClassification"},
    "token-classification": {"test": f"{__package__}.pipelines.TokenClassification"},
    "zero-shot": {"test": f"{__package__}.pipelines.ZeroShotClassification"},
}
LABELS = {0: "contradiction", 1: "neutral", 2: "entailment"}


class _Case(mixin.PipelineTesterMixin):
    text_pairs = False

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        # The mixin asks for a vocab_size, which only a language model has need of.
        labels = {"id2label": LABELS, "label2id": {name: number for number, name in LABELS.items()}}
        config = ElmoConfig(**TINY, **labels, vocab_size=31, classifier_text_pairs=cls.text_pairs)
        classes = set(cls.pipeline_model_mapping.values())
        for model_class in classes:
            checkpoint = Path(folder.name) / config.model_type / model_class.__name__
            random_model(config, model_class).save_pretrained(checkpoint)
            ElmoTokenizer().save_pretrained(checkpoint)
        about = {"tokenizer_classes": ["ElmoTokenizer"], "processor_classes": []}
        cls.enterClassContext(
            mock.patch.multiple(
                mixin,
                TRANSFORMERS_TINY_MODEL_PATH=folder.name,
                tiny_model_summary={model_class.__name__: about for model_class in classes},
                transformers_module=SimpleNamespace(ElmoTokenizer=ElmoTokenizer),
                pipeline_test_mapping=TESTS,
            )
        )


class ElmoPipelinesTest(_Case, unittest.TestCase):
    pipeline_model_mapping = {  # noqa: RUF012, the mixin's name for it
        "feature-extraction": ElmoModel,
        "text-classification": ElmoForSequenceClassification,
        "token-classification": ElmoForTokenClassification,
    }


class ElmoPairsPipelinesTest(_Case, unittest.TestCase):
    text_pairs = True
    pipeline_model_mapping = {"zero-shot": ElmoForSequenceClassification}  # noqa: RUF012
