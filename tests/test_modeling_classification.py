"""ElmoForSequenceClassification: pooling, the head, losses, what is trained, and exact gradient accumulation."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
)
from hf_elmo.modeling_classification_elmo import sequence_classification_loss
from tests.conftest import SENTENCES, TINY, random_model

LABELS = 3


def make(**changes: object) -> ElmoForSequenceClassification:
    return random_model(ElmoConfig(**{**TINY, "num_labels": LABELS, **changes}), ElmoForSequenceClassification)


@pytest.fixture
def inputs(tokenizer: ElmoTokenizer) -> dict[str, Tensor]:
    return tokenizer(SENTENCES, padding=True, return_tensors="pt")


# -- losses in narrow types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_labels_are_not_rounded_to_the_type_of_the_logits(dtype: torch.dtype) -> None:
    config = ElmoConfig(**TINY, num_labels=1, problem_type="regression")
    logits = torch.full((64, 1), 256.0, dtype=dtype, requires_grad=True)
    loss = sequence_classification_loss(torch.full((64,), 257.0), logits, config)
    loss.backward()
    assert loss.item() == 1.0
    assert (logits.grad == -2 / 64).all()
    far = sequence_classification_loss(torch.full((64,), 216.0), logits, config)  # a sum of 102,400
    assert far.item() == 1600.0


# -- pooling and the head ----------------------------------------------------------------------------------------------


def plain_pooling(vectors: Tensor, pooling: str) -> Tensor:
    """The pooled vector of one sentence's `[words, 2P]`, boundaries included."""
    if pooling == "mean":
        return vectors[1:-1].mean(0)
    if pooling == "max":
        return vectors[1:-1].amax(0)
    half = vectors.shape[1] // 2
    return torch.cat((vectors[-1, :half], vectors[0, half:]))


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_pooling(tokenizer: ElmoTokenizer, pooling: str, side: str) -> None:
    model = make(classifier_pooling=pooling).double()
    logits = model(**tokenizer(SENTENCES, padding=True, padding_side=side, return_tensors="pt")).logits
    assert logits.shape == (4, LABELS)
    for row, sentence in enumerate(SENTENCES):
        vectors = model.elmo(**tokenizer(sentence, return_tensors="pt")).last_hidden_state[0]
        expected = model.classifier.weight @ plain_pooling(vectors, pooling) + model.classifier.bias
        torch.testing.assert_close(logits[row], expected)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_text_without_words_has_the_logits_of_zeros(tokenizer: ElmoTokenizer, pooling: str) -> None:
    model = make(classifier_pooling=pooling)
    logits = model(**tokenizer(["", "a word"], padding=True, return_tensors="pt")).logits
    assert torch.equal(logits[0], model.classifier.bias)
    assert not torch.allclose(logits[1], model.classifier.bias)


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_a_row_of_padding_has_the_logits_of_zeros(inputs: dict, pooling: str) -> None:
    model = make(classifier_pooling=pooling)
    inputs["attention_mask"][2] = 0
    assert torch.equal(model(**inputs).logits[2], model.classifier.bias)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_positions_left_out_take_no_part(inputs: dict, pooling: str) -> None:
    model = make(classifier_pooling=pooling)
    only = torch.ones_like(inputs["attention_mask"])
    only[:, 1] = 0
    vectors = model.elmo(**inputs).last_hidden_state[:, 1]
    expected = vectors @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(**inputs, special_tokens_mask=only).logits, expected)


def test_a_hidden_layer(inputs: dict) -> None:
    model = make(classifier_hidden_size=9)
    pooled = model.elmo(**inputs).pooler_output
    hidden = (pooled @ model.dense.weight.T + model.dense.bias).clamp(min=0)
    expected = hidden @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(**inputs).logits, expected)
    assert model.dense.weight.shape == (9, 22)


HEADS = [ElmoForSequenceClassification, ElmoForTokenClassification]
every_head = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)


@every_head
def test_the_text_that_follows_goes_on_from_the_state_of_the_model_inside(tokenizer: ElmoTokenizer, head: type) -> None:
    model = random_model(ElmoConfig(**{**TINY, "num_labels": LABELS}), head)
    first, second = (tokenizer(text, return_tensors="pt") for text in ("a b c", "d e"))
    with pytest.raises(AttributeError, match="has no attribute 'state'"):
        model(**first).state  # noqa: B018
    state = model.elmo(**first).state
    vectors = model.elmo(**second, state=state).last_hidden_state[:, 1:-1]
    scores = model.classifier(vectors if head is ElmoForTokenClassification else vectors.mean(1))
    found = model(**second, state=state).logits
    torch.testing.assert_close(found[:, 1:-1] if head is ElmoForTokenClassification else found, scores)
    assert (found - model(**second).logits).abs().max() > 1e-4


