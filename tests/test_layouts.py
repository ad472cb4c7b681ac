"""Checkpoints of each version, past and present: they load in this one, with the same numbers; and what is written
says which version's code it carries."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import hf_elmo
from hf_elmo import ElmoTokenizer

from . import layouts

ROOT = Path(__file__).parent.parent
VERSIONS = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in layouts.FOLDER.glob("*.json")}
STORED = [(version, name) for version, found in VERSIONS.items() for name in found]


@pytest.mark.parametrize(("version", "name"), STORED, ids=lambda value: value)
def test_a_checkpoint_of_a_version_loads_and_gives_its_numbers(version: str, name: str, tmp_path: Path) -> None:
    layout = VERSIONS[version][name]
    written = layouts.write(layout, tmp_path / "checkpoint")
    config = layout["texts"]["config.json"]
    model = getattr(hf_elmo, config["architectures"][0]).from_pretrained(tmp_path / "checkpoint")
    state = model.state_dict()
    assert written.keys() <= state.keys()
    for key, tensor in written.items():
        assert torch.equal(state[key], tensor), key
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "checkpoint")
    assert tokenizer.word_splitting == layout["texts"]["tokenizer_config.json"]["word_splitting"]
    np.testing.assert_allclose(layouts.output(tmp_path / "checkpoint"), layout["output"], atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", layouts.cases())
def test_this_version_writes_its_layout(name: str, tmp_path: Path) -> None:
    """`python -m tests.layouts` writes it again until the version is released. Fields may be added, not removed."""
    layouts.save(name, tmp_path / "saved")
    found, stored = layouts.layout_of(tmp_path / "saved"), VERSIONS[hf_elmo.__version__][name]
    for part in ("code", "tensors"):
        assert found[part] == stored[part], part
    assert found["texts"].keys() == stored["texts"].keys()
    for file, text in stored["texts"].items():
        if isinstance(text, dict):
            assert text.keys() <= found["texts"][file].keys(), file
