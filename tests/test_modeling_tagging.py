"""ElmoForTokenClassification: logits, losses, semantic roles; the CRF against the enumeration of all sequences."""

import math
from contextlib import nullcontext
from itertools import pairwise, product

import pytest
import torch
from seqeval.metrics.sequence_labeling import get_entities
from torch import Tensor, nn

from hf_elmo.modeling_tagging_elmo import ElmoCRF, ElmoHighwayLSTM, allowed_transitions
from tests.heads import VECTORS, batch_of, make

NUM_LABELS, LENGTHS = 3, [4, 1, 0, 3]
MASK = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]

SEQUENCES = {
    "IOB1": (["I-x", "I-x", "O", "I-y"], "B-x"),
    "IOB2": (["B-x", "I-x", "O", "B-y"], "I-y"),
    "BIOES": (["B-x", "E-x", "O", "S-y"], "E-y"),
}


@pytest.mark.parametrize("fields", [{}, VECTORS], ids=["ELMo", "word vectors and ELMo"])
def test_the_linear_head(tokenizer, fields: dict) -> None:
    model, batch = make("tagger", **fields), batch_of(tokenizer, "tagger", words=bool(fields))
    output, here = model(**batch), batch["labels"] >= 0
    assert output.tags is None
    assert (output.logits[~here] == 0).all()
    vectors = model.elmo(batch["input_ids"]).last_hidden_state
    if fields:
        vectors = torch.cat((model.classifier.word_vectors(batch["word_vector_ids"]), vectors), dim=2)
    torch.testing.assert_close(output.logits[here], model.classifier.out_proj(vectors)[here])
    nll = -output.logits.log_softmax(2)[here].gather(1, batch["labels"][here][:, None])
    torch.testing.assert_close(output.loss, nll.mean())


def test_the_crf_reads_words_and_no_boundaries(tokenizer) -> None:
    model, batch = make("crf"), batch_of(tokenizer, "crf")
    output, labels, total = model(**batch), batch["labels"], 0.0
    assert torch.equal(output.tags == -100, labels == -100)
    for row in range(len(labels)):
        here = labels[row] >= 0
        emissions, mask = output.logits[row][here][None], torch.ones(1, int(here.sum()), dtype=torch.bool)
        total -= model.classifier.crf.log_likelihood(emissions, mask, labels[row][here][None])
        assert torch.equal(output.tags[row][here], model.classifier.crf.decode(emissions, mask)[0])
    torch.testing.assert_close(output.loss, total[0] / (labels >= 0).sum())
    assert model.train()(**batch).tags is None


@pytest.mark.parametrize("crf", [True, False], ids=["crf", "constraints alone"])
@pytest.mark.parametrize("scheme", SEQUENCES)
def test_labels_of_another_scheme(tokenizer, scheme: str, crf: bool) -> None:
    right, other = SEQUENCES[scheme]
    encoded = tokenizer(["w x y z"] * 2, padding=True, return_tensors="pt")
    names = ["O", *sorted({name[:2] + kind for name in (*right, other) for kind in "xy"} - {"Ox", "Oy"})]
    for order in (names, names[::-1]):  # whatever the label 0 is
        ids = {name: number for number, name in enumerate(order)}
        model = make("tagger", tagging_scheme=scheme, tagging_crf=crf, id2label=dict(enumerate(order)))
        wrong = [*right[:3], other]
        begins, ends = [other, *["O"] * 3], [*["O"] * 3, "B-x"]
        refused = (wrong, begins, ends) if scheme == "BIOES" else (wrong, begins)
        for sequence in (right, *refused, [*right[:2], None, other]):  # the last: the label before is not known
            labels = torch.tensor([[ids.get(name, -100) for name in own] for own in (right, sequence)])
            with pytest.raises(ValueError, match="tagging_scheme") if sequence in refused else nullcontext():
                assert model(**encoded, labels=nn.functional.pad(labels, (1, 1), value=-100)).loss.isfinite()