def test_states_go_to_the_model(inputs: dict) -> None:
    model = make()
    state = model.elmo(**inputs).state
    expected = model.elmo(**inputs, state=state).pooler_output @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(**inputs, state=state).logits, expected)


# -- pairs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_the_texts_of_a_pair_are_read_apart(tokenizer: ElmoTokenizer, pooling: str, side: str) -> None:
    model, single = make(classifier_text_pairs=True, classifier_pooling=pooling), make(classifier_pooling=pooling)
    single.elmo.load_state_dict(model.elmo.state_dict())
    first, second = ["a b", "c", "f g h"], ["d", "e f", "a"]
    pooled = []
    single.classifier.register_forward_pre_hook(lambda module, given: pooled.append(given[0]))
    for texts in (first, second):
        single(**tokenizer(texts, padding=True, return_tensors="pt"))
    u, v = pooled
    expected = model.classifier(torch.cat((u, v, (u - v).abs(), u * v), dim=1))
    pair = tokenizer(first, second, padding=True, padding_side=side, return_tensors="pt")
    output = model(**pair, output_hidden_states=True)
    torch.testing.assert_close(output.logits, expected)
    layers = single.elmo(**tokenizer(second, padding=True, return_tensors="pt"), output_hidden_states=True)
    start = int(pair["attention_mask"][1].argmax()) + 3  # "c" with its boundaries
    torch.testing.assert_close(output.hidden_states[2][1, start : start + 4], layers.hidden_states[2][1, :4])


def test_a_pair_may_go_on_from_a_state(tokenizer: ElmoTokenizer) -> None:
    model = make(classifier_text_pairs=True)
    pair = tokenizer(["a b", "c"], ["d", "e f"], padding=True, return_tensors="pt")
    state = model.elmo(**tokenizer(["f", "g h"], padding=True, return_tensors="pt")).state
    found = model(**pair, state=state).logits
    one = {key: value[1:] for key, value in pair.items()}
    torch.testing.assert_close(model(**one, state=tuple(part[:, :, 1:] for part in state)).logits, found[1:])
    assert (found - model(**pair).logits).abs().max() > 1e-4


@pytest.mark.parametrize("pairs", [False, True])
def test_texts_and_pairs_are_not_taken_for_each_other(tokenizer: ElmoTokenizer, pairs: bool) -> None:
    model = make(classifier_text_pairs=pairs)
    one, two = tokenizer("a b", return_tensors="pt"), tokenizer("a b", "c", return_tensors="pt")
    with pytest.raises(ValueError, match=f"row 0 of input_ids holds {1 if pairs else 2} texts.*classifier_text_pairs"):
        model(**(one if pairs else two))
    assert model(**(two if pairs else one)).logits.shape == (1, LABELS)


def test_pairs_need_input_ids(inputs: dict) -> None:
    model = make(classifier_text_pairs=True)
    with pytest.raises(ValueError, match="inputs_embeds and bilm_layers do not say"):
        model(inputs_embeds=torch.zeros(1, 3, model.config.projection_size))


@pytest.mark.parametrize("hidden", [None, 9])
def test_dropout_of_the_head_acts_in_training_only(inputs: dict, hidden: int | None) -> None:
    model = make(classifier_dropout=0.5, classifier_hidden_size=hidden)
    expected = model(**inputs).logits
    model.train()
    torch.manual_seed(0)
    drawn = torch.stack([model(**inputs).logits for _ in range(8)])
    assert drawn.std(0).min() > 0
    assert torch.equal(model.eval()(**inputs).logits, expected)


# -- losses ------------------------------------------------------------------------------------------------------------

PROBLEMS = {
    "single_label_classification": torch.tensor([2, 0, 1, 2]),
    "multi_label_classification": torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]),
    "regression": torch.tensor([[0.5, -1.0, 2.0], [0.0, 0.1, 0.2], [3.0, 2.0, 1.0], [-1.0, -1.5, 0.0]]),
}


