"""Models that `torch.export` can trace, and ONNX files of them: one graph for every batch size, length and padding.

The models of hf_elmo read packed words and group words by length, so that the shapes inside depend on the values of a
batch. A traced graph cannot do that. It reads padded words, and each LSTM is one `scan` over them.
"""

import copy
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_elmo.checkpoints.loading import load_weights
from hf_elmo.modeling_elmo import LstmWeights, Packing, State, lstm_step, stack_directions
from hf_elmo.modeling_heads_elmo import ElmoText
from hf_elmo.tokenization_elmo import ElmoTokenizer
from hf_elmo.utils.extras import extra_needed

from .checkpoint import new_path


def export_onnx(model: str | Path | PreTrainedModel, out: str | Path, *, output_hidden_states: bool = False) -> Path:
    """Write a model as one ONNX file (opset 20), in float32. Batch size and length are dynamic, padding may be on
    either side, and the outputs are those of the model.

    The inputs are `input_ids` `[batch, words, characters]` and `attention_mask` `[batch, words]`, int64, as the
    tokenizer makes them, with at least one word; with word vectors also `word_vector_ids`, and with
    `tagging_indicator_size` also `token_type_ids`. The outputs have the names and shapes of the model's own output,
    except a tagger's `tags`. A subclass is written as its class, a language model as its ElmoModel. States start at 0.

    With a classifier or tagger, the metadata of the file have `id2label`, as JSON. If the tagger has a CRF or a
    scheme, they also have the scores with which it decodes: `start`, `transitions` (`[before][after]`) and `end`.

    Args:
        model: an ElmoModel, a model with a head, or a PeftModel of one; or the folder or Hub id of a model.
        out: the file to write, which is returned; it must not exist. It appears when it is complete and checked.
        output_hidden_states: add the layers as outputs: `hidden_states.0`, ...

    Raises:
        FileExistsError: `out` exists.
        ValueError: as in [`exportable`]; or a tagger decodes as no other program does (`tagging_sums_probabilities`).
    """
    with extra_needed("onnx"):
        import onnx

    out = Path(out)
    model = load_weights(model, None, "float32", "cpu")
    properties = _properties(model)
    padded = exportable(model)
    if hasattr(padded, "lm_head"):
        padded = padded.base_model
    padded.config.output_hidden_states = output_hidden_states
    with new_path(out) as file:
        proto = _translate(padded)
        onnx.helper.set_model_props(proto, properties)
        onnx.save(proto, file)
        onnx.checker.check_model(str(file), full_check=True)
    return out


def _translate(model: PreTrainedModel) -> Any:
    """The `onnx.ModelProto` of an exportable model."""
    # Two rows, the end of the second one is padding: no size is 1, and no two are equal.
    config = model.config
    tokenizer = ElmoTokenizer(word_splitting="whitespace", max_word_length=config.max_word_length)
    texts = [["a", ""]] * (2 if getattr(model, "reads_text_pairs", False) else 1)
    inputs = dict(tokenizer(*texts, padding=True, return_tensors="pt"))
    word_ids = (0, config.row_length - config.max_word_length)
    inputs["input_ids"] = nn.functional.pad(inputs["input_ids"], word_ids, value=1)
    for name, part in (("word_vector_ids", "word_vectors"), ("token_type_ids", "indicator")):
        if getattr(getattr(model, "head", None), part, None) is not None:
            inputs[name] = inputs["attention_mask"].clone()  # one tensor would be one input
    names = []
    for name, value in model(**inputs).items():
        names += [name] if isinstance(value, Tensor) else [f"{name}.{number}" for number in range(len(value))]
    batch, words = torch.export.Dim("batch"), torch.export.Dim("words")
    shapes = ({name: {0: batch, 1: words} for name in inputs},)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        exported = torch.export.export(_ByName([model]), (inputs,), dynamic_shapes=shapes)
        how = {"input_names": list(inputs), "output_names": names, "dynamic_shapes": shapes, "opset_version": 20}
        program = torch.onnx.export(exported, dynamo=True, verbose=False, **how)
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # they hold stack traces with paths
    proto = program.model_proto
    del proto.graph.value_info[:]  # of weights, too, of which onnxruntime's quantization changes the shapes
    return proto


