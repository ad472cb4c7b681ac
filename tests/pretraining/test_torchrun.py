"""A run of several gloo processes, of which one is killed: it ends in all, and is resumed exactly."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from hf_elmo.pretraining.recipe import pretrain
from hf_elmo.pretraining.trainer import last_whole_checkpoint
from tests.factories import TINY
from tests.pretraining.conftest import GENERAL, SMALL
from tests.pretraining.gloo import ENVIRONMENT, launch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo"),
]

# The general text, and some of its lines with longer words.
UNEVEN = [*GENERAL, *(line.replace("a", "aaaaaaaaaaaa") for line in GENERAL[:12])]

# The command; the second process is killed in the middle of step KILLED_AT.
KILLED = """
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

TORCHRUN = ["torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
# Its --cpu would start one process, whatever --num_processes says.
ACCELERATE = ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0"]


def test_a_run_killed_in_one_process_ends_in_all_and_resumes_exactly(tmp_path):
    """Half an epoch in two processes, whose parts have unequal words, with a checkpoint after each second step."""
    (tmp_path / "text.txt").write_text("\n".join(UNEVEN) + "\n", encoding="utf-8")
    command = ["pretrain", str(tmp_path / "text.txt"), "--pretokenized", "--batch-size=3", "--window=5", "--epochs=0.5"]
    command += ["--seed=8", "--set=use_cpu=true", "--set=save_steps=2"]
    command += [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]

    def run(launcher: list[str], *options: str, **variables: str) -> subprocess.CompletedProcess:
        arguments = [sys.executable, "-m", *launcher, str(tmp_path / "worker.py"), *command, *options]
        arguments.insert(arguments.index("pretrain") + 1, str(tmp_path / "killed"))
        return subprocess.run(arguments, env=ENVIRONMENT | variables, capture_output=True, text=True, timeout=400)

    launch(tmp_path, KILLED, 2, [command[0], str(tmp_path / "whole"), *command[1:]])
    assert run(TORCHRUN, KILLED_AT="5").returncode != 0
    assert last_whole_checkpoint(tmp_path / "killed").name == "checkpoint-4"
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    resumed = run(ACCELERATE, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    expected, actual = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert expected.keys() == actual.keys()
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name
    with pytest.raises(ValueError, match="processes"):
        pretrain(tmp_path / "killed", tmp_path / "text.txt", resume=True, num_train_epochs=0.5, seed=8, **SMALL)
