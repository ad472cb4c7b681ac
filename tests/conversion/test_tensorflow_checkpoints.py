"""bilm-tf's training checkpoints and TF-Hub's module: their variables, and files that TensorFlow writes."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from hf_elmo.conversion import convert, load
from hf_elmo.conversion.tensorflow_checkpoints import find_checkpoint, read_bilm_tf
from tests.factories import write_lines
from tests.reference import NumpyELMo
from tests.source_files import make_arrays, make_options, write_files

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "a", "mat", ".", "dog", "saw", "it"]
# Of datasets in AllenNLP's format, and of variables of TensorFlow, of bilm-tf's training and of TF-Hub's module.
CELL = [("/LSTMCell/", "/lstm_cell/"), ("/W_P_0", "/projection/kernel"), ("/W_0", "/kernel"), ("/B", "/bias")]
TRAINING_NAMES = [("/RNN/", "/rnn/"), ("/MultiRNNCell/Cell", "/multi_rnn_cell/cell_"), *CELL]
HUB_NAMES = [("/LSTMCell/", "/rnn/LSTMCell/"), *CELL]
ARCHITECTURES = {
    "projection": {},
    "one layer, no projections": {"lstm": {"n_layers": 1, "projection_dim": 17, "dim": 17}},
    "words, the softmax shares their vectors": {"share_embedding_softmax": True},
}
SCALARS, SCALING = [0.5, -1.25, 2.0], 1.5
HUB_OPTIONS = make_options(lstm={"cell_clip": 3, "proj_clip": 3})


def training_options(name: str) -> dict:
    training = {"bidirectional": True, "n_negative_samples_batch": 5, "dropout": 0.1, "batch_size": 3}
    training |= {"char_cnn": {"n_characters": 261}, "n_tokens_vocab": len(WORDS)}  # 261: what bilm-tf trains with
    options = make_options(**ARCHITECTURES[name], **training)
    if "share_embedding_softmax" in options:
        del options["char_cnn"]
    return options


def arrays_of(options: dict) -> dict[str, np.ndarray]:
    return make_arrays(options, single_cell=options["lstm"]["n_layers"] == 1)


def rename(arrays: dict[str, np.ndarray], scope: str, names: list[tuple[str, str]]) -> dict[str, np.ndarray]:
    for hdf5, tensorflow in names:
        arrays = {name.replace(hdf5, tensorflow): array for name, array in arrays.items()}
    return {scope + name: array for name, array in arrays.items()}


def make_variables(options: dict) -> dict[str, np.ndarray]:
    """The variables of bilm-tf's graph (its training.py), optimizer and counters included."""
    rng = np.random.default_rng(4)
    softmax = {"softmax/W": rng.normal(size=(len(WORDS), options["lstm"]["projection_dim"])).astype(np.float32)}
    softmax["softmax/b"] = rng.normal(size=len(WORDS)).astype(np.float32)
    if "share_embedding_softmax" in options:
        del softmax["softmax/W"]
    variables = rename(softmax | arrays_of(options), "lm/", TRAINING_NAMES)
    slots = {f"{name}/Adagrad": np.ones_like(array) for name, array in variables.items()}
    return variables | slots | {"global_step": np.float32(70), "train_perplexity": np.float32(0)}


def require_logits(checkpoint: Path, options: dict, folder: Path) -> ElmoForPreTraining:
    """A checkpoint's language models give the logits of the NumPy reference with the softmax of `make_variables`."""
    model, tokenizer = ElmoForPreTraining.from_pretrained(checkpoint), ElmoTokenizer.from_pretrained(checkpoint)
    write_lines(folder / "vocab.txt", WORDS)
    reference, variables = NumpyELMo(*write_files(folder, options, arrays_of(options))), make_variables(options)
    bias, shared = variables["lm/softmax/b"].astype(np.float64), variables.get("lm/embedding")
    weight = variables.get("lm/softmax/W", shared).astype(np.float64)
    for sentence in (["the", "cat", "sat", "on", "a", "zebra", "."], ["it"]):
        with torch.no_grad():
            output = model(**tokenizer([sentence], is_split_into_words=True, return_tensors="pt"))
        halves = np.split(reference.layers(sentence)[0][-1], 2, axis=1)
        for logits, vectors in zip((output.forward_logits, output.backward_logits), halves, strict=True):
            np.testing.assert_allclose(logits[0], vectors @ weight.T + bias, rtol=0, atol=3e-5)
    assert (tokenizer.vocabulary, tokenizer.word_splitting) == (WORDS, "whitespace")
    return model


@pytest.fixture(autouse=True)
def stored_variables(request, monkeypatch) -> None:
    """Variables that a test pickled next to the checkpoint's files stand for what TensorFlow reads there."""
    if "tensorflow" not in request.fixturenames:
        read = lambda prefix: pickle.loads(prefix.with_name("variables.pkl").read_bytes())  # noqa: E731
        monkeypatch.setattr("hf_elmo.conversion.tensorflow_checkpoints.read_variables", read)


