"""The versions in constraints.txt are ones that pyproject.toml allows."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def test_every_pinned_version_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = project["dependencies"], *project["optional-dependencies"].values()
    wanted = [Requirement(text) for group in groups for text in group if not text.startswith("hf-elmo")]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {pin.name: pin for pin in (Requirement(line) for line in lines if line and not line.startswith("#"))}
    for requirement in wanted:
        if requirement.name != "tensorflow-cpu":  # installed by nothing here
            (specifier,) = pinned[requirement.name].specifier
            assert specifier.version in requirement.specifier, requirement.name
