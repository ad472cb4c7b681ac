"""bilm-tf's training checkpoints and TF-Hub's module: their variables, and files that TensorFlow writes."""

import json
import pickle
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from hf_elmo.conversion import convert, load
from hf_elmo.conversion.tensorflow_checkpoints import find_checkpoint, read_bilm_tf
from hf_elmo.modeling_pretraining_elmo import neighbor_labels

from ..allennlp_files import make_arrays, make_options, write_files
from ..reference import NumpyELMo

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "a", "mat", ".", "dog", "saw", "it"]
TRAINING = {
    "bidirectional": True,
    "n_tokens_vocab": len(WORDS),
    "n_negative_samples_batch": 5,
    "dropout": 0.1,
    "batch_size": 3,
    "unroll_steps": 20,
}
# Of datasets in AllenNLP's format, and of TensorFlow's variables.
NAMES = [("/RNN/", "/rnn/"), ("/MultiRNNCell/Cell", "/multi_rnn_cell/cell_"), ("/LSTMCell/", "/lstm_cell/")]
NAMES += [("/W_P_0", "/projection/kernel"), ("/W_0", "/kernel"), ("/B", "/bias")]
ARCHITECTURES = {
    "projection": {},
    "one layer, no projections": {"lstm": {"n_layers": 1, "projection_dim": 17, "dim": 17}},
}


def training_options(name: str) -> dict:
    options = make_options(**ARCHITECTURES[name], **TRAINING)
    options["char_cnn"] = {**options["char_cnn"], "n_characters": 261}  # what bilm-tf trains with
    return options


def make_variables(options: dict) -> dict[str, np.ndarray]:
    """The variables of bilm-tf's graph (its training.py), optimizer and counters included."""
    rng, single_cell = np.random.default_rng(4), options["lstm"]["n_layers"] == 1
    shape = len(WORDS), options["lstm"]["projection_dim"]
    variables = {"lm/softmax/W": rng.normal(size=shape).astype(np.float32)}
    variables["lm/softmax/b"] = rng.normal(size=len(WORDS)).astype(np.float32)
    for name, array in make_arrays(options, single_cell=single_cell).items():
        for hdf5, tensorflow in NAMES:
            name = name.replace(hdf5, tensorflow)
        variables[f"lm/{name}"] = array
    slots = {f"{name}/Adagrad": np.ones_like(array) for name, array in variables.items()}
    return variables | slots | {"global_step": np.float32(70), "train_perplexity": np.float32(0)}


def our_losses(model: ElmoForPreTraining) -> tuple[float, float]:
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    inputs = tokenizer(TEXT, is_split_into_words=True, padding=True, return_tensors="pt")
    words = torch.full(inputs["attention_mask"].shape, -100)
    for row, sentence in zip(words, TEXT, strict=True):
        row[: len(sentence) + 2] = torch.tensor(word_ids(sentence))
    with torch.no_grad():
        output = model(**inputs, labels=neighbor_labels(words, inputs["attention_mask"]))
    return output.forward_loss.item(), output.backward_loss.item()


def word_ids(sentence: list[str]) -> list[int]:
    return [WORDS.index(word) if word in WORDS else 2 for word in ["<S>", *sentence, "</S>"]]


def expected_losses(options: dict, folder: Path) -> list[float]:
    """The mean negative log-likelihood of each word's next and previous word, from the NumPy reference."""
    single_cell = options["lstm"]["n_layers"] == 1
    reference = NumpyELMo(*write_files(folder, options, make_arrays(options, single_cell=single_cell)))
    variables, losses = make_variables(options), ([], [])
    for sentence in TEXT:
        ids = np.array(word_ids(sentence))
        forward, backward = np.split(reference.layers(sentence)[0][-1], 2, axis=1)
        for found, vectors, targets in zip(losses, (forward[:-1], backward[1:]), (ids[1:], ids[:-1]), strict=True):
            logits = vectors @ variables["lm/softmax/W"].T.astype(np.float64) + variables["lm/softmax/b"]
            found.extend(np.log(np.exp(logits).sum(1)) - logits[range(len(targets)), targets])
    return [np.mean(one) for one in losses]


TEXT = [["the", "cat", "sat", "on", "a", "zebra", "."], ["it"], ["a", "dog", "saw", "the", "mat"]]


# -- bilm-tf, without TensorFlow ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def stored_variables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that a test pickled next to the checkpoint's files stand for what TensorFlow reads there."""
    if "tensorflow" not in request.fixturenames:
        read = lambda prefix: pickle.loads(prefix.with_name("variables.pkl").read_bytes())  # noqa: E731
        monkeypatch.setattr("hf_elmo.conversion.tensorflow_checkpoints.read_variables", read)


def write_training(folder: Path, name: str = "projection", step: int = 70) -> Path:
    """A training's folder."""
    folder.mkdir(parents=True)
    options = training_options(name)
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    for ending in ("index", "meta", "data-00000-of-00001"):
        (folder / f"model.ckpt-{step}.{ending}").write_bytes(ending.encode())
    (folder / "variables.pkl").write_bytes(pickle.dumps(make_variables(options)))
    return folder


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_losses_are_those_of_an_independent_computation(name: str, tmp_path: Path) -> None:
    out = convert(write_training(tmp_path / "training", name), tmp_path / "out")
    model, tokenizer = ElmoForPreTraining.from_pretrained(out), ElmoTokenizer.from_pretrained(out)
    options = training_options(name)
    assert our_losses(model) == pytest.approx(expected_losses(options, tmp_path / "reference"), rel=1e-5)
    config = model.config
    assert (config.vocab_size, config.num_sampled, config.hidden_dropout) == (len(WORDS), 5, 0.1)
    assert (tokenizer.vocabulary, tokenizer.word_splitting) == (WORDS, "whitespace")
    record = json.loads((out / "conversion.json").read_text())
    files = ["model.ckpt-70.data-00000-of-00001", "model.ckpt-70.index", "options.json", "vocab.txt"]
    assert [one["file"] for one in record["sources"]] == files


