"""Tests of the kernels run whatever the environment says: what HF_ELMO_KERNELS chooses, they choose themselves."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_choice_of_the_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:  # of its own: a test may undo the monkeypatch that it asked for
        patch.delenv("HF_ELMO_KERNELS", raising=False)
        yield
