"""transformers' own common tests, of exactly the installed version, on this package's models and tokenizer, by
`python -m tests.transformers_common [OPTIONS OF PYTEST]`. It needs the package `parameterized`, and downloads
transformers' source distribution once, which holds the tests."""

import contextlib
import functools
import importlib
import os
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import huggingface_hub.constants
import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto

from hf_elmo import ElmoConfig, ElmoTokenizer
from tests import heads
from tests.factories import TINY

# transformers looks for a folder of this name.
FOLDER = Path(huggingface_hub.constants.HF_HOME) / "hf_elmo" / f"transformers-{version('transformers')}" / "tests"
PACKAGE = "transformers_tests"  # not `tests`, which is ours


def fetch() -> None:
    """Unpacks the tests of the installed transformers, unless they are there already."""
    if (FOLDER / "fixtures").is_dir():
        return
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    with tempfile.TemporaryDirectory() as downloads:
        subprocess.run([*pip, "-q", "-d", downloads, f"transformers=={version('transformers')}"], check=True)
        with tarfile.open(next(Path(downloads).glob("*.tar.gz"))) as tar:
            members = [member for member in tar.getmembers() if member.name.split("/")[1:2] == ["tests"]]
            tar.extractall(FOLDER.parent.parent, members, filter="data")
    (FOLDER / "fixtures").mkdir()  # the distribution leaves it out, and the tokenizer's tests read this file of it
    (FOLDER / "fixtures" / "sample_text.txt").write_text("Any text.\n\nIt has two paragraphs.\n")


def load(module: str) -> types.ModuleType:
    """A module of transformers' tests, such as `"test_modeling_common"`."""
    if PACKAGE not in sys.modules:
        sys.modules[PACKAGE] = package = types.ModuleType(PACKAGE)
        package.__path__ = [str(FOLDER)]
        # Folders that the distribution leaves out: tests of generation and of exporters, which do not apply.
        for name in ("exporters.test_export.ExportTesterMixin", "generation.test_utils.GenerationTesterMixin"):
            folder, file, mixin = name.split(".")
            for stand_in in (f"{PACKAGE}.{folder}", f"{PACKAGE}.{folder}.{file}"):
                sys.modules[stand_in] = types.ModuleType(stand_in)
                sys.modules[stand_in].__path__ = []
            setattr(sys.modules[stand_in], mixin, type(mixin, (), {}))
    # Some execute transformers' __init__ once more, from a folder beside the tests: the installed one is tested.
    with mock.patch("transformers.utils.direct_transformers_import", return_value=transformers):
        return importlib.import_module(f"{PACKAGE}.{module}")


def must_fail(case: type, reasons: dict[str, str]) -> type:
    """Marks the tests that cannot apply: one that passes is a failure, one that does not exist an AttributeError."""
    for name, reason in reasons.items():
        test = getattr(case, name)
        run = functools.wraps(test)(lambda self, test=test: test(self))
        setattr(case, name, pytest.mark.xfail(reason=reason, strict=True)(run))
    case.subTest = lambda *_, **__: contextlib.nullcontext()  # a failure within ends the test
    return case


BATCH, WORDS, VOCABULARY = 3, 7, 31
# Where the mixin looks up what a class is: a model without a head, which has no loss; and what labels it takes.
KINDS = {
    "MODEL_MAPPING_NAMES": "ElmoModel",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES": "ElmoForQuestionAnswering",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": "ElmoForSequenceClassification",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES": "ElmoForTokenClassification",
}
ALL_MODELS = dict.fromkeys(("test_inputs_embeds", "test_resize_tokens_embeddings"), "the embedding is of characters")
RESOLVER = {"test_retain_grad_hidden_states_attentions": "the first output, spans of whole numbers, has no gradient"}
LANGUAGE_MODEL = {
    "test_resize_embeddings_untied": "the embedding is of characters",
    "test_retain_grad_hidden_states_attentions": "hidden_states are padded copies, through which no gradient returns",
}
# Of each case: its model in tests/heads.py, labels that are not the mixin's, what the model reads beside words, and the
# tests that cannot apply.
LAST = {name: torch.full((BATCH,), WORDS - 2) for name in ("start_positions", "end_positions")}
CLUSTERS = {"labels": torch.tensor([[0, 0, 0], [2, 2, 0], [3, 4, 0]]).expand(BATCH, -1, -1)}
NEIGHBORS = {"labels": torch.arange(BATCH * WORDS * 2).view(BATCH, WORDS, 2) % VOCABULARY}
GENRES = {"speaker_ids": torch.tensor([[0, 1, 1, 2, 1, 0, 0]] * BATCH), "genre_ids": torch.tensor([0, 1, 1])}
MISMATCHED = {"test_load_with_mismatched_shapes": "vocab_size is of a softmax that a classifier has not"}
CASES = {
    "NoHead": ("no head", {}, {}, {"test_inputs_embeds_matches_input_ids": "the embedding is of characters"}),
    "Classifier": ("pooled", {}, {}, MISMATCHED),
    "Tagger": ("crf", {}, {}, {}),
    "Answers": ("no answer", LAST, {}, {}),
    "Coreference": ("resolver 2018", CLUSTERS, GENRES, RESOLVER),
    "LanguageModels": ("language models", NEIGHBORS, {}, LANGUAGE_MODEL),
}
TESTED = {heads.MODELS[head][0] for head, *_ in CASES.values()}
for head, (model_class, _) in heads.HEADS.items():  # a new one has the labels of all tests
    if model_class not in TESTED:
        head_labels = heads.labels_of(heads.batch_of(ElmoTokenizer("whitespace"), head, rows=slice(BATCH)))
        CASES[model_class.__name__] = head, head_labels, {}, {}
