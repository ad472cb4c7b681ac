"""The head that predicts numbers, such as the valence and the arousal of a text."""

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_elmo import ElmoConfig
from .modeling_elmo import State, mean_over, refuse_unknown
from .modeling_heads_elmo import ElmoHead, ElmoInputs, ElmoTaskModel, ElmoWords, count_labels


class ElmoRegressionHead(ElmoHead):
    """A linear layer over the mean of the encoded words."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.out_proj = nn.Linear(sum(self.sizes), config.num_labels)

    def forward(self, words: ElmoWords) -> Tensor:
        """The words of each row to numbers `[batch, num_labels]`."""
        (encoded,) = self.encode([words])
        return self.out_proj(self.dropout(mean_over(encoded, words.mask)))


class ElmoForRegression(ElmoTaskModel):
    """Predicts `config.num_labels` numbers for each text, by the mean of its words, encoded by a BiLSTM or not."""

    _auto_class = "AutoModelForRegression"
    encoder_types = (None, "bilstm")

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.classifier = ElmoRegressionHead(config)
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
        bilm_layers: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            input_ids, ..., length: as in [`ElmoInputs`].
            labels: `[batch, num_labels]` numbers.
            num_items_in_batch: the number of labels of all accumulated steps; `None` for the mean over `labels`.

        Returns:
            `loss` (if `labels` are given), the mean squared error; `logits [batch, num_labels]`, the numbers; and
            `hidden_states` (if asked for).
        """
        refuse_unknown(kwargs)
        texts = input_ids, attention_mask, inputs_embeds, state, special_tokens_mask
        inputs = ElmoInputs(*texts, word_vector_ids, bilm_layers, output_hidden_states)
        (words,), hidden_states = self.read_words(inputs)
        logits, loss = self.classifier(words), None
        if labels is not None:
            squares = (logits.float() - labels.to(logits.device)).square().sum()
            items = torch.as_tensor(labels.numel()) if num_items_in_batch is None else num_items_in_batch
            loss = self.regularize(squares / count_labels(labels, items), labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=hidden_states)
