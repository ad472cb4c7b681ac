"""Unpacking transformers' tests, and tests that must fail."""

import io
import tarfile
import unittest
from pathlib import Path

import pytest

from . import source
from .inapplicable import must_fail


def test_only_the_tests_are_unpacked_and_only_once(tmp_path: Path) -> None:
    names = ("tests/test_modeling_common.py", "tests/test_other.py", "tests/deeper/test_not.py", "setup.py")
    with tarfile.open(tmp_path / "sdist.tar.gz", "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(f"transformers-9/{name}")
            member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    folder = tmp_path / "cache" / "tests"
    source.fetch(folder, tmp_path / "sdist.tar.gz")
    found = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert found == {"test_modeling_common.py", "test_other.py", *source.FILES}
    assert (folder / "test_other.py").read_text() == "tests/test_other.py"
    source.fetch(folder, tmp_path / "is not read.tar.gz")


def outcome(test: str) -> BaseException | None:
    @must_fail({test: ("three", "a reason")})
    class Case(unittest.TestCase):
        def test_as_said(self) -> None:
            with self.subTest("within"):
                raise ValueError("not three")

        def test_otherwise(self) -> None:
            raise ValueError("not four")

        def test_not_at_all(self) -> None:
            pass

    try:
        getattr(Case(test), test)()
    except BaseException as error:  # pytest's outcomes are no Exceptions
        return error
    return None


def test_what_must_fail_fails_as_said_or_is_a_failure() -> None:
    assert isinstance(outcome("test_as_said"), pytest.xfail.Exception)
    assert isinstance(outcome("test_otherwise"), AssertionError)
    assert isinstance(outcome("test_not_at_all"), pytest.fail.Exception)
    with pytest.raises(AttributeError, match="test_renamed"):
        outcome("test_renamed")
