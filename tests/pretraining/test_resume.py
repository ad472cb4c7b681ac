"""Resuming: the updates of an uninterrupted run, or a refusal that names what differs."""

import shutil
import signal
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import TrainerState

from hf_elmo.pretraining.recipe import pretrain
from hf_elmo.pretraining.trainer import ElmoPreTrainer, last_whole_checkpoint
from hf_elmo_cli import main
from tests.factories import TINY, contents, write_lines
from tests.kills import run_with_kills
from tests.pretraining.conftest import CONFIG, GENERAL, SMALL, STEPS, assert_same_weights, launch

EPOCHS = {"windows": {"gradient_accumulation_steps": 2, "batch_size": 11, "ema": 0.8}}
EPOCHS["sentences of words"] = {"layout": "sentences", "config": {**TINY, "char_filters": []}}
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
# Its --cpu would start one process, whatever --num_processes says.
ACCELERATE = ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0"]
CHANGES = [("learning_rate", {"learning_rate": 0.1}), ("hidden_dropout", {"config": {**TINY, "hidden_dropout": 0.3}})]
CHANGES += [("layout", {"layout": "sentences"}), ("vocabulary", {"vocabulary": "words.txt"})]
CHANGES += [("text", {"inputs": "other.txt"}), ("held-out text", {"held_out": "other.txt"})]
CHANGES += [("init", {"init": "run", "config": None, "recipe": "new"})]


def resume(folder: Path, inputs: Any, **changes: Any) -> None:
    pretrain(output=folder, **{**SMALL, **STEPS, "inputs": inputs, "resume": True, **changes})


def test_a_run_killed_between_its_last_checkpoint_and_its_end(run, five_steps, files):
    for name in ("model.safetensors", "trainer_state.json"):
        (run / name).unlink()
    before = contents(run / "checkpoint-5")
    resume(run, files["general"])
    assert_same_weights(five_steps, run)
    assert TrainerState.load_from_json(run / "trainer_state.json").global_step == 5
    assert contents(run / "checkpoint-5") == before  # no step was made


def test_an_incomplete_checkpoint_is_passed_over(run, five_steps, files):
    (run / "model.safetensors").unlink()
    state = run / "checkpoint-5" / "trainer_state.json"  # a checkpoint's last file
    state.write_bytes(state.read_bytes()[:-5])
    (run / "checkpoint-4" / "trainer_state.json").unlink()
    assert last_whole_checkpoint(run).name == "checkpoint-2"
    resume(run, files["general"])
    assert_same_weights(five_steps, run)
    assert last_whole_checkpoint(run).name == "checkpoint-5"


def test_without_a_whole_checkpoint_it_starts_over_and_the_log_says_so(five_steps, files, tmp_path, caplog):
    (tmp_path / "out" / "checkpoint-2").mkdir(parents=True)
    resume(tmp_path / "out", files["general"])
    assert_same_weights(five_steps, tmp_path / "out")
    assert "no whole checkpoint" in caplog.text


@pytest.mark.parametrize("how", EPOCHS.values(), ids=EPOCHS)
def test_a_run_of_epochs_stopped_in_its_second_one_makes_the_same_updates(files, tmp_path, how):
    how = SMALL | {"num_train_epochs": 2, "save_steps": 5, "batch_size": 9, "logging_steps": 1} | how
    whole = pretrain(files["general"], tmp_path / "whole", **how).folder
    shutil.copytree(whole / "checkpoint-5", tmp_path / "stopped" / "checkpoint-5")
    stopped = pretrain(files["general"], tmp_path / "stopped", resume=True, **how)
    assert stopped.before is None  # no held-out text
    assert_same_weights(whole, stopped.folder)
    states = [TrainerState.load_from_json(folder / "trainer_state.json") for folder in (whole, stopped.folder)]
    losses = [[entry["loss"] for entry in state.log_history if "loss" in entry] for state in states]
    assert losses[0] == losses[1]
    assert len(losses[0]) == states[0].global_step == states[1].global_step > 5
    assert states[0].epoch == states[1].epoch


def test_a_run_is_continued_for_more_steps_unless_its_learning_rates_depend_on_them(five_steps, files, tmp_path):
    with pytest.raises(ValueError, match="max_steps"):
        resume(shutil.copytree(five_steps, tmp_path / "run"), files["general"], max_steps=6)
    how = {**SMALL, **STEPS, "lr_scheduler_type": "constant"}
    whole = pretrain(files["general"], tmp_path / "whole", **how).folder
    pretrain(files["general"], tmp_path / "out", **{**how, "max_steps": 2})
    pretrain(files["general"], tmp_path / "out", resume=True, **how)
    assert_same_weights(whole, tmp_path / "out")


def test_a_shuffled_stream_is_resumed_exactly(tmp_path, monkeypatch):
    # datasets sleeps a second at the end of each pass over several files
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0.01, raising=False)
    stream = datasets.Dataset.from_dict({"text": GENERAL}).to_iterable_dataset(num_shards=2)
    shuffled = stream.shuffle(seed=7, buffer_size=11)
    how = {**SMALL, "batch_size": 12, "max_steps": 8, "save_steps": 6}  # more than one pass
    whole = pretrain(shuffled, tmp_path / "whole", **how).folder
    shutil.copytree(whole / "checkpoint-6", tmp_path / "stopped" / "checkpoint-6")
    resumed = pretrain(shuffled, tmp_path / "stopped", resume=True, **how).folder
    assert_same_weights(whole, resumed)
    with pytest.raises(ValueError, match="text"):
        pretrain(stream.skip(1), tmp_path / "stopped", resume=True, **how)


