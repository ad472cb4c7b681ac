"""Training the language models: the published recipe, exact resuming, several processes, evaluation."""

import json
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainingArguments, set_seed

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoTokenizer, learning_rates, settle
from hf_elmo.pretraining.checkpoints import DATA_FILE, last_whole_checkpoint
from hf_elmo.pretraining.data import PackedWindows, PaddedTexts
from hf_elmo.pretraining.perplexity import perplexity
from hf_elmo.pretraining.text import DatasetTexts
from hf_elmo.pretraining.trainer import ElmoPreTrainer, ElmoPreTrainingArguments
from hf_elmo.pretraining.vocabulary import build_vocabulary
from tests.conftest import TINY
from tests.pretraining.gloo import launch

TEXTS = [
    "the cat sat on the mat and the dog sat on the cat",
    "a dog saw a cat",
    "rain fell all day and nobody went out to see it fall",
    "nobody saw the rain",
    "the dog and the cat went out",
    "out in the rain sat a cat and saw the dog go in",
    "all day it fell",
]
TEXTS += [" ".join(reversed(text.split())) for text in TEXTS]


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    build_vocabulary(text.split() for text in TEXTS).save(tmp_path / "vocab.txt")
    return ElmoTokenizer(word_splitting="whitespace", vocab_file=str(tmp_path / "vocab.txt"))


def make_trainer(tokenizer: ElmoTokenizer, folder: Path, padded: bool = False, **arguments) -> ElmoPreTrainer:
    """A trainer of two rows with windows of five words, every kind of randomness on."""
    settings = {"max_steps": 9, "save_steps": 4, "logging_steps": 1, "report_to": [], "use_cpu": True, "seed": 5}
    settings |= {"disable_tqdm": True, "per_device_train_batch_size": 2, **arguments}
    args = ElmoPreTrainingArguments(output_dir=str(folder), **settings)
    set_seed(args.seed)
    config = ElmoConfig(**TINY, vocab_size=len(tokenizer.vocabulary), num_sampled=7, hidden_dropout=0.1)
    data = {"batch_size": 2, "seed": 5, "shuffle_block": 3}
    data |= {"rank": args.process_index, "world_size": args.world_size}
    source = DatasetTexts(TEXTS)
    dataset = (
        PaddedTexts(source, tokenizer, max_words=6, sort_batches=2, **data)
        if padded
        else PackedWindows(source, tokenizer, window=5, **data)
    )
    return ElmoPreTrainer(ElmoForPreTraining(config), args, dataset, DatasetTexts(TEXTS[:3]), tokenizer)


# -- the recipe --------------------------------------------------------------------------------------------------------


def test_defaults_are_the_published_recipe(tokenizer, tmp_path):
    trainer = make_trainer(tokenizer, tmp_path / "out")
    trainer.create_optimizer()
    assert isinstance(trainer.optimizer, torch.optim.Adagrad)
    group = trainer.optimizer.param_groups[0]
    assert (group["lr"], group["initial_accumulator_value"]) == (0.2, 1.0)
    assert (trainer.args.max_grad_norm, trainer.args.lr_scheduler_type) == (10.0, "constant")


def test_a_step_is_adagrad_on_the_loss_summed_over_a_window(tokenizer, tmp_path):
    trainer = make_trainer(tokenizer, tmp_path / "out", max_steps=1, loss_scale=20.0, max_grad_norm=0.3)
    trainer.model.config.num_sampled = trainer.model.config.vocab_size
    trainer.model.dropout.p = trainer.model.elmo.bilm.dropout.p = 0.0
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    batch = next(iter(PackedWindows(DatasetTexts(TEXTS), tokenizer, 2, 5, seed=5, shuffle_block=3)))
    (trainer.model(**batch).loss * 20).backward()
    gradients = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.model.zero_grad()
    trainer.train()
    norm = math.sqrt(sum(float(gradient.pow(2).sum()) for gradient in gradients.values()))
    assert norm > 0.3, "nothing is clipped: the test would prove too little"
    for name, parameter in trainer.model.named_parameters():
        if name in before:
            gradient = gradients[name] * (0.3 / norm)
            expected = before[name] - 0.2 * gradient / (1.0 + gradient**2).sqrt()
            torch.testing.assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-6)


def test_the_loss_falls_and_is_logged_in_nats_a_word(tokenizer, tmp_path):
    trainer = make_trainer(tokenizer, tmp_path / "out", max_steps=200, logging_steps=20, save_strategy="no")
    trainer.model.config.num_sampled = trainer.model.config.vocab_size  # a sample of 7 words makes a noisy loss
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[0] == pytest.approx(math.log(len(tokenizer.vocabulary)), abs=1.0)
    assert losses[-1] < 0.9 * losses[0]
    assert all(entry["words_per_second"] > 0 for entry in trainer.state.log_history if "loss" in entry)


