"""Several gloo processes: each reads its part of the text, gradients are averaged, and a killed run resumes exactly."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.pretraining.perplexity import perplexity
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
    """Six steps in two processes, with a checkpoint after each second one."""
    (tmp_path / "text.txt").write_text("\n".join(UNEVEN) + "\n", encoding="utf-8")
    command = ["pretrain", str(tmp_path / "text.txt"), "--pretokenized", "--batch-size=3", "--window=5", "--steps=6"]
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
        pretrain(tmp_path / "killed", tmp_path / "text.txt", resume=True, max_steps=6, seed=8, **SMALL)


# Of three processes: what each reads in a training of three passes, and the error where their texts differ.
WORKER = """
import os, sys, torch
from pathlib import Path
from hf_elmo.pretraining.data import PackedWindows
from hf_elmo.pretraining.recipe import pretrain
from tests.pretraining.conftest import SMALL

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
one_pass, next_batch, read, batches = PackedWindows._pass, PackedWindows._next_batch, [], []

def recorded(self, epoch, start):
    for text in one_pass(self, epoch, start):
        read.append((epoch, " ".join(text[0])))
        yield text

def counted(self):
    batches.append(1)
    return next_batch(self)

PackedWindows._pass, PackedWindows._next_batch = recorded, counted
settings = {**SMALL, "vocabulary": folder / "vocab.txt", "seed": 8, "save_strategy": "no"}
result = pretrain(folder / "out", folder / "text-*.txt", folder / "held_out.txt", num_train_epochs=3, **settings)
found = {"read": read, "batches": len(batches), "after": vars(result.after)}
try:
    pretrain(folder / "other", folder / f"text-{rank}.txt", max_steps=1, **settings)
except ValueError as error:
    found["error"] = str(error)
torch.save(found, folder / f"{rank}.pt")
"""


LINES = [f"{number} {line}" for number, line in enumerate(UNEVEN)]


def test_each_sentence_is_read_by_one_process_once_a_pass(tmp_path):
    folder = tmp_path
    for number, part in enumerate((LINES[:3], LINES[3:50], LINES[50:])):
        (folder / f"text-{number}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")
    (folder / "held_out.txt").write_text("\n".join(GENERAL[:7]), encoding="utf-8")
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\na\ncat\n")
    launch(folder, WORKER, 3, [str(folder)])
    found = [torch.load(folder / f"{rank}.pt") for rank in range(3)]
    assert sorted(text for one in found for epoch, text in one["read"] if epoch == 0) == sorted(LINES)
    # All make equally many steps; a part that has ended starts over.
    words = sum(len(line.split()) + 1 for line in LINES)
    assert [one["batches"] for one in found] == [words // (3 * 5 * 3) * 3] * 3
    for one in found:
        part = sorted(text for epoch, text in one["read"] if epoch == 0)
        for epoch in range(1, one["read"][-1][0]):
            assert sorted(text for number, text in one["read"] if number == epoch) == part
    # The held-out sentences are shared out, too, and all know the perplexity of all.
    model, tokenizer = (kind.from_pretrained(folder / "out") for kind in (ElmoForPreTraining, ElmoTokenizer))
    expected = perplexity(model, folder / "held_out.txt", tokenizer=tokenizer, pretokenized=True)
    assert found[0]["after"] == found[-1]["after"]
    assert (found[0]["after"]["words"], found[0]["after"]["sentences"]) == (expected.words, 7)
    assert found[0]["after"]["mean"] == pytest.approx(expected.mean, rel=1e-5)
    assert all("texts" in one["error"] for one in found)
