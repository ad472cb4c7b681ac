"""Two processes that torchrun starts: one is killed, so all end with an error, and the run resumes exactly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_elmo.pretraining.checkpoints import last_whole_checkpoint
from tests.conftest import TINY
from tests.pretraining.test_recipe import GENERAL

# The command; where KILLED_AT says so, the second process is killed in the middle of that step.
WORKER = """
import os, signal, sys
from hf_elmo.pretraining.trainer import ElmoPreTrainer
from hf_elmo_cli import main

compute_loss = ElmoPreTrainer.compute_loss

def killed(self, *args, **kwargs):
    if (os.environ["RANK"], str(self.state.global_step + 1)) == ("1", os.environ.get("KILLED_AT")):
        os.kill(os.getpid(), signal.SIGKILL)
    return compute_loss(self, *args, **kwargs)

ElmoPreTrainer.compute_loss = killed
sys.exit(main(sys.argv[1:]))
"""


def torchrun(folder: Path, out: str, *options: str, killed_at: int | None = None) -> subprocess.CompletedProcess:
    """A training of six steps in two gloo processes, with a checkpoint after each second one."""
    config = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", str(folder / "worker.py")]
    command += ["pretrain", str(folder / out), str(folder / "text.txt"), "--pretokenized", "--batch-size=3"]
    command += ["--window=5", "--steps=6", "--seed=8", "--set=use_cpu=true", "--set=save_steps=2", *config, *options]
    # With these, MKL's sums are the same wherever the numbers lie in memory.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_CBWR": "COMPATIBLE", "TOKENIZERS_PARALLELISM": "false"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    environment |= {} if killed_at is None else {"KILLED_AT": str(killed_at)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo")
def test_a_run_killed_in_one_process_ends_in_all_and_resumes_exactly(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "text.txt").write_text("\n".join(GENERAL) + "\n", encoding="utf-8")
    whole = torchrun(tmp_path, "whole")
    assert whole.returncode == 0, whole.stderr
    killed = torchrun(tmp_path, "killed", killed_at=5)
    assert killed.returncode != 0
    assert "Signal 9 (SIGKILL)" in killed.stderr
    assert last_whole_checkpoint(tmp_path / "killed").name == "checkpoint-4"
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    resumed = torchrun(tmp_path, "killed", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    expected, found = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
