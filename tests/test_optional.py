"""Libraries that may be missing."""

import json.decoder
import sys

import pytest

from hf_elmo.optional import import_optional


def test_the_package_is_returned_with_its_module_loaded() -> None:
    assert import_optional("json.decoder", "reading JSON", "json") is json


@pytest.mark.parametrize("missing", ["json", "json.decoder"])
def test_a_missing_one_is_named_with_its_purpose_and_remedy(missing: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"^reading JSON needs json, which is not installed: pip install 'a\[b\]'$"):
        import_optional("json.decoder", "reading JSON", "'a[b]'")
