"""Texts, and models trained on them once for all tests."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining.recipe import Pretrained, pretrain
from tests.factories import TINY, small_tokenizer, write_lines

GENERAL = ["the cat sat on the mat", "a dog saw the cat", "rain fell all day", "the dog sat on a mat all day"] * 12
DOMAIN = ["the assay was run on a mat", "the assay fell", "a second assay was run all day"] * 14
SMALL = {"config": TINY, "batch_size": 3, "window": 5, "pretokenized": True, "use_cpu": True, "disable_tqdm": True}
ADAPTED = {**SMALL, "config": None}
CONFIG = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]  # the same for a command
STEPS = {"max_steps": 5, "save_steps": 2, "seed": 8}

TORCHRUN = ["torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
# With MKL_CBWR, MKL's sums are the same wherever the numbers lie in memory.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
ENVIRONMENT |= {"MKL_CBWR": "COMPATIBLE", "TOKENIZERS_PARALLELISM": "false"}


def launch(program: Path, arguments: Sequence[str], launcher: Sequence[str] = TORCHRUN, **variables: str) -> str:
    """Runs a program in two processes; returns what they wrote on stderr if they failed, otherwise an empty text."""
    command = [sys.executable, "-m", *launcher, str(program), *arguments]
    result = subprocess.run(command, env=ENVIRONMENT | variables, capture_output=True, text=True, timeout=400)
    return result.stderr if result.returncode else ""


def assert_same_weights(one: Path, other: Path) -> None:
    expected, actual = (load_file(folder / "model.safetensors") for folder in (one, other))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.fixture
def tokenizer(tmp_path) -> ElmoTokenizer:
    return small_tokenizer(tmp_path, word_splitting="whitespace")


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> dict[str, Path]:
    folder, texts = tmp_path_factory.mktemp("texts"), {"general": GENERAL, "held_out": GENERAL[:4], "domain": DOMAIN}
    return {name: write_lines(folder / f"{name}.txt", lines) for name, lines in texts.items()}


@pytest.fixture(scope="session")
def trained(files: dict[str, Path], tmp_path_factory) -> Pretrained:
    """A language model trained on the general text for a while, with held-out text."""
    how = {"max_steps": 30, "optim": "adamw_torch", "learning_rate": 0.02, "loss_scale": 1.0, "save_steps": 20}
    return pretrain(files["general"], tmp_path_factory.mktemp("trained") / "out", files["held_out"], **SMALL, **how)


@pytest.fixture(scope="session")
def five_steps(files: dict[str, Path], tmp_path_factory) -> Path:
    """An uninterrupted run of five steps, with checkpoints after 2, 4 and 5."""
    return pretrain(files["general"], tmp_path_factory.mktemp("five") / "out", **SMALL, **STEPS).folder


@pytest.fixture
def run(five_steps: Path, tmp_path) -> Path:
    """A copy of that run, to change."""
    return shutil.copytree(five_steps, tmp_path / "run")
