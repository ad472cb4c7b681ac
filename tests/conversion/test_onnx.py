"""Exported graphs, run by torch and by onnxruntime: the model's numbers at every batch and length, padded anywhere."""

import json
import re
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.dynamic_module_utils import get_class_from_dynamic_module

import hf_elmo
from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.conversion import export_onnx, exportable
from hf_elmo_cli import main
from tests.factories import save_checkpoint, small_model, write_lines
from tests.heads import TAGGER, VECTORS, batch_of, make, without_labels, word_positions

PAGE = Path(__file__).parents[2] / "docs/guides/onnx.md"
BLOCKS = re.findall(r"^```\w*\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
HEADS = {
    "no encoder, last": ("pooled", {"classifier_pooling": "last", "classifier_hidden_size": 13}),
    "bilstm": ("last", {"encoder_num_layers": 2}),
    "biattentive": ("biattentive", {}),
    "esim": ("esim", {}),
    "word vectors": ("pooled", {**VECTORS, "classifier_pooling": "attention"}),
    "word vectors alone": ("pooled", {**VECTORS, "use_elmo": False}),
    "tagger": ("tagger", {}),
    "crf": ("crf", VECTORS),
    "alternating": ("roles", {}),
    "highway": ("roles", {"encoder_type": "highway", "classifier_hidden_size": 13}),
    "no answer": ("no answer", {}),
}


def batches(name: str, words: bool = False) -> list[dict[str, Tensor]]:
    """Four texts and one, padded on either side."""
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    ways = [(side, rows) for side in ("right", "left") for rows in (slice(None), slice(1, 2))]
    return [without_labels(batch_of(tokenizer, name, *way, words=words)) for way in ways]


def session_of(file: Path) -> object:
    return pytest.importorskip("onnxruntime").InferenceSession(str(file), providers=["CPUExecutionProvider"])


def assert_same_numbers(model: PreTrainedModel, file: Path, inputs: list[dict]) -> None:
    session = session_of(file)
    names = [output.name for output in session.get_outputs()]
    for batch in inputs:
        with torch.no_grad():
            output = model(**batch, output_hidden_states=True)
        found = session.run(None, {value.name: batch[value.name].numpy() for value in session.get_inputs()})
        for name, array in zip(names, found, strict=True):
            field, _, number = name.partition(".")
            expected = getattr(output, field)
            expected = expected[int(number)] if number else expected
            np.testing.assert_allclose(array, expected.numpy(), atol=1e-5, rtol=0, err_msg=name)


@pytest.mark.slow
def test_a_model_and_its_layers(model, tmp_path):
    file = export_onnx(model.train(), tmp_path / "new" / "elmo.onnx", output_hidden_states=True)
    assert model.training  # a copy was written
    assert_same_numbers(model.eval(), file, [*batches("no head"), batches("pairs")[0]])
    session, layer = session_of(file), ["batch", "words", 22]
    inputs = {"input_ids": ["batch", "words", 50], "attention_mask": ["batch", "words"]}
    assert {value.name: value.shape for value in session.get_inputs()} == inputs
    layers = {f"hidden_states.{number}": layer for number in range(3)}
    outputs = {"last_hidden_state": layer, "pooler_output": ["batch", 22], **layers}
    assert {value.name: value.shape for value in session.get_outputs()} == outputs
    assert [path.name for path in file.parent.iterdir()] == ["elmo.onnx"]
    assert str(Path(hf_elmo.__file__).parent).encode() not in file.read_bytes()
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(file, tmp_path / "int8.onnx")
    inputs = {value.name: batches("no head")[0][value.name].numpy() for value in session.get_inputs()}
    exact, quantized = (
        each.run(["pooler_output"], inputs)[0] for each in (session, session_of(tmp_path / "int8.onnx"))
    )
    assert np.corrcoef(exact.ravel(), quantized.ravel())[0, 1] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("filters", [[[1, 4], [3, 7]], []], ids=["and characters", "alone"])
def test_the_bilm_of_a_language_model_in_half_precision_with_two_mixes_and_vectors_of_words(tmp_path, filters):
    sizes = {"cell_size": 11, "char_filters": filters, "num_hidden_layers": 3, "use_skip_connections": False}
    words = {"word_vocab_size": 31, "word_embedding_size": 3, "vocab_size": 31, "num_scalar_mixes": 2}
    model = small_model(ElmoForPreTraining, **sizes, **words, cell_clip=None, proj_clip=None)
    torch.nn.init.normal_(model.elmo.scalar_mix.scalars)
    file = export_onnx(model.bfloat16(), tmp_path / "elmo.onnx")
    inputs = batches("no head")
    for batch in inputs:
        batch["input_ids"] = torch.nn.functional.pad(batch["input_ids"], (0, 1), value=7)
    assert_same_numbers(model.elmo.float(), file, inputs)
    assert [output.name for output in session_of(file).get_outputs()][2:] == ["scalar_mixes.0", "scalar_mixes.1"]


def assert_decoded(model: PreTrainedModel, file: Path, inputs: list[dict]) -> None:
    """By the function of docs/guides/onnx.md, from what stands in the file."""
    session = session_of(file)
    about = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    assert {int(number): label for number, label in about["id2label"].items()} == model.config.id2label
    names = {"about": about, "np": np}
    exec(next(block for block in BLOCKS if block.startswith("def decode(")), names)
    for batch in inputs:
        output = model(**batch)
        tags = output.logits.argmax(2) if output.tags is None else output.tags
        (logits,) = session.run(["logits"], {name: value.numpy() for name, value in batch.items()})
        for scores, row, is_word in zip(logits, tags, word_positions(batch), strict=True):
            assert list(names["decode"](scores[is_word])) == row[is_word].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes"), HEADS.values(), ids=HEADS)
def test_heads_by_the_command(tmp_path, capsys, name: str, changes: dict) -> None:
    model, file = make(name, **changes), tmp_path / "head.onnx"
    save_checkpoint(tmp_path / "model", model)
    assert main(["export", str(file), "--model", str(tmp_path / "model"), "--onnx"]) == 0
    assert capsys.readouterr().out == f"{file}: written\n"
    inputs = batches(name, "word_vectors_size" in changes)
    assert_same_numbers(model, file, inputs)
    if isinstance(model, TAGGER):
        assert_decoded(model, file, inputs)


class Doubled(TAGGER):
    def forward(self, *args: object, **kwargs: object) -> object:
        output = super().forward(*args, **kwargs)
        output.logits = 2 * output.logits
        return output


def adapted(model: PreTrainedModel) -> PreTrainedModel:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    targets = {"target_modules": ["carry", "projection"], "target_parameters": ["lstm.weight_hh", "lstm.weight_ih"]}
    config = peft.LoraConfig(task_type="TOKEN_CLS", r=2, init_lora_weights=False, **targets)
    return peft.get_peft_model(model, config).eval()


def of_remote_code(model: PreTrainedModel) -> PreTrainedModel:
    name = "modeling_tagging_elmo.ElmoForTokenClassification"
    return get_class_from_dynamic_module(name, model.name_or_path).from_pretrained(model.name_or_path)


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda model: Doubled.from_pretrained(model.name_or_path), adapted, of_remote_code])
def test_a_model_is_exported_as_its_class(tmp_path, change: Callable) -> None:
    save_checkpoint(tmp_path / "model", make("roles", tagging_indicator_size=None, freeze_bilm=False))
    model = change(TAGGER.from_pretrained(tmp_path / "model"))
    file = export_onnx(model, tmp_path / "tagger.onnx")
    assert_same_numbers(getattr(model, "get_base_model", lambda: model)(), file, batches("tagger"))
    assert "transitions" in session_of(file).get_modelmeta().custom_metadata_map


