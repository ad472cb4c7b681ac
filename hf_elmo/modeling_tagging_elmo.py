"""The tagger, a head that predicts a label for each word: the CRF, what tagging schemes allow, the model, its loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .modeling_elmo import Packing, State, count_labels, refuse_unknown
from .modeling_heads_elmo import ElmoHead, ElmoInputs, ElmoTaskModel, ElmoText, ElmoTexts, require
from .pipeline_elmo import ElmoTokenClassificationPipeline, choose_pipeline

IMPOSSIBLE = -1e4  # score of a forbidden start, transition or end; finite, so that there is always a best sequence
# For each scheme, its prefixes, and those of them that only follow B or I of the same type.
SCHEMES = {"IOB1": ("IB", "B"), "IOB2": ("BI", "I"), "BIOES": ("BIES", "IE"), "BIOUL": ("BIUL", "IL")}


def allowed_transitions(labels: Sequence[str], scheme: str) -> list[list[bool]]:
    """The sequences that a tagging scheme allows: which labels may follow each label (`[before][after]`). The last
    row is of the begin of a sentence, the last column of its end.

    Args:
        labels: names of labels, each `"O"`, or a prefix and a type, such as `"B-PER"`.
        scheme: `"IOB1"` (B only between two adjacent chunks of the same type), `"IOB2"`, `"BIOES"` or `"BIOUL"`.

    Raises:
        ValueError: a label has a prefix that the scheme does not have. (The label would never be predicted.)
    """
    prefixes, following = SCHEMES[scheme]
    parts = [label.partition("-")[::2] for label in labels]
    for label, (prefix, _) in zip(labels, parts, strict=True):
        if prefix not in ("O", *prefixes):
            raise ValueError(f"id2label has {label!r}, but tagging_scheme {scheme!r} has only O and {list(prefixes)}.")

    def may_follow(before: tuple[str, str], after: tuple[str, str]) -> bool:
        in_chunk = before[0] in ("B", "I")
        if after[0] in following:
            return in_chunk and before[1] == after[1]
        return scheme in ("IOB1", "IOB2") or not in_chunk  # E or L ends a chunk

    parts.append(("O", ""))  # before and after a sentence
    return [[may_follow(before, after) for after in parts] for before in parts]


class ElmoCRF(nn.Module):
    """A linear-chain conditional random field: the score of a sequence of labels is the sum of an emission score for
    each word, a transition score for each pair of adjacent labels, and scores of the first and the last label.

    All methods take `emissions [batch, words, labels]` and `mask [batch, words]`, with the words at the left end of
    each row, as in [`ElmoText`], and compute in float32 at least.

    Args:
        allowed: the result of [`allowed_transitions`]; `None` to allow every sequence.
        learned: whether transitions, start and end have scores. If not, labels depend on each other only by `allowed`.
    """

    sums_probabilities = False  # whether `decode` turns emissions into probabilities by a softmax

    def __init__(self, num_labels: int, allowed: list[list[bool]] | None = None, learned: bool = True) -> None:
        super().__init__()
        shapes = {"transitions": (num_labels, num_labels), "start": (num_labels,), "end": (num_labels,)}
        for name, shape in shapes.items():  # transitions: [before, after]
            self.register_parameter(name, nn.Parameter(torch.empty(shape)) if learned else None)
        self.allowed = allowed

    def forward(self, emissions: Tensor, mask: Tensor, labels: Tensor | None = None, marginals: bool = False) -> Tensor:
        """Calls `log_likelihood` with `labels`, else `marginals` or `decode`. (Only calls of a module run hooks.)"""
        if labels is not None:
            return self.log_likelihood(emissions, mask, labels)
        return self.marginals(emissions, mask) if marginals else self.decode(emissions, mask)

    def log_likelihood(self, emissions: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """`[batch]`, the log-probability of the labels `[batch, words]` of each row. A label of -100 is unknown: the
        probability is summed over all labels of the word (Tsuboi et al. 2008). A row without words has log(1) = 0."""
        possible = nn.functional.one_hot(labels.clamp(min=0), emissions.shape[2]).bool() | (labels < 0)[:, :, None]
        both = torch.cat((emissions.masked_fill(~possible, -torch.inf), emissions))
        of_labels, of_all = self.log_partition(both, mask.repeat(2, 1)).chunk(2)
        return (of_labels - of_all).sum(1)

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words]`, numbers whose sum over the words is the logarithm of the sum of the exponentiated scores of
        all sequences of labels. (Of a long row, the sum has too few digits for differences.)"""
        emissions, start, transitions, end = self._in_float32(emissions)
        score = start + emissions[:, 0] + transitions[:0].sum()  # 0: also with single words, they get a gradient
        parts = []
        for step in range(1, mask.shape[1]):
            parts.append(score.detach().amax(1))  # taken out, so that the scores stay small
            score = score - parts[-1][:, None]
            next_score = torch.logsumexp(score[:, :, None] + transitions, dim=1) + emissions[:, step]
            score = torch.where(mask[:, step, None], next_score, score)
        parts.append(torch.logsumexp(score + end, dim=1))
        return torch.stack(parts, dim=1).masked_fill(~mask[:, :1], 0.0)  # 0 for a row without words

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words]`, the best sequence of each row among those that are allowed (Viterbi); -100 at padding."""
        emissions, start, transitions, end = self.decoding_scores(emissions)
        if self.sums_probabilities:
            # AllenNLP sums from 100,000 on (from 0 where no text may begin), in float32, hence in steps of 1/128, and
            # its `topk` also reads two further labels, begin and end. The choice among equal sums depends on all these.
            emissions = nn.functional.pad(emissions.softmax(2), (0, 2), value=-torch.inf)
            start, end = (nn.functional.pad(part, (0, 2)) for part in ((start + 1e5).clamp(min=0), end))
            transitions = nn.functional.pad(transitions, (0, 2, 0, 2))
        score = start + emissions[:, 0]
        pointers = []
        stay = torch.arange(len(start), device=score.device).expand_as(score)
        for step in range(1, mask.shape[1]):
            best, pointer = self._best(score[:, :, None] + transitions)
            in_row = mask[:, step, None]
            score = torch.where(in_row, best + emissions[:, step], score)
            pointers.append(torch.where(in_row, pointer, stay))
        labels = [self._best(score + end)[1]]
        for pointer in reversed(pointers):
            labels.append(pointer.gather(1, labels[-1][:, None])[:, 0])
        return torch.stack(labels[::-1], dim=1).masked_fill(~mask, IGNORE_INDEX)

    def decoding_scores(self, emissions: Tensor) -> tuple[Tensor, ...]:
        """What `decode` adds up: the emissions, and the scores of starts, transitions and ends."""
        emissions, start, transitions, end = self._in_float32(emissions)
        impossible = -torch.inf if self.sums_probabilities else IMPOSSIBLE
        if self.allowed is not None:
            forbidden = ~torch.tensor(self.allowed, device=emissions.device)
            start = start.masked_fill(forbidden[-1, :-1], impossible)
            transitions = transitions.masked_fill(forbidden[:-1, :-1], impossible)
            end = end.masked_fill(forbidden[:-1, -1], impossible)
        return emissions, start, transitions, end

    def _best(self, scores: Tensor) -> Sequence[Tensor]:
        """The highest of the scores over their axis 1, and their indices."""
        return [x.squeeze(1) for x in scores.topk(1, 1)] if self.sums_probabilities else scores.max(1)

    def marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, labels]`, the probability of each label of each word; zero at padding."""
        with torch.inference_mode(False), torch.enable_grad():
            emissions = self._in_float32(emissions.detach().clone())[0].requires_grad_()
            mask = mask.clone()
            # The derivative of the log-partition with respect to an emission score is the probability of its label.
            return torch.autograd.grad(self.log_partition(emissions, mask).sum(), emissions)[0]

    def _in_float32(self, emissions: Tensor) -> tuple[Tensor, ...]:
        """Emissions, start, transition and end scores in float32, or in float64 if the emissions are."""
        emissions = emissions.to(torch.promote_types(emissions.dtype, torch.float32))
        if self.transitions is None:
            zeros = emissions.new_zeros(emissions.shape[2])
            return emissions, zeros, zeros.expand(len(zeros), -1), zeros
        return emissions, *(part.to(emissions) for part in (self.start, self.transitions, self.end))


@dataclass
class ElmoTokenClassifierOutput(ModelOutput):
    """The output of [`ElmoForTokenClassification`].

    Args:
        loss: if `labels` are given, the mean loss over the words that have a label.
        logits: `[batch, positions, num_labels]`, the scores of each word's labels, before a CRF; zero at boundaries and
            padding.
        tags: only in evaluation mode with a CRF or a tagging scheme. `[batch, positions]`, the best label sequence;
            -100 at boundaries and padding.
        hidden_states: if `output_hidden_states=True`, the layers of the biLM, each `[batch, positions, 2P]`.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    tags: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class ElmoHighwayLSTM(GradientCheckpointingLayer):
    """A unidirectional LSTM layer with a highway connection (Zhang et al. 2016; He et al. 2017, section 2.2):
    `h = r * (o * tanh(c)) + (1 - r) * W x`, where the gate `r` is computed like the other gates."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.weight_ih = nn.Parameter(torch.empty(6 * hidden_size, input_size))  # i, f, g, o, r and the highway's W
        self.weight_hh = nn.Parameter(torch.empty(5 * hidden_size, hidden_size))  # i, f, g, o, r
        self.bias = nn.Parameter(torch.empty(6 * hidden_size))

    def forward(self, words: Tensor, batch_sizes: Sequence[int]) -> Tensor:
        """Packed words `[packed, input_size]`, in reading order, to `[packed, hidden_size]`."""
        gates, highway = nn.functional.linear(words, self.weight_ih, self.bias).split(5 * self.hidden_size, dim=1)
        # The cell is a sum over words, in float32 at least; products have the dtype of the weights, or autocast's.
        hidden = highway.new_zeros(batch_sizes[0], self.hidden_size)
        cell = self.bias.new_zeros(hidden.shape, dtype=torch.promote_types(self.bias.dtype, torch.float32))
        dropout_mask = nn.functional.dropout(torch.ones_like(hidden), self.dropout, self.training)
        weight_hh = self.weight_hh.T.to(hidden)
        outputs = []
        for step_gates, step_highway in zip(gates.split(batch_sizes), highway.split(batch_sizes), strict=True):
            size = len(step_highway)  # rows that have ended are the last ones
            hidden, cell = self.step(step_gates, step_highway, hidden[:size], cell[:size], weight_hh)
            hidden = hidden * dropout_mask[:size]
            outputs.append(hidden)
        return torch.cat(outputs)

    @staticmethod
    def step(gates: Tensor, highway: Tensor, hidden: Tensor, cell: Tensor, weight_hh: Tensor) -> State:
        """The next hidden state and cell."""
        i, f, g, o, r = torch.addmm(gates, hidden, weight_hh).chunk(5, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return torch.lerp(highway, (o.sigmoid() * cell.tanh()).to(highway), r.sigmoid()), cell


class ElmoAlternatingLSTM(nn.Module):
    """Stacked LSTM layers that read forward and backward in turn, each over the output of the layer below (He et al.
    2017, section 2.2; Zhou and Xu 2015). The output is zero at positions that the mask leaves out."""

    directions = 1  # of each layer
    packing_type = Packing  # another one for exports

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, dropout: float, recurrent_dropout: float
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output_size = self.directions * hidden_size
        sizes = [size for size in (input_size, *[self.output_size] * (num_layers - 1)) for _ in range(self.directions)]
        self.layers = nn.ModuleList(ElmoHighwayLSTM(size, hidden_size, recurrent_dropout) for size in sizes)

    @torch.compiler.disable  # the packing differs from batch to batch
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, input_size]` and `[batch, words]` to `[batch, words, hidden_size]`."""
        packing = self.packing_type.of(mask | ~mask.any())  # without words, padding is read: parameters get gradients
        words = self.dropout(packing.pack(vectors))
        if any(layer.training and layer.gradient_checkpointing for layer in self.layers):
            words.requires_grad_()  # else a reentrant checkpoint computes no gradients
        return packing.pad(self.run(words, packing)).masked_fill(~mask[:, :, None], 0.0)

    def run(self, words: Tensor, packing: Packing) -> Tensor:
        """The layers, from packed words `[packed, input_size]`."""
        for layer in self.layers:
            words = layer(words, packing.batch_sizes).index_select(0, packing.reverse)
        return words.index_select(0, packing.reverse) if len(self.layers) % 2 else words


