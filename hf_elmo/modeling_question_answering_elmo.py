"""ELMo with a head for extractive question answering: the words of a passage that answer a question."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from .arguments_elmo import model_forward, require_no_loss_function
from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .encoders_elmo import ElmoAttentionPooling, ElmoBiLSTM, ElmoTaskEncoder, masked_softmax, max_over
from .lstm_elmo import State
from .modeling_tasks_elmo import (
    CLASSIFIER_FIELDS,
    COREFERENCE_FIELDS,
    TAGGER_FIELDS,
    ElmoTaskModel,
    TaskWords,
    at_least_one,
    share_of_items,
)
from .packing_elmo import compact, expand


class ElmoTrilinear(nn.Module):
    """How well words fit each other, `w1 . x_i + w2 . y_j + w3 . (x_i * y_j)` (Seo et al. 2017, section 2).

    `of_x=False` leaves the first term out: it has no effect on a softmax over j.
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
    """What each word of a passage finds in the question, and what of the passage the question asks for: the attention
    flow layer (Seo et al. 2017, section 2; Clark and Gardner 2018)."""

    def __init__(self, size: int, output_size: int, dropout: float) -> None:
        super().__init__()
        self.similarity = ElmoTrilinear(size)
        self.projection = nn.Linear(4 * size, output_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, passage: Tensor, inside: Tensor, question: Tensor, asked: Tensor) -> Tensor:
        """`passage [batch, words, size]` and `question [batch, words of the question, size]` with their masks, to
        `[batch, words, output_size]`."""
        passage, question = self.dropout(passage), self.dropout(question)
        scores = self.similarity(passage, question)
        found = masked_softmax(scores, asked[:, None]) @ question
        best = max_over(scores.mT, asked)
        sought = masked_softmax(best, inside)[:, None] @ passage
        return torch.relu(self.projection(torch.cat((passage, found, passage * found, passage * sought), dim=2)))