@pytest.mark.parametrize("optim", ["adagrad", "adamw_torch"])
def test_optimizers(tokenizer, tmp_path, optim):
    trainer = make_trainer(tokenizer, tmp_path / "out", optim=optim, learning_rate=0.01, save_strategy="no")
    trainer.train()
    assert type(trainer.optimizer.optimizer).__name__ == {"adagrad": "Adagrad", "adamw_torch": "AdamW"}[optim]
    assert trainer.optimizer.param_groups[0]["lr"] == 0.01


def test_adagrad_has_the_settings_that_are_given(tokenizer, tmp_path):
    """The accumulator's first value, which the recipe sets, and those of `optim_args`; with rates of parts, too."""
    trainer = make_trainer(tokenizer, tmp_path / "out", adagrad_accumulator=0.7, optim_args="eps=0.5,lr_decay=0.1")
    found = [trainer.create_optimizer().defaults]
    rates = learning_rates(trainer.model, trainer.args, bilm=0.1)
    other = ElmoPreTrainer(
        trainer.model, trainer.args, trainer.train_dataset, processing_class=tokenizer, optimizer_cls_and_kwargs=rates
    )
    found.append(other.create_optimizer().defaults)
    for defaults in found:
        assert [defaults[name] for name in ("initial_accumulator_value", "eps", "lr_decay")] == [0.7, 0.5, 0.1]


def test_the_best_model_is_the_one_with_the_lowest_perplexity(tmp_path):
    arguments = ElmoPreTrainingArguments(str(tmp_path), metric_for_best_model="perplexity", use_cpu=True)
    assert arguments.greater_is_better is False


def test_bf16(tokenizer, tmp_path):
    trainer = make_trainer(tokenizer, tmp_path / "out", bf16=True, save_strategy="no")
    trainer.train()
    assert math.isfinite(trainer.state.log_history[0]["loss"])
    assert trainer.model.lm_head.weight.dtype == torch.float32


# -- state -------------------------------------------------------------------------------------------------------------


