"""Resuming: the updates of an uninterrupted run, or a refusal that names what differs."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerState

from hf_elmo.pretraining.recipe import pretrain
from hf_elmo.pretraining.trainer import ElmoPreTrainer, last_whole_checkpoint
from tests.factories import TINY
from tests.kills import KILLS, pretrain_command, run_with_kills
from tests.pretraining.conftest import SMALL, STEPS


def resume(folder: Path, text: Any, **changes: Any) -> None:
    pretrain(folder, text, **{**SMALL, **STEPS, "resume": True, **changes})


def assert_same_weights(one: Path, other: Path) -> None:
    expected, actual = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert expected.keys() == actual.keys()
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def steps_of(folder: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))


def test_a_run_killed_between_its_last_checkpoint_and_its_end(run, five_steps, files):
    for name in ("model.safetensors", "trainer_state.json"):
        (run / name).unlink()
    before = files_of(run / "checkpoint-5")
    resume(run, files["general"])
    assert_same_weights(five_steps, run)
    assert TrainerState.load_from_json(run / "trainer_state.json").global_step == 5
    assert files_of(run / "checkpoint-5") == before  # no step was made


def test_an_incomplete_checkpoint_is_passed_over(run, five_steps, files):
    (run / "model.safetensors").unlink()
    state = run / "checkpoint-5" / "trainer_state.json"  # a checkpoint's last file
    state.write_bytes(state.read_bytes()[:-5])
    (run / "checkpoint-4" / "trainer_state.json").unlink()
    assert last_whole_checkpoint(run).name == "checkpoint-2"
    position = run / "checkpoint-2" / "elmo_position_0.pt"
    saved = torch.load(position)
    del saved["settings"]["ema"]  # as an older version wrote it
    torch.save(saved, position)
    resume(run, files["general"])
    assert_same_weights(five_steps, run)
    assert last_whole_checkpoint(run).name == "checkpoint-5"


def test_without_a_whole_checkpoint_it_starts_over_and_the_log_says_so(five_steps, files, tmp_path, caplog):
    (tmp_path / "out" / "checkpoint-2").mkdir(parents=True)
    resume(tmp_path / "out", files["general"])
    assert_same_weights(five_steps, tmp_path / "out")
    assert "no whole checkpoint" in caplog.text


def test_a_run_is_continued_for_more_steps(files, tmp_path):
    how = {**SMALL, **STEPS, "lr_scheduler_type": "constant"}
    whole = pretrain(tmp_path / "whole", files["general"], **how).folder
    pretrain(tmp_path / "out", files["general"], **{**how, "max_steps": 2})
    pretrain(tmp_path / "out", files["general"], resume=True, **how)
    assert_same_weights(whole, tmp_path / "out")


def test_an_interrupt_ends_a_run_after_its_step_and_the_run_is_resumed(five_steps, files, tmp_path, monkeypatch):
    step = ElmoPreTrainer.training_step

    def interrupted(self, *args):
        if self.state.global_step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *args)

    monkeypatch.setattr(ElmoPreTrainer, "training_step", interrupted)
    pretrain(tmp_path / "out", files["general"], **SMALL, **STEPS)
    assert last_whole_checkpoint(tmp_path / "out").name == "checkpoint-3"
    monkeypatch.undo()
    resume(tmp_path / "out", files["general"])
    assert_same_weights(five_steps, tmp_path / "out")


def test_a_shuffled_stream_is_resumed_exactly(files, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    # datasets sleeps a second at the end of each pass over several files
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0.01, raising=False)
    lines = files["general"].read_text().splitlines()
    stream = datasets.Dataset.from_dict({"text": lines}).to_iterable_dataset(num_shards=2)
    shuffled = stream.shuffle(seed=7, buffer_size=11)
    how = {**SMALL, "max_steps": 30, "save_steps": 21, "save_total_limit": None}  # more than one pass
    whole = pretrain(tmp_path / "whole", shuffled, **how).folder
    (tmp_path / "stopped").mkdir()
    shutil.copytree(whole / "checkpoint-21", tmp_path / "stopped" / "checkpoint-21")
    resumed = pretrain(tmp_path / "stopped", shuffled, resume=True, **how).folder
    assert_same_weights(whole, resumed)
    with pytest.raises(ValueError, match="text"):
        pretrain(tmp_path / "stopped", stream.skip(1), resume=True, **how)


# -- a run that is another ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("learning_rate", {"learning_rate": 0.1}),
        ("ema", {"ema": 0.9}),
        ("hidden_dropout", {"config": {**TINY, "hidden_dropout": 0.3}}),
        ("seed", {"seed": 9}),
        ("batch_size", {"batch_size": 4}),
        ("shuffle_block", {"shuffle_block": 5}),
        ("layout", {"layout": "sentences"}),
    ],
)
def test_another_recipe_is_refused(run, files, name, changes):
    before = files_of(run)
    with pytest.raises(ValueError, match=name):
        resume(run, files["general"], **changes)
    assert files_of(run) == before


def test_another_text_or_vocabulary_is_refused(run, files, tmp_path):
    words = tmp_path / "words.txt"
    counted = (run / "vocab.txt").read_text().splitlines()
    words.write_text("\n".join([*counted[:3], *counted[:2:-1]]) + "\n")
    with pytest.raises(ValueError, match="vocabulary"):
        resume(run, files["general"], vocabulary=words)
    other = tmp_path / "other.txt"
    other.write_text(files["general"].read_text().replace("the cat", "cat the", 1))  # as long as before
    with pytest.raises(ValueError, match="text"):
        resume(run, other)


def test_another_number_of_steps_is_refused_if_the_learning_rates_depend_on_it(files, tmp_path):
    how = {**SMALL, **STEPS}
    pretrain(tmp_path / "out", files["general"], **{**how, "max_steps": 2})
    with pytest.raises(ValueError, match="max_steps"):
        pretrain(tmp_path / "out", files["general"], resume=True, **how)


# -- a folder that holds a model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("removed", "resumed"),
    [("nothing", False), ("checkpoint-*", False), ("checkpoint-*", True), ("*.*", False)],
    ids=["all", "model alone", "model alone, resumed", "checkpoints alone"],
)
def test_nothing_is_overwritten_unasked(run, files, removed, resumed):
    for path in run.glob(removed):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = files_of(run)
    assert before
    with pytest.raises(FileExistsError, match="overwrite"):
        resume(run, files["domain"], resume=resumed)
    assert files_of(run) == before


def test_a_model_is_overwritten_if_asked(run, files, tmp_path):
    how = {**SMALL, **STEPS, "max_steps": 2}
    expected = pretrain(tmp_path / "new", files["domain"], **how).folder
    pretrain(run, files["domain"], overwrite=True, **how)
    assert_same_weights(expected, run)
    assert (run / "vocab.txt").read_bytes() == (expected / "vocab.txt").read_bytes()
    assert steps_of(run) == [2]


# -- kills -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(files, tmp_path):
    command = pretrain_command(
        files["general"], "--batch-size=3 --window=5 --steps=12 --seed=8 --set save_total_limit=3"
    )
    counts = run_with_kills(command, tmp_path, KILLS)
    assert counts["kills"], "nothing was killed: the test would prove too little"
