"""ElmoForQuestionAnswering: the attention flow by loops, losses, positions, answers that cannot be."""

import pytest
import torch
from torch import Tensor
from transformers.loss.loss_utils import ForQuestionAnsweringLoss

from hf_elmo import ElmoForQuestionAnswering, ElmoTokenizer
from hf_elmo.modeling_heads_elmo import ElmoInputs
from tests import heads
from tests.heads import ENDS, STARTS, VECTORS, batch_of, without_labels
from tests.test_encoders import plain_bilstm

HEADS = {
    "plain": ("answers", {}),
    "ELMo twice": ("answers", {"encoder_type": "attention_flow", "elmo_at_output": True}),
    "no answer": ("no answer", {}),
    "no ELMo": ("answers", {**VECTORS, "use_elmo": False}),
}
every_head = pytest.mark.parametrize("head", HEADS)


def make(head: str = "plain", **changes: object) -> ElmoForQuestionAnswering:
    name, fields = HEADS[head]
    model = heads.make(name, **{**fields, **changes})
    with torch.no_grad():  # so that attention is far from even
        for parameter_name, parameter in model.named_parameters():
            if "similarity" in parameter_name:
                parameter.mul_(4)
    return model


@pytest.fixture
def batch(tokenizer: ElmoTokenizer) -> dict[str, Tensor]:
    return batch_of(tokenizer, "answers", words=True)


def softmax(scores: list[Tensor]) -> list[Tensor]:
    powers = [score.exp() for score in scores]
    return [power / sum(powers) for power in powers]


def plain_flow(model: ElmoForQuestionAnswering, passage: Tensor, question: Tensor) -> Tensor:
    """Each pair of words by itself: Seo et al. 2017, section 2, equations 1 to 3 (with the projection of Clark and
    Gardner)."""
    w = model.qa_outputs.flow.similarity
    scores = [[w.of_x @ h + w.of_y @ u + w.of_both @ (h * u) for u in question] for h in passage]
    sought = sum(weight * h for weight, h in zip(softmax([max(row) for row in scores]), passage, strict=True))
    rows = []
    for h, row in zip(passage, scores, strict=True):
        found = sum(weight * u for weight, u in zip(softmax(row), question, strict=True))
        rows.append(model.qa_outputs.flow.combine(torch.cat((h, found, h * found, h * sought))).clamp(min=0))
    return torch.stack(rows)


def plain_self_attention(model: ElmoForQuestionAnswering, passage: Tensor) -> Tensor:
    attention, rows = model.qa_outputs.self_attention, []
    read, w = plain_bilstm(attention.bilstm, passage), attention.similarity
    for i, h in enumerate(read):
        others = [u for j, u in enumerate(read) if j != i]
        weights = softmax([w.of_y @ u + w.of_both @ (h * u) for u in others])
        found = sum((weight * u for weight, u in zip(weights, others, strict=True)), torch.zeros_like(h))
        rows.append(passage[i] + attention.combine(torch.cat((h, found, h * found))).clamp(min=0))
    return torch.stack(rows)


def plain_scores(model: ElmoForQuestionAnswering, passage: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
    """The scores of starts, of ends and of no answer."""
    span = model.qa_outputs.span
    first = plain_bilstm(span.start_bilstm, passage)
    last = plain_bilstm(span.end_bilstm, torch.cat((passage, first), dim=1))
    start, end = [span.start.weight[0] @ h for h in first], [span.end.weight[0] @ h for h in last]
    if span.no_answer is None:
        return start, end, None
    parts = [(start, first), (end, last), ([span.attention.scores.weight[0] @ h for h in passage], passage)]
    found = [sum(w * h for w, h in zip(softmax(scores), words, strict=True)) for scores, words in parts]
    return start, end, span.no_answer(span.hidden(torch.cat(found)).clamp(min=0))[0]


@every_head
def test_the_network_is_that_of_the_papers(batch: dict, head: str) -> None:
    model = make(head).double()
    output, lowest = model(**batch, output_hidden_states=True), torch.finfo(torch.float64).min
    both_texts, _ = model.read_words(ElmoInputs(**without_labels(batch)))
    embedded = model.qa_outputs.embed(both_texts)
    losses, no_answer_losses = [], []
    for row, (a, b) in enumerate(zip(STARTS.tolist(), ENDS.tolist(), strict=True)):
        texts = []
        for vectors, mask, mix in embedded:
            text = plain_bilstm(model.qa_outputs.encoder.bilstm, vectors[row, mask[row]])
            texts.append(text if mix is None else torch.cat((text, mix[row, mask[row]]), dim=1))
        question, passage = texts
        passage = plain_self_attention(model, plain_flow(model, passage, question))
        start, end, no_answer = plain_scores(model, passage)
        first, words = len(question) + 3, len(passage)
        places = [*([] if no_answer is None else [0]), *range(first, first + words)]
        for logits, scores in ((output.start_logits[row], start), (output.end_logits[row], end)):
            assert (logits > lowest).nonzero()[:, 0].tolist() == places
            torch.testing.assert_close(logits[first : first + words], torch.stack(scores))
        every = [s + e for s in start for e in end]  # Clark and Gardner's normalizer: of every start with every end
        if no_answer is not None:
            torch.testing.assert_close(output.start_logits[row, 0] + output.end_logits[row, 0], no_answer)
            every.append(no_answer)
        total = sum(score.exp() for score in every).log()
        losses.append(total - start[a - first] - end[b - first])
        no_answer_losses.append(None if no_answer is None else total - no_answer)
    torch.testing.assert_close(output.loss, sum(losses) / 4)
    if head == "no answer":
        nothing = {"start_positions": torch.zeros(4).long(), "end_positions": torch.zeros(4).long()}
        torch.testing.assert_close(model(**{**batch, **nothing}).loss, sum(no_answer_losses) / 4)
    else:  # twice that of the other models of transformers, which take the mean of both ends
        expected = 2 * ForQuestionAnsweringLoss(output.start_logits, output.end_logits, STARTS, ENDS)
        torch.testing.assert_close(output.loss, expected)


@pytest.mark.parametrize(
    ("row", "start", "end"),
    [(0, 2, 7), (0, 7, 12), (1, 5, 5), (2, 0, 0)],
    ids=["in the question", "at </S>", "after the passage", "no answer"],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_an_answer_outside_of_the_passage(tokenizer: ElmoTokenizer, row: int, start: int, end: int, side: str) -> None:
    batch = batch_of(tokenizer, "answers", side)
    batch["start_positions"], batch["end_positions"] = STARTS.clone(), ENDS.clone()
    batch["start_positions"][row], batch["end_positions"][row] = start, end
    with pytest.raises(ValueError, match="start_positions"):
        make()(**batch)
