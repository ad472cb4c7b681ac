"""The two language models of ELMo with their shared softmax (Peters et al. 2018, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from .arguments_elmo import model_forward, require_no_loss_function
from .backends_elmo import is_plain
from .characters_elmo import bilm_linear
from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .lstm_elmo import State
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .packing_elmo import Packing, require_labels, require_state, unpadded_mask
from .softmax_elmo import full_softmax_nll, sample_words, sampled_softmax_nll


@dataclass
class ElmoForPreTrainingOutput(ModelOutput):
    """What [`ElmoForPreTraining`] returns.

    Args:
        loss: (forward + backward) / 2, nats a word. With `labels`.
        forward_loss, backward_loss: the mean over this call's words in each direction, nats a word. With `labels`.
        forward_logits: `[batch, words, vocab_size]`, at each position for the word after it.
        backward_logits: `[batch, words, vocab_size]`, at each position for the word before it.
        hidden_states: the biLM's `num_hidden_layers + 1` layers, each `[batch, words, 2P]`. With
            `output_hidden_states=True`.
        state: `h [num_hidden_layers, 2, batch, P]`, `c [num_hidden_layers, 2, batch, C]`, for the next call's `state=`.
    """

    loss: Tensor | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None
    forward_logits: Tensor | None = None
    backward_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    state: State | None = None


class ElmoForPreTraining(ElmoPreTrainedModel):
    r"""
    A forward and a backward language model over one character CNN, with one softmax over words for both.

    The forward LM's output at position k predicts word k + 1 and has read the words up to k; the backward LM's predicts
    word k - 1 and has read the words from k on. While training the softmax is sampled (`config.num_sampled` words, one
    sample for all words of a step), elsewhere, or where the vocabulary is no larger than the sample, it is full.

    Raises:
        ValueError: `config.vocab_size` is `None`.

    Example:

    ```python
    >>> from hf_elmo import ElmoForPreTraining, ElmoTokenizer
    >>> from hf_elmo.modeling_pretraining_elmo import neighbor_labels
    >>> from hf_elmo.vocabulary import Vocabulary

    >>> tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoForPreTraining.from_pretrained(folder)
    >>> inputs = tokenizer("A river bank .", return_tensors="pt")
    >>> words = torch.from_numpy(Vocabulary.of(tokenizer).sentence_ids("A river bank .".split()))
    >>> model(**inputs, labels=neighbor_labels(words[None])).loss.exp()  # perplexity
    ```"""

    _auto_class = "AutoModelForPreTraining"

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        if config.vocab_size is None:
            raise ValueError("ElmoConfig: vocab_size is None, but a language model needs the size of its vocabulary.")
        self.elmo = ElmoModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.lm_head = bilm_linear(config.projection_size, config.vocab_size)
        self.post_init()

    def set_trainable(self) -> None:
        """Everything, whatever `config.freeze_bilm` says of tasks, but for the mix."""
        self.elmo.train_bilm(True)
        # The language models do not read the mix, and a trainable parameter without a gradient would stop
        # DistributedDataParallel.
        self.elmo.scalar_mix.requires_grad_(False)

    def freeze_bilm(self, frozen: bool = True) -> None:
        """Trains the softmax alone, that of another vocabulary, say; the configuration says nothing of it."""
        self.elmo.train_bilm(not frozen)

    def unfreeze_bilm(self) -> None:
        """Trains everything, as at the start."""
        self.set_trainable()

    @model_forward
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        labels: Tensor | None = None,
        backward_input_ids: Tensor | None = None,
        output_logits: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> ElmoForPreTrainingOutput:
        r"""
        Args:
            input_ids, attention_mask, inputs_embeds, state: as in [`ElmoModel`].
            labels: `[batch, words, 2]`, at each position the id of the word after it, which the forward LM
                predicts, and of the word before it, which the backward LM predicts; -100 where there is none.
                [`neighbor_labels`] makes them.
            backward_input_ids: `[batch, words, characters]`, where the backward LM reads other words than the forward
                LM: its own in the order in which it reads them, as many in each row as there are in `input_ids`. Its
                labels, logits and hidden states are then in that order too.
            output_logits: whether to return the logits of the whole vocabulary; by default where there are no `labels`.
            output_hidden_states: whether to return the biLM's layers.
            num_items_in_batch: the labels that the loss is a mean of: those of all steps that are accumulated (Trainer
                gives it); by default those of this call.

        Raises:
            ValueError: an input is missing, given twice, or has a shape that does not fit; a label is no word; or a
                sampled softmax is to train an `lm_head` that is more than its weights.
        """
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if torch.compiler.is_exporting():
            if labels is not None or backward_input_ids is not None:
                raise ValueError("labels and backward_input_ids are not exported: an exported graph gives the logits.")
            mask = unpadded_mask(self.config, input_ids, attention_mask, inputs_embeds)
            return self._forward_padded(inputs_embeds if input_ids is None else input_ids, mask, state, wanted)
        packing, layers, state = self._read(input_ids, attention_mask, inputs_embeds, state, backward_input_ids)
        hidden_states = None
        if wanted:
            hidden_states = tuple(packing.pad(layer) for layer in layers)
            # Read from what is given back, so that a gradient on the way to the loss is found there.
            layers = [layer.flatten(0, 1)[packing.positions] for layer in hidden_states]
        directions = layers[-1].chunk(2, dim=1)
        losses = (None, None, None) if labels is None else self._losses(directions, labels, packing, num_items_in_batch)
        logits = None, None
        if output_logits or (output_logits is None and labels is None):
            logits = tuple(packing.pad(self.lm_head(x)) for x in directions)
        return ElmoForPreTrainingOutput(*losses, *logits, hidden_states=hidden_states, state=state)

    def _forward_padded(
        self, given: Tensor, mask: Tensor, state: State | None, wanted: bool
    ) -> ElmoForPreTrainingOutput:
        """`forward` in a graph for any batch and length, as that of [`ElmoModel`]."""
        vectors = given if given.is_floating_point() else self.elmo.char_encoder.encode_all(given)
        layers, state = self.elmo.bilm.run_padded(vectors, mask, state)
        logits = (self.lm_head(x) * mask[:, :, None] for x in layers[-1].chunk(2, dim=2))
        return ElmoForPreTrainingOutput(None, None, None, *logits, tuple(layers) if wanted else None, state)

    def _losses(
        self, directions: Sequence[Tensor], labels: Tensor, packing: Packing, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss to train on, and each direction's mean, without a gradient."""
        require_no_loss_function(self)
        total, (forward, backward) = self._total_nll(directions, self._pack_labels(labels, packing))
        items = max(1, len(forward) + len(backward)) if num_items_in_batch is None else num_items_in_batch
        forward, backward = (nll.mean() if len(nll) else nll.sum() for nll in (forward, backward))  # no label, no loss
        return total / items, forward, backward

    @torch.no_grad()
    def word_nll(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: State | None = None,
        labels: Tensor | None = None,
        backward_input_ids: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """The negative log-likelihood of each label in nats by the full softmax, `[batch, words, 2]` float32, 0 where
        the label is -100; and the state. The arguments are those of `forward`."""
        if labels is None:
            raise ValueError("labels are missing: word_nll is that of labels, as the batches of pretraining have them.")
        packing, layers, state = self._read(input_ids, attention_mask, None, state, backward_input_ids)
        columns = []
        for hidden, targets in zip(layers[-1].chunk(2, dim=1), self._pack_labels(labels, packing), strict=True):
            require_labels(targets, self.config.vocab_size)
            predicted = (targets != IGNORE_INDEX).nonzero().squeeze(1)
            nll = self._full_nll(hidden[predicted], targets[predicted])
            columns.append(nll.new_zeros(len(targets)).index_copy(0, predicted, nll))
        return packing.pad(torch.stack(columns, dim=1)), state

    @torch.no_grad()
    def change_vocabulary(self, rows: Sequence[int], unk_id: int = 2) -> None:
        """
        Gives the softmax another vocabulary.

        A word that it has already keeps its row. A new one was `<UNK>` until now: it gets that row, and a bias with
        which `<UNK>` and the new words together are as probable as `<UNK>` was.

        Args:
            rows: for each word of the new vocabulary its row until now, -1 for a new word ([`Vocabulary.rows_in`] makes
                them).
            unk_id: the number of `<UNK>` in the new vocabulary.

        Raises:
            ValueError: a row does not exist, `<UNK>` is new, or `lm_head` is more than its weights (an adapter, say).
        """
        old = self._plain_head("change_vocabulary", "merge or remove that first")
        rows = torch.as_tensor(rows, device=old.weight.device)
        if not 0 <= unk_id < len(rows) or int(rows.min()) < -1 or int(rows.max()) >= old.out_features:
            raise ValueError(
                f"rows must be -1 or 0 to {old.out_features - 1}, and unk_id {unk_id} one of its {len(rows)} places."
            )
        unknown = rows[unk_id]
        if unknown < 0:
            raise ValueError(f"rows[{unk_id}] is -1, but <UNK> must have a row already: new words are made of it.")
        new = rows < 0
        source = torch.where(new, unknown, rows)
        bias = old.bias[source]
        shared = new.clone()
        shared[unk_id] = True
        bias[shared] -= torch.log(shared.sum().to(bias.dtype))
        self.lm_head = bilm_linear(old.in_features, len(rows)).to(old.weight)
        self.lm_head.weight.copy_(old.weight[source])
        self.lm_head.bias.copy_(bias)
        self.config.vocab_size = len(rows)

    def _read(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
        state: State | None,
        backward_input_ids: Tensor | None,
    ) -> tuple[Packing, list[Tensor], State]:
        """The biLM's layers, each `[packed, 2P]`."""
        mask = unpadded_mask(self.config, input_ids, attention_mask, inputs_embeds)
        require_state(self.config, state, len(mask))
        packing = Packing.of(mask)
        given = input_ids if inputs_embeds is None else inputs_embeds
        words = given.flatten(0, 1)[packing.positions]
        if backward_input_ids is None:
            layers, state = self.elmo.read(words, packing, state)
            return packing, [packing.join(layer) for layer in layers], state
        if input_ids is None or backward_input_ids.shape != input_ids.shape:
            raise ValueError(
                f"backward_input_ids has the shape {list(backward_input_ids.shape)}, but must have that of input_ids."
            )
        # Both directions' words at once, so that a word that both read is computed once.
        words = torch.cat((words, backward_input_ids.flatten(0, 1)[packing.positions]))
        numbers = torch.arange(len(words), device=words.device).view(2, -1)
        layers, state = self.elmo.read(words, packing, state, numbers)
        return packing, [torch.cat(tuple(layer), dim=1) for layer in layers], state

    def _pack_labels(self, labels: Tensor, packing: Packing) -> Sequence[Tensor]:
        """Two tensors `[packed]`: what the forward and what the backward LM predicts."""
        if labels.shape != (*packing.shape, 2):
            raise ValueError(
                f"labels has the shape {list(labels.shape)}, but must be {[*packing.shape, 2]}: at each position "
                "the word after it and the word before it, as neighbor_labels(word_ids, attention_mask) makes them."
            )
        return labels.flatten(0, 1)[packing.positions].unbind(1)

    @torch.compiler.disable  # how many words it samples and predicts differs from step to step
    def _total_nll(self, directions: Sequence[Tensor], labels: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        """The sum of the negative log-likelihoods, and each direction's one by one (without a gradient)."""
        sampled = None
        require_labels(torch.cat(tuple(labels)), self.config.vocab_size)
        if self.training and self.config.num_sampled < self.config.vocab_size:
            sampled = sample_words(self.config.num_sampled, self.config.vocab_size, labels[0].device)
        predicted = [(targets != IGNORE_INDEX).nonzero().squeeze(1) for targets in labels]
        hidden = torch.cat([self.dropout(x)[rows] for x, rows in zip(directions, predicted, strict=True)])
        targets = torch.cat([targets[rows] for targets, rows in zip(labels, predicted, strict=True)])
        if sampled is None:
            nll = self._full_nll(hidden, targets)
            total = nll.sum()
        else:
            head = self._plain_head("the sampled softmax", "train with num_sampled = vocab_size")
            total, nll = sampled_softmax_nll(hidden, head.weight, head.bias, targets, sampled)
        return total, nll.detach().split([len(rows) for rows in predicted])

    def _full_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        head = self.lm_head
        if is_plain(head, nn.Linear) and head.weight.device == hidden.device:
            return full_softmax_nll(hidden, head.weight, head.bias, targets)
        logits = head(hidden).float()  # an adapter, a quantized layer or an offloaded one is more than its weights
        return nn.functional.cross_entropy(logits, targets.to(logits.device), reduction="none").to(hidden.device)

    def _plain_head(self, purpose: str, remedy: str) -> nn.Linear:
        if not is_plain(self.lm_head, nn.Linear):
            raise ValueError(
                f"{purpose} reads the weights of lm_head, but that {type(self.lm_head).__name__} has an adapter, "
                f"quantized weights, offloading or a hook: {remedy}."
            )
        return self.lm_head


def neighbor_labels(word_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """
    The labels of [`ElmoForPreTraining`] for sentences that both directions read.

    Args:
        word_ids: `[batch, words]`, the numbers of the words in the vocabulary, `<S>` and `</S>` included, or -100.
        attention_mask: `[batch, words]`, 0 for padding, on either side.

    Returns:
        `[batch, words, 2]`: the word after each position and the word before it; -100 where there is none.
    """
    mask = torch.ones_like(word_ids) if attention_mask is None else attention_mask
    known = torch.where(mask != 0, word_ids, IGNORE_INDEX)
    none = known.new_full((len(known), 1), IGNORE_INDEX)
    labels = torch.stack((torch.cat((known[:, 1:], none), 1), torch.cat((none, known[:, :-1]), 1)), dim=2)
    return labels.masked_fill((mask == 0)[:, :, None], IGNORE_INDEX)


__all__ = ["ElmoForPreTraining", "ElmoForPreTrainingOutput", "neighbor_labels"]