def plain_loss(problem: str, logits: Tensor, labels: Tensor) -> Tensor:
    if problem == "single_label_classification":
        return -logits.log_softmax(1)[torch.arange(len(labels)), labels].mean()
    if problem == "regression":
        return (logits - labels).square().mean()
    return -(labels * logits.sigmoid().log() + (1 - labels) * (1 - logits.sigmoid()).log()).mean()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_loss_that_the_configuration_names(inputs: dict, problem: str) -> None:
    model, labels = make(problem_type=problem), PROBLEMS[problem]
    output = model(**inputs, labels=labels)
    torch.testing.assert_close(output.loss, plain_loss(problem, output.logits, labels))
    assert model(**inputs).loss is None


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("single_label_classification", PROBLEMS["single_label_classification"]),
        ("multi_label_classification", PROBLEMS["multi_label_classification"]),
        ("regression", torch.tensor([0.5, 1.0, -2.0, 0.0])),
        ("regression", torch.tensor([[0.5], [1.0], [-2.0], [0.0]])),
    ],
    ids=["integers", "zeros and ones", "numbers", "columns of one number"],
)
def test_the_loss_that_the_labels_show(inputs: dict, problem: str, labels: Tensor) -> None:
    model = make(num_labels=1 if problem == "regression" else LABELS)
    output = model(**inputs, labels=labels)
    logits = output.logits if problem != "regression" else output.logits.view(-1)
    plain = labels.view(-1) if problem == "regression" else labels
    torch.testing.assert_close(output.loss, plain_loss(problem, logits, plain))
    assert model.config.problem_type == problem


def test_truth_values_are_classes(inputs: dict) -> None:
    labels, model = torch.tensor([True, False, False, True]), make(num_labels=2)
    assert model(**inputs, labels=labels).loss == model(**inputs, labels=labels.long()).loss
    assert model.config.problem_type == "single_label_classification"


def test_one_output_and_whole_numbers_need_a_word(inputs: dict) -> None:
    labels = torch.tensor([1, 0, 0, 1])
    with pytest.raises(ValueError, match=r"num_labels is 1.*problem_type"):
        make(num_labels=1)(**inputs, labels=labels)
    for problem in ("regression", "multi_label_classification"):
        output = make(num_labels=1, problem_type=problem)(**inputs, labels=labels)
        torch.testing.assert_close(output.loss, plain_loss(problem, output.logits.view(-1), labels.float()))


@pytest.mark.parametrize(
    ("problem", "outputs", "labels", "expected"),
    [
        ("regression", 2, torch.arange(8.0).view(2, 4), "[4, 2]"),
        ("regression", 3, torch.tensor([0.5]), "[4, 3]"),  # it was broadcast
        ("regression", 1, torch.ones(2, 2), "[4]"),
        ("multi_label_classification", 3, torch.ones(3, 4), "[4, 3]"),
        ("multi_label_classification", 3, torch.ones(4), "[4, 3]"),
        ("multi_label_classification", 1, torch.ones(2, 2), "[4]"),
        ("single_label_classification", 3, torch.ones(2, 2, dtype=torch.int64), "[4]"),
        ("single_label_classification", 3, torch.ones(1, 4, dtype=torch.int64), "[4]"),
        (None, 3, torch.ones(4, 3, dtype=torch.int64), "[4]"),
    ],
)
def test_labels_of_another_shape(
    inputs: dict, problem: str | None, outputs: int, labels: Tensor, expected: str
) -> None:
    model = make(num_labels=outputs, problem_type=problem)
    said = f"labels has the shape {list(labels.shape)}, but must be {expected} for a "
    with pytest.raises(ValueError, match=re.escape(said)):
        model(**inputs, labels=labels)
    assert model.config.problem_type == problem


def test_one_label_is_not_broadcast_over_the_outputs_of_one_row(inputs: dict) -> None:
    model, row = make(num_labels=3, problem_type="regression"), {name: part[:1] for name, part in inputs.items()}
    with pytest.raises(ValueError, match=r"labels has the shape \[1\], but must be \[1, 3\]"):
        model(**row, labels=torch.ones(1))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_column_of_labels_is_as_good_as_a_row(inputs: dict, problem: str) -> None:
    labels = torch.tensor([1, 0, 0, 1])
    model = make(num_labels=LABELS if problem.startswith("single") else 1, problem_type=problem)
    assert torch.equal(model(**inputs, labels=labels[:, None]).loss, model(**inputs, labels=labels).loss)


