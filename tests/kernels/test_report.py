"""`hf-elmo env`: what a bug report should hold."""

from importlib.metadata import version
from pathlib import Path

import pytest

import hf_elmo
from hf_elmo.kernels import report
from hf_elmo_cli import main


def test_the_environment_names_versions_the_place_and_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ELMO_KERNELS", "off")
    assert main(["env"]) == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.split("\n\n")[0].splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    for library in ("hf-elmo", "torch", "transformers", "tokenizers", "numpy"):
        assert f"{library} {version(library)}" in rows["libraries"].split(", ")
    assert rows["hf_elmo is in"] == str(Path(hf_elmo.__file__).parent)
    assert rows["Python"].startswith("3.")
    assert (rows["HF_HUB_OFFLINE"], rows["HF_ELMO_KERNELS"]) == ("1", "off")


def test_of_libraries_of_extras_only_the_installed_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "EXTRAS", ("no-such-library", "pytest"))
    assert f"of extras                  pytest {version('pytest')}\n" in report.describe_environment()
    monkeypatch.setattr(report, "EXTRAS", ("no-such-library",))
    assert "of extras                  none\n" in report.describe_environment()
