"""ELMo with a classifier of whole texts on it."""

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_elmo import ElmoConfig
from .lstm_elmo import State
from .modeling_elmo import ElmoModelOutput, ElmoTaskModel
from .packing_elmo import unpadded_mask, words_mask


class ElmoForSequenceClassification(ElmoTaskModel):
    """A label, several labels or a number for each text, from a pooled ELMo (`config.classifier_pooling`)."""

    _auto_class = "AutoModelForSequenceClassification"

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        size = config.classifier_hidden_size
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.dense = nn.Linear(config.hidden_size, size) if size else None
        self.classifier = nn.Linear(size or config.hidden_size, config.num_labels)
        self.loss_function = sequence_classification_loss
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: object,
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            labels: `[batch]` class numbers, `[batch, num_labels]` zeros and ones for several labels at once, or floats
                `[batch, num_labels]` floats for regression; `config.problem_type` says which, else it is read from
                `labels`.

        The others are those of [`ElmoModel`].

        Returns:
            `loss` (with `labels`), `logits [batch, num_labels]`, `hidden_states`.
        """
        output = self.elmo(
            input_ids, attention_mask, inputs_embeds, state, special_tokens_mask, output_hidden_states, return_dict=True
        )
        mask = unpadded_mask(self.config, input_ids, attention_mask, inputs_embeds)
        pooled = self._pool(output, mask, words_mask(self.config, mask, input_ids, special_tokens_mask))
        if self.dense is not None:
            pooled = torch.relu(self.dense(self.dropout(pooled)))
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels, logits, self.config, **kwargs)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=output.hidden_states)

    def _pool(self, output: ElmoModelOutput, mask: Tensor, words: Tensor) -> Tensor:
        """`[batch, 2P]` as `config.classifier_pooling` says; zero for a text without words."""
        vectors = output.last_hidden_state
        if self.config.classifier_pooling == "mean" or not vectors.shape[1]:
            return output.pooler_output
        if self.config.classifier_pooling == "max":
            lowest = torch.finfo(vectors.dtype).min
            return vectors.masked_fill(~words[:, :, None], lowest).amax(1) * words.any(1, keepdim=True)
        forward, backward = vectors.chunk(2, dim=2)
        position = torch.arange(mask.shape[1], device=mask.device)
        last, first = (mask * position).argmax(1), mask.int().argmax(1)
        rows = torch.arange(mask.shape[0], device=mask.device)
        return torch.cat((forward[rows, last], backward[rows, first]), dim=1)


def sequence_classification_loss(
    labels: Tensor, logits: Tensor, config: ElmoConfig, num_items_in_batch: Tensor | int | None = None, **kwargs: object
) -> Tensor:
    """The loss that `config.problem_type` names (else the type of `labels`), exact under gradient accumulation.

    transformers' own loss divides by `num_items_in_batch` for a single label only; here all three kinds do, so that the
    steps that Trainer accumulates add up to one large batch.

    Args:
        labels: `[batch]` integers (single label), `[batch, num_labels]` zeros and ones (several), or floats
            (regression).
        logits: `[batch, num_labels]`.
        num_items_in_batch: the labels of all accumulated steps; `None` for the mean over `labels`.
    """
    if config.problem_type is None:
        several = "single_label_classification" if not labels.is_floating_point() else "multi_label_classification"
        config.problem_type = "regression" if config.num_labels == 1 else several
    labels = labels.to(logits.device)
    if config.problem_type == "single_label_classification":
        total = nn.functional.cross_entropy(logits, labels.view(-1), reduction="sum")
    elif config.problem_type == "regression":
        total = nn.functional.mse_loss(logits.view(-1), labels.view(-1).to(logits.dtype), reduction="sum")
    else:
        total = nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return total / ((labels != -100).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)


__all__ = ["ElmoForSequenceClassification"]