def test_a_label_of_minus_100_takes_no_part(inputs: dict) -> None:
    model = make()
    some = model(**{key: value[:2] for key, value in inputs.items()}, labels=torch.tensor([2, 0])).loss
    torch.testing.assert_close(model(**inputs, labels=torch.tensor([2, 0, -100, -100])).loss, some)
    nothing = model(**inputs, labels=torch.full((4,), -100)).loss
    assert nothing == 0


@pytest.mark.parametrize("problem", PROBLEMS)
def test_parts_of_a_batch_add_up_to_the_whole(inputs: dict, problem: str) -> None:
    model, labels = make(problem_type=problem, classifier_dropout=0.0), PROBLEMS[problem]
    whole = model(**inputs, labels=labels).loss
    parts = [
        model(**{k: v[rows] for k, v in inputs.items()}, labels=labels[rows], num_items_in_batch=labels.numel()).loss
        for rows in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(sum(parts), whole)


# -- what is trained ---------------------------------------------------------------------------------------------------

HEAD = {"elmo.scalar_mix.scalars", "elmo.scalar_mix.gamma", "classifier.weight", "classifier.bias"}


def trained(model: torch.nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_the_mix_and_the_head_alone_are_trained_by_default(inputs: dict) -> None:
    model = make().train()
    assert trained(model) == HEAD
    model(**inputs, labels=PROBLEMS["single_label_classification"]).loss.backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is not None} == HEAD


def test_the_bilm_can_be_unfrozen_and_frozen(inputs: dict) -> None:
    model = make()
    every = {name for name, _ in model.named_parameters()}
    model.unfreeze_bilm()
    assert trained(model) == every
    assert model.config.freeze_bilm is False
    model.freeze_bilm()
    assert trained(model) == HEAD
    assert model.config.freeze_bilm is True


@pytest.mark.parametrize("frozen", [True, False])
def test_the_switch_is_the_same_on_the_model_without_a_head(tmp_path: Path, frozen: bool) -> None:
    mix = {"scalar_mix.scalars", "scalar_mix.gamma"}
    model = random_model(ElmoConfig(**TINY, freeze_bilm=frozen))
    every = {name for name, _ in model.named_parameters()}
    assert trained(ElmoModel(ElmoConfig(**TINY))) == mix
    assert trained(model) == (mix if frozen else every)
    model.save_pretrained(tmp_path)
    assert trained(ElmoModel.from_pretrained(tmp_path)) == trained(model)
    assert trained(ElmoModel.from_pretrained(tmp_path, freeze_bilm=not frozen)) != trained(model)
    model.unfreeze_bilm()
    assert trained(model) == every
    model.freeze_bilm()
    assert trained(model) == mix


def test_pretraining_trains_the_bilm_whatever_the_switch_says() -> None:
    model = ElmoForPreTraining(ElmoConfig(**TINY, vocab_size=7))
    every = {name for name, _ in model.named_parameters()} - {"elmo.scalar_mix.scalars", "elmo.scalar_mix.gamma"}
    assert trained(model) == every
    model.freeze_bilm()
    assert trained(model) == {"lm_head.weight", "lm_head.bias"}
    model.unfreeze_bilm()
    assert trained(model) == every


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """What is said of what is trained, each with its level, at the verbosity that transformers starts with."""
    transformers.utils.logging.warning_once.cache_clear()  # another test may have said the same
    transformers.logging.set_verbosity_warning()
    return lambda: [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if "parameters are trained" in record.getMessage()
    ]


def numbers_of(model: torch.nn.Module) -> str:
    numbers = (sum(p.numel() for p in model.parameters() if p.requires_grad or every) for every in (False, True))
    return "{:,} of {:,}".format(*numbers)


def test_what_is_trained_is_said_once_without_asking(said: Callable) -> None:
    model, again = make().eval(), make().eval()
    assert not said()
    for _ in range(3):
        model.train().eval()
        model.elmo.train().eval()
        again.train().eval()  # as a second fold or seed
    message = f"ElmoForSequenceClassification: {numbers_of(model)} parameters are trained (freeze_bilm)."
    assert said() == [("WARNING", message)]


def test_another_number_of_what_is_trained_is_said_again(said: Callable) -> None:
    frozen, unfrozen = make().eval(), make(freeze_bilm=False).eval()
    frozen.train()
    unfrozen.train()
    assert numbers_of(frozen) != numbers_of(unfrozen)
    assert len(said()) == 2
    assert numbers_of(frozen) in said()[0][1]
    assert numbers_of(unfrozen) in said()[1][1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_training_float16_weights_is_warned_of(caplog, dtype: torch.dtype) -> None:
    transformers.utils.logging.warning_once.cache_clear()
    for _ in range(2):
        make().to(dtype).eval().train()
    assert caplog.text.count("The weights are float16") == (dtype == torch.float16)
    transformers.utils.logging.warning_once.cache_clear()
    make().train().to(dtype).train()
    assert caplog.text.count("The weights are float16") == 2 * (dtype == torch.float16)


@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_trained_is_remembered_by_a_checkpoint(tmp_path: Path, frozen: bool) -> None:
    model = make()
    if not frozen:
        model.unfreeze_bilm()
    model.save_pretrained(tmp_path)
    again = ElmoForSequenceClassification.from_pretrained(tmp_path)
    assert trained(again) == trained(model)
    assert (trained(again) == HEAD) == frozen
    other = ElmoForSequenceClassification.from_pretrained(tmp_path, freeze_bilm=not frozen)
    assert (trained(other) == HEAD) != frozen


def test_a_frozen_bilm_has_no_dropout_in_training(inputs: dict) -> None:
    model = make(hidden_dropout=0.5, classifier_dropout=0.0)
    expected = model(**inputs).logits
    assert torch.equal(model.train()(**inputs).logits, expected)
    model.unfreeze_bilm()
    assert not torch.equal(model(**inputs).logits, expected)
    model.freeze_bilm()
    assert torch.equal(model(**inputs).logits, expected)
    assert model.training


def test_a_fixed_mix_leaves_the_head_alone(inputs: dict) -> None:
    model = make(layer_weights=[0.2, 0.3, 0.5])
    assert trained(model) == {"classifier.weight", "classifier.bias"}
    model(**inputs, labels=PROBLEMS["single_label_classification"]).loss.backward()


# -- a head of another shape -------------------------------------------------------------------------------------------


@every_head
def test_a_head_of_another_shape_is_an_error_or_new(tmp_path: Path, caplog, head: type) -> None:
    model = random_model(ElmoConfig(**{**TINY, "num_labels": LABELS}), head)
    model.save_pretrained(tmp_path)
    with pytest.raises(
        RuntimeError, match=r"classifier.weight \[3, 22\], not \[7, 22\]; .*ignore_mismatched_sizes=True"
    ):
        head.from_pretrained(tmp_path, num_labels=7)
    caplog.clear()
    torch.manual_seed(1)
    again, report = head.from_pretrained(tmp_path, num_labels=7, ignore_mismatched_sizes=True, output_loading_info=True)
    assert {tuple(place) for place in report["mismatched_keys"]} == {
        ("classifier.weight", torch.Size([3, 22]), torch.Size([7, 22])),
        ("classifier.bias", torch.Size([3]), torch.Size([7])),
    }
    assert "classifier.weight" in caplog.text  # transformers' own report
    assert "MISMATCH" in caplog.text
    assert again.classifier.weight.shape == (7, 22)
    assert again.classifier.weight.std() > 0
    for name, weight in model.elmo.state_dict().items():
        assert torch.equal(again.elmo.get_parameter(name), weight), name


# -- gradient accumulation ---------------------------------------------------------------------------------------------


def rows_of(tokenizer: ElmoTokenizer, problem: str) -> list[dict]:
    texts = ["a b c d e", "f", "g h", "i j k", "l m", "n o p q", "r", "s t u v w x", "y", "z a", "b c", "d e f g h"]
    labels = PROBLEMS[problem].repeat(3, *[1] * (PROBLEMS[problem].dim() - 1))
    return [{**tokenizer(text), "label": label.tolist()} for text, label in zip(texts, labels, strict=True)]


def weights_after_training(
    folder: Path, tokenizer: ElmoTokenizer, problem: str, batch: int, accumulated: int
) -> dict[str, Tensor]:
    model = make(problem_type=problem, classifier_dropout=0.0, freeze_bilm=False)
    arguments = TrainingArguments(
        folder,
        max_steps=2,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulated,
        learning_rate=0.05,
        optim="sgd",
        max_grad_norm=0.0,
        train_sampling_strategy="sequential",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(model, arguments, DataCollatorWithPadding(tokenizer), rows_of(tokenizer, problem)).train()
    return model.state_dict()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_accumulated_steps_are_one_larger_batch(tmp_path: Path, tokenizer: ElmoTokenizer, problem: str) -> None:
    start = make(problem_type=problem, freeze_bilm=False).state_dict()
    large = weights_after_training(tmp_path, tokenizer, problem, batch=6, accumulated=1)
    for batch, accumulated in ((2, 3), (1, 6)):
        small = weights_after_training(tmp_path, tokenizer, problem, batch, accumulated)
        for name, weight in large.items():
            torch.testing.assert_close(small[name], weight, atol=1e-5, rtol=1e-5, msg=name)
            assert not torch.equal(weight, start[name]), name


@pytest.mark.parametrize("value", [-1, -7, LABELS])
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
def test_a_label_that_is_no_class_is_refused_by_its_value(inputs: dict, problem: str, value: int) -> None:
    model, labels = make(problem_type=problem), PROBLEMS[problem].clone()
    labels.view(-1)[0] = value
    with pytest.raises(ValueError, match=rf"labels has {value}(\.0)?, but must hold 0 to \d, or -100"):
        model(**inputs, labels=labels)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_a_label_that_is_not_finite_is_refused_by_its_row(inputs: dict, problem: str, value: float) -> None:
    model, labels = make(problem_type=problem), PROBLEMS[problem].clone().float()
    labels[2] = value
    with pytest.raises(ValueError, match=rf"labels has .*{value}.* in row 2 of the batch: leave out rows without"):
        model(**inputs, labels=labels)


def test_a_problem_that_is_misspelled_is_refused(inputs: dict) -> None:
    model = make(num_labels=1)
    vars(model.config)["problem_type"] = "regresion"  # the oldest transformers refuses it when it is set
    with pytest.raises(ValueError, match=r"config\.problem_type is 'regresion', but must be one of regression, "):
        model(**inputs, labels=torch.tensor([0.5, 0.1, 0.9, 0.2]))


@pytest.mark.parametrize("problem_type", PROBLEMS)
def test_the_loss_is_one_graph(problem_type: str) -> None:
    config = make(problem_type=problem_type).config
    labels, logits = PROBLEMS[problem_type], torch.randn(4, config.num_labels)
    labels = labels.to(logits.dtype) if problem_type == "regression" else labels
    torch.compiler.reset()
    loss = torch.compile(sequence_classification_loss, backend="eager", fullgraph=True)(labels, logits, config)
    assert torch.equal(loss, sequence_classification_loss(labels, logits, config))


def test_several_labels_without_one_that_is_unknown(inputs: dict) -> None:
    model, labels = make(problem_type="multi_label_classification"), PROBLEMS["multi_label_classification"].clone()
    labels[1, 0] = -100
    output = model(**inputs, labels=labels)
    known = labels != -100
    expected = torch.nn.functional.binary_cross_entropy_with_logits(output.logits[known], labels[known])
    torch.testing.assert_close(output.loss, expected)


def test_a_regression_to_minus_100_is_a_regression(inputs: dict) -> None:
    model, labels = make(num_labels=1, problem_type="regression"), torch.tensor([-100.0, 3.0, 0.5, -100.0])
    output = model(**inputs, labels=labels)
    torch.testing.assert_close(output.loss, plain_loss("regression", output.logits.view(-1), labels))


def test_a_regression_to_minus_100_is_refused_where_trainer_counts_labels(
    tmp_path: Path, tokenizer: ElmoTokenizer
) -> None:
    model, settings = make(num_labels=1, problem_type="regression"), {"report_to": [], "disable_tqdm": True}
    rows = [{**tokenizer("a b"), "label": value} for value in (0.5, -100.0, 3.0, 1.0)]
    arguments = TrainingArguments(tmp_path, max_steps=1, save_strategy="no", use_cpu=True, **settings)
    with pytest.raises(ValueError, match="labels of a regression hold -100, which Trainer takes for no label"):
        Trainer(model, arguments, DataCollatorWithPadding(tokenizer), rows).train()


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
def test_accumulated_steps_without_any_label_have_no_loss(inputs: dict, problem: str) -> None:
    model = make(problem_type=problem, scalar_mix_l2=0.1).train()
    labels = torch.full((4,) if problem.startswith("single") else (4, 3), -100)
    loss = model(**inputs, labels=labels, num_items_in_batch=torch.tensor(0)).loss  # as Trainer counts
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_bilm_that_is_unfrozen_during_training_has_dropout(inputs: dict) -> None:
    model = make(hidden_dropout=0.5, classifier_dropout=0.0).train()
    model.unfreeze_bilm()
    assert not torch.equal(model(**inputs).logits, model(**inputs).logits)
    model.freeze_bilm()
    assert torch.equal(model(**inputs).logits, model(**inputs).logits)
