"""ELMo with a classifier of whole texts on it."""

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_elmo import ElmoConfig
from .lstm_elmo import State
from .modeling_elmo import ElmoModelOutput, ElmoTaskModel
from .packing_elmo import require_labels, unpadded_mask, words_mask


class ElmoForSequenceClassification(ElmoTaskModel):
    """A label, several labels or a number for each text, or pair of texts, from a pooled ELMo.

    `config.classifier_pooling` says how a text is pooled, `config.classifier_text_pairs` whether texts come in pairs.
    """

    _auto_class = "AutoModelForSequenceClassification"

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        size, pooled = config.classifier_hidden_size, config.hidden_size * (4 if config.classifier_text_pairs else 1)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.dense = nn.Linear(pooled, size) if size else None
        self.classifier = nn.Linear(size or pooled, config.num_labels)
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
            labels: `[batch]` class numbers, `[batch, num_labels]` zeros and ones for several labels at once (`[batch]`
                where there is one: a sigmoid; in all of these -100 is no label), or floats for regression;
                `config.problem_type` says which, else it is read from `labels`.

        The others are those of [`ElmoModel`].

        Returns:
            `loss` (with `labels`), `logits [batch, num_labels]`, `hidden_states`.

        Raises:
            ValueError: a row holds two texts and `config.classifier_text_pairs` is off, or the other way around; or
                whole numbers are `labels` of a single output, and `config.problem_type` does not say what they are.
        """
        mask = unpadded_mask(self.config, input_ids, attention_mask, inputs_embeds)
        text = self._texts(mask, input_ids)
        if (
            self.config.classifier_text_pairs
        ):  # each is read by itself: one batch of all the first texts and all the second
            mask = torch.cat((text == 1, text == 2))
            state = None if state is None else tuple(part.repeat(1, 1, 2, 1) for part in state)
            input_ids = torch.cat((input_ids, input_ids))
            special_tokens_mask = None if special_tokens_mask is None else torch.cat((special_tokens_mask,) * 2)
        output = self.elmo(
            input_ids, mask, inputs_embeds, state, special_tokens_mask, output_hidden_states, return_dict=True
        )
        pooled = self._pool(output, mask, words_mask(self.config, mask, input_ids, special_tokens_mask))
        hidden_states = output.hidden_states
        if self.config.classifier_text_pairs:
            u, v = pooled.chunk(2)
            pooled = torch.cat((u, v, (u - v).abs(), u * v), dim=1)
            hidden_states = hidden_states and tuple(sum(layer.chunk(2)) for layer in hidden_states)
        if self.dense is not None:
            pooled = torch.relu(self.dense(self.dropout(pooled)))
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels, logits, self.config, **kwargs)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=hidden_states)

    def _texts(self, mask: Tensor, input_ids: Tensor | None) -> Tensor:
        """For each position `[batch, words]` the number of its text, from 1; 0 for padding."""
        pairs = self.config.classifier_text_pairs
        if input_ids is None:
            if pairs:
                raise ValueError("classifier_text_pairs needs input_ids: inputs_embeds do not say where a text begins")
            return mask.long()
        begins = (input_ids[:, :, 1] == self.config.bos_token_id) & mask
        if not torch.compiler.is_exporting():  # the rows that a graph will see are not known
            _require_texts(begins.sum(1), pairs)
        return begins.cumsum(1) * mask

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


@torch.compiler.disable  # it asks for the values
def _require_texts(counts: Tensor, pairs: bool) -> None:
    """Refuses rows of another number of texts (ValueError). A row without a boundary is one text."""
    for row, count in enumerate(counts.tolist()):
        if count != 2 if pairs else count > 1:
            raise ValueError(
                f"row {row} of input_ids holds {count} texts, but classifier_text_pairs is {pairs}: make the model "
                "with classifier_text_pairs=True for pairs of texts, False for single ones."
            )


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
        if config.num_labels == 1 and not labels.is_floating_point():
            raise ValueError(
                f"labels are {labels.dtype} and num_labels is 1: say what they are with problem_type, "
                '"multi_label_classification" for 0 and 1 by one sigmoid or "regression" for numbers; or num_labels=2.'
            )
        several = "single_label_classification" if not labels.is_floating_point() else "multi_label_classification"
        config.problem_type = "regression" if config.num_labels == 1 else several
    labels = labels.to(logits.device)
    if config.problem_type != "regression" and not torch.compiler.is_compiling():
        require_labels(labels, 2 if config.problem_type == "multi_label_classification" else config.num_labels)
    if config.problem_type == "single_label_classification":
        total = nn.functional.cross_entropy(logits, labels.view(-1), reduction="sum")
    elif config.problem_type == "regression":
        total = nn.functional.mse_loss(logits.view(-1), labels.view(-1).to(logits.dtype), reduction="sum")
    else:
        labels = labels.view(-1, 1) if config.num_labels == 1 else labels
        known, targets = (part.to(logits.dtype) for part in (labels != -100, labels))
        total = nn.functional.binary_cross_entropy_with_logits(logits, targets, weight=known, reduction="sum")
    return total / ((labels != -100).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)


__all__ = ["ElmoForSequenceClassification"]