class ElmoSelfAttention(nn.Module):
    """What each word of a passage finds in its other words, added to what is known of it (Clark and Gardner 2018)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.bilstm = ElmoBiLSTM(size, hidden_size, dropout=dropout)
        self.similarity = ElmoTrilinear(2 * hidden_size, of_x=False)
        self.projection = nn.Linear(6 * hidden_size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, passage: Tensor, inside: Tensor) -> Tensor:
        """`[batch, words, size]` and `[batch, words]` to `[batch, words, size]`."""
        x = self.dropout(self.bilstm(passage, inside))
        others = inside[:, None] & ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        found = masked_softmax(self.similarity(x, x), others) @ x
        return passage + torch.relu(self.projection(torch.cat((x, found, x * found), dim=2)))


class ElmoAnswerSpan(nn.Module):
    """Scores of words as the first and as the last of the answer, the end conditioned on the start (Clark and Gardner
    2018). With `config.allow_no_answer` a score, too, that there is no answer (their no-answer option)."""

    def __init__(self, size: int, hidden_size: int, config: ElmoConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.start_bilstm = ElmoBiLSTM(size, hidden_size, dropout=config.encoder_dropout)
        self.end_bilstm = ElmoBiLSTM(size + 2 * hidden_size, hidden_size, dropout=config.encoder_dropout)
        self.start = nn.Linear(2 * hidden_size, 1, bias=False)  # a softmax over words takes no notice of a bias
        self.end = nn.Linear(2 * hidden_size, 1, bias=False)
        self.attention = self.hidden = self.no_answer = None
        if config.allow_no_answer:
            self.attention = ElmoAttentionPooling(size)
            self.hidden = nn.Linear(4 * hidden_size + size, hidden_size)
            self.no_answer = nn.Linear(hidden_size, 1)

    def forward(self, passage: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """`[batch, words, size]` and `[batch, words]` to the scores of the first and of the last word, each
        `[batch, words]`, and that of no answer, `[batch]`."""
        first = self.start_bilstm(passage, inside)
        last = self.end_bilstm(torch.cat((passage, first), dim=2), inside)
        start = self.start(self.dropout(first)).squeeze(2)
        end = self.end(self.dropout(last)).squeeze(2)
        if self.no_answer is None:
            return start, end, None
        found = [(masked_softmax(scores, inside)[:, None] @ x)[:, 0] for scores, x in ((start, first), (end, last))]
        found.append(self.attention(passage, inside))
        hidden = torch.relu(self.hidden(self.dropout(torch.cat(found, dim=1))))
        return start, end, self.no_answer(hidden).squeeze(1)


class ElmoForQuestionAnswering(ElmoTaskModel):
    """The words of a passage that answer a question: bidirectional attention flow with self-attention (Clark and
    Gardner 2018; Seo et al. 2017), as the paper uses it (Peters et al. 2018, appendix on question answering), with
    LSTMs for GRUs.

    Question and passage are the first and the second text of a pair, `tokenizer(questions, passages, ...)`. Each is
    read by the biLM for itself, then both by one BiLSTM, beside whose output ELMo stands again with
    `config.elmo_at_output`. `config.encoder_dropout` is on what LSTMs and attentions read, `config.classifier_dropout`
    on what the last layers do. Memory grows with the square of a passage's words: cut long ones into pieces
    ([`hf_elmo.encode_questions`]).

    Raises:
        ValueError: `config.encoder_type` is another one.
    """

    _auto_class = "AutoModelForQuestionAnswering"
    encoder_types = (None, "attention_flow")  # the same
    without_effect = (*ElmoTaskModel.without_effect, *CLASSIFIER_FIELDS, *TAGGER_FIELDS, *COREFERENCE_FIELDS)
    reads_text_pairs = True

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        hidden, dropout = config.encoder_hidden_size, config.encoder_dropout
        self.encoder = ElmoTaskEncoder(config, self.vectors_size)
        self.flow = ElmoAttentionFlow(sum(self.encoder.sizes), 2 * hidden, dropout)
        self.self_attention = ElmoSelfAttention(2 * hidden, hidden, dropout)
        self.span = ElmoAnswerSpan(2 * hidden, hidden, config)
        self.post_init()

    @model_forward
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> QuestionAnsweringModelOutput:
        r"""
        Args:
            start_positions: `[batch]`, the position of the answer's first word in its row, the boundaries and the
                question counted: an index into the row that the tokenizer gives without padding, so that it is the same
                wherever padding stands. 0 for no answer (`config.allow_no_answer`), -100 for a row without a label.
            end_positions: `[batch]`, that of its last word.
            length: not read here: Trainer sorts by this column of a data set (`train_sampling_strategy`), and drops
                columns that are no arguments.
            num_items_in_batch: the labeled rows of all accumulated steps; `None` for the mean over those of the batch.
                (Trainer does not count them: it averages steps, which is the same where they have as many labeled rows,
                as those of [`hf_elmo.encode_questions`] have with `labeled_only=True`.)

        The others are those of [`ElmoTaskModel.read_words`].

        Returns:
            `loss` (with positions): the negative log-probability of the answer among all pairs of a start and an end,
            and no answer, averaged; it is the sum of both ends' losses, of which most of transformers' models take
            the half. `start_logits` and `end_logits` `[batch, positions]`, counted as the positions are; the lowest
            number of their type where no word of the passage is. Position 0 holds half of the score of no answer in
            each, with `config.allow_no_answer`. `hidden_states`.

        Raises:
            ValueError: an answer is not in its passage, ends before it starts, or is missing and must not be; or an
                input does not fit, as [`ElmoTaskModel.read_words`] says.
        """
        read = self.read_words(
            input_ids,
            attention_mask,
            inputs_embeds,
            state,
            special_tokens_mask,
            word_vector_ids,
            bilm_layers,
            output_hidden_states,
            text_pairs=True,
        )
        of_passage = read.words & (read.texts == 2)
        question, asked = self._encode(read, read.words & (read.texts == 1))
        passage, inside = self._encode(read, of_passage)
        passage = self.self_attention(self.flow(passage, inside, question, asked), inside)
        start, end, no_answer = self.span(passage, inside)
        places = torch.arange(of_passage.shape[1], device=of_passage.device) < read.mask.sum(1, keepdim=True)
        places = expand(of_passage[read.mask], places)
        start, end = (_place(scores[inside], places, no_answer) for scores in (start, end))
        loss = None
        if start_positions is not None or end_positions is not None:
            require_no_loss_function(self)
            starts, ends = _positions(start_positions, end_positions, places, self.config.allow_no_answer)
            loss = self._nll(start, end, places, starts, ends).sum()
            items = at_least_one((starts != IGNORE_INDEX).sum() if num_items_in_batch is None else num_items_in_batch)
            loss = self.regularize(loss / items, share_of_items(starts, num_items_in_batch))
        return QuestionAnsweringModelOutput(
            loss=loss, start_logits=start, end_logits=end, hidden_states=read.hidden_states
        )

    def _encode(self, read: TaskWords, words: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output of the words of a mask, `[batch, words, size]`, and where it has words."""
        vectors, inside = compact(read.vectors, words)
        again = None if read.elmo_at_output is None else compact(read.elmo_at_output, words)[0]
        return self.encoder(vectors, inside, again), inside

    def _nll(self, start: Tensor, end: Tensor, places: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """The negative log-probability of the answer of each row that has a label."""
        wide = torch.promote_types(start.dtype, torch.float32)
        start, end = start.to(wide), end.to(wide)
        lowest = torch.finfo(wide).min
        total = sum(scores.masked_fill(~places, lowest).logsumexp(1) for scores in (start, end))
        if self.config.allow_no_answer:
            total = torch.logaddexp(total, start[:, 0] + end[:, 0])
        labeled = starts != IGNORE_INDEX
        rows = labeled.nonzero()[:, 0]
        return total[rows] - start[rows, starts[rows]] - end[rows, ends[rows]]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ElmoTrilinear):  # as one linear layer over [x; y; x * y]
            bound = math.sqrt(6 / (3 * len(module.of_y) + 1))
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)
        else:
            super()._init_weights(module)


