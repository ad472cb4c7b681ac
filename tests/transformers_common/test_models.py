"""The models in transformers' ModelTesterMixin."""

import os
import unittest
from unittest import mock

import pytest
import torch
from transformers.models.auto import modeling_auto

from hf_elmo import (
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
)
from hf_elmo.configuration_elmo import (
    SENTENCE_BEGIN_ID,
    SENTENCE_END_ID,
    WORD_BEGIN_ID,
    WORD_END_ID,
    WORD_PADDING_ID,
)
from tests.conftest import TINY

from . import source
from .inapplicable import BASE_MODEL, CLASSIFIER, LANGUAGE_MODEL, MODELS, RESOLVER, must_fail

if source.FOLDER_VARIABLE not in os.environ:
    pytest.skip("transformers' own tests: run python -m tests.transformers_common", allow_module_level=True)

ModelTesterMixin = source.load("test_modeling_common").ModelTesterMixin
BATCH, WORDS, VOCABULARY, LABELS = 3, 7, 31, 3
BOUNDARIES = {"<": SENTENCE_BEGIN_ID, ">": SENTENCE_END_ID}

# Where the mixin looks up what a class is: a model without a head, which has no loss; and what labels it takes.
KINDS = {
    "MODEL_MAPPING_NAMES": ElmoModel,
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES": ElmoForQuestionAnswering,
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": ElmoForSequenceClassification,
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES": ElmoForTokenClassification,
}


@pytest.fixture(autouse=True)
def known_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for names, model_class in KINDS.items():
        monkeypatch.setitem(getattr(modeling_auto, names), "elmo", model_class.__name__)


class ElmoModelTester:
    """What the mixin asks of each model: a small configuration, and inputs for it."""

    batch_size, seq_length, is_training = BATCH, WORDS, True
    hidden_size, num_hidden_layers = TINY["hidden_size"], 2

    def __init__(self, settings: dict[str, object], row: str, features: dict[str, torch.Tensor]) -> None:
        self.settings, self.row, self.features = settings, row, features

    def get_config(self) -> ElmoConfig:
        # Unfrozen, because the mixin wants a gradient for every parameter.
        return ElmoConfig(**TINY, **self.settings, vocab_size=VOCABULARY, num_labels=LABELS, freeze_bilm=False)

    def prepare_config_and_inputs_for_common(self) -> tuple[ElmoConfig, dict[str, torch.Tensor]]:
        config = self.get_config()
        input_ids = torch.full((BATCH, WORDS, config.max_word_length), WORD_PADDING_ID)
        input_ids[:, :, 0], input_ids[:, :, 4] = WORD_BEGIN_ID, WORD_END_ID
        input_ids[:, :, 1:4] = torch.randint(1, 257, (BATCH, WORDS, 3))
        for position, kind in enumerate(self.row):
            if kind in BOUNDARIES:
                input_ids[:, position, 1:5] = torch.tensor([BOUNDARIES[kind], WORD_END_ID, *[WORD_PADDING_ID] * 2])
        mask = torch.ones(BATCH, WORDS, dtype=torch.int64)
        return config, {"input_ids": input_ids, "attention_mask": mask, **self.features}


class _Case(ModelTesterMixin):
    has_attentions = False
    settings: dict[str, object] = {}  # noqa: RUF012, of the configuration
    row = "w" * WORDS  # of words, and of boundaries where a model must have them: <S> "<" and </S> ">"
    features: dict[str, torch.Tensor] = {}  # noqa: RUF012, beside the words

    def setUp(self) -> None:
        self.model_tester = ElmoModelTester(self.settings, self.row, self.features)


@must_fail(BASE_MODEL)
class ElmoModelTest(_Case, unittest.TestCase):
    all_model_classes = (ElmoModel,)


@must_fail(CLASSIFIER)
class ElmoForSequenceClassificationTest(_Case, unittest.TestCase):
    all_model_classes = (ElmoForSequenceClassification,)


@must_fail(MODELS)
class ElmoForTokenClassificationTest(_Case, unittest.TestCase):
    all_model_classes = (ElmoForTokenClassification,)


@must_fail(MODELS)
class ElmoForTokenClassificationWithCrfTest(_Case, unittest.TestCase):
    all_model_classes = (ElmoForTokenClassification,)
    settings = {"encoder_type": "bilstm", "encoder_hidden_size": 7, "tagging_crf": True}  # noqa: RUF012


@must_fail(MODELS)
class ElmoForQuestionAnsweringTest(_Case, unittest.TestCase):
    all_model_classes = (ElmoForQuestionAnswering,)
    settings = {"encoder_hidden_size": 7, "elmo_at_output": True, "encoder_type": "attention_flow"}  # noqa: RUF012
    row = "<w><ww>"

    def _prepare_for_class(self, inputs: dict, model_class: type, return_labels: bool = False) -> dict:
        inputs = super()._prepare_for_class(inputs, model_class, return_labels)
        last = {name: torch.full((BATCH,), WORDS - 2) for name in ("start_positions", "end_positions")}
        return inputs | (last if return_labels else {})


@must_fail(MODELS)
class ElmoForQuestionAnsweringWithNoAnswerTest(_Case, unittest.TestCase):
    """Whose labels are the mixin's: position 0."""

    all_model_classes = (ElmoForQuestionAnswering,)
    settings = {"encoder_hidden_size": 7, "allow_no_answer": True}  # noqa: RUF012
    row = "<w><ww>"


@must_fail(RESOLVER)
class ElmoForCoreferenceResolutionTest(_Case, unittest.TestCase):
    all_model_classes = (ElmoForCoreferenceResolution,)
    settings = {"coreference_max_width": 3, "coreference_hidden_size": 9, "coreference_spans_per_word": 0.8}  # noqa: RUF012
    row = "<wwwww>"

    def _prepare_for_class(self, inputs: dict, model_class: type, return_labels: bool = False) -> dict:
        inputs = super()._prepare_for_class(inputs, model_class, return_labels)
        labels = torch.tensor([[0, 0, 0], [2, 2, 0], [3, 4, 0]]).expand(BATCH, -1, -1)
        return inputs | ({"labels": labels} if return_labels else {})

    def test_model_outputs_equivalence(self) -> None:
        """The mixin's messages name the maximum of each output, and no cluster has none."""
        with mock.patch("torch.max", lambda x: x.max() if x.numel() else x.sum()):
            super().test_model_outputs_equivalence()


class ElmoForCoreferenceResolutionWithSpeakersTest(ElmoForCoreferenceResolutionTest):
    settings = {  # noqa: RUF012
        **ElmoForCoreferenceResolutionTest.settings,
        "encoder_type": "bilstm",
        "encoder_hidden_size": 7,
        "coreference_speakers": True,
        "coreference_num_genres": 2,
    }
    features = {  # noqa: RUF012
        "speaker_ids": torch.tensor([0, 1, 1, 2, 1, 0, 0]).expand(BATCH, -1),
        "genre_ids": torch.tensor([0, 1, 1]),
    }


@must_fail(LANGUAGE_MODEL)
class ElmoForPreTrainingTest(_Case, unittest.TestCase):
    all_model_classes = (ElmoForPreTraining,)

    def _prepare_for_class(self, inputs: dict, model_class: type, return_labels: bool = False) -> dict:
        inputs = super()._prepare_for_class(inputs, model_class, return_labels)
        labels = torch.arange(BATCH * WORDS * 2).view(BATCH, WORDS, 2) % VOCABULARY
        return inputs | ({"labels": labels} if return_labels else {})
