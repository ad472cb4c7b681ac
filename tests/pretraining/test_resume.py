"""Resuming: the updates of an uninterrupted run, or a refusal that names what is missing."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file
from transformers import TrainerState

from hf_elmo.pretraining import checkpoints, recipe, trainer
from hf_elmo.pretraining.checkpoints import DATA_FILE, OWN_SHA256, last_whole_checkpoint
from hf_elmo.pretraining.recipe import pretrain
from hf_elmo.pretraining.text import TextFiles
from hf_elmo.pretraining.trainer import ElmoPreTrainer
from hf_elmo_cli import main
from tests.conftest import TINY
from tests.harness.kills import KILLS, pretrain_command, run_with_kills
from tests.pretraining.test_recipe import DOMAIN, GENERAL

SMALL = {"config": TINY, "batch_size": 3, "window": 5, "pretokenized": True, "use_cpu": True, "disable_tqdm": True}
STEPS = {"max_steps": 5, "save_steps": 2, "seed": 8}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "general.txt"
    file.write_text("\n".join(GENERAL) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged about checkpoints."""
    monkeypatch.setattr(checkpoints.logger, "handlers", [caplog.handler])
    monkeypatch.setattr(recipe.logger, "handlers", [caplog.handler])
    return caplog


def train(folder: Path, text: Path, resume: bool = False, **changes: Any) -> dict[str, torch.Tensor]:
    pretrain(folder, text, resume=resume, **{**SMALL, **STEPS, **changes})
    return load_file(folder / "model.safetensors")


def assert_equal(expected: dict[str, torch.Tensor], actual: dict[str, torch.Tensor]) -> None:
    assert expected.keys() == actual.keys()
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- a run that has ended ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "length",
    [{"max_steps": 5}, {"max_steps": -1, "num_train_epochs": 0.4}, {"max_steps": 5, "save_strategy": "epoch"}],
    ids=["steps", "part of an epoch", "saved by epoch"],
)
def test_resuming_an_ended_run_changes_nothing(text, tmp_path, length):
    train(tmp_path / "out", text, **length)
    before = files_of(tmp_path / "out")
    train(tmp_path / "out", text, resume=True, **length)
    after = files_of(tmp_path / "out")
    assert {name for name in before | after if before.get(name) != after.get(name)} == set()


def test_a_run_killed_between_its_last_checkpoint_and_its_end(text, tmp_path):
    expected = train(tmp_path / "out", text)
    for name in ("model.safetensors", "config.json", "trainer_state.json"):
        (tmp_path / "out" / name).unlink()
    assert_equal(expected, train(tmp_path / "out", text, resume=True))
    assert TrainerState.load_from_json(tmp_path / "out" / "trainer_state.json").global_step == 5


@pytest.fixture
def adapted(text: Path, tmp_path: Path) -> SimpleNamespace:
    """An adaptation that early stopping ends: the model has learned its text and gets worse."""
    domain = tmp_path / "domain.txt"
    domain.write_text("\n".join(DOMAIN) + "\n", encoding="utf-8")
    train(tmp_path / "general", text, max_steps=2)
    how = {**SMALL, "config": None, "init": tmp_path / "general", "learning_rate": 0.3, "num_train_epochs": 30}
    return SimpleNamespace(text=domain, how={**how, "lr_scheduler_type": "constant"})


