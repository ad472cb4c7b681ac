"""ELMo with a tagger of words on it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from .arguments_elmo import model_forward, own_loss_function, require_no_loss_function
from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .crf_elmo import ElmoCRF, allowed_transitions
from .encoders_elmo import ElmoTaskEncoder
from .lstm_elmo import State
from .modeling_tasks_elmo import (
    ANSWER_FIELDS,
    CLASSIFIER_FIELDS,
    COREFERENCE_FIELDS,
    ElmoTaskModel,
    at_least_one,
    share_of_items,
)
from .packing_elmo import compact, expand, require_labels


@dataclass
class ElmoTokenClassifierOutput(ModelOutput):
    """What [`ElmoForTokenClassification`] returns.

    Args:
        loss: the mean over the words that have a label. With `labels`.
        logits: `[batch, positions, num_labels]`, a score for each label of each word, whatever its neighbors have; zero
            where no word is.
        tags: `[batch, positions]`, the best sequence of labels, -100 where no word is. With a CRF or a scheme, while
            not training.
        hidden_states: the biLM's layers, each `[batch, positions, 2P]`. With `output_hidden_states=True`.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    tags: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class ElmoForTokenClassification(ElmoTaskModel):
    """A label for each word: ELMo reads words, so labels stand one to one with words, and none is split.

    Linear, or by a BiLSTM (`config.encoder_type`), or with a CRF (`config.tagging_crf`); sequences keep to
    `config.tagging_scheme`. The paper's tagger of names: `encoder_type="bilstm"`, `encoder_num_layers=2`,
    `tagging_crf=True` (Peters et al. 2018, appendix; Lample et al. 2016). Its tagger of semantic roles, a row for
    each predicate: `encoder_type="alternating"`, `encoder_num_layers=8`, `encoder_recurrent_dropout=0.1`,
    `tagging_indicator_size=100`, `tagging_scheme="IOB2"` (appendix; He et al. 2017).

    Raises:
        ValueError: `config.encoder_type` is another, or a name of `config.id2label` is not of `config.tagging_scheme`.
    """

    _auto_class = "AutoModelForTokenClassification"
    encoder_types = (None, "bilstm", "alternating")
    without_effect = (*ElmoTaskModel.without_effect, *CLASSIFIER_FIELDS, *ANSWER_FIELDS, *COREFERENCE_FIELDS)

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        if config.classifier_text_pairs:
            raise ValueError("ElmoConfig: classifier_text_pairs is True, but a tagger reads one text a row: use False.")
        indicator, size = config.tagging_indicator_size, self.vectors_size
        self.indicator = None if indicator is None else nn.Embedding(2, indicator)
        size += indicator or 0
        self.encoder = ElmoTaskEncoder(config, size) if config.encoder_type else None
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(sum(self.encoder.sizes) if self.encoder else size, config.num_labels)
        self.crf, scheme = None, config.tagging_scheme
        if config.tagging_crf or scheme is not None:
            names = [config.id2label[number] for number in range(config.num_labels)]
            allowed = None if scheme is None else allowed_transitions(names, scheme)
            self.crf = ElmoCRF(config.num_labels, allowed, learned=config.tagging_crf)
        self.loss_type = "ForTokenClassification"
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
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> ElmoTokenClassifierOutput:
        r"""
        Args:
            token_type_ids: `[batch, positions]`, with `config.tagging_indicator_size`: 1 at the words that the row's
                labels are about, the predicate of semantic roles; 0 elsewhere.
            labels: `[batch, positions]`, aligned with `input_ids`: -100 at the sentence boundaries, at padding and at
                words without a label (`tokenizer.align_labels` puts words' labels there). The CRF sums over all labels
                that a word without one may have.
            length: not read here: Trainer sorts by this column of a data set (`train_sampling_strategy`), and drops
                columns that are no arguments.

        The others are those of [`ElmoTaskModel.read_words`].

        Raises:
            ValueError: `labels` has another shape, a label where no word is, or one that `config.tagging_scheme`
                forbids after the label before it; `loss_function` is set beside `config.tagging_crf`, whose loss is its
                own; `token_type_ids` are missing, are not wanted, or name no word; or an
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
        )
        vectors, inside = compact(self._indicate(read.vectors, read.words, token_type_ids), read.words)
        if self.encoder is not None:
            again = None if read.elmo_at_output is None else compact(read.elmo_at_output, read.words)[0]
            vectors = self.encoder(vectors, inside, again)
        scores = self.classifier(self.dropout(vectors))
        logits = expand(scores[inside], read.words)
        loss = tags = None
        if labels is None:
            self.warn_without_labels()
        else:
            _require_labels(labels, read.words, self.config.num_labels)
            compacted = compact(labels, read.words)[0].masked_fill(~inside, IGNORE_INDEX)
            if self.crf is not None and self.crf.allowed is not None:
                _require_allowed(compacted, self.crf.allowed, self.config)
            if (own := own_loss_function(self)) is None or self.config.tagging_crf:
                require_no_loss_function(self)
                items = (labels != IGNORE_INDEX).sum() if num_items_in_batch is None else num_items_in_batch
                loss = self._nll(scores, inside, compacted) / at_least_one(items)
            else:
                loss = own(logits, labels, self.config, num_items_in_batch=at_least_one(num_items_in_batch), **kwargs)
            loss = self.regularize(loss, share_of_items(labels, num_items_in_batch))
        if self.crf is not None and not self.training:
            tags = self.crf(scores, inside)
            tags = expand(tags[inside] - IGNORE_INDEX, read.words) + IGNORE_INDEX
        return ElmoTokenClassifierOutput(loss, logits, tags, read.hidden_states)

    def _indicate(self, vectors: Tensor, words: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """The word vectors, and beside each whether it is a word that the labels are about."""
        if self.indicator is None:
            if token_type_ids is not None and token_type_ids.any():
                raise ValueError(
                    "token_type_ids name words, but this tagger's labels are about no word of a row more than about "
                    "another: make it with tagging_indicator_size."
                )
            return vectors
        if token_type_ids is None:
            raise ValueError(
                "token_type_ids are missing, but the model has tagging_indicator_size: give 1 at the words that a "
                "row's labels are about (the predicate), 0 elsewhere."
            )
        _require_indicated(token_type_ids, words)
        return torch.cat((vectors, self.indicator(token_type_ids)), dim=2)

    def _nll(self, scores: Tensor, inside: Tensor, labels: Tensor) -> Tensor:
        """The negative log-likelihood of all words' labels, summed."""
        if self.config.tagging_crf:
            return -self.crf(scores, inside, labels).sum()
        wide = torch.promote_types(scores.dtype, torch.float32)
        return nn.functional.cross_entropy(
            scores[inside].to(wide), labels[inside], ignore_index=IGNORE_INDEX, reduction="sum"
        )


