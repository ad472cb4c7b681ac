"""What the heads of all tasks share: word vectors beside ELMo, the mixes and their regularization, stored layers."""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import logging

from .arguments_elmo import as_mask
from .configuration_elmo import SENTENCE_BEGIN_WORD_ID, ElmoConfig
from .configuration_tasks_elmo import BOUNDARY_ID, FIRST_VECTOR_ID, UNKNOWN_ID, ElmoTaskFields
from .crf_elmo import ElmoCRF
from .encoders_elmo import ElmoHighwayLSTM
from .lstm_elmo import State
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .packing_elmo import Packing, expand, unpadded_mask, words_mask
from .scalar_mix_elmo import ElmoScalarMix

logger = logging.get_logger(f"transformers.{__name__}")

ENCODER_FIELDS = "encoder_hidden_size", "encoder_num_layers", "encoder_dropout"
# Fields of one head each, which have no effect on the others.
CLASSIFIER_FIELDS = "classifier_pooling", "classifier_hidden_size"
TAGGER_FIELDS = "tagging_crf", "tagging_scheme", "tagging_indicator_size"
ANSWER_FIELDS = ("allow_no_answer",)
COREFERENCE_FIELDS = tuple(field.name for field in fields(ElmoTaskFields) if field.name.startswith("coreference_"))


@dataclass
class TaskWords:
    """What a head reads of a batch; `[batch, positions]` as `input_ids`, sentence boundaries included.

    Args:
        vectors: `[batch, positions, size]`, `[x; ELMo]`.
        elmo_at_output: `[batch, positions, 2P]`, the second mix, with `config.elmo_at_output`.
        mask: `[batch, positions]`, words and boundaries.
        words: `[batch, positions]`, words alone.
        texts: `[batch, positions]`, the number of the text that a position is in, from 1; 0 for padding.
        hidden_states: the layers of the biLM, where they were asked for.
    """

    vectors: Tensor
    elmo_at_output: Tensor | None
    mask: Tensor
    words: Tensor
    texts: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


class ElmoWordVectors(nn.Embedding):
    """Vectors of words that are learned or pretrained, beside ELMo; of padding and boundaries they are zero."""