def test_early_stopping_counts_on(adapted, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "PATIENCE", 3)
    pretrain(tmp_path / "whole", adapted.text, **adapted.how)
    whole = TrainerState.load_from_json(tmp_path / "whole" / "trainer_state.json")
    assert whole.global_step < whole.max_steps, "nothing stopped early: the test would prove too little"
    steps = sorted(int(path.name.split("-")[1]) for path in (tmp_path / "whole").glob("checkpoint-*"))
    assert steps[-1] == whole.global_step
    assert steps[0] == whole.best_global_step
    # Resumed after it had ended, in another place: the best model is found there, and no step is made.
    shutil.move(tmp_path / "whole", tmp_path / "moved")
    before = files_of(tmp_path / "moved")
    pretrain(tmp_path / "moved", adapted.text, resume=True, **adapted.how)
    assert files_of(tmp_path / "moved") == before
    # Resumed from the best one, as if it had been killed there: it stops where the other stopped.
    shutil.rmtree(tmp_path / "moved" / f"checkpoint-{steps[-1]}")
    pretrain(tmp_path / "moved", adapted.text, resume=True, **adapted.how)
    resumed = TrainerState.load_from_json(tmp_path / "moved" / "trainer_state.json")
    assert (resumed.global_step, resumed.best_global_step) == (whole.global_step, whole.best_global_step)
    assert (tmp_path / "moved" / "model.safetensors").read_bytes() == before["model.safetensors"]


# -- a checkpoint that is not whole ------------------------------------------------------------------------------------


def test_the_last_whole_checkpoint_is_taken_and_the_log_says_so(text, tmp_path, warnings):
    expected = train(tmp_path / "out", text)
    cut = tmp_path / "out" / "checkpoint-5"
    for name in ("elmo_data.json", "optimizer.pt", "trainer_state.json"):
        (cut / name).unlink()
    assert_equal(expected, train(tmp_path / "out", text, resume=True))
    assert f"{cut} has no elmo_data.json: it was not written to its end and is passed over." in warnings.text


def test_without_a_whole_checkpoint_it_starts_over_and_the_log_says_so(text, tmp_path, warnings):
    expected = train(tmp_path / "whole", text)
    (tmp_path / "out" / "checkpoint-2").mkdir(parents=True)
    assert_equal(expected, train(tmp_path / "out", text, resume=True))
    assert f"{tmp_path / 'out'} has no whole checkpoint" in warnings.text


@pytest.mark.parametrize("file", ["optimizer.pt", "elmo_state_0.pt", "trainer_state.json"])
def test_a_full_disk_leaves_the_checkpoint_before(text, tmp_path, file, capsys):
    """/dev/full refuses each write as a full disk does."""
    expected = train(tmp_path / "whole", text)
    full = tmp_path / "out" / "checkpoint-4" / file
    full.parent.mkdir(parents=True)
    full.symlink_to("/dev/full")
    config = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]
    command = ["pretrain", str(tmp_path / "out"), str(text), "--pretokenized", "--batch-size=3", "--window=5"]
    command += [
        "--steps=5",
        "--seed=8",
        "--set=use_cpu=true",
        "--set=save_steps=2",
        "--set=save_total_limit=1",
        *config,
    ]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "checkpoint-4 could not be written" in said
    assert "The checkpoint before it, checkpoint-2, is whole: make room, and continue with" in said
    assert (tmp_path / "out" / "checkpoint-2").is_dir(), "the older one must stay until the new one is whole"
    full.unlink()
    assert main([*command, "--resume"]) == 0
    assert_equal(expected, load_file(tmp_path / "out" / "model.safetensors"))
    assert [path.name for path in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-5"]


def test_a_disk_that_is_full_at_the_first_checkpoint(text, tmp_path):
    expected = train(tmp_path / "whole", text)
    full = tmp_path / "out" / "checkpoint-2" / "optimizer.pt"
    full.parent.mkdir(parents=True)
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"checkpoint-2 could not be written .* No checkpoint is whole yet: make room"):
        train(tmp_path / "out", text)
    full.unlink()
    assert_equal(expected, train(tmp_path / "out", text, resume=True))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("steps", "Nothing is lost, checkpoint-5 is whole: make room, and continue"),
        ("no", "No checkpoint was kept"),
    ],
)
def test_a_disk_that_is_full_at_the_end(text, tmp_path, strategy, message):
    expected = train(tmp_path / "whole", text)
    full = tmp_path / "out" / "config.json"
    full.parent.mkdir()
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match=rf"the model could not be written to .*No space left on device\)\. {message}"):
        train(tmp_path / "out", text, save_strategy=strategy)
    full.unlink()
    if strategy == "steps":
        assert_equal(expected, train(tmp_path / "out", text, resume=True))


