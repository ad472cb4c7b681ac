"""Trainer fine-tunes classifiers, saves them, and the Auto classes give the same predictions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

from hf_elmo import ElmoForSequenceClassification, ElmoTokenizer
from hf_elmo.checkpoints import loading
from tests.factories import small_config, word_level

SETTINGS = {"per_device_train_batch_size": 16, "learning_rate": 0.03, "seed": 3, "save_strategy": "no"}
SETTINGS |= {"report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 3}


def messages(number: int) -> tuple[list[str], list[int]]:
    """Texts that a reader of characters can tell apart: prizes are shouted, with digits."""
    rng, texts = np.random.default_rng(5), []
    for i in range(number):
        text = " ".join(rng.choice(["see", "you", "at", "home", "ok", "call", "me"], size=rng.integers(1, 4)))
        texts.append(f"{text} {text.upper()} {rng.integers(10_000, 99_999)} !" if i % 2 else text)
    return texts, [i % 2 for i in range(number)]


def train(
    folder: Path, model: torch.nn.Module, tokenizer: ElmoTokenizer, rows: int, least: float, **settings: object
) -> tuple[Trainer, np.ndarray]:
    """Trains a model on messages, and returns the trainer and the logits of 32 others."""
    texts, labels = messages(rows + 32)
    encoded = tokenizer(texts, truncation=True, max_length=40)
    examples = [{**{k: v[i] for k, v in encoded.items()}, "label": label} for i, label in enumerate(labels)]
    arguments = TrainingArguments(folder / "runs", **{**SETTINGS, **settings})
    trainer = Trainer(model, arguments, train_dataset=examples[:rows], processing_class=tokenizer)
    trainer.train()
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[len(losses) // 2 :]) < sum(losses[: len(losses) // 2])
    predicted = trainer.predict(examples[rows:]).predictions
    assert (predicted.argmax(1) == labels[rows:]).mean() > least  # the majority class has half
    return trainer, predicted


@pytest.mark.parametrize("kind", ["frozen", "unfrozen", "word level"])
def test_a_classifier_learns_and_is_saved(tmp_path: Path, tokenizer: ElmoTokenizer, kind: str) -> None:
    """Unfrozen in bfloat16, with gradient checkpointing. With words alone, what is shouted is unknown."""
    frozen = kind == "frozen"
    fields = {"num_labels": 2, "freeze_bilm": frozen, "classifier_dropout": 0.1}
    if kind == "word level":
        model, tokenizer = word_level(tmp_path, ["see", "home"])
        fields |= {"char_filters": [], "word_vocab_size": model.config.word_vocab_size}
    torch.manual_seed(0)
    model = ElmoForSequenceClassification(small_config(**fields))
    before = {name: parameter.clone() for name, parameter in model.elmo.bilm.named_parameters()}
    how = {"learning_rate": 0.3} if frozen else {"bf16": True, "gradient_checkpointing": True}
    how |= {"max_steps": 18, "include_num_input_tokens_seen": "non_padding"}
    trainer, predicted = train(tmp_path, model, tokenizer, 96, 0.6 if frozen else 0.9, **how)
    unchanged = [torch.equal(before[name], parameter) for name, parameter in model.elmo.bilm.named_parameters()]
    assert all(unchanged) if frozen else not any(unchanged)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    words = sum(sum(row["attention_mask"]) for row in trainer.train_dataset)  # three epochs
    assert trainer.state.num_input_tokens_seen == 3 * words
    trainer.save_model(tmp_path / "saved")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    saved = AutoTokenizer.from_pretrained(tmp_path / "saved", padding_side="left")
    batch = saved(messages(128)[0][96:], truncation=True, max_length=40, padding=True, return_tensors="pt")
    with torch.no_grad():
        np.testing.assert_allclose(loaded(**batch).logits, predicted, atol=1e-5 if frozen else 0.05)


def test_the_model_that_ships_is_fine_tuned_as_readme_says(tmp_path: Path) -> None:
    """Its weights are stored in float16 and computed in float32: in float16 one step of training ends in NaN."""
    model = AutoModelForSequenceClassification.from_pretrained(loading.FOLDER, num_labels=2)
    assert model.dtype == torch.float32
    tokenizer = AutoTokenizer.from_pretrained(loading.FOLDER)
    trainer, _ = train(tmp_path, model, tokenizer, 32, 0.9, max_steps=8, learning_rate=0.01)
    assert all(np.isfinite(float(entry["grad_norm"])) for entry in trainer.state.log_history if "grad_norm" in entry)
