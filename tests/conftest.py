"""What all tests share: small models, and the data that lies beside the project."""

import gc
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
import torch
from transformers.utils import logging

from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from tests.factories import SENTENCES, TINY, random_model

# Models this small are slower on several threads, and tests run side by side.
torch.set_num_threads(int(os.environ.get("ELMO_TEST_THREADS", "1")))

logging.enable_propagation()  # caplog of pytest before 9 sees nothing else


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are no part of a test's id: those of a gzip file hold the second in which they were made, and processes
    that collect in different seconds would not find each other's tests."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if PEERS.intersection(item.fixturenames):
            item.add_marker("peer")


def pytest_collection_finish() -> None:
    """Freezes all imported objects: otherwise the garbage collection of each training walks through them for 0.4 s."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Tests do not wait until files reach the disk (a checkpoint 25 times): only a loss of power could show that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # fstat also refuses a file that is not open
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


def peer_python(variable: str, peer: str) -> str:
    """The Python of an environment with a peer, from an environment variable."""
    if python := os.environ.get(variable):
        return python
    missing(f"{variable} names no Python with {peer}", "ELMO_REQUIRE_PEERS")


@pytest.fixture(scope="session")
def allennlp_python() -> str:
    return peer_python("ELMO_ALLENNLP_PYTHON", "AllenNLP 2.10.1")


@pytest.fixture(scope="session")
def manylangs_python() -> str:
    return peer_python("ELMO_MANYLANGS_PYTHON", "elmoformanylangs 0.0.4.post2")


@pytest.fixture(scope="session")
def simple_elmo_python() -> str:
    return peer_python("ELMO_SIMPLE_ELMO_PYTHON", "simple_elmo 0.9.2")


def peer_module(name: str) -> ModuleType:
    """A peer in the environment of the tests."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        missing(f"{name} is not installed", "ELMO_REQUIRE_PEERS")


@pytest.fixture(scope="session")
def tensorflow() -> ModuleType:
    return peer_module("tensorflow")


@pytest.fixture(scope="session")
def spacy() -> ModuleType:
    return peer_module("spacy")


@pytest.fixture(autouse=True)
def verbosity() -> Iterator[None]:
    """Restores the level of transformers' logging after each test: scripts, and tests of messages, set it."""
    before = logging.get_verbosity()
    yield
    logging.set_verbosity(before)


@pytest.fixture
def config() -> ElmoConfig:
    return ElmoConfig(**TINY)


@pytest.fixture
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer(word_splitting="whitespace")


@pytest.fixture
def inputs(tokenizer: ElmoTokenizer) -> dict[str, torch.Tensor]:
    """Four sentences, padded on the right."""
    return dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))


@pytest.fixture
def model(config: ElmoConfig) -> ElmoModel:
    return random_model(config)


@pytest.fixture
def threads():
    """A function that sets the number of threads until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
