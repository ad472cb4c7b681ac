"""ElmoForQuestionAnswering: the attention flow of a passage by itself, losses, positions, answers that cannot be."""

import pytest
import torch
from torch import Tensor
from transformers.loss.loss_utils import ForQuestionAnsweringLoss

from hf_elmo import ElmoForQuestionAnswering
from hf_elmo.modeling_heads_elmo import ElmoInputs
from tests.heads import ENDS, STARTS, VECTORS, batch_of, make, without_labels
from tests.test_modeling_classification import plain_bilstm

HEADS = {
    "plain": ("answers", {}),
    "ELMo twice": ("answers", {"encoder_type": "attention_flow", "elmo_at_output": True}),
    "no answer": ("no answer", {}),
    "no ELMo": ("answers", {**VECTORS, "use_elmo": False}),
}


def plain_flow(model: ElmoForQuestionAnswering, passage: Tensor, question: Tensor) -> Tensor:
    """Seo et al. 2017, section 2, equations 1 to 3 (with the projection of Clark and Gardner), with each pair's sum."""
    w, h = model.qa_outputs.flow.similarity, passage[:, None]
    scores = h @ w.of_x + question @ w.of_y + (h * question) @ w.of_both  # [words of the passage, of the question]
    found = scores.softmax(1) @ question
    sought = scores.amax(1).softmax(0) @ passage
    return model.qa_outputs.flow.combine(torch.cat((passage, found, passage * found, passage * sought), dim=1)).relu()


def plain_self_attention(model: ElmoForQuestionAnswering, passage: Tensor) -> Tensor:
    attention = model.qa_outputs.self_attention
    h, w = plain_bilstm(attention.bilstm, passage), attention.similarity
    scores = h @ w.of_y + (h[:, None] * h) @ w.of_both
    weights = scores.fill_diagonal_(-torch.inf).softmax(1).nan_to_num()  # a single word has no others
    found = weights @ h
    return passage + attention.combine(torch.cat((h, found, h * found), dim=1)).relu()


def plain_scores(model: ElmoForQuestionAnswering, passage: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The scores of starts, of ends and of no answer."""
    span = model.qa_outputs.span
    first = plain_bilstm(span.start_bilstm, passage)
    last = plain_bilstm(span.end_bilstm, torch.cat((passage, first), dim=1))
    start, end = first @ span.start.weight[0], last @ span.end.weight[0]
    if span.no_answer is None:
        return start, end, None
    parts = [(start, first), (end, last), (passage @ span.attention.scores.weight[0], passage)]
    found = torch.cat([scores.softmax(0) @ words for scores, words in parts])
    return start, end, span.no_answer(span.hidden(found).relu())


@pytest.mark.parametrize("head", HEADS)
def test_the_network_is_that_of_the_papers(tokenizer, head: str) -> None:
    name, changes = HEADS[head]
    model, batch = make(name, **changes).double(), batch_of(tokenizer, "answers", words=True)
    for parameter_name, parameter in model.named_parameters():
        parameter.data *= 4 if "similarity" in parameter_name else 1  # so that attention is far from even
    output, lowest = model(**batch, output_hidden_states=True), torch.finfo(torch.float64).min
    embedded = model.qa_outputs.embed(model.read_words(ElmoInputs(**without_labels(batch))))
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
            torch.testing.assert_close(logits[first : first + words], scores)
        every = (start[:, None] + end).flatten()  # Clark and Gardner's normalizer: of every start with every end
        if no_answer is not None:
            torch.testing.assert_close(output.start_logits[row, :1] + output.end_logits[row, :1], no_answer)
            every = torch.cat((every, no_answer))
            no_answer_losses.append(every.logsumexp(0) - no_answer[0])
        losses.append(every.logsumexp(0) - start[a - first] - end[b - first])
    torch.testing.assert_close(output.loss, sum(losses) / 4)
    if head == "no answer":
        nothing = {"start_positions": torch.zeros(4).long(), "end_positions": torch.zeros(4).long()}
        torch.testing.assert_close(model(**{**batch, **nothing}).loss, sum(no_answer_losses) / 4)
    else:  # twice that of the other models of transformers, which take the mean of both ends
        expected = 2 * ForQuestionAnsweringLoss(output.start_logits, output.end_logits, STARTS, ENDS)
        torch.testing.assert_close(output.loss, expected)
