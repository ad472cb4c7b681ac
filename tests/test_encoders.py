"""The encoders of classifiers: each network against a plain one of a single text, padding, dropout."""

import pytest
import torch
from torch import Tensor, nn

from hf_elmo import ElmoForSequenceClassification, ElmoTokenizer
from hf_elmo.modeling_heads_elmo import ElmoBiLSTM
from tests import heads
from tests.factories import SENTENCES
from tests.heads import PAIRS, SECOND, batch_of, without_labels

HEADS = {
    "bilstm": {"encoder_type": "bilstm", "encoder_num_layers": 2, "classifier_pooling": "last"},
    "bilstm, ELMo twice": {"encoder_type": "bilstm", "classifier_pooling": "last", "elmo_at_output": True},
    "mean": {},
    "max of pairs": {"classifier_pooling": "max", "classifier_hidden_size": 9, **PAIRS},
    "last of pairs": {"classifier_pooling": "last", **PAIRS},
    "attention": {"classifier_pooling": "attention"},
    "bilstm of pairs": {"encoder_type": "bilstm", "classifier_pooling": "attention", **PAIRS},
    "biattentive": {"encoder_type": "biattentive", "elmo_at_output": True},
    "biattentive of pairs": {"encoder_type": "biattentive", **PAIRS},
    "esim": {"encoder_type": "esim", "elmo_at_output": True, "classifier_hidden_size": 13, **PAIRS},
}


def make(**changes: object) -> ElmoForSequenceClassification:
    size = {"encoder_hidden_size": 6} if "encoder_type" in changes else {}
    return heads.make("pooled", **{**size, **changes})


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
    if config.encoder_type in ("biattentive", "esim"):
        pooled = plain_interaction(model, encoded)
    else:
        pooled, *second = (plain_pooling(model, words) for words in encoded)
        for other in second:
            pooled = torch.cat((pooled, other, (pooled - other).abs(), pooled * other))
    for layer in head.maxouts or ():
        pooled = layer.linear(pooled).view(-1, 4).amax(1)
    if head.dense is not None:
        pooled = torch.relu(head.dense(pooled))
    return head.out_proj(pooled)


def plain_pooling(model: ElmoForSequenceClassification, words: Tensor) -> Tensor:
    if model.classifier.attention is not None:
        return torch.softmax(model.classifier.attention.scores(words)[:, 0], dim=0) @ words
    if model.config.classifier_pooling != "last":
        return words.mean(0) if model.config.classifier_pooling == "mean" else words.amax(0)
    hidden, parts = model.config.encoder_hidden_size, [words]
    if model.config.elmo_at_output:
        parts = [words[:, : 2 * hidden], words[:, 2 * hidden :]]
    return torch.cat([x for part in parts for x in (part[-1, : part.shape[1] // 2], part[0, part.shape[1] // 2 :])])


def plain_interaction(model: ElmoForSequenceClassification, texts: list[Tensor]) -> Tensor:
    pooled, interaction = [], model.classifier.interaction
    for x, y in zip(texts, texts[::-1], strict=True):
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


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_each_row_equals_the_plain_network(tokenizer: ElmoTokenizer, head: str, side: str) -> None:
    model = make(**HEADS[head]).double()
    head_mixes = model.classifier.scalar_mix, model.classifier.output_mix
    for number, mix in enumerate(filter(None, head_mixes)):  # with other weights
        mix.scalars.data[number] = 2.0
    batch = batch_of(tokenizer, "pairs" if model.reads_text_pairs else "pooled", side)
    found = model(**without_labels(batch)).logits
    assert found.shape == (4, 3)
    for row in range(4):
        texts, mixes = [], []
        for text in (SENTENCES, SECOND)[: 1 + model.reads_text_pairs]:
            one = model.elmo(**tokenizer(text[row], return_tensors="pt"), output_hidden_states=True)
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
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, atol=160 * 4e-6, rtol=0)
