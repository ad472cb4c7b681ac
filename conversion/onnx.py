"""Models that `torch.export` can trace, and ONNX files of them: one graph for every batch size and length, with padding
on either side.

The models of hf_elmo read packed words and group words by length, so that the shapes inside depend on the values of a
batch. A traced graph cannot do that. It reads padded words, and each LSTM is one `scan` over them.
"""

import copy
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import can_return_tuple

from hf_elmo import names
from hf_elmo.checkpoints.loading import load_weights
from hf_elmo.modeling_classification_elmo import ElmoForSequenceClassification
from hf_elmo.modeling_elmo import ElmoModel, LstmWeights, State, _stack, _step
from hf_elmo.modeling_heads_elmo import ElmoBiLSTM, ElmoInputs, ElmoWords
from hf_elmo.modeling_pretraining_elmo import ElmoForPreTraining, ElmoForPreTrainingOutput
from hf_elmo.tokenization_elmo import ElmoTokenizer
from hf_elmo.utils.extras import extra_needed

from .checkpoint import new_path


def export_onnx(model: str | Path | PreTrainedModel, out: str | Path, *, output_hidden_states: bool = False) -> Path:
    """Write a model as one ONNX file (opset 20), in float32. Batch size and length are dynamic, padding may be on
    either side, and the outputs are those of the model.

    The inputs are `input_ids` `[batch, words, characters]` and `attention_mask` `[batch, words]`, int64, as the
    tokenizer makes them, with at least one word, and for a classifier with word vectors `word_vector_ids`. The outputs
    have the names and shapes of the model's own output. An ElmoForSequenceClassification, with any encoder, gives
    `logits`. Any other model is written as its ElmoModel: `last_hidden_state` and `pooler_output`, and
    `scalar_mixes.0`, ... if it has several mixes. Each call starts from a zero state.

    Args:
        model: an ElmoModel or a model with a head on an ElmoModel, or the folder or Hub id of a model.
        out: the file to write, which is returned; it must not exist. It appears when it is complete and checked.
        output_hidden_states: add the layers as outputs: `hidden_states.0`, ...

    Raises:
        FileExistsError: `out` exists.
        ValueError: the vectors of a text would depend on the batch's padding (`scalar_mix_layer_norm`).
    """
    with extra_needed("onnx"):
        import onnx

    out = Path(out)
    if not isinstance(model, PreTrainedModel):
        model = load_weights(model, None, "float32", "cpu")
    has_head = type(model).__name__ == "ElmoForSequenceClassification"  # the class may come from remote code
    model = exportable(model if has_head else model.base_model)
    model.config.output_hidden_states = output_hidden_states
    with new_path(out) as file:
        _translate(model).save(file, external_data=False)
        onnx.checker.check_model(str(file), full_check=True)
    return out


def _translate(model: PreTrainedModel) -> torch.onnx.ONNXProgram:
    # Two rows of three positions, the last one of the second row is padding: no size is 1, and no two are equal.
    config = model.config
    tokenizer = ElmoTokenizer(word_splitting="whitespace", max_word_length=config.max_word_length)
    inputs = dict(tokenizer(["a", ""], padding=True, return_tensors="pt"))
    word_ids = (0, config.row_length - config.max_word_length)
    inputs["input_ids"] = nn.functional.pad(inputs["input_ids"], word_ids, value=1)
    if isinstance(model, ElmoForSequenceClassification) and config.word_vectors_vocab_size is not None:
        inputs["word_vector_ids"] = inputs["attention_mask"]
    names = []
    for name, value in model(**inputs).items():
        names += [name] if isinstance(value, Tensor) else [f"{name}.{number}" for number in range(len(value))]
    batch, words = torch.export.Dim("batch"), torch.export.Dim("words")
    shapes = {name: {0: batch, 1: words} for name in inputs}
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        exported = torch.export.export(model, (), inputs, dynamic_shapes=shapes)
        program = torch.onnx.export(
            exported,
            dynamo=True,
            input_names=list(inputs),
            output_names=names,
            dynamic_shapes=shapes,
            opset_version=20,
            verbose=False,
        )
    outputs = program.model.graph.outputs
    outputs[:] = sorted(outputs, key=lambda value: value.name.startswith("hidden_states."))  # the layers are last
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # they hold stack traces with paths
    return program


