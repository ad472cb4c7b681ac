"""The versions that pyproject.toml, constraints.txt and the README name agree; .ci/bounds.py finds the lowest."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
CONSTRAINTS = {one.name: one for one in (Requirement(line) for line in LINES if line and not line.startswith("#"))}
REQUIREMENTS = sorted(
    {
        requirement
        for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
        for requirement in group
        if not requirement.startswith(f"{PROJECT['name']}[")
    }
)


def bounds_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bounds", ROOT / ".ci" / "bounds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BOUNDS = bounds_script()


@pytest.mark.parametrize("requirement", [r for r in REQUIREMENTS if "tensorflow" not in r])
def test_what_is_pinned_is_within_its_bounds(requirement: str) -> None:
    wanted = Requirement(requirement)
    assert wanted.name in CONSTRAINTS, "constraints.txt has no version of it"
    for specifier in CONSTRAINTS[wanted.name].specifier:
        if specifier.operator == "==":
            assert specifier.version in wanted.specifier
        else:  # the newest that is allowed lies above the lowest that is
            assert specifier.operator == "<"
            assert all(Version(bound.version) < Version(specifier.version) for bound in wanted.specifier)


def test_every_requirement_has_a_lowest_version() -> None:
    assert len(REQUIREMENTS) > 20
    for requirement in REQUIREMENTS:
        assert [one.operator for one in Requirement(requirement).specifier] in (["=="], [">="]), requirement


def test_a_library_has_one_lowest_version_in_all_extras() -> None:
    lowest: dict[str, set[str]] = {}
    for requirement in map(Requirement, [*REQUIREMENTS, *PYPROJECT["build-system"]["requires"]]):
        lowest.setdefault(requirement.name, set()).add(str(requirement.specifier))
    assert {name: found for name, found in lowest.items() if len(found) > 1} == {}


def test_the_pythons_are_the_same_wherever_they_are_named() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ((lowest, newest),) = re.findall(r"Python 3\.(\d+) to 3\.(\d+)", readme)
    assert PROJECT["requires-python"] == f">=3.{lowest}"
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py3{lowest}"
    classified = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if ":: Python :: 3." in one]
    assert classified == [f"3.{minor}" for minor in range(int(lowest), int(newest) + 1)]


# -- .ci/bounds.py -----------------------------------------------------------------------------------------------------

MADE = {
    "name": "made",
    "dependencies": ["alpha>=1.9", "beta==2.0"],
    "optional-dependencies": {
        "one": ["alpha>=1.10", "gamma[part]>=3; python_version < '4'", "delta"],
        "other": ["epsilon>=0.5.1"],
        "test": ["made[one,other]", "zeta>=7"],
    },
}


def test_requirements_of_extras_that_name_extras() -> None:
    assert BOUNDS.requirements(MADE, []) == ["alpha>=1.9", "beta==2.0"]
    everything = [*MADE["dependencies"], *MADE["optional-dependencies"]["one"], "epsilon>=0.5.1", "zeta>=7"]
    assert BOUNDS.requirements(MADE, ["test"]) == sorted(everything)
    assert BOUNDS.requirements(MADE, ["other", "test"]) == sorted(everything)  # each once


def test_the_lowest_versions_are_the_highest_of_several_bounds() -> None:
    found = BOUNDS.constraints(BOUNDS.requirements(MADE, ["test"]), "lowest", [])
    versions = {Requirement(line).name: Requirement(line) for line in found}
    assert len(versions) == len(found)
    assert str(versions["alpha"].specifier) == "==1.10"  # which is more than 1.9
    assert not any(one.extras for one in versions.values())  # pip takes none in a constraint
    assert {name: str(one.specifier) for name, one in versions.items() if name != "alpha"} == {
        "gamma": "==3",
        "epsilon": "==0.5.1",
        "zeta": "==7",
    }


def test_a_pin_goes_before_a_bound() -> None:
    found = BOUNDS.constraints(BOUNDS.requirements(MADE, ["other"]), "lowest", ["alpha==1.12", "eta<3"])
    assert sorted(found) == ["alpha==1.12", "epsilon==0.5.1", "eta<3"]


def test_the_newest_versions_are_bound_by_pins_alone() -> None:
    assert BOUNDS.constraints(BOUNDS.requirements(MADE, ["test"]), "newest", ["alpha==1.12"]) == ["alpha==1.12"]
    assert BOUNDS.constraints(BOUNDS.requirements(MADE, ["test"]), "newest", []) == []


def test_the_lowest_versions_of_this_project_are_its_bounds() -> None:
    found = BOUNDS.constraints(BOUNDS.requirements(PROJECT, list(PROJECT["optional-dependencies"])), "lowest", [])
    bounds = {Requirement(one).name: str(Requirement(one).specifier) for one in REQUIREMENTS if ">=" in one}
    assert {Requirement(one).name: str(Requirement(one).specifier).replace("==", ">=") for one in found} == bounds


def test_the_quick_tests_are_there() -> None:
    assert len(BOUNDS.QUICK) > 10
    assert [file for file in BOUNDS.QUICK if not (ROOT / file).is_file()] == []
