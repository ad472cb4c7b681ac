"""Learning rates for the parts of a model, as Trainer uses them; and that its clipping bounds an unfrozen biLM."""

from pathlib import Path

import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer, learning_rates
from tests.conftest import SENTENCES, TINY, random_model

FIELDS = {
    "encoder_type": "bilstm",
    "encoder_hidden_size": 7,
    "elmo_at_output": True,
    "word_vectors_vocab_size": 5,
    "word_vectors_size": 4,
}


def make(**changes: object) -> ElmoForSequenceClassification:
    return random_model(
        ElmoConfig(**{**TINY, **FIELDS, "freeze_bilm": False, **changes}), ElmoForSequenceClassification
    )


def arguments_for(folder: Path, **changes: object) -> TrainingArguments:
    settings = {
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return TrainingArguments(folder, **{**settings, **changes})


def train(folder: Path, model: torch.nn.Module, tokenizer: ElmoTokenizer, rates: dict, **changes: object) -> Trainer:
    tokenizer.words = ["a", "The"]
    rows = [{**tokenizer(text), "label": number % 2} for number, text in enumerate(SENTENCES)]
    arguments = arguments_for(folder, **changes)
    chosen = learning_rates(model, arguments, **rates)
    trainer = Trainer(model, arguments, DataCollatorWithPadding(tokenizer), rows, optimizer_cls_and_kwargs=chosen)
    trainer.train()
    return trainer


def part(name: str) -> str:
    if "mix" in name:
        return "mix"
    return "bilm" if name.startswith("elmo.") else "word_vectors" if name.startswith("word_vectors") else "head"


@pytest.mark.parametrize("still", ["bilm", "mix", "word_vectors"])
def test_a_rate_of_zero_leaves_that_part_alone(tmp_path: Path, tokenizer: ElmoTokenizer, still: str) -> None:
    model = make()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    train(tmp_path, model, tokenizer, {still: 0.0})
    for name, parameter in model.named_parameters():
        if part(name) == still:
            assert torch.equal(parameter, before[name]), name
    moved = {part(name) for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == {"bilm", "mix", "word_vectors", "head"} - {still}


def test_each_parameter_is_in_one_group_with_its_rate_and_decay(tmp_path: Path) -> None:
    model = make()
    rates = {"bilm": 1e-4, "mix": 0.01, "word_vectors": 0.1}
    optimizer, options = learning_rates(model, arguments_for(tmp_path, optim="adamw_torch", weight_decay=0.3), **rates)
    assert optimizer is torch.optim.AdamW
    found = {}
    for group in options["params"]:
        for parameter in group["params"]:
            assert parameter not in found
            found[parameter] = group["lr"], group["weight_decay"]
    for name, parameter in model.named_parameters():
        decay = 0.3 if parameter.dim() > 1 and part(name) != "mix" else 0.0
        assert found[parameter] == ({**rates, "head": 0.5}[part(name)], decay), name
    assert len(found) == len(list(model.parameters()))


def test_a_schedule_is_for_every_rate(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    trainer = train(tmp_path, make(), tokenizer, {"bilm": 0.1}, max_steps=2, lr_scheduler_type="linear")
    assert {round(group["initial_lr"], 6) for group in trainer.optimizer.param_groups} == {0.1, 0.5}
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {0.0}


def test_gradients_are_clipped_together(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    model = make()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    train(tmp_path, model, tokenizer, {"bilm": 0.5}, max_grad_norm=0.01)
    step = sum((p - before[name]).square().sum() for name, p in model.named_parameters()).sqrt()
    torch.testing.assert_close(step.item(), 0.5 * 0.01, rtol=1e-2, atol=0)  # rate times the norm


def test_an_unfrozen_bilm_learns(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    model = make(classifier_dropout=0.0, encoder_dropout=0.0)
    steps = {"max_steps": 40, "learning_rate": 0.01, "optim": "adamw_torch", "logging_steps": 5, "max_grad_norm": 1.0}
    trainer = train(tmp_path, model, tokenizer, {"bilm": 1e-3, "mix": 0.05}, **steps)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.2 * losses[0]


def test_rates_that_have_no_effect_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"bilm is 0.1, but the model trains no parameter of it: freeze_bilm"):
        learning_rates(make(freeze_bilm=True), arguments_for(tmp_path), bilm=0.1)
    with pytest.raises(ValueError, match=r"mix is -1"):
        learning_rates(make(), arguments_for(tmp_path), mix=-1)
    model = ElmoModel(ElmoConfig(**TINY))
    (group,) = learning_rates(model, arguments_for(tmp_path), mix=0.1)[1]["params"]
    assert group["lr"] == 0.1


def test_rates_serve_one_trainer(tmp_path: Path) -> None:
    model, arguments = make(), arguments_for(tmp_path)
    rates = learning_rates(model, arguments, bilm=0.1)
    Trainer(model, arguments, optimizer_cls_and_kwargs=rates).create_optimizer()
    with pytest.raises(ValueError, match="call learning_rates for each Trainer"):
        Trainer(model, arguments, optimizer_cls_and_kwargs=rates).create_optimizer()


def test_what_is_unfrozen_after_the_rates_were_made_is_refused(tmp_path: Path) -> None:
    model, arguments = make(freeze_bilm=True), arguments_for(tmp_path)
    rates = learning_rates(model, arguments, mix=0.1)
    model.unfreeze_bilm()
    with pytest.raises(ValueError, match=r"elmo\.char_encoder.* is trained, but has no learning rate.*unfreeze_bilm"):
        Trainer(model, arguments, optimizer_cls_and_kwargs=rates).create_optimizer()
    model.freeze_bilm()
    trainer = Trainer(model, arguments, optimizer_cls_and_kwargs=rates)
    assert len(trainer.create_optimizer().param_groups) == 4  # mix, word vectors, the head's weights and its biases


def test_a_head_inside_of_another_network_has_the_rates_of_its_parts(tmp_path: Path) -> None:
    net = torch.nn.ModuleDict({"tagger": make(), "own": torch.nn.Linear(2, 2)})
    rates = {"bilm": 1e-4, "mix": 0.01, "word_vectors": 0.1}
    groups = learning_rates(net, arguments_for(tmp_path), **rates)[1]["params"]
    found = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    for name, parameter in net["tagger"].named_parameters():
        assert found[id(parameter)] == {**rates, "head": 0.5}[part(name)], name
    assert [found[id(parameter)] for parameter in net["own"].parameters()] == [0.5, 0.5]