class ElmoTaskModel(ElmoPreTrainedModel):
    """An ELMo with a task's head on it.

    Heads read `[x; ELMo]` (paper, section 3.3): the word vectors of `config.word_vectors_vocab_size` words and ELMo's
    mix, or either alone (`config.use_elmo`). They take these inputs in place of each other: `input_ids`,
    `inputs_embeds`, or `bilm_layers`, the biLM's layers as [`hf_elmo.store_layers`] computed them before.

    Raises:
        ValueError: `config.encoder_type` is not one of the head's `encoder_types`, or a field of the configuration that
            has no effect on this head is not as it is by default.
    """

    encoder_types: tuple[str | None, ...] = (None,)
    without_effect: tuple[str, ...] = ("num_scalar_mixes",)  # fields that the head does not read
    _begin: tuple[list, Tensor, list[Tensor]] | None = None  # of `_layers_of_begin`

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        if config.encoder_type not in self.encoder_types:
            name, taken = type(self).__name__, " or ".join(map(repr, self.encoder_types))
            raise ValueError(f"ElmoConfig: encoder_type is {config.encoder_type!r}, but {name} takes {taken}.")
        self._require_effects()
        if config.use_elmo:
            self.elmo = ElmoModel(config)
        rows, size = config.word_vectors_vocab_size, config.word_vectors_size
        self.word_vectors = ElmoWordVectors(rows, size, padding_idx=0) if rows else None
        self.output_mix = ElmoScalarMix(config) if config.elmo_at_output and config.use_elmo else None
        self.vectors_size = (size if rows else 0) + (config.hidden_size if config.use_elmo else 0)
        known = self._keys_to_ignore_on_load_unexpected
        if not config.use_elmo:  # a checkpoint of a biLM has no place in a model without one
            others = [r"^elmo\.", r"^char_encoder\.", r"^bilm\.", r"mix"]
            self._keys_to_ignore_on_load_unexpected = [*known, *others]
        elif config.layer_weights is not None:  # nor a learned mix in a fixed one
            self._keys_to_ignore_on_load_unexpected = [*known, r"_mix\.(scalars|gamma)"]

    def _require_effects(self) -> None:
        """Refuses fields that this head does not read (ValueError)."""
        defaults = {field.name: field.default for field in fields(self.config)}
        remedies = dict.fromkeys(self.without_effect, f"{type(self).__name__} makes no use of it: use")
        if self.config.encoder_type is None and "bilstm" in self.encoder_types:
            remedies |= dict.fromkeys(ENCODER_FIELDS, "encoder_type is None: use encoder_type='bilstm', or")
        if self.config.word_vectors_vocab_size is None:
            remedies["word_vectors_size"] = "word_vectors_vocab_size is None: give the number of words, too, or use"
        for field, remedy in remedies.items():
            value = getattr(self.config, field)
            if value != defaults[field] and not (field == "encoder_dropout" and value == 0):  # there is none, indeed
                raise ValueError(f"ElmoConfig: {field} is {value!r}, but {remedy} {defaults[field]!r}, the default.")

    @property
    def reads_text_pairs(self) -> bool:
        """Whether each row holds two texts, which the biLM reads apart."""
        return self.config.classifier_text_pairs

    def set_trainable(self) -> None:
        """The biLM as `config.freeze_bilm` says, word vectors as `config.freeze_word_vectors` does; the rest always."""
        if self.config.use_elmo:
            super().set_trainable()
        if getattr(self, "word_vectors", None) is not None:
            self.word_vectors.requires_grad_(not self.config.freeze_word_vectors)

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of characters; without ELMo that of words."""
        return self.elmo.get_input_embeddings() if self.config.use_elmo else self.word_vectors

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        if self.config.use_elmo:
            self.elmo.set_input_embeddings(value)
        else:
            self.word_vectors = value

    @torch.no_grad()
    def set_word_vectors(self, vectors: np.ndarray | Tensor) -> None:
        """
        Put pretrained vectors into the embedding; unknown words get their mean.

        Args:
            vectors: `[words, word_vectors_size]`, in the order of the tokenizer's `words`.

        Raises:
            ValueError: the model has no word vectors, or they have another shape, or a number that is not finite.
        """
        if self.word_vectors is None:
            raise ValueError("this model has no word vectors: make it with word_vectors_vocab_size.")
        weight, vectors = self.word_vectors.weight, torch.as_tensor(vectors)
        expected = [weight.shape[0] - FIRST_VECTOR_ID, weight.shape[1]]
        if list(vectors.shape) != expected:
            raise ValueError(
                f"vectors have the shape {list(vectors.shape)}, but the model has {expected}, a row for each of the "
                f"tokenizer's words: [word_vectors_vocab_size - {FIRST_VECTOR_ID}, word_vectors_size]."
            )
        if len(wrong := vectors.isfinite().logical_not().nonzero()):
            raise ValueError(f"vectors[{wrong[0, 0].item()}] holds a number that is not finite: leave that word out.")
        weight[FIRST_VECTOR_ID:] = vectors.to(weight)
        weight[UNKNOWN_ID] = vectors.to(weight).mean(0)

    def read_words(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        output_hidden_states: bool | None = None,
        text_pairs: bool = False,
    ) -> TaskWords:
        r"""
        What a head reads.

        Args:
            state: as in [`ElmoModel`], of both texts of a pair. A head's output has none: what comes after this text
                goes on from `model.elmo(**inputs).state`.
            word_vector_ids: `[batch, positions]`, the tokenizer's numbers of words; needed with word vectors.
            bilm_layers: `[batch, positions, num_hidden_layers + 1, 2P]`, of this very biLM, frozen, in place of
                `input_ids`. Another one's are noticed by the vector of `<S>` where boundaries are known; those from
                before its own training go unnoticed if that moved this vector by less than a twentieth.
            text_pairs: whether each row holds two texts, which are read apart.

        The others are those of [`ElmoModel`]. Which positions are boundaries says `special_tokens_mask`, else
        `input_ids`, else `word_vector_ids`; else each row's first and last position are.

        Raises:
            ValueError: an input is missing, given twice, or has a shape that does not fit; a row holds another number
                of texts; or stored layers are another biLM's, or given while it is not frozen, in evaluation, too.
        """
        mask = self._mask(input_ids, attention_mask, inputs_embeds, word_vector_ids, bilm_layers)
        special = special_tokens_mask
        if special is None and input_ids is None and word_vector_ids is not None:
            special = word_vector_ids == BOUNDARY_ID
        words = words_mask(self.config, mask, input_ids, special)
        texts = _texts(self.config, mask, input_ids, special, text_pairs)
        vectors = [] if self.word_vectors is None else [self._look_up(word_vector_ids, mask)]
        output = layers = None
        if self.config.use_elmo and bilm_layers is not None:
            if special is not None:
                self._require_own_layers(bilm_layers, mask & special.bool() & (mask.cumsum(1) == 1))
            layers = bilm_layers[mask].to(self.dtype).unbind(1)
            vectors.append(expand(self.elmo.scalar_mix(layers)[0], mask))
        elif self.config.use_elmo:
            wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
            all_layers = bool(wanted) or self.output_mix is not None
            mix, output = self._run(input_ids, inputs_embeds, mask, state, special, texts, text_pairs, all_layers)
            if text_pairs and wanted and torch.is_grad_enabled() and not torch.compiler.is_exporting():
                # Mixed from what is given back, as in ElmoModel, so that a gradient on the way is found there.
                mix = expand(self.elmo.scalar_mix([layer[mask] for layer in output])[0], mask)
            vectors.append(mix)
            layers = output and [layer[mask] for layer in output] if self.output_mix is not None else None
            output = output if wanted else None
        again = None if self.output_mix is None else expand(self.output_mix(layers)[0], mask)
        return TaskWords(torch.cat(vectors, dim=2), again, mask, words, texts, output)

    def bilm_layers(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, special_tokens_mask: Tensor | None = None
    ) -> Tensor:
        """The layers `[batch, positions, num_hidden_layers + 1, 2P]` that every head of this very biLM takes in place
        of `input_ids`, as long as its weights stay what they are."""
        mask = unpadded_mask(self.config, input_ids, attention_mask, None)
        pairs = self.reads_text_pairs
        texts = _texts(self.config, mask, input_ids, special_tokens_mask, pairs)
        return torch.stack(self._run(input_ids, None, mask, None, special_tokens_mask, texts, pairs, True)[1], dim=2)

    def regularize(self, loss: Tensor, share: Tensor | float) -> Tensor:
        """`loss` with lambda times the squared weights of the mixes, before their softmax (paper, section 3.3).

        `share` of the penalty: the part of all accumulated steps' labels that this step has, so that they add up.
        """
        if not (self.training and self.config.scalar_mix_l2):
            return loss
        return loss + self.config.scalar_mix_l2 * share * sum(mix.scalars.square().sum() for mix in self._mixes())

    def warn_without_labels(self) -> None:
        """While training, says once what a loss on the logits alone leaves out. No error: whoever computes a loss may
        add it (`model.crf.log_likelihood`, `regularize`), and a forward pass need not have one."""
        if not (self.training and torch.is_grad_enabled()):
            return
        missing = ["does not train the CRF (tagging_crf)"] if self.config.tagging_crf else []
        if self.config.scalar_mix_l2 and self._mixes():
            missing.append("has no lambda (scalar_mix_l2)")
        if missing:
            _warn_once(
                f"{type(self).__name__} has no labels while it is trained: a loss on its logits alone "
                f"{' and '.join(missing)}. Trainer computes such a loss with label_smoothing_factor, which must be 0 "
                "here, and with compute_loss_func."
            )

    def _mixes(self) -> list[ElmoScalarMix]:
        """The mixes that are learned."""
        return [module for module in self.modules() if isinstance(module, ElmoScalarMix) and module.fixed is None]

    def _mask(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
        word_vector_ids: Tensor | None,
        bilm_layers: Tensor | None,
    ) -> Tensor:
        """The unpadded positions `[batch, positions]` of a call's arguments."""
        if self.word_vectors is not None and word_vector_ids is None:
            raise ValueError(
                "word_vector_ids are missing, but the model has word vectors: the tokenizer makes them once it has the "
                "words (tokenizer.words)."
            )
        if not self.config.use_elmo and input_ids is None:
            if attention_mask is None:
                return word_vector_ids != 0
            return as_mask("attention_mask", attention_mask, word_vector_ids.shape)
        if bilm_layers is None or not self.config.use_elmo:
            return unpadded_mask(self.config, input_ids, attention_mask, inputs_embeds)
        if input_ids is not None or inputs_embeds is not None:
            raise ValueError("bilm_layers stand in place of input_ids and inputs_embeds: give one of the three.")
        if not bilm_layers.is_floating_point():
            raise ValueError(
                f"bilm_layers are {bilm_layers.dtype}, but must be floating point: the bits of bfloat16 become numbers "
                "by the tokenizer's pad, which DataCollatorWithPadding and TaggingCollator use."
            )
        expected = [self.config.num_hidden_layers + 1, self.config.hidden_size]
        if bilm_layers.dim() != 4 or list(bilm_layers.shape[2:]) != expected:
            raise ValueError(
                f"bilm_layers has the shape {list(bilm_layers.shape)}, but must be [batch, words, {expected[0]}, "
                f"{expected[1]}]: the layers of this biLM, as store_layers computes them."
            )
        self.require_frozen_bilm()
        if attention_mask is None:
            return bilm_layers.new_ones(bilm_layers.shape[:2], dtype=torch.bool)
        return as_mask("attention_mask", attention_mask, bilm_layers.shape[:2])

    def require_frozen_bilm(self) -> None:
        """Refuses (ValueError) layers computed before where the biLM is trained: they would stay as they were."""
        weights = (item for part in (self.elmo.char_encoder, self.elmo.bilm) for item in part.named_parameters())
        trained = next((name for name, weight in weights if weight.requires_grad), None)
        if trained is not None or not self.config.freeze_bilm:
            what = "freeze_bilm is False" if not self.config.freeze_bilm else f"{trained} is trained (requires_grad)"
            raise ValueError(
                f"layers that are computed once are those of a frozen biLM, but {what}: use input_ids, or "
                "freeze_bilm() and layers that are stored after it was trained."
            )

    @torch.compiler.disable  # it asks for the values
    @torch.no_grad()
    def _require_own_layers(self, layers: Tensor, begins: Tensor) -> None:
        """Refuses the layers of another biLM (ValueError). The forward halves at `<S>`, where `begins` `[batch,
        positions]` are, depend on the biLM alone, as no word stands before it."""
        own = self._layers_of_begin()
        found = layers[begins][:, :, : own.shape[1]].to(own)
        distances = ((found - own).norm(dim=2) / own.norm(dim=1)).amax(0).tolist() if len(found) else [0.0]
        # The rounding of bfloat16 is 0.004, and another biLM's layers differ by about 1, or by NaN.
        if (layer := next((n for n, one in enumerate(distances) if not one <= 0.05), None)) is not None:
            raise ValueError(
                f"bilm_layers are of another biLM: layer {layer} of <S> differs by {distances[layer]:.2f} of its "
                "length from this model's. Store the layers of this one (store_layers). (special_tokens_mask says that "
                "the rows begin with <S>.)"
            )

    def _layers_of_begin(self) -> Tensor:
        """The forward halves of the biLM's layers at `<S>`, `[layers, P]`; computed again when a weight has changed.

        A write that PyTorch does not count (to `.data`) passes unseen here: that may miss a fault, or refuse layers of
        weights that were, but makes no wrong number.
        """
        weights = [weight for part in (self.elmo.char_encoder, self.elmo.bilm) for weight in part.parameters()]
        counted = not any(weight.is_inference() for weight in weights)
        marks = [(id(weight), weight.data_ptr(), weight._version, weight.dtype) for weight in weights if counted]
        if not counted or self._begin is None or self._begin[0] != marks:
            word = self.dummy_inputs["input_ids"][:1, 0]
            word[:, self.config.max_word_length :] = SENTENCE_BEGIN_WORD_ID
            one = Packing.of(word.new_ones(1, 1, dtype=torch.bool))
            with torch.autocast(self.device.type, enabled=False), torch.inference_mode(False):
                modes = [(module, module.training) for module in self.elmo.modules()]
                self.elmo.eval()
                try:
                    layers, _ = self.elmo.read(word, one)
                finally:
                    for module, training in modes:
                        module.training = training
            # The weights, so that no other one gets an id of theirs.
            self._begin = marks, torch.stack([layer[0, 0] for layer in layers]).detach(), weights
        return self._begin[1]

    def _look_up(self, word_vector_ids: Tensor, mask: Tensor) -> Tensor:
        if word_vector_ids.shape != mask.shape:
            raise ValueError(
                f"word_vector_ids has the shape {list(word_vector_ids.shape)}, but must be {list(mask.shape)}."
            )
        rows = self.word_vectors.num_embeddings
        readable = word_vector_ids.device.type == "cpu" and not torch.compiler.is_exporting()
        if readable and word_vector_ids.numel() and int(word_vector_ids.max()) >= rows:
            raise ValueError(
                f"word_vector_ids holds {int(word_vector_ids.max())}, but word_vectors_vocab_size is {rows}: the "
                "tokenizer has other words than the model."
            )
        return self.word_vectors(word_vector_ids) * (word_vector_ids != BOUNDARY_ID)[:, :, None]

    def _run(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        mask: Tensor,
        state: State | None,
        special_tokens_mask: Tensor | None,
        texts: Tensor,
        text_pairs: bool,
        all_layers: bool,
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """ELMo's mix `[batch, positions, 2P]` and layers; the texts of a pair are rows of one batch."""
        if text_pairs:
            mask = torch.cat((texts == 1, texts == 2))
            state = None if state is None else tuple(part.repeat(1, 1, 2, 1) for part in state)
            input_ids = None if input_ids is None else torch.cat((input_ids, input_ids))
            inputs_embeds = None if inputs_embeds is None else torch.cat((inputs_embeds, inputs_embeds))
            special_tokens_mask = None if special_tokens_mask is None else torch.cat((special_tokens_mask,) * 2)
        output = self.elmo(input_ids, mask, inputs_embeds, state, special_tokens_mask, all_layers, return_dict=True)
        mix, layers = output.last_hidden_state, output.hidden_states
        if not text_pairs:
            return mix, layers
        return _sum_of_texts(mix), layers and tuple(map(_sum_of_texts, layers))

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ElmoWordVectors):  # as Ma and Hovy 2016, section 3.1
            bound = math.sqrt(3 / module.embedding_dim)
            vectors = torch.empty_like(module.weight).uniform_(-bound, bound)
            vectors[: BOUNDARY_ID + 1] = 0.0
            init.copy_(module.weight, vectors)
        elif isinstance(module, nn.Linear) and not hasattr(module, "initial_bias"):  # of the head, not of the biLM
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM):
            for name, parameter in module.named_parameters():
                if name.startswith("weight_ih"):
                    init.xavier_uniform_(parameter)
                elif name.startswith("weight_hh"):
                    init.orthogonal_(parameter)
                else:  # of two biases that are added, one holds the forget gate's 1
                    forget = torch.zeros_like(parameter)
                    forget[module.hidden_size : 2 * module.hidden_size] = float(name.startswith("bias_ih"))
                    init.copy_(parameter, forget)
        elif isinstance(module, ElmoHighwayLSTM):  # orthonormal, gate by gate (He et al. 2017, section 3.3)
            for weight in (module.weight_ih, module.weight_hh):
                gates = [nn.init.orthogonal_(torch.empty_like(gate)) for gate in weight.split(module.hidden_size)]
                init.copy_(weight, torch.cat(gates))
            bias = torch.zeros_like(module.bias)
            bias[module.hidden_size : 2 * module.hidden_size] = 1.0  # the forget gate's
            init.copy_(module.bias, bias)
        elif isinstance(module, ElmoCRF):
            for parameter in module.parameters():
                init.uniform_(parameter, -0.1, 0.1)
        else:
            super()._init_weights(module)


