"""Training the language models: the published recipe, exact resuming, several processes, evaluation."""

import copy
import itertools
import math
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import EarlyStoppingCallback, set_seed

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoTokenizer, optimizer_cls_and_kwargs, settle
from hf_elmo.pretraining.data import PackedWindows, PaddedTexts
from hf_elmo.pretraining.recipe import RECIPES
from hf_elmo.pretraining.texts import Texts
from hf_elmo.pretraining.trainer import ElmoPreTrainer, ElmoPreTrainingArguments
from tests.factories import TEXTS, TINY, whitespace_tokenizer, write_lines
from tests.pretraining.conftest import launch

WORKER = """
import os, sys
from pathlib import Path
import pytest
from tests.factories import whitespace_tokenizer
from tests.pretraining.test_trainer import make_trainer, train

folder = Path(sys.argv[1])
tokenizer = whitespace_tokenizer(vocab_file=str(folder / "vocab.txt"))
train(tokenizer, folder)
with pytest.raises(ValueError, match="texts"):
    make_trainer(tokenizer, folder / "other", learning_rate=float(os.environ["RANK"])).train()
"""
DIVERGING = {
    "logged": ({"save_strategy": "no"}, []),
    "saved": ({"logging_steps": 100, "save_steps": 3}, []),
    "with the filter": ({"save_steps": 1, "logging_nan_inf_filter": True}, ["checkpoint-1"]),
    "evaluated": ({"logging_steps": 100, "save_steps": 5, "eval_strategy": "steps", "eval_steps": 4}, []),
}


def make_trainer(tokenizer, folder: Path, padded=False, dropout=0.1, callbacks=None, **arguments) -> ElmoPreTrainer:
    """A trainer of two rows with windows of five words, every kind of randomness on."""
    settings = {"max_steps": 9, "save_steps": 4, "logging_steps": 1, "report_to": [], "use_cpu": True, "seed": 5}
    settings |= {"disable_tqdm": True, "per_device_train_batch_size": 2, **arguments}
    args = ElmoPreTrainingArguments(output_dir=str(folder), **settings)
    set_seed(args.seed)
    config = ElmoConfig(**TINY, vocab_size=len(tokenizer.vocabulary), num_sampled=7, hidden_dropout=dropout)
    kind, sizes = (PaddedTexts, {}) if padded else (PackedWindows, {"window": 5})
    data = {**sizes, "batch_size": 2, "rank": args.process_index, "world_size": args.world_size}
    dataset, model = kind(Texts(TEXTS), tokenizer, seed=5, shuffle_block=3, **data), ElmoForPreTraining(config)
    return ElmoPreTrainer(model, args, dataset, Texts(TEXTS[:3]), tokenizer, callbacks=callbacks)


def test_the_learning_rate_warms_up_over_4_percent_and_falls_over_60(tokenizer, tmp_path):
    trainer = make_trainer(tokenizer, tmp_path / "out")
    trainer.create_optimizer_and_scheduler(100)
    assert type(trainer.optimizer) is torch.optim.AdamW
    factor = trainer.lr_scheduler.lr_lambdas[0]
    expected = {2: 0.5, 4: 1.0, 40: 1.0, 70: 0.5, 99: 1 / 60}
    assert {step: factor(step) for step in expected} == pytest.approx(expected)
    assert trainer.optimizer.defaults["lr"] == 0.003


