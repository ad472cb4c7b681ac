"""The tagger, a head that predicts a label for each word: the CRF, what tagging schemes allow, the model, its loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .modeling_elmo import State, compact, expand, refuse_unknown
from .modeling_heads_elmo import ElmoInputs, ElmoTaskEncoder, ElmoTaskModel, count_labels, require
from .pipeline_elmo import register as register_pipeline

IMPOSSIBLE = -1e4  # score of a forbidden start, transition or end; finite, so that there is always a best sequence
# For each scheme, prefixes that continue a chunk of the same type, that begin a chunk, that cannot end a chunk.
_CONTINUES = {"IOB1": "IB", "IOB2": "I", "BIOES": "IE"}
_BEGINS = {"IOB1": "I", "IOB2": "B", "BIOES": "BS"}
_OPEN = {"IOB1": "", "IOB2": "", "BIOES": "BI"}


def allowed_transitions(labels: Sequence[str], scheme: str) -> tuple[list[bool], list[list[bool]], list[bool]]:
    """The sequences that a tagging scheme allows: which labels may begin a sentence, which labels may follow each label
    (`[before][after]`), and which labels may end a sentence.

    Args:
        labels: names of labels, each `"O"`, or a prefix and a type, such as `"B-PER"`.
        scheme: `"IOB1"` (B only between two adjacent chunks of the same type), `"IOB2"` or `"BIOES"`.

    Raises:
        ValueError: a label has a prefix that the scheme does not have. (The label would never be predicted.)
    """
    prefixes = {"O", *_BEGINS[scheme], *_CONTINUES[scheme]}
    parts = [(label.partition("-")[0], label.partition("-")[2]) for label in labels]
    for label, (prefix, _) in zip(labels, parts, strict=True):
        if prefix not in prefixes:
            raise ValueError(f"id2label has {label!r}, but tagging_scheme {scheme!r} has only {sorted(prefixes)}.")

    def may_follow(before: tuple[str, str], after: tuple[str, str]) -> bool:
        in_chunk = before[0] not in ("O", "E", "S") and before[1] == after[1]
        if before[0] in _OPEN[scheme]:
            return in_chunk and after[0] in _CONTINUES[scheme]
        return after[0] == "O" or after[0] in _BEGINS[scheme] or (in_chunk and after[0] in _CONTINUES[scheme])

    starts = [may_follow(("O", ""), after) for after in parts]
    ends = [prefix not in _OPEN[scheme] for prefix, _ in parts]
    return starts, [[may_follow(before, after) for after in parts] for before in parts], ends


class ElmoCRF(nn.Module):
    """A linear-chain conditional random field: the score of a sequence of labels is the sum of an emission score for
    each word, a transition score for each pair of adjacent labels, and scores of the first and the last label.

    All methods take `emissions [batch, words, labels]` and `mask [batch, words]`, with the words at the left end of
    each row (`compact` of modeling_elmo.py puts them there), and compute in float32 at least.

    Args:
        allowed: the result of [`allowed_transitions`]; `None` to allow every sequence.
        learned: whether transitions, start and end have scores. If not, labels depend on each other only by `allowed`.
    """

    def __init__(self, num_labels: int, allowed: tuple[list, list, list] | None = None, learned: bool = True) -> None:
        super().__init__()
        shapes = {"transitions": (num_labels, num_labels), "start": (num_labels,), "end": (num_labels,)}
        for name, shape in shapes.items():  # transitions: [before, after]
            self.register_parameter(name, nn.Parameter(torch.empty(shape)) if learned else None)
        self.allowed = allowed

    def forward(
        self, emissions: Tensor, mask: Tensor, labels: Tensor | None = None, *, marginals: bool = False
    ) -> Tensor:
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
        return of_labels - of_all

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch]`, the logarithm of the sum of the exponentiated scores of all sequences of labels."""
        emissions, start, transitions, end = self._in_float32(emissions)
        score = start + emissions[:, 0]
        for step in range(1, mask.shape[1]):
            next_score = torch.logsumexp(score[:, :, None] + transitions, dim=1) + emissions[:, step]
            score = torch.where(mask[:, step, None], next_score, score)
        return torch.where(mask[:, 0], torch.logsumexp(score + end, dim=1), 0.0)  # 0 for a row without words

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words]`, the best sequence of each row among those that are allowed (Viterbi); -100 at padding."""
        emissions, start, transitions, end = self._in_float32(emissions)
        if self.allowed is not None:
            start, transitions, end = (
                score.masked_fill(~torch.tensor(allowed, device=score.device), IMPOSSIBLE)
                for score, allowed in zip((start, transitions, end), self.allowed, strict=True)
            )
        score, pointers = start + emissions[:, 0], []
        stay = torch.arange(len(start), device=score.device).expand_as(score)
        for step in range(1, mask.shape[1]):
            best, pointer = (score[:, :, None] + transitions).max(1)
            in_row = mask[:, step, None]
            score = torch.where(in_row, best + emissions[:, step], score)
            pointers.append(torch.where(in_row, pointer, stay))
        labels = [(score + end).argmax(1)]
        for pointer in reversed(pointers):
            labels.append(pointer.gather(1, labels[-1][:, None])[:, 0])
        return torch.stack(labels[::-1], dim=1).masked_fill(~mask, IGNORE_INDEX)

    def marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """`[batch, words, labels]`, the probability of each label of each word; zero at padding."""
        with torch.inference_mode(False), torch.enable_grad():
            emissions, mask = self._in_float32(emissions.detach().clone())[0].requires_grad_(), mask.clone()
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


class ElmoForTokenClassification(ElmoTaskModel):
    """Predicts a label for each word. ELMo reads whole words, so each word has one position and one label.

    The classifier is linear, over ELMo or over an encoder (`config.encoder_type`), with or without a CRF
    (`config.tagging_crf`); predicted sequences obey `config.tagging_scheme`. The CRF is trained by the loss of
    `forward`, not by a loss that Trainer computes from the logits (`label_smoothing_factor`, `compute_loss_func`).

    The named entity tagger of Peters et al. 2018 (appendix; Lample et al. 2016) has `encoder_type="bilstm"`,
    `encoder_num_layers=2`, `tagging_crf=True`. Their semantic role labeler (appendix; He et al. 2017) has
    `encoder_type="alternating"`, `encoder_num_layers=8`, `encoder_recurrent_dropout=0.1`,
    `tagging_indicator_size=100`, `tagging_scheme="IOB2"`, and reads a row for each predicate.

    Raises:
        ValueError: a label of `config.id2label` does not belong to `config.tagging_scheme`.
    """

    _auto_class = "AutoModelForTokenClassification"
    encoder_types = (None, "bilstm", "alternating")
    custom_pipelines: ClassVar = {
        "token-classification": {
            "impl": "pipeline_elmo.ElmoTokenClassificationPipeline",
            "pt": ["AutoModelForTokenClassification"],
        }
    }

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        indicator_size = config.tagging_indicator_size or 0
        size = self.vectors_size + indicator_size
        self.indicator = nn.Embedding(2, indicator_size) if indicator_size else None
        self.encoder = ElmoTaskEncoder(config, size) if config.encoder_type else None
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(sum(self.encoder.sizes) if self.encoder else size, config.num_labels)
        self.crf, scheme = None, config.tagging_scheme
        if config.tagging_crf or scheme is not None:
            names = [config.id2label[label] for label in range(config.num_labels)]
            allowed = None if scheme is None else allowed_transitions(names, scheme)
            self.crf = ElmoCRF(config.num_labels, allowed, learned=config.tagging_crf)
        self.loss_function = token_classification_loss
        self.post_init()

    def save_pretrained(self, *args: object, **kwargs: object) -> None:
        """As in [`ElmoPreTrainedModel`], and names the pipeline in config.json (`custom_pipelines`)."""
        vars(self.config)["custom_pipelines"] = self.custom_pipelines if self.is_remote_code() else {}
        super().save_pretrained(*args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
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
                allow after the label of the preceding word; or as in [`ElmoTaskModel.task_features`].
        """
        refuse_unknown(kwargs)
        texts = input_ids, attention_mask, inputs_embeds, state, special_tokens_mask
        features = self.task_features(ElmoInputs(*texts, word_vector_ids, bilm_layers, output_hidden_states))
        if self.indicator is not None:
            indicator = self.indicator(require("token_type_ids", token_type_ids))
            features.vectors = torch.cat((features.vectors, indicator), dim=2)
        encoded, inside = self.encode(features, features.words)
        scores = self.classifier(self.dropout(encoded))
        logits = expand(scores[inside], features.words)
        loss = tags = None
        if labels is not None:
            word_labels = self._labels_of_words(labels, features.words)
            if self.config.tagging_crf:
                loss = -self.crf(scores, inside, word_labels).sum() / count_labels(labels, num_items_in_batch)
            else:
                loss = self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
            loss = self.regularize(loss, labels, num_items_in_batch)
        if self.crf is not None and not self.training:
            tags = torch.full_like(features.words, IGNORE_INDEX, dtype=torch.int64)
            tags = tags.masked_scatter(features.words, self.crf(scores, inside)[inside])
        return ElmoTokenClassifierOutput(loss, logits, tags, features.hidden_states)

    @torch.compiler.disable  # it reads values
    def _labels_of_words(self, labels: Tensor, words: Tensor) -> Tensor:
        """The labels at the positions that the mask `words` selects, moved to the left end of each row and padded with
        -100. Raises ValueError for labels at other positions, and for sequences that the tagging scheme forbids."""
        if ((labels != IGNORE_INDEX) & ~words).any():
            raise ValueError("labels must be -100 at <S>, </S> and padding, but are not: use tokenizer.align_labels.")
        labels, inside = compact(labels, words)
        labels = labels.masked_fill(~inside, IGNORE_INDEX)
        if self.crf is not None and self.crf.allowed is not None:
            may_follow = torch.tensor(self.crf.allowed[1], device=labels.device)
            before, after = labels[:, :-1], labels[:, 1:]
            wrong = (before >= 0) & (after >= 0) & ~may_follow[before.clamp(min=0), after.clamp(min=0)]
            if wrong.any():
                names = [self.config.id2label[part[wrong][0].item()] for part in (before, after)]
                raise ValueError(f"labels have {names[1]!r} after {names[0]!r}, which tagging_scheme does not allow.")
        return labels

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ElmoCRF):
            for parameter in module.parameters():
                init.uniform_(parameter, -0.1, 0.1)
        else:
            super()._init_weights(module)


register_pipeline()


def token_classification_loss(
    logits: Tensor, labels: Tensor, config: ElmoConfig, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """The mean cross-entropy of the labels `[batch, positions]` that are not -100, with `logits` of the shape `[batch,
    positions, num_labels]`: as in transformers, but zero without any label."""
    known = labels != IGNORE_INDEX
    wide = torch.promote_types(logits.dtype, torch.float32)
    total = nn.functional.cross_entropy(logits[known].to(wide), labels[known], reduction="sum")
    return total / count_labels(labels, num_items_in_batch)
