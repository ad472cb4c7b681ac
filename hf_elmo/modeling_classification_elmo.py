"""The head for texts: classes, several labels at once, or numbers, of single texts and of pairs."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .modeling_elmo import State, count_labels, mean_over, refuse_unknown
from .modeling_heads_elmo import ElmoBiLSTM, ElmoHead, ElmoInputs, ElmoTaskModel, ElmoTexts
from .modeling_pooling_elmo import ElmoAttentionPooling, last_over, masked_softmax, max_over


class ElmoBiattention(nn.Module):
    """Attention of each text over the other text, or of a single text over itself, integrated by a BiLSTM and pooled in
    four ways: the biattentive classification network (McCann et al. 2017, section 5)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.integrator = ElmoBiLSTM(3 * size, hidden_size, dropout=dropout)
        self.attention = ElmoAttentionPooling(2 * hidden_size)

    def forward(self, texts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """One text or two, each `[batch, words, size]` with its mask, to `[batch, texts * 8 * hidden_size]`."""
        pooled = []
        for (x, mask), (y, other_mask) in zip(texts, texts[::-1], strict=True):
            attended = masked_softmax(x @ y.mT, other_mask[:, None]) @ y
            z = self.integrator(torch.cat((x, x - attended, x * attended), dim=2), mask)
            pooled += [max_over(z, mask), mean_over(z, mask), -max_over(-z, mask), self.attention(z, mask)]
        return torch.cat(pooled, dim=1)


class ElmoLocalInference(nn.Module):
    """Attention between the words of a premise and those of a hypothesis, composed by a BiLSTM and pooled: ESIM (Chen
    et al. 2017, sections 3.2 and 3.3)."""

    def __init__(self, size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.combine = nn.Linear(4 * size, hidden_size)
        self.composition = ElmoBiLSTM(hidden_size, hidden_size, dropout=dropout)

    def forward(self, texts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Two texts, each `[batch, words, size]` with its mask, to `[batch, 8 * hidden_size]`."""
        pooled = []
        for (x, mask), (y, other_mask) in zip(texts, texts[::-1], strict=True):
            attended = masked_softmax(x @ y.mT, other_mask[:, None]) @ y
            compared = torch.cat((x, attended, x - attended, x * attended), dim=2)
            composed = self.composition(torch.relu(self.combine(compared)), mask)
            pooled += [mean_over(composed, mask), max_over(composed, mask)]
        return torch.cat(pooled, dim=1)


class ElmoDecomposableAttention(nn.Module):
    """Attention between the words of two texts, each of which is compared with what it attends to, and the sum over the
    words: decomposable attention (Parikh et al. 2016, section 3)."""

    def __init__(self, size: int, config: ElmoConfig) -> None:
        super().__init__()
        self.attend = self._layers(size, *config.decomposable_attend_sizes)
        self.compare = self._layers(2 * size, *config.decomposable_compare_sizes)
        self.dropout = nn.Dropout(config.encoder_dropout)

    @staticmethod
    def _layers(*sizes: int) -> nn.ModuleList:
        return nn.ModuleList(nn.Linear(*each) for each in itertools.pairwise(sizes))

    def _run(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        for layer in layers:
            x = self.dropout(torch.relu(layer(x)))
        return x

    def forward(self, texts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Two texts, each `[batch, words, size]` with its mask, to `[batch, 2 * compare_sizes[-1]]`."""
        projected = [self._run(self.attend, x) for x, _ in texts]
        summed = []
        for (x, mask), (y, other_mask), query, key in zip(texts, texts[::-1], projected, projected[::-1], strict=True):
            attended = masked_softmax(query @ key.mT, other_mask[:, None]) @ y
            compared = self._run(self.compare, torch.cat((x, attended), dim=2))
            summed.append(compared.masked_fill(~mask[:, :, None], 0.0).sum(1))
        return torch.cat(summed, dim=1)


class ElmoMaxout(nn.Module):
    """The maximum of linear maps (Goodfellow et al. 2013), for the last layers of the biattentive network."""

    def __init__(self, input_size: int, output_size: int, pool: int) -> None:
        super().__init__()
        self.pool = pool
        self.linear = nn.Linear(input_size, output_size * pool)

    def forward(self, x: Tensor) -> Tensor:
        """`[batch, input_size]` to `[batch, output_size]`."""
        return self.linear(x).unflatten(1, (-1, self.pool)).amax(2)


class ElmoClassificationHead(ElmoHead):
    """Pools the encoded words of a text or of a pair, and classifies the result; `config.encoder_type` and
    `config.classifier_pooling` say how."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        hidden = config.encoder_hidden_size
        dropout = config.encoder_dropout
        self.pooling = config.classifier_pooling
        self.interaction = self.attention = self.maxouts = self.dense = None
        pool = config.classifier_maxout_pool
        if config.encoder_type == "biattentive":
            self.interaction = ElmoBiattention(sum(self.sizes), hidden, dropout)
            size = 8 * hidden * (2 if config.classifier_text_pairs else 1)
            maxouts = config.classifier_maxout_sizes
            sizes = [size, *((size // 2, size // 4) if maxouts is None else maxouts)]
            self.maxouts = nn.ModuleList(ElmoMaxout(*each, pool) for each in itertools.pairwise(sizes))
            size = sizes[-1]
        elif config.encoder_type == "decomposable":
            self.interaction = ElmoDecomposableAttention(sum(self.sizes), config)
            size = 2 * config.decomposable_compare_sizes[-1]
        elif config.encoder_type == "esim":
            self.interaction = ElmoLocalInference(sum(self.sizes), hidden, dropout)
            size = 8 * hidden
        else:
            size = sum(self.sizes) * (4 if config.classifier_text_pairs else 1)
            self.attention = ElmoAttentionPooling(sum(self.sizes)) if self.pooling == "attention" else None
        if config.classifier_hidden_size:
            self.dense = nn.Linear(size, config.classifier_hidden_size)
        size = config.classifier_hidden_size or size
        is_maxout = config.encoder_type == "biattentive" and config.classifier_maxout_sizes is not None
        self.out_proj = ElmoMaxout(size, config.num_labels, pool) if is_maxout else nn.Linear(size, config.num_labels)
        self.activation = torch.relu if config.classifier_activation == "relu" else torch.tanh

    def forward(self, read: ElmoTexts) -> Tensor:
        """One text or two of each row to logits `[batch, num_labels]`."""
        encoded = [(self.encode(vectors, mask, mix), mask) for vectors, mask, mix in self.embed(read)]
        if self.interaction is not None:
            pooled = self.interaction(encoded)
        else:
            pooled, *others = (self._pool(*text) for text in encoded)
            for other in others:
                pooled = torch.cat((pooled, other, (pooled - other).abs(), pooled * other), dim=1)
        for layer in self.maxouts or ():
            pooled = layer(self.dropout(pooled))
        if self.dense is not None:
            pooled = self.activation(self.dense(self.dropout(pooled)))
        return self.out_proj(self.dropout(pooled))

    def _pool(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, size]`, pooled as `config.classifier_pooling` says; zero for a text without words."""
        if self.pooling == "last":
            return torch.cat([last_over(part, mask) for part in vectors.split(self.sizes, dim=2)], dim=1)
        return {"mean": mean_over, "max": max_over, "attention": self.attention}[self.pooling](vectors, mask)


class ElmoForSequenceClassification(ElmoTaskModel):
    """Predicts a label, several labels or a number for each text, or for each pair of texts.

    `config.encoder_type` chooses the encoder: none, a BiLSTM, the biattentive classification network (McCann et al.
    2017), ESIM (Chen et al. 2017) or decomposable attention (Parikh et al. 2016). Without an encoder or with a BiLSTM,
    `config.classifier_pooling` pools the words. If `config.classifier_text_pairs` is set, each row holds two texts.
    """

    _auto_class = "AutoModelForSequenceClassification"
    encoder_types = (None, "bilstm", "biattentive", "esim", "decomposable")

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.reads_text_pairs = config.classifier_text_pairs
        # Without an encoder, the final states are those of the biLM, at `</S>` and `<S>`.
        self.reads_boundaries = config.classifier_pooling == "last" and config.encoder_type is None
        if self.reads_boundaries and config.word_vectors_vocab_size is not None:
            raise ValueError("classifier_pooling is 'last', but word vectors have no final state: set encoder_type.")
        if config.encoder_type in ("esim", "decomposable") and not config.classifier_text_pairs:
            raise ValueError(f"encoder_type is {config.encoder_type!r}, for two texts: set classifier_text_pairs.")
        self.classifier = ElmoClassificationHead(config)
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
        word_vector_ids: Tensor | None = None,
        word_characters: Tensor | None = None,
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
            labels: as in [`sequence_classification_loss`].
            num_items_in_batch: the number of labels of all accumulated steps; `None` for the mean over `labels`.

        Returns:
            `loss` (if `labels` are given), `logits [batch, num_labels]` and `hidden_states` (if asked for).

        Raises:
            ValueError: as in [`ElmoTaskModel.read_words`].
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
        logits = self.classifier(read)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
            loss = self.regularize(loss, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=read.hidden_states)


def sequence_classification_loss(
    logits: Tensor, labels: Tensor, config: ElmoConfig, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """The loss that `config.problem_type` selects. It is exact under gradient accumulation, and zero without any label.

    As in transformers, an unset `config.problem_type` is set at the first call: regression for a model with one output,
    else a single label for integer labels, several labels for floats. transformers divides only the loss of single
    labels by `num_items_in_batch`; here all three losses are divided, so that accumulated steps add up to one batch.

    Args:
        logits: `[batch, num_labels]`.
        labels: `[batch]` or `[batch, 1]` class numbers (single label); the shape of `logits` otherwise: zeros and ones
            (several labels), or any numbers (regression). -100 marks a missing label, except in a regression.
        num_items_in_batch: the number of labels of all accumulated steps; `None` for the mean over `labels`.
    """
    labels = labels.to(logits.device)
    if config.problem_type is None:
        of_labels = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
        config.problem_type = "regression" if config.num_labels == 1 else of_labels
    # In float32: bfloat16 would round a label of 257 to 256, and float16 has no sum over 65,504.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    count = count_labels(labels, num_items_in_batch)
    if config.problem_type == "single_label_classification":
        return nn.functional.cross_entropy(logits, labels.view(-1).long(), reduction="sum") / count
    labels = labels.view(logits.shape).to(logits.dtype)
    if config.problem_type == "regression":
        count = labels.numel() if num_items_in_batch is None else count
        return nn.functional.mse_loss(logits, labels, reduction="sum") / count
    known = (labels != IGNORE_INDEX).to(logits.dtype)
    return nn.functional.binary_cross_entropy_with_logits(logits, labels, weight=known, reduction="sum") / count
