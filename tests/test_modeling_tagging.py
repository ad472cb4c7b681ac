"""ElmoForTokenClassification: logits, CRF, schemes, losses, and the tagger of semantic roles."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from hf_elmo import ElmoTokenizer
from hf_elmo.modeling_tagging_elmo import ElmoHighwayLSTM
from tests.heads import VECTORS, batch_of, make

SEQUENCES = {
    "IOB1": (["I-x", "I-x", "O", "I-y"], "B-x"),
    "IOB2": (["B-x", "I-x", "O", "B-y"], "I-y"),
    "BIOES": (["B-x", "E-x", "O", "S-y"], "E-y"),
}


@pytest.mark.parametrize("fields", [{}, VECTORS], ids=["ELMo", "word vectors and ELMo"])
def test_the_linear_head(tokenizer: ElmoTokenizer, fields: dict) -> None:
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


def test_the_crf_reads_words_and_no_boundaries(tokenizer: ElmoTokenizer) -> None:
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
def test_labels_of_another_scheme(tokenizer: ElmoTokenizer, scheme: str, crf: bool) -> None:
    """Such as data in IOB1 that is read as IOB2."""
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


def test_the_logits_of_a_predicate(tokenizer: ElmoTokenizer) -> None:
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