class ElmoBiHighwayLSTM(ElmoAlternatingLSTM):
    """Stacked bidirectional LSTM layers with highway connections, whose output is zero where the mask is false."""

    directions = 2

    def run(self, words: Tensor, packing: Packing) -> Tensor:
        for forward, backward in zip(self.layers[::2], self.layers[1::2], strict=True):
            both = forward(words, packing.batch_sizes), backward(words[packing.reverse], packing.batch_sizes)
            words = packing.join(both)
        return words


class ElmoTaggingHead(ElmoHead):
    """Scores the labels of each word, over ELMo or over an encoder; a CRF decodes them, with `config.tagging_crf` or a
    tagging scheme."""

    def __init__(self, config: ElmoConfig) -> None:
        lstm = {"alternating": ElmoAlternatingLSTM, "highway": ElmoBiHighwayLSTM}.get(config.encoder_type)
        lstm = lstm and partial(lstm, recurrent_dropout=config.encoder_recurrent_dropout)
        indicator_size = config.tagging_indicator_size or 0
        scheme = config.tagging_scheme
        super().__init__(config, indicator_size, lstm)
        self.indicator = nn.Embedding(2, indicator_size) if indicator_size else None
        hidden = config.classifier_hidden_size
        self.dense = nn.Linear(sum(self.sizes), hidden) if hidden else None
        self.activation = torch.relu if config.classifier_activation == "relu" else torch.tanh
        self.out_proj = nn.Linear(hidden or sum(self.sizes), config.num_labels)
        self.crf = None
        if config.tagging_crf or scheme is not None:
            names = [config.id2label[label] for label in range(config.num_labels)]
            allowed = None if scheme is None else allowed_transitions(names, scheme)
            self.crf = ElmoCRF(config.num_labels, allowed, learned=config.tagging_crf)
            self.crf.sums_probabilities = config.tagging_sums_probabilities

    def forward(self, read: ElmoTexts, token_type_ids: Tensor | None = None) -> Tensor:
        """The words of each row to scores of their labels, `[batch, words, num_labels]`, before a CRF."""
        ((vectors, mask, output_mix),) = self.embed(read)
        if self.indicator is not None:
            types = read.texts[0].align(require("token_type_ids", token_type_ids))
            vectors = torch.cat((vectors, self.indicator(types)), dim=2)
        encoded = self.encode(vectors, mask, output_mix)
        if self.dense is not None:
            encoded = self.activation(self.dense(self.dropout(encoded)))
        return self.out_proj(self.dropout(encoded))


