"""Models that `torch.export` can trace: one graph for every batch size and length, with padding on either side.

The models of hf_elmo read packed words and group words by length, so that the shapes inside depend on the values of a
batch. A traced graph cannot do that. It reads padded words, and each LSTM is one `scan` over them.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import can_return_tuple
from transformers.utils.import_utils import is_torch_greater_or_equal

import hf_elmo
from hf_elmo.modeling_classification_elmo import ElmoClassificationHead, ElmoForSequenceClassification
from hf_elmo.modeling_elmo import ElmoModel, LstmWeights, State, _stack, _step
from hf_elmo.modeling_heads_elmo import ElmoBiLSTM, ElmoInputs, ElmoWords
from hf_elmo.modeling_pretraining_elmo import ElmoForPreTraining, ElmoForPreTrainingOutput


def exportable(model: PreTrainedModel) -> PreTrainedModel:
    """
    A copy of a model for `torch.export.export`, `torch.onnx.export` and transformers' exporters.

    The copy has the arguments, outputs and numbers of the model. It is frozen, in evaluation mode and in float32, on
    the CPU. `ElmoModel`, `ElmoForPreTraining` and `ElmoForSequenceClassification` with any encoder can be exported; of
    a model with another head, the copy is the `ElmoModel`.

    Raises:
        ValueError: the vectors of a text would depend on the batch's padding (`scalar_mix_layer_norm`).
        ImportError: PyTorch is older than 2.8, whose `scan` is the first that can be exported.
    """
    if not is_torch_greater_or_equal("2.8"):
        raise ImportError(f"export needs torch 2.8 or later, but this is torch {torch.__version__}.")
    if model.config.scalar_mix_layer_norm:
        raise ValueError("scalar_mix_layer_norm=True cannot be exported: padding would be normalized, too.")
    names = [each.__name__ for each in PADDED]  # the model's class may come from remote code
    model = model if type(model).__name__ in names else model.base_model
    padded = getattr(hf_elmo, type(model).__name__)(copy.deepcopy(model.config))
    padded.load_state_dict({name: weight.float().cpu() for name, weight in model.state_dict().items()})
    for module in padded.modules():
        module.__class__ = PADDED.get(type(module), type(module))
    return padded.float().eval().requires_grad_(False)


class _Padding:
    """Stands in for `Packing`: words stay where they are. Of a mask `[texts, batch, words]` each text is a row."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask.flatten(0, -2)

    @classmethod
    def of(cls, mask: Tensor) -> "_Padding":
        return cls(mask)

    def pack(self, padded: Tensor) -> Tensor:
        return padded

    pad = pack


class _PaddedElmo(ElmoModel):
    packing_type = _Padding

    def read_layers(
        self, inputs: Tensor, packing: _Padding, state: State | None = None, output_hidden_states: bool | None = None
    ) -> tuple[list[Tensor], tuple[Tensor, ...] | None, State]:
        bilm, vectors, mask = self.bilm, inputs, packing.mask
        if not inputs.is_floating_point() and self.char_encoder.embedding is None:
            vectors = self.char_encoder(inputs)
        elif not inputs.is_floating_point():
            distinct, index = torch.unique(inputs.flatten(0, 1), dim=0, return_inverse=True)
            characters = distinct[:, self.char_encoder.characters]
            vectors = self.char_encoder._mix_filters(self.char_encoder._convolve(characters), distinct)
            vectors = vectors.index_select(0, index).unflatten(0, inputs.shape[:2])
        vectors = vectors * mask[:, :, None]
        state = bilm.initial_state(vectors.shape[0], vectors) if state is None else state
        x, layers, after = torch.stack((vectors, vectors.flip(1))), [torch.cat((vectors, vectors), dim=2)], []
        for index, pair in enumerate(zip(bilm.forward_layers, bilm.backward_layers, strict=True)):
            start, weights = (state[0][index].to(x.dtype), state[1][index]), [layer(x) for layer in pair]
            output, end = read_both_ways(x, mask, start, weights, *bilm.clips)
            x = output + x if bilm.use_skip_connections and index > 0 else output
            layers.append(torch.cat((x[0], x[1].flip(1)), dim=2))
            after.append(end)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        state = tuple(torch.stack(parts) for parts in zip(*after, strict=True))
        return layers, tuple(layers) if wanted else None, state