def write_checkpoint(prefix: Path, variables: dict[str, np.ndarray]) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for ending in ("index", "meta", "data-00000-of-00001"):
        prefix.with_name(f"{prefix.name}.{ending}").write_bytes(ending.encode())
    prefix.with_name("variables.pkl").write_bytes(pickle.dumps(variables))


def write_training(folder: Path, name: str = "projection", step: int = 70) -> Path:
    """A training's folder. In files, a byte order mark is no part of the text, and in the vocabulary, as bilm-tf reads
    it, the line `!!!MAXTERMID` is no word."""
    options = training_options(name)
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8-sig")
    lines = [*WORDS[:3], "!!!MAXTERMID", *WORDS[3:]]
    (folder / "vocab.txt").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig", newline="")
    write_checkpoint(folder / f"model.ckpt-{step}", make_variables(options))
    return folder


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_logits_are_those_of_an_independent_computation(name: str, tmp_path) -> None:
    folder = write_training(tmp_path / "training", name)
    given = [folder] if name == "projection" else [folder / "model.ckpt-70.index", folder / "vocab.txt"]
    out = convert(*given, tmp_path / "out")
    config = require_logits(out, training_options(name), tmp_path / "reference").config
    assert (config.vocab_size, config.num_sampled, config.hidden_dropout) == (len(WORDS), 5, 0.1)
    record = json.loads((out / "conversion.json").read_text())
    files = ["model.ckpt-70.data-00000-of-00001", "model.ckpt-70.index", "options.json", "vocab.txt"]
    assert [one["file"] for one in record["sources"]] == files


def test_the_latest_checkpoint_of_a_folder(tmp_path) -> None:
    folder = write_training(tmp_path / "training")
    assert find_checkpoint(folder) == folder / "model.ckpt-70"
    (folder / "model.ckpt-7.index").touch()
    assert find_checkpoint(folder) is None
    lines = ['model_checkpoint_path: "/somewhere/else/model.ckpt-7"', 'all_model_checkpoint_paths: "model.ckpt-70"']
    write_lines(folder / "checkpoint", lines)
    assert find_checkpoint(folder) == folder / "model.ckpt-7"
    with pytest.raises(FileNotFoundError, match="checkpoint"):
        read_bilm_tf(tmp_path)


def hub_variables(scope: str = "module/") -> dict[str, np.ndarray]:
    """The variables of a small module."""
    mix = {"weights": np.array(SCALARS, np.float32), "scaling": np.float32(SCALING)}
    return rename(make_arrays(HUB_OPTIONS), f"{scope}bilm/", HUB_NAMES) | rename(mix, f"{scope}aggregation/", [])


@pytest.mark.parametrize("scope", ["module/", ""])
def test_the_tensors_of_a_module(scope: str, tmp_path) -> None:
    module = write_lines(tmp_path / "module" / "saved_model.pb", []).parent
    write_checkpoint(module / "variables" / "variables", hub_variables(scope) | {"global_step": np.int64(7)})
    require_module(ElmoModel.from_pretrained(convert(module, tmp_path / "out")), tmp_path)


def require_module(found: ElmoModel, tmp_path) -> None:
    """A model has the tensors and the sizes of `hub_variables`."""
    expected = load(*write_files(tmp_path / "source", HUB_OPTIONS))
    assert found.config.cell_clip == found.config.proj_clip == 3
    for key, tensor in expected.state_dict().items():
        assert key.startswith("scalar_mix.") or torch.equal(found.state_dict()[key], tensor), key
    assert found.scalar_mix.scalars.tolist() == SCALARS
    assert found.scalar_mix.gamma.tolist() == [SCALING]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_checkpoint_of_tensorflow(tensorflow, tmp_path, name: str) -> None:
    tf, options = tensorflow.compat.v1, training_options(name)
    folder = write_training(tmp_path / "training", name, step=7)
    with tensorflow.Graph().as_default(), tf.Session() as session:
        for variable, array in make_variables(options).items():
            tf.get_variable(variable, initializer=tf.constant(array))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(folder / "model.ckpt"), global_step=70)
    for number, source in enumerate((folder, folder / "model.ckpt-70")):
        require_logits(convert(source, tmp_path / str(number)), options, tmp_path / "reference")


def test_a_saved_model_that_tensorflow_writes(tensorflow, tmp_path) -> None:
    tf1 = tensorflow.compat.v1
    with tf1.Graph().as_default(), tf1.Session() as session:
        for name, array in hub_variables().items():
            tf1.get_variable(name, initializer=array, use_resource=False)
        text = tf1.placeholder(tensorflow.string, [None], "text")
        session.run(tf1.global_variables_initializer())
        tf1.saved_model.simple_save(session, str(tmp_path / "module"), {"text": text}, {"text": tf1.identity(text)})
    packed = shutil.make_archive(str(tmp_path / "elmo-3"), "gztar", tmp_path / "module")
    for number, source in enumerate((tmp_path / "module", packed)):
        require_module(ElmoModel.from_pretrained(convert(source, tmp_path / str(number))), tmp_path)