def plain_highway(layer: ElmoHighwayLSTM, words: Tensor) -> Tensor:
    """`[words, input]` to `[words, hidden]` of one text, as in the paper."""
    size, h = layer.hidden_size, words.new_zeros(layer.hidden_size)
    c, outputs = h, []
    into = layer.weight_ih.view(6, size, -1)
    bias, across = layer.bias.view(6, size), layer.weight_hh.view(5, size, size)
    for x in words:
        i, f, g, o, r = (into[gate] @ x + across[gate] @ h + bias[gate] for gate in range(5))
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
        r = torch.sigmoid(r)
        h = r * (torch.sigmoid(o) * torch.tanh(c)) + (1 - r) * (into[5] @ x + bias[5])
        outputs.append(h)
    return torch.stack(outputs)


def test_the_cell_of_the_highway_lstm_adds_small_numbers_in_bfloat16() -> None:
    layer = ElmoHighwayLSTM(1, 1, 0.0)
    nn.init.zeros_(layer.weight_ih)
    nn.init.zeros_(layer.weight_hh)
    layer.bias.data = torch.tensor([20, 20, 2**-8, 20, 20, 0.0])  # the gates are 1, each word adds 1 / 256
    outputs = layer.bfloat16()(torch.zeros(512, 1).bfloat16(), [1] * 512)
    assert outputs[-1].item() == pytest.approx(math.tanh(2), abs=2**-7)


def test_the_logits_of_a_predicate(tokenizer) -> None:
    model, batch = make("roles", layer_weights=-1).double(), tokenizer("the cat sat", return_tensors="pt")
    words, scores = model.elmo(batch["input_ids"]).last_hidden_state[0, 1:-1], []
    for predicate in (0, 1):
        indicator = (torch.arange(3) == predicate).long()
        expected = torch.cat((words, model.classifier.indicator.weight[indicator]), dim=1)
        for number, layer in enumerate(model.classifier.encoder.bilstm.layers):
            reverse = [0] if number % 2 else []
            expected = plain_highway(layer, expected.flip(reverse)).flip(reverse)
        expected = model.classifier.out_proj(expected)
        output = model(**batch, token_type_ids=nn.functional.pad(indicator, (1, 1))[None])
        torch.testing.assert_close(output.logits[0, 1:-1], expected)
        scores.append(expected)
    assert not torch.allclose(*scores)


def make_crf(num_labels: int = NUM_LABELS, scheme: tuple | None = None) -> ElmoCRF:
    torch.manual_seed(1)
    crf = ElmoCRF(num_labels, scheme).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def emissions(num_labels: int = NUM_LABELS, seed: int = 2) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(*MASK.shape, num_labels, dtype=torch.float64)


def enumerated(crf: ElmoCRF, row: Tensor, length: int) -> dict[tuple[int, ...], float]:
    """The weight of each sequence of labels."""
    weights = {}
    for labels in product(range(len(crf.start)), repeat=length):
        total = crf.start[labels[0]] + crf.end[labels[-1]] + sum(row[i, label] for i, label in enumerate(labels))
        weights[labels] = math.exp(total + sum(crf.transitions[pair] for pair in pairwise(labels)))
    return weights


def test_the_likelihood_of_a_sequence() -> None:
    """A word without a label may have any."""
    crf, x = make_crf(), emissions()
    for labels in ([[1, 0, 2, 2], [0], [], [0, 1, 2]], [[1, -100, 2, -100], [-100], [], [-100] * 3]):
        rows = torch.tensor([row + [-100] * (4 - len(row)) for row in labels])
        found = crf.log_likelihood(x, MASK, rows).exp().tolist()
        for row, own in enumerate(labels):
            weights = enumerated(crf, x[row], len(own)) if own else {}
            right = [w for key, w in weights.items() if all(b in (a, -100) for a, b in zip(key, own, strict=True))]
            assert found[row] == pytest.approx(sum(right) / sum(weights.values()) if own else 1)
    with pytest.raises(RuntimeError):  # a label that the model does not have
        crf.log_likelihood(x, MASK, torch.full(MASK.shape, NUM_LABELS))


