"""Trainer fine-tunes ElmoForSequenceClassification, saves it, and the Auto classes give the same predictions."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments

from hf_elmo import ElmoForSequenceClassification, ElmoTokenizer, classification_metrics, loading
from hf_elmo.conversion import convert
from tests.factories import small_config

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


def new_model(**changes: object) -> ElmoForSequenceClassification:
    torch.manual_seed(0)
    return ElmoForSequenceClassification(small_config(num_labels=2, **changes))


SETTINGS = {"per_device_train_batch_size": 16, "learning_rate": 0.03, "seed": 3}
SETTINGS |= {"report_to": [], "use_cpu": True, "disable_tqdm": True}


def make_trainer(
    folder: Path, model: torch.nn.Module, tokenizer: ElmoTokenizer, examples: Examples, **settings: object
) -> Trainer:
    arguments = TrainingArguments(
        folder / "runs", **{**SETTINGS, "save_strategy": "no", "logging_steps": 4, **settings}
    )
    return Trainer(model, arguments, train_dataset=Texts(tokenizer, examples), processing_class=tokenizer)


def losses_of(trainer: Trainer) -> list[float]:
    trainer.train()
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def assert_reloaded_predicts_the_same(folder: Path, trainer: Trainer, examples: Examples) -> np.ndarray:
    """Saves, loads with the Auto classes in another batch order and padding; returns the predicted labels."""
    predicted = trainer.predict(Texts(trainer.processing_class, examples)).predictions
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
    model, examples = new_model(freeze_bilm=frozen, classifier_dropout=0.1), messages(160)
    before = {name: parameter.clone() for name, parameter in model.elmo.bilm.named_parameters()}
    trainer = make_trainer(tmp_path, model, tokenizer, examples[:120], max_steps=40)
    losses = losses_of(trainer)
    assert losses[-1] < losses[0]
    found = assert_reloaded_predicts_the_same(tmp_path, trainer, examples[120:])
    assert (found == [label for _, label in examples[120:]]).mean() > 0.9
    unchanged = [torch.equal(before[name], parameter) for name, parameter in model.elmo.bilm.named_parameters()]
    assert all(unchanged) if frozen else not any(unchanged)


def test_the_model_that_ships_is_fine_tuned_as_readme_says(tmp_path: Path) -> None:
    """Its weights are stored in float16 and computed in float32: in float16 one step of training ends in NaN."""
    model = AutoModelForSequenceClassification.from_pretrained(loading.FOLDER, num_labels=2)
    tokenizer, examples = AutoTokenizer.from_pretrained(loading.FOLDER), messages(96)
    assert model.dtype == torch.float32
    trainer = make_trainer(tmp_path, model, tokenizer, examples[:64], max_steps=12, learning_rate=0.01)
    losses = losses_of(trainer)
    assert losses[-1] < losses[0]
    assert all(np.isfinite(float(entry["grad_norm"])) for entry in trainer.state.log_history if "grad_norm" in entry)
    predicted = trainer.predict(Texts(tokenizer, examples[64:])).predictions.argmax(1)
    assert (predicted == [label for _, label in examples[64:]]).mean() > 0.9  # the majority class has half


def test_training_in_bfloat16_with_checkpointing(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    model, how = new_model(freeze_bilm=False, classifier_dropout=0.0), {"bf16": True, "gradient_checkpointing": True}
    losses = losses_of(make_trainer(tmp_path, model, tokenizer, messages(48), max_steps=9, logging_steps=3, **how))
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
    """What decides an update, before each: the learning rate, the state of the random numbers, and the inputs."""

    def __init__(self, trainer: Trainer) -> None:
        self.steps: dict[int, list[Tensor]] = {}
        trainer.add_callback(self)
        trainer.model.register_forward_pre_hook(self.on_forward, with_kwargs=True)

    def on_step_begin(self, args, state, control, lr_scheduler=None, **kwargs: object) -> None:
        self.last = self.steps[state.global_step] = [torch.tensor(lr_scheduler.get_last_lr()), torch.get_rng_state()]

    def on_forward(self, _module: torch.nn.Module, _arguments: tuple, inputs: dict) -> None:
        self.last.append(inputs["input_ids"])


def test_an_interrupted_training_makes_the_same_updates(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    """A training of six steps, and one that resumes from its third."""
    whole, resumed = (
        make_trainer(
            tmp_path / name, new_model(), tokenizer, messages(60), max_steps=6, save_strategy="steps", save_steps=3
        )
        for name in ("whole", "resumed")
    )
    expected, found = Record(whole).steps, Record(resumed).steps
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "runs" / "checkpoint-3"))
    assert (expected.keys(), found.keys()) == (set(range(6)), {3, 4, 5})
    for step, parts in found.items():
        assert len(parts) == 3
        assert all(torch.equal(one, other) for one, other in zip(parts, expected[step], strict=True))
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(other, one, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("counted", ["all", "non_padding"])
def test_trainer_counts_words_where_it_reads_the_mask(tmp_path: Path, tokenizer: ElmoTokenizer, counted: str) -> None:
    """include_num_input_tokens_seen: "non_padding" counts words; "all" counts their characters, as README says."""
    model, examples = new_model(), messages(32)
    trainer = make_trainer(tmp_path, model, tokenizer, examples, max_steps=2, include_num_input_tokens_seen=counted)
    trainer.train()
    words = sum(map(sum, Texts(tokenizer, examples).encoded["attention_mask"]))  # two batches: each example once
    seen = trainer.state.num_input_tokens_seen
    assert seen == words if counted == "non_padding" else seen > words * model.config.max_word_length


def test_a_trainers_card_has_the_results_that_the_hub_shows(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    """Of `create_model_card`, which `push_to_hub` calls with these arguments: the task, a data set's tag and name."""
    trainer = make_trainer(tmp_path, new_model(), tokenizer, messages(16), max_steps=1)
    trainer.eval_dataset, trainer.compute_metrics = trainer.train_dataset, classification_metrics()
    trainer.train()
    accuracy = trainer.evaluate()["eval_accuracy"]
    trainer.create_model_card(tasks="text-classification", dataset_tags="sms_spam", dataset="SMS Spam Collection")
    (found,) = ModelCard.load(tmp_path / "runs" / "README.md").data.eval_results
    assert (found.task_type, found.dataset_type, found.metric_type) == ("text-classification", "sms_spam", "accuracy")
    assert found.metric_value == pytest.approx(accuracy, abs=1e-4)


def test_sms_spam_with_allennlps_test_model(tmp_path: Path, shared: Path) -> None:
    fixture, spam = shared / "data" / "elmo_fixture", shared / "data" / "sms_spam" / "spam.csv"
    convert(fixture / "options.json", fixture / "lm_weights.hdf5", tmp_path / "elmo")
    torch.manual_seed(0)
    model = ElmoForSequenceClassification.from_pretrained(tmp_path / "elmo", num_labels=2)
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "elmo")
    with spam.open(encoding="latin-1", newline="") as file:
        examples = [(row[1], int(row[0] == "spam")) for row in list(csv.reader(file))[1:]]
    assert len(examples) == 5572
    settings = {"max_steps": 15, "logging_steps": 5, "per_device_train_batch_size": 32}
    trainer = make_trainer(tmp_path, model, tokenizer, examples[:4457], **settings)
    losses = losses_of(trainer)
    assert losses[-1] < losses[0]
    assert set(assert_reloaded_predicts_the_same(tmp_path, trainer, examples[-200:])) <= {0, 1}
