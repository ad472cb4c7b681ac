"""Trainer fine-tunes ElmoForSequenceClassification, saves it, and the Auto classes give the same predictions."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoTokenizer, classification_metrics, loading
from hf_elmo.conversion import convert
from tests.conftest import TINY

Examples = list[tuple[str, int]]


class Texts(torch.utils.data.Dataset):
    """Labeled texts, tokenized when asked for."""

    def __init__(self, tokenizer: ElmoTokenizer, examples: Examples) -> None:
        texts, self.labels = zip(*examples, strict=True)
        self.encoded = tokenizer(list(texts), truncation=True, max_length=40)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> dict:
        return {**{key: value[i] for key, value in self.encoded.items()}, "label": self.labels[i]}


def messages(number: int) -> Examples:
    """Texts that a reader of characters can tell apart: prizes are shouted, with digits."""
    rng = np.random.default_rng(5)
    words = ["see", "you", "at", "home", "tonight", "ok", "call", "me", "later"]
    examples = []
    for i in range(number):
        text = " ".join(rng.choice(words, size=rng.integers(2, 9)))
        examples.append((f"{text} {text.upper()} {rng.integers(10_000, 99_999)} !" if i % 2 else text, i % 2))
    return examples


def sms(folder: Path) -> Examples:
    with (folder / "data" / "sms_spam" / "spam.csv").open(encoding="latin-1", newline="") as file:
        return [(row[1], int(row[0] == "spam")) for row in list(csv.reader(file))[1:]]


def train(
    folder: Path, model: ElmoForSequenceClassification, tokenizer: ElmoTokenizer, examples: Examples, **changes: object
) -> Trainer:
    settings = {
        "max_steps": 40,
        "per_device_train_batch_size": 16,
        "learning_rate": 0.03,
        "logging_steps": 10,
        "save_strategy": "no",
        "seed": 3,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    arguments = TrainingArguments(folder / "runs", **{**settings, **changes})
    trainer = Trainer(model, arguments, train_dataset=Texts(tokenizer, examples), processing_class=tokenizer)
    trainer.train()
    return trainer


def assert_reloaded_predicts_the_same(folder: Path, trainer: Trainer, examples: Examples) -> np.ndarray:
    """Saves, loads with the Auto classes in another batch order and padding; returns the predicted labels."""
    tokenizer = trainer.processing_class
    predicted = trainer.predict(Texts(tokenizer, examples)).predictions
    trainer.save_model(folder / "saved")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "saved")
    saved = AutoTokenizer.from_pretrained(folder / "saved")
    assert type(model) is ElmoForSequenceClassification
    assert not model.training
    logits = []
    with torch.no_grad():
        for first in range(0, len(examples), 37):
            texts = [text for text, _ in examples[first : first + 37]]
            batch = saved(texts, truncation=True, max_length=40, padding=True, padding_side="left", return_tensors="pt")
            logits.append(model(**batch).logits)
    np.testing.assert_allclose(torch.cat(logits).numpy(), predicted, atol=1e-5)
    return predicted.argmax(1)


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "unfrozen"])
def test_texts_that_the_test_makes_are_learned(tmp_path: Path, tokenizer: ElmoTokenizer, frozen: bool) -> None:
    torch.manual_seed(0)
    model = ElmoForSequenceClassification(ElmoConfig(**TINY, num_labels=2, freeze_bilm=frozen, classifier_dropout=0.1))
    before = {name: parameter.clone() for name, parameter in model.elmo.bilm.named_parameters()}
    examples = messages(160)
    trainer = train(tmp_path, model, tokenizer, examples[:120])
    found = assert_reloaded_predicts_the_same(tmp_path, trainer, examples[120:])
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert float(losses[-1]) < float(losses[0])
    assert (found == [label for _, label in examples[120:]]).mean() > 0.9
    unchanged = [torch.equal(before[name], parameter) for name, parameter in model.elmo.bilm.named_parameters()]
    assert all(unchanged) if frozen else not any(unchanged)


def test_the_model_that_ships_is_fine_tuned_as_readme_says(tmp_path: Path) -> None:
    """Its weights are stored in float16 and computed in float32: in float16 one step of training ends in NaN."""
    model = AutoModelForSequenceClassification.from_pretrained(loading.FOLDER, num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(loading.FOLDER)
    assert model.dtype == torch.float32
    examples = messages(96)
    trainer = train(tmp_path, model, tokenizer, examples[:64], max_steps=12, learning_rate=0.01, logging_steps=4)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert all(np.isfinite(float(entry["grad_norm"])) for entry in trainer.state.log_history if "grad_norm" in entry)
    assert float(losses[-1]) < float(losses[0])
    predicted = trainer.predict(Texts(tokenizer, examples[64:])).predictions.argmax(1)
    assert (predicted == [label for _, label in examples[64:]]).mean() > 0.9  # the majority class has half


def test_training_in_bfloat16_with_checkpointing(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    torch.manual_seed(0)
    model = ElmoForSequenceClassification(ElmoConfig(**TINY, num_labels=2, freeze_bilm=False, classifier_dropout=0.0))
    trainer = train(
        tmp_path, model, tokenizer, messages(48), max_steps=9, logging_steps=3, bf16=True, gradient_checkpointing=True
    )
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(parameter.isfinite().all() for parameter in model.parameters())


# How far two runs of the same updates may be apart where a library adds in another order, as MKL does with where the
# memory lies: a sum of n float32 numbers by n * 2^-24 of the sum of their sizes (Higham 2002, section 3.1). The longest
# chain of sums from characters to a gradient has under n = 512 additions, and cancellation is allowed to make that 8
# times more of the gradient itself. AdamW moves a weight by lr * m / sqrt(v), both made of gradients: twice that, times
# lr = 0.03. A difference that one step makes may double in each of the next, so three steps make 1 + 2 + 4 of it:
# 1.0e-4. Other data, random numbers or optimizer state change a step by lr itself, 300 times as much.
ROUNDING = 7 * 0.03 * 2 * 8 * 512 * 2.0**-24


class Record(TrainerCallback):
    """What decides an update, before each: the learning rate and the state of the random numbers."""

    def __init__(self) -> None:
        self.steps: dict[int, tuple[float, Tensor]] = {}

    def on_step_begin(self, args, state, control, lr_scheduler=None, **kwargs: object) -> None:
        self.steps[state.global_step] = lr_scheduler.get_last_lr(), torch.get_rng_state()


def interrupt(folder: Path, tokenizer: ElmoTokenizer) -> tuple[Trainer, Trainer]:
    """A training of six steps, and one that resumes from its third."""

    def make(name: str) -> Trainer:
        torch.manual_seed(0)
        model = ElmoForSequenceClassification(ElmoConfig(**TINY, num_labels=2))
        arguments = TrainingArguments(
            folder / name,
            max_steps=6,
            per_device_train_batch_size=16,
            learning_rate=0.03,
            save_steps=3,
            seed=3,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        texts = Texts(tokenizer, messages(60))
        trainer = Trainer(model, arguments, train_dataset=texts, processing_class=tokenizer, callbacks=[Record()])
        trainer.inputs = []
        trainer.model.register_forward_pre_hook(
            lambda _, __, inputs: trainer.inputs.append(inputs["input_ids"]), with_kwargs=True
        )
        return trainer

    whole, resumed = make("whole"), make("resumed")
    whole.train()
    resumed.train(resume_from_checkpoint=str(folder / "whole" / "checkpoint-3"))
    return whole, resumed


def test_an_interrupted_training_makes_the_same_updates(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    whole, resumed = interrupt(tmp_path, tokenizer)
    assert len(whole.inputs) == 6
    assert len(resumed.inputs) == 3
    for expected, found in zip(whole.inputs[3:], resumed.inputs, strict=True):
        assert torch.equal(found, expected)
    expected, found = (
        next(each for each in trainer.callback_handler.callbacks if isinstance(each, Record)).steps
        for trainer in (whole, resumed)
    )
    assert found.keys() == {3, 4, 5}
    for step, (rate, state) in found.items():
        assert rate == expected[step][0]
        assert torch.equal(state, expected[step][1])
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(other, one, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("counted", ["all", "non_padding"])
def test_trainer_counts_words_where_it_reads_the_mask(tmp_path: Path, tokenizer: ElmoTokenizer, counted: str) -> None:
    """include_num_input_tokens_seen: "non_padding" counts words; "all" counts their characters, as README says."""
    model = ElmoForSequenceClassification(ElmoConfig(**TINY, num_labels=2))
    examples = messages(32)
    trainer = train(tmp_path, model, tokenizer, examples, max_steps=2, include_num_input_tokens_seen=counted)
    encoded = Texts(tokenizer, examples).encoded  # two batches of 16: each example once
    words = sum(map(sum, encoded["attention_mask"]))
    seen = trainer.state.num_input_tokens_seen
    assert seen == words if counted == "non_padding" else seen > words * model.config.max_word_length


def test_a_trainers_card_has_the_results_that_the_hub_shows(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    """Of `create_model_card`, which `push_to_hub` calls with these arguments: the task, a data set's tag and name."""
    model, texts = ElmoForSequenceClassification(ElmoConfig(**TINY, num_labels=2)), Texts(tokenizer, messages(16))
    arguments = TrainingArguments(tmp_path, max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True)
    metrics = classification_metrics()
    texts = {"train_dataset": texts, "eval_dataset": texts}
    trainer = Trainer(model, arguments, **texts, processing_class=tokenizer, compute_metrics=metrics)
    trainer.train()
    accuracy = trainer.evaluate()["eval_accuracy"]
    trainer.create_model_card(tasks="text-classification", dataset_tags="sms_spam", dataset="SMS Spam Collection")
    (found,) = ModelCard.load(tmp_path / "README.md").data.eval_results
    assert (found.task_type, found.dataset_type, found.metric_type) == ("text-classification", "sms_spam", "accuracy")
    assert found.metric_value == pytest.approx(accuracy, abs=1e-4)


def test_sms_spam_with_allennlps_test_model(tmp_path: Path, shared: Path) -> None:
    fixture = shared / "data" / "elmo_fixture"
    convert(fixture / "options.json", fixture / "lm_weights.hdf5", tmp_path / "elmo")
    torch.manual_seed(0)
    model = ElmoForSequenceClassification.from_pretrained(tmp_path / "elmo", num_labels=2)
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "elmo")
    examples = sms(shared)
    assert len(examples) == 5572
    trainer = train(
        tmp_path,
        model,
        tokenizer,
        examples[:4457],
        max_steps=15,
        logging_steps=5,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
    )
    found = assert_reloaded_predicts_the_same(tmp_path, trainer, examples[-200:])
    assert set(found) <= {0, 1}
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert float(losses[-1]) < float(losses[0])