def exported_by_torch(model: PreTrainedModel, example: dict[str, Tensor]) -> Callable:
    rows, positions = torch.export.Dim("rows", min=1), torch.export.Dim("positions", min=2)
    shapes = {name: {0: rows, 1: positions} for name in example}
    return torch.export.export(model, (), example, dynamic_shapes=shapes).module()


def exported_by_transformers(model: PreTrainedModel, example: dict[str, Tensor]) -> Callable:
    pytest.importorskip("transformers.exporters.runners", reason="an older interface of transformers' exporters")
    from transformers.exporters import DynamoConfig, DynamoExporter

    with warnings.catch_warnings(action="ignore"):
        return DynamoExporter().export(model, example, config=DynamoConfig(dynamic=True))


@pytest.mark.slow
@pytest.mark.parametrize("export", [exported_by_torch, exported_by_transformers])
def test_other_exporters(export: Callable) -> None:
    name = "language models" if export is exported_by_torch else "pooled"
    model, inputs = make(name), batches(name)
    graph = export(exportable(model), inputs[0])
    for batch in (inputs[0], inputs[2]):
        with torch.no_grad():
            found, expected = graph(**batch), model(**batch)
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, atol=1e-5, rtol=0)


REFUSED = [("scalar_mix_layer_norm", "layer norm", {}), ("carry_state", "pairs", {"carry_state": True})]
REFUSED += [("ElmoForCoreferenceResolution", "resolver", {})]
REFUSED += [("tagging_sums_probabilities", "roles", {"tagging_sums_probabilities": True})]
REFUSED += [("ElmoWordCharacters", "tagger", {"word_characters": "abc"})]


