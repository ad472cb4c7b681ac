"""The tokenizer in transformers' two mixins for tokenizers."""

import os
import tempfile
import unittest

import pytest

from hf_elmo import ElmoTokenizer

from . import source
from .inapplicable import BACKEND, TOKENIZER, must_fail

if source.FOLDER_VARIABLE not in os.environ:
    pytest.skip("transformers' own tests: run python -m tests.transformers_common", allow_module_level=True)

TokenizerTesterMixin = source.load("test_tokenization_common").TokenizerTesterMixin
TokenizersBackendTesterMixin = source.load("test_tokenizers_backend_mixin").TokenizersBackendTesterMixin
WORDS = "Far out in the uncharted backwaters of the unfashionable end of the western spiral arm of the Galaxy"


class _Case:
    tokenizer_class = rust_tokenizer_class = ElmoTokenizer

    @classmethod
    def setUpClass(cls) -> None:
        # The mixins load a tokenizer by its name on the Hub: this one from a folder.
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        ElmoTokenizer().save_pretrained(folder.name)
        cls.from_pretrained_id = folder.name
        super().setUpClass()


@must_fail(TOKENIZER)
class ElmoTokenizerTest(_Case, TokenizerTesterMixin, unittest.TestCase):
    def get_clean_sequence(
        self, tokenizer: ElmoTokenizer, with_prefix_space: bool = False, max_length: int = 20, min_length: int = 5
    ) -> tuple[str, list]:
        """A text, and its ids without boundaries. (The mixin's own has words that are one id of the vocabulary.)"""
        text = " " * with_prefix_space + " ".join(WORDS.split()[:max_length])
        return text, tokenizer.encode(text, add_special_tokens=False)


@must_fail(BACKEND)
class ElmoTokenizersBackendTest(_Case, TokenizersBackendTesterMixin, unittest.TestCase):
    pass
