"""Trainer fine-tunes classifiers, which are saved and loaded; metrics; learning rates for parts of a model."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, EvalPrediction, Trainer, TrainingArguments

from hf_elmo import ElmoForSequenceClassification, classification_metrics, optimizer_cls_and_kwargs
from tests import heads
from tests.factories import small_config, word_level

SETTINGS = {"per_device_train_batch_size": 16, "learning_rate": 0.03, "seed": 3, "save_strategy": "no"}
SETTINGS |= {"report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 3}
METRICS = {
    "one of three": ([[2, 1, 0], [0, 1, 0], [0, 3, 1], [0, 0, 1]], [0, 1, 2, 2], 3 / 4, (1 + 2 / 3 + 2 / 3) / 3),
    "a sigmoid": ([[1], [-1], [1], [-2]], [1, 0, 0, 0], 3 / 4, (2 / 3 + 4 / 5) / 2),
    "a column": ([[2, 1, 0], [0, 1, 0]], [[0], [1]], 1, 1),
    "an unknown one": ([[2, 1, 0], [0, 1, 0], [0, 3, 1]], [-100, 1, 2], 1 / 2, 1 / 3),
    "several at once": ([[1, -1], [1, 1], [-1, 1]], [[1, 0], [0, 1], [0, 1]], 2 / 3, (2 / 3 + 1) / 2),
}


@pytest.mark.parametrize("kind", ["frozen", "unfrozen", "word level"])
def test_a_classifier_learns_and_is_saved(tmp_path, tokenizer, kind: str) -> None:
    """Unfrozen in bfloat16, with gradient checkpointing. With words alone, what is shouted is unknown."""
    frozen = kind == "frozen"
    fields = {"num_labels": 2, "freeze_bilm": frozen, "classifier_dropout": 0.1}
    if kind == "word level":
        model, tokenizer = word_level(tmp_path, ["see", "home"])
        fields |= {"char_filters": [], "word_vocab_size": model.config.word_vocab_size}
    torch.manual_seed(0)
    model = ElmoForSequenceClassification(small_config(**fields))
    before = {name: parameter.clone() for name, parameter in model.elmo.bilm.named_parameters()}
    rng, texts, labels = np.random.default_rng(5), [], [0, 1] * 64
    for label in labels:  # a reader of characters can tell prizes: they are shouted, with digits
        text = " ".join(rng.choice(["see", "you", "at", "home", "ok", "call", "me"], size=rng.integers(1, 4)))
        texts.append(f"{text} {text.upper()} {rng.integers(10_000, 99_999)} !" if label else text)
    encoded = tokenizer(texts, truncation=True, max_length=40)
    examples = [{**{k: v[i] for k, v in encoded.items()}, "label": label} for i, label in enumerate(labels)]
    how = {"learning_rate": 0.3} if frozen else {"bf16": True, "gradient_checkpointing": True}
    how |= {"max_steps": 18, "include_num_input_tokens_seen": "non_padding"}
    arguments = TrainingArguments(tmp_path / "runs", **{**SETTINGS, **how})
    trainer = Trainer(model, arguments, train_dataset=examples[:96], processing_class=tokenizer)
    trainer.train()
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[len(losses) // 2 :]) < sum(losses[: len(losses) // 2])
    predicted = trainer.predict(examples[96:]).predictions
    assert (predicted.argmax(1) == labels[96:]).mean() > (0.6 if frozen else 0.9)  # the majority class has half
    unchanged = [torch.equal(before[name], parameter) for name, parameter in model.elmo.bilm.named_parameters()]
    assert all(unchanged) if frozen else not any(unchanged)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    words = sum(sum(row["attention_mask"]) for row in trainer.train_dataset)  # three epochs
    assert trainer.state.num_input_tokens_seen == 3 * words
    trainer.save_model(tmp_path / "saved")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    saved = AutoTokenizer.from_pretrained(tmp_path / "saved", padding_side="left")
    batch = saved(texts[96:], truncation=True, max_length=40, padding=True, return_tensors="pt")
    with torch.no_grad():
        np.testing.assert_allclose(loaded(**batch).logits, predicted, atol=1e-5 if frozen else 0.05)


def test_columns_of_a_data_set_may_have_names_of_arguments(tmp_path, tokenizer) -> None:
    values = {"state": ["Ohio", "Utah"], "length": ["long", "short"], "label": [0, 1]}
    rows = Dataset.from_dict({**tokenizer(["a long text", "no"]), **values})
    arguments = TrainingArguments(tmp_path, **SETTINGS, max_steps=1)
    Trainer(heads.make("pooled"), arguments, train_dataset=rows, processing_class=tokenizer).train()
    batch = tokenizer(["a", "b"], return_tensors="pt")
    for model in (heads.make("pooled"), heads.make("no head")):  # of padded rows, transformers' collator keeps numbers
        with pytest.raises(ValueError, match="rename"):
            model(**batch, state=torch.tensor([3, 4]))


@pytest.mark.parametrize(("logits", "labels", "accuracy", "macro_f1"), METRICS.values(), ids=METRICS)
def test_metrics_of_classes(logits: list, labels: list, accuracy: float, macro_f1: float) -> None:
    logits, labels = np.array(logits, np.float32), np.array(labels)
    chosen = logits.argmax(1) if logits.shape[1] == 3 else (logits > 0).astype(np.int64)
    for predictions in (logits, chosen):  # Trainer's `preprocess_logits_for_metrics` may have chosen the labels
        found = classification_metrics()(EvalPrediction(predictions, labels))
        assert found == pytest.approx({"accuracy": accuracy, "macro_f1": macro_f1})
    with pytest.raises(ValueError, match="regression"):  # of ratings
        classification_metrics()(EvalPrediction(np.array([[1.1], [1.9], [3.2]]), np.array([1.0, 2.0, 3.0])))


def test_models_that_trainer_makes_have_rates_of_their_own(tmp_path, tokenizer) -> None:
    rows = [{**tokenizer(text), "label": label} for text, label in (("see you", 0), ("at home", 1))]
    arguments = TrainingArguments(tmp_path, **{**SETTINGS, "max_steps": 1, "lr_scheduler_type": "constant"})

    def trainer_of(model: torch.nn.Module | None) -> Trainer:
        how = {"train_dataset": rows, "processing_class": tokenizer, "model_init": lambda: heads.make("pooled")}
        how["optimizer_cls_and_kwargs"] = optimizer_cls_and_kwargs(model, arguments, mix=0.5)
        return Trainer(None, arguments, **how)

    with pytest.raises(ValueError, match="model_init"):
        trainer_of(heads.make("pooled")).train()
    trainer, before = trainer_of(None), heads.make("pooled").classifier
    for arguments.learning_rate in (0.1, 0.01):
        trainer.train()
        for name, rate in (("scalar_mix.scalars", 0.5), ("out_proj.bias", arguments.learning_rate)):
            change = (trainer.model.classifier.get_parameter(name) - before.get_parameter(name)).abs()
            torch.testing.assert_close(change, torch.full_like(change, rate), rtol=0.01, atol=0)  # AdamW's first step


def test_each_parameter_is_in_one_group_with_its_rate_and_decay() -> None:
    tagger = heads.make("last", **heads.VECTORS, freeze_bilm=False)
    model = torch.nn.ModuleDict({"tagger": tagger, "more": torch.nn.Linear(2, 2)})
    settings = TrainingArguments(weight_decay=0.3, learning_rate=0.5, use_cpu=True)
    optimizer, options = optimizer_cls_and_kwargs(model, settings, bilm=1e-4, mix=0.01, word_vectors=0.1)
    assert issubclass(optimizer, torch.optim.AdamW)
    found = {p: (group["lr"], group["weight_decay"]) for group in options["params"] for p in group["params"]}
    assert sum(len(group["params"]) for group in options["params"]) == len(found)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert found.keys() == set(trained.values())
    rates = {"mix": 0.01, ".elmo.": 1e-4, "word_vectors": 0.1, "": 0.5}  # the first that is a part of the name
    for name, parameter in trained.items():
        rate = next(rate for part, rate in rates.items() if part in name)
        assert found[parameter] == (rate, 0.3 if parameter.dim() > 1 and "mix" not in name else 0.0), name