def test_a_step_is_adagrad_on_the_loss_summed_over_a_window(tokenizer, tmp_path, capsys):
    how = RECIPES["bilm-tf"] | {"max_steps": 1, "max_grad_norm": 0.3, "per_device_train_batch_size": 2, "dropout": 0.0}
    trainer = make_trainer(tokenizer, tmp_path / "out", include_num_input_tokens_seen="all", **how)
    trainer.model.config.num_sampled = trainer.model.config.vocab_size
    before = copy.deepcopy(trainer.model)
    loss = before(**next(iter(PackedWindows(Texts(TEXTS), tokenizer, 2, 5, seed=5, shuffle_block=3)))).loss
    (loss * 20).backward()
    norm = torch.nn.utils.get_total_norm(parameter.grad for parameter in before.parameters() if parameter.requires_grad)
    assert norm > 0.3, "nothing is clipped: the test would prove too little"
    trainer.train()
    for old, new in zip(before.parameters(), trainer.model.parameters(), strict=True):
        if old.requires_grad:
            gradient = old.grad * (0.3 / norm)
            expected = old - 0.2 * gradient / (1.0 + gradient**2).sqrt()
            torch.testing.assert_close(new, expected, rtol=1e-4, atol=1e-6)
    logged = trainer.state.log_history[0]
    assert logged["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert logged["words_per_second"] > 0
    line = rf"step 1 of 1: .+ words a second, training perplexity {math.exp(loss.item()):,.1f}, 0 minutes left\n"
    assert re.search(line, capsys.readouterr().err)
    assert trainer.state.num_input_tokens_seen == 2 * 5
    again = trainer.args.__class__(**{**trainer.args.to_dict(), "max_steps": -1, "num_train_epochs": 1})
    assert not ElmoPreTrainer(trainer.model, again, trainer.train_dataset).train_dataset.endless


def test_adagrad_has_its_settings_with_rates_of_parts_too(tokenizer, tmp_path, monkeypatch):
    trainer = make_trainer(tokenizer, tmp_path / "out", optim="adagrad", optim_args="eps=0.5,lr_decay=0.1")
    rates = optimizer_cls_and_kwargs(trainer.model, trainer.args, bilm=0.1)
    rated = ElmoPreTrainer(trainer.model, trainer.args, trainer.train_dataset, optimizer_cls_and_kwargs=rates)
    for defaults in (each.create_optimizer().defaults for each in (trainer, rated)):
        assert [defaults[name] for name in ("initial_accumulator_value", "eps", "lr_decay")] == [1.0, 0.5, 0.1]
    monkeypatch.setattr(ElmoPreTrainingArguments, "device", torch.device("cuda"))
    assert trainer.args.adagrad_settings["fused"] is None, "PyTorch has no fused Adagrad for CUDA, and raises"


@pytest.mark.parametrize("instructions", [True, False])
def test_bf16_is_off_on_a_cpu_without_instructions_for_it(tokenizer, tmp_path, monkeypatch, instructions):
    monkeypatch.setattr("hf_elmo.pretraining.trainer.has_instructions", lambda dtype, device: instructions)
    trainer = make_trainer(tokenizer, tmp_path / "out", bf16=True, max_steps=1, save_strategy="no")
    trainer.train()
    assert trainer.accelerator.mixed_precision == ("bf16" if instructions else "no")
    assert math.isfinite(trainer.state.log_history[0]["loss"])
    assert trainer.model.lm_head.weight.dtype == torch.float32


@pytest.mark.parametrize("begins_with", ["last", "nothing", "zeros", "settled"])
def test_the_state_that_a_batch_begins_with(tokenizer, tmp_path, begins_with):
    """Windows carry it, except where a sentence begins; padded texts have none; a settled start learns."""
    how = {"padded": begins_with == "nothing", "reset_state": begins_with != "last", "learning_rate": 1e-9}
    trainer = make_trainer(tokenizer, tmp_path / "out", save_strategy="no", **how)
    if begins_with == "settled":
        settle(trainer.model, ["The cat sat ."], tokenizer=tokenizer)
    starts = [part.detach().clone() for part in trainer.model.elmo.bilm.initial_state(1, trainer.model.lm_head.weight)]
    seen, begun = [], 0  # what is read, the state that the model is given and the state that it gives back
    trainer.model.register_forward_hook(
        lambda model, _, how, output: seen.append((how["input_ids"], how.get("state"), output.state)), with_kwargs=True
    )
    trainer.train()
    assert seen[0][1] is None
    for (_, _, before), (characters, given, _) in itertools.pairwise(seen):
        if begins_with == "nothing":
            assert given is None
            continue
        begins = (characters[:, 0, 1] == tokenizer.bos_token_id) & (begins_with != "last")
        begun += int(begins.sum())
        for old, new, start in zip(before, given, starts, strict=True):
            assert new.requires_grad == (begins_with == "settled")
            assert torch.equal(new[:, :, ~begins], old[:, :, ~begins])
            wanted = start.expand(-1, -1, int(begins.sum()), -1)
            torch.testing.assert_close(new[:, :, begins], wanted, atol=1e-7, rtol=0)
    assert (begun > 0) == (begins_with in ("zeros", "settled")), "the test would prove too little"


def test_the_average_of_the_weights_is_evaluated_and_saved(tokenizer, tmp_path):
    how = {"max_steps": 4, "save_steps": 1, "lr_scheduler_type": "constant"}
    make_trainer(tokenizer, tmp_path / "plain", **how).train()
    weights = [load_file(tmp_path / "plain" / f"checkpoint-{step}" / "model.safetensors") for step in (1, 2, 3, 4)]
    expected = weights[0]
    for each in weights[1:]:
        expected = {name: 0.7 * tensor + 0.3 * each[name] for name, tensor in expected.items()}
    trainer = make_trainer(tokenizer, tmp_path / "out", ema=0.7, eval_strategy="steps", eval_steps=4, **how)
    trainer.train()
    logged = next(entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(logged, abs=1e-6)
    for found in (trainer.model.state_dict(), load_file(tmp_path / "out" / "checkpoint-4" / "model.safetensors")):
        torch.testing.assert_close({name: found[name] for name in expected}, expected)


def test_early_stopping_counts_on(tokenizer, tmp_path):
    settings = {"learning_rate": 5.0, "max_steps": 40, "save_steps": 1, "eval_steps": 1, "eval_strategy": "steps"}
    settings |= {"load_best_model_at_end": True, "metric_for_best_model": "loss"}
    whole = make_trainer(tokenizer, tmp_path / "out", callbacks=[EarlyStoppingCallback(3)], **settings)
    whole.train()
    ended = whole.state.global_step
    assert ended == whole.state.best_global_step + 3 < 40
    for checkpoint in (ended, ended - 1):
        resumed = make_trainer(tokenizer, tmp_path / "out", callbacks=[EarlyStoppingCallback(3)], **settings)
        resumed.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{checkpoint}"))
        assert resumed.state.global_step == ended
        assert resumed.state.best_global_step == whole.state.best_global_step
        assert torch.equal(resumed.model.lm_head.weight, whole.model.lm_head.weight)


def test_an_interrupted_trainer_makes_the_same_updates_and_knows_its_speed(tokenizer, tmp_path, monkeypatch, capsys):
    minutes = SimpleNamespace(perf_counter=itertools.count(step=60).__next__)  # one between two logs
    monkeypatch.setattr("hf_elmo.pretraining.trainer.time", minutes)
    whole = make_trainer(tokenizer, tmp_path / "whole", max_steps=4)
    trainer = make_trainer(tokenizer, tmp_path / "out", max_steps=4, eval_strategy="steps", eval_steps=2)
    set_seed(5)
    whole.train()
    set_seed(5)
    interrupt = trainer.model.register_forward_hook(lambda *_: os.kill(os.getpid(), signal.SIGINT))
    trainer.train()
    interrupt.remove()
    assert trainer.state.global_step == 1
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 4
    assert sum("eval_perplexity" in entry for entry in trainer.state.log_history) == 2  # which disturbs nothing
    assert torch.equal(trainer.model.lm_head.weight, whole.model.lm_head.weight)
    capsys.readouterr()
    make_trainer(tokenizer, tmp_path, max_steps=4).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))
    assert re.findall(r"(\d+) minutes left", capsys.readouterr().err) == ["2", "1", "0"]