# -- a checkpoint that lacks something, or a run that is another -------------------------------------------------------

NEEDED = ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "elmo_state_0.pt", "model.safetensors"]


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_missing_or_truncated_file_is_refused_by_name(text, tmp_path, damage):
    train(tmp_path / "out", text)
    for name in NEEDED:
        file = tmp_path / "out" / "checkpoint-5" / name
        content = file.read_bytes()
        file.unlink() if damage == "missing" else file.write_bytes(content[:-1])
        with pytest.raises(ValueError, match=rf"checkpoint-5.{name} (is missing|has \d+ bytes)") as raised:
            train(tmp_path / "out", text, resume=True)
        assert "remove checkpoint-5 to resume from the checkpoint before it" in str(raised.value)
        file.write_bytes(content)


@pytest.mark.parametrize("name", [*NEEDED, "vocab.txt", DATA_FILE])
def test_a_bit_that_changed_is_refused_by_name(text, tmp_path, name):
    train(tmp_path / "out", text)
    file = tmp_path / "out" / "checkpoint-5" / name
    content = file.read_bytes()
    place = content.index(b'"seed": 8') + 8 if name == DATA_FILE else len(content) // 2
    file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    before = files_of(tmp_path / "out")
    with pytest.raises(ValueError, match=rf"checkpoint-5.{name} is damaged \(.*remove checkpoint-5 to resume from the"):
        train(tmp_path / "out", text, resume=True)
    assert files_of(tmp_path / "out") == before


def test_a_changed_bit_of_the_best_model_is_refused_by_name(adapted, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "PATIENCE", 3)
    pretrain(tmp_path / "out", adapted.text, **adapted.how)
    best = min((tmp_path / "out").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    file = best / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 0x40]))
    with pytest.raises(ValueError, match=rf"{best.name}.model\.safetensors is damaged"):
        pretrain(tmp_path / "out", adapted.text, resume=True, **adapted.how)


def test_a_checkpoint_of_an_earlier_version_is_asked_for_the_same_files(text, tmp_path):
    expected = train(tmp_path / "out", text)
    folder = tmp_path / "out" / "checkpoint-4"
    shutil.rmtree(tmp_path / "out" / "checkpoint-5")
    record = json.loads((folder / "elmo_data.json").read_text())
    later = {"files", "sha256", OWN_SHA256, "recipe", "processes", "text"}
    older = {name: record[name] for name in record.keys() - later}
    (folder / "elmo_data.json").write_text(json.dumps(older))
    (folder / "scheduler.pt").rename(folder / "away")
    with pytest.raises(ValueError, match=r"scheduler\.pt is missing"):
        train(tmp_path / "out", text, resume=True)
    (folder / "away").rename(folder / "scheduler.pt")
    assert_equal(expected, train(tmp_path / "out", text, resume=True))


def test_weights_of_another_model_are_refused(text, tmp_path):
    train(tmp_path / "out", text)
    file = tmp_path / "out" / "checkpoint-5" / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.bIas"] = tensors.pop("lm_head.bias")  # as long as before
    save_file(tensors, file, metadata={"format": "pt"})
    record = checkpoints.read_record(file.parent)
    (file.parent / DATA_FILE).unlink()
    checkpoints.mark_whole(file.parent, record)
    with pytest.raises(ValueError, match=r"weights are of another model: lm_head\.bIas"):
        train(tmp_path / "out", text, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.1}, r"learning_rate 0\.2, but this run has 0\.1"),
        ({"optim": "adamw_torch"}, "optim 'adagrad', but this run has 'adamw_torch'"),
        ({"loss_scale": 1.0}, r"loss_scale 20\.0, but this run has 1\.0"),
        ({"lr_scheduler_kwargs": {"power": 2}}, r"lr_scheduler_kwargs None, but this run has \{'power': 2\}"),
        ({"config": {**TINY, "hidden_dropout": 0.3}}, r"hidden_dropout 0\.1, but this run has 0\.3"),
        ({"neftune_noise_alpha": 5.0}, r"neftune_noise_alpha None, but this run has 5\.0"),
        ({"average_tokens_across_devices": False}, "average_tokens_across_devices True, but this run has False"),
        ({"seed": 9}, "seed 8, but this run has 9"),
        ({"batch_size": 4}, "batch_size 3, but this run has 4"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_recipe_is_refused(text, tmp_path, changes, message):
    train(tmp_path / "out", text, max_steps=2)
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "out", text, resume=True, **changes)


