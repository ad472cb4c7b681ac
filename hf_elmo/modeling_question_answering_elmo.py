"""The head for question answering: which words of a passage answer a question."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import QuestionAnsweringModelOutput
from transformers.utils import can_return_tuple

from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .modeling_elmo import ElmoHighway, State, count_labels, refuse_unknown
from .modeling_heads_elmo import ElmoBiLSTM, ElmoHead, ElmoInputs, ElmoTaskModel, ElmoTexts
from .modeling_pooling_elmo import ElmoAttentionPooling, masked_softmax, max_over


class ElmoTrilinear(nn.Module):
    """Similarities of words, `w1 . x_i + w2 . y_j + w3 . (x_i * y_j)` with learned w (Seo et al. 2017, section 2).

    `of_x=False` leaves out the first term, which has no effect on a softmax over j.
    """

    def __init__(self, size: int, of_x: bool = True) -> None:
        super().__init__()
        self.of_x = nn.Parameter(torch.empty(size)) if of_x else None
        self.of_y = nn.Parameter(torch.empty(size))
        self.of_both = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """`[batch, n, size]` and `[batch, m, size]` to `[batch, n, m]`."""
        scores = (x * self.of_both) @ y.mT + (y @ self.of_y)[:, None]
        return scores if self.of_x is None else scores + (x @ self.of_x)[:, :, None]


class ElmoAttentionFlow(nn.Module):
    """Attention from the passage to the question and from the question to the passage: the attention flow layer (Seo et
    al. 2017, section 2), and a last layer if `output_size` is given (Clark and Gardner 2018)."""

    def __init__(self, size: int, output_size: int | None, dropout: float) -> None:
        super().__init__()
        self.similarity = ElmoTrilinear(size)
        self.combine = nn.Linear(4 * size, output_size) if output_size else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, passage: Tensor, passage_mask: Tensor, question: Tensor, question_mask: Tensor) -> Tensor:
        """Passage `[batch, n, size]`, question `[batch, m, size]` to `[batch, n, output_size or 4 * size]`."""
        passage = self.dropout(passage)
        question = self.dropout(question)
        scores = self.similarity(passage, question)
        to_question = masked_softmax(scores, question_mask[:, None]) @ question
        best = max_over(scores.mT, question_mask)
        to_passage = masked_softmax(best, passage_mask)[:, None] @ passage
        joined = torch.cat((passage, to_question, passage * to_question, passage * to_passage), dim=2)
        return joined if self.combine is None else torch.relu(self.combine(joined))


class ElmoSelfAttention(nn.Module):
    """Attention of each passage word over the other words, with a residual connection (Clark and Gardner 2018)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.bilstm = ElmoBiLSTM(size, hidden_size, dropout=dropout)
        self.similarity = ElmoTrilinear(2 * hidden_size, of_x=False)
        self.combine = nn.Linear(6 * hidden_size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, passage: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, size]` and `[batch, words]` to `[batch, words, size]`."""
        x = self.dropout(self.bilstm(passage, mask))
        others = mask[:, None] & ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        attended = masked_softmax(self.similarity(x, x), others) @ x
        return passage + torch.relu(self.combine(torch.cat((x, attended, x * attended), dim=2)))


class ElmoAnswerSpan(nn.Module):
    """Scores of the words as start and as end of the answer, the end conditioned on the start (Clark and Gardner 2018);
    with `config.allow_no_answer`, also the score of no answer."""

    def __init__(self, size: int, hidden_size: int, config: ElmoConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.start_bilstm = ElmoBiLSTM(size, hidden_size, dropout=config.encoder_dropout)
        self.end_bilstm = ElmoBiLSTM(size + 2 * hidden_size, hidden_size, dropout=config.encoder_dropout)
        self.start = nn.Linear(2 * hidden_size, 1, bias=False)  # a bias has no effect on a softmax over words
        self.end = nn.Linear(2 * hidden_size, 1, bias=False)
        self.attention = self.hidden = self.no_answer = None
        if config.allow_no_answer:
            self.attention = ElmoAttentionPooling(size)
            self.hidden = nn.Linear(4 * hidden_size + size, hidden_size)
            self.no_answer = nn.Linear(hidden_size, 1)

    def forward(self, passage: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """`[batch, words, size]` to scores of starts and ends, each `[batch, words]`, and of no answer, `[batch]`."""
        start_states = self.start_bilstm(passage, mask)
        end_states = self.end_bilstm(torch.cat((passage, start_states), dim=2), mask)
        start = self.start(self.dropout(start_states)).squeeze(2)
        end = self.end(self.dropout(end_states)).squeeze(2)
        if self.no_answer is None:
            return start, end, None
        pairs = ((start, start_states), (end, end_states))
        summaries = [(masked_softmax(scores, mask)[:, None] @ states)[:, 0] for scores, states in pairs]
        summaries.append(self.attention(passage, mask))
        hidden = torch.relu(self.hidden(self.dropout(torch.cat(summaries, dim=1))))
        return start, end, self.no_answer(hidden).squeeze(1)


class ElmoQuestionAnsweringHead(ElmoHead):
    """Bidirectional attention flow with self-attention over the encoded words, and the scores of answers."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config, lstm=ElmoBiLSTM)
        hidden = config.encoder_hidden_size
        dropout = config.encoder_dropout
        self.flow = ElmoAttentionFlow(sum(self.sizes), 2 * hidden, dropout)
        self.self_attention = ElmoSelfAttention(2 * hidden, hidden, dropout)
        self.span = ElmoAnswerSpan(2 * hidden, hidden, config)

    def forward(self, read: ElmoTexts) -> tuple[Tensor, Tensor, Tensor | None]:
        """The words of questions and of passages to scores of the passage's words as start and as end, each `[batch,
        words]`, and of no answer, `[batch]`."""
        question, passage = (self.encode(*text) for text in self.embed(read))
        question_mask, mask = (text.mask for text in read.texts)
        return self.span(self.self_attention(self.flow(passage, mask, question, question_mask), mask), mask)


class ElmoBidafHead(ElmoHead):
    """Bidirectional attention flow over the encoded words, and the scores of answers (Seo et al. 2017, section 2). The
    scores of ends also depend on the expected state of the start, as in AllenNLP."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config, lstm=ElmoBiLSTM)
        dropout = config.encoder_dropout
        size = 4 * sum(self.sizes)
        modeled = 2 * config.bidaf_modeling_size
        self.highways = nn.Sequential(*(ElmoHighway(self.vectors_size) for _ in range(config.bidaf_highway_layers)))
        self.flow = ElmoAttentionFlow(sum(self.sizes), None, dropout)
        self.modeling_bilstm = ElmoBiLSTM(size, config.bidaf_modeling_size, config.bidaf_modeling_layers, dropout)
        self.end_bilstm = ElmoBiLSTM(size + 3 * modeled, config.bidaf_end_size, dropout=dropout)
        self.start = nn.Linear(size + modeled, 1)
        self.end = nn.Linear(size + 2 * config.bidaf_end_size, 1)

    def forward(self, read: ElmoTexts) -> tuple[Tensor, Tensor, None]:
        """As [`ElmoQuestionAnsweringHead`], without scores of no answer."""
        question, passage = (self.encode(self.highways(vectors), *others) for vectors, *others in self.embed(read))
        question_mask, mask = (text.mask for text in read.texts)
        passage = self.flow(passage, mask, question, question_mask)
        modeled = self.modeling_bilstm(passage, mask)
        states = torch.cat((passage, modeled), dim=2)
        start = self.start(self.dropout(states)).squeeze(2)
        expected = masked_softmax(start, mask)[:, None] @ modeled
        states = torch.cat((states, expected.expand_as(modeled), modeled * expected), dim=2)
        states = torch.cat((passage, self.end_bilstm(states, mask)), dim=2)
        return start, self.end(self.dropout(states)).squeeze(2), None


class ElmoForQuestionAnswering(ElmoTaskModel):
    """Finds the words of a passage that answer a question: bidirectional attention flow with self-attention (Clark and
    Gardner 2018), as in Peters et al. 2018 (appendix), but with LSTMs in place of GRUs; or with
    `config.encoder_type="bidaf"` without self-attention, the network of Seo et al. 2017.

    Question and passage are the first and the second text of a row, `tokenizer(questions, passages, ...)`. The biLM,
    and then one BiLSTM, read each text separately; `config.elmo_at_output` concatenates ELMo to the BiLSTM's output.
    `config.encoder_dropout` is applied to the inputs of LSTMs and attentions, `config.classifier_dropout` to the inputs
    of the last layers. Memory grows with the square of the number of words in a passage: split long passages
    ([`hf_elmo.encode_questions`]).
    """

    _auto_class = "AutoModelForQuestionAnswering"
    head_name = "qa_outputs"
    encoder_types = (None, "attention_flow", "bidaf")  # the first two are names of one encoder
    reads_text_pairs = True

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        is_bidaf = config.encoder_type == "bidaf"
        if is_bidaf and config.allow_no_answer:  # the loss of no answer would be infinite, which Trainer does not log
            raise ValueError("allow_no_answer is True, but with encoder_type='bidaf' each question has an answer.")
        self.qa_outputs = (ElmoBidafHead if is_bidaf else ElmoQuestionAnsweringHead)(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        word_characters: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        piece: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> QuestionAnsweringModelOutput:
        r"""
        Args:
            input_ids, ..., length: as in [`ElmoInputs`].
            start_positions: `[batch]`, the position of the answer's first word in its row. Boundaries and question are
                counted, but padding is not, so that the padding side does not matter. 0 for no answer
                (`config.allow_no_answer`), -100 for a row without a label.
            end_positions: `[batch]`, the position of the answer's last word, counted in the same way.
            piece: not read. Trainer passes this column of [`hf_elmo.encode_questions`] to the metrics.
            num_items_in_batch: the number of labeled rows of all accumulated steps; `None` for the mean over the
                batch. (Trainer does not count these rows, but averages the steps. The result is the same if all steps
                have equally many labeled rows, as with [`hf_elmo.encode_questions`] and `labeled_only=True`.)

        Returns:
            `loss` (if positions are given): the negative log-probability of the answer among all pairs of a start and
            an end, and no answer. It is the sum of the losses of start and end; most transformers models take the mean.
            `start_logits` and `end_logits` `[batch, positions]`, with positions counted as above. All positions but
            those of the passage's words have the lowest number of the dtype, but with `config.allow_no_answer`,
            position 0 has half of the score of no answer. `hidden_states` (if asked for).

        Raises:
            ValueError: the answer is not in the passage; or as in [`ElmoTaskModel.read_words`].
        """
        refuse_unknown(kwargs)
        inputs = ElmoInputs(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            state=state,
            special_tokens_mask=special_tokens_mask,
            word_vector_ids=word_vector_ids,
            word_characters=word_characters,
            bilm_layers=bilm_layers,
            output_hidden_states=output_hidden_states,
        )
        read = self.read_words(inputs)
        start, end, no_answer = self.qa_outputs(read)
        passage = read.texts[1]
        mask, _ = inputs.masks
        order = torch.where(mask, mask.cumsum(1), mask.shape[1] + 1).argsort(1)  # moves padding to the right
        in_passage = passage.is_read.gather(1, order)
        start, end = (_at_words(passage.place(x).gather(1, order), in_passage, no_answer) for x in (start, end))
        loss = None
        if start_positions is not None and end_positions is not None:
            starts, ends = (positions.view(-1).to(in_passage.device) for positions in (start_positions, end_positions))
            loss = self._nll(start, end, in_passage, starts, ends) / count_labels(starts, num_items_in_batch)
            loss = self.regularize(loss, starts, num_items_in_batch)
        return QuestionAnsweringModelOutput(loss, start, end, read.hidden_states)

    def _nll(self, start: Tensor, end: Tensor, in_passage: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """The negative log-probability of the answers, summed over the rows that have a label."""
        labeled = starts != IGNORE_INDEX
        starts, ends = (positions.masked_fill(~labeled, 0)[:, None] for positions in (starts, ends))
        possible = (in_passage.gather(1, starts) & in_passage.gather(1, ends))[:, 0]
        start, end = (scores.to(torch.promote_types(scores.dtype, torch.float32)) for scores in (start, end))
        total = start[:, 1:].logsumexp(1) + end[:, 1:].logsumexp(1)  # of the passage: position 0 is that of no answer
        if self.config.allow_no_answer:
            total = torch.logaddexp(total, start[:, 0] + end[:, 0])
            possible |= (starts == 0)[:, 0] & (ends == 0)[:, 0]
        if not possible[labeled].all():  # the loss would be infinite, which Trainer does not log
            raise ValueError("start_positions and end_positions must be in the passage, or both 0 (allow_no_answer).")
        return (total - start.gather(1, starts)[:, 0] - end.gather(1, ends)[:, 0])[labeled].sum()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ElmoTrilinear):  # like one linear layer over [x; y; x * y]
            bound = math.sqrt(6 / (3 * len(module.of_y) + 1))
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)
        else:
            super()._init_weights(module)


def _at_words(scores: Tensor, in_passage: Tensor, no_answer: Tensor | None) -> Tensor:
    """The scores where `in_passage` is true, and `no_answer / 2` at position 0; elsewhere the lowest number."""
    logits = scores.masked_fill(~in_passage, torch.finfo(scores.dtype).min)
    is_first = torch.arange(logits.shape[1], device=logits.device) == 0
    return logits if no_answer is None else torch.where(is_first, no_answer[:, None] / 2, logits)
