"""ElmoForSequenceClassification: pooling, pairs, losses, what is trained, exact gradient accumulation."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from hf_elmo import ElmoForPreTraining, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
from hf_elmo.modeling_classification_elmo import sequence_classification_loss
from tests import heads
from tests.factories import small_config, small_model

LABELS = 3
make = partial(heads.make, "pooled")
SEVERAL_LABELS = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
MIX = {"scalar_mix.scalars", "scalar_mix.gamma"}
HEAD = {f"classifier.{name}" for name in (*MIX, "out_proj.weight", "out_proj.bias")}
TRAINED = {ElmoForSequenceClassification: HEAD, ElmoModel: MIX, ElmoForPreTraining: {"lm_head.weight", "lm_head.bias"}}


@pytest.mark.parametrize("head", ["pooled", "pairs", "tagger"])
def test_texts_start_from_the_state(tokenizer: ElmoTokenizer, head: str) -> None:
    model, texts = heads.make(head), ["c", "e f"] if head == "pairs" else ["d e"]
    state = model.elmo(**tokenizer("g h", return_tensors="pt"), use_cache=True).state
    outputs = [model.elmo(**tokenizer(text, return_tensors="pt"), state=state) for text in texts]
    vectors = outputs[0].last_hidden_state if head == "tagger" else outputs[0].pooler_output
    if head == "pairs":
        other = outputs[1].pooler_output
        vectors = torch.cat((vectors, other, (vectors - other).abs(), vectors * other), dim=1)
    batch = tokenizer(*([text] for text in texts), return_tensors="pt")
    found, inner = model(**batch, state=state).logits, slice(1, -1) if head == "tagger" else slice(None)
    torch.testing.assert_close(found[:, inner], model.classifier.out_proj(vectors)[:, inner])
    assert (found - model(**batch).logits).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("problem", "loss", "labels"),
    [
        ("single_label_classification", cross_entropy, torch.tensor([2, 0, 1, 2])),
        ("single_label_classification", cross_entropy, torch.tensor([True, False, False, True])),
        ("multi_label_classification", binary_cross_entropy_with_logits, SEVERAL_LABELS),
        ("regression", mse_loss, torch.tensor([0.5, 1.0, -2.0, 0.0])),
        ("regression", mse_loss, torch.tensor([[1], [0], [2], [0]])),
    ],
    ids=["integers", "booleans", "zeros and ones", "numbers", "a column of integers"],
)
def test_the_problem_type_of_the_labels(inputs: dict, problem: str, loss: Callable, labels: Tensor) -> None:
    model = make(num_labels=1 if problem == "regression" else LABELS)
    output = model(**inputs, labels=labels)
    assert model.config.problem_type == problem
    targets = labels.view(-1, 1).float() if problem == "regression" else labels
    targets = labels.long() if problem == "single_label_classification" else targets
    torch.testing.assert_close(output.loss, loss(output.logits, targets))
    parts = [{**{k: v[rows] for k, v in inputs.items()}, "labels": labels[rows]} for rows in (slice(0, 1), slice(1, 4))]
    losses = [model(**part, num_items_in_batch=labels.numel()).loss for part in parts]  # as Trainer counts
    torch.testing.assert_close(sum(losses), output.loss)
    for wrong in (labels[:1], labels[:3]):  # none of them is broadcast
        with pytest.raises((ValueError, RuntimeError)):
            model(**inputs, labels=wrong)


def test_a_label_of_minus_100_takes_no_part(inputs: dict) -> None:
    model = make()
    some = model(**{key: value[:2] for key, value in inputs.items()}, labels=torch.tensor([2, 0])).loss
    torch.testing.assert_close(model(**inputs, labels=torch.tensor([2, 0, -100, -100])).loss, some)
    assert model(**inputs, labels=torch.full((4,), -100)).loss == 0
    model, labels = make(problem_type="multi_label_classification"), SEVERAL_LABELS.clone()
    labels[1, 0] = -100
    output, known = model(**inputs, labels=labels), labels != -100
    expected = binary_cross_entropy_with_logits(output.logits[known], labels[known])
    torch.testing.assert_close(output.loss, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_labels_are_not_rounded_to_the_type_of_the_logits(dtype: torch.dtype) -> None:
    config = small_config(num_labels=1, problem_type="regression")
    logits = torch.full((64, 1), 256.0, dtype=dtype, requires_grad=True)
    loss = sequence_classification_loss(logits, torch.full((64,), 257.0), config)
    loss.backward()
    assert loss.item() == 1.0
    assert (logits.grad == -2 / 64).all()
    far = sequence_classification_loss(logits, torch.full((64,), 216.0), config)  # a sum of 102,400
    assert far.item() == 1600.0


def trained(model: torch.nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("model_class", TRAINED, ids=lambda each: each.__name__)
@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_trained_is_switched_and_saved(tmp_path: Path, model_class: type, frozen: bool) -> None:
    """Language models train the biLM, whatever the configuration says, until `freeze_bilm` is called."""
    model = small_model(model_class, num_labels=LABELS, vocab_size=7, freeze_bilm=frozen)
    every = {name for name, _ in model.named_parameters()} - {f"elmo.{name}" for name in MIX}
    few = TRAINED[model_class]
    of_frozen = every if model_class is ElmoForPreTraining else few
    assert trained(model) == (of_frozen if frozen else every)
    model.save_pretrained(tmp_path)
    assert trained(model_class.from_pretrained(tmp_path)) == trained(model)
    switched = model_class.from_pretrained(tmp_path, freeze_bilm=not frozen)
    assert trained(switched) == (every if frozen else of_frozen)
    for frozen in (True, False, True):
        model.freeze_bilm(frozen)
        assert (trained(model), model.config.freeze_bilm) == (few if frozen else every, frozen)


def test_a_new_head_on_a_frozen_bilm_is_not_trained_at_a_low_rate_without_a_warning(tmp_path: Path, caplog) -> None:
    small_model().save_pretrained(tmp_path)
    for rate, warnings in ((1e-3, 0), (5e-5, 1)):
        model = ElmoForSequenceClassification.from_pretrained(tmp_path)
        optimizer = torch.optim.AdamW(model.parameters(), rate)
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)  # the first step of a warmup
        for _ in range(2):
            optimizer.step()
        assert caplog.text.count("learning rate") == warnings