def test_what_an_earlier_version_did_not_record_is_taken_to_be_the_default(text, tmp_path):
    train(tmp_path / "out", text, max_steps=2)
    file = last_whole_checkpoint(tmp_path / "out") / DATA_FILE
    record = json.loads(file.read_text())
    del record[OWN_SHA256]
    for name in trainer.RECIPE_DEFAULTS:
        del record["recipe"][name]
    file.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"neftune_noise_alpha None, but this run has 5\.0"):
        train(tmp_path / "out", text, resume=True, neftune_noise_alpha=5.0)
    train(tmp_path / "out", text, resume=True, metric_for_best_model="eval_loss")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric_for_best_model": "perplexity"}, "metric_for_best_model 'loss', but this run has 'perplexity'"),
        ({"greater_is_better": True}, "greater_is_better False, but this run has True"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_best_by_one_metric_is_not_compared_by_another(adapted, tmp_path, changes, message):
    how = {**adapted.how, "num_train_epochs": 1}
    pretrain(tmp_path / "out", adapted.text, **how)
    with pytest.raises(ValueError, match=message):
        pretrain(tmp_path / "out", adapted.text, resume=True, **how, **changes)


def test_another_text_is_refused(text, tmp_path):
    train(tmp_path / "out", text, max_steps=2)
    text.write_text(text.read_text() + "the dog sat\n")
    with pytest.raises(ValueError, match=r"has text \{'files': 1, 'bytes': \d+, .*\}, but this run has"):
        train(tmp_path / "out", text, resume=True)


def test_a_text_of_the_same_length_is_another(text, tmp_path):
    train(tmp_path / "out", text, max_steps=2)
    words = text.read_text()
    text.write_text(words.replace("the cat", "cat the", 1))
    with pytest.raises(ValueError, match=r"has text .*, but this run has"):
        train(tmp_path / "out", text, resume=True)
    text.write_text(words)
    train(tmp_path / "out", text, resume=True)


@pytest.mark.parametrize("place", [0, 100_001, 6_000_000, -2])
def test_any_byte_makes_another_text(tmp_path, place):
    file = tmp_path / "large.txt"
    file.write_bytes((b"0123456789 " * 9 + b"\n") * 80_000)  # twice what the samples are
    before = TextFiles(file).fingerprint
    with file.open("r+b") as opened:
        opened.seek(place, 0 if place >= 0 else 2)
        opened.write(b"Q")
    assert TextFiles(file).fingerprint != before


def test_text_moved_from_one_file_to_the_next_is_another(tmp_path):
    contents, found = [(b"a\n", b"b\nc\n"), (b"a\nb\n", b"c\n")], []
    for pair in contents:
        for number, content in enumerate(pair):
            (tmp_path / f"{number}.txt").write_bytes(content)
        found.append(TextFiles(str(tmp_path / "?.txt")).fingerprint)
    assert found[0] != found[1]


def test_a_checkpoint_that_knew_its_text_by_samples_is_refused(text, tmp_path):
    train(tmp_path / "out", text, max_steps=2)
    file = last_whole_checkpoint(tmp_path / "out") / DATA_FILE
    record = json.loads(file.read_text())
    del record[OWN_SHA256]
    record["text"] = TextFiles(text).sampled_fingerprint
    file.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"is of a version that knew a text by samples of its bytes, .* train on from"):
        train(tmp_path / "out", text, resume=True)


def test_the_same_files_in_another_order_are_another_text(text, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().upper())
    train(tmp_path / "out", [text, other], max_steps=2)
    with pytest.raises(ValueError, match=r"has text .*, but this run has"):
        train(tmp_path / "out", [other, text], resume=True)