@torch.compiler.disable  # it asks for the values
def _require_indicated(token_type_ids: Tensor, words: Tensor) -> None:
    """Refuses `token_type_ids` that name no word of a row, or something else than words (ValueError)."""
    if token_type_ids.shape != words.shape:
        raise ValueError(
            f"token_type_ids has the shape {list(token_type_ids.shape)}, but must be {list(words.shape)}: one for each "
            "position of input_ids."
        )
    wrong = (token_type_ids != 0) & ~((token_type_ids == 1) & words)
    if len(places := wrong.nonzero()):
        row, position = places[0].tolist()
        raise ValueError(
            f"token_type_ids has {token_type_ids[row, position].item()} in row {row} at position {position}, where "
            f"{'a word' if words[row, position] else 'a boundary or padding'} is: only words take 1, all else is 0."
        )
    without = (words.any(1) & ~token_type_ids.any(1)).nonzero()
    if len(without):
        raise ValueError(
            f"token_type_ids has no 1 in row {without[0].item()}: which word are its labels about? A text without a "
            "predicate has no row."
        )


@torch.compiler.disable  # it asks for the values
def _require_labels(labels: Tensor, words: Tensor, num_labels: int) -> None:
    """Refuses labels that do not stand one to one with words (ValueError)."""
    if labels.shape != words.shape:
        raise ValueError(
            f"labels has the shape {list(labels.shape)}, but must be {list(words.shape)}: one for each position of "
            "input_ids, -100 at boundaries and padding; tokenizer.align_labels makes them of words' labels."
        )
    misplaced = ((labels != IGNORE_INDEX) & ~words).nonzero()
    if len(misplaced):
        row, position = misplaced[0].tolist()
        raise ValueError(
            f"labels has {labels[row, position].item()} in row {row} at position {position}, where no word is but a "
            "boundary or padding: <S> and </S> take -100, as tokenizer.align_labels puts them."
        )
    require_labels(labels, num_labels)


@torch.compiler.disable  # it asks for the values
def _require_allowed(labels: Tensor, allowed: tuple[list, list, list], config: ElmoConfig) -> None:
    """Refuses labels `[batch, words]` of which the scheme forbids one after the other (ValueError): no sequence that is
    found can have them. How a row begins and ends is not looked at: long texts are cut, and CoNLL's 2002 within names.
    """
    follows = torch.tensor(allowed[1], device=labels.device)
    before, after = labels[:, :-1], labels[:, 1:]
    wrong = (before >= 0) & (after >= 0) & ~follows[before.clamp(min=0), after.clamp(min=0)]
    if len(places := wrong.nonzero()):
        row, word = places[0].tolist()
        first, second = (config.id2label[number] for number in labels[row, word : word + 2].tolist())
        raise ValueError(
            f"labels has {second!r} after {first!r} in row {row}, which tagging_scheme {config.tagging_scheme!r} "
            "forbids: is the data of another scheme? Name that one, convert the labels, or use tagging_scheme=None."
        )


__all__ = ["ElmoForTokenClassification", "ElmoTokenClassifierOutput"]