# Of models that read boundaries among the `WORDS` positions, the words of each text.
SIZES = {"ElmoForQuestionAnswering": (1, 2), "ElmoForCoreferenceResolution": (5,)}


class ModelTester:
    """What the mixin asks of each model: a small configuration, and inputs for it."""

    batch_size, seq_length, is_training = BATCH, WORDS, True
    hidden_size, num_hidden_layers = TINY["hidden_size"], 2

    def __init__(self, fields: dict[str, object], sizes: tuple, features: dict[str, torch.Tensor]) -> None:
        self.fields, self.sizes, self.features = fields, sizes, features

    def get_config(self) -> ElmoConfig:
        # Unfrozen, because the mixin wants a gradient for every parameter.
        return ElmoConfig(**{**TINY, "vocab_size": VOCABULARY, **self.fields}, freeze_bilm=False)

    def prepare_config_and_inputs_for_common(self) -> tuple[ElmoConfig, dict[str, torch.Tensor]]:
        numbers = [torch.randint(1000, (BATCH, size)).tolist() for size in self.sizes or (WORDS,)]
        texts = [[list(map(str, row)) for row in rows] for rows in numbers]
        how = {"add_special_tokens": len(self.sizes) > 0, "is_split_into_words": True, "return_tensors": "pt"}
        return self.get_config(), {**ElmoTokenizer()(*texts, **how), **self.features}


def make_case(head: str, labels: dict, features: dict, reasons: dict[str, str]) -> type:
    model_class, fields = heads.MODELS[head]

    class Case(load("test_modeling_common").ModelTesterMixin, unittest.TestCase):
        has_attentions = False
        all_model_classes = (model_class,)

        def setUp(self) -> None:
            self.model_tester = ModelTester(fields, SIZES.get(model_class.__name__, ()), features)

        def _prepare_for_class(self, inputs: dict, model_class: type, return_labels: bool = False) -> dict:
            inputs = super()._prepare_for_class(inputs, model_class, return_labels)
            return inputs | (labels if return_labels else {})

        def test_model_outputs_equivalence(self) -> None:
            # The mixin's messages name the maximum of each output, and no cluster has none.
            with mock.patch("torch.max", lambda x: x.max() if x.numel() else x.sum()):
                super().test_model_outputs_equivalence()

    return must_fail(Case, ALL_MODELS | reasons)


# The tests that cannot apply, by the reason.
TOKENIZER = {
    "a word is a row of character ids: input_ids have an axis more": "batch_encode_dynamic_overflowing "
    "chat_template_return_assistant_tokens_mask padding_with_attention_mask",
    "pad_token_id is of a character; a padded position is a row of them": "encode_basic_padding "
    "encode_plus_with_padding_0 encode_plus_with_padding_1",
    "the entries of the vocabulary are characters": "get_vocab tokenizers_common_ids_setters",
    "every word is spelled: a token that is added has no id": "save_and_load_tokenizer tokenize_special_tokens",
}
BACKEND = {
    "the biLM reads <S> and </S> around each sentence": "add_bos_token_without_bos_token",
    "the characters are the same for every text: there is nothing to train": "training_new_tokenizer "
    "training_new_tokenizer_with_special_tokens_change",
}
TEXT = "Far out in the uncharted backwaters of the unfashionable end of the western spiral arm of the Galaxy"


class TokenizerCase:
    tokenizer_class = rust_tokenizer_class = ElmoTokenizer

    @classmethod
    def setUpClass(cls) -> None:
        # The mixins load a tokenizer by its name on the Hub: this one from a folder.
        cls.from_pretrained_id = cls.enterClassContext(tempfile.TemporaryDirectory())
        ElmoTokenizer().save_pretrained(cls.from_pretrained_id)
        super().setUpClass()

    def get_clean_sequence(self, tokenizer, with_prefix_space=False, max_length=20, min_length=5) -> tuple[str, list]:
        """A text, and its ids without boundaries. (The mixin's own has words that are one id of the vocabulary.)"""
        text = " " * with_prefix_space + " ".join(TEXT.split()[:max_length])
        return text, tokenizer.encode(text, add_special_tokens=False)


if __name__ == "__main__":
    fetch()
    os.chdir(Path(__file__).parent.parent)
    theirs = ["-o", "addopts=", "-W", "ignore::pytest.PytestUnknownMarkWarning"]  # they have markers of their own
    sys.exit(pytest.main([*theirs, "-q", "-rxfE", *sys.argv[1:], __file__]))

for names, class_name in KINDS.items():
    getattr(modeling_auto, names)["elmo"] = class_name
for case_name, arguments in CASES.items():
    globals()[f"Test{case_name}"] = make_case(*arguments)
for case_name, module, mixin, reasons in (
    ("TestTokenizer", "test_tokenization_common", "TokenizerTesterMixin", TOKENIZER),
    ("TestTokenizersBackend", "test_tokenizers_backend_mixin", "TokenizersBackendTesterMixin", BACKEND),
):
    bases = TokenizerCase, getattr(load(module), mixin), unittest.TestCase
    of_tests = {f"test_{name}": reason for reason, names in reasons.items() for name in names.split()}
    globals()[case_name] = must_fail(type(case_name, bases, {}), of_tests)
