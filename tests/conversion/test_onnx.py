"""ONNX files, run by onnxruntime: the model's numbers at every batch and length, wherever padding stands."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import hf_elmo
from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
)
from hf_elmo.conversion import export_onnx
from hf_elmo_cli import main
from tests.conftest import SENTENCES, TINY, random_model

BATCHES = SENTENCES, SENTENCES[:1], SENTENCES[1:2], SENTENCES * 2


def difference(model: PreTrainedModel, file: Path) -> float:
    """The largest difference of any output in any batch, padded on either side."""
    session = pytest.importorskip("onnxruntime").InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names, differences = [output.name for output in session.get_outputs()], []
    for sentences in BATCHES:
        for side in ("right", "left"):
            tokenizer = ElmoTokenizer(word_splitting="whitespace", padding_side=side)
            pairs = [sentences[::-1]] if getattr(model, "reads_text_pairs", False) else []
            batch = tokenizer(sentences, *pairs, padding=True, return_tensors="pt")
            with torch.no_grad():
                output = model(**batch, output_hidden_states=True)
            found = session.run(None, {key: batch[key].numpy() for key in ("input_ids", "attention_mask")})
            for name, array in zip(names, found, strict=True):
                field, _, number = name.partition(".")
                expected = getattr(output, field)
                expected = (expected[int(number)] if number else expected).numpy()
                assert array.shape == expected.shape
                differences.append(np.abs(array - expected).max())
    return max(differences)


def names_and_shapes(values: list) -> dict[str, list]:
    return {value.name: value.shape for value in values}


def test_a_model_with_projections_and_skips_and_its_layers(model, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    file = export_onnx(model.train(), tmp_path / "new" / "elmo.onnx", output_hidden_states=True)
    assert model.training  # a copy was written
    assert difference(model.eval(), file) < 5e-6
    session, layer = ort.InferenceSession(str(file)), ["batch", "words", 22]
    assert names_and_shapes(session.get_inputs()) == {
        "input_ids": ["batch", "words", 50],
        "attention_mask": ["batch", "words"],
    }
    layers = {f"hidden_states.{number}": layer for number in range(3)}
    assert names_and_shapes(session.get_outputs()) == {
        "last_hidden_state": layer,
        "pooler_output": ["batch", 22],
        **layers,
    }
    assert [path.name for path in file.parent.iterdir()] == ["elmo.onnx"]
    assert str(Path(hf_elmo.__file__).parent).encode() not in file.read_bytes()
    operations = [node.op_type for node in pytest.importorskip("onnx").load(file).graph.node]
    assert operations.index("Unique") < operations.index("Conv")  # each distinct word is computed once


def test_the_biLM_of_a_language_model_in_half_precision_without_projections_and_skips_with_two_mixes(tmp_path):
    changes = {
        "cell_size": 11,
        "char_filters": [[1, 4], [3, 7]],
        "use_skip_connections": False,
        "cell_clip": None,
        "num_hidden_layers": 3,
        "num_scalar_mixes": 2,
        "vocab_size": 31,
    }
    model = random_model(ElmoConfig(**{**TINY, **changes}), ElmoForPreTraining)
    torch.nn.init.normal_(model.elmo.scalar_mix.scalars)
    file = export_onnx(model.bfloat16(), tmp_path / "elmo.onnx")
    assert difference(model.elmo.float(), file) < 5e-6
    session = pytest.importorskip("onnxruntime").InferenceSession(str(file))
    assert [output.name for output in session.get_outputs()][2:] == ["scalar_mixes.0", "scalar_mixes.1"]


def test_a_classifier_by_the_command(tmp_path, capsys):
    config = ElmoConfig(**TINY, classifier_pooling="last", classifier_hidden_size=13, num_labels=3)
    model = random_model(config, ElmoForSequenceClassification)
    model.save_pretrained(tmp_path / "model")
    file = tmp_path / "classifier.onnx"
    assert main(["export", str(file), "--model", str(tmp_path / "model"), "--onnx"]) == 0
    assert capsys.readouterr().out == f"{file}: written\n"
    assert difference(model, file) < 5e-6
    session = pytest.importorskip("onnxruntime").InferenceSession(str(file))
    assert names_and_shapes(session.get_outputs()) == {"logits": ["batch", 3]}


def test_a_classifier_of_pairs_and_the_model_in_a_tagger(config: ElmoConfig, tmp_path: Path) -> None:
    tagger = random_model(config, ElmoForTokenClassification)
    assert difference(tagger.elmo, export_onnx(tagger, tmp_path / "elmo.onnx")) < 5e-6
    config.classifier_text_pairs = True
    classifier = random_model(config, ElmoForSequenceClassification)
    assert difference(classifier, export_onnx(classifier, tmp_path / "classifier.onnx")) < 5e-6


def test_the_shipped_model(tmp_path):
    model, _ = hf_elmo.load_default()
    assert difference(model, export_onnx(hf_elmo.loading.FOLDER, tmp_path / "elmo.onnx")) < 1e-5


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_file_that_is_there_stays(model, tmp_path):
    (tmp_path / "elmo.onnx").write_text("mine")
    with pytest.raises(FileExistsError, match=r"elmo\.onnx"):
        export_onnx(model, tmp_path / "elmo.onnx")
    assert (tmp_path / "elmo.onnx").read_text() == "mine"


def test_a_mix_that_depends_on_its_batch(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="scalar_mix_layer_norm"):
        export_onnx(ElmoModel(ElmoConfig(**TINY, scalar_mix_layer_norm=True)), tmp_path / "elmo.onnx")
    assert list(tmp_path.iterdir()) == []
