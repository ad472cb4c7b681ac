"""Several processes: each reads its part of the text; one is killed, so all end with an error, and the run resumes
exactly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.locks import locked
from hf_elmo.pretraining.checkpoints import last_whole_checkpoint
from hf_elmo.pretraining.perplexity import perplexity
from hf_elmo.pretraining.recipe import LOCK, pretrain
from tests.conftest import TINY
from tests.pretraining.gloo import launch
from tests.pretraining.test_recipe import GENERAL, SMALL

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo")

# Words of the second half are long: a part of as many bytes has a third as many of them, and is read again sooner.
UNEVEN = [*GENERAL, *(line.replace("a", "aaaaaaaaaaaa") for line in GENERAL[:12])]

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


TORCHRUN = ["torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
# Its --cpu would start one process, whatever --num_processes says.
ACCELERATE = ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0"]


def train(
    folder: Path, out: str, *options: str, launcher: list[str] = TORCHRUN, killed_at: int | None = None
) -> subprocess.CompletedProcess:
    """A training of six steps in two gloo processes, with a checkpoint after each second one."""
    config = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]
    command = [sys.executable, "-m", *launcher, str(folder / "worker.py")]
    command += ["pretrain", str(folder / out), str(folder / "text.txt"), "--pretokenized", "--batch-size=3"]
    command += ["--window=5", "--steps=6", "--seed=8", "--set=use_cpu=true", "--set=save_steps=2", *config, *options]
    # With these, MKL's sums are the same wherever the numbers lie in memory.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_CBWR": "COMPATIBLE", "TOKENIZERS_PARALLELISM": "false"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    environment |= {} if killed_at is None else {"KILLED_AT": str(killed_at)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)


def test_a_run_killed_in_one_process_ends_in_all_and_resumes_exactly(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "text.txt").write_text("\n".join(UNEVEN) + "\n", encoding="utf-8")
    whole = train(tmp_path, "whole")
    assert whole.returncode == 0, whole.stderr
    killed = train(tmp_path, "killed", killed_at=5)
    assert killed.returncode != 0
    assert "Signal 9 (SIGKILL)" in killed.stderr
    assert last_whole_checkpoint(tmp_path / "killed").name == "checkpoint-4"
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    resumed = train(tmp_path, "killed", "--resume", launcher=ACCELERATE)
    assert resumed.returncode == 0, resumed.stderr
    expected, found = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    with pytest.raises(ValueError, match="was written by 2 processes, but this run has 1: resume with as many"):
        pretrain(tmp_path / "killed", tmp_path / "text.txt", resume=True, max_steps=6, seed=8, **SMALL)


# What each process reads in a training of three passes; then the last checkpoint becomes one of an earlier version.
READER = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from torch import distributed
from hf_elmo.pretraining.checkpoints import last_whole_checkpoint
from hf_elmo.pretraining.data import PackedWindows
from hf_elmo.pretraining.recipe import pretrain
from tests.pretraining.test_recipe import SMALL

folder, rank = Path(sys.argv[1]), os.environ["RANK"]
own_pass, next_batch, read, batches = PackedWindows._pass, PackedWindows._next_batch, [], []

def recorded(self, epoch, start):
    for text in own_pass(self, epoch, start):
        read.append((epoch, " ".join(text[0])))
        yield text

def counted(self):
    batches.append(1)
    return next_batch(self)

PackedWindows._pass, PackedWindows._next_batch = recorded, counted
how = {**SMALL, "vocabulary": folder / "vocab.txt", "seed": 8, "save_strategy": "epoch"}
text = folder / "text-*.txt"
result = pretrain(folder / "out", text, folder / "held_out.txt", num_train_epochs=3, **how)
found = {"read": read, "batches": len(batches), "after": asdict(result.after)}

distributed.barrier()
if rank == "0":
    file = last_whole_checkpoint(folder / "out") / "elmo_data.json"
    record = json.loads(file.read_text())
    for name in ("other_positions", "rank", "world_size", "own_sha256"):
        del record[name]
    file.write_text(json.dumps(record))
distributed.barrier()
try:
    pretrain(folder / "out", text, num_train_epochs=4, resume=True, **how)
except ValueError as error:
    found["error"] = str(error)
(folder / f"{rank}.json").write_text(json.dumps(found))
"""


# Each process is to be refused.
REFUSED = """
import os, sys
from pathlib import Path
from hf_elmo.pretraining.recipe import pretrain
from tests.pretraining.test_recipe import SMALL

folder = Path(sys.argv[1])
try:
    pretrain(folder / "out", folder / "text.txt", max_steps=2, **SMALL)
except BlockingIOError as error:
    (folder / os.environ["RANK"]).write_text(str(error))
"""


def test_an_output_that_another_run_has_is_refused_in_all_processes(tmp_path):
    pytest.importorskip("fcntl")
    out = tmp_path / "out"
    (tmp_path / "text.txt").write_text("\n".join(GENERAL), encoding="utf-8")
    with locked(out / LOCK, str(out), out.mkdir):
        launch(tmp_path, REFUSED, 2, [str(tmp_path)])
    for rank in range(2):
        assert f"out' is being written by process {os.getpid()} on " in (tmp_path / str(rank)).read_text()
    assert [path.name for path in out.iterdir()] == [LOCK]


@pytest.mark.parametrize("processes", [2, 3])
def test_each_sentence_is_read_by_one_process_once_a_pass(tmp_path, processes):
    lines = [f"{number} {line}" for number, line in enumerate(UNEVEN)]
    for number, part in enumerate((lines[:3], lines[3:50], lines[50:])):
        (tmp_path / f"text-{number}.txt").write_text("\n".join(part), encoding="utf-8")
    (tmp_path / "held_out.txt").write_text("\n".join(GENERAL[:7]), encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\na\ncat\n")
    launch(tmp_path, READER, processes, [str(tmp_path)])
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(processes)]
    assert sorted(text for one in found for epoch, text in one["read"] if epoch == 0) == sorted(lines)
    # All make equally many steps, in which the part with the fewest words is read more often than the others.
    words = sum(len(line.split()) + 1 for line in lines)
    assert [one["batches"] for one in found] == [words // (3 * 5 * processes) * 3] * processes
    passes = [one["read"][-1][0] for one in found]
    assert passes[-1] > 3 > passes[0]
    for one in found:
        own = {text for epoch, text in one["read"] if epoch == 0}
        for epoch in range(1, one["read"][-1][0]):
            assert sorted(text for number, text in one["read"] if number == epoch) == sorted(own)
    # The held-out sentences are shared out, too, and all know the perplexity of all.
    folder = tmp_path / "out"
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    expected = perplexity(model, tokenizer, tmp_path / "held_out.txt", pretokenized=True)
    assert found[0]["after"] == found[-1]["after"]
    assert (found[0]["after"]["words"], found[0]["after"]["sentences"]) == (expected.words, 7)
    assert found[0]["after"]["mean"] == pytest.approx(expected.mean, rel=1e-5)
    for one in found:
        assert "was written by an earlier version, whose processes each read all of the text" in one["error"]
