"""Checkpoints of each version, past and present: they load in this one, with the same numbers; and what is written
says which version's code it carries."""

import json
import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import hf_elmo
from hf_elmo import ElmoTokenizer, remote_code
from hf_elmo.shipped import load_checkpoint

from . import layouts

ROOT = Path(__file__).parent.parent
VERSIONS = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in layouts.FOLDER.glob("*.json")}
STORED = [(version, name) for version, found in VERSIONS.items() for name in found]


def test_the_layouts_of_every_version_are_kept() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+\S*)", changelog, flags=re.MULTILINE)
    assert hf_elmo.__version__ in versions
    assert VERSIONS.keys() == set(versions)
    assert all(found.keys() >= {"biLM", "language models"} for found in VERSIONS.values())


@pytest.mark.parametrize(("version", "name"), STORED, ids=lambda value: value)
def test_a_checkpoint_of_a_version_loads_and_gives_its_numbers(
    version: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = VERSIONS[version][name]
    written = layouts.write(layout, tmp_path / "checkpoint")
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    config = layout["texts"]["config.json"]
    model = load_checkpoint(getattr(hf_elmo, config["architectures"][0]), tmp_path / "checkpoint")
    state = model.state_dict()
    assert written.keys() <= state.keys()
    for key, tensor in written.items():
        assert torch.equal(state[key], tensor), key
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "checkpoint")
    assert tokenizer.word_splitting == layout["texts"]["tokenizer_config.json"]["word_splitting"]
    np.testing.assert_allclose(layouts.output(tmp_path / "checkpoint"), layout["output"], atol=2e-6, rtol=0)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line for line in said if "letters of a script" not in line] == []  # the text is read by each of them


@pytest.mark.parametrize("name", layouts.cases())
def test_this_version_writes_its_layout(name: str, tmp_path: Path) -> None:
    """`python -m tests.layouts` describes it anew, as long as it is not released. Fields may be added, none may go."""
    layouts.save(name, tmp_path / "saved")
    found, stored = layouts.layout_of(tmp_path / "saved"), VERSIONS[hf_elmo.__version__][name]
    for part in ("code", "tensors"):
        assert found[part] == stored[part], part
    assert found["texts"].keys() == stored["texts"].keys()
    for file, text in stored["texts"].items():
        if isinstance(text, dict):
            assert text.keys() <= found["texts"][file].keys(), file


@pytest.mark.parametrize("name", layouts.cases())
def test_the_code_is_of_the_version_that_the_configuration_names(name: str, tmp_path: Path) -> None:
    layouts.save(name, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["hf_elmo_version"] == hf_elmo.__version__
    package = Path(hf_elmo.__file__).parent
    code = sorted(file.name for file in tmp_path.glob("*.py"))
    class_name = layouts.cases()[name][0].__name__
    assert code == sorted({*remote_code.FILES[class_name], *remote_code.FILES["ElmoTokenizer"]})
    for file in code:
        assert (tmp_path / file).read_bytes() == (package / file).read_bytes()