def _place(scores: Tensor, places: Tensor, no_answer: Tensor | None) -> Tensor:
    """The scores of all passages' words, row after row, where `places` `[batch, positions]` are."""
    lowest = torch.finfo(scores.dtype).min
    logits = scores.new_full(places.shape, lowest).masked_scatter(places, scores)
    return logits if no_answer is None else torch.cat((no_answer[:, None] / 2, logits[:, 1:]), dim=1)


@torch.compiler.disable  # it asks for the values
def _positions(starts: Tensor | None, ends: Tensor | None, places: Tensor, no_answer: bool) -> tuple[Tensor, Tensor]:
    """The positions `[batch]`; refuses those that are no answer in their passage (ValueError)."""
    for name, given in (("start_positions", starts), ("end_positions", ends)):
        if given is None:
            raise ValueError(f"{name} is missing: an answer has a start and an end.")
        if given.shape not in ((len(places),), (len(places), 1)):
            raise ValueError(
                f"{name} has the shape {list(given.shape)}, but must be [{len(places)}], one for each row."
            )
    starts, ends = starts.view(-1).to(places.device), ends.view(-1).to(places.device)
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if start == end == IGNORE_INDEX or (no_answer and start == end == 0):
            continue
        words = places[row].nonzero()[:, 0].tolist()
        if start not in words or end not in words or end < start:
            where = f"is at {words[0]} to {words[-1]}" if words else "has no words"
            also = "" if no_answer else " (0, no answer, is for config.allow_no_answer)"
            raise ValueError(
                f"row {row} has an answer from start_positions {start} to end_positions {end}, but its passage "
                f"{where}: count the positions of input_ids without padding; -100 for a row without a label{also}."
            )
    return starts, ends


__all__ = ["ElmoForQuestionAnswering"]