def test_the_latest_checkpoint_of_a_folder(tmp_path: Path) -> None:
    folder = write_training(tmp_path / "training")
    assert find_checkpoint(folder) == folder / "model.ckpt-70"
    (folder / "model.ckpt-7.index").touch()
    assert find_checkpoint(folder) is None
    (folder / "checkpoint").write_text(
        'model_checkpoint_path: "/somewhere/else/model.ckpt-7"\nall_model_checkpoint_paths: "model.ckpt-70"\n'
    )
    assert find_checkpoint(folder) == folder / "model.ckpt-7"
    with pytest.raises(FileNotFoundError, match="checkpoint"):
        read_bilm_tf(tmp_path)


def test_a_vocabulary_that_is_not_the_softmaxs(tmp_path: Path) -> None:
    folder = write_training(tmp_path / "training")
    (tmp_path / "other.txt").write_text("<S>\n</S>\n<UNK>\n")
    with pytest.raises(ValueError, match="softmax/W"):
        convert(folder, tmp_path / "other.txt", tmp_path / "out")
    (folder / "vocab.txt").write_text("\n".join(["<s>", "</s>", *WORDS[2:]]))
    with pytest.raises(ValueError, match=r"vocab\.txt: the vocabulary lacks <S>, </S>"):
        convert(folder, tmp_path / "out")
    (folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match="vocab"):
        convert(folder, tmp_path / "out")


def test_a_vocabulary_as_bilm_tf_reads_it(tmp_path: Path) -> None:
    """A byte order mark is no part of `<S>`, and the line `!!!MAXTERMID` is no word."""
    folder = write_training(tmp_path / "training")
    lines = [*WORDS[:3], "!!!MAXTERMID", *WORDS[3:]]
    (folder / "words").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig", newline="")
    out = convert(folder / "model.ckpt-70.index", folder / "words", tmp_path / "out")
    assert ElmoTokenizer.from_pretrained(out).vocabulary == WORDS
    assert our_losses(ElmoForPreTraining.from_pretrained(out)) == pytest.approx(
        expected_losses(training_options("projection"), tmp_path / "reference"), rel=1e-5
    )


# -- TF-Hub, without TensorFlow ----------------------------------------------------------------------------------------

SCALARS, SCALING = [0.5, -1.25, 2.0], 1.5
HUB_OPTIONS = make_options(lstm={"cell_clip": 3, "proj_clip": 3})


def hub_variables(scope: str = "module/") -> dict[str, np.ndarray]:
    """The variables of a small module: the datasets of AllenNLP's format under the names of TensorFlow's cells."""
    variables = {}
    for name, array in make_arrays(HUB_OPTIONS).items():
        name = name.replace("/LSTMCell/W_P_0", "/rnn/lstm_cell/projection/kernel")
        name = name.replace("/LSTMCell/W_0", "/rnn/lstm_cell/kernel").replace("/LSTMCell/B", "/rnn/lstm_cell/bias")
        variables[f"{scope}bilm/{name}"] = array
    variables[f"{scope}aggregation/weights"] = np.array(SCALARS, np.float32)
    variables[f"{scope}aggregation/scaling"] = np.float32(SCALING)
    return variables


def write_module(folder: Path, variables: dict[str, np.ndarray]) -> Path:
    (folder / "variables").mkdir(parents=True)
    for file in ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"):
        (folder / file).write_bytes(file.encode())
    (folder / "variables" / "variables.pkl").write_bytes(pickle.dumps(variables))
    return folder


@pytest.mark.parametrize("scope", ["module/", ""])
def test_the_tensors_of_a_module(scope: str, tmp_path: Path) -> None:
    source = write_module(tmp_path / "module", hub_variables(scope) | {"global_step": np.int64(7)})
    require_module(ElmoModel.from_pretrained(convert(source, tmp_path / "out")), tmp_path)


def require_module(found: ElmoModel, tmp_path: Path) -> None:
    """A model has the tensors and the sizes of `hub_variables`."""
    expected = load(*write_files(tmp_path / "source", HUB_OPTIONS, make_arrays(HUB_OPTIONS)))
    for field in ("char_filters", "cell_size", "hidden_size", "num_hidden_layers", "cell_clip", "num_highway_layers"):
        assert getattr(found.config, field) == getattr(expected.config, field)
    for key, tensor in expected.state_dict().items():
        if not key.startswith("scalar_mix."):
            assert torch.equal(found.state_dict()[key], tensor), key
    assert found.scalar_mix.scalars.tolist() == [SCALARS]
    assert found.scalar_mix.gamma.tolist() == [SCALING]


# -- with TensorFlow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_checkpoint_of_tensorflow(tensorflow: ModuleType, tmp_path: Path, name: str) -> None:
    tf, options = tensorflow.compat.v1, training_options(name)
    folder = write_training(tmp_path / "training", name, step=7)
    with tensorflow.Graph().as_default(), tf.Session() as session:
        for variable, array in make_variables(options).items():
            tf.get_variable(variable, initializer=tf.constant(array))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(folder / "model.ckpt"), global_step=70)
    for number, source in enumerate((folder, folder / "model.ckpt-70")):
        model = ElmoForPreTraining.from_pretrained(convert(source, tmp_path / str(number)))
        assert our_losses(model) == pytest.approx(expected_losses(options, tmp_path / "reference"), rel=1e-5)


def test_a_saved_model_that_tensorflow_writes(tensorflow: ModuleType, tmp_path: Path) -> None:
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