class _ByName(nn.ModuleList):
    def forward(self, inputs: dict[str, Tensor]) -> Any:
        """A subclass may have a `forward` of `**kwargs`, for which `torch.export` takes no dynamic shapes."""
        return self[0](**inputs)


def _properties(model: PreTrainedModel) -> dict[str, str]:
    """What makes labels of the outputs of a model with a classifier, as JSON: `id2label` and, if a tagger decodes whole
    sequences, the scores `start`, `transitions` (before, after) and `end` that it adds to the logits."""
    if (head := getattr(model, "classifier", None)) is None:
        return {}
    properties: dict[str, Any] = {"id2label": model.config.id2label}
    if (crf := getattr(head, "crf", None)) is not None:
        if crf.sums_probabilities:
            raise ValueError("tagging_sums_probabilities=True cannot be exported: load the model with False.")
        scores = crf.decoding_scores(torch.zeros(1, 1, model.config.num_labels))
        _, start, transitions, end = (part.tolist() for part in scores)
        properties |= {"start": start, "transitions": transitions, "end": end}
    return {name: json.dumps(value) for name, value in properties.items()}


def exportable(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model for `torch.export.export`, `torch.onnx.export` and transformers' exporters.

    The copy has the arguments, outputs and numbers of the model, except a tagger's `tags`. It is frozen, in evaluation
    mode and in float32, on the CPU. Exporters need PyTorch 2.8 or later.

    Raises:
        ValueError: vectors would depend on padding (`scalar_mix_layer_norm`) or on another text (`carry_state`); or
            the model is for coreference or reads `word_characters`, for which there is no graph of fixed shapes.
    """
    model = load_weights(model)  # without a wrapper, such as that of PEFT
    for field in ["scalar_mix_layer_norm"] + ["carry_state"] * getattr(model, "reads_text_pairs", False):
        if getattr(model.config, field):
            raise ValueError(f"{field}=True cannot be exported: it reads padding, or one text after the other.")
    model = copy.deepcopy(model)
    for module in model.modules():
        for name in [base.__name__ for base in type(module).__mro__]:  # by name: the class may come from remote code
            if name in NOT_EXPORTED:
                raise ValueError(f"{name} cannot be exported, only the biLM can: pass model.elmo.")
            for attribute, value in PADDED.get(name, {}).items():
                setattr(module, attribute, MethodType(value, module) if attribute == "forward" else value)
    return model.float().cpu().eval().requires_grad_(False)


@dataclass
class _Padding(Packing):
    """Stands in for `Packing`: each row keeps its padding, behind its tokens."""

    batch_sizes: Any  # the mask of the tokens, `[rows, positions]`, in a tuple
    texts: int = 1  # in each row of the batch

    @classmethod
    def of(cls, mask: Tensor) -> "_Padding":
        batch, width = mask.shape[-2:]
        texts = mask.shape[:-2].numel()
        mask = mask.flatten(0, -2)
        places = torch.arange(width)
        order = torch.where(mask, places, width).argsort(1)
        inside = mask.gather(1, order)
        reverse = torch.where(inside, inside.sum(1, keepdim=True) - 1 - places, places)
        rows = torch.arange(mask.shape[0])
        order, reverse = ((index + rows[:, None] * width).flatten() for index in (order, reverse))
        return cls(order, reverse, (inside,), rows, (batch, width), mask.shape[0], texts)

    def pack(self, padded: Tensor) -> Tensor:
        return torch.cat([padded] * self.texts).flatten(0, 1)[self.indices]

    def pad(self, packed: Tensor) -> Tensor:
        mask = self.batch_sizes[0].view(-1, *[1] * (packed.dim() - 1))
        padded = torch.zeros_like(packed).index_copy(0, self.indices, packed * mask)
        return padded.unflatten(0, (self.texts, *self.shape)).sum(0)


class _PaddedText(ElmoText):
    def align(self, values: Tensor) -> Tensor:
        return _Padding.of(self.is_read).pack(values).unflatten(0, self.is_read.shape)

    def place(self, values: Tensor) -> Tensor:
        return _Padding.of(self.is_read).pad(values.flatten(0, 1))


def _character_encoder(self: Any, character_ids: Tensor) -> Tensor:
    if self.embedding is None:
        return self._project(None, character_ids)
    distinct, index = torch.unique(character_ids.flatten(0, -2), dim=0, return_inverse=True)
    vectors = self._project(self._convolve(distinct[:, self.character_columns]), distinct)
    return vectors.index_select(0, index).unflatten(0, character_ids.shape[:-1])


def _lstm(self: Any, x: Tensor, state: State, masks: Any, directions: Sequence[int]) -> tuple[Tensor, State]:
    return read_both_ways(x, state, masks[0], [self.weights(direction) for direction in directions], self.clips)


def _bilstm(self: Any, vectors: Tensor, mask: Tensor) -> Tensor:
    packing = _Padding.of(mask)
    words = packing.pack(vectors)
    shape = 2, mask.shape[0], self.lstm.hidden_size
    for layer in range(self.lstm.num_layers):
        both = self.lstm.all_weights[2 * layer : 2 * layer + 2]
        weights = [LstmWeights(ih, hh, bias_ih + bias_hh, None) for ih, hh, bias_ih, bias_hh in both]
        start = words.new_zeros(shape), words.new_zeros(shape)  # a scan refuses one tensor for both
        x = torch.stack((words, words[packing.reverse]))
        words = packing.join(read_both_ways(x, start, packing.batch_sizes[0], weights)[0])
    return packing.pad(words)


def _highway_lstm(self: Any, words: Tensor, masks: Sequence[Tensor]) -> Tensor:
    inputs = nn.functional.linear(words, self.weight_ih, self.bias).unflatten(0, masks[0].shape).transpose(0, 1)
    gates, highway = inputs.split(5 * self.hidden_size, dim=2)
    weight_hh = self.weight_hh.T

    def step(now, state):
        return self.step(*now, *state, weight_hh)

    state = highway.new_zeros(highway.shape[1:]), highway.new_zeros(highway.shape[1:])
    return _scan(step, (gates, highway), state, masks[0].T)[0].transpose(0, 1).flatten(0, 1)


NOT_EXPORTED = ("ElmoWordCharacters", "ElmoForCoreferenceResolution")
# What is replaced in modules of hf_elmo, by the names of their classes.
PADDED: dict[str, dict[str, Any]] = {
    "ElmoModel": {"packing_type": _Padding},
    "ElmoCharacterEncoder": {"forward": _character_encoder},
    "ElmoLSTM": {"forward": _lstm},
    "ElmoTaskModel": {"text_type": _PaddedText},
    "ElmoBiLSTM": {"forward": _bilstm},
    "ElmoAlternatingLSTM": {"packing_type": _Padding},
    "ElmoHighwayLSTM": {"forward": _highway_lstm},
    "ElmoTaggingHead": {"crf": None},  # decoding is a loop over words
}


def read_both_ways(
    x: Tensor, state: State, mask: Tensor, weights: Sequence[LstmWeights], clips: Sequence = (None, None)
) -> tuple[Tensor, State]:
    """[`hf_elmo.modeling_elmo.bilstm_layer`] of a forward and a backward LSTM as one `scan` over padded words.

    `x` is `[2, rows * words, input]`, each direction in its reading order; `mask` is `[rows, words]`, true for words.
    Padding leaves the state unchanged, and its outputs are zero."""
    stacked = LstmWeights(*(w if w is None else w.detach() for w in stack_directions(weights, x.dtype)))
    gates = torch.baddbmm(stacked.bias.unsqueeze(1), x, stacked.weight_ih.mT)
    gates = gates.unflatten(1, mask.shape).permute(2, 0, 1, 3)

    def step(now, state):
        return lstm_step(now[0], *state, stacked, clips)

    outputs, state = _scan(step, (gates,), state, mask.T[:, None])
    return outputs.permute(1, 2, 0, 3).flatten(1, 2), state


def _scan(step: Callable, inputs: Sequence[Tensor], state: State, mask: Tensor) -> tuple[Tensor, State]:
    """The outputs and the last state of `step`, which makes the next state of `inputs` (words first) and a state."""
    from torch._higher_order_ops.scan import scan  # a private API: imported for exports only

    def masked_step(before, now):  # no annotations: strict export cannot read them
        *now, is_word = now
        after = step(now, before)
        hidden, cell = (torch.where(is_word, *parts) for parts in zip(after, before, strict=True))
        return (hidden, cell), after[0] * is_word

    state, outputs = scan(masked_step, tuple(state), (*(part.detach() for part in inputs), mask.unsqueeze(-1)))
    return outputs, state
