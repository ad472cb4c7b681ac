"""Models that `torch.export` can trace, and ONNX files of them: one graph for every batch size and length, with padding
on either side.

The models of hf_elmo read packed words and group words by length, so that the shapes inside depend on the values of a
batch. A traced graph cannot do that. It reads padded words, and each LSTM is one `scan` over them.
"""

import copy
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_elmo import names
from hf_elmo.checkpoints.loading import load_weights
from hf_elmo.modeling_classification_elmo import ElmoForSequenceClassification
from hf_elmo.modeling_elmo import ElmoLSTM, ElmoModel, LstmWeights, State, lstm_step, stack_directions
from hf_elmo.modeling_heads_elmo import ElmoBiLSTM, ElmoInputs, ElmoText, ElmoTexts
from hf_elmo.modeling_pretraining_elmo import ElmoForPreTraining
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
    batch = torch.export.Dim("batch")
    words = torch.export.Dim("words")
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


class _Padding(NamedTuple):
    """Stands in for `Packing`: tokens stay where they are. Of a mask `[texts, batch, positions]` each text is a row."""

    mask: Tensor  # [texts * batch, positions]
    texts: int

    @classmethod
    def of(cls, mask: Tensor) -> "_Padding":
        return cls(mask.flatten(0, -2), mask.shape[:-2].numel())

    def pack(self, padded: Tensor) -> Tensor:
        return torch.cat([padded] * self.texts)

    def pad(self, packed: Tensor) -> Tensor:
        return (packed * self.mask[:, :, None]).unflatten(0, (self.texts, -1)).sum(0)


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
        if backward_inputs is not None:
            raise ValueError("backward_input_ids cannot be exported: both directions read input_ids.")
        vectors = packing.pack(inputs)
        if not inputs.is_floating_point() and self.char_encoder.embedding is None:
            vectors = self.char_encoder(vectors)
        elif not inputs.is_floating_point():
            distinct, index = torch.unique(vectors.flatten(0, 1), dim=0, return_inverse=True)
            characters = distinct[:, self.char_encoder.character_columns]
            vectors = self.char_encoder._project(self.char_encoder._convolve(characters), distinct)
            vectors = vectors.index_select(0, index).unflatten(0, packing.mask.shape)
        vectors = vectors * packing.mask[:, :, None]
        state = self.bilm.initial_state(vectors.shape[0], vectors) if state is None else state
        x = torch.stack((vectors, vectors.flip(1)))
        outputs, state = self.bilm.run(x, state, packing)
        layers = [torch.cat((x[0], x[1].flip(1)), dim=2) for x in (x, *outputs)]
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return layers, tuple(map(packing.pad, layers)) if wanted else None, state


class _PaddedLSTM(ElmoLSTM):
    def forward(self, x: Tensor, state: State, packing: _Padding, directions: Sequence[int]) -> tuple[Tensor, State]:
        weights = [self.weights(direction) for direction in directions]
        return read_both_ways(x, packing.mask, (state[0].to(x.dtype), state[1]), weights, *self.clips)


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
    def read_words(self, inputs: ElmoInputs) -> ElmoTexts:
        """The words at their own positions. (How many texts a row holds is not known when a graph is traced.)"""
        mask, boundaries = inputs.masks
        texts = [mask]
        if self.reads_text_pairs:
            number = ((boundaries & mask).cumsum(1) + 1) // 2
            texts = [mask & (number == 1), mask & (number == 2)]
        packing = _Padding.of(torch.stack(texts))
        layers = {"layers": [], "hidden_states": None}
        if self.config.use_elmo:
            (layers,) = self._layers(inputs, [packing])
        words = [text if self.reads_boundaries else text & ~boundaries for text in texts]
        alignment = self.elmo.scalar_mix.alignment if self.config.use_elmo else None
        texts = [_Places(own, own, inputs.word_vector_ids, None) for own in words]
        return ElmoTexts(texts, packing=packing, alignment=alignment, **layers)


class _Places(ElmoText):
    """Words at their own positions, padded where they were."""

    def align(self, values: Tensor) -> Tensor:
        return values


PADDED: dict[type[nn.Module], type[nn.Module]] = {
    ElmoModel: _PaddedElmo,
    ElmoLSTM: _PaddedLSTM,
    ElmoBiLSTM: _PaddedBiLSTM,
    ElmoForSequenceClassification: _PaddedClassifier,
    ElmoForPreTraining: ElmoForPreTraining,
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
    stacked = LstmWeights(*(w if w is None else w.detach() for w in stack_directions(weights, inputs.dtype)))
    flat = inputs.reshape(2, rows * words, size)
    gates = torch.baddbmm(stacked.bias.unsqueeze(1), flat, stacked.weight_ih.mT)
    gates = gates.reshape(2, rows, words, gates.shape[-1]).permute(2, 0, 1, 3).detach()

    def step(before, now):  # no annotations: strict export cannot read them
        (input_half, is_word) = now
        (hidden, cell) = before
        new_hidden, new_cell = lstm_step(input_half, hidden, cell, stacked, (cell_clip, proj_clip))
        hidden = torch.where(is_word, new_hidden, hidden)
        cell = torch.where(is_word, new_cell, cell)
        return (hidden, cell), new_hidden * is_word

    masks = torch.stack((mask, mask.flip(1))).permute(2, 0, 1).unsqueeze(-1)
    state, outputs = scan(step, (state[0], state[1]), (gates, masks))
    return outputs.permute(1, 2, 0, 3), state