@pytest.mark.parametrize(("refused", "name", "changes"), REFUSED)
def test_what_has_no_graph_is_refused_by_name(tmp_path, refused: str, name: str, changes: dict) -> None:
    pytest.importorskip("onnxscript")
    with pytest.raises(ValueError, match=refused):
        export_onnx(make(name, **changes), tmp_path / "model.onnx")


def test_a_trace_which_would_keep_the_lengths_of_its_example_is_refused() -> None:
    model = make("pooled", **VECTORS, use_elmo=False)
    with pytest.raises(RuntimeError, match="export_onnx"):
        torch.jit.trace(model, example_kwarg_inputs=batches("pooled", words=True)[0], strict=False)


def test_a_file_that_is_there_stays_and_a_class_that_is_not_known_is_no_bilm(model, tmp_path):
    pytest.importorskip("onnxscript")
    file = write_lines(tmp_path / "elmo.onnx", ["mine"])
    with pytest.raises(FileExistsError, match=r"elmo\.onnx"):
        export_onnx(model, file)
    assert file.read_text() == "mine\n"
    Doubled(make("tagger").config).save_pretrained(tmp_path / "doubled")
    with pytest.raises(AttributeError, match="Doubled"):
        export_onnx(tmp_path / "doubled", tmp_path / "other.onnx")


@pytest.mark.slow
def test_onnx_runtime_without_pytorch_and_hf_elmo(tmp_path, monkeypatch) -> None:
    """The production recipe of docs/guides/onnx.md, as it is printed, in an environment that holds nothing else."""
    export, save, install, serve, printed = BLOCKS[:5]
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(export.partition("\n")[0])[2:]) == 0
    exec(save, {})
    shutil.copy(PAGE.parents[2] / "constraints.txt", tmp_path)
    subprocess.run(install, shell=True, check=True)
    python = tmp_path / "server" / "bin" / "python"
    done = subprocess.run([python, "-I", "-c", serve], capture_output=True, text=True)
    assert done.stdout == printed, done.stderr
    for absent in ("torch", "hf_elmo"):
        assert subprocess.run([python, "-I", "-c", f"import {absent}"], stderr=subprocess.DEVNULL).returncode == 1