def test_sentences_are_no_documents(text, tmp_path):
    text.write_text("\n\n".join(text.read_text().split("\n")))
    how = {"window": None, "max_steps": 2}
    train(tmp_path / "out", text, layout="sentences", **how)
    with pytest.raises(ValueError, match=r"has text .*'documents': False.* but this run has .*'documents': True"):
        train(tmp_path / "out", text, layout="documents", resume=True, **how)


def test_another_vocabulary_of_the_same_length_is_refused(text, tmp_path):
    first, second = tmp_path / "one.txt", tmp_path / "two.txt"
    words = sorted(set(text.read_text().split()))
    for file, order in ((first, words), (second, words[::-1])):
        file.write_text("\n".join(["<S>", "</S>", "<UNK>", *order]) + "\n")
    train(tmp_path / "out", text, vocabulary=first, max_steps=2)
    with pytest.raises(ValueError, match=r"has tokenizer '\w+', but this run has '\w+'"):
        train(tmp_path / "out", text, vocabulary=second, resume=True)


def test_other_word_splitting_is_named(text, tmp_path):
    how = {"pretokenized": False, "max_steps": 2, "vocabulary": tmp_path / "words.txt"}
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    train(tmp_path / "out", text, **how)
    with pytest.raises(ValueError, match=r"resume with the settings of the original run \(--word-splitting, --vocab, "):
        train(tmp_path / "out", text, resume=True, word_splitting="whitespace", **how)


def test_a_checkpoint_that_recorded_less_of_its_text_goes_on(text, tmp_path):
    train(tmp_path / "out", text, max_steps=2)
    file = last_whole_checkpoint(tmp_path / "out") / DATA_FILE
    record = json.loads(file.read_text())
    del record["tokenizer"], record[OWN_SHA256]
    record["text"] = {name: record["text"][name] for name in ("files", "bytes")}
    file.write_text(json.dumps(record))
    train(tmp_path / "out", text, resume=True)


@pytest.mark.parametrize("name", ["dataloader_num_workers", "ignore_data_skip", "auto_find_batch_size"])
def test_arguments_about_batches_of_trainers_own_are_refused(text, tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} is (1|True), but batches are made here"):
        train(tmp_path / "out", text, max_steps=1, **{name: 1 if "workers" in name else True})


def test_text_that_was_held_out_or_was_not_is_another_text(adapted, tmp_path):
    (tmp_path / "held_out.txt").write_text("a cat sat\n")
    how = {**adapted.how, "num_train_epochs": 1, "load_best_model_at_end": False}
    apart = {"held_out": tmp_path / "held_out.txt"}
    for first, second, message in (({}, apart, "20, but this run has None"), (apart, {}, "None, but this run has 20")):
        pretrain(tmp_path / message[:4], adapted.text, **how, **first)
        with pytest.raises(ValueError, match=f"saved position has held_out_every {message}"):
            pretrain(tmp_path / message[:4], adapted.text, resume=True, **how, **second)


def test_the_best_of_one_held_out_text_is_not_compared_with_models_on_another(adapted, tmp_path):
    for name in ("first", "other"):
        (tmp_path / f"{name}.txt").write_text(f"a {name} cat sat\n")
    how = {**adapted.how, "num_train_epochs": 1}
    pretrain(tmp_path / "out", adapted.text, held_out=tmp_path / "first.txt", **how)
    pretrain(tmp_path / "out", adapted.text, held_out=tmp_path / "first.txt", resume=True, **how)
    with pytest.raises(ValueError, match=r"with the held-out text sha256 .*: resume with the settings of the original"):
        pretrain(tmp_path / "out", adapted.text, held_out=tmp_path / "other.txt", resume=True, **how)


def test_another_number_of_steps_is_refused_where_the_schedule_depends_on_it(text, tmp_path):
    train(tmp_path / "out", text, max_steps=2, lr_scheduler_type="linear")
    with pytest.raises(ValueError, match="had 2 steps and this one has 5, but the learning rates of lr_scheduler_type"):
        train(tmp_path / "out", text, resume=True, lr_scheduler_type="linear")


