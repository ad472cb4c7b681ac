"""What all tests share: small models, and the data beside the project. Fixtures import torch and transformers,
as the controller of pytest-xdist, which runs no test, reads this file, too."""

import gc
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

gc.disable()  # until the tests are collected: a fifth of the time that imports take


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if PEERS.intersection(item.fixturenames):
            item.add_marker("peer")


@pytest.fixture(autouse=True, scope="session")
def settings_of_all_tests() -> Iterator[None]:
    """Tests do not wait until files reach the disk (a checkpoint 25 times): only a loss of power could show that.
    Trainings do not collect garbage, which takes 0.2 s each time."""
    import torch
    from accelerate.utils import memory

    # Models this small are slower on several threads, and tests run side by side.
    torch.set_num_threads(int(os.environ.get("ELMO_TEST_THREADS", "1")))
    gc.freeze()
    gc.enable()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # fstat also refuses a file that is not open
        patch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))
        yield


def missing(message: str, variable: str) -> NoReturn:
    """Skips a test whose data or peer is missing; if the variable says that it must be there, the test fails."""
    if os.environ.get(variable) == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the project; `missing` skips or fails the test if there is none."""
    root = Path(__file__).parent.parent
    folder = Path(os.environ.get("ELMO_SHARED", root / ".." / "shared")).resolve()
    if (folder / "data").is_dir():
        return folder
    missing(f"no data in {folder}: set ELMO_SHARED to the folder that holds it", "ELMO_REQUIRE_SHARED")


# Fixtures of other implementations, and of other large libraries, with which tests compare: .ci/peers has them all.
PEERS = {"allennlp_python", "manylangs_python", "simple_elmo_python", "spacy", "tensorflow"}


def peer(name: str, find: Callable[[str], Any]) -> Callable[[], Any]:
    """A fixture: what `find` finds by this name."""

    @pytest.fixture(scope="session")
    def found() -> Any:
        return find(name) or missing(f"{name} is not set or not installed", "ELMO_REQUIRE_PEERS")

    return found


# The Python of an environment with AllenNLP 2.10.1, elmoformanylangs 0.0.4.post2 or simple_elmo 0.9.2; and modules.
names = ("ALLENNLP", "MANYLANGS", "SIMPLE_ELMO")
allennlp_python, manylangs_python, simple_elmo_python = (peer(f"ELMO_{it}_PYTHON", os.environ.get) for it in names)
tensorflow, spacy = (peer(name, lambda it: find_spec(it) and import_module(it)) for name in ("tensorflow", "spacy"))


@pytest.fixture(autouse=True)
def settings_after_each_test() -> Iterator[None]:
    """Restores the level of transformers' logging, bars of progress, and the number of threads."""
    import torch
    from transformers.utils import logging

    level, threads = logging.get_verbosity(), torch.get_num_threads()
    yield
    logging.set_verbosity(level)
    logging.enable_progress_bar()
    torch.set_num_threads(threads)


@pytest.fixture
def tokenizer():
    return import_module("tests.factories").whitespace_tokenizer()


@pytest.fixture
def inputs(tokenizer) -> dict:
    """Four sentences, padded on the right."""
    return dict(tokenizer(import_module("tests.factories").SENTENCES, padding=True, return_tensors="pt"))


@pytest.fixture
def model():
    return import_module("tests.factories").small_model()


@pytest.fixture
def folder(tmp_path) -> Path:
    """A saved small model, with a tokenizer that splits at whitespace."""
    return import_module("tests.factories").small_checkpoint(tmp_path / "elmo")


@pytest.fixture
def source(tmp_path) -> tuple[Path, Path]:
    """A small model in AllenNLP's format: its options and its weights."""
    return import_module("tests.source_files").write_files(tmp_path / "source")
