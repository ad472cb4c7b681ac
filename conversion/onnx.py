"""A model as an ONNX graph of dynamic batch size and length, through `torch.export`; the recurrence is a `Scan`."""

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel

from hf_elmo import ElmoForSequenceClassification, ElmoModel
from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.optional import import_optional
from hf_elmo.shipped import load_checkpoint, named

from .output import new_path, require_absent

INPUTS = ("input_ids", "attention_mask")
NOT_EXPORTED = {
    "ElmoForCoreferenceResolution": "a resolver of coreference",
    "ElmoForQuestionAnswering": "a reader of questions",
    "ElmoForTokenClassification": "a tagger",
}


def export_onnx(model: str | Path | PreTrainedModel, out: str | Path, *, output_hidden_states: bool = False) -> Path:
    """
    Write a model as one ONNX file (opset 20), in float32. Batch size and length are dynamic, padding may be on either
    side, and the outputs are those of the model.

    Inputs: `input_ids` `[batch, words, characters]` and `attention_mask` `[batch, words]`, int64, as the tokenizer
    makes them; at least one word. Outputs, with names and shapes as in the model's own output: `last_hidden_state` and
    `pooler_output` of an ElmoModel, and `scalar_mixes.0`, ... where it has several mixes; `logits` of an
    ElmoForSequenceClassification. Of an ElmoForPreTraining the ElmoModel in it is written. Each call starts from zero
    state.

    Args:
        model: an ElmoModel, a model with a head over one, or the folder or Hub id of either.
        out: the file to write; it must not exist. It appears once it is written and checked.
        output_hidden_states: the layers are further outputs: `hidden_states.0`, ...

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` exists.
        ValueError: the model is not an ELMo, or its mix depends on the batch (`scalar_mix_layer_norm`).
        ImportError: onnx or onnxscript is not installed.
    """
    out = Path(out)
    # torch.onnx uses the second one.
    onnx, _ = (import_optional(name, "exporting to ONNX", "'hf-elmo[onnx]'") for name in ("onnx", "onnxscript"))
    require_absent(out)
    graph = _Graph(_exportable(model), output_hidden_states)
    program = _translate(graph)
    with new_path(out) as file:
        program.save(file, external_data=False)
        onnx.checker.check_model(str(file), full_check=True)
    return out


def _exportable(model: str | Path | PreTrainedModel) -> ElmoModel | ElmoForSequenceClassification:
    """A copy of the part of a model that can be exported, in float32, on the CPU and in evaluation mode."""
    if not isinstance(model, PreTrainedModel):
        with named(model) as place:
            architectures = AutoConfig.from_pretrained(place).architectures or ()
        for name in NOT_EXPORTED.keys() & set(architectures):
            raise ValueError(
                f"model {str(model)!r} is {NOT_EXPORTED[name]}, which is not exported: export the ElmoModel in it."
            )
        has_head = ElmoForSequenceClassification.__name__ in architectures
        model_class = ElmoForSequenceClassification if has_head else ElmoModel
        model = load_checkpoint(model_class, model, dtype=torch.float32)
    if model.config.model_type != ElmoConfig.model_type:
        raise ValueError(f"model is a {type(model).__name__}, but only ELMo models can be exported.")
    if kind := NOT_EXPORTED.get(type(model).__name__):
        raise ValueError(f"model is {kind}, which is not exported: export its elmo, the ElmoModel in it.")
    if type(model).__name__ != ElmoForSequenceClassification.__name__:
        model = model.base_model
    return copy.deepcopy(model).to("cpu", torch.float32).eval()


class _Graph(nn.Module):
    """A model whose output is a tuple of tensors, named by `names`."""

    def __init__(self, model: ElmoModel | ElmoForSequenceClassification, output_hidden_states: bool) -> None:
        super().__init__()
        self.model, self.output_hidden_states = model, output_hidden_states
        config = model.config
        mixes = config.num_scalar_mixes if config.num_scalar_mixes > 1 and model is model.base_model else 0
        layers = config.num_hidden_layers + 1 if output_hidden_states else 0
        self.names = ["last_hidden_state", "pooler_output"] if model is model.base_model else ["logits"]
        self.names += [f"scalar_mixes.{number}" for number in range(mixes)]
        self.names += [f"hidden_states.{number}" for number in range(layers)]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        output = self.model(input_ids, attention_mask, output_hidden_states=self.output_hidden_states)
        tensors = []
        for name in self.names:
            field, _, number = name.partition(".")
            value = getattr(output, field)
            tensors.append(value[int(number)] if number else value)
        return tuple(tensors)


def _translate(graph: _Graph) -> torch.onnx.ONNXProgram:
    sentence = graph.model.dummy_inputs["input_ids"]  # 2 sentences of 3 words: no size is 1, or that of another axis
    mask = (sentence != 0).any(2).long()
    batch, words = torch.export.Dim("batch"), torch.export.Dim("words")
    shapes = {name: {0: batch, 1: words} for name in INPUTS}
    with torch.no_grad(), _quiet():
        exported = torch.export.export(graph, (sentence, mask), dynamic_shapes=shapes)
        program = torch.onnx.export(
            exported,
            dynamo=True,
            input_names=list(INPUTS),
            output_names=graph.names,
            dynamic_shapes=shapes,
            opset_version=20,
            verbose=False,
        )
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces, with paths of this machine
    return program


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences the exporter, which comments on a missing torchvision and on the names of axes."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
