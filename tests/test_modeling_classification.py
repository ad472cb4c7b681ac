"""ElmoForSequenceClassification: each encoder against a plain network of a single text, losses, what is trained."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from transformers.utils import logging

from hf_elmo import ElmoForPreTraining, ElmoForSequenceClassification, ElmoModel
from hf_elmo.modeling_classification_elmo import sequence_classification_loss
from hf_elmo.modeling_heads_elmo import ElmoBiLSTM
from tests import heads
from tests.factories import SENTENCES, small_config, small_model
from tests.heads import BILSTM, PAIRS, SECOND, batch_of, without_labels

ENCODERS = {name: heads.CLASSIFIERS[name] for name in ("pooled", "last", "maxout", "decomposable", "esim")}
ENCODERS |= {
    "bilstm": {**BILSTM, "encoder_num_layers": 2, "classifier_pooling": "last"},
    "max of pairs": {"classifier_pooling": "max", "classifier_hidden_size": 9, **PAIRS},
    "last of pairs": {"classifier_pooling": "last", **PAIRS},
    "attention": {"classifier_pooling": "attention"},
    "bilstm of pairs": {**BILSTM, "classifier_pooling": "attention", **PAIRS},
    "biattentive": {**heads.CLASSIFIERS["biattentive"], **heads.TWICE},
    "biattentive of pairs": {**heads.CLASSIFIERS["biattentive"], **PAIRS},
}
make = partial(heads.make, "pooled")
SEVERAL_LABELS = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
MIX = {"scalar_mix.scalars", "scalar_mix.gamma"}
HEAD = {f"classifier.{name}" for name in (*MIX, "out_proj.weight", "out_proj.bias")}
TRAINED = {ElmoForSequenceClassification: HEAD, ElmoModel: MIX, ElmoForPreTraining: {"lm_head.weight", "lm_head.bias"}}
PROBLEMS = {
    "integers": ("single_label_classification", cross_entropy, torch.tensor([2, 0, 1, 2])),
    "booleans": ("single_label_classification", cross_entropy, torch.tensor([True, False, False, True])),
    "zeros and ones": ("multi_label_classification", binary_cross_entropy_with_logits, SEVERAL_LABELS),
    "numbers": ("regression", mse_loss, torch.tensor([0.5, 1.0, -2.0, 0.0])),
    "a column of integers": ("regression", mse_loss, torch.tensor([[1], [0], [2], [0]])),
}


def plain_bilstm(module: ElmoBiLSTM, words: Tensor) -> Tensor:
    """A text alone, `[words, size]`, through torch's LSTM without padding and packing."""
    return nn.LSTM.forward(module.lstm, words[:, None])[0][:, 0]


def plain_logits(model: ElmoForSequenceClassification, texts: list[Tensor], mixes: list[Tensor | None]) -> Tensor:
    """The logits `[num_labels]` of one text or pair, each `[words, 2P]`."""
    config, head, encoded = model.config, model.classifier, []
    for words, mix in zip(texts, mixes, strict=True):
        if head.encoder is not None:
            if config.encoder_type == "biattentive":
                words = torch.relu(head.encoder.feedforward(words))
            words = plain_bilstm(head.encoder.bilstm, words)
            words = words if mix is None else torch.cat((words, mix), dim=1)
        encoded.append(words)
    if head.interaction is not None:
        pooled = plain_interaction(model, encoded)
    else:
        pooled, *second = (plain_pooling(model, words) for words in encoded)
        for other in second:
            pooled = torch.cat((pooled, other, (pooled - other).abs(), pooled * other))
    for layer in head.maxouts or ():
        pooled = layer.linear(pooled).view(-1, layer.pool).amax(1)
    if head.dense is not None:
        pooled = getattr(torch, config.classifier_activation)(head.dense(pooled))
    return head.out_proj(pooled[None])[0]