def exportable(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model for `torch.export.export`, `torch.onnx.export` and transformers' exporters.

    The copy has the arguments, outputs and numbers of the model. It is frozen, in evaluation mode and in float32, on
    the CPU. `ElmoModel`, `ElmoForPreTraining` and `ElmoForSequenceClassification` with any encoder can be exported; of
    a model with another head, the copy is the `ElmoModel`. Exporters need PyTorch 2.8 or later.

    Raises:
        ValueError: the vectors of a text would depend on the batch's padding (`scalar_mix_layer_norm`).
    """
    if model.config.scalar_mix_layer_norm:
        raise ValueError("scalar_mix_layer_norm=True cannot be exported: padding would be normalized, too.")
    if type(model).__name__ not in [each.__name__ for each in PADDED]:  # the class may come from remote code
        model = model.base_model
    padded = getattr(names, type(model).__name__)(copy.deepcopy(model.config))
    padded.load_state_dict({name: weight.float().cpu() for name, weight in model.state_dict().items()})
    for module in padded.modules():
        module.__class__ = PADDED.get(type(module), type(module))
    return padded.float().eval().requires_grad_(False)


class _Padding:
    """Stands in for `Packing`: tokens stay where they are. Of a mask `[texts, batch, positions]` each text is a row."""

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
        self,
        inputs: Tensor,
        packing: _Padding,
        state: State | None = None,
        output_hidden_states: bool | None = None,
        backward_inputs: Tensor | None = None,
    ) -> tuple[list[Tensor], tuple[Tensor, ...] | None, State]:
        bilm, vectors, mask = self.bilm, inputs, packing.mask
        if not inputs.is_floating_point() and self.char_encoder.embedding is None:
            vectors = self.char_encoder(inputs)
        elif not inputs.is_floating_point():
            distinct, index = torch.unique(inputs.flatten(0, 1), dim=0, return_inverse=True)
            characters = distinct[:, self.char_encoder.character_columns]
            vectors = self.char_encoder._project(self.char_encoder._convolve(characters), distinct)
            vectors = vectors.index_select(0, index).unflatten(0, inputs.shape[:2])
        vectors = vectors * mask[:, :, None]
        state = bilm.initial_state(vectors.shape[0], vectors) if state is None else state
        x, layers, after = torch.stack((vectors, vectors.flip(1))), [torch.cat((vectors, vectors), dim=2)], []
        for layer, hidden, cell in zip(bilm.layers, *state, strict=True):
            weights = [layer.lstm.weights(0), layer.lstm.weights(1)]
            output, end = read_both_ways(x, mask, (hidden.to(x.dtype), cell), weights, *layer.lstm.clips)
            x = output + x if layer.has_skip_connection else output
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
        mask, boundaries = inputs.masks
        texts = [mask]
        if self.reads_text_pairs:
            number = ((boundaries & mask).cumsum(1) + 1) // 2
            texts = [mask & (number == 1), mask & (number == 2)]
        layers, hidden_states = [], None
        if self.config.use_elmo:
            copies, packing = torch.cat([inputs.input_ids] * len(texts)), _Padding(torch.stack(texts))
            layers, hidden_states, _ = self.elmo.read_layers(copies, packing, None, inputs.output_hidden_states)
            if hidden_states is not None:
                hidden_states = tuple(layer.unflatten(0, (len(texts), -1)).sum(0) for layer in hidden_states)
        words = [text if self.reads_boundaries else text & ~boundaries for text in texts]
        ids = inputs.word_vector_ids
        return [_Places(own, own, layers, number, ids) for number, own in enumerate(words)], hidden_states


class _Places(ElmoWords):
    """Words at their own positions, padded where they were. `packing` is the number of the text."""

    def align(self, packed: Tensor) -> Tensor:
        return packed.unflatten(0, (-1, self.mask.shape[0]))[self.packing]


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