class _PaddedBiLSTM(ElmoBiLSTM):
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        shape = 2, vectors.shape[0], self.lstm.hidden_size
        for layer in range(self.lstm.num_layers):
            both = self.lstm.all_weights[2 * layer : 2 * layer + 2]
            weights = [LstmWeights(ih, hh, bias_ih + bias_hh, None) for ih, hh, bias_ih, bias_hh in both]
            x = torch.stack((vectors, vectors.flip(1)))
            start = vectors.new_zeros(shape), vectors.new_zeros(shape)  # a scan refuses one tensor for both
            x, _ = read_both_ways(x, mask, start, weights)
            vectors = torch.cat((x[0], x[1].flip(1)), dim=2)
        return vectors


class _PaddedClassifier(ElmoForSequenceClassification):
    def read_words(self, inputs: ElmoInputs) -> tuple[list[ElmoWords], tuple[Tensor, ...] | None]:
        """The words at their own positions. (How many texts a row holds is not known when a graph is traced.)"""
        mask, boundaries, texts = inputs.mask, inputs.boundaries, [inputs.mask]
        if self.reads_text_pairs:
            number = ((boundaries & mask).cumsum(1) + 1) // 2
            texts = [mask & (number == 1), mask & (number == 2)]
        layers, hidden_states = [[] for _ in texts], None
        if self.config.use_elmo:
            copies = torch.cat([inputs.input_ids] * len(texts))
            read = self.elmo.read_layers(copies, _Padding(torch.stack(texts)), None, inputs.output_hidden_states)
            of_texts = [layer.unflatten(0, (len(texts), -1)) for layer in read[0]]
            layers = list(zip(*of_texts, strict=True))
            hidden_states = read[1] and tuple(layer.sum(0) for layer in of_texts)
        words = [text if self.reads_boundaries else text & ~boundaries for text in texts]
        ids = inputs.word_vector_ids
        return [_Places(*own, None, ids) for own in zip(words, words, layers, strict=True)], hidden_states


class _Places(ElmoWords):
    """Words at their own positions, padded where they were."""

    def unpack(self, packed: Tensor) -> Tensor:
        return packed


class _PaddedHead(ElmoClassificationHead):
    def embed(self, texts: Sequence[ElmoWords]) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        return [super(_PaddedHead, self).embed([words])[0] for words in texts]  # each text has layers of its own


class _PaddedLanguageModels(ElmoForPreTraining):
    @can_return_tuple
    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, output_hidden_states: bool | None = None
    ) -> ElmoForPreTrainingOutput:
        output = self.elmo(input_ids, attention_mask, output_hidden_states=True, return_dict=True)
        mask = (input_ids != 0).any(2) if attention_mask is None else attention_mask.bool()
        forward, backward = (self.lm_head(x) * mask[:, :, None] for x in output.hidden_states[-1].chunk(2, dim=2))
        layers = output.hidden_states if output_hidden_states else None
        return ElmoForPreTrainingOutput(forward_logits=forward, backward_logits=backward, hidden_states=layers)


PADDED: dict[type[nn.Module], type[nn.Module]] = {
    ElmoModel: _PaddedElmo,
    ElmoBiLSTM: _PaddedBiLSTM,
    ElmoForSequenceClassification: _PaddedClassifier,
    ElmoClassificationHead: _PaddedHead,
    ElmoForPreTraining: _PaddedLanguageModels,
}


def read_both_ways(
    inputs: Tensor,
    mask: Tensor,
    state: State,
    weights: Sequence[LstmWeights],
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Tensor, State]:
    """[`hf_elmo.modeling_elmo.bilstm_layer`] of a forward and a backward LSTM as one `scan` over padded words.

    `inputs` are `[2, rows, words, input]`, the second half in reverse order; `mask` is `[rows, words]`, true for words,
    in text order. Padding may be at any position: it leaves the state unchanged, and its outputs are zero."""
    from torch._higher_order_ops.scan import scan  # a private API: imported for exports only

    _, rows, words, size = inputs.shape
    stacked = LstmWeights(*(w if w is None else w.detach() for w in _stack(weights, inputs.dtype)))
    flat = inputs.reshape(2, rows * words, size)
    gates = torch.baddbmm(stacked.bias.unsqueeze(1), flat, stacked.weight_ih.mT)
    gates = gates.reshape(2, rows, words, gates.shape[-1]).permute(2, 0, 1, 3).detach()

    def step(before, now):  # no annotations: strict export cannot read them
        (input_half, is_word), (hidden, cell) = now, before
        new_hidden, new_cell = _step(input_half, hidden, cell, stacked, (cell_clip, proj_clip))
        hidden, cell = torch.where(is_word, new_hidden, hidden), torch.where(is_word, new_cell, cell)
        return (hidden, cell), new_hidden * is_word

    masks = torch.stack((mask, mask.flip(1))).permute(2, 0, 1).unsqueeze(-1)
    state, outputs = scan(step, (state[0], state[1]), (gates, masks))
    return outputs.permute(1, 2, 0, 3), state