@pytest.mark.parametrize("scheme", [None, "IOB1", "IOB2", "BIOES"])
def test_the_best_sequence_that_a_scheme_allows(scheme: str | None) -> None:
    labels = ["O", "B-x", "I-x", "E-x", "S-x"] if scheme == "BIOES" else ["O", "B-x", "I-x", "B-y", "I-y"]
    allowed, changed = scheme and allowed_transitions(labels, scheme), 0
    crf, unlearned = make_crf(len(labels), allowed), ElmoCRF(len(labels), allowed, learned=False)
    assert not list(unlearned.parameters())
    for seed, (row, length) in product(range(2), enumerate(LENGTHS)):
        x = emissions(len(labels), seed)
        found = crf.decode(x, MASK)
        assert (found[row, length:] == -100).all()
        if length:
            weights = enumerated(crf, x[row], length)
            valid = {key: v for key, v in weights.items() if is_valid([labels[i] for i in key], scheme)}
            best = tuple(found[row, :length].tolist())
            assert best == max(valid, key=valid.get)
            changed += best != max(weights, key=weights.get)
            by_emissions = {key: sum(float(x[row, i, label]) for i, label in enumerate(key)) for key in valid}
            assert tuple(unlearned(x, MASK)[row, :length].tolist()) == max(by_emissions, key=by_emissions.get)
    assert bool(changed) == bool(scheme)


def test_equal_sums_of_probabilities_as_allennlp_chooses_among_them() -> None:
    labels = ["O", "B-x", "I-x", "B-y", "I-y", "B-z", "I-z"]
    crf = ElmoCRF(len(labels), allowed_transitions(labels, "IOB2"), learned=False)
    crf.sums_probabilities = True
    x = torch.tensor([[[3, -1, -3, 3, 0, -3, 2], [1, 2, -1, -2, 0, -1, -3]]]) / 10
    assert crf.decode(x, torch.ones(1, 2, dtype=torch.bool)).tolist() == [[0, 1]]


def is_valid(sequence: list[str], scheme: str | None) -> bool:
    """Whether a scheme writes the chunks that conlleval finds in a sequence as the sequence has them."""
    written = ["O"] * len(sequence)
    for kind, first, last in get_entities(sequence):
        prefixes = ["I"] * (last - first + 1)
        if scheme == "BIOES":
            prefixes = ["S"] if first == last else ["B", *prefixes[1:-1], "E"]
        elif scheme == "IOB2" or "".join(sequence[:first][-1:]).endswith(kind):
            prefixes[0] = "B"
        written[first : last + 1] = [f"{prefix}-{kind}" for prefix in prefixes]
    return scheme is None or written == sequence


def test_long_rows_in_float32() -> None:
    """2,000 words, whose scores sum to 30,000: probabilities, the likelihood and its gradient as in float64."""
    torch.manual_seed(0)
    crf, x, mask = make_crf(9), 10 * torch.randn(2, 2000, 9), torch.arange(2000) < torch.tensor([[2000], [1500]])
    labels, results = crf.decode(x.double(), mask), []
    for dtype in (torch.float64, torch.float32):
        crf.to(dtype).zero_grad()
        likelihood = crf(x.to(dtype), mask, labels)
        likelihood.sum().backward()
        gradients = [parameter.grad.norm() for parameter in crf.parameters()]
        results.append([likelihood, *gradients, crf(x.to(dtype), mask, marginals=True)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=2e-5, check_dtype=False)


def test_marginals() -> None:
    crf, x = make_crf(), emissions()
    with torch.inference_mode():
        found = crf(x.float(), MASK, marginals=True)
    weights = enumerated(crf, x[0].float(), 4)
    for word, label in product(range(4), range(NUM_LABELS)):
        expected = sum(v for labels, v in weights.items() if labels[word] == label) / sum(weights.values())
        torch.testing.assert_close(found[0, word, label].item(), expected, atol=1e-5, rtol=1e-5)
    assert (found[~MASK] == 0).all()
