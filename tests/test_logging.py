"""`transformers.logging.set_verbosity_*` sets the level of every message of the package."""

import logging
from types import ModuleType

import pytest
from transformers.utils import logging as transformers_logging

import hf_elmo.embedding.engine
import hf_elmo.kernels.native
import hf_elmo.modeling_elmo
import hf_elmo.pretraining.recipe

MODULES = [
    hf_elmo.embedding.engine,
    hf_elmo.kernels.native,
    hf_elmo.modeling_elmo,
    hf_elmo.pretraining.recipe,
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_verbosity_of_transformers_is_ours(module: ModuleType) -> None:
    transformers_logging.set_verbosity_error()
    assert not module.logger.isEnabledFor(logging.WARNING)
    transformers_logging.set_verbosity_info()
    assert module.logger.isEnabledFor(logging.INFO)
