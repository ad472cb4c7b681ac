"""`transformers.logging.set_verbosity_*` rules every message of the package."""

import ast
import logging
from pathlib import Path

import pytest
from transformers.utils import logging as transformers_logging

import hf_elmo
import hf_elmo.embedding.engine
import hf_elmo.kernels.native
import hf_elmo.pretraining.recipe

PACKAGE = Path(hf_elmo.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "conversion").glob("*.py"), *(ROOT / "model_cards").glob("*.py")])
OUR_LOGGER = "logging.get_logger(f'transformers.{__name__}')"


def calls(file: Path) -> list[str]:
    """Every call in a module, as source."""
    return [ast.unparse(node) for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_loggers_lie_below_that_of_transformers(file: Path) -> None:
    for call in calls(file):
        assert not call.startswith(("warnings.warn(", "warn(")), f"{call}: a logger's warning_once can be silenced"
        if "get_logger(" in call.partition(" ")[0]:
            assert call == OUR_LOGGER
        if call.startswith(("logging.getLogger(", "getLogger(")):
            assert call == "logging.getLogger('torch.onnx')"  # another library's, which is silenced


def test_some_module_logs() -> None:
    assert sum(OUR_LOGGER in calls(file) for file in FILES) >= 4


@pytest.mark.parametrize(
    "module", [hf_elmo.embedding.engine, hf_elmo.kernels.native, hf_elmo.pretraining.recipe], ids=lambda m: m.__name__
)
def test_the_verbosity_of_transformers_is_ours(module) -> None:
    transformers_logging.set_verbosity_error()
    assert not module.logger.isEnabledFor(logging.WARNING)
    transformers_logging.set_verbosity_info()
    assert module.logger.isEnabledFor(logging.INFO)