def test_fewer_steps_than_were_made_are_refused(text, tmp_path):
    train(tmp_path / "out", text)
    before = files_of(tmp_path / "out")
    with pytest.raises(ValueError, match=r"made 5 updates, but this one has 3: resume with as many or more .*--steps"):
        train(tmp_path / "out", text, resume=True, max_steps=3)
    assert files_of(tmp_path / "out") == before


def test_checkpoints_that_could_not_be_resumed_are_refused(text, tmp_path):
    with pytest.raises(ValueError, match="save_only_model is True, but a training is resumed from whole checkpoints"):
        train(tmp_path / "out", text, save_only_model=True)
    assert not (tmp_path / "out").exists()


def test_the_end_may_be_moved_before_the_step_size_falls(text, tmp_path):
    how = {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": 2}}
    expected = train(tmp_path / "whole", text, **how)
    train(tmp_path / "out", text, max_steps=8, **how)
    for steps in (6, 8):
        shutil.rmtree(tmp_path / "out" / f"checkpoint-{steps}")
    with pytest.raises(ValueError, match=r"had 8 steps and this one has 5, but the learning rates .* so far depend on"):
        train(tmp_path / "out", text, resume=True, **how)  # at step 4 it would have fallen already
    shutil.rmtree(tmp_path / "out" / "checkpoint-4")
    assert_equal(expected, train(tmp_path / "out", text, resume=True, **how))


# -- a folder that holds a model ---------------------------------------------------------------------------------------

COUNTED = {"vocabulary_size": 9, "max_steps": 4}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another text, of other words."""
    file = tmp_path / "domain.txt"
    file.write_text("\n".join(DOMAIN) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "has text .*, but this run has"),
        ({"vocabulary_size": 8}, "vocab_size 9, but this run has 8"),
        ({"max_steps": 5, "lr_scheduler_type": "linear"}, "lr_scheduler_type 'constant', but this run has"),
        ({"batch_size": 500}, "batch_size 3, but this run has 500"),
        (
            {"resume": False},
            r"holds a trained model or its checkpoints \(model\.safetensors\); choose another name",
        ),
        ({"resume": False, "overwrite": True, "batch_size": 500}, "the text does not fill one batch"),
        ({"overwrite": True}, "resume continues what overwrite would remove: give one of them"),
    ],
    ids=["text", "vocabulary size", "schedule", "rows", "anew", "too little text", "both"],
)
def test_a_refusal_leaves_a_finished_model_as_it_was(text, other, tmp_path, changes, message):
    train(tmp_path / "out", text, **COUNTED)
    before = files_of(tmp_path / "out")
    with pytest.raises((ValueError, FileExistsError), match=message):
        train(tmp_path / "out", other, **{**COUNTED, "resume": True, **changes})
    assert files_of(tmp_path / "out") == before


def test_checkpoints_alone_are_not_trained_over(text, other, tmp_path):
    train(tmp_path / "out", text, **COUNTED)
    (tmp_path / "out" / "model.safetensors").unlink()
    before = files_of(tmp_path / "out")
    with pytest.raises(FileExistsError, match=r"its checkpoints \(checkpoint-4.model\.safetensors\).*overwrite=True"):
        train(tmp_path / "out", other, **COUNTED)
    assert files_of(tmp_path / "out") == before


def test_a_model_without_a_checkpoint_is_not_resumed(text, tmp_path):
    train(tmp_path / "out", text, save_strategy="no")
    before = files_of(tmp_path / "out")
    with pytest.raises(FileExistsError, match="no whole checkpoint to resume from; choose another name, or replace it"):
        train(tmp_path / "out", text, resume=True, save_strategy="no")
    assert files_of(tmp_path / "out") == before


def test_a_model_is_overwritten_once_the_new_one_is_trained(text, other, tmp_path, monkeypatch):
    expected = train(tmp_path / "new", other, **COUNTED)
    train(tmp_path / "out", text, **{**COUNTED, "max_steps": 8})
    old = {name: content for name, content in files_of(tmp_path / "out").items() if "checkpoint" not in name}
    compute_loss = ElmoPreTrainer.compute_loss

    def killed(self: ElmoPreTrainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.state.global_step == 3:
            raise KeyboardInterrupt
        return compute_loss(self, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(ElmoPreTrainer, "compute_loss", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "out", other, overwrite=True, **COUNTED)
    after = files_of(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-2"]
    assert {name: content for name, content in after.items() if "checkpoint" not in name} == old
    assert_equal(expected, train(tmp_path / "out", other, resume=True, **COUNTED))
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == (tmp_path / "new" / "vocab.txt").read_bytes()


def test_overwriting_by_the_command(text, other, tmp_path, capsys):
    train(tmp_path / "out", text, **COUNTED)
    words = (tmp_path / "out" / "vocab.txt").read_text()
    options = ["--pretokenized", "--batch-size=3", "--window=5", "--steps=2", "--set=use_cpu=true"]
    config = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]
    command = ["pretrain", str(tmp_path / "out"), str(other), *options, *config]
    assert main(command) == 1
    assert "or replace it with overwrite=True (--overwrite)" in capsys.readouterr().err.splitlines()[-1]
    assert main([*command, "--overwrite"]) == 0
    assert (tmp_path / "out" / "vocab.txt").read_text() != words
    assert [path.name for path in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-2"]


@pytest.mark.parametrize("init", ["out", "out/checkpoint-2"])
def test_what_is_adapted_is_not_overwritten(text, tmp_path, init):
    train(tmp_path / "out", text, max_steps=2)
    before = files_of(tmp_path / "out")
    with pytest.raises(ValueError, match=r"overwrite would remove init, .*: choose another output"):
        pretrain(tmp_path / "out", text, init=tmp_path / init, overwrite=True)
    assert files_of(tmp_path / "out") == before


# -- one run at a time -------------------------------------------------------------------------------------------------


def test_a_second_run_of_the_same_output_is_refused_and_says_who_has_it(text, other, tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    expected, compute_loss, refused = train(tmp_path / "alone", text), ElmoPreTrainer.compute_loss, []

    def meanwhile(self: ElmoPreTrainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not refused:
            refused.append(self.state.global_step)
            before, says = files_of(tmp_path / "out"), rf"out' is being written by process {os.getpid()} on .+: wait"
            for changes in ({}, {"resume": True}, {"overwrite": True}):
                with monkeypatch.context() as patched:
                    # New ones would reset accelerate's state, which a process has but one of.
                    patched.setattr(recipe, "_arguments", lambda *_: self.args)
                    with pytest.raises(BlockingIOError, match=says):
                        train(tmp_path / "out", other, **changes)
            assert files_of(tmp_path / "out") == before
        return compute_loss(self, *args, **kwargs)

    monkeypatch.setattr(ElmoPreTrainer, "compute_loss", meanwhile)
    assert_equal(expected, train(tmp_path / "out", text))
    assert refused == [0]
    assert {*files_of(tmp_path / "out")} == {*files_of(tmp_path / "alone")}
    assert not (tmp_path / "out" / recipe.LOCK).exists()


def test_what_another_run_wrote_meanwhile_is_kept(text, other, tmp_path, monkeypatch):
    reserved = recipe._reserved

    def slowly(*arguments: Any) -> Any:
        monkeypatch.setattr(recipe, "_reserved", reserved)
        train(tmp_path / "out", text)
        return reserved(*arguments)

    monkeypatch.setattr(recipe, "_reserved", slowly)
    with pytest.raises(FileExistsError, match="holds a trained model"):
        train(tmp_path / "out", other)
    assert_equal(train(tmp_path / "alone", text), load_file(tmp_path / "out" / "model.safetensors"))


def test_the_lock_that_a_kill_leaves_blocks_nobody(text, tmp_path):
    train(tmp_path / "whole", text)
    train(tmp_path / "out", text, max_steps=4)
    (tmp_path / "out" / "model.safetensors").unlink()
    (tmp_path / "out" / recipe.LOCK).write_text("process 7 on another machine since Monday")
    assert_equal(load_file(tmp_path / "whole" / "model.safetensors"), train(tmp_path / "out", text, resume=True))
    assert not (tmp_path / "out" / recipe.LOCK).exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_refused_run_leaves_no_new_folder(text, tmp_path, is_there):
    if is_there:
        (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="size is 2, but 3 of the words are special"):
        train(tmp_path / "out", text, vocabulary_size=2)
    assert (tmp_path / "out").exists() == is_there


# -- what is published -------------------------------------------------------------------------------------------------


def test_no_path_and_no_token_is_published(adapted, tmp_path):
    out = tmp_path / "secret_place"
    (out).mkdir()
    (out / "training_args.bin").write_bytes(b"of an earlier version")
    pretrain(out, adapted.text, **{**adapted.how, "num_train_epochs": 1}, hub_token="hf_secret_token")
    assert list(out.rglob("training_args.bin")) == []
    assert list(out.glob("checkpoint-*"))
    for name, content in files_of(out).items():
        assert b"hf_secret_token" not in content, name
        assert name.startswith("checkpoint-") or str(tmp_path).encode() not in content, name


def test_push_to_hub_uploads_no_arguments(text, tmp_path, monkeypatch):
    uploads = []

    def upload_folder(folder_path: str, ignore_patterns: list[str], **_: Any) -> None:
        names = (path.name for path in Path(folder_path).iterdir())
        uploads.append({*filter_repo_objects(names, ignore_patterns=ignore_patterns)})

    created = SimpleNamespace(repo_id="somebody/elmo")
    api = SimpleNamespace(create_repo=lambda *_, **__: created, upload_folder=upload_folder)
    monkeypatch.setattr("transformers.trainer.hf_api", lambda: api)
    train(tmp_path / "out", text, push_to_hub=True, hub_token="hf_secret_token")
    assert uploads, "nothing was uploaded: the test would prove too little"
    for names in uploads:
        assert "model.safetensors" in names
        assert recipe.LOCK not in names
        assert "training_args.bin" not in names


@pytest.mark.parametrize("strategy", ["every_save", "checkpoint", "all_checkpoints"])
def test_uploads_of_the_arguments_are_refused(text, tmp_path, strategy):
    with pytest.raises(ValueError, match=f"hub_strategy is '{strategy}', which uploads training_args.bin"):
        train(tmp_path / "out", text, push_to_hub=True, hub_strategy=strategy)


# -- kills -------------------------------------------------------------------------------------------------------------


def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(text, tmp_path):
    command = pretrain_command(text, "--batch-size=3 --window=5 --steps=12 --seed=8 --set save_total_limit=3")
    counts = run_with_kills(command, tmp_path, KILLS)
    assert counts["kills"], "nothing was killed: the test would prove too little"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reset_state", True),
        ("adagrad_accumulator", 0.5),
        ("max_grad_norm", 1.0),
        ("weight_decay", 0.1),
        ("warmup_steps", 2),
        ("adam_beta1", 0.5),
        ("adam_beta2", 0.5),
        ("adam_epsilon", 1e-3),
        ("gradient_accumulation_steps", 2),
        ("lr_scheduler_type", "linear"),
    ],
)
def test_each_argument_that_decides_an_update_is_compared(text, tmp_path, name, value):
    train(tmp_path / "out", text, max_steps=2)
    with pytest.raises(ValueError, match=rf"the training argument {name} .*, but this run has {value!r}"):
        train(tmp_path / "out", text, resume=True, **{name: value})


def test_a_sampled_fingerprint_knows_text_moved_from_one_file_to_the_next(tmp_path):
    found = []
    for place in (4, 8):
        (tmp_path / "a.txt").write_text("one\ntwo\nsix\n"[:place])
        (tmp_path / "b.txt").write_text("one\ntwo\nsix\n"[place:])
        found.append(TextFiles(str(tmp_path / "?.txt")).sampled_fingerprint)
    assert found[0] != found[1]