def states_seen(trainer: ElmoPreTrainer, monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Each step's input characters and the state that the model was given and gave back."""
    seen, forward = [], ElmoForPreTraining.forward

    def record(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        seen.append((kwargs["input_ids"], kwargs.get("state"), output.state))
        return output

    monkeypatch.setattr(ElmoForPreTraining, "forward", record)
    trainer.train()
    return seen


def test_windows_begin_with_the_state_that_the_last_ended_with(tokenizer, tmp_path, monkeypatch):
    seen = states_seen(make_trainer(tokenizer, tmp_path / "out", max_steps=3), monkeypatch)
    assert seen[0][1] is None
    for (_, _, before), (_, given, _) in pairwise(seen):
        assert all(torch.equal(a, b) and not b.requires_grad for a, b in zip(before, given, strict=True))


def test_padded_texts_begin_with_no_state(tokenizer, tmp_path, monkeypatch):
    seen = states_seen(make_trainer(tokenizer, tmp_path / "out", padded=True, max_steps=3), monkeypatch)
    assert [given for _, given, _ in seen] == [None] * 3


def test_reset_state_begins_sentences_from_zero(tokenizer, tmp_path, monkeypatch):
    seen = states_seen(make_trainer(tokenizer, tmp_path / "out", reset_state=True, max_steps=9), monkeypatch)
    zeroed = 0
    for (_, _, before), (characters, given, _) in pairwise(seen):
        begins = characters[:, 0, 1] == tokenizer.bos_token_id
        zeroed += int(begins.sum())
        for old, new in zip(before, given, strict=True):
            assert torch.equal(new[:, :, ~begins], old[:, :, ~begins])
            assert (new[:, :, begins] == 0).all()
    assert zeroed, "no window began with a sentence: the test would prove too little"


def test_reset_state_begins_sentences_from_the_models_own_start(tokenizer, tmp_path, monkeypatch):
    trainer = make_trainer(tokenizer, tmp_path / "out", reset_state=True, max_steps=9, learning_rate=1e-9)
    settle(trainer.model, tokenizer, ["The cat sat ."])
    starts = [
        part.detach().clone() for part in (trainer.model.elmo.bilm.initial_hidden, trainer.model.elmo.bilm.initial_cell)
    ]
    of_rows = 0
    for (_, _, before), (characters, given, _) in pairwise(states_seen(trainer, monkeypatch)):
        begins = characters[:, 0, 1] == tokenizer.bos_token_id
        of_rows += int(begins.sum())
        for old, new, start in zip(before, given, starts, strict=True):
            assert new.requires_grad  # the start learns
            assert torch.equal(new[:, :, ~begins], old[:, :, ~begins])
            wanted = start[:, :, None].expand(-1, -1, int(begins.sum()), -1)
            torch.testing.assert_close(new[:, :, begins], wanted, atol=1e-7, rtol=0)
    assert of_rows, "no window began with a sentence: the test would prove too little"


@pytest.mark.parametrize("padded", [False, True], ids=["windows", "padded"])
@pytest.mark.parametrize("counted", ["all", "non_padding"])
def test_input_tokens_are_words(tokenizer, tmp_path, monkeypatch, padded, counted):
    trainer = make_trainer(
        tokenizer, tmp_path / "out", padded=padded, max_steps=3, include_num_input_tokens_seen=counted
    )
    words = 0
    for characters, *_ in states_seen(trainer, monkeypatch):
        words += int((characters[..., 0] != 0).sum()) if counted == "non_padding" else characters[..., 0].numel()
    assert trainer.state.num_input_tokens_seen == words > 0


# -- resuming ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padded", [False, True], ids=["windows", "padded"])
@pytest.mark.parametrize("accumulation", [1, 2], ids=["single", "accumulated"])
def test_a_stopped_run_resumed_makes_the_same_updates(tokenizer, tmp_path, padded, accumulation):
    settings = {"padded": padded, "gradient_accumulation_steps": accumulation, "num_train_epochs": 2, "max_steps": -1}
    whole = make_trainer(tokenizer, tmp_path / "whole", **settings)
    whole.train()
    assert whole.state.global_step > 2 * 4, "the rest is too short: the test would prove too little"
    first = make_trainer(tokenizer, tmp_path / "stopped", **settings)
    first.train()
    resumed = make_trainer(tokenizer, tmp_path / "stopped", **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "stopped" / "checkpoint-4"))
    assert resumed.state.global_step == whole.state.global_step
    for (name, expected), (_, actual) in zip(
        whole.model.named_parameters(), resumed.model.named_parameters(), strict=True
    ):
        assert torch.equal(actual, expected), name
    losses = [[entry["loss"] for entry in trainer.state.log_history if "loss" in entry] for trainer in (whole, resumed)]
    assert losses[0] == losses[1]
    assert resumed.state.epoch == whole.state.epoch


def test_a_checkpoint_is_a_model_with_tokenizer_and_vocabulary(tokenizer, tmp_path):
    make_trainer(tokenizer, tmp_path / "out", max_steps=4).train()
    folder = tmp_path / "out" / "checkpoint-4"
    assert isinstance(ElmoForPreTraining.from_pretrained(folder), ElmoForPreTraining)
    assert ElmoTokenizer.from_pretrained(folder).vocabulary == tokenizer.vocabulary
    assert json.loads((folder / "elmo_data.json").read_text())["step"] == 4


def test_resuming_from_the_last_checkpoint(tokenizer, tmp_path):
    make_trainer(tokenizer, tmp_path / "out", max_steps=4).train()
    trainer = make_trainer(tokenizer, tmp_path / "out", max_steps=6)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 6


@pytest.mark.parametrize("resume", [True, "checkpoint"])
def test_nothing_to_resume_from_is_an_error(tokenizer, tmp_path, resume):
    trainer = make_trainer(tokenizer, tmp_path / "out")
    (tmp_path / "out").mkdir(exist_ok=True)
    with pytest.raises(ValueError, match=r"no checkpoint|elmo_data\.json"):
        trainer.train(resume_from_checkpoint=resume if resume is True else str(tmp_path))


def test_the_wrong_process_is_refused(tokenizer, tmp_path):
    args = ElmoPreTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    data = PackedWindows(DatasetTexts(TEXTS), tokenizer, 2, 5, rank=1, world_size=3)
    model = ElmoForPreTraining(ElmoConfig(**TINY, vocab_size=9))
    with pytest.raises(ValueError, match="process 1 of 3, but this is process 0 of 1"):
        ElmoPreTrainer(model, args, data)


@pytest.mark.parametrize(
    "name", ["data_collator", "compute_metrics", "preprocess_logits_for_metrics", "compute_loss_func"]
)
def test_what_trainer_would_call_and_this_one_does_not_is_refused(tokenizer, tmp_path, name):
    made = make_trainer(tokenizer, tmp_path / "out")
    ElmoPreTrainer(made.model, made.args, made.train_dataset, **{name: None})
    with pytest.raises(ValueError, match=f"{name} is given, but has no effect here: "):
        ElmoPreTrainer(made.model, made.args, made.train_dataset, **{name: lambda *_: {}})


# -- evaluation --------------------------------------------------------------------------------------------------------


def test_evaluation_is_the_perplexity_of_sentences(tokenizer, tmp_path):
    trainer = make_trainer(tokenizer, tmp_path / "out")
    metrics = trainer.evaluate()
    expected = perplexity(trainer.model, tokenizer, DatasetTexts(TEXTS[:3]))
    assert metrics["eval_perplexity"] == pytest.approx(expected.mean, rel=1e-5)
    assert metrics["eval_forward_perplexity"] == pytest.approx(expected.forward, rel=1e-5)
    assert metrics["eval_backward_perplexity"] == pytest.approx(expected.backward, rel=1e-5)
    assert metrics["eval_loss"] == pytest.approx(math.log(expected.mean), rel=1e-5)


def test_evaluation_does_not_disturb_the_training(tokenizer, tmp_path):
    trainers = [
        make_trainer(tokenizer, tmp_path / how, eval_strategy=how, eval_steps=2, save_strategy="no")
        for how in ("no", "steps")
    ]
    for trainer in trainers:
        set_seed(1)
        trainer.train()
    assert torch.equal(trainers[0].model.lm_head.weight, trainers[1].model.lm_head.weight)
    assert sum("eval_perplexity" in entry for entry in trainers[1].state.log_history) == 5


# -- several processes -------------------------------------------------------------------------------------------------

WORKER = """
import sys, torch
from pathlib import Path
from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining import trainer as module
from hf_elmo.pretraining.data import PackedWindows, DatasetTexts
from hf_elmo.pretraining.exchange import mean_rows
from tests.pretraining.test_trainer import TEXTS, TwoParts, make_trainer

folder, rows, accumulation = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
tokenizer = ElmoTokenizer(word_splitting="whitespace", vocab_file=str(folder / "vocab.txt"))
trainer = make_trainer(tokenizer, folder / "out", max_steps=5, gradient_accumulation_steps=accumulation, save_steps=5)
args = trainer.args
windows = TwoParts if args.world_size == 1 else PackedWindows
trainer.train_dataset = windows(
    DatasetTexts(TEXTS), tokenizer, rows, 5, seed=5, shuffle_block=3, rank=args.process_index,
    world_size=args.world_size,
)
trainer.model.dropout.p = trainer.model.elmo.bilm.dropout.p = 0.0
sent_rows = []
module.mean_rows = lambda parameters: sent_rows.append(mean_rows(parameters))
trainer.train()
metrics = trainer.evaluate()
if args.process_index == 0:
    weights = {name: tensor for name, tensor in trainer.model.state_dict().items()}
    torch.save((weights, metrics["eval_perplexity"], sent_rows), sys.argv[4])
"""


class TwoParts(PackedWindows):
    """The batches of two processes, one under the other in one process."""

    def __init__(self, source: DatasetTexts, tokenizer: ElmoTokenizer, batch_size: int, window: int, **how) -> None:
        super().__init__(source, tokenizer, batch_size, window, **how)
        ranks = [{**how, "rank": rank, "world_size": 2} for rank in (0, 1)]
        self.parts = [PackedWindows(source, tokenizer, batch_size // 2, window, **own) for own in ranks]

    def _next_batch(self) -> dict[str, torch.Tensor]:
        first, second = (part._next_batch() for part in self.parts)
        return {name: torch.cat((first[name], second[name])) for name in first}


def test_two_processes_make_the_updates_of_one_with_twice_the_rows(tokenizer, tmp_path):
    with (tmp_path / "vocab.txt").open("a", encoding="utf-8") as file:  # a step touches few of the words
        file.writelines(f"word{number}\n" for number in range(200))
    results, accumulation = [], 2
    for processes in (1, 2):
        out = tmp_path / f"{processes}.pt"
        arguments = [str(tmp_path), str(4 // processes), str(accumulation), str(out)]
        launch(tmp_path, WORKER, processes, arguments)
        results.append(torch.load(out))
    (one, perplexity_of_one, _), (two, perplexity_of_two, sent_rows) = results
    assert sent_rows == [True] * 5  # once an update
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
    assert perplexity_of_two == pytest.approx(perplexity_of_one, rel=1e-4)
    assert {file.name for file in (tmp_path / "out" / "checkpoint-5").glob("elmo_state_*")} == {
        "elmo_state_0.pt",
        "elmo_state_1.pt",
    }


def test_a_checkpoint_is_loaded_to_the_cpu_of_any_process(tmp_path, monkeypatch):
    args = ElmoPreTrainingArguments(str(tmp_path), use_cpu=True)
    monkeypatch.setattr(
        TrainingArguments, "device", property(lambda self: torch.device("cpu", 1))
    )  # as accelerate says
    torch.save(torch.arange(3), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", map_location=args.device).tolist() == [0, 1, 2]


# -- divergence --------------------------------------------------------------------------------------------------------

DIVERGES = {"optim": "sgd", "learning_rate": 1e30, "max_steps": 6}


@pytest.mark.parametrize("often", [{"bf16": False}, {"bf16": True}], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("how", "saved"),
    [
        ({"logging_steps": 1, "save_strategy": "no"}, []),
        ({"logging_steps": 100, "save_steps": 3}, []),
        ({"logging_steps": 100, "save_strategy": "no"}, []),
        ({"logging_steps": 1, "save_steps": 1, "logging_nan_inf_filter": True}, ["checkpoint-1"]),
    ],
    ids=["when it is logged", "when a checkpoint is due", "at the end", "with the filter"],
)
def test_a_training_that_diverges_ends_in_an_error(tokenizer, tmp_path, how, saved, often):
    trainer = make_trainer(tokenizer, tmp_path / "out", **{**DIVERGES, **how, **often})
    remedy = r"Train with a lower learning_rate \(--learning-rate\) than 1e\+30, from the beginning"
    with pytest.raises(
        FloatingPointError, match=rf"the training diverged: the .* is (nan|-?inf) at step [2-6]\b.*{remedy}"
    ):
        trainer.train()
    found = sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*"))
    assert found[: len(saved)] == saved
    for name in found:
        weights = ElmoForPreTraining.from_pretrained(tmp_path / "out" / name).parameters()
        assert all(bool(weight.isfinite().all()) for weight in weights)
    with pytest.raises(FloatingPointError, match="and is not saved"):
        trainer.save_model()
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_weights_that_are_not_finite_are_not_evaluated(tokenizer, tmp_path):
    trainer = make_trainer(
        tokenizer, tmp_path / "out", eval_strategy="steps", eval_steps=4, logging_steps=9, **DIVERGES
    )
    trainer.eval_dataset = DatasetTexts([text.split() for text in TEXTS])
    with pytest.raises(FloatingPointError, match=r"the weight \S+ is (nan|-?inf) at step 4"):
        trainer.train()


def test_a_step_that_a_loss_scaler_leaves_out_is_no_divergence(tokenizer, tmp_path):
    trainer = make_trainer(tokenizer, tmp_path / "out")
    overflow = {"loss": 2.5, "grad_norm": math.inf}
    with pytest.raises(FloatingPointError, match="the norm of the gradients is inf"):
        trainer.log(dict(overflow))
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
    trainer.log(dict(overflow))
    with pytest.raises(FloatingPointError, match="the loss is nan"):
        trainer.log({"loss": math.nan, "grad_norm": math.inf})


def test_an_epoch_begins_without_a_random_number(tokenizer, tmp_path):
    trainer = make_trainer(tokenizer, tmp_path / "out")
    before = torch.get_rng_state()
    next(iter(trainer.get_train_dataloader()))
    assert torch.equal(torch.get_rng_state(), before)


def test_words_per_second_counts_each_word_once(tokenizer, tmp_path, monkeypatch):
    """Of a clock that moves by a second a step."""
    trainer, clock = make_trainer(tokenizer, tmp_path / "out", max_steps=4, logging_steps=2, save_strategy="no"), [0.0]
    monkeypatch.setattr("hf_elmo.pretraining.trainer.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    step = trainer.training_step

    def slowly(*arguments):
        clock[0] += 1.0
        return step(*arguments)

    monkeypatch.setattr(trainer, "training_step", slowly)
    trainer.train()
    assert [entry["words_per_second"] for entry in trainer.state.log_history if "loss" in entry] == [10.0, 10.0]


def test_a_checkpoint_that_is_written_again_is_not_whole_meanwhile(tokenizer, tmp_path, monkeypatch):
    make_trainer(tokenizer, tmp_path / "out").train()
    trainer = make_trainer(tokenizer, tmp_path / "out")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(trainer, "_save", full)
    with pytest.raises(OSError, match="no space left"):
        trainer.train(resume_from_checkpoint=tmp_path / "out" / "checkpoint-4")
    assert last_whole_checkpoint(tmp_path / "out").name == "checkpoint-9"
    assert not (tmp_path / "out" / "checkpoint-8" / DATA_FILE).exists()
