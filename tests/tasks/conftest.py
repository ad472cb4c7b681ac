"""Settings of short, deterministic trainings."""

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import TrainingArguments


@pytest.fixture
def arguments(tmp_path: Path) -> Callable[..., TrainingArguments]:
    """A function that makes `TrainingArguments`, for SGD with a constant rate where nothing else is given."""

    def make(**settings: object) -> TrainingArguments:
        defaults = {
            "optim": "sgd",
            "max_grad_norm": 0.0,
            "lr_scheduler_type": "constant",
            "save_strategy": "no",
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
        }
        return TrainingArguments(tmp_path / "runs", **defaults | settings)

    return make