def two_parts(tokenizer: ElmoTokenizer) -> PackedWindows:
    """The batches of two processes, one under the other in one process."""
    how = {"window": 5, "seed": 5, "shuffle_block": 3}
    parts = [PackedWindows(Texts(TEXTS), tokenizer, 2, **how, rank=rank, world_size=2) for rank in (0, 1)]
    pairs = zip(*(iter(part._next_batch, None) for part in parts), strict=True)
    both = PackedWindows(Texts(TEXTS), tokenizer, 4, **how)
    both._next_batch = ({name: torch.cat((one[name], other[name])) for name in one} for one, other in pairs).__next__
    return both


def train(tokenizer: ElmoTokenizer, folder: Path) -> Path:
    """The file with the weights and the perplexity after five updates."""
    how = {"max_steps": 5, "gradient_accumulation_steps": 2, "save_steps": 5, "dropout": 0.0}
    trainer = make_trainer(tokenizer, folder / "out", **how)
    processes = trainer.args.world_size
    trainer.train_dataset = two_parts(tokenizer) if processes == 1 else trainer.train_dataset
    trainer.train()
    metrics, file = trainer.evaluate(), folder / f"{processes}.pt"
    if trainer.args.process_index == 0:
        torch.save((trainer.model.state_dict(), metrics["eval_perplexity"]), file)
    return file


@pytest.mark.slow
def test_two_processes_make_the_updates_of_one_with_twice_the_rows(tokenizer, tmp_path):
    with (tmp_path / "vocab.txt").open("a", encoding="utf-8") as file:  # a step sends the rows of few words
        file.writelines(f"word{number}\n" for number in range(200))
    tokenizer = whitespace_tokenizer(vocab_file=str(tmp_path / "vocab.txt"))
    one, perplexity_of_one = torch.load(train(tokenizer, tmp_path))
    assert not launch(write_lines(tmp_path / "worker.py", WORKER.splitlines()), [str(tmp_path)])
    two, perplexity_of_two = torch.load(tmp_path / "2.pt")
    torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)
    assert perplexity_of_two == pytest.approx(perplexity_of_one, rel=1e-4)


@pytest.mark.parametrize(("how", "saved"), DIVERGING.values(), ids=DIVERGING)
def test_a_training_that_diverges_ends_in_an_error(tokenizer, tmp_path, how, saved):
    trainer = make_trainer(tokenizer, tmp_path / "out", optim="sgd", learning_rate=1e30, max_steps=6, **how)
    before = signal.getsignal(signal.SIGINT)
    for fails in (trainer.train, trainer.save_model):
        with pytest.raises(FloatingPointError, match="learning_rate"):
            fails()
    found = sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*"))
    assert found[: len(saved)] == saved
    for name in found:
        weights = ElmoForPreTraining.from_pretrained(tmp_path / "out" / name).parameters()
        assert all(bool(weight.isfinite().all()) for weight in weights)
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert signal.getsignal(signal.SIGINT) is before
