"""Tests of the kernels choose backends themselves, whatever HF_ELMO_KERNELS says."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_choice_of_the_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:  # separate from the test's monkeypatch, which it may undo
        patch.delenv("HF_ELMO_KERNELS", raising=False)
        yield