def plain_pooling(model: ElmoForSequenceClassification, words: Tensor) -> Tensor:
    if model.classifier.attention is not None:
        return torch.softmax(model.classifier.attention.scores(words)[:, 0], dim=0) @ words
    if model.config.classifier_pooling != "last":
        return words.mean(0) if model.config.classifier_pooling == "mean" else words.amax(0)
    hidden, parts = model.config.encoder_hidden_size, [words]
    if model.config.elmo_at_output:
        parts = [words[:, : 2 * hidden], words[:, 2 * hidden :]]
    return torch.cat([x for part in parts for x in (part[-1, : part.shape[1] // 2], part[0, part.shape[1] // 2 :])])


def plain_layers(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers:
        x = torch.relu(layer(x))
    return x


def plain_interaction(model: ElmoForSequenceClassification, texts: list[Tensor]) -> Tensor:
    pooled, interaction = [], model.classifier.interaction
    for x, y in zip(texts, texts[::-1], strict=True):
        if model.config.encoder_type == "decomposable":
            projected = [plain_layers(interaction.attend, text) for text in (x, y)]
            found = torch.softmax(projected[0] @ projected[1].T, dim=1) @ y
            pooled.append(plain_layers(interaction.compare, torch.cat((x, found), dim=1)).sum(0))
            continue
        found = torch.softmax(x @ y.T, dim=1) @ y
        if model.config.encoder_type == "esim":
            compared = torch.cat((x, found, x - found, x * found), dim=1)
            read = plain_bilstm(interaction.composition, torch.relu(interaction.combine(compared)))
            pooled += [read.mean(0), read.amax(0)]
        else:
            read = plain_bilstm(interaction.integrator, torch.cat((x, x - found, x * found), dim=1))
            weights = torch.softmax(interaction.attention.scores(read)[:, 0], dim=0)
            pooled += [read.amax(0), read.mean(0), read.amin(0), weights @ read]
    return torch.cat(pooled)


@pytest.mark.parametrize("head", ENCODERS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_each_row_equals_the_plain_network(tokenizer, head: str, side: str) -> None:
    model = make(**ENCODERS[head]).double()
    head_mixes = model.classifier.scalar_mix, model.classifier.output_mix
    for number, mix in enumerate(filter(None, head_mixes)):  # with other weights
        mix.scalars.data[number] = 2.0
    batch = batch_of(tokenizer, "pairs" if model.reads_text_pairs else "pooled", side)
    found = model(**without_labels(batch)).logits
    assert found.shape == (4, 3)
    for row in range(4):
        texts, mixes, state = [], [], None
        for text in (SENTENCES, SECOND)[: 1 + model.reads_text_pairs]:
            words = tokenizer(text[row], return_tensors="pt")
            one = model.elmo(**words, output_hidden_states=True, state=state, use_cache=True)
            state = one.state if model.config.carry_state else None
            boundaries = model.classifier.encoder is None and model.config.classifier_pooling == "last"
            layers = [layer[0] if boundaries else layer[0, 1:-1] for layer in one.hidden_states]
            mix, output_mix = (each and each(layers) for each in head_mixes)
            texts.append(mix)
            mixes.append(output_mix)
        torch.testing.assert_close(found[row], plain_logits(model, texts, mixes))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("lengths", [[7, 1, 4, 7], [0, 3, 0], [1], [40]], ids=str)
def test_padded_rows_are_read_as_each_alone(layers: int, lengths: list[int]) -> None:
    """In float32. A sum has at most 2 * 6 + 5 products of a size below 4, and a gradient up to 40 * 4 of such sums:
    17 * 4 * 2**-24 = 4e-6, and 160 times that."""
    module = ElmoBiLSTM(5, 6, layers)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    vectors = torch.randn(*mask.shape, 5, requires_grad=True)
    found = module(vectors, mask)
    alone = [plain_bilstm(module, row[:length]) for row, length in zip(vectors, lengths, strict=True) if length]
    expected = torch.zeros_like(found).masked_scatter(mask[:, :, None], torch.cat(alone))
    torch.testing.assert_close(found, expected, atol=4e-6, rtol=0)
    factors, of = torch.randn_like(found), [vectors, *module.parameters()]
    gradients = [torch.autograd.grad((one * factors).sum(), of) for one in (found, expected)]
    torch.testing.assert_close(*gradients, atol=160 * 4e-6, rtol=0)


@pytest.mark.parametrize("head", ["pooled", "pairs", "tagger"])
def test_texts_start_from_the_state(tokenizer, head: str) -> None:
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


@pytest.mark.parametrize(("problem", "loss", "labels"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_problem_type_of_the_labels(inputs, problem: str, loss: Callable, labels: Tensor) -> None:
    model = make(num_labels=1 if problem == "regression" else 3)
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


def test_a_label_of_minus_100_takes_no_part(inputs) -> None:
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
def test_what_is_trained_is_switched_and_saved(tmp_path, model_class: type, frozen: bool) -> None:
    """Language models train the biLM, whatever the configuration says, until `freeze_bilm` is called."""
    model = small_model(model_class, num_labels=3, vocab_size=7, freeze_bilm=frozen)
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


def test_quantized_weights_that_are_integers_stay_frozen() -> None:
    model = small_model(ElmoForSequenceClassification, freeze_bilm=True)
    model.elmo.char_encoder.projection.weight = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.int8), False)
    model.freeze_bilm(False)
    every = {f"elmo.{name}" for name, _ in model.elmo.named_parameters()} - {f"elmo.{name}" for name in MIX}
    assert every - trained(model) == {"elmo.char_encoder.projection.weight"}


def test_the_first_step_of_a_new_head_says_which_learning_rate_it_needs(tmp_path, inputs, caplog) -> None:
    small_model().save_pretrained(tmp_path / "bilm")
    new = ElmoForSequenceClassification.from_pretrained(tmp_path / "bilm")
    new.save_pretrained(tmp_path / "head")
    trained = ElmoForSequenceClassification.from_pretrained(tmp_path / "head")
    unfrozen = ElmoForSequenceClassification.from_pretrained(tmp_path / "bilm", freeze_bilm=False)
    logging.warning_once.cache_clear()
    runs = ((new, False, 0), (trained, True, 0), (unfrozen, True, 0), (new, True, 1), (new, True, 1))
    for model, mode, messages in runs:
        model.train(mode)(**inputs)
        assert caplog.text.count("learning rate") == messages
