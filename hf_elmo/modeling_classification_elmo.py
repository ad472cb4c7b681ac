"""ELMo with a classifier of whole texts on it."""

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from .arguments_elmo import model_forward, own_loss_function
from .configuration_elmo import ElmoConfig
from .configuration_tasks_elmo import PROBLEM_TYPES
from .encoders_elmo import (
    ElmoAttentionPooling,
    ElmoBiattention,
    ElmoLocalInference,
    ElmoMaxout,
    ElmoTaskEncoder,
    last_over,
    max_over,
)
from .lstm_elmo import State
from .modeling_tasks_elmo import (
    ANSWER_FIELDS,
    COREFERENCE_FIELDS,
    TAGGER_FIELDS,
    ElmoTaskModel,
    TaskWords,
    at_least_one,
    share_of_items,
)
from .packing_elmo import compact, mean_over, require_labels


class ElmoForSequenceClassification(ElmoTaskModel):
    """A label, several labels or a number for each text, or pair of texts.

    `config.encoder_type` says what reads the words: nothing (they are pooled), a BiLSTM, the biattentive
    classification network (McCann et al. 2017) or ESIM (Chen et al. 2017); `config.classifier_pooling` how the first
    two are pooled; `config.classifier_text_pairs` whether texts come in pairs.

    Raises:
        ValueError: `config.encoder_type` is another one, or a field of the configuration has no effect on this head.
    """

    _auto_class = "AutoModelForSequenceClassification"
    encoder_types = (None, "bilstm", "biattentive", "esim")
    without_effect = (*ElmoTaskModel.without_effect, *TAGGER_FIELDS, *ANSWER_FIELDS, *COREFERENCE_FIELDS)

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        pairs, hidden, dropout = config.classifier_text_pairs, config.encoder_hidden_size, config.encoder_dropout
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.encoder = ElmoTaskEncoder(config, self.vectors_size) if config.encoder_type else None
        self.parts = self.encoder.sizes if self.encoder else [self.vectors_size]
        self.interaction = self.attention = self.maxouts = self.dense = None
        if config.encoder_type in ("biattentive", "esim"):
            interaction = ElmoBiattention if config.encoder_type == "biattentive" else ElmoLocalInference
            self.interaction = interaction(sum(self.parts), hidden, dropout)
            pooled = 8 * hidden * (2 if pairs and config.encoder_type == "biattentive" else 1)
        else:
            pooled = sum(self.parts) * (4 if pairs else 1)
            if config.classifier_pooling == "attention":
                self.attention = ElmoAttentionPooling(sum(self.parts))
        if config.encoder_type == "biattentive":
            self.maxouts = nn.ModuleList((ElmoMaxout(pooled, pooled // 2), ElmoMaxout(pooled // 2, pooled // 4)))
            pooled //= 4
        if config.classifier_hidden_size:
            self.dense = nn.Linear(pooled, config.classifier_hidden_size)
        self.classifier = nn.Linear(config.classifier_hidden_size or pooled, config.num_labels)
        self.loss_function = sequence_classification_loss
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
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            labels: `[batch]` class numbers, `[batch, num_labels]` zeros and ones for several labels at once (`[batch]`
                where there is one: a sigmoid; in all of these -100 is no label), or floats for regression, where -100
                is a number like any other, which Trainer cannot count: with `num_items_in_batch` it is refused;
                `config.problem_type` says which, else it is read from `labels`.
            length: not read here: Trainer sorts by this column of a data set (`train_sampling_strategy`), and drops
                columns that are no arguments.

        The others are those of [`ElmoTaskModel.read_words`].

        Returns:
            `loss` (with `labels`), `logits [batch, num_labels]`, `hidden_states`.

        Raises:
            ValueError: a row holds two texts and `config.classifier_text_pairs` is off, or the other way around; or
                `labels` has another shape; or whole numbers are those of a single output, and `config.problem_type`
                does not say what they are; or an input does not fit, as [`ElmoTaskModel.read_words`] says.
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
            self.reads_text_pairs,
        )
        pooled = self._pool_texts(read)
        for layer in self.maxouts or ():
            pooled = layer(self.dropout(pooled))
        if self.dense is not None:
            pooled = torch.relu(self.dense(self.dropout(pooled)))
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is None:
            self.warn_without_labels()
        else:
            loss = own_loss_function(self)(labels, logits, self.config, num_items_in_batch, **kwargs)
            loss = self.regularize(loss, share_of_items(labels, num_items_in_batch))
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=read.hidden_states)

    def _pool_texts(self, read: TaskWords) -> Tensor:
        """`[batch, size]` of each text, or of each pair."""
        numbers = (1, 2) if self.config.classifier_text_pairs else (None,)
        masks = [read.mask if number is None else read.texts == number for number in numbers]
        words = [read.words & mask for mask in masks]
        if self.encoder is None:
            texts = [(read.vectors, mask) for mask in words]
        else:
            texts, masks = [self._encode(read, mask) for mask in words], [None, None]
            if self.interaction is not None:
                return self.interaction(texts)
        pooled = [self._pool(*text, mask) for text, mask in zip(texts, masks, strict=False)]
        if len(pooled) == 1:
            return pooled[0]
        u, v = pooled
        return torch.cat((u, v, (u - v).abs(), u * v), dim=1)

    def _encode(self, read: TaskWords, words: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output of the words of a mask, `[batch, words, size]`, and where it has words."""
        vectors, mask = compact(read.vectors, words)
        again = None if read.elmo_at_output is None else compact(read.elmo_at_output, words)[0]
        return self.encoder(vectors, mask, again), mask

    def _pool(self, vectors: Tensor, words: Tensor, mask: Tensor | None) -> Tensor:
        """`[batch, size]` as `config.classifier_pooling` says; zero for a text without words."""
        if self.attention is not None:
            return self.attention(vectors, words)
        if self.config.classifier_pooling == "mean":
            return mean_over(vectors, words)
        if self.config.classifier_pooling == "max":
            return max_over(vectors, words)
        # Without an encoder the final states are the biLM's, which reads the boundaries, too.
        mask = words if mask is None else mask
        return torch.cat([last_over(part, mask) for part in vectors.split(self.parts, dim=2)], dim=1)


def sequence_classification_loss(
    labels: Tensor, logits: Tensor, config: ElmoConfig, num_items_in_batch: Tensor | int | None = None, **kwargs: object
) -> Tensor:
    """The loss that `config.problem_type` names (else the type of `labels`), exact under gradient accumulation.

    transformers' own loss divides by `num_items_in_batch` for a single label only; here all three kinds do, so that the
    steps that Trainer accumulates add up to one large batch.

    Args:
        labels: `[batch]` integers (single label), `[batch, num_labels]` zeros and ones (several), or floats
            (regression); `[batch]` and `[batch, 1]` are the same.
        logits: `[batch, num_labels]`.
        num_items_in_batch: the labels of all accumulated steps; `None` for the mean over `labels`.

    Raises:
        ValueError: `config.problem_type` is unknown; `labels` has another shape, or one is not finite or out of range;
            or, with `num_items_in_batch`, one is -100, which is not counted there.
    """
    problem_type = config.problem_type
    if problem_type not in (*PROBLEM_TYPES, None):
        raise ValueError(f"config.problem_type is {problem_type!r}, but must be one of {', '.join(PROBLEM_TYPES)}.")
    labels = labels.long() if labels.dtype == torch.bool else labels
    if problem_type is None:
        if config.num_labels == 1 and not labels.is_floating_point():
            raise ValueError(
                f"labels are {labels.dtype} and num_labels is 1: say what they are with problem_type, "
                '"multi_label_classification" for 0 and 1 by one sigmoid or "regression" for numbers; or num_labels=2.'
            )
        several = "single_label_classification" if not labels.is_floating_point() else "multi_label_classification"
        problem_type = "regression" if config.num_labels == 1 else several
    targets = _one_for_each(labels.to(logits.device), logits, problem_type)
    if config.problem_type is None:
        config.problem_type = problem_type
    if targets.is_floating_point() and not torch.compiler.is_compiling():
        _require_numbers(targets)
    if problem_type == "regression" and num_items_in_batch is not None:
        _require_counted(targets)
    if problem_type != "regression" and not torch.compiler.is_compiling():
        require_labels(targets, 2 if problem_type == "multi_label_classification" else config.num_labels)
    # In bfloat16 a label of 257 would be 256, and in float16 a sum has no number over 65,504.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if problem_type == "single_label_classification":
        total = nn.functional.cross_entropy(logits, targets, reduction="sum")
    elif problem_type == "regression":
        total = nn.functional.mse_loss(logits, targets.to(logits.dtype), reduction="sum")
    else:
        known, classes = (part.to(logits.dtype) for part in (targets != -100, targets))
        total = nn.functional.binary_cross_entropy_with_logits(logits, classes, weight=known, reduction="sum")
    if num_items_in_batch is not None:
        return total / at_least_one(num_items_in_batch)
    counted = torch.ones_like(targets) if problem_type == "regression" else targets != -100
    return total / counted.sum().clamp(min=1)


def _one_for_each(labels: Tensor, logits: Tensor, problem_type: str) -> Tensor:
    """The labels `[batch]` of single classes, else in the shape of `logits`; a loss would broadcast any others, or pair
    them with other rows' logits (ValueError)."""
    batch, width = logits.shape
    width = 1 if problem_type == "single_label_classification" else width
    if labels.shape != (batch, width) and (labels.shape != (batch,) or width != 1):
        raise ValueError(
            f"labels has the shape {list(labels.shape)}, but must be {[batch] if width == 1 else [batch, width]} for a "
            f"{problem_type}: give those, or another config.problem_type."
        )
    return labels.view(-1) if problem_type == "single_label_classification" else labels.view(logits.shape)


def _require_numbers(labels: Tensor) -> None:
    """Refuses labels that are no numbers (ValueError): the loss, and from then on each weight, would be none."""
    if len(wrong := labels.isfinite().logical_not().nonzero()):
        row = wrong[0, 0].item()
        raise ValueError(
            f"labels has {labels[row].tolist()} in row {row} of the batch: leave out rows without a number, such as "
            "those of empty fields of a table."
        )


@torch.compiler.disable  # it asks for the values
def _require_counted(labels: Tensor) -> None:
    if (labels == -100).any():
        raise ValueError(
            "labels of a regression hold -100, which Trainer takes for no label and leaves out of num_items_in_batch: "
            "leave the rows without a number out, or scale all numbers, as by a tenth."
        )


__all__ = ["ElmoForSequenceClassification"]
