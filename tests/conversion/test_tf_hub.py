"""TF-Hub's ELMo: the variables of a SavedModel that the test makes, as arrays and, with TensorFlow, as files."""

import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_elmo.conversion import convert_saved_model, load
from hf_elmo.conversion.tf_hub import dataset_name, tensors_from_module

from ..allennlp_files import make_arrays, make_options, write_files
from ..conftest import SENTENCES
from ..reference_numpy import NumpyELMo

SCALARS, SCALING = [0.5, -1.25, 2.0], 1.5
OPTIONS = make_options(lstm={"cell_clip": 3, "proj_clip": 3})


def make_variables(root: str = "module/") -> dict[str, np.ndarray]:
    """The variables of a small module: those of the hdf5 format under the names that TensorFlow's cells have."""
    variables = {}
    for name, array in make_arrays(OPTIONS).items():
        name = name.replace("/LSTMCell/W_P_0", "/rnn/lstm_cell/projection/kernel")
        name = name.replace("/LSTMCell/W_0", "/rnn/lstm_cell/kernel").replace("/LSTMCell/B", "/rnn/lstm_cell/bias")
        variables[f"{root}bilm/{name}"] = array
    variables[f"{root}aggregation/weights"] = np.array(SCALARS, np.float32)
    variables[f"{root}aggregation/scaling"] = np.float32(SCALING)
    return variables


@pytest.mark.parametrize(
    "name",
    [
        "module/bilm/RNN_1/RNN/MultiRNNCell/Cell0/rnn/lstm_cell/projection/kernel",
        "bilm/RNN_1/rnn/multi_rnn_cell/cell_0/lstm_cell/projection/kernel",
        "module/bilm/RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0",
    ],
)
def test_names_of_variables(name: str) -> None:
    assert dataset_name(name) == "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"
    assert dataset_name("module/bilm/CNN_high_1/W_carry") == "CNN_high_1/W_carry"
    assert dataset_name("module/aggregation/weights") == "aggregation/weights"


@pytest.mark.parametrize("root", ["module/", "", "elmo_module_1/"])
def test_tensors_are_those_of_the_hdf5_format(root: str, tmp_path: Path) -> None:
    config, tensors = tensors_from_module(make_variables(root) | {"global_step": np.int64(7)})
    model = load(*write_files(tmp_path / "source", OPTIONS, make_arrays(OPTIONS)))
    assert config.to_diff_dict().keys() >= {"cell_size", "char_filters"}
    for field in ("char_filters", "cell_size", "hidden_size", "num_hidden_layers", "cell_clip", "num_highway_layers"):
        assert getattr(config, field) == getattr(model.config, field)
    for key, tensor in model.state_dict().items():
        if not key.startswith("scalar_mix."):
            assert np.array_equal(tensors[key], tensor.numpy()), key
    assert tensors["scalar_mix.scalars"].tolist() == [SCALARS]
    assert tensors["scalar_mix.gamma"].tolist() == [SCALING]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda variables: variables.pop("module/aggregation/weights"), "no 'aggregation/weights' of 3 finite numbers"),
        (lambda variables: variables.pop("module/bilm/CNN/b_cnn_1"), "tensor 'CNN/b_cnn_1' is missing"),
        (lambda variables: variables.update({"module/bilm/more": np.ones(2, np.float32)}), "unexpected tensor 'more'"),
        (lambda variables: variables.pop("module/bilm/char_embed"), "has not the variables of TF-Hub's ELMo"),
        (lambda variables: variables["module/bilm/char_embed"].fill(np.nan), "NaN"),
    ],
    ids=["no mix", "one less", "one more", "no characters", "NaN"],
)
def test_what_does_not_fit(change: object, message: str) -> None:
    variables = make_variables()
    change(variables)
    with pytest.raises(ValueError, match=message):
        tensors_from_module(variables)


def test_without_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    (tmp_path / "module" / "variables").mkdir(parents=True)
    (tmp_path / "module" / "variables" / "variables.index").touch()
    with pytest.raises(ImportError, match=r"hf-elmo\[tensorflow\]"):
        convert_saved_model(tmp_path / "module", tmp_path / "out")


def test_a_saved_model_that_tensorflow_writes(tensorflow: ModuleType, tmp_path: Path) -> None:
    tf1 = tensorflow.compat.v1
    with tf1.Graph().as_default(), tf1.Session() as session:
        for name, array in make_variables().items():
            tf1.get_variable(name, initializer=array, use_resource=False)
        text = tf1.placeholder(tensorflow.string, [None], "text")
        session.run(tf1.global_variables_initializer())
        tf1.saved_model.simple_save(session, str(tmp_path / "module"), {"text": text}, {"text": tf1.identity(text)})
    packed = Path(shutil.make_archive(str(tmp_path / "elmo-3"), "gztar", tmp_path / "module"))
    reference = NumpyELMo(*write_files(tmp_path / "source", OPTIONS, make_arrays(OPTIONS)))
    weights = np.exp(SCALARS) / np.exp(SCALARS).sum() * SCALING
    for number, source in enumerate((tmp_path / "module", packed)):
        out = convert_saved_model(source, tmp_path / f"out{number}")
        model, tokenizer = AutoModel.from_pretrained(out), AutoTokenizer.from_pretrained(out)
        layers, _ = reference.layers(SENTENCES[0].split())
        with torch.no_grad():
            output = model(**tokenizer(SENTENCES[0], return_tensors="pt"))
        assert np.abs(output.last_hidden_state[0].numpy() - np.tensordot(weights, layers, 1)).max() < 1e-5