class ElmoForTokenClassification(ElmoTaskModel):
    """Predicts a label for each word. ELMo reads whole words, so each word has one position and one label.

    The classifier is linear. A CRF (`config.tagging_crf`) is trained by the loss of `forward`, not by a loss that
    Trainer computes from the logits (`label_smoothing_factor`, `compute_loss_func`).

    The named entity tagger of Peters et al. 2018 (appendix; Lample et al. 2016) has `encoder_type="bilstm"`,
    `encoder_num_layers=2`, `tagging_crf=True`. Their semantic role labeler (appendix; He et al. 2017) has
    `encoder_type="alternating"`, `encoder_num_layers=8`, `encoder_recurrent_dropout=0.1`,
    `tagging_indicator_size=100`, `tagging_scheme="IOB2"`, and reads a row for each predicate.

    Raises:
        ValueError: a label of `config.id2label` does not belong to `config.tagging_scheme`.
    """

    _auto_class = "AutoModelForTokenClassification"
    encoder_types = (None, "bilstm", "alternating", "highway")
    _pipeline: ClassVar = {"impl": f"pipeline_elmo.{ElmoTokenClassificationPipeline.__name__}", "pt": [_auto_class]}
    custom_pipelines: ClassVar = {"token-classification": _pipeline, "ner": _pipeline}

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.classifier = ElmoTaggingHead(config)
        self.loss_type = "ForTokenClassification"
        self.post_init()

    @property
    def hf_device_map(self) -> dict[str, Any]:
        """What accelerate has set. A pipeline that is made of the model asks for it first."""
        choose_pipeline()
        return self._hf_device_map

    @hf_device_map.setter
    def hf_device_map(self, device_map: dict[str, Any]) -> None:
        self._hf_device_map = device_map

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
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> ElmoTokenClassifierOutput:
        r"""
        Args:
            input_ids, ..., length: as in [`ElmoInputs`].
            token_type_ids: `[batch, positions]`, 1 for the word that the labels of the row refer to, such as the
                predicate of semantic roles, 0 elsewhere. Required with `config.tagging_indicator_size`, else not read.
            labels: `[batch, positions]`, as `tokenizer.align_labels` makes them: -100 for sentence boundaries, padding
                and words without a label. For a word without a label, a CRF sums over all possible labels.
            num_items_in_batch: the number of labels of all accumulated steps; `None` for the mean over `labels`.

        Raises:
            ValueError: `labels` has a label that is not at a word, or a label that `config.tagging_scheme` does not
                allow there (after the preceding label, first or last); or as in [`ElmoTaskModel.read_words`].
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
        (words,) = read.texts
        scores = self.classifier(read, token_type_ids)
        logits = words.place(scores)
        crf = self.classifier.crf
        loss = tags = None
        if labels is not None:
            word_labels = self._labels_of_words(labels, words)
            count = count_labels(labels, num_items_in_batch)
            if self.config.tagging_crf:  # else there may be a CRF that only decodes, as a scheme allows
                loss = -crf(scores, words.mask, word_labels).sum() / count
            else:  # transformers divides the sum of the losses by the count
                loss = self.loss_function(logits, labels, self.config, num_items_in_batch=count)
            loss = self.regularize(loss, labels, num_items_in_batch)
        if crf is not None and not self.training:
            tags = words.place(crf(scores, words.mask)).masked_fill(~words.is_read, IGNORE_INDEX)
        return ElmoTokenClassifierOutput(loss, logits, tags, read.hidden_states)

    @torch.compiler.disable  # it reads values
    def _labels_of_words(self, labels: Tensor, words: ElmoText) -> Tensor:
        """The labels `[batch, words]` of the words, padded with -100. Raises ValueError for labels at other positions,
        and for labels that the tagging scheme does not allow after the label or boundary before."""
        if ((labels != IGNORE_INDEX) & ~words.is_read).any():
            raise ValueError("labels must be -100 at <S>, </S> and padding, but are not: use tokenizer.align_labels.")
        labels = words.align(labels).masked_fill(~words.mask, IGNORE_INDEX)
        crf = self.classifier.crf
        if crf is not None and crf.allowed is not None:
            may_follow = torch.tensor(crf.allowed, device=labels.device)
            boundary = self.num_labels  # the number of the last row and column
            padded = nn.functional.pad(labels.masked_fill(~words.mask, boundary), (1, 1), value=boundary)
            before = padded[:, :-1]
            after = padded[:, 1:]
            wrong = (before >= 0) & (after >= 0) & ~may_follow[before.clamp(min=0), after.clamp(min=0)]
            if wrong.any():
                first = {**self.config.id2label, boundary: "<S>"}[before[wrong][0].item()]
                second = {**self.config.id2label, boundary: "</S>"}[after[wrong][0].item()]
                raise ValueError(f"labels have {second!r} after {first!r}, which tagging_scheme does not allow.")
        return labels

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ElmoCRF):
            for parameter in module.parameters():
                init.uniform_(parameter, -0.1, 0.1)
        elif isinstance(module, ElmoHighwayLSTM):  # each gate orthonormal (He et al. 2017, section 3.3)
            for weight in (module.weight_ih, module.weight_hh):
                gates = [nn.init.orthogonal_(torch.empty_like(gate)) for gate in weight.split(module.hidden_size)]
                init.copy_(weight, torch.cat(gates))
            bias = torch.zeros_like(module.bias)
            bias[module.hidden_size : 2 * module.hidden_size] = 1.0  # the forget gate
            init.copy_(module.bias, bias)
        elif module is self.classifier.indicator:  # words without a mark have zeros
            vectors = torch.empty_like(module.weight).uniform_(-1.0, 1.0)
            vectors[0] = 0.0
            init.copy_(module.weight, vectors)
        else:
            super()._init_weights(module)
