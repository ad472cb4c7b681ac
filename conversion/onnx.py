"""Exports a model as an ONNX graph with dynamic batch size and length by `torch.export`; the recurrence is a `Scan`."""

import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel

import hf_elmo
from hf_elmo.checkpoints.loading import locate
from hf_elmo.configuration_elmo import SENTENCE_BEGIN_ID, SENTENCE_END_ID, WORD_BEGIN_ID, WORD_END_ID, WORD_PADDING_ID
from hf_elmo.utils.extras import extra_needed

from .checkpoint import new_path
from .exportable import exportable


def export_onnx(model: str | Path | PreTrainedModel, out: str | Path, *, output_hidden_states: bool = False) -> Path:
    """
    Write a model as one ONNX file (opset 20), in float32. Batch size and length are dynamic, padding may be on either
    side, and the outputs are those of the model.

    The inputs are `input_ids` `[batch, words, characters]` and `attention_mask` `[batch, words]`, int64, as the
    tokenizer makes them, with at least one word, and for a classifier with word vectors `word_vector_ids`. The outputs
    have the names and shapes of the model's own output. An ElmoForSequenceClassification, with any encoder, gives
    `logits`. Any other model is written as its ElmoModel: `last_hidden_state` and `pooler_output`, and
    `scalar_mixes.0`, ... if it has several mixes. Each call starts from a zero state.

    Args:
        model: an ElmoModel or a model with a head on an ElmoModel, or the folder or Hub id of a model.
        out: the file to write; it must not exist. It appears when it is complete and checked.
        output_hidden_states: add the layers as outputs: `hidden_states.0`, ...

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` exists.
        ValueError: the vectors of a text would depend on the batch's padding (`scalar_mix_layer_norm`).
        ImportError: onnx or onnxscript is not installed.
    """
    with extra_needed():
        import onnx
        import onnxscript  # noqa: F401, torch.onnx needs it

    out = Path(out)
    if not isinstance(model, PreTrainedModel):
        folder = locate(model)
        (name,) = AutoConfig.from_pretrained(folder).architectures or [""]
        model = getattr(hf_elmo, name, hf_elmo.ElmoModel).from_pretrained(folder, dtype=torch.float32)
    has_head = type(model).__name__ == "ElmoForSequenceClassification"  # the class may come from remote code
    with new_path(out) as file:
        program = _translate(_Graph(exportable(model if has_head else model.base_model), output_hidden_states))
        program.save(file, external_data=False)
        onnx.checker.check_model(str(file), full_check=True)
    return out


class _Graph(nn.Module):
    """A model that takes the tensors `inputs` and returns a tuple of tensors, named by `names`."""

    def __init__(self, model: PreTrainedModel, output_hidden_states: bool) -> None:
        super().__init__()
        self.model, self.output_hidden_states, config = model, output_hidden_states, model.config
        self.inputs, self.names = ["input_ids", "attention_mask"], ["logits"]
        if model is not model.base_model and config.word_vectors_vocab_size is not None:
            self.inputs.append("word_vector_ids")
        if model is model.base_model:
            mixes = config.num_scalar_mixes if config.num_scalar_mixes > 1 else 0
            self.names = ["last_hidden_state", "pooler_output", *(f"scalar_mixes.{n}" for n in range(mixes))]
        if output_hidden_states:
            self.names += [f"hidden_states.{number}" for number in range(config.num_hidden_layers + 1)]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, word_vector_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        words = {} if word_vector_ids is None else {"word_vector_ids": word_vector_ids}
        output = self.model(input_ids, attention_mask, output_hidden_states=self.output_hidden_states, **words)
        tensors = []
        for name in self.names:
            field, _, number = name.partition(".")
            value = getattr(output, field)
            tensors.append(value[int(number)] if number else value)
        return tuple(tensors)


def _translate(graph: _Graph) -> torch.onnx.ONNXProgram:
    # Two rows of three positions, the last one of the second row is padding: no size is 1, and no two are equal.
    sentence = torch.ones(2, 3, graph.model.config.row_length, dtype=torch.int64)
    sentence[:, :, 3 : graph.model.config.max_word_length] = WORD_PADDING_ID
    sentence[:, :, 1] = torch.tensor([SENTENCE_BEGIN_ID, 98, SENTENCE_END_ID])
    sentence[:, :, 0], sentence[:, :, 2], sentence[1, 2] = WORD_BEGIN_ID, WORD_END_ID, 0
    example = [sentence, *[(sentence != 0).any(2).long()] * (len(graph.inputs) - 1)]
    batch, words = torch.export.Dim("batch"), torch.export.Dim("words")
    shapes = {name: {0: batch, 1: words} for name in graph.inputs}
    logger = logging.getLogger("torch.onnx")  # warns of a missing torchvision and of the names of axes
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            exported = torch.export.export(graph, tuple(example), dynamic_shapes=shapes)
            program = torch.onnx.export(
                exported,
                dynamo=True,
                input_names=graph.inputs,
                output_names=graph.names,
                dynamic_shapes=shapes,
                opset_version=20,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # they hold stack traces with paths
    return program