def _sum_of_texts(rows: Tensor) -> Tensor:
    """`[2 * batch, ...]`, the first texts of all pairs and then the second ones, to `[batch, ...]`."""
    first, second = rows.unflatten(0, (2, -1))  # by `chunk` a graph would be exported for one batch size alone
    return first + second


@torch.compiler.disable
def _warn_once(message: str) -> None:
    logger.warning_once(message)


def _texts(
    config: ElmoConfig, mask: Tensor, input_ids: Tensor | None, special: Tensor | None, text_pairs: bool
) -> Tensor:
    """For each position `[batch, positions]` the number of its text, from 1; 0 for padding."""
    if input_ids is not None:
        begins = (input_ids[:, :, 1] == config.bos_token_id) & mask
        texts = begins.cumsum(1) * mask
        counts = begins.sum(1)
    elif special is None and not text_pairs:
        return mask.long()
    elif special is None:
        raise ValueError(
            "a pair of texts needs input_ids, word_vector_ids or special_tokens_mask: inputs_embeds and "
            "bilm_layers do not say where a text begins."
        )
    else:  # each text has two boundaries
        texts = (((special.bool() & mask).cumsum(1) + 1) // 2) * mask
        counts = texts.amax(1) if texts.shape[1] else texts.sum(1)
        texts = texts if text_pairs else mask.long()
    if not torch.compiler.is_exporting():  # the rows that a graph will see are not known
        _require_texts(counts, text_pairs, "the boundaries" if input_ids is None else "input_ids")
    return texts


@torch.compiler.disable  # it asks for the values
def _require_texts(counts: Tensor, pairs: bool, where: str) -> None:
    """Refuses rows of another number of texts (ValueError). A row without a boundary is one text."""
    for row, count in enumerate(counts.tolist()):
        if count != 2 if pairs else count > 1:
            raise ValueError(
                f"row {row} of {where} holds {count} texts, but this model reads {2 if pairs else 1}: a question and "
                "its passage, tokenizer(question, passage), are two; a classifier is made with "
                "classifier_text_pairs=True for pairs of texts, False for single ones."
            )


def share_of_items(labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor | float:
    """The part of all accumulated steps' labels that are this step's; 0 where Trainer counted none in any of them."""
    return 1.0 if num_items_in_batch is None else (labels != -100).sum() / at_least_one(num_items_in_batch)


def at_least_one(num_items_in_batch: Tensor | int | None) -> Tensor | int | None:
    """What a sum of losses is divided by: 0 / 0 would be the loss of steps without a label, and then each weight."""
    if num_items_in_batch is None:
        return None
    return num_items_in_batch.clamp(min=1) if isinstance(num_items_in_batch, Tensor) else max(num_items_in_batch, 1)


__all__ = ["ElmoTaskModel", "TaskWords"]