@pytest.mark.parametrize(("name", "changes"), CHANGES)
def test_another_recipe_vocabulary_or_text_is_refused(run, files, tmp_path, monkeypatch, name, changes):
    monkeypatch.chdir(tmp_path)
    counted, text = (run / "vocab.txt").read_text().splitlines(), files["general"].read_text()
    write_lines(tmp_path / "words.txt", [*counted[:3], *counted[:2:-1]])
    (tmp_path / "other.txt").write_text(text.replace("the cat", "cat the", 1))  # as long as before
    before = contents(run)
    with pytest.raises(ValueError, match=name):
        resume(run, **{"inputs": files["general"], **changes})
    assert contents(run) == before


@pytest.mark.parametrize(("removed", "resumed"), [("checkpoint-*", False), ("checkpoint-*", True), ("*.*", False)])
def test_nothing_is_overwritten_unasked(run, files, removed, resumed):
    for path in run.glob(removed):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = contents(run)
    with pytest.raises(FileExistsError, match="overwrite"):
        resume(run, files["domain"], resume=resumed)
    assert contents(run) == before


def test_a_model_is_overwritten_if_asked_and_copies_of_checkpoints_stay(run, files, tmp_path):
    copies = [shutil.copytree(run / "checkpoint-5", run / name) for name in ("checkpoint-good", "checkpoint-5-good")]
    before = list(map(contents, copies))
    how = {**SMALL, **STEPS, "max_steps": 3, "save_steps": 1}
    expected = pretrain(files["domain"], tmp_path / "new", **how).folder
    pretrain(files["domain"], run, overwrite=True, save_total_limit=1, **how)
    assert_same_weights(expected, run)
    assert (run / "vocab.txt").read_bytes() == (expected / "vocab.txt").read_bytes()
    assert {path.name for path in run.glob("checkpoint-*")} == {"checkpoint-3", *(path.name for path in copies)}
    assert list(map(contents, copies)) == before
    assert last_whole_checkpoint(run).name == "checkpoint-3"


@pytest.mark.slow
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(files, tmp_path):
    command = ["pretrain", str(files["general"]), "OUT", "--pretokenized", "--resume", "--batch-size=3", "--window=5"]
    command += ["--steps=12", "--seed=8", "--set=use_cpu=true", "--set=save_steps=1", "--set=save_total_limit=3"]
    run_with_kills([*command, *CONFIG], tmp_path, whole_at_once=False)


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo")
def test_a_run_killed_in_one_process_ends_in_all_and_resumes_exactly(tmp_path):
    """Half an epoch in two processes, whose parts have unequal words, with a checkpoint after each second step."""
    write_lines(tmp_path / "text.txt", [*GENERAL, *(line.replace("a", "aaaaaaaaaaaa") for line in GENERAL[:12])])
    program = write_lines(tmp_path / "worker.py", KILLED.splitlines())
    options = ["--pretokenized", "--batch-size=3", "--window=5", "--epochs=0.5", "--seed=8"]
    options += ["--set=use_cpu=true", "--set=save_steps=2", *CONFIG]
    assert not launch(program, ["pretrain", str(tmp_path / "text.txt"), str(tmp_path / "whole"), *options])
    killed = ["pretrain", str(tmp_path / "text.txt"), str(tmp_path / "killed"), *options]
    assert launch(program, killed, KILLED_AT="5")
    assert last_whole_checkpoint(tmp_path / "killed").name == "checkpoint-4"
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    assert not launch(program, [*killed, "--resume"], ACCELERATE)
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    with pytest.raises(ValueError, match="processes"):
        pretrain(tmp_path / "text.txt", tmp_path / "killed", resume=True, num_train_epochs=0.5, seed=8, **SMALL)


def test_ctrl_c_and_a_full_disk_end_a_run_that_can_be_resumed(files, five_steps, tmp_path, monkeypatch, capsys) -> None:
    command = ["pretrain", str(files["general"]), str(tmp_path), "--words", "--steps=5", "--batch-size=3", "--window=5"]
    command += ["--seed=8", "--set=use_cpu=True", "--set=save_steps=2", "--resume", *CONFIG]
    compute_loss, save = ElmoPreTrainer.compute_loss, torch.save

    def interrupted(self: ElmoPreTrainer, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 1:
            signal.raise_signal(signal.SIGINT)
        return compute_loss(self, *args, **kwargs)

    def full(content: Any, file: Any, **how: Any) -> None:
        if "checkpoint-4" in str(file):
            raise RuntimeError("PytorchStreamWriter failed writing file data/1: file write failed")
        save(content, file, **how)

    with monkeypatch.context() as patch:
        patch.setattr(ElmoPreTrainer, "compute_loss", interrupted)
        assert main(command) == 130
    found = capsys.readouterr()
    assert f"finished work is in {tmp_path / 'checkpoint-2'}: the same command with --resume resumes" in found.err
    assert "written" not in found.out
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        assert main(command) == 1
    assert "No space left" in (printed := capsys.readouterr().err)
    assert "checkpoint-2: the same command" in printed
    assert main(command) == 0
    assert_same_weights(tmp_path, five_steps)
