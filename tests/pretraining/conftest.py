"""Texts, and models trained on them once for all tests."""

import shutil
from pathlib import Path

import pytest

from hf_elmo.pretraining.recipe import Pretrained, pretrain
from tests.factories import TINY

GENERAL = ["the cat sat on the mat", "a dog saw the cat", "rain fell all day", "the dog sat on a mat all day"] * 12
DOMAIN = ["the assay was run on a mat", "the assay fell", "a second assay was run all day"] * 14
SMALL = {"config": TINY, "batch_size": 3, "window": 5, "pretokenized": True, "use_cpu": True, "disable_tqdm": True}
ADAPTED = {**SMALL, "config": None}
STEPS = {"max_steps": 5, "save_steps": 2, "seed": 8}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, files = tmp_path_factory.mktemp("texts"), {}
    for name, lines in (("general", GENERAL), ("held_out", GENERAL[:4]), ("domain", DOMAIN)):
        files[name] = folder / f"{name}.txt"
        files[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


@pytest.fixture(scope="session")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The general text in two Parquet files, its column called `body`; a pattern for both."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("parquet")
    for number, lines in enumerate((GENERAL[:20], GENERAL[20:])):
        datasets.Dataset.from_dict({"body": lines}).to_parquet(folder / f"texts-{number}.parquet")
    return f"{folder}/texts-*.parquet"


@pytest.fixture(scope="session")
def trained(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Pretrained:
    """A language model trained on the general text for a while, with held-out text."""
    how = {"max_steps": 30, "optim": "adamw_torch", "learning_rate": 0.02, "loss_scale": 1.0, "save_steps": 20}
    return pretrain(tmp_path_factory.mktemp("trained") / "out", files["general"], files["held_out"], **SMALL, **how)


@pytest.fixture(scope="session")
def general(trained: Pretrained) -> Path:
    """The folder of the trained model."""
    return trained.folder


@pytest.fixture(scope="session")
def five_steps(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of five steps, with checkpoints after 2, 4 and 5."""
    return pretrain(tmp_path_factory.mktemp("five") / "out", files["general"], **SMALL, **STEPS).folder


@pytest.fixture
def run(five_steps: Path, tmp_path: Path) -> Path:
    """A copy of that run, to change."""
    return shutil.copytree(five_steps, tmp_path / "run")
